//! Growing, draining and balancing: pieces move one at a time, and as few as possible.
//!
//! A growth by several drives is planned as if the drives came one after the other, and the difference between the first
//! and the last table is carried out:
//!
//! ```text
//!   12 drives ──► 13 ──► 14 ──► ... ──► 20        a piece:  drive 4 ──► drive 13 ──► drive 17
//!   12 drives ────────────────────────► 20        it moves: drive 4 ───────────────► drive 17
//! ```
//!
//! If all new drives were targets at once, the first pieces would find new drives without any group, and the choice by
//! shared groups would have nothing to go by: from 12 to 20 drives one survivor of a rebuild would read 1.2 times the
//! mean. One after the other it reads 1.02 times, with as many moves.

use std::cmp::Reverse;

use block::Seat;

use super::Pool;
use crate::Cell;

/// One piece's move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The piece's group.
    pub group: u64,
    /// The piece's column.
    pub column: u16,
    /// The old cell.
    pub from: Cell,
    /// The new cell.
    pub to: Cell,
}

impl Pool {
    /// Adds an empty drive with as many pieces as the others and returns its seat. Nothing moves
    /// until [`Pool::balance`] returns the moves.
    ///
    /// # Panics
    /// At 65,535 drives.
    pub fn add_drive(&mut self) -> Seat {
        let n = usize::from(self.drives);
        let mut met = vec![0; (n + 1) * (n + 1)];
        for a in 0..n {
            met[a * (n + 1)..a * (n + 1) + n].copy_from_slice(&self.met[a * n..(a + 1) * n]);
        }
        self.met = met;
        self.taken.push(Vec::new());
        self.filled.push(0);
        self.parities.push(0);
        let seat = Seat(self.drives);
        self.drives = self.drives.checked_add(1).expect("seats have 16 bits");
        seat
    }

    /// The moves that make drives equally full. Each takes a piece from the fullest drive to the
    /// emptiest drive (the target): of the pieces whose group is not on the target, the piece whose
    /// group's drives share the fewest groups with the target. After adding one drive to n this
    /// moves 1/(n+1) of the pieces, the minimum. The table is changed already; the caller has to
    /// copy the pieces.
    pub fn balance(&mut self) -> Vec<Move> {
        let mut moves = Vec::new();
        loop {
            let filled = |seat: &Seat| self.filled[seat.index()];
            let seats = || self.seats_in_use();
            let Some(target) = seats().min_by_key(filled) else {
                break;
            };
            let Some(source) = seats().max_by_key(|seat| (filled(seat), Reverse(*seat))) else {
                break;
            };
            if filled(&source) <= filled(&target) + 1 {
                break;
            }
            let Some(entry) = self.cheapest(source, target, &|_| true) else {
                break;
            };
            moves.push(self.relocate(entry, target));
        }
        moves
    }

    /// The seats that so many drives would take, in order: vacant ones, and then those behind the last one.
    pub fn seats_for(&self, drives: u16) -> impl Iterator<Item = Seat> + '_ {
        let behind = (self.drives..).map(Seat);
        { self.vacant.iter().copied().chain(behind) }.take(drives.into())
    }

    /// The table after `drives` empty drives with as many pieces as the others have taken their [seats](Self::seats_for),
    /// and the moves that lead to it. There are as few of them as make the new drives as full as the others: each goes
    /// from a drive of before to a new one. Of the pieces with content as few move as give each drive its share of
    /// these; the others need no copy. No cell of a drive of before gets another piece, so that every piece can be
    /// read where it was until its copy is complete. Groups keep their numbers, and none is added ([`Pool::fill_up`]).
    ///
    /// # Panics
    /// At 65,535 drives.
    #[must_use]
    pub fn grown(&self, drives: u16, has_content: &dyn Fn(u64) -> bool) -> (Self, Vec<Move>) {
        let mut planned = self.clone();
        for target in self.seats_for(drives) {
            if target.0 < planned.drives {
                let mut vacant = std::mem::take(&mut planned.vacant);
                vacant.retain(|&seat| seat != target);
                planned = planned.with_vacant(vacant);
            } else {
                planned.add_drive();
            }
            planned.fill_drive(target, has_content);
        }
        let after = Self::new(planned.shape(), self.rows, self.choice);
        let mut after = after.with_vacant(planned.vacant.clone());
        let width = u64::from(self.width);
        let mut moves = Vec::new();
        for (entry, (&from, planned)) in (0..).zip(self.members.iter().zip(&planned.members)) {
            let mut to = from;
            if planned.seat != from.seat {
                // The lowest one: pieces that came and went on would leave gaps.
                let (seat, row) = (planned.seat, after.free_row(planned.seat));
                to = Cell { seat, row };
                moves.push(Move {
                    group: entry / width,
                    column: crate::classic::small(entry % width),
                    from,
                    to,
                });
            }
            let first = usize::try_from(entry / width * width).expect("a table's index");
            for at in first..after.members.len() {
                let other = after.members[at].seat;
                after.meet(to.seat, other, 1);
            }
            after.occupy(to.seat, to.row, entry);
            after.members.push(to);
        }
        (after, moves)
    }

    /// Moves pieces to an empty drive until it is as full as the others: first those with content, until it has as many of
    /// them, and then others. Each comes from the drive that has most of its kind, or if that has none to give, from the
    /// next one.
    fn fill_drive(&mut self, target: Seat, has_content: &dyn Fn(u64) -> bool) {
        let width = u64::from(self.width);
        let with_content = |entry: u64| has_content(entry / width);
        let of_drive = |taken: &Vec<u64>| {
            let pieces = taken.iter().filter(|&&entry| entry != super::FREE);
            pieces.filter(|&&entry| with_content(entry)).count() as u64
        };
        let mut content: Vec<u64> = self.taken.iter().map(of_drive).collect();
        while let Some(entry) = self.next_for(target, &content, &with_content) {
            content[self.members[usize::try_from(entry).expect("a table's index")]
                .seat
                .index()] -= 1;
            content[target.index()] += 1;
            self.relocate(entry, target);
        }
        let without = |entry: u64| !with_content(entry);
        while let Some(entry) = self.next_for(target, &self.filled, &without) {
            self.relocate(entry, target);
        }
    }

    /// The next piece of a kind that moves to a drive, while others have more by these counts.
    fn next_for(
        &self,
        target: Seat,
        counts: &[u64],
        is_meant: &dyn Fn(u64) -> bool,
    ) -> Option<u64> {
        let least = counts[target.index()] + 1;
        let mut sources: Vec<Seat> = { (0..self.drives).map(Seat) }
            .filter(|seat| counts[seat.index()] > least)
            .collect();
        sources.sort_by_key(|seat| Reverse((counts[seat.index()], *seat)));
        let mut sources = sources.into_iter();
        sources.find_map(|source| self.cheapest(source, target, is_meant))
    }

    /// Adds as many groups as fit, and returns their number: after a growth there is room for more.
    pub fn fill_up(&mut self) -> u64 {
        let before = self.group_count();
        while self.add_group().is_some() {}
        self.group_count() - before
    }

    /// The moves that empty a drive, before it is removed: each piece moves to the emptiest drive
    /// outside its group. `None` if some piece has no target; nothing is changed then.
    pub fn drain(&mut self, source: Seat) -> Option<Vec<Move>> {
        let mut emptied = self.clone();
        let mut moves = Vec::new();
        for row in 0..emptied.taken[source.index()].len() {
            let entry = emptied.taken[source.index()][row];
            if entry == super::FREE {
                continue;
            }
            let group = entry / u64::from(emptied.width);
            let seats: Vec<Seat> = emptied.group_seats(group).collect();
            let target = emptied
                .seats_in_use()
                .filter(|seat| !seats.contains(seat) && *seat != source)
                .filter(|seat| emptied.filled[seat.index()] < emptied.rows)
                .filter(|&seat| emptied.domain_allows(&seats, source, seat))
                .min_by_key(|seat| {
                    let met: u32 = seats
                        .iter()
                        .map(|&other| emptied.shared(*seat, other))
                        .sum();
                    (emptied.filled[seat.index()], met)
                })?;
            moves.push(emptied.relocate(entry, target));
        }
        *self = emptied;
        Some(moves)
    }

    /// The entry on `source`, of those that are meant, whose move to `target` adds the fewest shared groups.
    fn cheapest(&self, source: Seat, target: Seat, is_meant: &dyn Fn(u64) -> bool) -> Option<u64> {
        let width = u64::from(self.width);
        self.taken[source.index()]
            .iter()
            .copied()
            .filter(|&entry| entry != super::FREE && is_meant(entry))
            .filter_map(|entry| {
                let seats: Vec<Seat> = self.group_seats(entry / width).collect();
                let fits = !seats.contains(&target) && self.domain_allows(&seats, source, target);
                let met: i64 = seats
                    .iter()
                    .filter(|&&seat| seat != source)
                    .map(|&seat| {
                        i64::from(self.shared(target, seat)) - i64::from(self.shared(source, seat))
                    })
                    .sum();
                fits.then_some((met, entry))
            })
            .min()
            .map(|(_, entry)| entry)
    }

    /// True if `target` may replace `source` in a group on `seats`.
    pub(super) fn domain_allows(&self, seats: &[Seat], source: Seat, target: Seat) -> bool {
        let super::Choice::Domains(domains) = self.choice else {
            return true;
        };
        let domain = target.0 % domains;
        let held = seats
            .iter()
            .filter(|&&seat| seat != source && seat.0 % domains == domain);
        held.count() < usize::from(self.parity)
    }

    fn relocate(&mut self, entry: u64, target: Seat) -> Move {
        let row = self.free_row(target);
        self.move_piece(entry, Cell { seat: target, row })
    }

    pub(super) fn move_piece(&mut self, entry: u64, to: Cell) -> Move {
        let width = u64::from(self.width);
        let index = usize::try_from(entry).expect("a table's index");
        let from = self.members[index];
        let group = entry / width;
        let others: Vec<Seat> = self
            .group_seats(group)
            .filter(|&seat| seat != from.seat)
            .collect();
        for other in others {
            self.meet(from.seat, other, -1);
            self.meet(to.seat, other, 1);
        }
        self.release(from);
        self.occupy(to.seat, to.row, entry);
        self.members[index] = to;
        Move {
            group,
            column: crate::classic::small(entry % width),
            from,
            to,
        }
    }
}
