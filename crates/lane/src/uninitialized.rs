//! Uninitialized groups: groups of volumes that were never written (`pool/initialize.rs`). Their reads return zeros
//! without a drive. Writes wait until the group has been made blank.
//!
//! ```text
//!   never written ── write ─► requested: writes wait ── Initialized ─► as any other group
//!        ▲                            │
//!        └── failed: the writes fail ◄┘
//! ```
//!
//! Such a group may have belonged to a volume before, and the ring may still have records of that time. A recovery
//! would apply them to the blank group. So a group is made blank when the ring has no batch that could have such a
//! record ([`Uninitialized::records_end`]), or after a checkpoint.

use std::collections::BTreeMap;
use std::ops::Range;

use block::Outcome;
use format::runs::{self, Runs};
use format::{Descriptor, GroupId, Sequence};
use plan::action::Event;
use plan::{GroupRequest, RequestId};

use super::context::Context;

/// When one part in so many of a marked group has been written, the groups behind it are requested.
const STREAM_PART: u64 = 8;

/// A request that waits.
pub(super) type Waiting = (RequestId, GroupRequest);

/// The groups that were never written, and the writes that wait for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Uninitialized {
    runs: Runs,
    waiting: BTreeMap<GroupId, Vec<Waiting>>,
    /// Groups that are reported when so many more bytes have been written to them.
    marks: BTreeMap<GroupId, u64>,
    /// No batch from this one on has a record of such a group.
    records_end: Sequence,
}

impl Uninitialized {
    /// These groups count as never written from now on. Returns the writes that waited for one of them: they were for
    /// its earlier volume. `next_sequence`: the number of the next batch.
    pub(super) fn insert(&mut self, runs: &[(u64, u64)], next_sequence: Sequence) -> Vec<Waiting> {
        self.records_end = self.records_end.max(next_sequence);
        let mut refused = Vec::new();
        for &(first, count) in runs {
            let groups = first..first + count;
            runs::insert(&mut self.runs, &groups);
            refused.extend(self.let_go(GroupId::range(groups)));
        }
        refused
    }

    pub(super) fn contains(&self, group: GroupId) -> bool {
        runs::run_of(&self.runs, group.0).is_some()
    }

    /// Takes the writes that wait for these groups.
    fn let_go(&mut self, groups: Range<GroupId>) -> Vec<Waiting> {
        let there = self.waiting.extract_if(groups, |_, _| true);
        there.flat_map(|(_, waiting)| waiting).collect()
    }

    /// Makes a write wait. The first write for a group requests that the group be made blank.
    pub(super) fn wait(&mut self, cx: &mut Context, id: RequestId, request: GroupRequest) {
        let group = request.group;
        let waiting = self.waiting.entry(group).or_default();
        waiting.push((id, request));
        if waiting.len() == 1 {
            cx.events.push_back(Event::WantsInitialized { group });
        }
    }

    /// The groups are blank, or could not be made blank. Returns the writes that waited for this.
    pub(super) fn ended(&mut self, groups: &Range<GroupId>, outcome: Outcome) -> Vec<Waiting> {
        if outcome.is_ok() {
            runs::remove(&mut self.runs, &GroupId::numbers(groups));
        }
        self.let_go(groups.clone())
    }

    /// A batch has these records. Those of groups that count as never written are of earlier volumes.
    pub(super) fn logged(&mut self, sequence: Sequence, descriptors: &[Descriptor]) {
        if self.runs.is_empty() {
            return;
        }
        let mut last = None;
        let is_earlier = descriptors.iter().map(Descriptor::group).any(|group| {
            let same = last.replace(group) == Some(group);
            !same && self.contains(group)
        });
        if is_earlier {
            self.records_end = self.records_end.max(sequence.next());
        }
    }

    /// Batches from this one on have no records from the time before these groups counted as never written.
    pub(super) const fn records_end(&self) -> Sequence {
        self.records_end
    }

    /// Marks a group: it is reported when a part of it has been written. A stream gets there, and lone writes all over
    /// a volume seldom do.
    pub(super) fn mark(&mut self, cx: &Context, group: GroupId) {
        let bytes = cx.geometry.group_data_bytes() / STREAM_PART;
        self.marks.insert(group, bytes);
    }

    /// So many bytes of a group are written: reports a marked group.
    pub(super) fn written(&mut self, cx: &mut Context, group: GroupId, bytes: u64) {
        if self.marks.is_empty() {
            return;
        }
        let Some(left) = self.marks.get_mut(&group) else {
            return;
        };
        *left = left.saturating_sub(bytes);
        if *left == 0 {
            self.marks.remove(&group);
            cx.events.push_back(Event::WantsInitialized { group });
        }
    }
}

#[cfg(test)]
mod tests {
    use block::{Fault, Request, RequestKind};
    use format::{StripeId, VolumeId};

    use super::*;

    fn write(group: u64) -> GroupRequest {
        GroupRequest {
            group: GroupId(group),
            request: Request {
                kind: RequestKind::Write,
                offset: 0,
                length: 4096,
                fua: false,
            },
            buffer_offset: 0,
            volume: VolumeId::NONE,
        }
    }

    #[test]
    fn groups_leave_their_run_one_by_one() {
        let mut groups = Uninitialized::default();
        assert!(groups.insert(&[(3, 4), (20, 1)], Sequence(1)).is_empty());
        let there = |groups: &Uninitialized| -> Vec<u64> {
            (0..30)
                .filter(|&group| groups.contains(GroupId(group)))
                .collect()
        };
        assert_eq!(there(&groups), [3, 4, 5, 6, 20]);
        for group in [5, 3, 20, 9] {
            groups.ended(&GroupId::range(group..group + 1), Ok(()));
        }
        assert_eq!(there(&groups), [4, 6]);
        groups.insert(&[(5, 3)], Sequence(1));
        assert_eq!(there(&groups), [4, 5, 6, 7]);
    }

    /// Groups 0 to 7 were never written.
    fn eight() -> (Uninitialized, Context) {
        let mut groups = Uninitialized::default();
        groups.insert(&[(0, 8)], Sequence(1));
        (groups, Context::of_test("raid6", 6))
    }

    fn ids(waiting: Vec<Waiting>) -> Vec<u64> {
        waiting.into_iter().map(|(id, _)| id.0).collect()
    }

    fn wanted(cx: &mut Context) -> Vec<u64> {
        let events = cx.take_events().into_iter();
        events
            .map(|event| match event {
                Event::WantsInitialized { group } => group.0,
                other => panic!("{other:?} asks for nothing"),
            })
            .collect()
    }

    #[test]
    fn writes_wait_and_only_the_first_asks() {
        let (mut groups, mut cx) = eight();
        groups.wait(&mut cx, RequestId(1), write(2));
        groups.wait(&mut cx, RequestId(2), write(2));
        groups.wait(&mut cx, RequestId(3), write(4));
        assert_eq!(wanted(&mut cx), [2, 4]);
    }

    #[test]
    fn writes_go_on_in_the_order_in_which_they_came() {
        let (mut groups, mut cx) = eight();
        for id in [5, 3, 9] {
            groups.wait(&mut cx, RequestId(id), write(2));
        }
        groups.wait(&mut cx, RequestId(4), write(6));
        assert_eq!(ids(groups.ended(&GroupId::range(2..3), Ok(()))), [5, 3, 9]);
        assert!(!groups.contains(GroupId(2)) && groups.contains(GroupId(6)));
        assert_eq!(ids(groups.ended(&GroupId::range(4..8), Ok(()))), [4]);
    }

    #[test]
    fn a_group_that_could_not_be_made_blank_is_as_before() {
        let (mut groups, mut cx) = eight();
        groups.wait(&mut cx, RequestId(1), write(2));
        groups.wait(&mut cx, RequestId(2), write(2));
        assert_eq!(wanted(&mut cx), [2]);
        assert_eq!(
            ids(groups.ended(&GroupId::range(2..3), Err(Fault::Full))),
            [1, 2]
        );
        assert!(groups.contains(GroupId(2)));
        groups.wait(&mut cx, RequestId(4), write(2));
        assert_eq!(wanted(&mut cx), [2], "the next write asks again");
    }

    #[test]
    fn a_marked_group_is_reported_once_when_a_part_of_it_is_written() {
        let (mut groups, mut cx) = eight();
        let part = cx.geometry.group_data_bytes() / STREAM_PART;
        groups.mark(&cx, GroupId(2));
        groups.written(&mut cx, GroupId(4), part);
        groups.written(&mut cx, GroupId(2), part - 4096);
        assert!(wanted(&mut cx).is_empty());
        groups.written(&mut cx, GroupId(2), 4096);
        groups.written(&mut cx, GroupId(2), part);
        assert_eq!(wanted(&mut cx), [2]);
    }

    #[test]
    fn records_of_an_earlier_volume_end_where_the_log_was_or_behind_the_last_of_them() {
        let mut groups = Uninitialized::default();
        let zeroed = |group| Descriptor::Zeroed {
            only: None,
            group: GroupId(group),
            first: StripeId(0),
            count: 1,
        };
        groups.logged(Sequence(3), &[zeroed(5)]);
        assert_eq!(
            groups.records_end(),
            Sequence(0),
            "no group counts as never written"
        );
        groups.insert(&[(4, 2)], Sequence(7));
        assert_eq!(groups.records_end(), Sequence(7));
        groups.logged(Sequence(7), &[zeroed(3), zeroed(6)]);
        assert_eq!(groups.records_end(), Sequence(7));
        groups.logged(Sequence(9), &[zeroed(3), zeroed(3), zeroed(5)]);
        assert_eq!(groups.records_end(), Sequence(10));
        groups.ended(&GroupId::range(4..6), Ok(()));
        groups.logged(Sequence(11), &[zeroed(5)]);
        assert_eq!(groups.records_end(), Sequence(10));
    }

    #[test]
    fn groups_that_are_blank_count_as_never_written_again_when_said_so() {
        let (mut groups, _) = eight();
        groups.ended(&GroupId::range(0..8), Ok(()));
        assert!(!groups.contains(GroupId(3)));
        assert!(groups.insert(&[(3, 1)], Sequence(1)).is_empty());
        assert!(groups.contains(GroupId(3)) && !groups.contains(GroupId(4)));
    }

    #[test]
    fn groups_outside_a_run_do_not_wait() {
        let (mut groups, _) = eight();
        assert!(groups.ended(&GroupId::range(8..100), Ok(())).is_empty());
        assert!(groups.contains(GroupId(7)) && !groups.contains(GroupId(8)));
    }

    #[test]
    fn writes_to_a_volume_that_is_gone_do_not_go_to_the_next_one() {
        let (mut groups, mut cx) = eight();
        groups.wait(&mut cx, RequestId(1), write(2));
        let refused = groups.insert(&[(2, 2)], Sequence(1));
        assert_eq!(ids(refused), [1]);
        assert!(groups.ended(&GroupId::range(2..3), Ok(())).is_empty());
    }
}
