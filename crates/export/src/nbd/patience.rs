//! When to let work gather before looking at it, as network drivers do with interrupts.
//!
//! Many clients send each request by itself. A worker that is faster than they are then wakes for
//! every single one, and so does the device behind it; a wake costs several times as much as the
//! request. With many requests in flight nobody misses the few microseconds that the worker naps
//! before it looks again, and a nap gathers a batch: one receive, one wake of the device, one send.
//! With few requests in flight a nap is nothing but latency. How many a client has in flight is not
//! to be seen from here, since its own queues hold most of them. So the worker tries: it naps a few
//! times and goes on as long as the naps gather enough.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// Long enough for eight requests of a client that sends 200,000 a second, as fio does at best with
/// a core to itself; short enough that 32 requests in flight still make 300,000 a second.
const NAP: Duration = Duration::from_micros(40);
/// The kernel may be so late in ending a nap. By default it is 50 microseconds late.
const LATENESS_NS: u64 = 1000;
/// Turns that follow each other within this time are busy ones.
const BUSY: Duration = Duration::from_micros(200);
/// Naps go on while they gather so many requests on average. Fewer in flight than that are never
/// delayed for longer than a trial takes.
const GATHERED_MIN: u32 = 8;
/// Turns that gather so many without a nap need none.
const GATHERED_WELL: u32 = 16;
/// Busy turns before the first trial, and before the next one at most: each failed trial doubles
/// the number, so that a client with one request in flight pays a few naps in a thousand turns.
const TRIAL_AFTER_MIN: u32 = 32;
const TRIAL_AFTER_MAX: u32 = 4096;
/// The average moves by so much of the difference with each nap.
const WEIGHT: u32 = 8;

#[derive(Debug)]
enum State {
    /// Counts busy turns up to the next trial.
    Awake { busy_turns: u32 },
    /// Naps before each look; the average of what they gather, times [`WEIGHT`].
    Napping { average: u32 },
}

/// One worker's habit.
#[derive(Debug)]
pub(super) struct Patience {
    state: State,
    trial_after: u32,
    last_turn: Instant,
}

impl Patience {
    /// For the calling thread, whose timers become punctual.
    pub(super) fn begin() -> Self {
        // Without it naps are longer, no more.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(LATENESS_NS));
        Self {
            state: State::Awake { busy_turns: 0 },
            trial_after: TRIAL_AFTER_MIN,
            last_turn: Instant::now(),
        }
    }

    /// Takes in that a turn has ended at `now` with `requests` new requests. Whether to nap.
    pub(super) fn wants_nap(&mut self, now: Instant, requests: u32) -> bool {
        let busy = now.saturating_duration_since(self.last_turn) < BUSY;
        self.last_turn = now;
        match &mut self.state {
            State::Awake { busy_turns } => {
                if !busy {
                    *busy_turns = 0;
                    self.trial_after = TRIAL_AFTER_MIN;
                } else if (1..GATHERED_WELL).contains(&requests) {
                    *busy_turns += 1;
                }
                if *busy_turns < self.trial_after {
                    return false;
                }
                // Credit for about four naps.
                let average = WEIGHT * (GATHERED_MIN + GATHERED_MIN / 2);
                self.state = State::Napping { average };
                true
            }
            State::Napping { average } => {
                *average = *average - *average / WEIGHT + requests;
                // Not reset by the credit of a trial that fails.
                if requests >= GATHERED_MIN {
                    self.trial_after = TRIAL_AFTER_MIN;
                }
                if busy && *average >= WEIGHT * GATHERED_MIN {
                    return true;
                }
                self.trial_after = (self.trial_after * 2).min(TRIAL_AFTER_MAX);
                self.state = State::Awake { busy_turns: 0 };
                false
            }
        }
    }

    pub(super) fn nap(&self) {
        std::thread::sleep(NAP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets `turns` turns pass, 30 microseconds each, with what `gathered` says (told whether the
    /// worker napped). Returns how many naps there were.
    fn naps(patience: &mut Patience, turns: u32, gathered: impl Fn(bool) -> u32) -> u32 {
        let mut now = patience.last_turn;
        let (mut naps, mut napped) = (0, false);
        for _ in 0..turns {
            now += Duration::from_micros(30);
            napped = patience.wants_nap(now, gathered(napped));
            naps += u32::from(napped);
        }
        naps
    }

    #[test]
    fn one_request_in_flight_is_delayed_in_less_than_one_turn_of_a_hundred() {
        let mut patience = Patience::begin();
        let naps = naps(&mut patience, 100_000, |_| 1);
        assert!(naps > 0 && naps < 1000, "{naps}");
    }

    #[test]
    fn naps_go_on_while_they_gather_and_end_when_they_do_not() {
        let mut patience = Patience::begin();
        let many = naps(&mut patience, 10_000, |napped| if napped { 12 } else { 2 });
        assert!(many > 9_900, "{many}");
        assert!(naps(&mut patience, 200, |_| 1) < 20);
    }

    #[test]
    fn large_batches_and_rare_ones_need_no_naps() {
        let mut patience = Patience::begin();
        assert_eq!(naps(&mut patience, 10_000, |_| 20), 0);
        let mut now = patience.last_turn;
        for _ in 0..10_000 {
            now += Duration::from_micros(500);
            assert!(!patience.wants_nap(now, 3));
        }
    }
}
