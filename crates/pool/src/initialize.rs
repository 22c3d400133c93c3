//! Groups of new volumes are made blank when they are first written: creating a volume writes labels only.
//!
//! ```text
//!   create: never written ── first write, the lane waits ─► blank pages on the drives, flushed ─► labels ─► lane
//! ```
//!
//! ```text
//! never written ── wanted ──► waiting
//! waiting ── begun ──► zeroing
//! waiting ── refused ──► never written
//! zeroing ── zeroed ──► blank
//! zeroing ── failed ──► never written
//! blank ── others ended ──► written
//! ```
//!
//! Waiting: a fill, a scrub or a conversion of the group is let go first, and columns of it are brought home. Zeroing: its
//! lane writes blank pages. Blank: no other group is in flight when the facts record it as written. The regions of drives
//! that refuse labels are refused: no label can record them.
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
use format::GroupId;
use format::runs::{self, Runs};
use format::seeded::{self, SeededFault};
use plan::action::Command;

use super::context::Context;
use super::freed::remove_all;
use super::loss::owner;
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

/// What `Pool` does for groups that are to be made blank, in the order of the outputs.
#[derive(Clone, Debug)]
pub(super) enum Output {
    /// A lane makes the group blank.
    Zero(GroupId),
    /// A fill, a scrub or a conversion has the group, and lets it go: moves are paused, and writes must not wait for as
    /// long as that.
    LetGo(GroupId),
    /// Columns of the group were left behind in spare space: they are recorded at home first.
    BringHome(GroupId),
    Changed(Changed),
}

/// The facts say something else about volumes. `Pool` carries out what follows, and then commits the facts.
#[derive(Clone, Debug)]
#[must_use]
pub(super) struct Changed {
    /// Groups that a volume has given up, of those that were ever written; `None` if volumes only get groups.
    pub(super) freed: Option<Runs>,
    /// Columns have to be filled from now on, or need not be any more.
    pub(super) refill: bool,
    /// Carried out when the facts are durable.
    pub(super) effects: Vec<OnDurable>,
}

/// Neighbouring groups that are being made blank.
#[derive(Clone, Debug)]
struct Region {
    groups: Range<GroupId>,
    /// Groups that are not blank yet.
    left: BTreeSet<GroupId>,
    fault: Option<Fault>,
}

/// Groups that are being made blank, or wait for that.
#[derive(Clone, Debug, Default)]
pub(super) struct Initialization {
    regions: Vec<Region>,
    waiting: VecDeque<GroupId>,
    in_flight: BTreeSet<GroupId>,
    /// Regions that are blank. Labels record them together, when no group is in flight.
    blank: Vec<Range<GroupId>>,
    /// Where the last region ended.
    end: GroupId,
    /// Groups that it was to have.
    count: u64,
}

impl Initialization {
    pub(super) fn is_idle(&self) -> bool {
        self.regions.is_empty() && self.blank.is_empty()
    }

    /// The groups of each region that labels do not record yet.
    fn unrecorded(&self) -> impl Iterator<Item = &Range<GroupId>> {
        let under_way = self.regions.iter().map(|region| &region.groups);
        under_way.chain(&self.blank)
    }

    fn has(&self, group: GroupId) -> bool {
        self.unrecorded().any(|groups| groups.contains(&group))
    }

    /// Groups of the region that begins at `start`.
    fn grow(&mut self, start: GroupId) -> u64 {
        self.count = match start == self.end {
            true => (self.count * 2).clamp(1, REGION_MAX),
            false => 1,
        };
        self.count
    }

    /// A lane reports that groups that were never written are to be written, or soon will be.
    pub(super) fn wanted(&mut self, cx: &Context, group: GroupId) {
        let Some(start) = next_uninitialized(cx, group) else {
            return;
        };
        if self.has(start) {
            return;
        }
        let run = runs::run_of(&cx.facts.uninitialized, start.0).expect("it is in one");
        let run = GroupId::range(run);
        let count = self.grow(start);
        let mut groups = start..run.end.min(start.plus(count));
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
        self.waiting.extend(GroupId::each(groups.clone()));
        self.regions.push(Region {
            left: GroupId::each(groups.clone()).collect(),
            groups,
            fault: None,
        });
    }

    /// Starts waiting groups, or records those that are blank.
    pub(super) fn pump(
        &mut self,
        cx: &mut Context,
        is_in_use: impl Fn(GroupId) -> bool,
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
            let mut groups = GroupId::each(region.groups.clone());
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
        group: GroupId,
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
    fn ended_region(&mut self, group: GroupId, outcome: Outcome) -> Option<Region> {
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
            runs::remove(&mut cx.facts.uninitialized, &GroupId::numbers(groups));
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

/// Whether a group can be made blank now. Not while lanes still fill or scrub it, for a volume that had the group
/// before: they use its old pages. And not before its columns are at home, if their home drives are complete: if the
/// drive with a spare cell left, the pool would take the column for one that is at home, where it was not written.
pub(super) fn can_be_made_blank(
    cx: &Context,
    group: GroupId,
    is_in_use: bool,
    outputs: &mut Vec<Output>,
) -> bool {
    if is_in_use {
        // While moves are paused no fill, no scrub and no conversion takes a step.
        outputs.extend(cx.facts.steer.paused.then_some(Output::LetGo(group)));
        return false;
    }
    let mut columns = cx.placement.columns();
    let is_away = columns.any(|column| cx.placement.is_left_behind((group, column)));
    if is_away && !seeded::is(SeededFault::BlankInSpareSpace) {
        outputs.push(Output::BringHome(group));
        return false;
    }
    true
}

/// The most bytes that a run takes in a label, with its brackets and commas.
fn run_bytes(groups: u64) -> u64 {
    let digits = u64::from(groups.max(1).ilog10()) + 1;
    2 * digits + 4
}

/// `groups` and, if they lie in the middle of `run`, the shorter one of the runs that would be left on either side:
/// labels have no room for both.
fn without_split(groups: Range<GroupId>, run: &Range<GroupId>) -> Range<GroupId> {
    let before = GroupId::count(&(run.start..groups.start));
    let after = GroupId::count(&(groups.end..run.end));
    match before <= after {
        true => run.start..groups.end,
        false => groups.start..run.end,
    }
}

/// The group itself if it was never written, otherwise the next one of its volume that was never written.
fn next_uninitialized(cx: &Context, group: GroupId) -> Option<GroupId> {
    let uninitialized = &cx.facts.uninitialized;
    if runs::run_of(uninitialized, group.0).is_some() {
        return Some(group);
    }
    let index = uninitialized.partition_point(|&(first, _)| first <= group.0);
    let next = GroupId(uninitialized.get(index)?.0);
    let volume = |group| owner(&cx.facts.volumes, group).map(|volume| volume.uuid);
    (volume(group)? == volume(next)?).then_some(next)
}

impl Context {
    /// Lanes continue with the writes that wait for these groups, or fail them.
    pub(super) fn tell_initialized(&mut self, groups: &Range<GroupId>, outcome: Outcome) {
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
    use crate::fixture;
    use testing::walk::Changes;

    #[test]
    fn a_run_takes_no_more_bytes_than_are_counted_for_it() {
        for groups in [1, 9, 10, 1000, 165_140] {
            let run = serde_json::to_string(&(groups - 1, groups)).unwrap();
            assert!(run.len() < run_bytes(groups).try_into().unwrap(), "{run}");
        }
    }

    #[test]
    fn a_region_that_would_split_a_run_has_the_shorter_side() {
        let run = GroupId::range(100..200);
        assert_eq!(
            without_split(GroupId::range(100..104), &run),
            GroupId::range(100..104)
        );
        assert_eq!(
            without_split(GroupId::range(196..200), &run),
            GroupId::range(196..200)
        );
        assert_eq!(without_split(GroupId::range(100..200), &run), run);
        assert_eq!(
            without_split(GroupId::range(110..112), &run),
            GroupId::range(100..112)
        );
        assert_eq!(
            without_split(GroupId::range(150..152), &run),
            GroupId::range(150..200)
        );
    }

    /// Groups that were never written: 0 to 3 and 8 to 39 of one volume, 44 and 45 of another.
    #[derive(Clone)]
    struct Lab {
        cx: Context,
        initialization: Initialization,
    }

    impl Lab {
        fn new() -> Self {
            let mut cx = fixture::context("raid6", 6, 0);
            let volumes = [("v", vec![(0, 40)]), ("w", vec![(44, 2)])];
            let volumes = volumes.map(|(name, extents)| fixture::volume(name, extents, &cx));
            cx.facts.volumes = volumes.into();
            cx.facts.volumes[1].uuid = uuid::Uuid::from_u128(70);
            cx.facts.uninitialized = vec![(0, 4), (8, 32), (44, 2)];
            cx.groups_changed();
            Self {
                cx,
                initialization: Initialization::default(),
            }
        }

        /// A lane wants a group; returns the groups that the lanes make blank now.
        fn wants(&mut self, group: GroupId) -> Vec<GroupId> {
            self.initialization.wanted(&self.cx, group);
            self.pump()
        }

        fn pump(&mut self) -> Vec<GroupId> {
            let (mut outputs, cx) = (Vec::new(), &mut self.cx);
            self.initialization.pump(cx, |_| false, false, &mut outputs);
            let zeros = outputs.into_iter().map(|output| match output {
                Output::Zero(group) => group,
                other => panic!("{other:?}"),
            });
            zeros.collect()
        }

        fn ended(&mut self, group: GroupId, outcome: Outcome) -> Option<Changed> {
            self.initialization
                .ended(&mut self.cx, group, outcome, false)
        }

        /// The answers about regions that lanes get.
        fn sent(&mut self) -> Vec<(Range<GroupId>, Outcome)> {
            let commands = fixture::commands(&mut self.cx);
            let commands = commands.into_iter().filter(|&(lane, _)| lane == 0);
            let sent = commands.map(|(_, command)| match command {
                Command::Initialized { groups, outcome } => (groups, outcome),
                other => panic!("{other:?}"),
            });
            sent.collect()
        }

        /// Where a group is by the drawing at the head of the file.
        fn state(&self, group: GroupId) -> &'static str {
            let of = &self.initialization;
            match group {
                group if of.waiting.contains(&group) => "waiting",
                group if of.in_flight.contains(&group) => "zeroing",
                group if of.blank.iter().any(|groups| groups.contains(&group)) => "blank",
                group if self.cx.placement.groups().has(group) => "written",
                _ => "never written",
            }
        }
    }

    /// The regions that labels are to record: first group and end.
    fn recorded(changed: Option<Changed>) -> Vec<(u64, u64)> {
        let effects = changed.map_or(Vec::new(), |changed| changed.effects);
        let groups = effects.into_iter().map(|effect| match effect {
            OnDurable::Initialized(groups) => (groups.start.0, groups.end.0),
            other => panic!("{other:?}"),
        });
        groups.collect()
    }

    #[test]
    fn the_states_of_a_group_are_those_of_the_drawing() {
        // A group of another region is in flight at first.
        const OTHER: GroupId = GroupId(20);
        type Event = (&'static str, fn(&mut Lab));
        let events: [Event; 6] = [
            ("wanted", |lab| {
                lab.initialization.wanted(&lab.cx, GroupId(0));
            }),
            ("begun", |lab| _ = lab.pump()),
            ("zeroed", |lab| _ = lab.ended(GroupId(0), Ok(()))),
            ("failed", |lab| _ = lab.ended(GroupId(0), Err(Fault::Lost))),
            ("others ended", |lab| _ = lab.ended(OTHER, Ok(()))),
            ("refused", |lab| {
                lab.initialization.refuse_regions(&mut lab.cx);
            }),
        ];
        let mut first = Lab::new();
        assert_eq!(first.wants(OTHER), [OTHER]);
        let mut known = vec![("never written", first)];
        let mut drawn = Changes::default();
        let mut at = 0;
        while let Some((from, lab)) = known.get(at).cloned() {
            at += 1;
            for (event, happens) in events {
                // Lanes report only what they were to do.
                if ["zeroed", "failed"].contains(&event) && from != "zeroing" {
                    continue;
                }
                let mut after = lab.clone();
                happens(&mut after);
                let to = after.state(GroupId(0));
                drawn.note(from, event, to);
                if known.iter().all(|&(name, _)| name != to) {
                    known.push((to, after));
                }
            }
        }
        drawn.assert_drawn_in(include_str!("initialize.rs"));
    }

    #[test]
    fn a_group_loses_its_mark_when_it_is_blank() {
        let mut lab = Lab::new();
        assert_eq!(lab.wants(GroupId(2)), [GroupId(2)]);
        assert_eq!(lab.cx.facts.uninitialized[0], (0, 4));
        let changed = lab.ended(GroupId(2), Ok(()));
        assert!(changed.as_ref().is_some_and(|changed| !changed.refill));
        assert_eq!(recorded(changed), [(2, 3)]);
        assert_eq!(
            lab.cx.facts.uninitialized,
            [(0, 2), (3, 1), (8, 32), (44, 2)]
        );
        assert!(lab.initialization.is_idle() && lab.sent().is_empty());
    }

    #[test]
    fn the_regions_of_a_stream_are_twice_as_long_each_time() {
        let mut lab = Lab::new();
        let mut lengths = Vec::new();
        let mut next = GroupId(8);
        while next < GroupId(40) {
            let groups = lab.wants(next);
            lengths.push(groups.len());
            next = groups.last().unwrap().next();
            for group in groups {
                lab.ended(group, Ok(()));
            }
        }
        assert_eq!(lengths, [1, 2, 4, 8, 16, 1]);
    }

    #[test]
    fn a_write_elsewhere_makes_one_group_blank() {
        let mut lab = Lab::new();
        for group in [8, 9, 10].map(GroupId) {
            lab.wants(group);
        }
        assert_eq!(lab.initialization.count, 2, "10 is in the second region");
        assert_eq!(lab.wants(GroupId(30)), [GroupId(30)]);
    }

    #[test]
    fn behind_a_group_with_content_the_next_one_of_the_same_volume_is_made_blank() {
        let mut lab = Lab::new();
        assert_eq!(lab.wants(GroupId(5)), [GroupId(8)]);
        lab.cx.facts.uninitialized = vec![(44, 2)];
        assert!(
            lab.wants(GroupId(39)).is_empty(),
            "group 44 is another volume's"
        );
        assert_eq!(lab.wants(GroupId(44)), [GroupId(44)]);
    }

    #[test]
    fn a_group_is_made_blank_once_however_often_it_is_wanted() {
        let mut lab = Lab::new();
        assert_eq!(lab.wants(GroupId(8)), [GroupId(8)]);
        assert!(lab.wants(GroupId(8)).is_empty());
        lab.ended(GroupId(8), Ok(()));
        assert_eq!(
            lab.wants(GroupId(8)),
            [GroupId(9), GroupId(10)],
            "the next ones of the volume"
        );
    }

    #[test]
    fn regions_that_are_under_way_together_are_recorded_together() {
        let mut lab = Lab::new();
        assert_eq!(
            (lab.wants(GroupId(0)), lab.wants(GroupId(20))),
            (vec![GroupId(0)], vec![GroupId(20)])
        );
        assert!(lab.ended(GroupId(0), Ok(())).is_none());
        assert_eq!(recorded(lab.ended(GroupId(20), Ok(()))), [(0, 1), (20, 21)]);
    }

    #[test]
    fn groups_that_come_while_others_are_blank_wait_until_labels_have_recorded_those() {
        let mut lab = Lab::new();
        lab.wants(GroupId(0));
        lab.wants(GroupId(20));
        lab.ended(GroupId(0), Ok(()));
        assert!(lab.wants(GroupId(30)).is_empty());
        let changed = lab
            .ended(GroupId(20), Ok(()))
            .expect("nothing is in flight");
        lab.cx.commit(changed.effects);
        assert!(lab.pump().is_empty(), "labels are being written");
        assert_eq!(fixture::durable(&mut lab.cx).len(), 2);
        assert_eq!(lab.pump(), [GroupId(30)]);
    }

    #[test]
    fn a_fault_fails_the_writes_to_the_whole_region_and_its_groups_keep_the_mark() {
        let mut lab = Lab::new();
        lab.wants(GroupId(8));
        lab.ended(GroupId(8), Ok(()));
        assert_eq!(lab.wants(GroupId(9)), [GroupId(9), GroupId(10)]);
        assert!(lab.ended(GroupId(9), Err(Fault::Lost)).is_none());
        assert!(lab.sent().is_empty());
        assert!(lab.ended(GroupId(10), Ok(())).is_none());
        assert_eq!(lab.sent(), [(GroupId::range(9..11), Err(Fault::Lost))]);
        assert_eq!(lab.cx.facts.uninitialized[1], (9, 31));
        assert!(lab.initialization.is_idle());
    }

    #[test]
    fn no_more_than_a_few_groups_are_made_blank_at_a_time() {
        let mut lab = Lab::new();
        let begun = (8..40).rev().map(|group| lab.wants(GroupId(group)).len());
        assert_eq!(begun.sum::<usize>(), IN_FLIGHT_MAX);
        assert_eq!(lab.initialization.waiting.len(), 16);
    }

    #[test]
    fn while_drives_refuse_labels_waiting_groups_fail_and_those_in_flight_do_not() {
        let mut lab = Lab::new();
        lab.wants(GroupId(0));
        lab.initialization.wanted(&lab.cx, GroupId(20));
        lab.initialization.refuse_regions(&mut lab.cx);
        assert_eq!(lab.sent(), [(GroupId::range(20..21), Err(Fault::Full))]);
        assert_eq!(
            (lab.state(GroupId(0)), lab.state(GroupId(20))),
            ("zeroing", "never written")
        );
    }

    #[test]
    fn columns_are_to_be_filled_if_a_drive_is_out_or_leaves() {
        let refill = |change: fn(&mut Context)| {
            let mut lab = Lab::new();
            lab.wants(GroupId(0));
            change(&mut lab.cx);
            lab.ended(GroupId(0), Ok(())).expect("it is blank").refill
        };
        assert!(!refill(|_| {}));
        assert!(refill(|cx| cx.facts.leaves = Some(3)));
        assert!(refill(|cx| {
            fixture::is_out(cx, block::Seat(3), crate::OutReason::Hung);
        }));
    }

    #[test]
    fn lanes_know_of_new_space_before_labels_do() {
        let mut lab = Lab::new();
        lab.cx.leave_uninitialized(&vec![(4, 2)]);
        let sent = fixture::commands(&mut lab.cx);
        assert_eq!(sent[0].1, Command::Uninitialized(vec![(4, 2)]));
        assert_eq!(lab.cx.facts.uninitialized, [(0, 6), (8, 32), (44, 2)]);
        lab.cx.forget_uninitialized(&vec![(5, 20)]);
        assert_eq!(lab.cx.facts.uninitialized, [(0, 5), (25, 15), (44, 2)]);
    }
}
