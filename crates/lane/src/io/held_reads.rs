//! Long reads are held while their drive has enough of them, and are then joined with their neighbours.
//!
//! ```text
//!   request 1   seat 2   0..128 KiB ──► drive has nothing ──────────────────► handed out
//!   request 4   seat 2   …                    ⋮
//!   request 5   seat 2   896..960 ──► has more than 512 KiB ──► held ─┐
//!   request 6   seat 2   960..1088 ─► the same ───────────────► held ─┴─ one has ended ──► joined, handed out
//! ```
//!
//! Requests of a mebibyte read 170 KiB from each of six drives, with gaps where parity lies: a disk that seeks for 2 ms
//! reaches half of its rate with such reads. Neighbouring reads of several requests are one operation if they go out
//! together. A busy drive does not begin with a read earlier if it gets the read earlier.
//!
//! Invariants:
//! - Only reads of clients' bytes are held, and only while the drive has other reads of this lane: the end of each of
//!   those lets more go. So no read is held for ever if its drive answers.
//! - A held read counts as in flight since it was begun: it becomes late, is hedged and ends with its seat like any
//!   other. A read that is withdrawn while it is held was never at the drive, which therefore cannot write into its
//!   memory.
//! - The oldest read of a seat goes first, together with its neighbours.

use std::collections::BTreeMap;

use block::Seat;
use plan::action::{Io, IoId, IoKind, Origin};

use super::{JOINED_BYTES_MAX, first_run};

/// Shorter reads are never held: mostly they have no neighbours, and their clients wait for them.
const LONG_BYTES: u64 = 32 << 10;

/// A drive that has more bytes of long reads than this gets no further one: it has one of the longest, and one to go on
/// with. With this much a flash drive that answers after 100 us reads 5 GB/s.
const ENOUGH_BYTES: u64 = JOINED_BYTES_MAX;

/// The length from which on reads are held, and the bytes above which a drive has enough of them.
#[derive(Clone, Copy, Debug)]
struct Limits {
    long_bytes: u64,
    enough_bytes: u64,
}

/// Long reads that drives have, and those that are held.
#[derive(Clone, Debug)]
pub(super) struct HeldReads {
    limits: Limits,
    seats: Vec<SeatReads>,
    /// The long reads that drives have, by the id of the operation as it was submitted.
    handed_out: BTreeMap<IoId, (Seat, u64)>,
    /// A drive has fewer bytes of long reads than before, and some are held for it.
    room: bool,
}

#[derive(Clone, Debug, Default)]
struct SeatReads {
    /// Bytes of long reads that the drive has.
    has_bytes: u64,
    held: Vec<Io>,
}

impl Default for HeldReads {
    fn default() -> Self {
        Self::with_limits(LONG_BYTES, ENOUGH_BYTES)
    }
}

impl HeldReads {
    /// Reads of at least `long_bytes` are held when a drive has more than `enough_bytes` of them.
    pub(super) const fn with_limits(long_bytes: u64, enough_bytes: u64) -> Self {
        Self {
            limits: Limits {
                long_bytes,
                enough_bytes,
            },
            seats: Vec::new(),
            handed_out: BTreeMap::new(),
            room: false,
        }
    }

    /// True if an operation may have to wait.
    pub(super) fn is_long(&self, io: &Io) -> bool {
        let long = (self.limits.long_bytes..JOINED_BYTES_MAX).contains(&io.length);
        io.kind == IoKind::Read && io.service.origin == Origin::Client && long
    }

    fn at(&mut self, seat: Seat) -> &mut SeatReads {
        if self.seats.len() <= seat.index() {
            self.seats.resize_with(seat.index() + 1, SeatReads::default);
        }
        &mut self.seats[seat.index()]
    }

    /// True if some held reads may go.
    pub(super) const fn have_room(&self) -> bool {
        self.room
    }

    /// Holds a long read, if its drive has enough of them. If false, the caller submits the read.
    pub(super) fn hold(&mut self, io: &Io) -> bool {
        let enough = self.limits.enough_bytes;
        let there = self.at(io.seat);
        let holds = there.has_bytes > enough;
        if holds {
            there.held.push(*io);
        }
        holds
    }

    /// A read is submitted to a drive, perhaps one joined of several. Short ones do not count.
    pub(super) fn hand_out(&mut self, id: IoId, seat: Seat, length: u64) {
        if length >= self.limits.long_bytes {
            self.at(seat).has_bytes += length;
            self.handed_out.insert(id, (seat, length));
        }
    }

    /// A drive has answered an operation of any kind.
    pub(super) fn ended(&mut self, id: IoId) {
        if let Some((seat, length)) = self.handed_out.remove(&id) {
            let enough = self.limits.enough_bytes;
            let there = self.at(seat);
            there.has_bytes -= length;
            let room = there.has_bytes <= enough && !there.held.is_empty();
            self.room |= room;
        }
    }

    /// Takes the held reads that may go, each with its neighbours.
    pub(super) fn take_ready(&mut self) -> Vec<Io> {
        let mut ready = Vec::new();
        self.room = false;
        for there in &mut self.seats {
            let mut has = there.has_bytes;
            while has <= self.limits.enough_bytes && !there.held.is_empty() {
                let run = take_oldest_run(&mut there.held);
                has += run.iter().map(|io| io.length).sum::<u64>();
                ready.extend(run);
            }
        }
        ready
    }

    /// No operation waits for a read any more. True if the read was held.
    pub(super) fn withdraw(&mut self, id: IoId, seat: Seat) -> bool {
        let Some(there) = self.seats.get_mut(seat.index()) else {
            return false;
        };
        let place = there.held.iter().position(|io| io.id == id);
        if let Some(place) = place {
            there.held.remove(place);
        }
        place.is_some()
    }

    /// The drive has left its seat: the reads that it still has do not count for the next drive.
    pub(super) fn forget(&mut self, seat: Seat) {
        self.handed_out.retain(|_, &mut (other, _)| other != seat);
        self.at(seat).has_bytes = 0;
    }
}

/// Takes the oldest read, and with it its neighbours on the drive, up to the longest operation.
fn take_oldest_run(held: &mut Vec<Io>) -> Vec<Io> {
    let oldest = held.iter().map(|io| io.id).min();
    held.sort_unstable_by_key(|io| io.offset);
    let mut first = 0;
    loop {
        let rest = &held[first..];
        let is_before = |a: &Io, b: &Io| a.offset + a.length == b.offset;
        let run = first_run(rest, |io| io.length, is_before);
        if rest[..run].iter().any(|io| Some(io.id) == oldest) {
            return held.drain(first..first + run).collect();
        }
        first += run;
    }
}

#[cfg(test)]
mod tests {
    use plan::action::Service;

    use super::*;

    const KIB: u64 = 1024;

    fn read(id: u64, seat: u16, from_kib: u64, to_kib: u64) -> Io {
        Io {
            id: IoId(id),
            seat: Seat(seat),
            kind: IoKind::Read,
            offset: from_kib * KIB,
            length: (to_kib - from_kib) * KIB,
            slice: None,
            service: Service::prompt(Origin::Client),
        }
    }

    fn ids(ios: &[Io]) -> Vec<u64> {
        ios.iter().map(|io| io.id.0).collect()
    }

    /// Reads of a drive that has 640 KiB of long ones.
    fn busy(seat: u16) -> HeldReads {
        let mut reads = HeldReads::default();
        for id in 0..5 {
            assert!(!reads.hold(&read(id, seat, 0, 128)));
            reads.hand_out(IoId(id), Seat(seat), 128 * KIB);
        }
        reads
    }

    #[test]
    fn nothing_is_held_that_is_short_or_as_long_as_can_be_or_no_read() {
        let reads = HeldReads::default();
        assert!(reads.is_long(&read(0, 0, 0, 32)));
        assert!(reads.is_long(&read(0, 0, 0, 508)));
        assert!(!reads.is_long(&read(0, 0, 0, 28)));
        assert!(!reads.is_long(&read(0, 0, 0, 512)));
        for kind in [IoKind::Write, IoKind::Discard] {
            let other = read(0, 0, 0, 64);
            assert!(!reads.is_long(&Io { kind, ..other }));
        }
        let service = Service::bulk(Origin::Scrub);
        let scrubs = read(0, 0, 0, 64);
        assert!(!reads.is_long(&Io { service, ..scrubs }));
    }

    #[test]
    fn a_drive_gets_what_it_can_go_on_with_and_the_rest_waits() {
        let mut reads = busy(2);
        assert!(reads.hold(&read(10, 2, 1000, 1064)));
        assert!(!reads.hold(&read(11, 3, 1000, 1064)), "another drive");
        assert!(!reads.have_room());
        reads.ended(IoId(99));
        assert!(!reads.have_room());
        reads.ended(IoId(0));
        assert!(reads.have_room());
        assert_eq!(ids(&reads.take_ready()), [10]);
        assert!(!reads.have_room());
        assert!(reads.take_ready().is_empty());
    }

    #[test]
    fn neighbours_go_together_and_the_oldest_goes_first() {
        let mut reads = busy(1);
        for io in [
            read(10, 1, 2000, 2064),
            read(11, 1, 1064, 1128),
            read(12, 1, 2064, 2128),
            read(13, 1, 1000, 1064),
            read(14, 1, 1936, 2000),
            read(15, 1, 1192, 1256),
        ] {
            assert!(reads.hold(&io));
        }
        reads.ended(IoId(0));
        // 512 KiB: one run is more than enough.
        assert_eq!(ids(&reads.take_ready()), [14, 10, 12]);
        reads.hand_out(IoId(20), Seat(1), 192 * KIB);
        reads.ended(IoId(1));
        assert!(!reads.have_room(), "576 KiB");
        reads.ended(IoId(2));
        reads.ended(IoId(3));
        // 320 KiB: two runs fit.
        assert_eq!(ids(&reads.take_ready()), [13, 11, 15]);
    }

    #[test]
    fn a_run_is_no_longer_than_the_longest_operation() {
        let mut reads = busy(0);
        for id in 0..20 {
            assert!(reads.hold(&read(100 + id, 0, 64 * id, 64 * (id + 1))));
        }
        for id in 0..5 {
            reads.ended(IoId(id));
        }
        let first = ids(&reads.take_ready());
        assert_eq!(
            first,
            (100..116).collect::<Vec<u64>>(),
            "two runs of 512 KiB"
        );
        reads.hand_out(IoId(200), Seat(0), 512 * KIB);
        reads.hand_out(IoId(201), Seat(0), 512 * KIB);
        reads.ended(IoId(200));
        assert_eq!(ids(&reads.take_ready()), [116, 117, 118, 119]);
    }

    #[test]
    fn what_is_withdrawn_was_never_handed_out() {
        let mut reads = busy(0);
        assert!(reads.hold(&read(10, 0, 0, 64)));
        assert!(reads.hold(&read(11, 0, 64, 128)));
        assert!(!reads.withdraw(IoId(10), Seat(1)));
        assert!(!reads.withdraw(IoId(0), Seat(0)), "the drive has it");
        assert!(reads.withdraw(IoId(10), Seat(0)));
        assert!(!reads.withdraw(IoId(10), Seat(0)));
        reads.ended(IoId(0));
        assert_eq!(ids(&reads.take_ready()), [11]);
    }

    #[test]
    fn a_drive_that_has_left_its_seat_keeps_no_other_one_busy() {
        let mut reads = busy(0);
        reads.forget(Seat(0));
        assert!(!reads.hold(&read(10, 0, 0, 64)));
        reads.hand_out(IoId(10), Seat(0), 64 * KIB);
        // The old drive answers after all.
        reads.ended(IoId(3));
        reads.ended(IoId(10));
        assert!(!reads.have_room());
    }
}
