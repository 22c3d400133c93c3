//! Batching delay: decides when a worker lets requests collect before it takes them, as network drivers do with
//! interrupts (interrupt coalescing).
//!
//! Many clients send each request in a system call of its own. A worker that is faster than its clients then wakes
//! for every single request, and so does the device behind it. A wake-up costs several times as much as the request.
//! With many requests in flight, a delay of some microseconds collects a batch: one receive, one wake-up of the
//! device, one send. With few in flight, the delay only adds latency. The number of a client's requests in flight is
//! not visible here, since its own queues hold most of them. So the worker runs trials: it delays a few times, and
//! continues as long as the delays collect enough requests.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// Long enough for eight requests of a client that sends 200,000 a second, as fio does at best with
/// a core to itself; short enough that 32 requests in flight still make 300,000 a second.
const DELAY: Duration = Duration::from_micros(40);
/// How late the kernel may be in ending a delay (timer slack). The default is 50 microseconds.
const LATENESS_NS: u64 = 1000;
/// A turn that follows the previous one within this time counts as busy.
const BUSY: Duration = Duration::from_micros(200);
/// Delays continue while they collect so many requests on average. Fewer in flight than that are delayed only during
/// a trial.
const GATHERED_MIN: u32 = 8;
/// Turns that collect so many requests without a delay need none.
const GATHERED_WELL: u32 = 16;
/// Busy turns before the first trial, and the maximum before a later one. Each failed trial doubles the number, so a
/// client with one request in flight pays for a few delays in a thousand turns.
const TRIAL_AFTER_MIN: u32 = 32;
const TRIAL_AFTER_MAX: u32 = 4096;
/// Each delay moves the average by this fraction (1/8) of the difference.
const WEIGHT: u32 = 8;

#[derive(Debug)]
enum State {
    /// Counts busy turns up to the next trial.
    Immediate { busy_turns: u32 },
    /// Delays before it takes requests. `average`: the average number of requests per delay, times [`WEIGHT`].
    Delaying { average: u32 },
}

/// The delay decision of one worker.
#[derive(Debug)]
pub(super) struct Batching {
    state: State,
    trial_after: u32,
    last_turn: Instant,
}

impl Batching {
    /// For the calling thread; sets the thread's timer slack.
    pub(super) fn begin() -> Self {
        // A failure only makes delays longer.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(LATENESS_NS));
        Self {
            state: State::Immediate { busy_turns: 0 },
            trial_after: TRIAL_AFTER_MIN,
            last_turn: Instant::now(),
        }
    }

    /// Records that a turn has ended at `now` with `requests` new requests. True if the worker should delay.
    pub(super) fn should_delay(&mut self, now: Instant, requests: u32) -> bool {
        let busy = now.saturating_duration_since(self.last_turn) < BUSY;
        self.last_turn = now;
        match &mut self.state {
            State::Immediate { busy_turns } => {
                if !busy {
                    *busy_turns = 0;
                    self.trial_after = TRIAL_AFTER_MIN;
                } else if (1..GATHERED_WELL).contains(&requests) {
                    *busy_turns += 1;
                }
                if *busy_turns < self.trial_after {
                    return false;
                }
                // Credit for about four delays.
                let average = WEIGHT * (GATHERED_MIN + GATHERED_MIN / 2);
                self.state = State::Delaying { average };
                true
            }
            State::Delaying { average } => {
                *average = *average - *average / WEIGHT + requests;
                // Compares the requests and not the average: the initial credit of a trial that fails must not reset
                // this.
                if requests >= GATHERED_MIN {
                    self.trial_after = TRIAL_AFTER_MIN;
                }
                if busy && *average >= WEIGHT * GATHERED_MIN {
                    return true;
                }
                self.trial_after = (self.trial_after * 2).min(TRIAL_AFTER_MAX);
                self.state = State::Immediate { busy_turns: 0 };
                false
            }
        }
    }

    pub(super) fn delay(&self) {
        std::thread::sleep(DELAY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `turns` turns, 30 microseconds each. `gathered` returns the requests of a turn; its argument is true if
    /// the worker delayed. Returns the number of delays.
    fn delays(batching: &mut Batching, turns: u32, gathered: impl Fn(bool) -> u32) -> u32 {
        let mut now = batching.last_turn;
        let (mut delays, mut delayed) = (0, false);
        for _ in 0..turns {
            now += Duration::from_micros(30);
            delayed = batching.should_delay(now, gathered(delayed));
            delays += u32::from(delayed);
        }
        delays
    }

    #[test]
    fn one_request_in_flight_is_delayed_in_less_than_one_turn_of_a_hundred() {
        let mut batching = Batching::begin();
        let delays = delays(&mut batching, 100_000, |_| 1);
        assert!(delays > 0 && delays < 1000, "{delays}");
    }

    #[test]
    fn delays_go_on_while_they_gather_and_end_when_they_do_not() {
        let mut batching = Batching::begin();
        let many = delays(
            &mut batching,
            10_000,
            |delayed| if delayed { 12 } else { 2 },
        );
        assert!(many > 9_900, "{many}");
        assert!(delays(&mut batching, 200, |_| 1) < 20);
    }

    #[test]
    fn large_batches_and_rare_ones_need_no_delays() {
        let mut batching = Batching::begin();
        assert_eq!(delays(&mut batching, 10_000, |_| 20), 0);
        let mut now = batching.last_turn;
        for _ in 0..10_000 {
            now += Duration::from_micros(500);
            assert!(!batching.should_delay(now, 3));
        }
    }
}
