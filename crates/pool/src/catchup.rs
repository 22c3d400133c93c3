//! Drives that return: which of their content counts. `docs/design/catch-up.md` has the reasoning.

use block::{Fault, Instant, Outcome, Seat};
use format::seeded::{self, SeededFault};
use format::{Anchor, Label, RING_HEAD_BYTES};
use uuid::Uuid;

use super::placement::Key;
use super::{Bay, NewDrive, OnDurable, Pool, PoolError, PoolWrite, Report, SeatState, Ticket};

/// Bytes of a returning drive's journal that are overwritten at a time.
const WIPE_BYTES: u64 = 1 << 20;

/// What a drive's own label and anchors state, read before anything is written to the drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    label: Label,
    /// By lane: everything logged before this batch was put in place on the drive, and flushed.
    firsts: Vec<Option<u64>>,
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
pub(super) struct JournalWipe {
    drive: NewDrive,
    reason: Rejected,
    ticket: Ticket,
    next: u64,
    end: u64,
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
            // Lanes report that they have operations in flight, not how many.
            let operations = u64::from(self.draining.get(&seat).copied().unwrap_or(1));
            return Err(PoolError::StillBusy { seat, operations });
        }
        let holds = self.judge(seat, proof);
        let then = self.cx.facts.seats.get(seat.index());
        drive.bay = Bay::of_found(then.and_then(|then| then.bay.clone()), drive.bay);
        if let Err(reason) = holds
            && reason.doubts_journal()
            && let Some(regions) = self.cx.geometry.regions().copied()
        {
            self.check_free(seat, drive.size_bytes)?;
            let lanes = u64::from(self.cx.geometry.lanes());
            let wipe = JournalWipe {
                drive,
                reason,
                ticket,
                next: regions.journal_offset,
                end: regions.journal_offset + lanes * regions.ring_bytes,
            };
            self.journal_wipes.insert(seat, wipe);
            self.blank(seat);
            return Ok(());
        }
        let mut done = vec![OnDurable::Done(ticket, Ok(()))];
        if let (Ok(_), Some(proof)) = (&holds, proof) {
            let columns = self.unchanged_columns(seat, &proof.label);
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

    /// Overwrites the next part of the journal of a drive that is not of this history. An opening reads all journals
    /// and could take this one for the newest, so the journal is overwritten before any label names the drive as in
    /// use.
    fn blank(&mut self, seat: Seat) {
        let wipe = self.journal_wipes.get_mut(&seat).expect("it is wiped");
        let offset = wipe.next;
        let length = WIPE_BYTES.min(wipe.end - offset);
        wipe.next += length;
        let bytes = vec![0; usize::try_from(length).expect("a part is small")];
        self.cx
            .write_durably(PoolWrite::WipeJournal { seat }, offset, bytes);
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
        let wipe = &self.journal_wipes[&seat];
        if outcome.is_ok() && wipe.next < wipe.end {
            self.blank(seat);
            return;
        }
        let wipe = self.journal_wipes.remove(&seat).expect("just seen");
        let (ticket, reason) = (wipe.ticket, wipe.reason);
        let seated = match outcome {
            Err(fault) => Err(PoolError::Fault { fault }),
            Ok(()) if self.fills.stopped => Err(PoolError::Closing),
            Ok(()) => self.seat_drive(
                seat,
                wipe.drive,
                None,
                vec![OnDurable::Done(ticket, Ok(()))],
            ),
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
        let mut moved = self.moved.iter().filter(|(now, _)| *now == seat);
        !seeded::is(SeededFault::FillDuringInstall)
            && (self.leaves(seat) || moved.any(|&(_, then)| self.leaves(then)))
    }

    /// Whether operations are in flight on a drive that was in the seat when they began, and went out there.
    fn leaves(&self, seat: Seat) -> bool {
        let own = self.cx.writes.is_forgotten(seat);
        own || self.draining.contains_key(&seat)
    }

    /// The drives in two seats have changed places. One that is out may still carry out operations.
    pub(super) fn exchange_draining(&mut self, a: Seat, b: Seat) {
        for (now, _) in &mut self.moved {
            *now = match *now {
                now if now == a => b,
                now if now == b => a,
                now => now,
            };
        }
        for (then, now) in [(a, b), (b, a)] {
            if self.leaves(then) {
                self.moved.push((now, then));
            }
        }
    }

    /// The drive that is out in seat `then` has changed places with the drive in seat `now`, which is in use from now
    /// on.
    pub(super) fn moves(&mut self, then: Seat, now: Seat) {
        let before = std::mem::take(&mut self.moved);
        self.moved = before
            .into_iter()
            .filter(|&(_, then)| self.is_draining(then))
            .collect();
        self.moved.push((now, then));
    }

    /// A lane has no operation in flight any more on a drive that is out.
    pub(super) fn seat_drained(&mut self, seat: Seat) {
        if let Some(left) = self.draining.get_mut(&seat) {
            *left -= 1;
            if *left == 0 {
                self.draining.remove(&seat);
            }
        }
    }

    /// By lane: the batch before which everything is in place on a drive that returns into a seat.
    fn judge(&self, seat: Seat, proof: Option<&Proof>) -> Result<Vec<u64>, Rejected> {
        if self.cx.facts.regions.is_none() {
            return Err(Rejected::NoRecord);
        }
        let Proof { label, firsts } = proof.ok_or(Rejected::NoLabel)?;
        let Some(facts) = self.cx.facts.seats.get(seat.index()) else {
            return Err(Rejected::AnotherDrive);
        };
        let SeatState::Out { since, .. } = facts.state else {
            return Err(Rejected::AnotherDrive);
        };
        let place = (label.facts.uuid, label.drive, label.seat);
        if place != (self.cx.facts.uuid, facts.drive, seat) {
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
        let lanes = usize::from(self.cx.geometry.lanes());
        let holds = (0..lanes).map(|lane| {
            // A lane without an anchor there has put nothing in place since the drive was filled. What was there by
            // then is not known, so nothing counts.
            let first = firsts.get(lane).copied().flatten().unwrap_or(0);
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
        let facts = &self.cx.facts.seats[seat.index()];
        let SeatState::Out { since: own, .. } = facts.state else {
            return Vec::new();
        };
        let layout = self.cx.geometry.layout();
        // A drive that had missed generations before it went out had missed something else, too.
        let stale = label.generation + 2 < own;
        let whole = self.cx.geometry.stripes_use_all_columns();
        if stale
            || !whole
            || layout.has_spare_space()
            || facts.holds.is_some()
            || seat.0 >= layout.drives()
        {
            return Vec::new();
        }
        let tolerance = usize::from(self.cx.geometry.code().tolerance());
        // Of groups that belonged to the same volume when the drive left; with the number of the extent.
        let extents = self.cx.facts.volumes.iter().flat_map(|volume| {
            let then = { label.facts.volumes.iter() }.find(|then| then.uuid == volume.uuid);
            let then = then.map_or(&[][..], |then| &then.extents[..]);
            volume.extents.iter().map(move |&extent| (extent, then))
        });
        let extents: Vec<_> = extents.collect();
        let has = |&(first, count): &(u64, u64), group| (first..first + count).contains(&group);
        let placement = &self.cx.placement;
        let mut columns: Vec<(usize, Key)> = { placement.homes_on(seat) }
            .filter(|&key| placement.place(key).is_none())
            .filter(|&(group, _)| {
                let absent = placement
                    .columns()
                    .filter(|&column| placement.place((group, column)).is_none());
                let homes = absent.map(|column| placement.home((group, column)).seat);
                let mut since: Vec<u64> = homes.map(|home| placement.out_since(home)).collect();
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
    pub(super) fn return_ends(&mut self, seat: Seat) -> Option<Report> {
        let back = self.cx.placement.return_ends(seat)?;
        Some(Report::CaughtUp {
            seat,
            cells: back.cells,
            cell_bytes: self.cx.geometry.plane_bytes(),
            copied_bytes: back.copied_bytes,
        })
    }
}
