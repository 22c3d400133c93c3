//! The discard of the ring itself. A stream writes the ring from end to end, and the ring holds nothing that counts
//! once all blocks are in place.
//!
//! The ring is discarded as a whole if it is empty, nothing has been logged for a while, and much of it has been
//! written since its last discard. Recovery begins where the anchor points, and takes what it finds there for the end
//! of the log.
//!
//! Invariant: no batch is written to the ring while drives discard it. Batches wait until then.

use block::{BLOCK_BYTES, Seat};
use format::seeded::{self, SeededFault};
use plan::action::{Io, IoKind, Origin, Service};

use super::Discards;
use crate::context::Context;
use crate::io::IoTable;
use crate::purpose::Purpose;

/// The ring is discarded if at least one part in this many has been written. A smaller part is soon written again.
const WRITTEN_PART: u64 = 8;

/// How the log uses its ring, as of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingUse {
    /// Blocks of the ring.
    pub(crate) blocks: u64,
    /// Blocks that batches have taken, in all.
    pub(crate) taken: u64,
    /// The ring is empty, no batch is on its way there, and this has been so for a while.
    pub(crate) unused: bool,
}

/// State of the ring's discards.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RingSpace {
    /// Blocks that batches had taken, in all, at the last discard.
    taken: u64,
    /// Drives that are discarding the ring.
    in_flight: usize,
}

impl RingSpace {
    pub(super) const fn is_under_way(&self) -> bool {
        self.in_flight > 0
    }
}

impl Discards {
    /// True while drives discard the ring: no batch is logged before they have ended.
    pub(crate) fn hold_log(&self) -> bool {
        self.ring.is_under_way() && !seeded::is(SeededFault::DiscardRingWritten)
    }

    /// Discards the ring, if it is empty and enough of it has been written.
    pub(crate) fn begin_ring(&mut self, cx: &mut Context, ios: &mut IoTable, ring: RingUse) {
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

    /// A drive has answered the discard of the ring.
    pub(crate) fn ring_discarded(&mut self, cx: &mut Context) {
        self.ring.in_flight -= 1;
        self.report_delayed(cx);
    }
}
