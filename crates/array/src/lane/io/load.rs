//! What each drive has to do for this lane.

use block::Seat;

use super::latency::units;
use crate::action::{Io, IoKind};

/// By seat: how much is in flight, and where the last read ended.
#[derive(Clone, Debug, Default)]
pub(in crate::lane) struct DriveLoad {
    queued: Vec<u64>,
    read_to: Vec<u64>,
}

impl DriveLoad {
    fn at(counts: &mut Vec<u64>, seat: Seat) -> &mut u64 {
        if counts.len() <= seat.index() {
            counts.resize(seat.index() + 1, 0);
        }
        &mut counts[seat.index()]
    }

    /// An operation is handed out.
    pub(super) fn begins(&mut self, io: &Io) {
        *Self::at(&mut self.queued, io.seat) += load(io);
        if io.kind == IoKind::Read {
            *Self::at(&mut self.read_to, io.seat) = io.offset + io.length;
        }
    }

    /// It has ended, or nobody waits for it any more.
    pub(super) fn ended(&mut self, io: &Io) {
        let queued = Self::at(&mut self.queued, io.seat);
        *queued = queued.checked_sub(load(io)).expect("what ends has begun");
    }

    /// Operations that a drive has, long ones counted as several.
    pub(in crate::lane) fn queued(&self, seat: Seat) -> u64 {
        self.queued.get(seat.index()).copied().unwrap_or(0)
    }

    /// True if a drive's last read ended at `offset`.
    pub(in crate::lane) fn reads_on(&self, seat: Seat, offset: u64) -> bool {
        self.read_to.get(seat.index()) == Some(&offset)
    }
}

/// What an operation in flight counts. A discard keeps no reader waiting for its bytes.
const fn load(io: &Io) -> u64 {
    match io.kind {
        IoKind::Discard => units(0),
        IoKind::Read | IoKind::Write | IoKind::WriteZeroes | IoKind::Flush => units(io.length),
    }
}
