//! Steering: the priority, the rate and the pause that an administrator sets for fills and scrubs.
//!
//! What is set is durable in the facts, and the lanes get it at once: a change that the labels do not take is in force
//! until the next opening. The rate is one for the pool, whatever the number of lanes: a lane requests the bytes of
//! each step, and the meter grants them one after the other, each when the bytes before it have had their time. So the
//! slowest drive delays no other lane, and a lane without work takes no share.
//!
//! Input: what an administrator sets, and the bytes that lanes request. Output: [`Command::Steer`] to all lanes, and
//! [`Command::MayMove`] to the lane whose turn it is.

use std::collections::VecDeque;
use std::time::Duration;

use block::Instant;
use plan::action::{Command, FILL_STEP_BYTES, Steer};
use plan::priority::{self, Priority};

use super::context::Context;
use super::{PoolAction, PoolError, SteerFacts};

/// The lowest rate: with less, a drive of today takes months.
pub const RATE_BYTES_MIN: u64 = 1_000_000;

/// The shortest step of a fill under a rate.
const STEP_BYTES_MIN: u64 = 128 << 10;

/// Steps of a fill in a second, under a rate: many, so that the rate is even.
const STEPS_PER_SECOND: u64 = 16;

/// A meter that had nothing to grant for a moment makes up for so much.
const BURST: Duration = Duration::from_millis(250);

/// What an administrator changes; `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steering {
    /// The priority.
    pub priority: Option<&'static dyn Priority>,
    /// The rate in bytes per second; `Some(None)`: none.
    pub rate_bytes: Option<Option<u64>>,
    /// Whether fills and scrubs are paused.
    pub paused: Option<bool>,
}

impl Steering {
    /// The settings after this change; `unfilled_bytes`: of cells that are yet to be filled.
    ///
    /// # Errors
    /// [`PoolError::NotPaused`] if what is not paused is to be resumed, [`PoolError::RateTooLow`].
    pub(super) fn of(self, cx: &Context, unfilled_bytes: u64) -> Result<SteerFacts, PoolError> {
        let mut steer = cx.facts.steer.clone();
        if self.paused == Some(false) && !steer.paused {
            return Err(PoolError::NotPaused);
        }
        if let Some(Some(rate_bytes)) = self.rate_bytes
            && rate_bytes < RATE_BYTES_MIN
        {
            let left_bytes = match unfilled_bytes {
                0 => cx.facts.rows * cx.facts.cell_bytes,
                left => left,
            };
            return Err(PoolError::RateTooLow {
                rate_bytes,
                left_bytes,
            });
        }
        if let Some(priority) = self.priority {
            steer.priority = Some(priority.name().to_owned());
        }
        if let Some(rate_bytes) = self.rate_bytes {
            steer.rate_bytes = rate_bytes;
        }
        if let Some(paused) = self.paused {
            steer.paused = paused;
        }
        Ok(steer)
    }
}

/// Grants the bytes that lanes request, at the rate in the facts.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    /// Lanes that wait, and for how much.
    waiting: VecDeque<(u16, u64)>,
    /// When the bytes that were granted have had their time.
    free_at: Instant,
}

impl Meter {
    /// When the next grant is due.
    pub(super) fn grant_at(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.free_at)
    }

    /// The lanes get what is set in the facts.
    pub(super) fn steer(&mut self, cx: &mut Context) {
        // The lanes request again what they had requested at the rate before.
        *self = Self {
            free_at: cx.now,
            ..Self::default()
        };
        let facts = &cx.facts.steer;
        let metered = |rate: u64| (rate / STEPS_PER_SECOND).clamp(STEP_BYTES_MIN, FILL_STEP_BYTES);
        let steer = Steer {
            priority: priority::of(facts),
            paused: facts.paused,
            metered_bytes: facts.rate_bytes.map(metered),
        };
        cx.tell_lanes(&Command::Steer(steer));
    }

    /// A lane waits until it may move so many bytes.
    pub(super) fn wants_to_move(&mut self, lane: u16, bytes: u64) {
        self.waiting.push_back((lane, bytes));
    }

    /// Grants what is due. Without a rate that is all: the lane has requested it before it knew.
    pub(super) fn pump(&mut self, cx: &mut Context) {
        let rate = cx.facts.steer.rate_bytes.unwrap_or(u64::MAX);
        while let Some((lane, bytes)) = self.grant(cx.now, rate) {
            cx.act(PoolAction::Lane(lane, Command::MayMove { bytes }));
        }
    }

    /// The next grant, if it is due.
    fn grant(&mut self, now: Instant, rate_bytes: u64) -> Option<(u16, u64)> {
        if self.free_at > now {
            return None;
        }
        let (lane, bytes) = self.waiting.pop_front()?;
        let takes = u128::from(bytes) * 1_000_000_000 / u128::from(rate_bytes.max(1));
        let takes = Duration::from_nanos(u64::try_from(takes).unwrap_or(u64::MAX));
        let burst = u64::try_from(BURST.as_nanos()).unwrap_or(u64::MAX);
        let earliest = Instant(now.0.saturating_sub(burst));
        self.free_at = self.free_at.max(earliest) + takes;
        Some((lane, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{commands, context};

    const SECOND: u64 = 1_000_000_000;

    /// A pool with this rate.
    fn with_rate(rate_bytes: Option<u64>) -> Context {
        let mut cx = context("raid6", 6, 2);
        cx.facts.steer.rate_bytes = rate_bytes;
        cx
    }

    /// What lanes may move at a time.
    fn granted(meter: &mut Meter, cx: &mut Context, at: u64) -> Vec<(u16, u64)> {
        cx.now = Instant(at);
        meter.pump(cx);
        let grants = commands(cx)
            .into_iter()
            .map(|(lane, command)| match command {
                Command::MayMove { bytes } => (lane, bytes),
                other => panic!("{other:?}"),
            });
        grants.collect()
    }

    fn rate(rate_bytes: Option<u64>) -> Steering {
        Steering {
            rate_bytes: Some(rate_bytes),
            ..Steering::default()
        }
    }

    fn paused(paused: bool) -> Steering {
        Steering {
            paused: Some(paused),
            ..Steering::default()
        }
    }

    #[test]
    fn a_meter_grants_what_the_rate_allows_whichever_lane_requests_it() {
        let mut meter = Meter::default();
        let mut granted = [0, 0];
        for millis in 0..10_000 {
            let now = Instant(millis * 1_000_000);
            // One lane requests a little at a time, the other one more.
            for (lane, bytes) in [(0, 10_000), (1, 40_000)] {
                if meter.waiting.iter().all(|(waits, _)| *waits != lane) {
                    meter.waiting.push_back((lane, bytes));
                }
            }
            while let Some((lane, bytes)) = meter.grant(now, 2_000_000) {
                granted[usize::from(lane)] += bytes;
            }
        }
        let all = granted[0] + granted[1];
        assert!((19_000_000..21_500_000).contains(&all), "{granted:?}");
        assert!(granted[0] > 3_000_000, "{granted:?}");
        let at = meter.grant_at().unwrap();
        assert!(at > Instant(9_999_000_000));
    }

    #[test]
    fn without_a_rate_all_that_lanes_request_is_granted_at_once() {
        let (mut meter, mut cx) = (Meter::default(), with_rate(None));
        for lane in [1, 0, 1] {
            meter.wants_to_move(lane, 4 << 20);
        }
        let all = [1, 0, 1].map(|lane| (lane, 4 << 20));
        assert_eq!(granted(&mut meter, &mut cx, SECOND), all);
        assert_eq!(meter.grant_at(), None);
    }

    #[test]
    fn a_grant_is_due_when_the_bytes_before_it_have_had_their_time() {
        let (mut meter, mut cx) = (Meter::default(), with_rate(Some(2_000_000)));
        meter.steer(&mut cx);
        commands(&mut cx);
        for lane in 0..2 {
            meter.wants_to_move(lane, 1_000_000);
        }
        assert_eq!(granted(&mut meter, &mut cx, 0), [(0, 1_000_000)]);
        assert_eq!(meter.grant_at(), Some(Instant(SECOND / 2)));
        assert_eq!(granted(&mut meter, &mut cx, SECOND / 2 - 1), []);
        assert_eq!(granted(&mut meter, &mut cx, SECOND / 2), [(1, 1_000_000)]);
    }

    #[test]
    fn a_meter_makes_up_for_a_moment_and_not_for_an_hour() {
        let (mut meter, mut cx) = (Meter::default(), with_rate(Some(1_000_000)));
        for _ in 0..4 {
            meter.wants_to_move(0, 250_000);
        }
        let grants = granted(&mut meter, &mut cx, 3600 * SECOND);
        assert_eq!(grants.len(), 2, "the burst, and the one that is due");
    }

    #[test]
    fn other_settings_forget_requests_that_lanes_make_again() {
        let (mut meter, mut cx) = (Meter::default(), with_rate(Some(1_000_000)));
        for lane in 0..2 {
            meter.wants_to_move(lane, 10_000_000);
        }
        granted(&mut meter, &mut cx, SECOND);
        meter.steer(&mut cx);
        assert_eq!(meter.grant_at(), None);
        commands(&mut cx);
        meter.wants_to_move(1, 5);
        assert_eq!(granted(&mut meter, &mut cx, SECOND), [(1, 5)]);
    }

    #[test]
    fn every_lane_gets_the_settings_and_steps_that_fit_the_rate() {
        for (rate_bytes, step) in [
            (None, None),
            (Some(RATE_BYTES_MIN), Some(STEP_BYTES_MIN)),
            (Some(16 << 20), Some(1 << 20)),
            (Some(u64::MAX), Some(FILL_STEP_BYTES)),
        ] {
            let mut cx = with_rate(rate_bytes);
            cx.facts.steer.paused = true;
            Meter::default().steer(&mut cx);
            let lanes = cx.geometry.lanes();
            let sent = commands(&mut cx);
            assert_eq!(sent.len(), usize::from(lanes));
            for (_, command) in sent {
                let Command::Steer(steer) = command else {
                    panic!("{command:?}");
                };
                assert!(steer.paused);
                assert_eq!(steer.metered_bytes, step, "{rate_bytes:?}");
            }
        }
    }

    #[test]
    fn a_change_leaves_the_other_settings_as_they_are() {
        let mut cx = with_rate(Some(5_000_000));
        let steer = paused(true).of(&cx, 0).unwrap();
        assert_eq!((steer.paused, steer.rate_bytes), (true, Some(5_000_000)));
        cx.facts.steer = steer;
        let steer = rate(None).of(&cx, 0).unwrap();
        assert_eq!((steer.paused, steer.rate_bytes), (true, None));
        let urgent = Steering {
            priority: Some(priority::urgent()),
            ..Steering::default()
        };
        let steer = urgent.of(&cx, 0).unwrap();
        let name = priority::urgent().name().to_owned();
        assert_eq!((steer.priority, steer.paused), (Some(name), true));
        assert_eq!(Steering::default().of(&cx, 0), Ok(cx.facts.steer.clone()));
    }

    #[test]
    fn what_is_not_paused_cannot_be_resumed() {
        let mut cx = with_rate(None);
        assert_eq!(paused(false).of(&cx, 0), Err(PoolError::NotPaused));
        cx.facts.steer.paused = true;
        assert!(!paused(false).of(&cx, 0).unwrap().paused);
    }

    #[test]
    fn a_rate_that_is_too_low_is_refused_with_the_bytes_that_are_left() {
        let cx = with_rate(None);
        let refused = |left_bytes| PoolError::RateTooLow {
            rate_bytes: RATE_BYTES_MIN - 1,
            left_bytes,
        };
        let low = rate(Some(RATE_BYTES_MIN - 1));
        assert_eq!(low.of(&cx, 4711), Err(refused(4711)));
        let drive = cx.facts.rows * cx.facts.cell_bytes;
        assert_eq!(low.of(&cx, 0), Err(refused(drive)), "those of a drive");
        assert!(rate(Some(RATE_BYTES_MIN)).of(&cx, 0).is_ok());
    }
}
