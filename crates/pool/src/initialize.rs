//! Groups of new volumes are made blank when they are first written: creating a volume writes labels only.
//!
//! ```text
//!   create: never written ── first write, the lane waits ─► blank pages on the drives, flushed ─► labels ─► lane
//! ```
//!
//! A *region* of neighbouring groups is made blank at a time, because a flush and a label cost the same for all of it.
//! When a part of the first group of a region has been written, the next region is begun, twice as long: so a stream
//! waits once. Regions all over a volume are recorded together: groups are made blank and labels are written by turns.
//! The groups of a region lose the mark "never written" when a label without that mark is durable, and are written only
//! then. After a stop before that they still have the mark, and are made blank again; so they are if more drives are out
//! than the code survives when the pages are written.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use block::{Fault, Outcome};
use format::runs;
use format::seeded::{self, SeededFault};
use plan::SubStripePlans;
use plan::action::Command;

use super::loss::owner;
use super::{OnDurable, Pool, SeatState};

/// Maximum of groups in a region: with cells of 16 MiB a gibibyte of data and more, for a flush and a label.
const REGION_MAX: u64 = 16;
/// Groups in flight at a time.
const IN_FLIGHT_MAX: usize = 16;
/// Bytes that the runs of groups may take in a label: half of it. With 160,000 groups that is 16,000 runs. ext4 writes
/// to every 2 GiB of a new volume when it is made, so to 5,000 places of 10 TiB.
const RUNS_BYTES_MAX: u64 = 256 << 10;
/// The same beside a layout's table, which may take three quarters of a label.
const RUNS_BYTES_MAX_BESIDE_TABLE: u64 = 4 << 10;

/// Neighbouring groups that are being made blank.
#[derive(Clone, Debug)]
struct Region {
    groups: Range<u64>,
    /// Groups that are not blank yet.
    left: BTreeSet<u64>,
    fault: Option<Fault>,
}

/// Groups that are being made blank, or wait for that.
#[derive(Clone, Debug, Default)]
pub(super) struct Initialization {
    regions: Vec<Region>,
    waiting: VecDeque<u64>,
    in_flight: BTreeSet<u64>,
    /// Regions that are blank. Labels record them together, when no group is in flight.
    blank: Vec<Range<u64>>,
    /// Where the last region ended.
    end: u64,
    /// Groups that it was to have.
    count: u64,
}

impl Initialization {
    pub(super) fn is_idle(&self) -> bool {
        self.regions.is_empty() && self.blank.is_empty()
    }

    /// The groups of each region that labels do not record yet.
    fn unrecorded(&self) -> impl Iterator<Item = &Range<u64>> {
        let under_way = self.regions.iter().map(|region| &region.groups);
        under_way.chain(&self.blank)
    }

    fn has(&self, group: u64) -> bool {
        self.unrecorded().any(|groups| groups.contains(&group))
    }

    /// Groups of the region that begins at `start`.
    fn grow(&mut self, start: u64) -> u64 {
        self.count = match start == self.end {
            true => (self.count * 2).clamp(1, REGION_MAX),
            false => 1,
        };
        self.count
    }

    /// A group is blank, or could not be made so. Returns its region, if this was the last group of the region.
    fn ended(&mut self, group: u64, outcome: Outcome) -> Option<Region> {
        self.in_flight.remove(&group);
        let mut regions = self.regions.iter_mut();
        let index = regions.position(|region| region.left.remove(&group))?;
        let region = &mut self.regions[index];
        region.fault = region.fault.or(outcome.err());
        region.left.is_empty().then(|| self.regions.remove(index))
    }
}

/// The most bytes that a run takes in a label, with its brackets and commas.
fn run_bytes(groups: u64) -> u64 {
    let digits = u64::from(groups.max(1).ilog10()) + 1;
    2 * digits + 4
}

/// `groups` and, if they lie in the middle of `run`, the shorter one of the runs that would be left on either side:
/// labels have no room for both.
fn without_split(groups: Range<u64>, run: &Range<u64>) -> Range<u64> {
    let (before, after) = (groups.start - run.start, run.end - groups.end);
    match before <= after {
        true => run.start..groups.end,
        false => groups.start..run.end,
    }
}

impl Pool {
    /// A lane reports that groups that were never written are to be written, or soon will be.
    pub(super) fn wants_initialized(&mut self, group: u64) {
        let Some(start) = self.next_uninitialized(group) else {
            return;
        };
        if self.initialization.has(start) {
            return;
        }
        let run = runs::run_of(&self.cx.facts.uninitialized, start).expect("it is in one");
        let count = self.initialization.grow(start);
        let mut groups = start..run.end.min(start + count);
        let bytes_max = match self.cx.facts.layout_table {
            Some(_) => RUNS_BYTES_MAX_BESIDE_TABLE,
            None => RUNS_BYTES_MAX,
        };
        let runs = self.cx.facts.uninitialized.len() as u64;
        if runs * run_bytes(self.cx.geometry.groups()) >= bytes_max {
            groups = without_split(groups, &run);
        }
        for other in self.initialization.unrecorded() {
            if other.end <= start {
                groups.start = groups.start.max(other.end);
            } else {
                groups.end = groups.end.min(other.start);
            }
        }
        self.initialization.end = groups.end;
        self.initialization.waiting.extend(groups.clone());
        self.initialization.regions.push(Region {
            left: groups.clone().collect(),
            groups,
            fault: None,
        });
    }

    /// The group itself if it was never written, otherwise the next one of its volume that was never written.
    fn next_uninitialized(&self, group: u64) -> Option<u64> {
        let uninitialized = &self.cx.facts.uninitialized;
        if runs::run_of(uninitialized, group).is_some() {
            return Some(group);
        }
        let index = uninitialized.partition_point(|&(first, _)| first <= group);
        let &(next, _) = uninitialized.get(index)?;
        let volume = |group| owner(&self.cx.facts.volumes, group).map(|volume| volume.uuid);
        (volume(group)? == volume(next)?).then_some(next)
    }

    /// Starts waiting groups. Not while labels are being written: they may bring in a drive that the lanes do not use
    /// yet, and its pages would be left out.
    pub(super) fn pump_initialization(&mut self) {
        if self.cx.labels.is_refused() {
            self.refuse_regions();
        }
        // Each label costs a flush of every drive. While writes go on all over a volume there is always one more group:
        // groups that come now follow when labels have recorded those before.
        if !self.cx.labels.is_settled() || !self.initialization.blank.is_empty() {
            return self.record_blank();
        }
        for group in std::mem::take(&mut self.initialization.waiting) {
            let room = self.initialization.in_flight.len() < IN_FLIGHT_MAX;
            if room && self.can_be_made_blank(group) {
                self.initialization.in_flight.insert(group);
                self.cx.tell_lane(group, Command::Zero { group });
            } else {
                self.initialization.waiting.push_back(group);
            }
        }
    }

    /// Whether a group can be made blank now. Not while lanes still fill or scrub it, for a volume that had the group
    /// before: they use its old pages. And not before its columns are at home, if their home drives are complete: if the
    /// drive with a spare cell left, the pool would take the column for one that is at home, where it was not written.
    pub(super) fn can_be_made_blank(&mut self, group: u64) -> bool {
        if self.is_in_use(group) {
            // While moves are paused no fill, no scrub and no conversion takes a step, and writes must not wait for as
            // long as that.
            if self.cx.facts.steer.paused {
                self.fills.abandon_in(&mut self.cx, group);
                self.scrub.let_go(&mut self.cx, group);
                self.let_conversion_go(group);
            }
            return false;
        }
        seeded::is(SeededFault::BlankInSpareSpace) || self.fills.bring_home(&mut self.cx, group)
    }

    fn is_in_use(&self, group: u64) -> bool {
        self.fills.is_filling(group)
            || self.scrub.is_scrubbing(group)
            || self.elastic.is_converting(group)
    }

    /// Drives refuse labels, so no label can record blank groups: the waiting writes fail, like writes to other groups.
    fn refuse_regions(&mut self) {
        let initialization = &mut self.initialization;
        let in_flight = &initialization.in_flight;
        let waits = |region: &mut Region| {
            let whole = region
                .groups
                .clone()
                .all(|group| region.left.contains(&group));
            whole && in_flight.is_disjoint(&region.left)
        };
        let refused: Vec<Region> = initialization.regions.extract_if(.., waits).collect();
        for Region { groups, .. } in refused {
            self.initialization
                .waiting
                .retain(|group| !groups.contains(group));
            self.tell_initialized(&groups, Err(Fault::Full));
        }
    }

    /// Fails if too few drives have the blank pages of a group. Drives that went out meanwhile were left out, however
    /// many: if they return, neither their pages nor their blocks are those of a blank group.
    fn is_kept_blank(&self, group: u64) -> Outcome {
        match self.cx.is_lost(group, &mut SubStripePlans::default()) {
            true => Err(Fault::Lost),
            false => Ok(()),
        }
    }

    /// A group that is not part of a new volume has been made blank.
    pub(super) fn made_blank(&mut self, group: u64, outcome: Outcome) {
        let outcome = outcome.and_then(|()| self.is_kept_blank(group));
        let Some(region) = self.initialization.ended(group, outcome) else {
            return;
        };
        if let Some(fault) = region.fault {
            self.tell_initialized(&region.groups, Err(fault));
            return;
        }
        self.initialization.blank.push(region.groups);
        self.record_blank();
    }

    /// Records the regions that are blank, if no group is in flight.
    fn record_blank(&mut self) {
        if !self.initialization.in_flight.is_empty() || self.initialization.blank.is_empty() {
            return;
        }
        let regions = std::mem::take(&mut self.initialization.blank);
        for groups in &regions {
            runs::remove(&mut self.cx.facts.uninitialized, groups);
        }
        self.cx.groups_changed();
        let whole = |state| matches!(state, SeatState::Current | SeatState::Waiting);
        if !self.cx.facts.seats.iter().all(|seat| whole(seat.state))
            || self.is_replacing()
            || self.leaving().is_some()
        {
            // Columns of drives that are out have to be filled from now on, and those of one that leaves have to move.
            self.requeue_fills();
        }
        self.cx
            .commit(regions.into_iter().map(OnDurable::Initialized).collect());
    }

    /// Lanes continue with the writes that wait for these groups, or fail them.
    pub(super) fn tell_initialized(&mut self, groups: &Range<u64>, outcome: Outcome) {
        let groups = groups.clone();
        self.cx
            .tell_lanes(&Command::Initialized { groups, outcome });
    }

    /// A volume gets space. The lanes get this before the labels do, so before anything can use the space. If the
    /// labels never get it, the space is never used.
    pub(super) fn leave_uninitialized(&mut self, extents: &[(u64, u64)]) {
        for &(first, count) in extents {
            runs::insert(&mut self.cx.facts.uninitialized, &(first..first + count));
        }
        self.cx.groups_changed();
        self.cx
            .tell_lanes(&Command::Uninitialized(extents.to_vec()));
    }

    /// Groups have been taken from volumes.
    pub(super) fn forget_uninitialized(&mut self) {
        for (first, count) in self.free_runs() {
            runs::remove(&mut self.cx.facts.uninitialized, &(first..first + count));
        }
        self.cx.groups_changed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_takes_no_more_bytes_than_are_counted_for_it() {
        for groups in [1, 9, 10, 1000, 165_140] {
            let run = serde_json::to_string(&(groups - 1, groups)).unwrap();
            assert!(run.len() < run_bytes(groups).try_into().unwrap(), "{run}");
        }
    }

    #[test]
    fn a_region_that_would_split_a_run_has_the_shorter_side() {
        let run = 100..200;
        assert_eq!(without_split(100..104, &run), 100..104);
        assert_eq!(without_split(196..200, &run), 196..200);
        assert_eq!(without_split(100..200, &run), run);
        assert_eq!(without_split(110..112, &run), 100..112);
        assert_eq!(without_split(150..152, &run), 150..200);
    }
}
