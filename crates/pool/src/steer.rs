//! Steering: the priority, the rate and the pause that an administrator sets for fills and scrubs.
//!
//! What is set is durable in the facts, and the lanes get it at once: a change that the labels do not take is in force
//! until the next opening. The rate is one for the pool, whatever the number of lanes: a lane requests the bytes of
//! each step, and the meter grants them one after the other, each when the bytes before it have had their time. So the
//! slowest drive delays no other lane, and a lane without work takes no share.

use std::collections::VecDeque;
use std::time::Duration;

use block::Instant;
use plan::action::{Command, FILL_STEP_BYTES, Steer};
use plan::priority::{self, Priority};

use super::{OnDurable, Pool, PoolError, Ticket};

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

/// Grants the bytes that lanes request, at a rate.
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

impl Pool {
    /// Sets the priority, the rate or the pause of fills and scrubs.
    ///
    /// # Errors
    /// [`PoolError::NotPaused`] if what is not paused is to be resumed, [`PoolError::RateTooLow`]; nothing has changed.
    pub fn steer(
        &mut self,
        now: Instant,
        change: Steering,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        let mut steer = self.cx.facts.steer.clone();
        if change.paused == Some(false) && !steer.paused {
            return Err(PoolError::NotPaused);
        }
        if let Some(Some(rate_bytes)) = change.rate_bytes
            && rate_bytes < RATE_BYTES_MIN
        {
            let left_bytes = match self.unfilled_bytes() {
                0 => self.cx.facts.rows * self.cx.facts.cell_bytes,
                left => left,
            };
            return Err(PoolError::RateTooLow {
                rate_bytes,
                left_bytes,
            });
        }
        if let Some(priority) = change.priority {
            steer.priority = Some(priority.name().to_owned());
        }
        if let Some(rate_bytes) = change.rate_bytes {
            steer.rate_bytes = rate_bytes;
        }
        if let Some(paused) = change.paused {
            steer.paused = paused;
            let begins = self.fills.progress.cells_done == 0 && self.fills.in_flight() == 0;
            if !paused && begins {
                self.fills.progress.began = now;
            }
        }
        if steer == self.cx.facts.steer {
            self.cx.done(ticket, Ok(()));
            return Ok(());
        }
        self.cx.facts.steer = steer;
        self.send_steer();
        self.cx.commit(vec![OnDurable::Done(ticket, Ok(()))]);
        self.advance();
        Ok(())
    }

    /// At an opening: the lanes get what was set before.
    pub(super) fn tell_steer(&mut self) {
        if self.cx.facts.steer != super::SteerFacts::default() {
            self.send_steer();
        }
    }

    fn send_steer(&mut self) {
        // The lanes request again what they had requested at the rate before.
        self.meter = Meter {
            free_at: self.cx.now,
            ..Meter::default()
        };
        let facts = &self.cx.facts.steer;
        let metered = |rate: u64| (rate / STEPS_PER_SECOND).clamp(STEP_BYTES_MIN, FILL_STEP_BYTES);
        let steer = Steer {
            priority: priority::of(facts),
            paused: facts.paused,
            metered_bytes: facts.rate_bytes.map(metered),
        };
        self.cx.tell_lanes(&Command::Steer(steer));
        self.rate_scrub_from_now();
        self.fills.recent.restart();
    }

    /// A lane waits until it may move so many bytes.
    pub(super) fn wants_to_move(&mut self, lane: u16, bytes: u64) {
        self.meter.waiting.push_back((lane, bytes));
    }

    /// Grants what is due. Without a rate that is all: the lane has requested it before it knew.
    pub(super) fn pump_meter(&mut self) {
        let rate = self.cx.facts.steer.rate_bytes.unwrap_or(u64::MAX);
        while let Some((lane, bytes)) = self.meter.grant(self.cx.now, rate) {
            let grant = Command::MayMove { bytes };
            self.cx.act(super::PoolAction::Lane(lane, grant));
        }
    }

    /// Bytes of cells that are yet to be filled.
    fn unfilled_bytes(&self) -> u64 {
        let progress = self.progress();
        let total = progress.cells_total * progress.cell_bytes;
        total.saturating_sub(self.rebuilt_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
