//! Operations that a lane's thread holds back because their drive may not have them yet (`admission.rs`).
//!
//! Long operations are cut here if their drive takes them in pieces. The lane sees one operation: it ends when all
//! pieces have ended, with the outcome of the first piece that failed.

use std::sync::Arc;

use array::fair_queue::FairQueue;
use array::{IoId, Origin, Service, VolumeId};
use block::{Instant, Outcome, Seat, Submission};

use super::Seats;
use super::admission::{Admission, Given, Kind, Waiter};
use super::hash::NameMap;
use super::lane::token;

/// An operation that waits outside of its drive.
struct Waiting {
    submission: Submission,
    lane: u16,
    /// The operation is of the log, whose batches count in order.
    log: bool,
}

/// Operations that wait for one drive. Each volume has its share of the drive, by bytes; the pool's own work has one,
/// too.
type Line = FairQueue<Option<VolumeId>, Waiting>;

/// The operations that a lane's thread holds back.
#[derive(Default)]
pub(super) struct Held {
    /// By seat, and by [`Kind`].
    waiting: Vec<[Line; 2]>,
    /// Number of operations that wait, at all drives.
    count: usize,
    /// Counted operations that drives have, by token.
    in_flight: NameMap<u64, Given>,
    /// Number of operations that have come.
    asked: u32,
    /// Operations that were cut, by token.
    cut: NameMap<u64, Cut>,
    /// The token of the operation of a piece, by the piece's number.
    pieces: NameMap<u64, u64>,
    /// The number of the last piece.
    last_piece: u64,
}

/// An operation in pieces.
struct Cut {
    /// Pieces that have not been answered.
    left: u64,
    outcome: Outcome,
}

/// Pieces have tokens with this lane number: no lane has so high a number.
pub(super) const PIECES: u16 = u16::MAX;

/// One of this many operations is counted while its drive is open.
const ASK_EVERY: u32 = 16;

/// Operations that may go to their drives now.
pub(super) type Released = Vec<(Seat, Submission)>;

impl Held {
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether an operation may pass without being counted.
    pub(super) fn passes(&mut self, seats: &Seats, seat: Seat, kind: Kind) -> bool {
        // The seat is empty, which the caller finds out, or its drive has no queue.
        let Some(admission) = seats.admission(seat) else {
            return true;
        };
        self.asked = self.asked.wrapping_add(1);
        admission.is_open(kind) && self.is_empty() && !self.asked.is_multiple_of(ASK_EVERY)
    }

    /// Takes an operation; returns as much as its drive may have now.
    pub(super) fn offer(
        &mut self,
        (now, seats, me): (Instant, &Seats, &Arc<dyn Waiter>),
        (lane, seat): (u16, Seat),
        service: Service,
        submission: Submission,
    ) -> Released {
        let mut released = Vec::new();
        if self.waiting.len() <= seat.index() {
            self.waiting.resize_with(seat.index() + 1, Default::default);
        }
        let kind = Kind::of(service);
        let first = self.waiting[seat.index()][kind as usize].is_empty();
        let piece_bytes = |admission: &Arc<Admission>| admission.piece_bytes(now, kind);
        let piece = seats.admission(seat).map_or(u64::MAX, piece_bytes);
        for submission in self.cut(submission, piece) {
            let waiting = Waiting {
                submission,
                lane,
                log: service.origin == Origin::Log,
            };
            self.waiting[seat.index()][kind as usize].push(service.volume, waiting);
            self.count += 1;
        }
        if first {
            self.release_at((seat, kind), (now, seats, me), &mut released);
        }
        released
    }

    /// Cuts an operation into pieces of at most `piece` bytes.
    fn cut(&mut self, whole: Submission, piece: u64) -> Vec<Submission> {
        let length = whole.request.bytes_moved();
        if length <= piece {
            return vec![whole];
        }
        let count = length.div_ceil(piece);
        let cut = Cut {
            left: count,
            outcome: Ok(()),
        };
        self.cut.insert(whole.token, cut);
        let cuts = (0..count).map(|index| index * piece..length.min((index + 1) * piece));
        cuts.map(|range| {
            self.last_piece += 1;
            self.pieces.insert(self.last_piece, whole.token);
            let mut request = whole.request;
            request.offset += range.start;
            request.length = range.end - range.start;
            let place = |at| usize::try_from(at).expect("inside a buffer");
            Submission {
                request,
                memory: whole.memory.slice(place(range.start)..place(range.end)),
                token: token(PIECES, IoId(self.last_piece)),
            }
        })
        .collect()
    }

    /// Releases the held log operations of a lane, before a short batch of its log: a batch counts only if all
    /// earlier ones do.
    pub(super) fn release_log(&mut self, now: Instant, seats: &Seats, lane: u16) -> Released {
        self.release_if(now, seats, |waiting| waiting.log && waiting.lane == lane)
    }

    /// Releases all operations: their drives change.
    pub(super) fn release_all(&mut self, now: Instant, seats: &Seats) -> Released {
        self.release_if(now, seats, |_| true)
    }

    fn release_if(
        &mut self,
        now: Instant,
        seats: &Seats,
        goes: impl Fn(&Waiting) -> bool,
    ) -> Released {
        let mut released = Vec::new();
        if self.is_empty() {
            return released;
        }
        for (seat, lines) in (0..).map(Seat).zip(&mut self.waiting) {
            for kind in Kind::ALL {
                for Waiting { submission, .. } in lines[kind as usize].take_if(&goes) {
                    self.count -= 1;
                    if let Some(admission) = seats.admission(seat) {
                        let bytes = submission.request.bytes_moved();
                        let given = admission.begin_now(now, kind, bytes);
                        self.in_flight.insert(submission.token, given);
                    }
                    released.push((seat, submission));
                }
            }
        }
        released
    }

    /// Releases the operations that drives may have by now. `me` is woken when there may be more.
    pub(super) fn release(
        &mut self,
        now: Instant,
        seats: &Seats,
        me: &Arc<dyn Waiter>,
    ) -> Released {
        let mut released = Vec::new();
        if self.is_empty() {
            return released;
        }
        for seat in (0..).map(Seat).take(self.waiting.len()) {
            for kind in Kind::ALL {
                self.release_at((seat, kind), (now, seats, me), &mut released);
            }
        }
        released
    }

    /// Releases the operations of one kind that one drive may have by now.
    fn release_at(
        &mut self,
        (seat, kind): (Seat, Kind),
        (now, seats, me): (Instant, &Seats, &Arc<dyn Waiter>),
        released: &mut Released,
    ) {
        let waiting = &mut self.waiting[seat.index()][kind as usize];
        while let Some((volume, first)) = waiting.next(|_| true) {
            // Not the request's length: a discard only names a range, and by its length the drive would seem very
            // fast.
            let length = first.submission.request.bytes_moved();
            let begun = match seats.admission(seat) {
                Some(admission) => {
                    let begun = admission.begin_or_wait(now, kind, length, me);
                    if begun.is_none() {
                        break;
                    }
                    begun
                }
                None => None,
            };
            let Waiting { submission, .. } = waiting.take(volume, length).expect("just seen");
            self.count -= 1;
            if let Some(given) = begun {
                self.in_flight.insert(submission.token, given);
            }
            released.push((seat, submission));
        }
    }

    /// A drive has answered. If the operation was counted, the thread that has waited longest is woken.
    pub(super) fn ended(&mut self, now: Instant, token: u64) {
        if !self.in_flight.is_empty()
            && let Some(given) = self.in_flight.remove(&token)
        {
            given.ended(now);
        }
    }

    /// A piece has ended. Returns the token and outcome of its operation if that was the last piece.
    pub(super) fn piece_ended(&mut self, piece: u64, outcome: Outcome) -> Option<(u64, Outcome)> {
        let whole = self.pieces.remove(&piece).expect("a piece ends once");
        let cut = self.cut.get_mut(&whole).expect("a piece of it was left");
        cut.left -= 1;
        cut.outcome = cut.outcome.and(outcome);
        if cut.left > 0 {
            return None;
        }
        let cut = self.cut.remove(&whole).expect("just seen");
        Some((whole, cut.outcome))
    }

    /// Drops all operations that wait.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use std::time::Duration;

    use block::{Fault, Memory, Request, RequestKind};

    use super::*;
    use crate::drive::{Open, open};
    use crate::run::lane::operation;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Waiter for Woken {
        fn wake(&self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// Two drives, and a thread that holds operations back.
    struct Fixture {
        seats: Seats,
        held: Held,
        me: Arc<dyn Waiter>,
        woken: Arc<Woken>,
    }

    const NOW: Instant = Instant(1_000_000_000);
    const CHECKPOINT: Origin = Origin::Checkpoint;
    const LOG: Origin = Origin::Log;

    impl Fixture {
        fn new() -> Self {
            let drive =
                || open(&"slow:mem:1M?latency=1us".parse().unwrap(), Open::default()).unwrap();
            let woken = Arc::new(Woken::default());
            Self {
                seats: Seats::new(vec![Some(drive()), Some(drive())], 1),
                held: Held::default(),
                me: Arc::clone(&woken) as Arc<dyn Waiter>,
                woken,
            }
        }

        /// What the drive may have of the operation at once.
        fn given(&mut self, lane: u16, seat: u16, service: Service, token: u64) -> Released {
            let submission = Submission {
                request: Request {
                    kind: RequestKind::Write,
                    offset: 1 << 20,
                    length: 512 << 10,
                    fua: false,
                },
                memory: Memory::zeroed(512 << 10),
                token,
            };
            let shared = (NOW, &self.seats, &self.me);
            self.held
                .offer(shared, (lane, Seat(seat)), service, submission)
        }

        /// Whether the drive may have the operation at once, and whole.
        fn offer(&mut self, lane: u16, seat: u16, origin: Origin, token: u64) -> bool {
            tokens(self.given(lane, seat, Service::bulk(origin), token)) == [token]
        }

        /// A short operation of a client comes.
        fn short(&self) {
            self.seats.admission(Seat(0)).unwrap().short(NOW);
        }

        fn release(&mut self) -> Vec<u64> {
            tokens(self.held.release(NOW, &self.seats, &self.me))
        }
    }

    fn tokens(released: Released) -> Vec<u64> {
        let tokens = released.into_iter().map(|(_, submission)| submission.token);
        tokens.collect()
    }

    #[test]
    fn bulk_waits_while_short_ones_come_and_goes_in_order() {
        let mut fixture = Fixture::new();
        fixture.short();
        assert!(fixture.offer(0, 0, CHECKPOINT, 2), "the drive has none");
        for token in [3, 4] {
            assert!(!fixture.offer(0, 0, CHECKPOINT, token));
        }
        assert!(fixture.offer(0, 1, CHECKPOINT, 6), "at another drive");
        assert!(fixture.release().is_empty());
        fixture.held.ended(NOW, 2);
        assert_eq!(fixture.woken.0.load(Relaxed), 1);
        assert_eq!(fixture.release(), [3]);
        fixture.held.ended(NOW, 3);
        assert_eq!(fixture.release(), [4]);
        assert!(fixture.held.is_empty());
    }

    #[test]
    fn each_volume_has_its_share_of_a_drive() {
        let mut fixture = Fixture::new();
        fixture.short();
        assert!(fixture.offer(0, 0, CHECKPOINT, 2), "the drive has none");
        let stream = |volume| Service::of_client(VolumeId(volume), true);
        let all = [
            (stream(1), 3),
            (stream(1), 4),
            (stream(1), 5),
            (stream(2), 6),
            (Service::bulk(CHECKPOINT), 7),
            (stream(2), 8),
        ];
        for (service, token) in all {
            assert!(fixture.given(0, 0, service, token).is_empty());
        }
        let mut turns = Vec::new();
        let mut last = 2;
        while !fixture.held.is_empty() {
            fixture.held.ended(NOW, last);
            turns.extend(fixture.release());
            last = *turns.last().expect("one at a time");
        }
        assert_eq!(turns, [3, 6, 7, 4, 8, 5]);
    }

    #[test]
    fn short_ones_of_a_volume_that_asks_for_much_let_others_pass() {
        let mut fixture = Fixture::new();
        let short = |volume| Service::of_client(VolumeId(volume), false);
        assert_eq!(
            fixture.given(0, 0, short(1), 2).len(),
            1,
            "the drive has none"
        );
        for (volume, token) in [(1, 3), (1, 4), (1, 5), (2, 6)] {
            assert!(fixture.given(0, 0, short(volume), token).is_empty());
        }
        // The pool's own work has a place of its own.
        assert!(fixture.offer(0, 0, CHECKPOINT, 7));
        fixture.held.ended(NOW, 2);
        assert_eq!(fixture.release(), [6]);
        fixture.held.ended(NOW, 6);
        assert_eq!(fixture.release(), [3]);
        fixture.held.ended(NOW, 7);
        assert!(fixture.release().is_empty());
    }

    #[test]
    fn a_commit_takes_along_what_its_lane_has_logged_before() {
        let mut fixture = Fixture::new();
        fixture.short();
        fixture.offer(0, 0, LOG, 2);
        for (lane, origin, token) in [(0, LOG, 3), (1, LOG, 4), (0, CHECKPOINT, 5)] {
            assert!(!fixture.offer(lane, 0, origin, token));
        }
        let released = fixture.held.release_log(NOW, &fixture.seats, 0);
        assert_eq!(tokens(released), [3]);
        // Both count as operations that the drive has.
        fixture.held.ended(NOW, 2);
        assert!(fixture.release().is_empty());
        fixture.held.ended(NOW, 3);
        assert_eq!(fixture.release(), [4]);
    }

    #[test]
    fn drives_that_change_are_given_all_and_a_pool_that_is_taken_over_nothing() {
        let mut fixture = Fixture::new();
        fixture.short();
        fixture.offer(0, 0, CHECKPOINT, 2);
        fixture.offer(0, 0, CHECKPOINT, 3);
        let released = fixture.held.release_all(NOW, &fixture.seats);
        assert_eq!(tokens(released), [3]);
        fixture.offer(0, 0, CHECKPOINT, 4);
        assert!(!fixture.held.is_empty());
        fixture.held.clear();
        assert!(fixture.held.is_empty() && fixture.release().is_empty());
    }

    #[test]
    fn a_quick_drive_gets_pieces_and_one_that_fails_counts() {
        let mut fixture = Fixture::new();
        fixture.short();
        // Operations that take no time make the drive fast.
        let admission = Arc::clone(fixture.seats.admission(Seat(0)).unwrap());
        while admission.piece_bytes(NOW, Kind::Bulk) != 128 << 10 {
            let none = admission.begin_now(NOW, Kind::Bulk, 0);
            none.ended(NOW + Duration::from_micros(20));
        }
        let mut all = fixture.given(0, 0, Service::bulk(CHECKPOINT), 2);
        for index in 0..4 {
            let (_, piece) = &all[index];
            let outcome = if index == 1 {
                Err(Fault::Medium)
            } else {
                Ok(())
            };
            let later = NOW + Duration::from_micros(300);
            let (lane, number) = operation(piece.token);
            assert_eq!(lane, PIECES);
            fixture.held.ended(later, piece.token);
            let ended = fixture.held.piece_ended(number.0, outcome);
            let whole = (index == 3).then_some((2, Err(Fault::Medium)));
            assert_eq!(ended, whole);
            all.extend(fixture.held.release(NOW, &fixture.seats, &fixture.me));
        }
        let ranges: Vec<(u64, u64, usize)> = all
            .iter()
            .map(|(_, piece)| {
                (
                    piece.request.offset,
                    piece.request.length,
                    piece.memory.len(),
                )
            })
            .collect();
        let kib = |n: u64| n << 10;
        let expected: Vec<(u64, u64, usize)> = (0..4)
            .map(|index| (kib(1024 + index * 128), kib(128), 128 << 10))
            .collect();
        assert_eq!(ranges, expected);
        assert!(fixture.held.is_empty());
    }

    #[test]
    fn what_is_for_an_empty_seat_passes() {
        let mut fixture = Fixture::new();
        assert!(fixture.held.passes(&fixture.seats, Seat(7), Kind::Bulk));
        assert!(!fixture.held.passes(&fixture.seats, Seat(0), Kind::Bulk));
    }
}
