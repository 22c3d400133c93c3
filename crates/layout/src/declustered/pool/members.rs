//! Choice of the members of a new group.

use block::{Seat, mix};

use super::Pool;
use crate::Cell;
use crate::crush::{Map, Mode, ONE, Rule};

/// How members are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// The emptiest drive first, then the drives that share the fewest groups with the others.
    PairBalanced,
    /// As `PairBalanced`, with at most p columns in one of f domains (drive x in domain x mod f).
    Domains(u16),
    /// Straw2 on the group's number.
    Crush,
}

impl Pool {
    /// Adds a group and returns its number; `None` when fewer than d + p drives have room.
    pub fn add_group(&mut self) -> Option<u64> {
        let group = self.group_count();
        let seats = match self.choice {
            Choice::PairBalanced => self.balanced_members(group, None),
            Choice::Domains(domains) => self.balanced_members(group, Some(domains)),
            Choice::Crush => self.crush_members(group),
        }?;
        for &seat in &seats {
            let row = self.free_row(seat);
            self.occupy(seat, row, self.members.len() as u64);
            self.members.push(Cell { seat, row });
        }
        for (i, &a) in seats.iter().enumerate() {
            for &b in &seats[..i] {
                self.meet(a, b, 1);
            }
        }
        Some(group)
    }

    fn has_room(&self, seat: Seat) -> bool {
        self.filled[seat.index()] < self.filled_max && !self.is_vacant(seat)
    }

    fn balanced_members(&self, group: u64, domains: Option<u16>) -> Option<Vec<Seat>> {
        let n = usize::from(self.drives);
        let tie = |seat: Seat| mix(group << 16 | u64::from(seat.0));
        let mut held = vec![0_u16; domains.unwrap_or(0).into()];
        let mut is_member = vec![false; n];
        // Groups that each drive shares with the members so far.
        let mut met = vec![0_u32; n];
        let mut seats: Vec<Seat> = Vec::with_capacity(self.width.into());
        while seats.len() < usize::from(self.width) {
            let candidates = (0..self.drives).map(Seat).filter(|&seat| {
                !is_member[seat.index()]
                    && self.has_room(seat)
                    && domains.is_none_or(|f| held[usize::from(seat.0 % f)] < self.parity)
            });
            let filled = |seat: Seat| self.filled[seat.index()];
            let next = if seats.is_empty() {
                candidates.min_by_key(|&seat| (filled(seat), tie(seat)))
            } else {
                candidates.min_by_key(|&seat| (met[seat.index()], filled(seat), tie(seat)))
            }?;
            is_member[next.index()] = true;
            if let Some(f) = domains {
                held[usize::from(next.0 % f)] += 1;
            }
            let row = &self.met[next.index() * n..(next.index() + 1) * n];
            for (sum, &count) in met.iter_mut().zip(row) {
                *sum += count;
            }
            seats.push(next);
        }
        // Parity columns come first: they go to the members that hold the fewest.
        seats.sort_by_key(|&seat| (self.parities[seat.index()], tie(seat)));
        Some(seats)
    }

    fn crush_members(&self, group: u64) -> Option<Vec<Seat>> {
        // Drives without room are out; the others have equal weights.
        let reweights: Vec<u32> = (0..self.drives)
            .map(|seat| if self.has_room(Seat(seat)) { ONE } else { 0 })
            .collect();
        let map = Map::flat(&vec![ONE; self.drives.into()]);
        let rule = Rule::flat(-1, Mode::Indep);
        let width = usize::from(self.width);
        // CRUSH gives up on a position after 51 tries: retry with another input.
        (0..8).find_map(|attempt| {
            let x = u32::try_from(mix(group) >> 32).ok()?.wrapping_add(attempt);
            let placed = map.place(&rule, x, width, &reweights);
            let seats: Option<Vec<Seat>> = placed
                .into_iter()
                .map(|item| Some(Seat(u16::try_from(item?).ok()?)))
                .collect();
            seats.filter(|seats| seats.len() == width)
        })
    }
}
