//! Which group is counted or converted next.
//!
//! ```text
//!   a group with new data ─► stale ─► counted ─┬─► fewer copies than wanted, all drives below the lower line:
//!        ▲                                     │   the first groups become copies
//!        │                                     ├─► more than wanted, or a drive above its upper line:
//!        │                                     │   the last groups become parity
//!        └── its blocks are put in place       └─► otherwise nothing
//! ```
//!
//! ```text
//! unknown ── changed ──► stale
//! stale ── next ──► counting
//! counting ── changed ──► counting, changed
//! counting ── ended ──► counted
//! counting ── failed ──► stale
//! counting, changed ── ended ──► stale
//! counting, changed ── failed ──► stale
//! counted ── changed ──► stale
//! counted ── next ──► converting
//! converting ── changed ──► converting, changed
//! converting ── ended ──► tried
//! converting ── no room ──► short
//! converting ── failed ──► stale
//! converting, changed ── ended ──► stale
//! converting, changed ── no room ──► stale
//! converting, changed ── failed ──► stale
//! tried ── changed ──► stale
//! tried ── try_again ──► counted
//! short ── changed ──► stale
//! short ── try_again ──► counted
//! short ── try_short_again ──► counted
//! ```
//!
//! Short: it was tried, and there was no room for its copies. A group that is forgotten in any state but those of a step
//! in flight is unknown.
//!
//! Groups are converted in the order of their addresses, and back in the reverse order. A group that has been tried is
//! not tried again in this direction before something of it is put in place: until then its stripes cannot be converted
//! once more, or a drive is away.
//!
//! Invariant: the totals are the sums of the groups' counts.

use std::collections::{BTreeMap, BTreeSet};

use format::{Form, GroupId};
use plan::action::FormCounts;

/// Groups in flight at a time, over all lanes.
const GROUPS_MAX: usize = 4;

/// The use of the drives' space, where they know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// All drives are below their lower lines: stripes may become copies.
    Free,
    /// In between: nothing changes.
    Enough,
    /// A drive is above its upper line: stripes must become parity.
    Short,
}

/// What is done to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) group: GroupId,
    /// `None`: it is only counted.
    pub(super) to: Option<Form>,
    /// Stripes that are converted at most.
    pub(super) most: u64,
}

/// The counts of all groups, and what is under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Conversion {
    /// Stripes that are written and stripes that are copies, by group.
    counts: BTreeMap<GroupId, (u64, u64)>,
    /// Groups of which the counts may have changed.
    stale: BTreeSet<GroupId>,
    /// Those of them that are counted in any case.
    wanted: BTreeSet<GroupId>,
    in_flight: BTreeMap<GroupId, Step>,
    /// Groups that have been tried since they last changed, by the form that they were to have.
    tried: [BTreeSet<GroupId>; 2],
    /// Groups of which stripes could not become copies, because there was no room for them.
    short: BTreeSet<GroupId>,
    written: u64,
    copies: u64,
    converted: u64,
}

impl Conversion {
    /// Stripes that are written, and how many of them are copies.
    pub(super) const fn totals(&self) -> (u64, u64) {
        (self.written, self.copies)
    }

    /// Stripes that have been converted since the opening.
    pub(super) const fn converted(&self) -> u64 {
        self.converted
    }

    /// True if the counts of all groups are known that matter. `wanted`: how many stripes should be copies.
    pub(super) fn is_counted(&self, wanted: u64) -> bool {
        let counts = |step: &Step| step.to.is_none();
        let mut stale = self.stale.iter();
        !stale.any(|&group| self.matters(group, wanted)) && !self.in_flight.values().any(counts)
    }

    /// If no copy is wanted, groups that are known to have none need not be counted: writes make no copies.
    fn matters(&self, group: GroupId, wanted: u64) -> bool {
        let no_copies = self
            .counts
            .get(&group)
            .is_some_and(|&(_, copies)| copies == 0);
        wanted > 0 || !no_copies || self.wanted.contains(&group)
    }

    pub(super) fn is_in_flight(&self, group: GroupId) -> bool {
        self.in_flight.contains_key(&group)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Something of these groups has been put in place.
    pub(super) fn changed(&mut self, groups: impl IntoIterator<Item = GroupId>) {
        for group in groups {
            self.stale.insert(group);
            for tried in &mut self.tried {
                tried.remove(&group);
            }
        }
    }

    /// These groups are counted, whatever is known of them.
    pub(super) fn count(&mut self, groups: impl IntoIterator<Item = GroupId>) {
        for group in groups {
            self.changed([group]);
            self.wanted.insert(group);
        }
    }

    /// All groups may be tried again.
    pub(super) fn try_again(&mut self) {
        self.tried = Default::default();
        self.short.clear();
    }

    /// Groups for whose copies there was no room may be tried again.
    pub(super) fn try_short_again(&mut self) {
        for group in std::mem::take(&mut self.short) {
            self.tried[Form::Copies.index()].remove(&group);
        }
    }

    /// These groups belong to no volume any more.
    pub(super) fn forget(&mut self, freed: impl Fn(GroupId) -> bool) {
        self.stale.retain(|&group| !freed(group));
        self.wanted.retain(|&group| !freed(group));
        self.short.retain(|&group| !freed(group));
        for tried in &mut self.tried {
            tried.retain(|&group| !freed(group));
        }
        let gone = self.counts.extract_if(.., |&group, _| freed(group));
        for (_, (written, copies)) in gone {
            self.written -= written;
            self.copies -= copies;
        }
    }

    /// The next step, if there is one: it is in flight from now on. `wanted`: how many stripes should be copies.
    pub(super) fn next(&mut self, wanted: u64, space: Space) -> Option<Step> {
        if self.in_flight.len() >= GROUPS_MAX {
            return None;
        }
        let step = self.count_next(wanted).or_else(|| {
            // Counts first: what is under way may be all that is needed.
            let converting = self
                .in_flight
                .values()
                .filter(|step| step.to.is_some())
                .count();
            let counting = self.in_flight.len() > converting;
            match counting {
                true => None,
                false => self.convert_next(wanted, space),
            }
        })?;
        self.in_flight.insert(step.group, step);
        Some(step)
    }

    fn count_next(&mut self, wanted: u64) -> Option<Step> {
        let free = |&&group: &&GroupId| !self.in_flight.contains_key(&group);
        let mut waiting = self.stale.iter().filter(free);
        let group = *waiting.find(|&&group| self.matters(group, wanted))?;
        self.stale.remove(&group);
        self.wanted.remove(&group);
        Some(Step {
            group,
            to: None,
            most: 0,
        })
    }

    fn convert_next(&self, wanted: u64, space: Space) -> Option<Step> {
        let under_way = |to: Form| -> u64 {
            let steps = self.in_flight.values();
            steps
                .filter(|step| step.to == Some(to))
                .map(|step| step.most)
                .sum()
        };
        let more = wanted.saturating_sub(self.copies + under_way(Form::Copies));
        let less = self.copies.saturating_sub(wanted + under_way(Form::Parity));
        let may = |group: GroupId, to: Form| {
            !self.in_flight.contains_key(&group) && !self.tried[to.index()].contains(&group)
        };
        if space == Space::Short || less > 0 {
            let most = match space {
                Space::Short => self.copies,
                Space::Free | Space::Enough => less,
            };
            let to = Form::Parity;
            let groups = self.counts.iter().rev();
            let mut groups = groups.filter(|&(&group, &(_, copies))| copies > 0 && may(group, to));
            let (&group, &(_, copies)) = groups.next()?;
            let most = most.min(copies);
            return Some(Step {
                group,
                to: Some(to),
                most,
            });
        }
        if space != Space::Free || more == 0 {
            return None;
        }
        let to = Form::Copies;
        let mut groups = self.counts.iter();
        let (&group, &(written, copies)) =
            groups.find(|&(&group, &(written, copies))| copies < written && may(group, to))?;
        Some(Step {
            group,
            to: Some(to),
            most: more.min(written - copies),
        })
    }

    /// A step has ended. `whole`: its counts are those of the whole group.
    pub(super) fn ended(&mut self, group: GroupId, forms: FormCounts, whole: bool) -> Option<Step> {
        let step = self.in_flight.remove(&group)?;
        if let Some(to) = step.to {
            self.tried[to.index()].insert(group);
        }
        if forms.short > 0 {
            self.short.insert(group);
        }
        self.converted += forms.converted;
        if whole {
            let now = (forms.written, forms.copies);
            let before = self.counts.insert(group, now).unwrap_or_default();
            self.written = self.written + now.0 - before.0;
            self.copies = self.copies + now.1 - before.1;
        } else {
            self.stale.insert(group);
        }
        Some(step)
    }

    /// Checks the totals.
    ///
    /// # Panics
    /// When they are not the sums of the groups' counts.
    pub(super) fn check(&self) {
        let written: u64 = self.counts.values().map(|&(written, _)| written).sum();
        let copies: u64 = self.counts.values().map(|&(_, copies)| copies).sum();
        assert_eq!((written, copies), (self.written, self.copies));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::walk::Changes;

    const FREE: Space = Space::Free;

    /// Groups 0 to 3 with ten written stripes each, of which so many are copies.
    fn counted(copies: [u64; 4]) -> Conversion {
        let mut conversion = Conversion::default();
        conversion.changed((0..4).map(GroupId));
        for (group, copies) in (0..).map(GroupId).zip(copies) {
            let step = conversion.next(1, FREE).unwrap();
            assert_eq!((step.group, step.to), (group, None));
            conversion.ended(group, forms(copies, 0), true);
        }
        conversion.check();
        conversion
    }

    fn forms(copies: u64, converted: u64) -> FormCounts {
        FormCounts {
            written: 10,
            copies,
            converted,
            left: 0,
            short: 0,
        }
    }

    fn step(group: GroupId, to: Form, most: u64) -> Step {
        Step {
            group,
            to: Some(to),
            most,
        }
    }

    #[test]
    fn all_groups_are_counted_before_one_is_converted() {
        let mut conversion = Conversion::default();
        conversion.changed([GroupId(2), GroupId(7)]);
        assert!(!conversion.is_counted(5));
        let first = conversion.next(5, FREE).unwrap();
        let second = conversion.next(5, FREE).unwrap();
        assert_eq!((first.group, second.group), (GroupId(2), GroupId(7)));
        assert_eq!(
            conversion.next(5, FREE),
            None,
            "while they are being counted"
        );
        conversion.ended(GroupId(2), forms(0, 0), true);
        assert_eq!(conversion.next(5, FREE), None);
        conversion.ended(GroupId(7), forms(0, 0), true);
        assert!(conversion.is_counted(5));
        assert_eq!(
            conversion.next(5, FREE),
            Some(step(GroupId(2), Form::Copies, 5))
        );
    }

    #[test]
    fn stripes_become_copies_in_the_order_of_addresses_and_no_more_than_wanted() {
        let mut conversion = counted([0; 4]);
        assert_eq!(
            conversion.next(13, FREE),
            Some(step(GroupId(0), Form::Copies, 10))
        );
        assert_eq!(
            conversion.next(13, FREE),
            Some(step(GroupId(1), Form::Copies, 3))
        );
        assert_eq!(conversion.next(13, FREE), None);
        conversion.ended(GroupId(0), forms(10, 10), true);
        conversion.ended(GroupId(1), forms(3, 3), true);
        assert_eq!(conversion.totals(), (40, 13));
        assert_eq!(conversion.next(13, FREE), None);
        assert_eq!(conversion.converted(), 13);
    }

    #[test]
    fn groups_for_whose_copies_there_was_no_room_are_tried_again_and_others_are_not() {
        let mut conversion = counted([0; 4]);
        assert_eq!(
            conversion.next(10, FREE),
            Some(step(GroupId(0), Form::Copies, 10))
        );
        let short = FormCounts {
            left: 6,
            short: 6,
            ..forms(4, 4)
        };
        conversion.ended(GroupId(0), short, true);
        assert_eq!(
            conversion.next(10, FREE),
            Some(step(GroupId(1), Form::Copies, 6))
        );
        conversion.ended(GroupId(1), forms(0, 0), true);
        assert_eq!(conversion.next(4, FREE), None);
        conversion.try_short_again();
        assert_eq!(
            conversion.next(10, FREE),
            Some(step(GroupId(0), Form::Copies, 6))
        );
        assert_eq!(
            conversion.next(30, FREE),
            Some(step(GroupId(2), Form::Copies, 10))
        );
    }

    #[test]
    fn and_parity_again_in_the_reverse_order() {
        let mut conversion = counted([10, 10, 3, 0]);
        assert_eq!(
            conversion.next(8, FREE),
            Some(step(GroupId(2), Form::Parity, 3))
        );
        assert_eq!(
            conversion.next(8, FREE),
            Some(step(GroupId(1), Form::Parity, 10))
        );
        assert_eq!(
            conversion.next(8, FREE),
            Some(step(GroupId(0), Form::Parity, 2))
        );
        assert_eq!(conversion.next(8, FREE), None);
    }

    #[test]
    fn between_the_lines_nothing_becomes_copies() {
        let mut conversion = counted([0; 4]);
        assert_eq!(conversion.next(40, Space::Enough), None);
        assert_eq!(
            conversion.next(40, Space::Short),
            None,
            "nor when space is short"
        );
    }

    #[test]
    fn when_space_is_short_copies_are_given_up_whatever_is_wanted() {
        let mut conversion = counted([10, 10, 0, 0]);
        assert_eq!(
            conversion.next(40, Space::Short),
            Some(step(GroupId(1), Form::Parity, 10))
        );
    }

    #[test]
    fn a_group_that_was_tried_is_tried_again_when_something_of_it_is_in_place() {
        let mut conversion = counted([0; 4]);
        assert_eq!(
            conversion.next(5, FREE),
            Some(step(GroupId(0), Form::Copies, 5))
        );
        conversion.ended(GroupId(0), forms(0, 0), true);
        assert_eq!(
            conversion.next(5, FREE),
            Some(step(GroupId(1), Form::Copies, 5))
        );
        conversion.ended(GroupId(1), forms(5, 5), true);
        conversion.changed([GroupId(0)]);
        assert_eq!(
            conversion.next(9, FREE).map(|step| (step.group, step.to)),
            Some((GroupId(0), None))
        );
        conversion.ended(GroupId(0), forms(0, 0), true);
        assert_eq!(
            conversion.next(9, FREE),
            Some(step(GroupId(0), Form::Copies, 4))
        );
    }

    #[test]
    fn a_step_that_fails_is_counted_again() {
        let mut conversion = counted([0; 4]);
        conversion.next(5, FREE);
        conversion.ended(GroupId(0), FormCounts::default(), false);
        conversion.check();
        assert_eq!(conversion.totals(), (40, 0), "as it was");
        assert_eq!(
            conversion.next(5, FREE).map(|step| (step.group, step.to)),
            Some((GroupId(0), None))
        );
    }

    #[test]
    fn groups_without_copies_are_not_counted_while_none_is_wanted() {
        let mut conversion = counted([0, 4, 0, 0]);
        conversion.changed((0..4).map(GroupId));
        assert_eq!(
            conversion.next(0, FREE).map(|step| step.group),
            Some(GroupId(1))
        );
        assert_eq!(conversion.next(0, FREE), None);
        assert!(!conversion.is_counted(0));
        conversion.ended(GroupId(1), forms(4, 0), true);
        assert!(conversion.is_counted(0) && !conversion.is_counted(1));
        assert_eq!(
            conversion.next(0, FREE),
            Some(step(GroupId(1), Form::Parity, 4))
        );
    }

    #[test]
    fn a_command_counts_all_groups() {
        let mut conversion = counted([0; 4]);
        conversion.count([GroupId(2)]);
        assert!(!conversion.is_counted(0));
        assert_eq!(
            conversion.next(0, FREE).map(|step| step.group),
            Some(GroupId(2))
        );
        conversion.ended(GroupId(2), forms(0, 0), true);
        assert!(conversion.is_counted(0));
    }

    #[test]
    fn no_more_than_a_few_groups_are_in_flight() {
        let mut conversion = Conversion::default();
        conversion.changed((0..100).map(GroupId));
        let begun = std::iter::from_fn(|| conversion.next(1, FREE)).count();
        assert_eq!((begun, conversion.in_flight()), (GROUPS_MAX, GROUPS_MAX));
    }

    #[test]
    fn what_belongs_to_no_volume_counts_no_more() {
        let mut conversion = counted([10, 10, 0, 0]);
        conversion.forget(|group| group < GroupId(2));
        conversion.check();
        assert_eq!(conversion.totals(), (20, 0));
    }

    /// Where a group is by the drawing at the head of the file.
    fn state(of: &Conversion, group: GroupId) -> &'static str {
        let stale = of.stale.contains(&group);
        match of.in_flight.get(&group) {
            Some(Step { to: None, .. }) if stale => "counting, changed",
            Some(Step { to: None, .. }) => "counting",
            Some(_) if stale => "converting, changed",
            Some(_) => "converting",
            None if stale => "stale",
            None if of.short.contains(&group) => "short",
            None if of.tried.iter().any(|tried| tried.contains(&group)) => "tried",
            None if of.counts.contains_key(&group) => "counted",
            None => "unknown",
        }
    }

    #[test]
    fn the_states_of_a_group_are_those_of_the_drawing() {
        type Event = (&'static str, fn(&mut Conversion));
        let events: [Event; 7] = [
            ("changed", |of| of.changed([GroupId(3)])),
            ("next", |of| _ = of.next(10, FREE)),
            ("ended", |of| _ = of.ended(GroupId(3), forms(0, 0), true)),
            ("failed", |of| {
                _ = of.ended(GroupId(3), FormCounts::default(), false);
            }),
            ("no room", |of| {
                let short = FormCounts {
                    short: 10,
                    ..forms(0, 0)
                };
                of.ended(GroupId(3), short, true);
            }),
            ("try_again", Conversion::try_again),
            ("try_short_again", Conversion::try_short_again),
        ];
        let mut known = vec![("unknown", Conversion::default())];
        let mut drawn = Changes::default();
        let mut at = 0;
        while let Some((from, conversion)) = known.get(at).cloned() {
            at += 1;
            for (event, happens) in events {
                // There is room for what is counted only.
                if event == "no room" && !from.starts_with("converting") {
                    continue;
                }
                let mut after = conversion.clone();
                happens(&mut after);
                after.check();
                let to = state(&after, GroupId(3));
                drawn.note(from, event, to);
                if known.iter().all(|&(name, _)| name != to) {
                    known.push((to, after));
                }
            }
        }
        drawn.assert_drawn_in(include_str!("conversion.rs"));
    }
}
