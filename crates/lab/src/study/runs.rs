//! Simulations in pieces: between two of them a study checks whether to continue, and reports the time that has passed.

use block::Instant;
use sim::load::{Run, Target};
use stats::to_f64;

use super::{Context, Stopped};

/// Steps of a simulation between two checks whether to continue.
const STEPS: u32 = 4096;

/// Runs a target until `ended` returns a time.
pub(super) fn finish<T: Target>(
    context: &Context<'_>,
    target: &mut T,
    ended: impl Fn(&T) -> Option<Instant>,
) -> Result<Instant, Stopped> {
    let mut told = target.poll_timeout().unwrap_or(Instant::ZERO);
    loop {
        context.check()?;
        for _ in 0..STEPS {
            if let Some(at) = ended(target) {
                context.passed(nanoseconds(told, at));
                return Ok(at);
            }
            let at = target.poll_timeout().expect("what is not done goes on");
            target.handle_timeout(at);
        }
        let at = target.poll_timeout().unwrap_or(told);
        context.passed(nanoseconds(told, at));
        told = told.max(at);
    }
}

/// Runs until `count` requests have ended.
pub(super) fn requests<T: Target>(
    context: &Context<'_>,
    run: &mut Run,
    target: &mut T,
    count: u64,
) -> Result<(), Stopped> {
    let mut left = count;
    while left > 0 {
        context.check()?;
        let began = run.now();
        let some = left.min(u64::from(STEPS));
        run.requests(target, some);
        context.passed(nanoseconds(began, run.now()));
        left -= some;
    }
    Ok(())
}

pub(super) fn nanoseconds(from: Instant, to: Instant) -> u64 {
    to.0.saturating_sub(from.0)
}

pub(super) fn seconds(from: Instant, to: Instant) -> f64 {
    to_f64(nanoseconds(from, to)) / 1e9
}

/// Least and greatest of some samples.
pub(super) fn range(samples: &[f64]) -> (f64, f64) {
    let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let most = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (least, most)
}
