//! Pools: a stored table gives the place of each column of each group.
//!
//! ```text
//!   group   member 0      member 1      member 2            drive 0   drive 1   drive 2   drive 3
//!     0     drive 2 p0    drive 0 p0    drive 3 p0     p1   g2        g1        g1        ·
//!     1     drive 1 p0    drive 2 p1    drive 0 p1     p0   g0        g1        g0        g0
//! ```
//!
//! Space is allocated in *pieces*; a group takes one piece of each of d + p drives. Since the table
//! defines the placement, groups can be added one by one, any piece can move to any drive, and a
//! pool can grow by one drive at a time. A rule only chooses the members of a new group:
//!
//! *Pair-balanced.* Begin at the drive with most free pieces; then take, one after the other, the
//! drive that shares the fewest groups with the members so far. Fill and shared groups stay within
//! a few of their means. So all drives are partners of a failed drive alike, and any two drives
//! share almost as many groups as any other two.
//!
//! *CRUSH.* Members are chosen by hashing the group's number (straw2, `indep`); drives without a
//! free piece are refused. Cheaper, moves little when weights change, and binomially uneven.
//!
//! There are no spare cells per row. *Preservation capacity* of s drives is kept free, spread over
//! all drives; a lost piece goes to the drive outside its group that has taken fewest so far.

mod grow;
mod members;
mod stored;
mod vacate;

use std::sync::Arc;

use block::{Seat, mix};

use super::{Domains, Kind, Made, Parity};
use crate::developed::{Shape, declustered_place, declustered_unplace};
use crate::geometry::{Ask, Field, GeometryError};
use crate::{Cell, Layout, Place, Role};

pub use grow::Move;
pub use members::Choice;
pub use stored::StoredError;
pub use vacate::Elsewhere;

/// Marks a piece that belongs to no group.
const FREE: u64 = u64::MAX;

/// Name and fields of pair-balanced pools in scheme strings.
pub(super) static DDP: Kind = Kind {
    name: "ddp",
    // As in NetApp's disk pools.
    parity: Parity::FieldOr(2),
    domains: Domains::Spread,
    is_pool: true,
    offered: &["ddp"],
    examples: &["ddp:4d:14c:2s", "ddp:8d:60c:3s", "ddp:8d:3p:60c:3s"],
    make: |ask, shape| {
        let choice = ask
            .scheme
            .domains
            .map_or(Choice::PairBalanced, Choice::Domains);
        make(ask, shape, choice)
    },
};

/// Name and fields of CRUSH pools in scheme strings.
pub(super) static CRUSH: Kind = Kind {
    name: "crush",
    parity: Parity::Digit,
    domains: Domains::Checked,
    is_pool: true,
    offered: &["crush2", "crush3"],
    examples: &["crush2:4d:14c:2s", "crush2:8d:60c:3s"],
    make: |ask, shape| match ask.scheme.domains {
        None => make(ask, shape, Choice::Crush),
        Some(_) => Err(GeometryError::Impossible {
            field: Field::Domains,
            why: "a crush pool hashes over all drives alike".to_owned(),
            nearest: "ddp".to_owned(),
        }),
    },
};

fn make(ask: &Ask<'_>, shape: Shape, choice: Choice) -> Made {
    if ask.rows > u64::from(u32::MAX) {
        return Err(GeometryError::Impossible {
            field: Field::Rows,
            why: format!(
                "{} pieces on a drive are more than 32 bits can count",
                ask.rows
            ),
            nearest: "larger pieces".to_owned(),
        });
    }
    let pool = match ask.stored {
        None => Pool::filled(shape, ask.rows, choice),
        Some(stored) => Pool::restore(shape, ask.rows, choice, stored).map_err(|error| {
            GeometryError::Stored {
                why: error.to_string(),
            }
        })?,
    };
    Ok(Arc::new(pool))
}

/// A pool's table.
#[derive(Clone, Debug)]
pub struct Pool {
    drives: u16,
    width: u16,
    parity: u16,
    choice: Choice,
    /// Pieces of each drive.
    rows: u64,
    /// Preservation capacity, in drives.
    preserved: u16,
    /// Pieces of a drive that groups may fill; the others are preserved.
    filled_max: u64,
    /// Seats without a drive, ascending: no piece is there.
    vacant: Vec<Seat>,
    /// `members[group * width + column]`.
    members: Vec<Cell>,
    /// `taken[seat][row]`: group · width + column, or `FREE`.
    taken: Vec<Vec<u64>>,
    /// Pieces that each drive holds.
    filled: Vec<u64>,
    /// Parity columns that each drive holds.
    parities: Vec<u64>,
    /// `met[a * n + b]`: groups that both drives belong to.
    met: Vec<u32>,
}

/// Pieces of a drive that groups may fill, if so many drives are in use and so many drives' worth is preserved.
fn filled_max(rows: u64, in_use: u16, preserved: u16) -> u64 {
    rows * u64::from(in_use.saturating_sub(preserved)) / u64::from(in_use.max(1))
}

impl Pool {
    /// A pool of drives with `rows` pieces each and no groups yet. `shape.spares` is the
    /// preservation capacity in drives; it is spread over all drives.
    ///
    /// # Panics
    /// When a group is wider than the drives.
    #[must_use]
    pub fn new(shape: Shape, rows: u64, choice: Choice) -> Self {
        assert!(
            shape.width <= shape.drives,
            "a group is wider than the pool"
        );
        let n = usize::from(shape.drives);
        Self {
            drives: shape.drives,
            width: shape.width,
            parity: shape.parity,
            choice,
            rows,
            preserved: shape.spares,
            filled_max: filled_max(rows, shape.drives, shape.spares),
            vacant: Vec::new(),
            members: Vec::new(),
            taken: vec![Vec::new(); n],
            filled: vec![0; n],
            parities: vec![0; n],
            met: vec![0; n * n],
        }
    }

    /// As [`Pool::new`], with as many groups as fit.
    #[must_use]
    pub fn filled(shape: Shape, rows: u64, choice: Choice) -> Self {
        let mut pool = Self::new(shape, rows, choice);
        pool.fill_up();
        pool
    }

    /// The same with these seats vacant.
    fn with_vacant(mut self, vacant: Vec<Seat>) -> Self {
        let in_use = self.drives - u16::try_from(vacant.len()).expect("they are seats");
        self.filled_max = filled_max(self.rows, in_use, self.preserved);
        self.vacant = vacant;
        self
    }

    fn is_vacant(&self, seat: Seat) -> bool {
        self.vacant.binary_search(&seat).is_ok()
    }

    /// Seats with a drive.
    fn seats_in_use(&self) -> impl Iterator<Item = Seat> + '_ {
        let seats = (0..self.drives).map(Seat);
        seats.filter(|&seat| !self.is_vacant(seat))
    }

    const fn shape(&self) -> Shape {
        Shape {
            drives: self.drives,
            width: self.width,
            parity: self.parity,
            spares: self.preserved,
        }
    }

    /// Groups so far.
    #[must_use]
    pub fn group_count(&self) -> u64 {
        (self.members.len() / usize::from(self.width)) as u64
    }

    /// The preservation capacity that the scheme asks for, in drives.
    #[must_use]
    pub const fn preserved(&self) -> u16 {
        self.preserved
    }

    /// Pieces that a drive holds.
    #[must_use]
    pub fn pieces_on(&self, seat: Seat) -> u64 {
        self.filled[seat.index()]
    }

    /// Groups that two drives share.
    #[must_use]
    pub fn shared(&self, a: Seat, b: Seat) -> u32 {
        self.met[a.index() * usize::from(self.drives) + b.index()]
    }

    fn at(&self, group: u64, column: u16) -> usize {
        usize::try_from(group).expect("a table's index") * usize::from(self.width)
            + usize::from(column)
    }

    /// The seats of a group, one per column.
    pub fn group_seats(&self, group: u64) -> impl Iterator<Item = Seat> {
        let first = self.at(group, 0);
        self.members[first..first + usize::from(self.width)]
            .iter()
            .map(|cell| cell.seat)
    }

    /// The lowest free piece of a drive.
    fn free_row(&self, seat: Seat) -> u64 {
        let taken = &self.taken[seat.index()];
        let gap = if self.filled[seat.index()] == taken.len() as u64 {
            None
        } else {
            taken.iter().position(|&entry| entry == FREE)
        };
        gap.unwrap_or(taken.len()) as u64
    }

    /// Records that a drive's piece holds the table's entry `entry`.
    fn occupy(&mut self, seat: Seat, row: u64, entry: u64) {
        let taken = &mut self.taken[seat.index()];
        let index = usize::try_from(row).expect("a table's index");
        if taken.len() <= index {
            taken.resize(index + 1, FREE);
        }
        debug_assert_eq!(taken[index], FREE, "a piece is taken once");
        taken[index] = entry;
        self.filled[seat.index()] += 1;
        self.parities[seat.index()] += u64::from(self.is_parity(entry));
    }

    fn release(&mut self, cell: Cell) {
        let taken = &mut self.taken[cell.seat.index()];
        let index = usize::try_from(cell.row).expect("a table's index");
        let entry = std::mem::replace(&mut taken[index], FREE);
        self.parities[cell.seat.index()] -= u64::from(self.is_parity(entry));
        self.filled[cell.seat.index()] -= 1;
    }

    /// Whether a table entry is a parity column.
    fn is_parity(&self, entry: u64) -> bool {
        entry % u64::from(self.width) < u64::from(self.parity)
    }

    fn meet(&mut self, a: Seat, b: Seat, by: i32) {
        let n = usize::from(self.drives);
        for at in [a.index() * n + b.index(), b.index() * n + a.index()] {
            self.met[at] = self.met[at].wrapping_add_signed(by);
        }
    }
}

impl Layout for Pool {
    fn drives(&self) -> u16 {
        self.drives
    }

    fn columns(&self) -> u16 {
        self.width
    }

    fn vacant(&self) -> &[Seat] {
        &self.vacant
    }

    fn spares(&self) -> u16 {
        0
    }

    /// As many as are preserved; fewer after drives were removed whose pieces went to the cells that were preserved.
    fn spare_drives(&self) -> u16 {
        let mut pieces: Vec<u64> = self
            .seats_in_use()
            .map(|seat| self.filled[seat.index()])
            .collect();
        pieces.sort_unstable_by_key(|&pieces| std::cmp::Reverse(pieces));
        let fits = |&failed: &usize| {
            let (gone, left) = pieces.split_at(failed.min(pieces.len()));
            let room = left.iter().map(|pieces| self.rows.saturating_sub(*pieces));
            gone.iter().sum::<u64>() <= room.sum()
        };
        let most = usize::from(self.preserved);
        let failed = (1..=most).take_while(fits).last().unwrap_or(0);
        u16::try_from(failed).unwrap_or(self.preserved)
    }

    /// Groups of the table that lie within `rows`.
    fn groups(&self, rows: u64) -> u64 {
        if rows >= self.rows {
            return self.group_count();
        }
        let width = usize::from(self.width);
        let fits = |cells: &&[Cell]| cells.iter().all(|cell| cell.row < rows);
        self.members.chunks(width).take_while(fits).count() as u64
    }

    #[inline]
    fn cell(&self, group: u64, column: u16) -> Cell {
        self.members[self.at(group, column)]
    }

    fn role(&self, cell: Cell) -> Role {
        let entry = usize::try_from(cell.row)
            .ok()
            .and_then(|row| self.taken[cell.seat.index()].get(row))
            .copied()
            .unwrap_or(FREE);
        if entry == FREE {
            return Role::Unused;
        }
        let width = u64::from(self.width);
        Role::Column {
            group: entry / width,
            column: crate::classic::small(entry % width),
        }
    }

    /// Not used: pools have no spare cells per row.
    fn spare(&self, _row: u64, index: u16) -> Seat {
        Seat(index % self.drives)
    }

    fn pattern_rows(&self) -> u64 {
        self.rows
    }

    fn place(&self, _stripe: u64, index: u64, unit: u16) -> Place {
        declustered_place(self.width, self.parity, index, unit)
    }

    fn unplace(&self, _first: u64, place: Place) -> Option<(u64, u16)> {
        Some(declustered_unplace(self.width, self.parity, place))
    }

    /// The drive with most free pieces, outside the group and not out. Pieces for which `used` is
    /// true are not free. Of equals, the drive that shares the fewest groups with the group's
    /// drives.
    fn spare_for(
        &self,
        group: u64,
        column: u16,
        out: &dyn Fn(Seat) -> bool,
        used: &dyn Fn(Cell) -> bool,
    ) -> Option<Cell> {
        let seats: Vec<Seat> = self.group_seats(group).collect();
        let free = |seat: Seat| self.first_unused(seat, used).map(|row| Cell { seat, row });
        self.seats_in_use()
            .filter(|&seat| !out(seat) && !seats.contains(&seat))
            .filter_map(free)
            .min_by_key(|cell| {
                let met: u32 = seats.iter().map(|&seat| self.shared(seat, cell.seat)).sum();
                let entry = self.at(group, column) as u64;
                (cell.row, met, mix(entry << 16 | u64::from(cell.seat.0)))
            })
    }

    fn table(&self) -> Option<&Pool> {
        Some(self)
    }

    fn stored(&self) -> Option<Vec<u8>> {
        Some(stored::encode(self))
    }
}

impl Pool {
    /// A piece that is not `used`: the first one above the drive's own pieces, or if there is none, a hole that a move
    /// has left.
    fn first_unused(&self, seat: Seat, used: &dyn Fn(Cell) -> bool) -> Option<u64> {
        self.first_unused_above(seat, used).or_else(|| {
            let taken = &self.taken[seat.index()];
            let has_holes = self.filled[seat.index()] < taken.len() as u64;
            let rows = (0..).zip(taken).filter(|_| has_holes);
            let mut holes =
                rows.filter(|&(row, &entry)| entry == FREE && !used(Cell { seat, row }));
            holes.next().map(|(row, _)| row)
        })
    }

    /// Spares fill up from below, so doubling steps and bisection find the end.
    fn first_unused_above(&self, seat: Seat, used: &dyn Fn(Cell) -> bool) -> Option<u64> {
        let start = self.taken[seat.index()].len() as u64;
        let is_used = |row| used(Cell { seat, row });
        if start >= self.rows {
            return None;
        }
        if !is_used(start) {
            return Some(start);
        }
        let (mut low, mut step) = (start, 1);
        while low + step < self.rows && is_used(low + step) {
            low += step;
            step *= 2;
        }
        let mut high = (low + step).min(self.rows);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if is_used(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        (high < self.rows).then_some(high)
    }
}
