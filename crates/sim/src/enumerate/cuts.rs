//! Cuts the power after every write and flush, and again during the recovery.
//!
//! ```text
//!   workload ─┬─ after each write or flush: any subset of what is un-flushed survives
//!             │      └─ equal images merged ─ × lost drives ─► open, recover, read everything
//!             │             └─ after each write or flush of that: none, all, each one missing, each prefix
//!             │                    └─ equal images merged ─► open, recover, read everything
//! ```

use std::collections::BTreeSet;

use block::{Seat, mix};

use super::{Share, Tally, Workload, guarded, subsets};
use crate::drive::Drive;
use crate::ledger::Ledger;
use crate::schedule::{Moment, Run, Runner, Violation};
use crate::world::{CutSpec, PowerLoss, World};

/// Up to so many un-flushed writes every subset is tried; of more writes, some subsets.
const SUBSETS_OF_MAX: usize = 12;
/// Number of subsets that are tried of more writes.
const SUBSETS_MAX: u64 = 1 << SUBSETS_OF_MAX;
/// Maximum number of writes and flushes of a reference workload.
pub(super) const BOUNDARIES_MAX: usize = 64;

/// The enumeration of the cuts of a workload, with the states that have been seen.
struct Cut<'a> {
    workload: &'a Workload,
    seen: BTreeSet<u64>,
    tally: Tally,
    share: Share,
}

/// The workload after each of its writes and flushes.
///
/// # Panics
/// When it does not run without a cut.
fn moments(runner: &mut Runner, workload: &Workload) -> Vec<Moment> {
    let mut run = runner.begin(&workload.frame, None);
    run.events(&workload.prepare).expect("it can be prepared");
    run.moments = Some(Vec::new());
    run.events(&workload.events).expect("it runs without a cut");
    run.settle().expect("it ends");
    run.moments.take().expect("they were wanted")
}

/// Cuts the power of a workload after each write and flush.
///
/// # Panics
/// When the workload does not run without a cut, or has more than 64 writes and flushes.
pub fn cuts(runner: &mut Runner, workload: &Workload, share: Share) -> Tally {
    let moments = moments(runner, workload);
    assert!(
        moments.len() <= BOUNDARIES_MAX,
        "{} has {} boundaries",
        workload.name,
        moments.len()
    );
    let mut cut = Cut {
        workload,
        seen: BTreeSet::new(),
        tally: Tally::default(),
        share,
    };
    cut.tally.boundaries = moments.len() as u64;
    for (at, moment) in moments.into_iter().enumerate() {
        cut.moment(at, moment);
    }
    cut.tally
}

/// The sets of `writes` un-flushed writes that may survive.
pub(super) fn every_subset(writes: usize) -> Vec<CutSpec> {
    let mut specs = CutSpec::of(writes, SUBSETS_OF_MAX);
    if writes > SUBSETS_OF_MAX {
        specs.extend((specs.len() as u64..SUBSETS_MAX).map(|seed| CutSpec::Seed(mix(seed))));
    }
    specs
}

impl Cut<'_> {
    fn moment(&mut self, at: usize, moment: Moment) {
        self.tally.points += 1;
        let mut ledger = moment.ledger;
        ledger.cut(false);
        let legal = ledger.digest();
        let loss = moment.world.lose_power();
        let sets = subsets(&self.workload.seats, self.workload.spare_losses);
        for (number, spec) in every_subset(loss.writes()).into_iter().enumerate() {
            self.tally.states += sets.len() as u64;
            let case = mix(at as u64) ^ number as u64;
            if !self.share.has(case) {
                continue;
            }
            let drives = loss.with(spec);
            for (set, lost) in sets.iter().enumerate() {
                let what = || format!("point {at} cut {spec} lost {lost:?}");
                let again = self.share.cuts_again(mix(case) ^ set as u64);
                self.state(&drives, legal, &ledger, lost, &what, again);
            }
        }
    }

    /// Recovers one state, if it has not been seen before.
    fn state(
        &mut self,
        drives: &[Drive],
        legal: u64,
        ledger: &Ledger,
        lost: &[Seat],
        what: &dyn Fn() -> String,
        again: bool,
    ) {
        let mut drives = drives.to_vec();
        for seat in lost {
            drives[seat.index()].pull();
        }
        if !self.seen.insert(mix(World::image_digest(&drives)) ^ legal) {
            return;
        }
        self.tally.merged += 1;
        let recovered = guarded(|| {
            let mut run = Run::after(ledger.clone(), legal, self.workload.frame.setting);
            run.moments = again.then(Vec::new);
            run.open(drives)?;
            run.settle()?;
            run.takes_part(&self.workload.seats, lost)?;
            let moments = run.moments.take();
            let whole = (lost.is_empty()).then(|| run.clone());
            run.read_back()?;
            Ok((moments, whole))
        });
        match recovered {
            Err(violation) => self.violated(what, &violation),
            Ok((moments, whole)) => {
                if let Some(whole) = whole {
                    self.lose_afterwards(&whole, what);
                }
                for (at, moment) in moments.into_iter().flatten().enumerate() {
                    let what = || format!("{}, again at {at}", what());
                    self.again(moment, lost, &what);
                }
            }
        }
    }

    /// Pulls the drives after the recovery, not before it.
    fn lose_afterwards(&mut self, run: &Run, what: &dyn Fn() -> String) {
        let sets = subsets(&self.workload.seats, self.workload.spare_losses);
        let largest = sets.iter().filter(|set| {
            set.len() == self.workload.spare_losses && self.workload.spare_losses > 0
        });
        for lost in largest {
            self.tally.states += 1;
            self.tally.merged += 1;
            let read = guarded(|| {
                let mut run = run.clone();
                for &seat in lost {
                    run.world().pull(seat);
                }
                run.read_back()
            });
            if let Err(violation) = read {
                let what = || format!("{}, {lost:?} lost afterwards", what());
                self.violated(&what, &violation);
            }
        }
    }

    /// Cuts the power again during the recovery.
    fn again(&mut self, moment: Moment, lost: &[Seat], what: &dyn Fn() -> String) {
        self.tally.points += 1;
        let mut ledger = moment.ledger;
        ledger.cut(false);
        let legal = ledger.digest();
        let loss: PowerLoss = moment.world.lose_power();
        for (number, spec) in CutSpec::of(loss.writes(), 0).into_iter().enumerate() {
            self.tally.states += 1;
            let case = mix(legal ^ self.tally.points) ^ number as u64;
            if !self.share.has(case) {
                continue;
            }
            let drives = loss.with(spec);
            let what = || format!("{} {spec}", what());
            // The lost drives were lost before the first recovery.
            self.state(&drives, legal, &ledger, lost, &what, false);
        }
    }

    fn violated(&mut self, what: &dyn Fn() -> String, violation: &Violation) {
        let line = format!("{}: {}: {violation}", self.workload.name, what());
        self.tally.violations.push(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enumerate::workloads;

    #[test]
    fn workloads_have_a_few_dozen_boundaries_and_all_of_them_are_cut() {
        let mut runner = Runner::new();
        for workload in workloads() {
            let boundaries = moments(&mut runner, &workload).len();
            let few = 8..=BOUNDARIES_MAX;
            assert!(few.contains(&boundaries), "{}: {boundaries}", workload.name);
        }
    }

    #[test]
    fn few_writes_are_lost_in_every_combination_and_many_in_as_many_as_twelve_have() {
        for writes in 0..=SUBSETS_OF_MAX {
            assert_eq!(every_subset(writes).len(), 1 << writes);
        }
        assert_eq!(every_subset(40).len() as u64, SUBSETS_MAX);
    }
}
