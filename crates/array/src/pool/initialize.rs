//! Groups of new volumes are made blank when they are first written: creating a volume writes labels only.
//!
//! ```text
//!   create: never written ── first write, the lane waits ─► blank pages on the drives, flushed ─► labels ─► lane
//! ```
//!
//! A *region* of neighbouring groups is made blank at a time, for a flush and a label cost the same for all of it. When
//! the first group of a region is written, the next region is begun, twice as long: a stream waits once. What is in a
//! region is forgotten as "never written" only by a label that is durable, and only then is written to. A stop before
//! that leaves it never written, and whatever had been made blank is made blank again.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use block::{Fault, Outcome};

use super::loss::owner;
use super::{OnDurable, Pool, SeatState};
use crate::action::Command;
use crate::runs;

/// Groups of a region at most: with cells of 16 MiB a gibibyte of data and more, for a flush and a label.
const REGION_MAX: u64 = 16;
/// Groups that are made blank at a time.
const IN_FLIGHT_MAX: usize = 16;
/// Runs of groups that labels name at most.
const RUNS_MAX: usize = 256;

/// Neighbouring groups that are being made blank.
#[derive(Clone, Debug)]
struct Region {
    groups: Range<u64>,
    /// Those that are not yet.
    left: BTreeSet<u64>,
    fault: Option<Fault>,
}

/// What is being made blank.
#[derive(Clone, Debug, Default)]
pub(super) struct Initialization {
    regions: Vec<Region>,
    waiting: VecDeque<u64>,
    in_flight: BTreeSet<u64>,
    /// Where the last region ended.
    end: u64,
    /// Groups that it should have had.
    count: u64,
}

impl Initialization {
    pub(super) fn is_idle(&self) -> bool {
        self.regions.is_empty()
    }

    fn has(&self, group: u64) -> bool {
        self.regions
            .iter()
            .any(|region| region.groups.contains(&group))
    }

    /// Groups of the region that begins at `start`.
    fn grow(&mut self, start: u64) -> u64 {
        self.count = match start == self.end {
            true => (self.count * 2).clamp(1, REGION_MAX),
            false => 1,
        };
        self.count
    }

    /// A group is blank, or cannot be. The region that ends with it.
    fn ended(&mut self, group: u64, outcome: Outcome) -> Option<Region> {
        self.in_flight.remove(&group);
        let mut regions = self.regions.iter_mut();
        let index = regions.position(|region| region.left.remove(&group))?;
        let region = &mut self.regions[index];
        region.fault = region.fault.or(outcome.err());
        region.left.is_empty().then(|| self.regions.remove(index))
    }
}

impl Pool {
    /// Groups that were never written are to be, or soon will be.
    pub(super) fn wants_initialized(&mut self, group: u64) {
        let Some(start) = self.next_uninitialized(group) else {
            return;
        };
        if self.initialization.has(start) {
            return;
        }
        let run = runs::run_of(&self.facts.uninitialized, start).expect("it is in one");
        let count = self.initialization.grow(start);
        let mut groups = start..run.end.min(start + count);
        if self.facts.uninitialized.len() >= RUNS_MAX && groups.end < run.end {
            // It would leave a run on either side, and labels name so many.
            groups.start = run.start;
        }
        let under_way = self.initialization.regions.iter();
        let others = under_way.map(|region| &region.groups);
        for other in others {
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

    /// The group itself, or where it has content the next one of its volume that was never written.
    fn next_uninitialized(&self, group: u64) -> Option<u64> {
        let uninitialized = &self.facts.uninitialized;
        if runs::run_of(uninitialized, group).is_some() {
            return Some(group);
        }
        let index = uninitialized.partition_point(|&(first, _)| first <= group);
        let &(next, _) = uninitialized.get(index)?;
        let volume = |group| owner(&self.facts.volumes, group).map(|volume| volume.uuid);
        (volume(group)? == volume(next)?).then_some(next)
    }

    /// Begins with groups that wait. Not while labels are being written: a drive may count from then on of which the
    /// lanes have not heard, and its pages would be left out.
    pub(super) fn pump_initialization(&mut self) {
        if self.labels.is_refused() {
            self.refuse_regions();
        }
        if !self.labels.is_settled() {
            return;
        }
        for group in std::mem::take(&mut self.initialization.waiting) {
            let room = self.initialization.in_flight.len() < IN_FLIGHT_MAX;
            if room && !self.is_in_use(group) {
                self.initialization.in_flight.insert(group);
                self.tell_lane(group, Command::Zero { group });
            } else {
                self.initialization.waiting.push_back(group);
            }
        }
    }

    /// Whether lanes still fill or scrub a group, for a volume that had it before: they go by its old pages. It is not made
    /// blank meanwhile.
    pub(super) fn is_in_use(&self, group: u64) -> bool {
        self.fills.is_filling(group) || self.scrub.is_scrubbing(group)
    }

    /// Drives have no room for a label that says what is blank: writes are refused, as those to other groups are.
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

    /// A group that nobody makes a volume of has been made blank.
    pub(super) fn made_blank(&mut self, group: u64, outcome: Outcome) {
        let Some(region) = self.initialization.ended(group, outcome) else {
            return;
        };
        if let Some(fault) = region.fault {
            self.tell_initialized(&region.groups, Err(fault));
            return;
        }
        runs::remove(&mut self.facts.uninitialized, &region.groups);
        let whole = |state| matches!(state, SeatState::Current | SeatState::Waiting);
        // A stop between the record of a fill and the label leaves a group that was never written with a column on spare
        // space, while its home may be there.
        let columns = self.geometry.layout().columns();
        let mut groups = region.groups.clone();
        let away = groups.any(|group| (0..columns).any(|column| self.is_away(group, column)));
        if away || !self.facts.seats.iter().all(|seat| whole(seat.state)) || self.is_replacing() {
            // Columns of drives that are not there have to be filled from now on.
            self.requeue_fills();
        }
        self.commit(vec![OnDurable::Initialized(region.groups)]);
    }

    /// Lanes go on with what waits for these groups.
    pub(super) fn tell_initialized(&mut self, groups: &Range<u64>, outcome: Outcome) {
        let groups = groups.clone();
        self.tell_lanes(&Command::Initialized { groups, outcome });
    }

    /// Space that a volume gets. The lanes hear of it before the labels do, so before anybody can use it; nobody uses it
    /// if the labels never do.
    pub(super) fn leave_uninitialized(&mut self, extents: &[(u64, u64)]) {
        for &(first, count) in extents {
            runs::insert(&mut self.facts.uninitialized, &(first..first + count));
        }
        self.tell_lanes(&Command::Uninitialized(extents.to_vec()));
    }

    /// Groups have been taken from volumes.
    pub(super) fn forget_uninitialized(&mut self) {
        for (first, count) in self.free_runs() {
            runs::remove(&mut self.facts.uninitialized, &(first..first + count));
        }
    }
}
