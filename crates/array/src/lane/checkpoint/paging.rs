//! A checkpoint's pages: the entries of what it has put in place.
//!
//! Pages are written in place, so that a copy that is being written may be torn. The copies of a page are
//! therefore written in two turns with a flush between: those beside even columns, then those beside odd
//! ones. A page whose copies would all be in one turn (the others are out, or the last column meets the
//! first) gives one of them to the other turn. At each moment a copy is whole: an old one, which the journal
//! completes, or a new one.
//!
//! A page that has not changed is here because a cell is being filled. Every place that counts has it: it is written
//! to cells being filled, and to drives with a successor. A successor has no place of its own in the view, and gets
//! what is written to the drive that it succeeds.

use std::collections::BTreeSet;

use block::{Outcome, Seat};

use super::{Phase, page_slice};
use crate::action::{Action, Compute, IoKind, Origin, Service};
use crate::format::{PAGE_BYTES, PageName};
use crate::lane::flush::Waiter;
use crate::lane::pages::{PagePlace, page_places};
use crate::lane::{Computing, Lane, Purpose};
use crate::plan::{Transfer, merge};
use crate::seeded::{self, Bug};

impl Lane {
    pub(super) fn write_pages(&mut self) {
        let store = *self
            .cx
            .geometry
            .store()
            .expect("a checkpoint needs a store");
        let running = self.running();
        running.phase = Phase::Paging;
        running.begun = running.pages.is_empty();
        let names = in_order(&running.pages);
        let bytes = names.len() as u64 * PAGE_BYTES;
        if names.is_empty() {
            self.pages_ended();
            return;
        }
        let scratch = self.cx.fresh_scratch();
        self.running().scratch = Some(scratch);
        self.cx.actions.push_back(Action::Allocate(scratch, bytes));
        let mut work = Compute::default();
        let mut unchanged = BTreeSet::new();
        for (index, &name) in names.iter().enumerate() {
            let page = self.pages.page(name).expect("the checkpoint keeps it here");
            if !self.cx.trusted {
                let bytes = page.encode(store.pool, name);
                work.puts.push((page_slice(scratch, index), bytes.into()));
            }
            if !self.pages.is_dirty(name) {
                unchanged.insert(name);
            }
            self.pages.written(name);
        }
        self.running().unchanged = unchanged;
        self.cx.push_compute(Computing::Paged, work);
    }

    /// The pages are laid out in memory.
    pub(in crate::lane) fn paged(&mut self) {
        let running = self
            .checkpoints
            .running
            .as_ref()
            .expect("a checkpoint runs");
        let scratch = running.scratch.expect("pages were laid out");
        let mut turns = [Vec::new(), Vec::new()];
        for (index, name) in in_order(&running.pages).into_iter().enumerate() {
            if self.pages.is_nowhere(name) {
                // A drive that has come back since may have it.
                continue;
            }
            let mut places = page_places(&self.cx, name, false);
            if running.unchanged.contains(&name) {
                places.retain(|place| !place.counts || self.ios.twins().has_successor(place.seat));
            }
            for (place, turn) in places.iter().zip(turns_of(&places)) {
                turns[turn].push(Transfer {
                    seat: place.seat,
                    column: place.column,
                    kind: IoKind::Write,
                    offset: place.offset,
                    length: PAGE_BYTES,
                    slice: Some(page_slice(scratch, index)),
                });
            }
        }
        let [mut first, mut second] = turns;
        merge(&mut first);
        merge(&mut second);
        self.running().queue = second.into();
        self.push_pages(first);
    }

    fn push_pages(&mut self, transfers: Vec<Transfer>) {
        for transfer in transfers {
            if self.cx.view().is_out(transfer.seat) {
                continue;
            }
            self.running().writes.begin();
            let purpose = Purpose::PageWrite {
                seat: transfer.seat,
                offset: transfer.offset,
            };
            let service = Service::bulk(Origin::Checkpoint);
            self.ios
                .submit_transfer(&mut self.cx, purpose, service, &transfer);
        }
        self.running().begun = true;
        self.pages_ended();
    }

    /// The copies of the first turn are durable.
    pub(super) fn second_turn(&mut self) {
        let running = self.running();
        running.phase = Phase::Paging;
        let second = std::mem::take(&mut running.queue);
        self.push_pages(second.into());
    }

    pub(in crate::lane) fn page_written(&mut self, seat: Seat, offset: u64, outcome: Outcome) {
        if seeded::is(Bug::AnchorBeforePages) && outcome.is_ok() {
            self.running().writes.ended(seat, outcome, false);
            self.pages_ended();
            return;
        }
        self.checkpoint_wrote_to_all(seat, offset, outcome);
        self.pages_ended();
    }

    pub(super) fn pages_ended(&mut self) {
        let relogs = self.preserved.relogs();
        let running = self.running();
        if running.phase != Phase::Paging || !running.begun || !running.writes.is_done() {
            return;
        }
        if let Some(fault) = self.refused() {
            self.checkpoint_refused(fault);
            return;
        }
        let running = self.running();
        if !running.queue.is_empty() {
            running.phase = Phase::Ordering;
            if !self.begin_flush(Waiter::Checkpoint) {
                self.second_turn();
            }
            return;
        }
        if relogs {
            return;
        }
        running.phase = Phase::Settling;
        let mut epoch = running.epoch.take();
        assert!(epoch.is_some(), "it has installed");
        if let Some(scratch) = running.scratch.take() {
            self.ios.release(&mut self.cx, scratch);
        }
        self.cx.epochs.leave(&mut epoch);
        // What has changed or was logged again by now the flush covers; what does so from now on it need
        // not.
        self.running().first = self.first_that_counts();
        if seeded::is(Bug::AnchorBeforeBlocks) || !self.begin_flush(Waiter::Checkpoint) {
            self.write_anchor();
        }
    }

    /// Something that is preserved may have been logged again.
    pub(in crate::lane) fn checkpoint_relogged(&mut self) {
        if self.checkpoints.running.is_some() {
            self.pages_ended();
        }
    }
}

/// Pages in the order in which they lie beside a cell: those of one number together.
fn in_order(pages: &BTreeSet<PageName>) -> Vec<PageName> {
    let mut names: Vec<PageName> = pages.iter().copied().collect();
    names.sort_by_key(|name| (name.group, name.index, name.column));
    names
}

/// In which turn each copy of a page is written.
fn turns_of(places: &[PagePlace]) -> Vec<usize> {
    let mut turns: Vec<usize> = places
        .iter()
        .map(|place| usize::from(place.column % 2))
        .collect();
    let counting: Vec<usize> = (0..places.len())
        .filter(|&index| places[index].counts)
        .collect();
    if let [first, .., last] = counting[..]
        && counting.iter().all(|&index| turns[index] == turns[first])
    {
        turns[last] = 1 - turns[last];
    }
    turns
}

#[cfg(test)]
mod tests {
    use block::Seat;

    use super::*;

    fn place(column: u16, counts: bool) -> PagePlace {
        PagePlace {
            seat: Seat(column),
            offset: 0,
            column,
            counts,
        }
    }

    #[test]
    fn the_copies_of_a_page_that_count_are_never_written_all_in_one_turn() {
        for columns in 2..9_u16 {
            for copies in 2..=columns.min(4) {
                for column in 0..columns {
                    let holders = (0..copies).map(|distance| (column + distance) % columns);
                    // Each set of them may be all that counts.
                    for set in 0..1_u32 << copies {
                        let places: Vec<PagePlace> = holders
                            .clone()
                            .enumerate()
                            .map(|(index, holder)| place(holder, set & 1 << index != 0))
                            .collect();
                        let turns = turns_of(&places);
                        let counting = places.iter().zip(&turns).filter(|(place, _)| place.counts);
                        let (first, second): (Vec<_>, Vec<_>) =
                            counting.partition(|&(_, &turn)| turn == 0);
                        let both = !first.is_empty() && !second.is_empty();
                        assert!(both || set.count_ones() < 2, "{columns} {column} {set:b}");
                    }
                }
            }
        }
    }
}
