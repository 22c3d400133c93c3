//! Drives that return: which of their content counts. `docs/design/catch-up.md` has the reasoning.

use std::collections::BTreeMap;

use block::{Fault, Instant, Outcome, Seat};
use format::{Anchor, Generation, GroupId, Label, RING_HEAD_BYTES, Sequence};
use plan::Regions;
use uuid::Uuid;

use super::context::Context;
use super::context::writes::PoolWrite;
use super::placement::Key;
use super::{Bay, NewDrive, OnDurable, Pool, PoolError, Report, SeatState, Ticket};

/// Bytes of a returning drive's journal that are overwritten at a time.
const WIPE_BYTES: u64 = 1 << 20;

/// What a drive's own label and anchors state, read before anything is written to the drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    label: Label,
    /// By lane: everything logged before this batch was put in place on the drive, and flushed.
    firsts: Vec<Option<Sequence>>,
}

impl Proof {
    /// Where the drive's anchors are: first byte and length for each lane. Empty in a pool without a journal.
    #[must_use]
    pub fn places(label: &Label) -> Vec<(u64, u64)> {
        let lanes = u64::from(label.facts.lanes.max(1));
        let regions = label.facts.regions;
        regions.map_or_else(Vec::new, |regions| {
            let place = |lane| regions.journal_offset + lane * regions.ring_bytes;
            (0..lanes)
                .map(|lane| (place(lane), RING_HEAD_BYTES))
                .collect()
        })
    }

    /// The identity that the drive had.
    #[must_use]
    pub const fn drive(&self) -> Uuid {
        self.label.drive
    }

    /// Builds the proof from the drive's newest label, and the bytes at each of its [`Proof::places`].
    #[must_use]
    pub fn new(label: Label, heads: &[Vec<u8>]) -> Self {
        let pool = label.facts.uuid;
        let firsts = (0..).zip(heads).map(|(lane, bytes)| {
            let copies = bytes.chunks(block::PAGE_BYTES);
            let anchors = copies.filter_map(|copy| Anchor::parse(pool, lane, copy));
            anchors
                .max_by_key(|anchor| anchor.number)
                .map(|anchor| anchor.first)
        });
        Self {
            firsts: firsts.collect(),
            label,
        }
    }
}

/// Why the content of a returning drive does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// The pool keeps no record of what changed.
    #[error("the pool was made with `-o journal=off`, and keeps no record of what changed")]
    NoRecord,
    /// No label could be read.
    #[error("its label cannot be read")]
    NoLabel,
    /// The drive of another seat or of another pool, or with an earlier identity.
    #[error("its label is not that of the drive that left this seat")]
    AnotherDrive,
    /// Its label is not older than the generation since which it is out: it was used elsewhere.
    #[error("it has been in use elsewhere since it left")]
    WentOn,
    /// It was not complete when it left.
    #[error("it was not complete when it left")]
    Incomplete,
    /// Its journal has no anchor, so how far the drive came is not known.
    #[error("its journal does not say how far it came")]
    NoAnchor,
}

impl Rejected {
    /// Whether the drive's journal may be of another history than the pool's. Within one history the incarnations
    /// decide which batches count; a drive that was used elsewhere may have any incarnation.
    const fn doubts_journal(self) -> bool {
        match self {
            Self::NoLabel | Self::AnotherDrive | Self::WentOn => true,
            Self::NoRecord | Self::Incomplete | Self::NoAnchor => false,
        }
    }
}

/// A drive whose journal is overwritten before the drive is brought in.
#[derive(Clone, Debug)]
struct JournalWipe {
    back: WipedDrive,
    next: u64,
    end: u64,
}

/// A drive of which the journal has been overwritten: it is to be brought in.
#[derive(Clone, Debug)]
pub(super) struct WipedDrive {
    drive: NewDrive,
    /// Why its content does not count.
    reason: Rejected,
    ticket: Ticket,
}

/// Drives that are not of this history. An opening reads all journals and could take one of these for the newest, so the
/// journal is overwritten before any label names the drive as in use.
#[derive(Clone, Debug, Default)]
pub(super) struct JournalWipes(BTreeMap<Seat, JournalWipe>);

impl JournalWipes {
    pub(super) fn is_idle(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the journal of the seat's drive is being overwritten.
    pub(super) fn has(&self, seat: Seat) -> bool {
        self.0.contains_key(&seat)
    }

    fn begin(&mut self, cx: &mut Context, seat: Seat, back: WipedDrive, regions: &Regions) {
        let lanes = u64::from(cx.geometry.lanes());
        let wipe = JournalWipe {
            back,
            next: regions.journal_offset,
            end: regions.journal_offset + lanes * regions.ring_bytes,
        };
        self.0.insert(seat, wipe);
        self.overwrite(cx, seat);
    }

    /// Overwrites the next part.
    fn overwrite(&mut self, cx: &mut Context, seat: Seat) {
        let wipe = self.0.get_mut(&seat).expect("it is wiped");
        let offset = wipe.next;
        let length = WIPE_BYTES.min(wipe.end - offset);
        wipe.next += length;
        let bytes = vec![0; usize::try_from(length).expect("a part is small")];
        cx.write_durably(PoolWrite::WipeJournal { seat }, offset, bytes);
    }

    /// A part has been overwritten, or could not be. Returns the drive if that was the end of it.
    fn written(&mut self, cx: &mut Context, seat: Seat, outcome: Outcome) -> Option<WipedDrive> {
        let wipe = &self.0[&seat];
        if outcome.is_ok() && wipe.next < wipe.end {
            self.overwrite(cx, seat);
            return None;
        }
        self.0.remove(&seat).map(|wipe| wipe.back)
    }
}

/// What of a drive that returns counts.
impl Context {
    /// By lane: the batch before which everything is in place on a drive that returns into a seat.
    fn judge(&self, seat: Seat, proof: Option<&Proof>) -> Result<Vec<Sequence>, Rejected> {
        if self.facts.regions.is_none() {
            return Err(Rejected::NoRecord);
        }
        let Proof { label, firsts } = proof.ok_or(Rejected::NoLabel)?;
        let Some(facts) = self.facts.seats.get(seat.index()) else {
            return Err(Rejected::AnotherDrive);
        };
        let SeatState::Out { since, .. } = facts.state else {
            return Err(Rejected::AnotherDrive);
        };
        let place = (label.facts.uuid, label.drive, label.seat);
        if place != (self.facts.uuid, facts.drive, seat) {
            return Err(Rejected::AnotherDrive);
        }
        if label.generation >= since {
            return Err(Rejected::WentOn);
        }
        let then = label.facts.seats.get(seat.index());
        let complete = then.is_some_and(|then| then.state == SeatState::Current);
        if facts.holds.is_none() && !complete {
            return Err(Rejected::Incomplete);
        }
        if firsts.iter().all(Option::is_none) {
            return Err(Rejected::NoAnchor);
        }
        let lanes = usize::from(self.geometry.lanes());
        let holds = (0..lanes).map(|lane| {
            // A lane without an anchor there has put nothing in place since the drive was filled. What was there by
            // then is not known, so nothing counts.
            let first = firsts.get(lane).copied().flatten().unwrap_or_default();
            // If the drive was still catching up when it left, it has no more now than it had then.
            let before = facts.holds.as_ref().and_then(|holds| holds.get(lane));
            before.map_or(first, |&before| first.min(before))
        });
        Ok(holds.collect())
    }

    /// Columns of a drive that is out which have not changed since the drive left: by then at the latest their groups
    /// had lost more than the code survives, and have stayed so. Groups that cannot be read are not written, and their
    /// logged blocks stay in the journal. (Where columns move to spare cells, the seats alone do not show when a column
    /// was lost.)
    fn unchanged_columns(&self, seat: Seat, label: &Label) -> Vec<Key> {
        let facts = &self.facts.seats[seat.index()];
        let SeatState::Out { since: own, .. } = facts.state else {
            return Vec::new();
        };
        let layout = self.geometry.layout();
        // A drive that had missed generations before it went out had missed something else, too.
        let stale = label.generation.plus(2) < own;
        let whole = self.geometry.stripes_use_all_columns();
        if stale
            || !whole
            || layout.has_spare_space()
            || facts.holds.is_some()
            || seat.0 >= layout.drives()
        {
            return Vec::new();
        }
        let tolerance = usize::from(self.geometry.code().tolerance());
        // Of groups that belonged to the same volume when the drive left; with the number of the extent.
        let extents = self.facts.volumes.iter().flat_map(|volume| {
            let then = { label.facts.volumes.iter() }.find(|then| then.uuid == volume.uuid);
            let then = then.map_or(&[][..], |then| &then.extents[..]);
            volume.extents.iter().map(move |&extent| (extent, then))
        });
        let extents: Vec<_> = extents.collect();
        let has = |&(first, count): &(u64, u64), group: GroupId| {
            (first..first + count).contains(&group.0)
        };
        let placement = &self.placement;
        let mut columns: Vec<(usize, Key)> = { placement.homes_on(seat) }
            .filter(|&key| placement.place(key).is_none())
            .filter(|&(group, _)| {
                let absent = placement
                    .columns()
                    .filter(|&column| placement.place((group, column)).is_none());
                let homes = absent.map(|column| placement.home((group, column)).seat);
                let mut since: Vec<Generation> =
                    homes.map(|home| placement.out_since(home)).collect();
                since.sort_unstable();
                since.get(tolerance).is_some_and(|&broken| own >= broken)
            })
            .filter_map(|key| {
                let at = extents.iter().position(|(extent, _)| has(extent, key.0))?;
                let then = extents[at].1;
                then.iter()
                    .any(|extent| has(extent, key.0))
                    .then_some((at, key))
            })
            .collect();
        columns.sort_unstable();
        columns.into_iter().map(|(_, key)| key).collect()
    }

    /// Nothing is left to copy to a drive. Returns the report, if the drive was catching up.
    pub(crate) fn return_ends(&mut self, seat: Seat) -> Option<Report> {
        let back = self.placement.return_ends(seat)?;
        Some(Report::CaughtUp {
            seat,
            cells: back.cells,
            cell_bytes: self.geometry.plane_bytes(),
            copied_bytes: back.copied_bytes,
        })
    }
}

impl Pool {
    /// Brings a drive back into the seat that it left. If `proof` shows that the drive's content is what the pool
    /// expects, that content stays as it is; otherwise the drive is filled completely. Either way the drive gets a
    /// fresh identity, so that its old label does not count any more. The driver has attached the drive to the seat.
    ///
    /// # Errors
    /// As [`Pool::insert_drive`]; and while operations from before the drive left are in flight on it.
    pub fn return_drive(
        &mut self,
        now: Instant,
        seat: Seat,
        mut drive: NewDrive,
        proof: Option<&Proof>,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        if self.is_draining(seat) {
            let operations = self.draining.operations(seat);
            return Err(PoolError::StillBusy { seat, operations });
        }
        let holds = self.cx.judge(seat, proof);
        let then = self.cx.facts.seats.get(seat.index());
        drive.bay = Bay::of_found(then.and_then(|then| then.bay.clone()), drive.bay);
        if let Err(reason) = holds
            && reason.doubts_journal()
            && let Some(regions) = self.cx.geometry.regions().copied()
        {
            self.check_free(seat, drive.size_bytes)?;
            let back = WipedDrive {
                drive,
                reason,
                ticket,
            };
            (self.journal_wipes).begin(&mut self.cx, seat, back, &regions);
            return Ok(());
        }
        let mut done = vec![OnDurable::Done(ticket, Ok(()))];
        if let (Ok(_), Some(proof)) = (&holds, proof) {
            let columns = self.cx.unchanged_columns(seat, &proof.label);
            done.push(OnDurable::Readmit(seat, columns));
        }
        let (holds, report) = match holds {
            Ok(holds) => (Some(holds), Report::CatchingUp { seat }),
            Err(reason) => (None, Report::FullRebuild { seat, reason }),
        };
        self.seat_drive(seat, drive, holds, done)?;
        if self.cx.facts.seats[seat.index()].state == SeatState::Filling {
            self.cx.report(report);
        }
        Ok(())
    }

    /// Gives up drives that hang while their journal is overwritten: they do not return.
    pub(super) fn give_up_journal_wipes(&mut self) {
        // Do not try them again before they have answered.
        for seat in self.cx.writes.forget_late_wipes(self.cx.now) {
            self.journal_wiped(seat, Err(Fault::Gone));
        }
    }

    /// A part of a returning drive's journal has been overwritten, or could not be.
    pub(super) fn journal_wiped(&mut self, seat: Seat, outcome: Outcome) {
        let Some(back) = (self.journal_wipes).written(&mut self.cx, seat, outcome) else {
            return;
        };
        let (ticket, reason) = (back.ticket, back.reason);
        let seated = match outcome {
            Err(fault) => Err(PoolError::Fault { fault }),
            Ok(()) if self.fills.stopped => Err(PoolError::Closing),
            Ok(()) => {
                let done = vec![OnDurable::Done(ticket, Ok(()))];
                self.seat_drive(seat, back.drive, None, done)
            }
        };
        match seated {
            Err(error) => self.cx.done(ticket, Err(error)),
            Ok(()) if self.cx.facts.seats[seat.index()].state == SeatState::Filling => {
                self.cx.report(Report::FullRebuild { seat, reason });
            }
            Ok(()) => {}
        }
    }

    /// Whether a drive that is out may still carry out earlier operations. If the drive returned before they end, old
    /// blocks could overwrite new ones.
    #[must_use]
    pub fn is_draining(&self, seat: Seat) -> bool {
        self.draining.is_draining(&self.cx.writes, seat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{drive, pool, settle};
    use crate::{OutReason, PoolAction};

    const SEAT: Seat = Seat(2);
    const NOW: Instant = Instant::ZERO;

    /// A pool without the drive of [`SEAT`].
    fn degraded() -> Pool {
        let mut pool = pool("raid6", 6);
        let out = pool.fail_drive(NOW, SEAT, OutReason::Offline, false, Ticket(1));
        out.unwrap();
        settle(&mut pool);
        for lane in 0..pool.geometry().lanes() {
            let drained = plan::action::Event::SeatDrained { lane, seat: SEAT };
            pool.handle_event(NOW, &drained);
        }
        settle(&mut pool);
        pool
    }

    /// A drive whose label cannot be read returns.
    fn returning() -> Pool {
        let mut pool = degraded();
        (pool.return_drive(NOW, SEAT, drive(9), None, Ticket(2))).unwrap();
        pool
    }

    /// The next write of the pool: its number, its first byte and its length.
    fn write(pool: &mut Pool) -> (plan::action::IoId, u64, u64) {
        loop {
            let action = pool.poll_action().expect("a write");
            if let PoolAction::WriteDurably {
                id, offset, bytes, ..
            } = action
            {
                assert!(bytes.iter().all(|byte| *byte == 0));
                return (id, offset, bytes.len() as u64);
            }
        }
    }

    #[test]
    fn the_journal_of_a_drive_of_another_history_is_zeros_before_the_drive_is_in() {
        let mut pool = returning();
        let regions = *pool.geometry().regions().unwrap();
        let lanes = u64::from(pool.geometry().lanes());
        let end = regions.journal_offset + lanes * regions.ring_bytes;
        let mut at = regions.journal_offset;
        while at < end {
            assert!(matches!(pool.facts().seats[2].state, SeatState::Out { .. }));
            let (id, offset, length) = write(&mut pool);
            assert_eq!(offset, at, "one part after the other");
            at += length;
            pool.handle_completion(NOW, id, crate::Half::Flush, Ok(()));
        }
        assert_eq!(at, end);
        // No volume has content: nothing is to be filled.
        settle(&mut pool);
        assert_eq!(pool.facts().seats[2].state, SeatState::Current);
        assert_eq!(pool.facts().seats[2].drive, drive(9).uuid);
    }

    #[test]
    fn a_drive_whose_journal_cannot_be_overwritten_stays_out() {
        let mut pool = returning();
        let (id, ..) = write(&mut pool);
        pool.handle_completion(NOW, id, crate::Half::Write, Err(Fault::Gone));
        let failed = PoolError::Fault { fault: Fault::Gone };
        let others = settle(&mut pool);
        assert!(others.contains(&PoolAction::Done(Ticket(2), Err(failed))));
        assert!(matches!(pool.facts().seats[2].state, SeatState::Out { .. }));
        assert!(pool.journal_wipes.is_idle());
    }

    #[test]
    fn a_drive_that_hangs_meanwhile_is_given_up_and_is_busy_until_it_answers() {
        let mut pool = returning();
        let (id, ..) = write(&mut pool);
        pool.handle_timeout(NOW + plan::DEADLINE);
        let failed = PoolError::Fault { fault: Fault::Gone };
        let others = settle(&mut pool);
        assert!(others.contains(&PoolAction::Done(Ticket(2), Err(failed))));
        let again = |pool: &mut Pool| pool.return_drive(NOW, SEAT, drive(10), None, Ticket(3));
        let busy = PoolError::StillBusy {
            seat: SEAT,
            operations: 1,
        };
        assert_eq!(again(&mut pool), Err(busy));
        pool.handle_completion(NOW, id, crate::Half::Write, Ok(()));
        assert_eq!(again(&mut pool), Ok(()));
    }

    #[test]
    fn nothing_else_takes_the_seat_meanwhile() {
        let mut pool = returning();
        let busy = PoolError::StillBusy {
            seat: SEAT,
            operations: 1,
        };
        let other = pool.insert_drive(NOW, SEAT, drive(10), Ticket(3));
        assert_eq!(other, Err(busy));
    }

    #[test]
    fn a_drive_is_not_brought_into_a_pool_that_closes() {
        let mut pool = returning();
        pool.close(NOW, Ticket(4));
        let others = settle(&mut pool);
        assert!(others.contains(&PoolAction::Done(Ticket(2), Err(PoolError::Closing))));
    }

    #[test]
    fn a_drive_counts_only_if_it_is_the_one_that_left_and_was_complete_then() {
        let pool = degraded();
        let facts = pool.facts().clone();
        let label = |change: fn(&mut Label)| {
            let mut then = facts.clone();
            then.seats[2].state = SeatState::Current;
            let mut label = Label {
                drive: facts.seats[2].drive,
                seat: SEAT,
                generation: Generation(1),
                facts: then,
            };
            change(&mut label);
            Proof {
                label,
                firsts: vec![Some(Sequence(5))],
            }
        };
        let judge = |proof: &Proof| pool.cx.judge(SEAT, Some(proof));
        let lanes = usize::from(pool.geometry().lanes());
        let mut holds = vec![Sequence(0); lanes];
        holds[0] = Sequence(5);
        assert_eq!(judge(&label(|_| {})), Ok(holds));
        assert_eq!(pool.cx.judge(SEAT, None), Err(Rejected::NoLabel));
        let other = label(|label| label.drive = Uuid::from_u128(77));
        assert_eq!(judge(&other), Err(Rejected::AnotherDrive));
        let moved = label(|label| label.seat = Seat(3));
        assert_eq!(judge(&moved), Err(Rejected::AnotherDrive));
        let used = label(|label| label.generation = Generation(99));
        assert_eq!(judge(&used), Err(Rejected::WentOn));
        let partial = label(|label| label.facts.seats[2].state = SeatState::Filling);
        assert_eq!(judge(&partial), Err(Rejected::Incomplete));
        let mut bare = label(|_| {});
        bare.firsts = vec![None];
        assert_eq!(judge(&bare), Err(Rejected::NoAnchor));
    }
}
