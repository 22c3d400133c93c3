//! How much of the drives' time moves may take while clients send requests: a policy, one in each file.
//!
//! Moves are rebuild, copy-back and replacement; scrubs follow the same policy. While no client sends requests, all
//! policies are alike: nothing makes way. A group that cannot lose another column goes at [`urgent`], whatever an
//! administrator has set.
//!
//! Adding one is a file here, its `mod` line and its line in [`PRIORITIES`]. `docs/design/steering.md` has what each
//! costs clients.

mod high;
mod low;
mod medium;

use std::fmt;
use std::time::Duration;

use format::SteerFacts;

/// The longest step of a fill while clients send requests, unless a policy says more.
const STEP_BYTES_MAX: u64 = 1 << 20;

/// A policy.
pub trait Priority: fmt::Debug + Send + Sync {
    /// Its name, as administrators write it.
    fn name(&self) -> &'static str;

    /// What it does, for people who choose.
    fn summary(&self) -> &'static str;

    /// How long a step of a fill should take. Steps that take twice as long are halved.
    fn budget(&self) -> Duration;

    /// The rest of a lane after a step that took so long.
    fn rest(&self, took: Duration) -> Duration;

    /// Steps of a lane that may be in flight at a time.
    fn steps(&self) -> u64;

    /// The longest step of a fill, in bytes of the cell.
    fn step_bytes_max(&self) -> u64 {
        STEP_BYTES_MAX
    }
}

/// All policies, from the least to the most.
pub const PRIORITIES: &[&dyn Priority] = &[&low::Low, &medium::Medium, &high::High];

/// The policy of pools in which none was set.
#[must_use]
pub fn standard() -> &'static dyn Priority {
    &medium::Medium
}

/// The policy of groups that cannot lose another column.
#[must_use]
pub fn urgent() -> &'static dyn Priority {
    &high::High
}

/// The policy that an administrator has set, by the pool's facts.
#[must_use]
pub fn of(facts: &SteerFacts) -> &'static dyn Priority {
    let named = facts.priority.as_deref().and_then(named);
    named.unwrap_or_else(standard)
}

/// The policy of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static dyn Priority> {
    { PRIORITIES.iter().copied() }.find(|priority| priority.name() == name)
}

impl PartialEq for dyn Priority {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Priority {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_the_table_ascends() {
        let share = |priority: &dyn Priority| {
            let took = Duration::from_millis(40);
            let turn = took + priority.rest(took);
            took.as_secs_f64() / turn.as_secs_f64()
                * f64::from(u32::try_from(priority.steps()).unwrap())
        };
        for pair in PRIORITIES.windows(2) {
            assert!(share(pair[0]) < share(pair[1]), "{pair:?}");
        }
        for priority in PRIORITIES {
            assert_eq!(named(priority.name()), Some(*priority));
        }
        assert_eq!(named("urgent"), None);
    }
}
