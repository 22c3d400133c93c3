//! A full drive has not failed: a drive that refuses writes for lack of space stays in use.
//!
//! All that is on the drive can be read, and it takes writes again as soon as something is freed. Put out, its columns
//! would be rebuilt on drives that are as full. So a refusal for lack of space is answered as one of a drive without
//! which data could not be read (`members.rs`, `labels.rs`): what waits for the verdict ends with the drive's error or is
//! tried again, and the drive stays.
//!
//! | what is refused | what follows |
//! | --- | --- |
//! | a whole stripe in place | its blocks are logged |
//! | a batch of the log, a block, a page or an anchor of a checkpoint | the lane's back-off (`lane/backoff.rs`) |
//! | a fill | the column waits, and is filled later |
//! | a label | it is written again (`labels.rs`) |
//! | a page of a cell table | it is written again (`stall.rs`) |
//!
//! Two kinds of drives are not in use yet, and do not come into use when they are full: drives that have never had a
//! label of this pool, and successors of drives that are being replaced.

use block::{Fault, Seat};
use format::seeded::{self, SeededFault};
use plan::action::Command;

use super::{Pool, Report};

impl Pool {
    /// Whether a drive has refused a write for lack of space, and therefore stays.
    pub(super) fn stays_although_full(&self, seat: Seat, fault: Fault) -> bool {
        // While a promotion is on its way to the labels, lanes use the old drive.
        let joined = self.replacements.is_promoted(seat) || self.cx.labels.is_labelled(seat);
        let succeeds =
            self.replacements.is_successor(seat) || self.replacements.promoted_to(seat).is_some();
        fault == Fault::Full && joined && !succeeds && !seeded::is(SeededFault::FullGoesOut)
    }

    /// A drive in use has refused a write for lack of space. `waiting`: lanes wait for the verdict.
    pub(super) fn drive_is_full(&mut self, seat: Seat, waiting: bool) {
        self.stalls.fails_and_stays(self.cx.now);
        if self.stalls.refuses_newly(self.cx.now, seat, Fault::Full) {
            self.cx.report(Report::DriveFull { seat });
        }
        if waiting {
            self.cx.tell_lanes(&Command::SeatKept(seat));
        }
    }
}
