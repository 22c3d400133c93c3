//! Fills a cell of a drive that was away: blocks that the drive still holds are left as they are.
//!
//! Before the first step the pages that the drive has for the cell are read. A block is *held* if its entry is older
//! than the batch up to which the drive has everything, and the drive's own page has the same entry
//! (`docs/design/catch-up.md` explains why that is enough). All other blocks are filled as on a fresh drive.

use std::sync::Arc;

use block::{Outcome, Seat};
use format::{MetaPage, PAGE_BYTES, PageName, Sequence};
use layout::Cell;
use plan::action::{Action, BufferId, Compute, Computed, IoKind, Origin, Service, Slice};

use super::GroupJobs;
use crate::context::Context;
use crate::ids::JobId;
use crate::io::{FaultReport, IoTable};
use crate::op::{Held, pages_beside};
use crate::purpose::{Computing, Purpose};

/// A scan of a target's pages that is under way.
#[derive(Clone, Debug)]
pub(super) struct PageScan {
    pub(super) before: Sequence,
    slice: Option<Slice>,
}

impl PageScan {
    pub(super) const fn new(before: Sequence) -> Self {
        Self {
            before,
            slice: None,
        }
    }
}

impl GroupJobs {
    /// Begins to read the target's pages.
    pub(super) fn scan_target(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        job: JobId,
        target: Cell,
    ) {
        let regions = *cx.geometry.regions().expect("a pool with pages");
        let length = cx.geometry.pages_beside_bytes();
        let scratch = cx.fresh_scratch();
        cx.actions.push_back(Action::Allocate(scratch, length));
        let slice = Slice {
            buffer: BufferId::Scratch(scratch),
            offset: 0,
            length,
        };
        let scan = self.job(job).scan.as_mut();
        scan.expect("the job scans").slice = Some(slice);
        let seat = target.seat;
        let offset = cx.geometry.pages_offset(&regions, target);
        let purpose = Purpose::PageScan { job, seat };
        let service = Service::bulk(Origin::Rebuild);
        ios.submit_slice(cx, purpose, service, IoKind::Read, (seat, offset), slice);
    }

    /// The memory of a scan.
    fn scan_memory(&self, job: JobId) -> Slice {
        let scan = self.jobs.get(&job).and_then(|job| job.scan.as_ref());
        scan.and_then(|scan| scan.slice).expect("it was read")
    }

    /// The read of the target's pages has ended. True if the job is to be asked for its first step.
    pub(crate) fn scanned(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        job: JobId,
        (seat, offset): (Seat, u64),
        outcome: Outcome,
    ) -> bool {
        let slice = self.scan_memory(job);
        if let Err(fault) = outcome {
            if !cx.view().is_out(seat) {
                ios.report_fault(cx, FaultReport::of_read(seat, offset, fault));
            }
            // What the target holds is not known: its cell is filled as a whole.
            self.end_scan(cx, ios, job, None);
            return true;
        }
        cx.push_compute(
            Computing::PageScan(job),
            Compute {
                takes: vec![slice],
                ..Compute::default()
            },
        );
        false
    }

    /// Takes over the target's pages. Then the job is to be asked for its first step.
    pub(crate) fn scan_computed(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        id: JobId,
        computed: &Computed,
    ) {
        let pool = cx.geometry.regions().expect("pages need a region").pool;
        let job = self.job(id);
        let before = job.scan.as_ref().expect("the job scans").before;
        let column = job.column_filled().expect("a fill scans");
        let names = pages_beside(&cx.geometry, job.group, column);
        let bytes = computed.bytes.first().map_or(&[][..], Vec::as_slice);
        let page = bytes.chunks(usize::try_from(PAGE_BYTES).expect("a page is small"));
        let pages = names.iter().zip(page);
        let pages = pages.map(|(&name, bytes)| (name, MetaPage::merge(pool, name, &[bytes]).0));
        let held = Held::new(column, before, pages.collect());
        self.end_scan(cx, ios, id, Some(Arc::new(held)));
    }

    fn end_scan(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        id: JobId,
        held: Option<Arc<Held>>,
    ) {
        if let BufferId::Scratch(scratch) = self.scan_memory(id).buffer {
            ios.release(cx, scratch);
        }
        let job = self.job(id);
        job.scan = None;
        job.held = held;
    }

    /// A page of the target is not what it should be.
    pub(crate) fn page_is_stale(&mut self, id: JobId, name: PageName) {
        self.job(id).stale_pages.insert(name);
    }

    /// The pages that a fill's target must have at its end: the column's, and those beside it. For a drive that has
    /// some already, only those that are not what they should be.
    pub(super) fn pages_to_write(&mut self, cx: &Context, id: JobId) -> Vec<PageName> {
        let job = self.job(id);
        if job.held.is_some() {
            return std::mem::take(&mut job.stale_pages).into_iter().collect();
        }
        let column = job.column_filled().expect("it fills a column");
        pages_beside(&cx.geometry, job.group, column)
    }
}
