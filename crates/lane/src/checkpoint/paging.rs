//! A checkpoint's pages: the entries of the blocks that it has put in place.
//!
//! Pages are written in place, so a copy may be torn while it is being written. The copies of a page are therefore
//! written in two turns with a flush between them: those beside even columns, then those beside odd ones. If all copies
//! of a page would be in one turn (the others are out, or the last column meets the first), one of them is moved to the
//! other turn. At each moment one copy is whole: an old one, which the journal completes, or a new one.
//!
//! A page that has not changed is written because a cell is being filled. Every place that counts has the page already,
//! so it is written only to cells being filled, and to drives with a successor. A successor has no place of its own in
//! the view: it gets what is written to the drive that it succeeds.

use std::collections::BTreeSet;

use block::{Outcome, Seat};
use format::{PAGE_BYTES, PageName};
use plan::action::{Action, Compute, IoKind, Origin, Service};
use plan::{Transfer, merge};

use super::{Next, Phase, Running, page_slice};
use crate::context::Context;
use crate::io::IoTable;
use crate::pages::{PageCache, PagePlace, page_places};
use crate::purpose::{Computing, Purpose};
use crate::writes::Writes;

impl Running {
    /// Lays out its pages in memory. They count as written from now on.
    pub(crate) fn write_pages(&mut self, cx: &mut Context, pages: &mut PageCache) -> Next {
        let pool = cx
            .geometry
            .regions()
            .expect("a checkpoint needs a journal")
            .pool;
        let names = in_order(&self.pages);
        if names.is_empty() {
            self.phase = Phase::Paging {
                writes: Writes::default(),
                second: Vec::new(),
            };
            return self.pages_ended();
        }
        self.phase = Phase::Laying;
        let scratch = cx.fresh_scratch();
        self.scratch = Some(scratch);
        let bytes = names.len() as u64 * PAGE_BYTES;
        cx.actions.push_back(Action::Allocate(scratch, bytes));
        let mut work = Compute::default();
        for (index, &name) in names.iter().enumerate() {
            let page = pages.page(name).expect("the checkpoint keeps it here");
            if !cx.trusted {
                let bytes = page.encode(pool, name);
                work.puts.push((page_slice(scratch, index), bytes.into()));
            }
            if !pages.is_dirty(name) {
                self.unchanged.insert(name);
            }
            pages.written(name);
        }
        cx.push_compute(Computing::Paged, work);
        Next::Wait
    }

    /// The pages are laid out in memory.
    pub(crate) fn paged(&mut self, cx: &mut Context, ios: &mut IoTable, pages: &PageCache) -> Next {
        let scratch = self.scratch.expect("pages were laid out");
        let mut turns = [Vec::new(), Vec::new()];
        for (index, name) in in_order(&self.pages).into_iter().enumerate() {
            if pages.is_nowhere(name) {
                // A drive that has returned since may have the page.
                continue;
            }
            let mut places = page_places(cx, name, false);
            if self.unchanged.contains(&name) {
                places.retain(|place| !place.counts || ios.twins().has_successor(place.seat));
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
        self.push_pages(cx, ios, &first, second)
    }

    /// Writes copies of pages. Those of the `second` turn follow when these are durable.
    pub(super) fn push_pages(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        transfers: &[Transfer],
        second: Vec<Transfer>,
    ) -> Next {
        let mut writes = Writes::default();
        for transfer in transfers {
            if cx.view().is_out(transfer.seat) {
                continue;
            }
            writes.begin();
            let purpose = Purpose::PageWrite {
                seat: transfer.seat,
                offset: transfer.offset,
            };
            let service = Service::bulk(Origin::Checkpoint);
            ios.submit_transfer(cx, purpose, service, transfer);
        }
        self.phase = Phase::Paging { writes, second };
        self.pages_ended()
    }

    /// A drive has written copies of pages, or has failed to. `out`: the drive is out by now.
    pub(crate) fn page_written(&mut self, seat: Seat, outcome: Outcome, out: bool) -> Next {
        let Phase::Paging { writes, .. } = &mut self.phase else {
            unreachable!("no page is written in {:?}", self.phase);
        };
        writes.ended(seat, outcome, out);
        if let (Err(fault), false) = (outcome, out) {
            self.refused.insert(seat, fault);
        }
        self.pages_ended()
    }

    /// The next step, if no copies of pages are in flight any more.
    pub(crate) fn pages_ended(&mut self) -> Next {
        match &self.phase {
            Phase::Paging { writes, .. } if writes.is_done() => {}
            _ => return Next::Wait,
        }
        if let Some(refusal) = self.refusal() {
            return refusal;
        }
        let Phase::Paging { second, .. } = &mut self.phase else {
            unreachable!("just seen");
        };
        if second.is_empty() {
            return Next::Settle;
        }
        let second = std::mem::take(second);
        self.phase = Phase::Ordering { second };
        Next::Flush
    }
}

/// Pages in the order in which they lie beside a cell: those of one index together.
fn in_order(pages: &BTreeSet<PageName>) -> Vec<PageName> {
    let mut names: Vec<PageName> = pages.iter().copied().collect();
    names.sort_by_key(|name| (name.group, name.index, name.column));
    names
}

/// In which turn each copy of a page is written.
fn turns_of(places: &[PagePlace]) -> Vec<usize> {
    let mut turns: Vec<usize> = places
        .iter()
        .map(|place| place.column.index() % 2)
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
    use format::Column;

    use super::*;

    fn place(column: Column, counts: bool) -> PagePlace {
        PagePlace {
            seat: Seat(column.0),
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
                    // Any subset of the copies may be the ones that count.
                    for set in 0..1_u32 << copies {
                        let places: Vec<PagePlace> = holders
                            .clone()
                            .enumerate()
                            .map(|(index, holder)| place(Column(holder), set & 1 << index != 0))
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
