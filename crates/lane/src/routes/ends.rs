//! Routes for drive operations that have ended: each goes to the state machine that submitted it.

use plan::action::{IoId, IoKind};

use crate::Lane;
use crate::io::{Answered, Ended};
use crate::purpose::Purpose;

impl Lane {
    /// A drive has answered: routes the ended operations by their purpose.
    pub(crate) fn route_answer(&mut self, answered: Answered) {
        match answered {
            Answered::Ended(ended) => self.io_ended(ended),
            Answered::Pending => {}
            Answered::Members(members) => {
                for (member, outcome) in members {
                    let answered = self.ios.member_answered(&mut self.cx, member, outcome);
                    self.route_answer(answered);
                }
            }
            Answered::Late(late) => {
                let checkpoint = self.checkpoints.pages(self.log.anchor());
                let (cx, ios) = (&mut self.cx, &mut self.ios);
                self.pages
                    .late_copies_came(cx, ios, &checkpoint, late.seat, late.copies);
                self.ios.straggler_came_back(&mut self.cx);
            }
        }
    }

    /// A drive operation has ended: routes it by its purpose.
    pub(crate) fn io_ended(&mut self, ended: Ended) {
        let (offset, outcome) = (ended.offset, ended.outcome);
        self.ios.handed_over(&ended);
        if ended.left {
            self.ios.mute(true);
        }
        match ended.purpose {
            Purpose::Second { .. } => unreachable!("it ends with its pair"),
            Purpose::Transfer { op, transfer } => self.transferred(op, transfer, outcome),
            Purpose::Flush { number, seat } => {
                let (cx, ios) = (&mut self.cx, &mut self.ios);
                let finished = self.flushes.ended(cx, ios, number, seat, outcome);
                self.flush_finished(finished);
            }
            Purpose::Batch { sequence, seat } => {
                self.batch_written(sequence, (seat, offset), outcome);
            }
            Purpose::PageRead { read, seat } => {
                let checkpoint = self.checkpoints.pages(self.log.anchor());
                let (cx, ios) = (&mut self.cx, &mut self.ios);
                self.pages
                    .read_ended(cx, ios, &checkpoint, (read, seat), outcome);
            }
            Purpose::Probe { op } => self.probed(op, outcome),
            Purpose::Install { transfer } => self.install_written(&transfer, outcome),
            Purpose::PageWrite { seat, offset } => self.page_written(seat, offset, outcome),
            Purpose::Anchor { seat } => self.anchor_written(seat, offset, outcome),
            Purpose::Restore { seat } => self.recovery_written(seat, offset, outcome),
            Purpose::PageScan { job, seat } => {
                let (cx, ios) = (&mut self.cx, &mut self.ios);
                if self.jobs.scanned(cx, ios, job, (seat, offset), outcome) {
                    self.step_job(job);
                }
            }
            Purpose::Recovery { seat, index } => {
                self.recovery_read((seat, offset), index, outcome);
            }
            Purpose::Discard { op } => {
                if self.discards.discarded(outcome) {
                    self.end_discard(op);
                }
            }
            Purpose::DiscardRing => self.discards.ring_discarded(&mut self.cx),
        }
        if ended.left {
            self.ios.mute(false);
        }
    }

    /// Handles late reads, if it is time to check for them.
    pub(crate) fn check_timeouts(&mut self) {
        if let Some(late) = self.ios.check(&mut self.cx) {
            for id in late {
                self.hedge(id);
            }
            self.ios.checked(self.cx.now);
        }
    }

    /// Hedges the operation, or the page, that a late read belongs to.
    fn hedge(&mut self, id: IoId) {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        let hedged = match ios.purpose_of(id) {
            None => return,
            Some(Purpose::Transfer { op, transfer }) if transfer.kind == IoKind::Read => {
                self.ops.hedge(cx, ios, op)
            }
            Some(Purpose::PageRead { read, .. }) => self.pages.hedge(cx, ios, read),
            Some(_) => true,
        };
        if hedged {
            self.ios.is_hedged(id);
        }
    }
}
