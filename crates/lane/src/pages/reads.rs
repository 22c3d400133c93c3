//! Reads of metadata pages into memory.
//!
//! Every copy of a page is read, and the newest whole one counts (`format/page.rs`, `MetaPage::merge`). Copies that are
//! requested together and lie side by side on a drive are one read:
//!
//! ```text
//!   beside column 2's cell (p = 1)    │ 1.0 │ 2.0 │ 1.1 │ 2.1 │ 1.2 │ …      column.page
//!                                     └──────── one read ───────┘
//! ```
//!
//! A job needs a group's pages in their order, so some pages ahead are requested too: a fill then reads the pages
//! beside a cell in a few reads, and not in one for every page and copy.
//!
//! If no copy can be read, its drives are tried at another place, the anchor of the journal. A drive that fails there
//! too does not work at all, and says nothing about the page. From the others the copies are read once more: these drives
//! may have begun to work in between. If that fails, the copies are on bad sectors.
//!
//! A joined read is no weaker than its parts. If it fails, its copies are read one by one, so that a bad sector costs
//! one copy of one page. If it is late, each of its pages that has another copy goes on without it; the late copies are
//! compared when they come.

use std::collections::{BTreeMap, BTreeSet};

use block::{Fault, Outcome, Seat};
use format::{Column, GroupId, PAGE_BYTES, PageName};
use plan::ScratchId;
use plan::action::{Action, BufferId, Compute, IoId, IoKind, Origin, Service, Slice};

use super::place::readable_places;
use crate::context::Context;
use crate::epochs::Epoch;
use crate::io::{FaultReport, IoTable};
use crate::purpose::{Computing, Purpose};

/// Copies in one read at most: 256 KiB.
const COPIES_TOGETHER: usize = 64;

/// What is known of drives none of which has delivered a copy of a page.
#[derive(Clone, Debug, Default)]
enum Trial {
    /// Nothing: the copies have not been read, or one of them has been.
    #[default]
    None,
    /// The drives are tried at another place. These have failed there.
    Tried(BTreeMap<Seat, Fault>),
    /// The copies of those that have worked there are read once more. These have failed.
    Again(BTreeMap<Seat, Fault>),
}

/// A page whose copies are being read.
#[derive(Clone, Debug)]
pub(super) struct Loading {
    scratch: ScratchId,
    pub(super) copies: Vec<PageCopy>,
    in_flight: u64,
    /// Copies that were read without a fault.
    good: u64,
    trial: Trial,
    /// A copy is late, and is not waited for.
    pub(super) early: bool,
    /// All copies are waited for.
    pub(super) patient: bool,
    /// The group has been reused since: the copies read do not count.
    pub(super) void: bool,
    /// The epoch in which the reads began.
    pub(super) epoch: Epoch,
    /// The newest anchor when the reads began: pages are written before an anchor is.
    pub(super) anchor: u64,
}

impl Loading {
    /// The drives with a copy that do not work, and their faults.
    pub(super) fn failing_drives(&self) -> BTreeMap<Seat, Fault> {
        let gone = |copy: &PageCopy| (copy.outcome == Err(Fault::Gone)).then_some(copy.seat);
        let gone = self.copies.iter().filter_map(gone);
        let mut failing: BTreeMap<Seat, Fault> = gone.map(|seat| (seat, Fault::Gone)).collect();
        if let Trial::Tried(failed) | Trial::Again(failed) = &self.trial {
            failing.extend(failed);
        }
        failing
    }
}

/// One copy of a page that is being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageCopy {
    pub(super) seat: Seat,
    slice: Slice,
    /// [`Fault::Shutdown`] if it is not waited for.
    pub(super) outcome: Outcome,
}

/// One copy in a read: the page, and the index of the copy.
type Part = (PageName, usize);

/// Copies that lie side by side, and are read together.
#[derive(Clone, Debug)]
pub(super) struct JoinedRead {
    /// First byte on the drive.
    offset: u64,
    slice: Slice,
    /// Copies that are waited for.
    parts: Vec<Part>,
    /// Pages that have gone on without their copies in this read.
    late: Vec<PageName>,
}

/// What is being read of a lane's pages.
#[derive(Clone, Debug, Default)]
pub(super) struct PageReads {
    loading: BTreeMap<PageName, Loading>,
    joined: BTreeMap<u64, JoinedRead>,
    /// Pages that are being read into each scratch memory.
    users: BTreeMap<ScratchId, usize>,
}

impl PageReads {
    pub(super) fn is_loading(&self, name: PageName) -> bool {
        self.loading.contains_key(&name)
    }

    /// True while a page of the group is being read.
    pub(super) fn is_loading_of(&self, group: GroupId) -> bool {
        let first = PageName {
            group,
            column: Column(0),
            index: 0,
        };
        let next = self.loading.range(first..).next();
        next.is_some_and(|(name, _)| name.group == group)
    }

    /// The group is being reused, or one of its columns is back: copies of its pages that are being read do not count.
    pub(super) fn drop_group(&mut self, group: GroupId) {
        for (name, loading) in &mut self.loading {
            loading.void |= name.group == group;
        }
    }

    /// The copy of a page, which is being read.
    fn copy_mut(&mut self, (name, index): Part) -> &mut PageCopy {
        let loading = self.loading.get_mut(&name).expect("it is being read");
        &mut loading.copies[index]
    }

    /// Takes a page out of all reads. Returns its copies that were still to come, and the reads that nothing waits for
    /// any more, each with the pages that have gone on without it.
    fn leave_joined(&mut self, name: PageName) -> (Vec<Part>, BTreeMap<u64, Vec<PageName>>) {
        let mut late = Vec::new();
        for read in self.joined.values_mut() {
            let waited = read.parts.len();
            late.extend(read.parts.extract_if(.., |part| part.0 == name));
            if read.parts.len() < waited {
                read.late.push(name);
            }
        }
        let idle = self.joined.extract_if(.., |_, read| read.parts.is_empty());
        let idle = idle.map(|(number, read)| (number, read.late)).collect();
        (late, idle)
    }

    /// Reads all copies of pages that are not being read. Returns the pages of which no drive that is there has a copy.
    #[must_use]
    pub(super) fn begin(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        anchor: u64,
        names: impl IntoIterator<Item = PageName>,
        patient: bool,
    ) -> Vec<PageName> {
        let scratch = cx.fresh_scratch();
        let slice = |number: usize, copies: usize| Slice {
            buffer: BufferId::Scratch(scratch),
            offset: number as u64 * PAGE_BYTES,
            length: copies as u64 * PAGE_BYTES,
        };
        let mut copies: BTreeMap<(Seat, u64), Part> = BTreeMap::new();
        let (mut users, mut nowhere) = (0, Vec::new());
        for name in names {
            if self.is_loading(name) {
                // It was named twice.
                continue;
            }
            let places = readable_places(cx, name);
            if places.is_empty() {
                nowhere.push(name);
                continue;
            }
            let keys = places.iter().map(|place| (place.seat, place.offset));
            copies.extend(keys.enumerate().map(|(index, key)| (key, (name, index))));
            let copy = |seat| PageCopy {
                seat,
                // Its own place in memory is set below.
                slice: slice(0, 1),
                outcome: Ok(()),
            };
            let loading = Loading {
                scratch,
                copies: places.iter().map(|place| copy(place.seat)).collect(),
                in_flight: places.len() as u64,
                good: 0,
                trial: Trial::None,
                early: false,
                patient,
                void: false,
                epoch: cx.epochs.present(),
                anchor,
            };
            self.loading.insert(name, loading);
            users += 1;
        }
        if users > 0 {
            let bytes = copies.len() as u64 * PAGE_BYTES;
            cx.actions.push_back(Action::Allocate(scratch, bytes));
            self.users.insert(scratch, users);
        }
        for (number, &part) in copies.values().enumerate() {
            self.copy_mut(part).slice = slice(number, 1);
        }
        for (seat, offset, first, parts) in join(&copies) {
            let slice = slice(first, parts.len());
            self.submit(cx, ios, seat, offset, slice, parts);
        }
        nowhere
    }

    fn submit(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        seat: Seat,
        offset: u64,
        slice: Slice,
        parts: Vec<Part>,
    ) {
        let read = cx.fresh();
        let joined = JoinedRead {
            offset,
            slice,
            parts,
            late: Vec::new(),
        };
        self.joined.insert(read, joined);
        let purpose = Purpose::PageRead { read, seat };
        let service = Service::prompt(Origin::Checkpoint);
        ios.submit_slice(cx, purpose, service, IoKind::Read, (seat, offset), slice);
    }

    /// A read has ended: takes it, and the pages that have gone on without it. Then [`ended`](Self::ended).
    pub(super) fn take(&mut self, read: u64) -> (JoinedRead, Vec<PageName>) {
        let ended = self.joined.remove(&read);
        let mut ended = ended.expect("it is in flight");
        let late = std::mem::take(&mut ended.late);
        (ended, late)
    }

    /// A drive has answered a read.
    pub(super) fn ended(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        seat: Seat,
        ended: JoinedRead,
        outcome: Outcome,
    ) {
        if let (Err(fault), false) = (outcome, cx.view().is_out(seat)) {
            let epoch = cx.epochs.present();
            let moved = |(name, _): &Part| self.loading[name].epoch != epoch;
            let joined = fault == Fault::Medium && ended.slice.length > PAGE_BYTES;
            // If a column has moved, or another drive has the seat, something else may lie there now.
            if joined && !ios.is_muted() && !ended.parts.iter().any(moved) {
                self.read_one_by_one(cx, ios, seat, &ended);
                return;
            }
            ios.report_fault(cx, FaultReport::of_read(seat, ended.offset, fault));
        }
        for (name, index) in ended.parts {
            let loading = self.loading.get_mut(&name);
            let loading = loading.expect("it is being read");
            loading.in_flight -= 1;
            match (&mut loading.trial, outcome) {
                (Trial::Tried(failed), Err(fault)) => {
                    failed.insert(seat, fault);
                }
                (Trial::Tried(_), Ok(())) => {}
                (Trial::None | Trial::Again(_), _) => {
                    loading.copies[index].outcome = outcome;
                    loading.good += u64::from(outcome.is_ok());
                }
            }
            if loading.in_flight == 0 && !self.tries_drives(cx, ios, name) {
                self.copies_read(cx, name);
            }
        }
    }

    /// All reads of a page have ended. If no drive has delivered it: tries whether its drives work, or reads the copies
    /// once more. False if nothing is left to be tried.
    fn tries_drives(&mut self, cx: &mut Context, ios: &mut IoTable, name: PageName) -> bool {
        let loading = self.loading.get_mut(&name).expect("it is being read");
        let places = readable_places(cx, name);
        let is_here = loading.epoch == cx.epochs.present() && places.len() == loading.copies.len();
        if loading.good > 0 || !is_here {
            return false;
        }
        let (tries, failed) = match &loading.trial {
            Trial::None => (true, BTreeMap::new()),
            Trial::Tried(failed) => (false, failed.clone()),
            Trial::Again(_) => return false,
        };
        let may_work = |copy: &PageCopy| {
            let decided = matches!(copy.outcome, Ok(()) | Err(Fault::Gone | Fault::Shutdown));
            !decided && !failed.contains_key(&copy.seat) && !cx.view().is_out(copy.seat)
        };
        let elsewhere = cx.geometry.anchor_offset(cx.lane);
        let copies = loading.copies.iter().zip(places).enumerate();
        let reads = copies.filter(|(_, (copy, _))| may_work(copy));
        let reads = reads.map(|(index, (copy, place))| {
            let offset = if tries { elsewhere } else { place.offset };
            (place.seat, offset, copy.slice, vec![(name, index)])
        });
        let reads: Vec<_> = reads.collect();
        if reads.is_empty() {
            return false;
        }
        loading.in_flight = reads.len() as u64;
        loading.trial = match tries {
            true => Trial::Tried(failed),
            false => Trial::Again(failed),
        };
        for (seat, offset, slice, parts) in reads {
            self.submit(cx, ios, seat, offset, slice, parts);
        }
        true
    }

    /// A joined read has failed: reads its copies one by one.
    fn read_one_by_one(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        seat: Seat,
        failed: &JoinedRead,
    ) {
        for &part in &failed.parts {
            let slice = self.copy_mut(part).slice;
            let offset = failed.offset + (slice.offset - failed.slice.offset);
            self.submit(cx, ios, seat, offset, slice, vec![part]);
        }
    }

    /// Goes on without a late read where there is another copy. True if nothing more is to be done about the read.
    pub(super) fn hedge(&mut self, cx: &mut Context, ios: &mut IoTable, read: u64) -> bool {
        let Some(late) = self.joined.get(&read) else {
            return true;
        };
        let names: BTreeSet<PageName> = late.parts.iter().map(|&(name, _)| name).collect();
        let mut done = true;
        for name in names {
            let loading = &self.loading[&name];
            if !loading.patient && loading.good > 0 {
                self.hurry(cx, ios, name);
            } else {
                done &= loading.patient;
            }
        }
        done
    }

    /// Goes on with the copies of a page that have come.
    fn hurry(&mut self, cx: &mut Context, ios: &mut IoTable, name: PageName) {
        let (late, mut idle) = self.leave_joined(name);
        for part in late {
            // Not a fault: the page is not written again because of this.
            self.copy_mut(part).outcome = Err(Fault::Shutdown);
        }
        let loading = self.loading.get_mut(&name);
        let loading = loading.expect("it is being read");
        loading.early = true;
        loading.in_flight = 0;
        let in_flight = ios.in_flight();
        let idle = in_flight.filter_map(|(id, flight)| match flight.purpose {
            Purpose::PageRead { read, .. } => Some((id, idle.remove(&read)?)),
            _ => None,
        });
        let idle: Vec<(IoId, Vec<PageName>)> = idle.collect();
        for (id, names) in idle {
            ios.abandon_copies(id, names);
        }
        self.copies_read(cx, name);
    }

    fn copies_read(&mut self, cx: &mut Context, name: PageName) {
        let loading = &self.loading[&name];
        if loading.in_flight > 0 {
            return;
        }
        let good = loading.copies.iter().filter(|copy| copy.outcome.is_ok());
        let takes = good.map(|copy| copy.slice).collect();
        cx.push_compute(
            Computing::Page(name),
            Compute {
                takes,
                ..Compute::default()
            },
        );
    }

    /// A page's copies are in memory, or could not be read.
    pub(super) fn end(&mut self, cx: &mut Context, ios: &mut IoTable, name: PageName) -> Loading {
        let loading = self.loading.remove(&name).expect("it was read");
        let users = self.users.get_mut(&loading.scratch);
        let users = users.expect("it was allocated");
        *users -= 1;
        if *users == 0 {
            self.users.remove(&loading.scratch);
            ios.release(cx, loading.scratch);
        }
        loading
    }
}

/// Runs of copies that lie side by side, each with the number of its first copy in memory. Copies come in the order
/// of drives and of places on them.
fn join(copies: &BTreeMap<(Seat, u64), Part>) -> Vec<(Seat, u64, usize, Vec<Part>)> {
    let mut runs: Vec<(Seat, u64, usize, Vec<Part>)> = Vec::new();
    for (number, (&(seat, offset), &part)) in copies.iter().enumerate() {
        match runs.last_mut() {
            Some((last, begin, _, parts))
                if *last == seat
                    && *begin + parts.len() as u64 * PAGE_BYTES == offset
                    && parts.len() < COPIES_TOGETHER =>
            {
                parts.push(part);
            }
            _ => runs.push((seat, offset, number, vec![part])),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use format::Column;

    use super::*;

    fn part(column: Column, index: u32) -> Part {
        let name = PageName {
            group: GroupId(0),
            column,
            index,
        };
        (name, 0)
    }

    /// Runs of copies at these places (seat, page), as (seat, first page, number in memory, copies).
    fn runs(places: impl IntoIterator<Item = (u16, u64)>) -> Vec<(u16, u64, usize, usize)> {
        let copies = places.into_iter();
        let copies =
            copies.map(|(seat, page)| ((Seat(seat), page * PAGE_BYTES), part(Column(seat), 0)));
        let runs = join(&copies.collect());
        let short = |(seat, offset, first, parts): (Seat, u64, usize, Vec<Part>)| {
            (seat.0, offset / PAGE_BYTES, first, parts.len())
        };
        runs.into_iter().map(short).collect()
    }

    #[test]
    fn neighbours_on_one_drive_are_one_read() {
        let places = [(0, 4), (0, 5), (0, 7), (1, 8), (1, 9), (1, 10)];
        assert_eq!(runs(places), [(0, 4, 0, 2), (0, 7, 2, 1), (1, 8, 3, 3)]);
    }

    #[test]
    fn the_last_page_of_one_drive_is_no_neighbour_of_the_first_of_the_next() {
        assert_eq!(runs([(0, 4), (1, 5)]), [(0, 4, 0, 1), (1, 5, 1, 1)]);
    }

    #[test]
    fn a_read_has_a_greatest_length() {
        let places = (0..COPIES_TOGETHER as u64 + 1).map(|page| (3, page));
        let all = COPIES_TOGETHER;
        assert_eq!(runs(places), [(3, 0, 0, all), (3, all as u64, all, 1)]);
    }
}
