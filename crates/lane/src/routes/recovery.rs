//! Routes for recovery: its results become the state of journal and memory, and the log continues behind them.

use block::{Fault, Outcome, Seat};
use format::{BlockName, Generation, Sequence};
use plan::ScratchId;
use plan::action::{Computed, Event};

use crate::Lane;
use crate::flush::Waiter;
use crate::recover::{Lent, Next, Recovery};

impl Lane {
    /// Begins to read the lane's log. `fresh`: nothing was ever logged. Of the drives that are out, those of the first
    /// list have no part of the log, and those of the second list are read.
    pub(crate) fn begin_recovery(
        &mut self,
        incarnation: Generation,
        fresh: bool,
        out: (Vec<Seat>, Vec<Seat>),
    ) {
        let Some(regions) = self.cx.geometry.regions() else {
            self.recovered(Ok(0));
            return;
        };
        self.recovery = Some(Recovery::new(regions.ring_bytes, incarnation, out));
        self.pages.begin_clock(incarnation);
        self.recover(|recovery, lent| recovery.begin(lent, fresh));
    }

    /// Performs a step of the recovery, and what follows from it.
    fn recover(&mut self, step: impl FnOnce(&mut Recovery, &mut Lent<'_>) -> Next) {
        let recovery = self.recovery.as_mut().expect("a recovery runs");
        let mut lent = Lent {
            cx: &mut self.cx,
            ios: &mut self.ios,
            overlay: &mut self.overlay,
        };
        match step(recovery, &mut lent) {
            Next::Wait => {}
            Next::Anchored(number) => {
                self.log.anchored(number);
                self.recover(Recovery::read_next);
            }
            Next::Found(header, buffer) => {
                self.apply_batch(&header, buffer);
                self.overlay.unpin(header.sequence);
                self.recover(Recovery::read_next);
            }
            Next::ReadAgain => {
                self.direct.flushed(Sequence(u64::MAX));
                self.recover(Recovery::read_next);
            }
            Next::Repair(ops) => {
                for op in ops {
                    self.start(op);
                }
                self.torn_repaired(true, Vec::new());
            }
            Next::Cover => {
                for seat in self.cx.live_seats() {
                    self.flushes.wrote(seat);
                }
                self.flush_for_recovery();
            }
            Next::Anchor(recovered) => {
                let first = recovered.first;
                self.log.go_on(recovered);
                self.push_anchor(first);
            }
            Next::Flush => self.flush_for_recovery(),
            Next::End(ended) => self.recovered(ended),
        }
    }

    fn flush_for_recovery(&mut self) {
        if !self.begin_flush(Waiter::Recovery) {
            self.recovery_flushed(Ok(()));
        }
    }

    /// A flush of recovery has ended.
    pub(crate) fn recovery_flushed(&mut self, outcome: Outcome) {
        self.recover(|recovery, lent| recovery.flushed(lent, outcome));
    }

    /// A read of recovery has ended.
    pub(crate) fn recovery_read(&mut self, place: (Seat, u64), index: usize, outcome: Outcome) {
        self.recover(|recovery, lent| recovery.read(lent, place, index, outcome));
    }

    /// A computation of recovery has ended.
    pub(crate) fn recovery_computed(&mut self, computed: &Computed) {
        self.recover(|recovery, lent| recovery.computed(lent, computed));
    }

    /// The write of a column that recovery writes again, or of its anchor, has ended.
    pub(crate) fn recovery_written(&mut self, seat: Seat, offset: u64, outcome: Outcome) {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        let out = self.flushes.write_ended(cx, ios, seat, offset, outcome);
        self.recover(|recovery, lent| recovery.written(lent, seat, outcome, out));
    }

    /// The anchor is being written to so many drives.
    pub(crate) fn recovery_anchor_submitted(&mut self, scratch: ScratchId, drives: usize) {
        self.recover(|recovery, lent| recovery.anchor_submitted(lent, scratch, drives));
    }

    /// The pool has decided about a drive.
    pub(crate) fn recovery_judged(&mut self, seat: Seat, out: bool) {
        if self.recovery.is_some() {
            self.recover(|recovery, lent| recovery.judged(lent, seat, out));
        }
    }

    /// A torn stripe has been repaired, or not completely, because these blocks are `bad`.
    pub(crate) fn torn_repaired(&mut self, whole: bool, bad: Vec<BlockName>) {
        self.recover(|recovery, lent| recovery.repaired(lent, whole, bad));
    }

    fn recovered(&mut self, ended: Result<u64, Fault>) {
        self.recovery = None;
        if ended.is_ok() {
            self.flush_covered(self.log.completed());
        }
        if self.room.is_on() {
            let logged = self.still_to_be_put_in_place();
            self.room.begin(&logged);
        }
        if ended.is_ok() {
            // A batch that was found without these drives has fewer copies, until it is in place or logged again.
            let drives = self.cx.geometry.layout().drives();
            let out = (0..drives)
                .map(Seat)
                .filter(|&seat| self.cx.view().is_out(seat));
            let out: Vec<Seat> = out.collect();
            self.journal_leaves(out);
        }
        let batches = ended.unwrap_or(0);
        if batches > 0 {
            self.preserved.drive_out(self.log.next_sequence());
            self.checkpoints.want();
        }
        self.cx.events.push_back(Event::Recovered {
            lane: self.cx.lane,
            batches,
            outcome: ended.map(|_| ()),
        });
    }
}
