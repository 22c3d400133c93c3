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
use format::runs::{self, Runs};
use plan::action::Command;

use super::context::Context;
use super::freed::remove_all;
use super::loss::owner;
use super::volumes::{Changed, Output, can_be_made_blank};
use super::{OnDurable, SeatState};

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

    /// As [`Volumes::wants_initialized`](super::volumes::Volumes::wants_initialized).
    pub(super) fn wanted(&mut self, cx: &Context, group: u64) {
        let Some(start) = next_uninitialized(cx, group) else {
            return;
        };
        if self.has(start) {
            return;
        }
        let run = runs::run_of(&cx.facts.uninitialized, start).expect("it is in one");
        let count = self.grow(start);
        let mut groups = start..run.end.min(start + count);
        let bytes_max = match cx.facts.layout_table {
            Some(_) => RUNS_BYTES_MAX_BESIDE_TABLE,
            None => RUNS_BYTES_MAX,
        };
        let runs = cx.facts.uninitialized.len() as u64;
        if runs * run_bytes(cx.geometry.groups()) >= bytes_max {
            groups = without_split(groups, &run);
        }
        for other in self.unrecorded() {
            if other.end <= start {
                groups.start = groups.start.max(other.end);
            } else {
                groups.end = groups.end.min(other.start);
            }
        }
        self.end = groups.end;
        self.waiting.extend(groups.clone());
        self.regions.push(Region {
            left: groups.clone().collect(),
            groups,
            fault: None,
        });
    }

    /// Starts waiting groups, or records those that are blank.
    pub(super) fn pump(
        &mut self,
        cx: &mut Context,
        is_in_use: impl Fn(u64) -> bool,
        replacing: bool,
        outputs: &mut Vec<Output>,
    ) {
        if cx.labels.is_refused() {
            self.refuse_regions(cx);
        }
        // Each label costs a flush of every drive. While writes go on all over a volume there is always one more group:
        // groups that come now follow when labels have recorded those before.
        if !cx.labels.is_settled() || !self.blank.is_empty() {
            outputs.extend(self.record_blank(cx, replacing).map(Output::Changed));
            return;
        }
        for group in std::mem::take(&mut self.waiting) {
            let room = self.in_flight.len() < IN_FLIGHT_MAX;
            if room && can_be_made_blank(cx, group, is_in_use(group), outputs) {
                self.in_flight.insert(group);
                outputs.push(Output::Zero(group));
            } else {
                self.waiting.push_back(group);
            }
        }
    }

    /// Drives refuse labels, so no label can record blank groups: the waiting writes fail, like writes to other groups.
    fn refuse_regions(&mut self, cx: &mut Context) {
        let in_flight = &self.in_flight;
        let waits = |region: &mut Region| {
            let mut groups = region.groups.clone();
            let whole = groups.all(|group| region.left.contains(&group));
            whole && in_flight.is_disjoint(&region.left)
        };
        let refused: Vec<Region> = self.regions.extract_if(.., waits).collect();
        for Region { groups, .. } in refused {
            self.waiting.retain(|group| !groups.contains(group));
            cx.tell_initialized(&groups, Err(Fault::Full));
        }
    }

    /// A group is blank, or could not be made so.
    pub(super) fn ended(
        &mut self,
        cx: &mut Context,
        group: u64,
        outcome: Outcome,
        replacing: bool,
    ) -> Option<Changed> {
        let region = self.ended_region(group, outcome)?;
        if let Some(fault) = region.fault {
            cx.tell_initialized(&region.groups, Err(fault));
            return None;
        }
        self.blank.push(region.groups);
        self.record_blank(cx, replacing)
    }

    /// A group has ended. Returns its region, if this was the last group of the region.
    fn ended_region(&mut self, group: u64, outcome: Outcome) -> Option<Region> {
        self.in_flight.remove(&group);
        let mut regions = self.regions.iter_mut();
        let index = regions.position(|region| region.left.remove(&group))?;
        let region = &mut self.regions[index];
        region.fault = region.fault.or(outcome.err());
        region.left.is_empty().then(|| self.regions.remove(index))
    }

    /// Records the regions that are blank, if no group is in flight.
    fn record_blank(&mut self, cx: &mut Context, replacing: bool) -> Option<Changed> {
        if !self.in_flight.is_empty() || self.blank.is_empty() {
            return None;
        }
        let regions = std::mem::take(&mut self.blank);
        for groups in &regions {
            runs::remove(&mut cx.facts.uninitialized, groups);
        }
        cx.groups_changed();
        let whole = |state| matches!(state, SeatState::Current | SeatState::Waiting);
        Some(Changed {
            freed: None,
            // Columns of drives that are out have to be filled from now on, and those of one that leaves have to move.
            refill: !cx.facts.seats.iter().all(|seat| whole(seat.state))
                || replacing
                || cx.facts.leaves.is_some(),
            effects: regions.into_iter().map(OnDurable::Initialized).collect(),
        })
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

/// The group itself if it was never written, otherwise the next one of its volume that was never written.
fn next_uninitialized(cx: &Context, group: u64) -> Option<u64> {
    let uninitialized = &cx.facts.uninitialized;
    if runs::run_of(uninitialized, group).is_some() {
        return Some(group);
    }
    let index = uninitialized.partition_point(|&(first, _)| first <= group);
    let &(next, _) = uninitialized.get(index)?;
    let volume = |group| owner(&cx.facts.volumes, group).map(|volume| volume.uuid);
    (volume(group)? == volume(next)?).then_some(next)
}

impl Context {
    /// Lanes continue with the writes that wait for these groups, or fail them.
    pub(super) fn tell_initialized(&mut self, groups: &Range<u64>, outcome: Outcome) {
        let groups = groups.clone();
        self.tell_lanes(&Command::Initialized { groups, outcome });
    }

    /// A volume gets space. The lanes get this before the labels do, so before anything can use the space. If the
    /// labels never get it, the space is never used.
    pub(super) fn leave_uninitialized(&mut self, extents: &Runs) {
        for &(first, count) in extents {
            runs::insert(&mut self.facts.uninitialized, &(first..first + count));
        }
        self.groups_changed();
        self.tell_lanes(&Command::Uninitialized(extents.clone()));
    }

    /// Groups have been taken from volumes; `free` are those that no volume has.
    pub(super) fn forget_uninitialized(&mut self, free: &Runs) {
        remove_all(&mut self.facts.uninitialized, free);
        self.groups_changed();
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
