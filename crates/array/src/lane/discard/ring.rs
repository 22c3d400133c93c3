//! The ring's own space, which a stream has written from end to end and nobody needs when all is in place.
//!
//! It is discarded as a whole when nothing is in it and nothing has been logged for a while, if much has been written there
//! since the last time. Recovery begins where the anchor says, and takes what it finds there for the end of the log.
//!
//! Invariant: while drives discard the ring no batch is written to it. Who logs meanwhile waits.

use block::{BLOCK_BYTES, Seat};

use crate::action::{Io, IoKind, Origin, Service};
use crate::lane::{Lane, Purpose};
use crate::seeded::{self, Bug};

/// The part of the ring that must have been written for it to be discarded. Less is written again soon.
const WRITTEN_PART: u64 = 8;

/// What a lane knows of its ring's space.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RingSpace {
    /// Blocks that batches had taken, in all, when it was last discarded.
    taken: u64,
    /// Drives that are discarding it.
    in_flight: usize,
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

    /// Discards the ring, if nothing is in it and it is worth that.
    pub(super) fn begin_ring_discard(&mut self) {
        let ring = &self.log.ring;
        let (blocks, taken) = (ring.blocks(), ring.taken());
        let written = taken.saturating_sub(self.discards.ring.taken) >= blocks / WRITTEN_PART;
        let unused = ring.is_empty() && self.log.is_idle() && !self.has_gaps();
        let waits = self.discards.paused || self.discards.ring.is_under_way();
        if !written || !unused || waits || !self.logs_nothing_lately() {
            return;
        }
        let takes =
            |seat: &Seat| !self.ios.is_suspect(*seat) && !self.ios.twins().has_successor(*seat);
        let seats: Vec<Seat> = self.cx.live_seats().into_iter().filter(takes).collect();
        let offset = self.cx.ring_offset(0);
        self.discards.ring = RingSpace {
            taken,
            in_flight: seats.len(),
        };
        for seat in seats {
            self.ios
                .submit(&mut self.cx, Purpose::DiscardRing, |id| Io {
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
