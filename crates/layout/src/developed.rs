//! Permutation development: the engine under PDDL and dRAID.
//!
//! A *base permutation* B gives the drive at each position of a row. Positions are cut
//! into groups from the left; the last s are spares. The next row takes the same base and moves
//! every drive on by one:
//!
//! ```text
//!   n = 7, groups of 3, 1 spare        position   0 1 2   3 4 5   6
//!   base 0: 1 2 4  3 6 5  0            row 0      1 2 4 | 3 6 5 | 0
//!                                      row 1      2 3 5 | 4 0 6 | 1        + 1 mod 7
//!                                      row 2      3 4 6 | 5 1 0 | 2        + 2 mod 7
//! ```
//!
//! After n rows every drive has been at every position once, whatever the base: data, parity and
//! spare space are uniform by construction. Which drives meet in a group depends on the differences
//! within the base's groups: a good base spreads a rebuild evenly ([`crate::pddl`] defines good).
//! After n rows the next of M bases begins.
//!
//! Where n − s is no multiple of the group's width, groups continue in the next row of the same
//! *slice*: R rows with one permutation and one shift, R·(n−s) the first common multiple. Such a
//! group takes the end of one row and the beginning of the next. It never has two cells on one
//! drive, since it is no wider than n − s.
//!
//! ```text
//!   n − s = 5, groups of 3, R = 3:  row 0   g0.0 g0.1 g0.2 g1.0 g1.1   S
//!                                   row 1   g1.2 g2.0 g2.1 g2.2 g3.0   S
//!                                   row 2   g3.1 g3.2 g4.0 g4.1 g4.2   S
//! ```

use std::sync::Arc;

use block::Seat;

use crate::classic::small;
use crate::divide::Divisor;
use crate::mirror::gcd;
use crate::{Cell, Layout, Place, Role};

/// How a base moves on from row to row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Development {
    /// drive = (B + x) mod n.
    Modulo,
    /// drive = B xor x, where n is a power of two.
    Xor,
    /// The drives are the cells of a grid of f domains (drive x in domain x mod f) and move on in
    /// both directions: shift x is x mod f domains and x div f places within them. Drives that
    /// share a domain share one after every shift.
    Grid {
        /// f: number of domains, a divisor of n.
        domains: u16,
    },
    /// drive = B, and the next row takes the next base.
    Still,
}

impl Development {
    /// `drive` moved on by `shift`, both below n = `drives`.
    #[inline]
    #[must_use]
    pub fn moved(self, drives: u16, drive: u16, shift: u16) -> u16 {
        match self {
            Self::Modulo => add_mod(drive, shift, drives),
            Self::Xor => drive ^ shift,
            Self::Grid { domains } => {
                let domain = add_mod(drive % domains, shift % domains, domains);
                domain + domains * add_mod(drive / domains, shift / domains, drives / domains)
            }
            Self::Still => drive,
        }
    }

    /// The inverse of `moved`: where `drive` was before it moved by `shift`. Also the difference of
    /// two drives, which is what rebuild balance depends on.
    #[inline]
    #[must_use]
    pub fn moved_back(self, drives: u16, drive: u16, shift: u16) -> u16 {
        match self {
            Self::Modulo => sub_mod(drive, shift, drives),
            Self::Xor => drive ^ shift,
            Self::Grid { domains } => {
                let domain = sub_mod(drive % domains, shift % domains, domains);
                domain + domains * sub_mod(drive / domains, shift / domains, drives / domains)
            }
            Self::Still => drive,
        }
    }
}

#[inline]
fn add_mod(a: u16, b: u16, n: u16) -> u16 {
    let (sum, n) = (u32::from(a) + u32::from(b), u32::from(n));
    small(u64::from(if sum >= n { sum - n } else { sum }))
}

#[inline]
const fn sub_mod(a: u16, b: u16, n: u16) -> u16 {
    if a >= b { a - b } else { a + (n - b) }
}

/// Base permutations and their development.
#[derive(Clone, Debug)]
pub struct Developed {
    drives: u16,
    spares: u16,
    width: u16,
    parity: u16,
    development: Development,
    /// `bases[m * n + position]` is the drive.
    bases: Arc<[u16]>,
    /// `positions[m * n + drive]` is the position.
    positions: Arc<[u16]>,
    base_count: u64,
    by_domains: Divisor,
    by_places: Divisor,
    /// The encoding to store, for bases that came from a search.
    stored: Option<Arc<[u8]>>,
    /// Slices per base: n, or 1 for [`Development::Still`].
    by_shifts: Divisor,
    by_bases: Divisor,
    /// Groups of a slice.
    slice_groups: Divisor,
    /// Rows of a slice.
    slice_rows: Divisor,
    /// (row in the slice, position) of each group's column 0.
    starts: Vec<(u16, u16)>,
}

/// The shape that bases are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// n: drives in the development.
    pub drives: u16,
    /// d + p: columns of a group.
    pub width: u16,
    /// p: how many of the columns, from 0, are parity.
    pub parity: u16,
    /// s: spare cells of a row.
    pub spares: u16,
}

impl Shape {
    /// Groups of a slice and rows of it.
    #[must_use]
    pub fn slice(self) -> (u16, u16) {
        let used = u64::from(self.drives - self.spares);
        let common = gcd(used, self.width.into());
        (small(used / common), small(u64::from(self.width) / common))
    }
}

impl Developed {
    /// From `bases`, each a permutation of `0..shape.drives`, one after the other.
    ///
    /// # Panics
    /// When there is no base, a base is no permutation, xor is requested and `drives` is no power
    /// of two, or a group is wider than `drives - spares`.
    #[must_use]
    pub fn new(shape: Shape, development: Development, bases: &[u16]) -> Self {
        let n = usize::from(shape.drives);
        let used = shape.drives - shape.spares;
        assert!(
            shape.width <= used && shape.width > 0,
            "a group is wider than its row"
        );
        assert!(
            !bases.is_empty() && bases.len().is_multiple_of(n),
            "bases are whole permutations"
        );
        assert!(
            match development {
                Development::Xor => shape.drives.is_power_of_two(),
                Development::Grid { domains } => shape.drives.is_multiple_of(domains),
                Development::Modulo | Development::Still => true,
            },
            "{development:?} does not develop {} drives",
            shape.drives
        );
        let mut positions = vec![u16::MAX; bases.len()];
        for (base, inverse) in bases.chunks(n).zip(positions.chunks_mut(n)) {
            for (position, &drive) in base.iter().enumerate() {
                let slot = &mut inverse[usize::from(drive)];
                assert_eq!(*slot, u16::MAX, "drive {drive} stands twice in a base");
                *slot = small(position as u64);
            }
        }
        let (groups, rows) = shape.slice();
        let starts = (0..u32::from(groups)).map(|group| {
            let cells = group * u32::from(shape.width);
            let used = u32::from(used);
            (
                small(u64::from(cells / used)),
                small(u64::from(cells % used)),
            )
        });
        let base_count = (bases.len() / n) as u64;
        let domains = match development {
            Development::Grid { domains } => domains,
            Development::Modulo | Development::Xor | Development::Still => 1,
        };
        Self {
            drives: shape.drives,
            spares: shape.spares,
            width: shape.width,
            parity: shape.parity,
            development,
            bases: bases.into(),
            positions: positions.into(),
            base_count,
            by_domains: Divisor::new(domains.into()),
            by_places: Divisor::new((shape.drives / domains).into()),
            stored: None,
            by_shifts: Divisor::new(match development {
                Development::Still => 1,
                _ => shape.drives.into(),
            }),
            by_bases: Divisor::new(base_count),
            slice_groups: Divisor::new(groups.into()),
            slice_rows: Divisor::new(rows.into()),
            starts: starts.collect(),
        }
    }

    /// The same layout; `Layout::stored` returns `stored`.
    #[must_use]
    pub(crate) fn with_stored(mut self, stored: &[u8]) -> Self {
        self.stored = Some(stored.into());
        self
    }

    /// The shape that the layout was made for.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        Shape {
            drives: self.drives,
            width: self.width,
            parity: self.parity,
            spares: self.spares,
        }
    }

    /// How bases are developed from row to row.
    #[must_use]
    pub const fn development(&self) -> Development {
        self.development
    }

    /// The base permutations, one after the other, `drives()` entries each.
    #[must_use]
    pub fn bases(&self) -> &[u16] {
        &self.bases
    }

    /// (index of the base's first entry, shift) of a slice.
    #[inline]
    fn base(&self, slice: u64) -> (usize, u16) {
        let (turn, shift) = self.by_shifts.div_rem(slice);
        let base = self.by_bases.div_rem(turn).1;
        (
            small(base) as usize * usize::from(self.drives),
            small(shift),
        )
    }

    /// As [`Development::moved`], with reciprocals for the grid's divisions.
    #[inline]
    fn moved(&self, drive: u16, shift: u16) -> u16 {
        if let Development::Grid { domains } = self.development {
            let (place, domain) = self.by_domains.div_rem(drive.into());
            let (places, turn) = self.by_domains.div_rem(shift.into());
            let domain = self.by_domains.div_rem(domain + turn).1;
            let place = self.by_places.div_rem(place + places).1;
            small(domain + u64::from(domains) * place)
        } else {
            self.development.moved(self.drives, drive, shift)
        }
    }

    fn used(&self) -> u16 {
        self.drives - self.spares
    }
}

impl Layout for Developed {
    fn drives(&self) -> u16 {
        self.drives
    }

    fn columns(&self) -> u16 {
        self.width
    }

    fn spares(&self) -> u16 {
        self.spares
    }

    /// Groups fill the rows from the left, so a slice that is cut off contains the groups that end
    /// before the cut.
    fn groups(&self, rows: u64) -> u64 {
        let (slices, rest) = self.slice_rows.div_rem(rows);
        slices * self.slice_groups.get() + rest * u64::from(self.used()) / u64::from(self.width)
    }

    #[inline]
    fn cell(&self, group: u64, column: u16) -> Cell {
        let (slice, within) = self.slice_groups.div_rem(group);
        let (mut row, start) = self.starts[small(within) as usize];
        let mut position = start + column;
        if position >= self.used() {
            position -= self.used();
            row += 1;
        }
        let (base, shift) = self.base(slice);
        let drive = self.bases[base + usize::from(position)];
        Cell {
            seat: Seat(self.moved(drive, shift)),
            row: slice * self.slice_rows.get() + u64::from(row),
        }
    }

    fn role(&self, cell: Cell) -> Role {
        let (slice, row) = self.slice_rows.div_rem(cell.row);
        let (base, shift) = self.base(slice);
        let drive = self.development.moved_back(self.drives, cell.seat.0, shift);
        let position = self.positions[base + usize::from(drive)];
        if position >= self.used() {
            return Role::Spare {
                index: self.drives - 1 - position,
            };
        }
        let cells = row * u64::from(self.used()) + u64::from(position);
        let width = u64::from(self.width);
        Role::Column {
            group: slice * self.slice_groups.get() + cells / width,
            column: small(cells % width),
        }
    }

    fn spare(&self, row: u64, index: u16) -> Seat {
        let (slice, _) = self.slice_rows.div_rem(row);
        let (base, shift) = self.base(slice);
        let drive = self.bases[base + usize::from(self.drives - 1 - index)];
        Seat(self.moved(drive, shift))
    }

    fn pattern_rows(&self) -> u64 {
        self.slice_rows.get() * self.by_shifts.get() * self.base_count
    }

    fn step(&self) -> (u64, u64) {
        (self.slice_rows.get(), self.slice_groups.get())
    }

    /// Parity stands first in a group's columns, last in a code's units.
    #[inline]
    fn place(&self, _stripe: u64, index: u64, unit: u16) -> Place {
        declustered_place(self.width, self.parity, index, unit)
    }

    fn unplace(&self, _first: u64, place: Place) -> Option<(u64, u16)> {
        Some(declustered_unplace(self.width, self.parity, place))
    }

    /// Without domains: the row's spares in order, as dRAID uses them. With domains: the first
    /// spare to try changes from group to group. A spare is skipped if its domain already holds as
    /// many of the group's other columns as may be lost, unless no other spare is left.
    fn spare_for(
        &self,
        group: u64,
        column: u16,
        out: &dyn Fn(Seat) -> bool,
        used: &dyn Fn(Cell) -> bool,
    ) -> Option<Cell> {
        let row = self.cell(group, column).row;
        let free = |index| {
            let cell = Cell {
                seat: self.spare(row, index),
                row,
            };
            (!out(cell.seat) && !used(cell)).then_some(cell)
        };
        let Development::Grid { domains } = self.development else {
            return (0..self.spares).find_map(free);
        };
        if self.spares == 0 {
            return None;
        }
        let (_, within) = self.slice_groups.div_rem(group);
        let first = small(within % u64::from(self.spares));
        let turns = |turn| free((first + turn) % self.spares);
        let holds = |cell: &Cell| {
            let domain = cell.seat.0 % domains;
            let others = (0..self.width).filter(|&other| {
                other != column && self.cell(group, other).seat.0 % domains == domain
            });
            others.count() < usize::from(self.parity)
        };
        (0..self.spares)
            .filter_map(turns)
            .find(holds)
            .or_else(|| (0..self.spares).find_map(turns))
    }

    /// A shift of all drives maps the pattern to itself.
    fn is_symmetric(&self) -> bool {
        self.development != Development::Still
    }

    fn permutations(&self) -> &[u16] {
        &self.bases
    }

    fn stored(&self) -> Option<Vec<u8>> {
        self.stored.as_deref().map(<[u8]>::to_vec)
    }
}

/// Data unit i in column p + i, parity unit d + j in column j.
#[inline]
pub(crate) fn declustered_place(width: u16, parity: u16, index: u64, unit: u16) -> Place {
    let data = width - parity;
    Place {
        column: if unit < data {
            unit + parity
        } else {
            unit - data
        },
        slot: index,
    }
}

pub(crate) fn declustered_unplace(width: u16, parity: u16, place: Place) -> (u64, u16) {
    let data = width - parity;
    let unit = if place.column < parity {
        place.column + data
    } else {
        place.column - parity
    };
    (place.slot, unit)
}
