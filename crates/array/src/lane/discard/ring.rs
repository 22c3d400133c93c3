//! The ring's own space, which a stream has written from end to end, and which holds nothing that counts when all is in place.
//!
//! It is discarded as a whole when nothing is in it and nothing has been logged for a while, if much has been written there
//! since the last time. Recovery begins where the anchor says, and takes what it finds there for the end of the log.
//!
//! Invariant: while drives discard the ring no batch is written to it. What is to be logged meanwhile waits.

use block::{BLOCK_BYTES, Seat};

use super::Discards;
use crate::action::{Io, IoKind, Origin, Service};
use crate::lane::Purpose;
use crate::lane::context::Context;
use crate::lane::io::IoTable;
use crate::seeded::{self, SeededFault};

/// The part of the ring that must have been written for it to be discarded. Less is written again soon.
const WRITTEN_PART: u64 = 8;

/// How the log uses its ring, as of an input.
#[derive(Clone, Copy, Debug)]
pub(in crate::lane) struct RingUse {
    /// Blocks of the ring.
    pub(in crate::lane) blocks: u64,
    /// Blocks that batches have taken, in all.
    pub(in crate::lane) taken: u64,
    /// Nothing is in it nor on its way there, and nothing has been for a while.
    pub(in crate::lane) unused: bool,
}

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

impl Discards {
    /// True while drives discard the ring: nothing is logged before they have.
    pub(in crate::lane) fn hold_log(&self) -> bool {
        self.ring.is_under_way() && !seeded::is(SeededFault::DiscardRingWritten)
    }

    /// Discards the ring, if nothing is in it and it is worth that.
    pub(in crate::lane) fn begin_ring(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        ring: RingUse,
    ) {
        let RingUse {
            blocks,
            taken,
            unused,
        } = ring;
        let written = taken.saturating_sub(self.ring.taken) >= blocks / WRITTEN_PART;
        let waits = self.paused || self.ring.is_under_way();
        if !written || !unused || waits {
            return;
        }
        let takes = |seat: &Seat| !ios.is_suspect(*seat) && !ios.twins().has_successor(*seat);
        let seats: Vec<Seat> = cx.live_seats().into_iter().filter(takes).collect();
        let offset = cx.ring_offset(0);
        self.ring = RingSpace {
            taken,
            in_flight: seats.len(),
        };
        for seat in seats {
            ios.submit(cx, Purpose::DiscardRing, |id| Io {
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
    pub(in crate::lane) fn ring_discarded(&mut self, cx: &mut Context) {
        self.ring.in_flight -= 1;
        self.report_delayed(cx);
    }
}
