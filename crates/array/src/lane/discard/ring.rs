//! The ring's own space, which a stream has written from end to end and nobody needs when all is in place.
//!
//! It is discarded as a whole when nothing is in it and nothing has been logged for [`REST`], if much has been written there
//! since the last time. A client that writes now and then would have the same space discarded and allocated again and
//! again. Recovery begins where the anchor says, and takes what it finds there for the end of the log.
//!
//! Invariant: while drives discard the ring no batch is written to it. Who logs meanwhile waits.

use std::time::Duration;

use block::{BLOCK_BYTES, Instant, Seat};

use crate::action::{Io, IoKind, Origin, Service};
use crate::lane::{Lane, Purpose};
use crate::seeded::{self, Bug};

/// The part of the ring that must have been written for it to be discarded. Less is written again soon.
const WRITTEN_PART: u64 = 8;

/// How long nothing must have been logged.
const REST: Duration = Duration::from_secs(10);

/// What a lane knows of its ring's space.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RingSpace {
    /// Blocks that batches had taken, in all, when it was last discarded.
    taken: u64,
    /// Drives that are discarding it.
    in_flight: usize,
    /// When to look whether it can be discarded.
    look_at: Option<Instant>,
}

impl RingSpace {
    pub(super) const fn is_under_way(&self) -> bool {
        self.in_flight > 0
    }
}

impl Lane {
    /// Whether drives discard the ring: nothing is logged before they have.
    pub(in crate::lane) fn discards_ring(&self) -> bool {
        self.discards.ring.is_under_way() && !seeded::is(Bug::DiscardRingWritten)
    }

    /// A checkpoint has ended, and may have emptied the ring: whether it is to be discarded is seen after a rest.
    pub(super) fn ring_was_checkpointed(&mut self) {
        let ring = &self.log.ring;
        let written = ring.taken().saturating_sub(self.discards.ring.taken);
        if written >= ring.blocks() / WRITTEN_PART && !self.discards.ring.is_under_way() {
            self.discards.ring.look_at = Some(self.logged_at() + REST);
        }
    }

    /// When to look whether the ring can be discarded.
    pub(in crate::lane) const fn ring_discard_at(&self) -> Option<Instant> {
        self.discards.ring.look_at
    }

    /// Time has passed: discards the ring, if nothing is in it. Otherwise the next checkpoint has it looked at again.
    pub(in crate::lane) fn ring_discard_due(&mut self) {
        if self.discards.ring.look_at.is_none_or(|at| at > self.now) {
            return;
        }
        self.discards.ring.look_at = None;
        let ring = &self.log.ring;
        let (blocks, taken) = (ring.blocks(), ring.taken());
        let rested = self.now.since(self.logged_at()) >= REST;
        let unused = ring.is_empty() && self.log.is_idle() && !self.has_gaps();
        let waits = self.discards.paused || self.discards.ring.is_under_way();
        if !rested || !unused || waits || self.recovery.is_some() {
            return;
        }
        let takes =
            |seat: &Seat| !self.watch.suspects.contains(seat) && !self.twins.has_successor(*seat);
        let seats: Vec<Seat> = self.live_seats().into_iter().filter(takes).collect();
        let offset = self.ring_offset(0);
        self.discards.ring = RingSpace {
            taken,
            in_flight: seats.len(),
            look_at: None,
        };
        for seat in seats {
            self.push_io(Purpose::DiscardRing, |id| Io {
                id,
                seat,
                kind: IoKind::Discard,
                offset,
                length: blocks * BLOCK_BYTES,
                slice: None,
                service: Service::bulk(Origin::Checkpoint),
            });
        }
    }

    /// A drive has discarded the ring, or has not.
    pub(in crate::lane) fn ring_discarded(&mut self) {
        self.discards.ring.in_flight -= 1;
        self.tell_untold();
    }
}
