//! Filling a cell of a drive that was away: what it still holds is left as it is.
//!
//! Before the first step the pages that the drive has for the cell are read. A block is *held* if
//! its entry is older than the batch up to which the drive has everything, and the drive's own
//! page has the same entry (`docs/design/catch-up.md` says why that is enough). All else is filled as
//! on a fresh drive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use block::{BLOCK_BYTES, Outcome, Seat};
use layout::Cell;

use super::ids::{JobId, OpId};
use super::op::{Owner, Task};
use super::{Computing, Lane, Phase, Purpose};
use crate::action::{Action, BufferId, Compute, Computed, Event, IoKind, Origin, Service, Slice};
use crate::format::{BlockName, ENTRIES_PER_META_PAGE, Entry, MetaPage, PAGE_BYTES, PageName};

/// What the target of a fill has.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// The column that it may hold.
    pub(super) column: u16,
    /// Everything logged before this batch is on it.
    before: u64,
    /// Its pages of the column, and those of the columns before it in the group.
    pages: BTreeMap<PageName, MetaPage>,
}

impl Held {
    /// Whether the target has the block that this entry of the column is of.
    pub(super) fn holds(&self, name: BlockName, entry: Entry) -> bool {
        entry.is_before(self.before) && self.has_entry(name, entry)
    }

    /// Whether its own entry of a block that is known is the same.
    pub(super) fn has_entry(&self, name: BlockName, entry: Entry) -> bool {
        let page = self.pages.get(&name.page());
        entry != Entry::UNKNOWN && page.is_some_and(|page| page.get(name.entry()) == entry)
    }
}

/// A look at a target's pages under way.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) before: u64,
    slice: Option<Slice>,
}

impl Look {
    pub(super) const fn new(before: u64) -> Self {
        Self {
            before,
            slice: None,
        }
    }
}

impl Lane {
    /// Whether entries can be told from those of before that batch at all.
    pub(super) const fn can_look(&self, before: u64) -> bool {
        self.log.next_sequence.saturating_sub(before) < Entry::AGE_MAX
    }

    /// Begins to read the target's pages.
    pub(super) fn look_at_target(&mut self, job: JobId, target: Cell) {
        let store = *self
            .cx
            .geometry
            .store()
            .expect("only pools with pages look");
        let length = self.cx.geometry.pages_beside_bytes();
        let scratch = self.cx.fresh_scratch();
        self.cx.actions.push_back(Action::Allocate(scratch, length));
        let slice = Slice {
            buffer: BufferId::Scratch(scratch),
            offset: 0,
            length,
        };
        let look = self.jobs.get_mut(&job).and_then(|job| job.look.as_mut());
        look.expect("the job looks").slice = Some(slice);
        let seat = target.seat;
        let offset = self.cx.geometry.pages_offset(&store, target);
        self.ios.submit_slice(
            &mut self.cx,
            Purpose::Look { job, seat },
            Service::bulk(Origin::Rebuild),
            IoKind::Read,
            (seat, offset),
            slice,
        );
    }

    /// The target's pages are in memory, or cannot be had.
    pub(super) fn looked(&mut self, job: JobId, seat: Seat, outcome: Outcome) {
        let look = self.jobs.get(&job).and_then(|job| job.look.as_ref());
        let slice = look.and_then(|look| look.slice).expect("it was read");
        if let Err(fault) = outcome {
            if !self.cx.view().is_out(seat) {
                self.ios
                    .report_fault(&mut self.cx, seat, IoKind::Read, 0, fault, false);
            }
            // Whatever it holds: it is filled as a whole.
            self.end_look(job, slice, None);
            return;
        }
        self.cx.push_compute(
            Computing::Look(job),
            Compute {
                takes: vec![slice],
                ..Compute::default()
            },
        );
    }

    /// What the target's pages say.
    pub(super) fn look_computed(&mut self, job: JobId, computed: &Computed) {
        let pool = self.cx.geometry.store().expect("pages need a store").pool;
        let look = self.jobs.get(&job).and_then(|job| job.look.clone());
        let look = look.expect("the job looks");
        let names = self.pages_beside(job);
        let bytes = computed.bytes.first().map_or(&[][..], Vec::as_slice);
        let page = bytes.chunks(usize::try_from(PAGE_BYTES).expect("a page is small"));
        let pages = names.iter().zip(page);
        let pages = pages.map(|(&name, bytes)| (name, MetaPage::merge(pool, name, &[bytes]).0));
        let held = Held {
            column: self.column_filled(job).expect("a fill looks"),
            before: look.before,
            pages: pages.collect(),
        };
        let slice = look.slice.expect("it was read");
        self.end_look(job, slice, Some(Arc::new(held)));
    }

    fn end_look(&mut self, id: JobId, slice: Slice, held: Option<Arc<Held>>) {
        if let BufferId::Scratch(scratch) = slice.buffer {
            self.ios.release(&mut self.cx, scratch);
        }
        let job = self.jobs.get_mut(&id).expect("it looks");
        job.look = None;
        job.held = held;
        self.step_job(id);
    }

    /// Nobody has some of the blocks that a fill should have written, but the target holds others of its
    /// column: those make up for it, and these are unknown.
    pub(super) fn note_left_out(&mut self, id: OpId) {
        let op = &self.ops[&id];
        let group = op.group;
        let absent = op.plan.as_ref().expect("it was planned").absent.clone();
        if absent.is_empty() {
            return;
        }
        let bytes: u64 = absent.iter().map(|part| part.length).sum();
        self.cx.events.push_back(Event::LeftOut {
            group,
            column: absent[0].column,
            blocks: bytes / BLOCK_BYTES,
        });
        for part in absent {
            let first = part.offset / BLOCK_BYTES;
            for block in first..first + part.length / BLOCK_BYTES {
                let name = BlockName {
                    group,
                    column: part.column,
                    block: u32::try_from(block).expect("cells have fewer than 2^32 blocks"),
                };
                self.pages.set(name, Entry::UNKNOWN);
            }
        }
    }

    /// Compares the target's pages with what they should be, as far as an operation goes; false if
    /// pages have to be read first, and the operation waits for them.
    pub(super) fn compare_pages(&mut self, id: OpId) -> bool {
        let op = &self.ops[&id];
        let (
            Owner::Job(job),
            Task::Fill {
                held: Some(held), ..
            },
        ) = (op.owner, &op.task)
        else {
            return true;
        };
        let held = Arc::clone(held);
        let (group, stripes) = (op.group, op.stripes.clone());
        let per_column = usize::try_from(self.cx.geometry.pages_per_cell()).expect("few pages");
        let copies = usize::try_from(self.cx.geometry.page_copies()).expect("few copies");
        let per_chunk = self.cx.geometry.chunk_bytes() / BLOCK_BYTES;
        let chunks = stripes.clone().flat_map(|stripe| {
            let slots = self.cx.geometry.slots_of_column(group, stripe, held.column);
            slots
                .into_iter()
                .map(move |slot| (stripe, slot))
                .collect::<Vec<_>>()
        });
        let mut indexes: BTreeSet<usize> = BTreeSet::new();
        for (stripe, slot) in chunks {
            let chunk = self.cx.geometry.place(group, stripe, slot).1;
            let page = |block: u64| {
                usize::try_from(block / u64::from(ENTRIES_PER_META_PAGE)).expect("few pages")
            };
            indexes.extend(page(chunk * per_chunk)..=page((chunk + 1) * per_chunk - 1));
        }
        if stripes.end == self.cx.geometry.stripes_per_group() {
            // Behind the last stripe a cell may have blocks that no stripe uses.
            let last = indexes.last().copied().unwrap_or(0);
            indexes.extend(last..per_column);
        }
        let beside = self.cx.geometry.pages_beside(held.column);
        let names: Vec<PageName> = beside
            .into_iter()
            .filter(|&(_, index)| indexes.contains(&(index as usize)))
            .map(|(column, index)| PageName {
                group,
                column,
                index,
            })
            .collect();
        debug_assert_eq!(names.len(), indexes.len() * copies);
        let missing: BTreeSet<PageName> = names
            .iter()
            .copied()
            .filter(|&name| !self.pages.contains(name))
            .collect();
        if !missing.is_empty() {
            self.ops.get_mut(id).expect("it was planned").phase = Phase::Fetching;
            self.fetch_pages(id, missing);
            return false;
        }
        for name in names {
            let Some(theirs) = held.pages.get(&name) else {
                continue;
            };
            if self.pages.page(name).is_some_and(|page| page != theirs) {
                // Were the target to keep its own, that one must not be taken for the later one.
                self.pages.outdate(name, theirs);
                let job = self.jobs.get_mut(&job).expect("its operation runs");
                job.stale_pages.insert(name);
            }
        }
        true
    }
}
