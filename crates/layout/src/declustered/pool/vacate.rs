//! Removing a drive: its seat becomes vacant.
//!
//! The free cells of the other drives may be just as many as the drive has pieces, and a group can use those of some
//! drives only. So a piece that finds no free cell takes that of another one, which moves on: an augmenting path in the
//! bipartite graph of pieces and drives. If there is an assignment, it is found.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use block::Seat;

use super::grow::Move;
use super::{FREE, Pool};
use crate::{Cell, Layout};

/// Where pieces are that are not where the table has them.
pub trait Elsewhere {
    /// The cell of a piece, if it is elsewhere.
    fn elsewhere(&self, group: u64, column: u16) -> Option<Cell>;

    /// Whether a cell is not free, although the table has nothing there.
    fn is_used(&self, cell: Cell) -> bool;

    /// Whether a drive has a piece of the group, or will have one, that the table has elsewhere.
    fn has_piece(&self, group: u64, seat: Seat) -> bool;
}

/// Where the pieces of a drive go that are not elsewhere yet.
struct Assignment<'a> {
    pool: &'a Pool,
    source: Seat,
    pieces: &'a dyn Elsewhere,
    /// Free cells of each drive that no piece goes to.
    free: BTreeMap<Seat, Vec<u64>>,
    /// Cells of each drive that pieces go to.
    taken: BTreeMap<Seat, Vec<u64>>,
    /// The pieces that go to each drive.
    to: BTreeMap<Seat, Vec<u64>>,
}

impl Pool {
    /// Cells for the pieces of a drive that leaves, of those groups that `is_meant`: a free one for each piece that is not
    /// elsewhere, on another drive outside its group. The emptiest drives get them first. `None` if there is no room.
    #[must_use]
    pub fn vacating(
        &self,
        seat: Seat,
        pieces: &dyn Elsewhere,
        is_meant: &dyn Fn(u64) -> bool,
    ) -> Option<Vec<Move>> {
        let left = self.seats_in_use().filter(|&other| other != seat).count();
        if self.is_vacant(seat) || left < usize::from(self.width) {
            return None;
        }
        let mut assignment = Assignment::new(self, seat, pieces);
        for entry in self.pieces_of(seat) {
            let (group, column) = self.column_of(entry);
            let elsewhere = pieces.elsewhere(group, column);
            let is_here = elsewhere.is_none_or(|cell| cell.seat == seat);
            if is_here && is_meant(group) && !assignment.add(entry) {
                return None;
            }
        }
        Some(assignment.moves())
    }

    /// The table without the drive of `seat`: each of its pieces is where it is elsewhere, or else in a cell of
    /// [`vacating`](Self::vacating). `None` if there is no room.
    #[must_use]
    pub fn without(&self, seat: Seat, pieces: &dyn Elsewhere) -> Option<Self> {
        let moves = self.vacating(seat, pieces, &|_| true)?;
        let mut after = self.clone();
        for entry in self.pieces_of(seat) {
            let (group, column) = self.column_of(entry);
            if let Some(to) = pieces.elsewhere(group, column).filter(|to| to.seat != seat) {
                after.move_piece(entry, to);
            }
        }
        for piece in moves {
            let entry = self.at(piece.group, piece.column) as u64;
            after.move_piece(entry, piece.to);
        }
        after.taken[seat.index()].clear();
        let mut vacant = self.vacant.clone();
        vacant.push(seat);
        vacant.sort_unstable();
        Some(after.with_vacant(vacant))
    }

    /// Removes the last groups, so that `count` are left.
    pub fn keep_groups(&mut self, count: u64) {
        while self.group_count() > count {
            let seats: Vec<Seat> = self.group_seats(self.group_count() - 1).collect();
            for (index, &a) in seats.iter().enumerate() {
                for &b in &seats[..index] {
                    self.meet(a, b, -1);
                }
            }
            for _ in &seats {
                let cell = self
                    .members
                    .pop()
                    .expect("a group has a member on each seat");
                self.release_popped(cell);
            }
        }
    }

    /// A piece of a group that is gone.
    fn release_popped(&mut self, cell: Cell) {
        let taken = &mut self.taken[cell.seat.index()];
        let index = usize::try_from(cell.row).expect("a table's index");
        let entry = std::mem::replace(&mut taken[index], FREE);
        while taken.last() == Some(&FREE) {
            taken.pop();
        }
        self.parities[cell.seat.index()] -= u64::from(self.is_parity(entry));
        self.filled[cell.seat.index()] -= 1;
    }

    /// Groups that fit beside the preservation capacity, as far as arithmetic can tell.
    #[must_use]
    pub fn groups_beside_preserved(&self, in_use: u16) -> u64 {
        let pieces = super::filled_max(self.rows, in_use, self.preserved) * u64::from(in_use);
        pieces / u64::from(self.width)
    }

    fn pieces_of(&self, seat: Seat) -> impl Iterator<Item = u64> + '_ {
        let pieces = self.taken[seat.index()].iter().copied();
        pieces.filter(|&entry| entry != FREE)
    }

    fn column_of(&self, entry: u64) -> (u64, u16) {
        let width = u64::from(self.width);
        (entry / width, crate::classic::small(entry % width))
    }
}

impl<'a> Assignment<'a> {
    fn new(pool: &'a Pool, source: Seat, pieces: &'a dyn Elsewhere) -> Self {
        let others = pool.seats_in_use().filter(|&seat| seat != source);
        let free = others.map(|seat| {
            let taken = &pool.taken[seat.index()];
            let is_free = |row: u64| {
                let index = usize::try_from(row).expect("a table's index");
                taken.get(index).is_none_or(|&entry| entry == FREE)
            };
            let rows =
                (0..pool.rows).filter(|&row| is_free(row) && !pieces.is_used(Cell { seat, row }));
            // The lowest is taken first.
            (seat, rows.rev().collect())
        });
        Self {
            pool,
            source,
            pieces,
            free: free.collect(),
            taken: BTreeMap::new(),
            to: BTreeMap::new(),
        }
    }

    /// The drives that may have a piece, the emptiest first.
    fn drives_for(&self, entry: u64) -> Vec<Seat> {
        let (group, _) = self.pool.column_of(entry);
        let seats: Vec<Seat> = self.pool.group_seats(group).collect();
        let may = |&seat: &Seat| {
            !seats.contains(&seat)
                && !self.pieces.has_piece(group, seat)
                && self.pool.domain_allows(&seats, self.source, seat)
        };
        let mut drives: Vec<Seat> = self.free.keys().copied().filter(may).collect();
        let met = |seat: Seat| -> u32 {
            let others = seats.iter().filter(|&&other| other != self.source);
            others.map(|&other| self.pool.shared(seat, other)).sum()
        };
        drives.sort_by_key(|&seat| (Reverse(self.free[&seat].len()), met(seat), seat));
        drives
    }

    /// Finds a drive for a piece; false if there is none.
    fn add(&mut self, entry: u64) -> bool {
        // From which drive, and with which piece, each drive was reached first.
        let mut reached: BTreeMap<Seat, (Option<Seat>, u64)> = BTreeMap::new();
        let mut queue = VecDeque::new();
        for drive in self.drives_for(entry) {
            reached.insert(drive, (None, entry));
            queue.push_back(drive);
        }
        while let Some(drive) = queue.pop_front() {
            if !self.free[&drive].is_empty() {
                self.shift(drive, &reached);
                return true;
            }
            for &piece in self.to.get(&drive).into_iter().flatten() {
                for next in self.drives_for(piece) {
                    reached.entry(next).or_insert_with(|| {
                        queue.push_back(next);
                        (Some(drive), piece)
                    });
                }
            }
        }
        false
    }

    /// The drive takes a piece, the drive that the piece went to takes another one, and so on to the first.
    fn shift(&mut self, mut drive: Seat, reached: &BTreeMap<Seat, (Option<Seat>, u64)>) {
        let row = self.free.get_mut(&drive).and_then(Vec::pop);
        self.taken.entry(drive).or_default().extend(row);
        loop {
            let (from, piece) = reached[&drive];
            self.to.entry(drive).or_default().push(piece);
            let Some(from) = from else {
                return;
            };
            self.to
                .entry(from)
                .or_default()
                .retain(|&other| other != piece);
            drive = from;
        }
    }

    /// Each drive's pieces are in its lowest free cells.
    fn moves(self) -> Vec<Move> {
        let cells = self.to.into_iter().flat_map(|(seat, pieces)| {
            let rows = self.taken[&seat].clone();
            let cell = move |row| Cell { seat, row };
            pieces.into_iter().zip(rows.into_iter().map(cell))
        });
        let moves = cells.map(|(entry, to)| {
            let (group, column) = self.pool.column_of(entry);
            Move {
                group,
                column,
                from: self.pool.cell(group, column),
                to,
            }
        });
        moves.collect()
    }
}
