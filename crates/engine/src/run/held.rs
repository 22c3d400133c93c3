//! What a lane's thread holds back because a drive is not to have it yet (`admission.rs`).

use std::collections::VecDeque;
use std::sync::Arc;

use array::Origin;
use block::{Instant, RequestKind, Seat, Submission};

use super::Seats;
use super::admission::{Bulk, Waiter};
use super::hash::NameMap;

/// An operation that waits outside of its drive.
struct Waiting {
    submission: Submission,
    lane: u16,
    /// It is of the log, whose batches count in order.
    log: bool,
}

/// The bulk operations of a lane's thread.
#[derive(Default)]
pub(super) struct Held {
    /// By seat, in the order in which they came.
    waiting: Vec<VecDeque<Waiting>>,
    /// How many wait, at all drives.
    count: usize,
    /// What the drives have, by token.
    in_flight: NameMap<u64, Bulk>,
    /// Operations that have come.
    asked: u32,
}

/// Of so many operations for a drive that is open one is counted: an operation on memory costs little more than the counting.
const ASK_EVERY: u32 = 16;

/// Bytes that an operation moves between here and its drive. A discard only names a range: were that its length, the
/// drive would seem to be as quick as it forgets.
const fn bytes_moved(submission: &Submission) -> u64 {
    match submission.request.kind {
        RequestKind::Read | RequestKind::Write => submission.request.length,
        RequestKind::Flush
        | RequestKind::Trim
        | RequestKind::Discard
        | RequestKind::WriteZeroes => 0,
    }
}

/// Operations that may go to their drives now.
pub(super) type Released = Vec<(Seat, Submission)>;

impl Held {
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A bulk operation comes. It is given back if its drive may have it.
    pub(super) fn offer(
        &mut self,
        (now, seats, me): (Instant, &Seats, &Arc<dyn Waiter>),
        (lane, seat): (u16, Seat),
        origin: Origin,
        submission: Submission,
    ) -> Option<Submission> {
        let Some(admission) = seats.admission(seat) else {
            // Nobody sits there, which the caller finds out.
            return Some(submission);
        };
        self.asked = self.asked.wrapping_add(1);
        if admission.is_open() && self.is_empty() && !self.asked.is_multiple_of(ASK_EVERY) {
            return Some(submission);
        }
        if self.waiting.len() <= seat.index() {
            self.waiting.resize_with(seat.index() + 1, VecDeque::new);
        }
        let begun = match self.waiting[seat.index()].is_empty() {
            true => admission.begin_or_wait(now, bytes_moved(&submission), me),
            false => None,
        };
        match begun {
            Some(bulk) => {
                self.in_flight.insert(submission.token, bulk);
                Some(submission)
            }
            None => {
                self.waiting[seat.index()].push_back(Waiting {
                    submission,
                    lane,
                    log: origin == Origin::Log,
                });
                self.count += 1;
                None
            }
        }
    }

    /// A short batch of the lane's log comes. It counts only when those before it do, so these go, too.
    pub(super) fn release_log(&mut self, now: Instant, seats: &Seats, lane: u16) -> Released {
        self.release_if(now, seats, |waiting| waiting.log && waiting.lane == lane)
    }

    /// All go: their drives change.
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
        for (seat, waiting) in (0..).map(Seat).zip(&mut self.waiting) {
            let (go, stay) = std::mem::take(waiting).into_iter().partition(&goes);
            *waiting = stay;
            let go: VecDeque<Waiting> = go;
            for Waiting { submission, .. } in go {
                self.count -= 1;
                if let Some(admission) = seats.admission(seat) {
                    let bulk = admission.begin_now(now, bytes_moved(&submission));
                    self.in_flight.insert(submission.token, bulk);
                }
                released.push((seat, submission));
            }
        }
        released
    }

    /// What drives may have by now. `me` is woken when there may be more.
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
        for (seat, waiting) in (0..).map(Seat).zip(&mut self.waiting) {
            while let Some(first) = waiting.front() {
                let length = bytes_moved(&first.submission);
                let begun = match seats.admission(seat) {
                    Some(admission) => {
                        let begun = admission.begin_or_wait(now, length, me);
                        if begun.is_none() {
                            break;
                        }
                        begun
                    }
                    None => None,
                };
                let Waiting { submission, .. } = waiting.pop_front().expect("just seen");
                self.count -= 1;
                if let Some(bulk) = begun {
                    self.in_flight.insert(submission.token, bulk);
                }
                released.push((seat, submission));
            }
        }
        released
    }

    /// A drive has answered. If that was a bulk operation, whoever has waited longest is woken.
    pub(super) fn ended(&mut self, now: Instant, token: u64) {
        if !self.in_flight.is_empty()
            && let Some(bulk) = self.in_flight.remove(&token)
        {
            bulk.ended(now);
        }
    }

    /// Nothing that waits goes any more.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use block::{Memory, Request};

    use super::*;
    use crate::drive::{Open, open};

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
            let drive = || open(&"mem:1M".parse().unwrap(), Open::default()).unwrap();
            let woken = Arc::new(Woken::default());
            Self {
                seats: Seats::new(vec![Some(drive()), Some(drive())], 1),
                held: Held::default(),
                me: Arc::clone(&woken) as Arc<dyn Waiter>,
                woken,
            }
        }

        /// Whether the drive may have it at once.
        fn offer(&mut self, lane: u16, seat: u16, origin: Origin, token: u64) -> bool {
            let submission = Submission {
                request: Request {
                    kind: RequestKind::Write,
                    offset: 0,
                    length: 512 << 10,
                    fua: false,
                },
                memory: Memory::zeroed(4096),
                token,
            };
            let shared = (NOW, &self.seats, &self.me);
            let given = self
                .held
                .offer(shared, (lane, Seat(seat)), origin, submission);
            given.is_some_and(|submission| submission.token == token)
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
    fn a_commit_takes_along_what_its_lane_has_logged_before() {
        let mut fixture = Fixture::new();
        fixture.short();
        fixture.offer(0, 0, LOG, 2);
        for (lane, origin, token) in [(0, LOG, 3), (1, LOG, 4), (0, CHECKPOINT, 5)] {
            assert!(!fixture.offer(lane, 0, origin, token));
        }
        let released = fixture.held.release_log(NOW, &fixture.seats, 0);
        assert_eq!(tokens(released), [3]);
        // Both count as what the drive has.
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
    fn what_is_for_an_empty_seat_is_given_back() {
        let mut fixture = Fixture::new();
        assert!(fixture.offer(0, 7, CHECKPOINT, 1));
        assert!(fixture.offer(0, 7, CHECKPOINT, 2));
    }
}
