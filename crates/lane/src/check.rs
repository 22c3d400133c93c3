//! Invariants that hold between any two events, whatever has happened before. The simulator checks them after each of
//! its steps.
//!
//! | part | what holds |
//! | --- | --- |
//! | locks | an operation that has locked its stripes, and is past waiting for them, is first in line for each; an operation that moves a stripe also holds the lock of the stripe that it moves from |
//! | locks | nothing is written, logged or discarded without the lock of its stripe |
//! | in place | where a stripe is written in place before it is logged, no block counts: none is in the overlay, each entry is *unwritten*; or the stripe was vacated, and its record is flushed |
//! | conversions | where a stripe gets its new form, no block counts; the stripe has the other form, and is not trimmed |
//! | free stripes | no other operation in flight was planned for a stripe that is being written as a free one |
//! | free stripes | no block of a free or vacated stripe counts: each entry is *unwritten*, or the overlay has the stripe as zeroed |
//! | maps | as long as no data has moved since, a client's operation is planned where its data is |
//! | maps | each stripe holds at most one stripe of the data, and both directions of the map agree; free stripes hold none, and are not about to be used |
//! | discards | stripes that drives discard are locked, and none of their blocks counts or is logged |
//! | discards | no batch is written to the ring while drives discard it |
//! | checkpoint | what is put in place is flushed in the journal |
//! | log | flushed ≤ completed ≤ ended < next; each batch that is not complete has its place in the ring |
//! | ring | batches lie one behind the other, and do not overlap |
//! | overlay | its sums are those of its blocks, and no block belongs to a batch that has not begun |
//!
//! Invariants about flushes are checked when a flush ends (`io/unflushed.rs`).

use block::BLOCK_BYTES;
use format::{BlockName, Entry, GroupId};

use super::Lane;
use super::ids::OpId;
use super::op::{Convert, Discarded, Lock, Op, Phase, Task};
use super::purpose::Purpose;
use super::{direct, io::Flight};

impl Lane {
    /// Checks what holds between events. `all`: also the checks that have to count everything again.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn check(&self, all: bool) {
        for (id, op) in self.ops.iter() {
            self.check_locks(id, op);
            self.check_place(id, op);
            if op.direct.is_some() {
                self.check_direct(id, op);
            }
        }
        self.check_discards();
        self.checkpoints.check(self.log.flushed());
        self.room.check();
        if all {
            self.maps.check();
            self.check_empty_stripes();
            if self.log_has_end() {
                self.log.check();
                self.overlay.check(self.log.next_sequence());
            }
        }
    }

    fn check_locks(&self, id: OpId, op: &Op) {
        let writes = !matches!(op.task, Task::Read(_));
        let acts = match op.phase {
            Phase::Locking | Phase::Fetching | Phase::Waiting => false,
            Phase::Reading { .. } | Phase::Verifying | Phase::Computing => op.is_locked(),
            Phase::Gathering
            | Phase::Logging { .. }
            | Phase::Writing { .. }
            | Phase::Discarding => writes,
        };
        if !acts || op.lock == Lock::Borrowed {
            return;
        }
        let (group, stripes) = (op.group, &op.stripes);
        assert!(
            self.ops.has_locked(id, group, stripes.clone()),
            "{id:?} is {:?} without the locks of stripes {stripes:?} of group {group}",
            op.phase
        );
        if let Some(from) = op.moves_from() {
            assert!(
                self.ops.has_locked(id, group, from..from.next()),
                "{id:?} moves from stripe {from} of group {group} without its lock"
            );
        }
    }

    /// The operation is planned where its data is.
    fn check_place(&self, id: OpId, op: &Op) {
        let (Some(data), Some(located)) = (op.data, op.location.version) else {
            return;
        };
        if matches!(op.phase, Phase::Locking | Phase::Fetching) || located != self.maps.version() {
            return;
        }
        let holder = self.maps.stripe_holding(&self.cx, op.group, data);
        let planned = op.moves_from().unwrap_or(op.stripes.start);
        assert!(
            holder.is_none_or(|holder| holder == planned),
            "{id:?} is planned for stripe {planned} of group {}, and {holder:?} holds its data",
            op.group
        );
    }

    fn check_direct(&self, id: OpId, op: &Op) {
        if let Task::Convert(convert) = &op.task {
            self.check_conversion(id, op, convert);
            return;
        }
        let (group, stripe) = (op.group, op.stripes.start);
        let since = self.overlay.zeroed_since(group, stripe);
        let vacated = since.is_some() && op.moves_from().is_some();
        if let Some(since) = since {
            assert!(
                vacated && since <= self.log.flushed(),
                "{id:?} goes in place on stripe {stripe} of group {group}, unwritten since batch {since}, which is not flushed"
            );
        }
        let plan = op.plan.as_ref().expect("it was planned");
        for write in &plan.writes {
            let (first, count) = direct::run_of(&self.cx, group, write);
            for block in first.block..first.block + count {
                self.check_counts_not(BlockName { block, ..first }, vacated, "is written in place");
            }
        }
        if op.moves_from().is_some() {
            let touches = |other: &Op| {
                other.group == group && other.stripes.contains(&stripe) && other.epoch.is_some()
            };
            let mut ops = self.ops.iter();
            let other = ops.find(|&(other, op)| other != id && touches(op));
            assert!(
                other.is_none(),
                "{id:?} writes stripe {stripe} of group {group}, which {:?} was planned for",
                other.map(|(other, _)| other)
            );
        }
    }

    /// The stripes that are converted have the form from before, and nothing counts where they get their new form.
    fn check_conversion(&self, id: OpId, op: &Op, convert: &Convert) {
        let group = op.group;
        for &(stripe, data) in &convert.chosen {
            let holder = self.maps.stripe_holding(&self.cx, group, data);
            let form = self.maps.form(&self.cx, group, stripe);
            assert!(
                holder.is_none_or(|holder| holder == stripe),
                "{id:?} converts stripe {stripe} of group {group}, and {holder:?} holds its data"
            );
            assert!(
                form.is_none_or(|form| Some(form) != convert.to),
                "{id:?} converts stripe {stripe} of group {group}, which is {form:?} already"
            );
            assert!(
                !self.overlay.is_zeroed(group, stripe),
                "{id:?} converts stripe {stripe} of group {group}, which is trimmed"
            );
        }
        let plan = op.plan.as_ref().expect("it was planned");
        for write in &plan.writes {
            let (first, count) = direct::run_of(&self.cx, group, write);
            for block in first.block..first.block + count {
                self.check_counts_not(BlockName { block, ..first }, false, "is converted");
            }
        }
    }

    /// No block of a stripe that is free, or about to be free, counts.
    fn check_empty_stripes(&self) {
        for (group, stripe) in self.maps.empty() {
            let vacated = self.overlay.is_zeroed(group, stripe);
            for name in { &self.cx.geometry }.blocks_of_stripes(group, stripe..stripe.next()) {
                self.check_counts_not(name, vacated, "is of a free stripe");
            }
        }
    }

    fn check_discards(&self) {
        let is_asked = |such: fn(&Purpose) -> bool| {
            let mut asked = self.ios.in_flight();
            asked.any(|(_, flight)| such(&flight.purpose))
        };
        assert!(
            !is_asked(|purpose| matches!(purpose, Purpose::DiscardRing))
                || !is_asked(|purpose| matches!(purpose, Purpose::Batch { .. })),
            "a batch is written to the ring while drives discard it"
        );
        for (_, flight) in self.ios.in_flight() {
            let Purpose::Discard { op: id } = flight.purpose else {
                continue;
            };
            let op = &self.ops[id];
            let Task::Discard(what) = op.task else {
                panic!("{id:?} discards, and is no discard");
            };
            if what == Discarded::Group {
                assert!(
                    !self.overlay.has_zeroed(op.group),
                    "group {} is discarded, and a trim of it is logged",
                    op.group
                );
            }
            for name in self.blocks_of_flight(op.group, flight) {
                match what {
                    Discarded::Stripes | Discarded::Form(_) => {
                        self.check_counts_not(name, false, "is discarded");
                        let stripe = self.cx.geometry.stripe_of(name);
                        assert!(
                            !self.overlay.is_zeroed(op.group, stripe),
                            "{name:?} is discarded, and a trim of its stripe is logged"
                        );
                    }
                    Discarded::Group => {
                        assert!(
                            self.overlay.get(name).is_none(),
                            "{name:?} is discarded, and logged"
                        );
                    }
                }
            }
        }
    }

    /// The blocks of a group that lie where an operation in flight is, by the present view.
    fn blocks_of_flight(
        &self,
        group: GroupId,
        flight: &Flight,
    ) -> impl Iterator<Item = BlockName> + use<> {
        let columns = self.cx.view().columns(&self.cx.geometry, group);
        let (geometry, io) = (&self.cx.geometry, &flight.io);
        // A drive may have several columns of a group, as of `raid10:2r:far`.
        let here = |cell: layout::Cell| {
            let begin = geometry.drive_offset(cell, 0);
            cell.seat == io.seat && (begin..begin + geometry.cell_bytes()).contains(&io.offset)
        };
        let mut columns = geometry.columns().zip(columns.iter());
        let column = columns.find(|(_, column)| column.cells().any(here));
        let first = geometry.block_of(io.offset);
        let blocks = first..first + io.length / BLOCK_BYTES;
        let column = column.map(|(number, _)| number);
        column.into_iter().flat_map(move |column| {
            blocks.clone().map(move |block| BlockName {
                group,
                column,
                block: u32::try_from(block).expect("cells have fewer than 2^32 blocks"),
            })
        })
    }

    /// Checks that a block does not count, as far as pages in memory show. `vacated`: the pages are not updated yet.
    fn check_counts_not(&self, name: BlockName, vacated: bool, what: &str) {
        assert!(
            self.overlay.get(name).is_none(),
            "{name:?} {what}, and is logged"
        );
        let entry = self.pages.peek(name).filter(|_| !vacated);
        assert!(
            entry.is_none_or(|entry| entry == Entry::UNWRITTEN),
            "{name:?} {what}, and counts: {entry:?}"
        );
    }
}
