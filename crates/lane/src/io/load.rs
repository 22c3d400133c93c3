//! The load that this lane puts on each drive.

use block::Seat;
use plan::action::{Io, IoKind};

use super::latency::units;

/// By seat: units in flight, and where the last read ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct DriveLoad {
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

    /// An operation is submitted.
    pub(super) fn begins(&mut self, io: &Io) {
        *Self::at(&mut self.queued, io.seat) += load(io);
        if io.kind == IoKind::Read {
            *Self::at(&mut self.read_to, io.seat) = io.offset + io.length;
        }
    }

    /// An operation has ended, or was abandoned.
    pub(super) fn ended(&mut self, io: &Io) {
        let queued = Self::at(&mut self.queued, io.seat);
        *queued = queued.checked_sub(load(io)).expect("what ends has begun");
    }

    /// Operations that a drive has, long ones counted as several.
    pub(crate) fn queued(&self, seat: Seat) -> u64 {
        self.queued.get(seat.index()).copied().unwrap_or(0)
    }

    /// True if a drive's last read ended at `offset`.
    pub(crate) fn reads_on(&self, seat: Seat, offset: u64) -> bool {
        self.read_to.get(seat.index()) == Some(&offset)
    }
}

/// Units that an operation in flight counts. A discard counts as a short one: no reader waits for its bytes.
const fn load(io: &Io) -> u64 {
    match io.kind {
        IoKind::Discard => units(0),
        IoKind::Read | IoKind::Write | IoKind::WriteZeroes | IoKind::Flush => units(io.length),
    }
}

#[cfg(test)]
mod tests {
    use plan::action::{IoId, Origin, Service};

    use super::*;

    fn io(seat: u16, kind: IoKind, offset: u64, length: u64) -> Io {
        Io {
            id: IoId(1),
            seat: Seat(seat),
            kind,
            offset,
            length,
            slice: None,
            service: Service::prompt(Origin::Client),
        }
    }

    #[test]
    fn a_drive_has_what_has_begun_and_not_ended() {
        let mut load = DriveLoad::default();
        let (short, long) = (
            io(3, IoKind::Read, 0, 4096),
            io(3, IoKind::Write, 0, 256 << 10),
        );
        load.begins(&short);
        load.begins(&long);
        assert_eq!(load.queued(Seat(3)), units(4096) + units(256 << 10));
        assert!(
            units(256 << 10) > units(4096),
            "a long one counts as several"
        );
        load.ended(&long);
        assert_eq!(load.queued(Seat(3)), units(4096));
        assert_eq!(load.queued(Seat(2)), 0);
    }

    #[test]
    fn a_discard_counts_as_a_short_one() {
        let mut load = DriveLoad::default();
        load.begins(&io(3, IoKind::Discard, 0, 1 << 30));
        assert_eq!(load.queued(Seat(3)), units(0));
    }

    #[test]
    fn reads_go_on_where_the_last_one_ended_and_writes_do_not_move_that() {
        let mut load = DriveLoad::default();
        load.begins(&io(3, IoKind::Read, 8192, 4096));
        load.begins(&io(3, IoKind::Write, 0, 4096));
        assert!(load.reads_on(Seat(3), 12288));
        assert!(!load.reads_on(Seat(3), 4096) && !load.reads_on(Seat(2), 12288));
    }

    #[test]
    #[should_panic(expected = "what ends has begun")]
    fn nothing_ends_that_has_not_begun() {
        DriveLoad::default().ended(&io(3, IoKind::Read, 0, 4096));
    }
}
