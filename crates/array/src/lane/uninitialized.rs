//! Groups of volumes that were never written (`pool/initialize.rs`): reads are zeros without a drive, and writes wait
//! until the group has been made blank.
//!
//! ```text
//!   never written ── write ─► wanted: writes wait ── Initialized ─► as any other group
//!        ▲                          │
//!        └── it could not be done: the writes fail ◄─┘
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use block::{Fault, Outcome, RequestKind};

use super::{Computing, Lane};
use crate::action::{BufferId, Compute, ComputeStep, Event, Slice};
use crate::runs::{self, Runs};
use crate::{GroupRequest, RequestId};

/// A request that waits.
pub(super) type Waiting = (RequestId, GroupRequest);

/// Which groups were never written, and who waits to write them.
#[derive(Clone, Debug, Default)]
pub(super) struct Uninitialized {
    runs: Runs,
    waiting: BTreeMap<u64, Vec<Waiting>>,
    /// Groups whose first write is reported.
    marks: BTreeSet<u64>,
}

impl Uninitialized {
    /// From now on these count as never written. What waits for one of them meant what it was before.
    pub(super) fn insert(&mut self, runs: &[(u64, u64)]) -> Vec<Waiting> {
        let mut refused = Vec::new();
        for &(first, count) in runs {
            let groups = first..first + count;
            runs::insert(&mut self.runs, &groups);
            refused.extend(self.let_go(groups));
        }
        refused
    }

    pub(super) fn contains(&self, group: u64) -> bool {
        runs::run_of(&self.runs, group).is_some()
    }

    /// Who waits for these groups does so no more.
    fn let_go(&mut self, groups: Range<u64>) -> Vec<Waiting> {
        let there = self.waiting.extract_if(groups, |_, _| true);
        there.flat_map(|(_, waiting)| waiting).collect()
    }

    /// Has a request wait; whether it is the first for its group.
    pub(super) fn wait(&mut self, id: RequestId, request: GroupRequest) -> bool {
        let waiting = self.waiting.entry(request.group).or_default();
        waiting.push((id, request));
        waiting.len() == 1
    }

    /// The groups are blank, or could not be made so; who waited for that.
    pub(super) fn ended(&mut self, groups: &Range<u64>, outcome: Outcome) -> Vec<Waiting> {
        if outcome.is_ok() {
            runs::remove(&mut self.runs, groups);
        }
        self.let_go(groups.clone())
    }

    /// The first write to this group is to be reported.
    pub(super) fn mark(&mut self, group: u64) {
        self.marks.insert(group);
    }

    /// Whether the first write to a marked group is to be reported.
    pub(super) fn is_reached(&mut self, group: u64) -> bool {
        !self.marks.is_empty() && self.marks.remove(&group)
    }
}

impl Lane {
    /// A request to a group that was never written.
    pub(super) fn begin_uninitialized(&mut self, id: RequestId, request: GroupRequest) {
        match request.request.kind {
            RequestKind::Read => {
                self.requests.get_mut(&id).expect("just inserted").ops = 1;
                let zeros = ComputeStep {
                    target: Slice {
                        buffer: BufferId::Request(id),
                        offset: request.buffer_offset,
                        length: request.request.length,
                    },
                    accumulate: false,
                    terms: Vec::new(),
                };
                let work = Compute {
                    steps: vec![zeros],
                    ..Compute::default()
                };
                self.cx.push_compute(Computing::Zeros(id), work);
            }
            RequestKind::Write => {
                if self.uninitialized.wait(id, request) {
                    let group = request.group;
                    self.cx.events.push_back(Event::WantsInitialized { group });
                }
            }
            RequestKind::Trim | RequestKind::Discard | RequestKind::WriteZeroes => {
                self.reply(id, Ok(()));
            }
            RequestKind::Flush => unreachable!("it is of no group"),
        }
    }

    /// Groups of a volume that is new.
    pub(super) fn leave_uninitialized(&mut self, runs: &[(u64, u64)]) {
        for &(first, count) in runs {
            self.discards.forget(first..first + count);
        }
        for (id, _) in self.uninitialized.insert(runs) {
            self.reply(id, Err(Fault::Shutdown));
        }
    }

    /// Groups have been made blank, or could not be.
    pub(super) fn initialized(&mut self, groups: &Range<u64>, outcome: Outcome) {
        if outcome.is_ok() && self.check_here(groups.start).is_ok() {
            self.uninitialized.mark(groups.start);
        }
        for (id, request) in self.uninitialized.ended(groups, outcome) {
            match outcome {
                Ok(()) => self.begin_ops(id, request),
                Err(fault) => self.reply(id, Err(fault)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use block::Request;

    use super::*;
    use crate::VolumeId;

    fn write(group: u64) -> GroupRequest {
        GroupRequest {
            group,
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
        assert!(groups.insert(&[(3, 4), (20, 1)]).is_empty());
        let there = |groups: &Uninitialized| -> Vec<u64> {
            (0..30).filter(|&group| groups.contains(group)).collect()
        };
        assert_eq!(there(&groups), [3, 4, 5, 6, 20]);
        for group in [5, 3, 20, 9] {
            groups.ended(&(group..group + 1), Ok(()));
        }
        assert_eq!(there(&groups), [4, 6]);
        groups.insert(&[(5, 3)]);
        assert_eq!(there(&groups), [4, 5, 6, 7]);
    }

    #[test]
    fn writes_wait_and_only_the_first_asks() {
        let mut groups = Uninitialized::default();
        groups.insert(&[(0, 8)]);
        assert!(groups.wait(RequestId(1), write(2)));
        assert!(!groups.wait(RequestId(2), write(2)));
        assert!(groups.wait(RequestId(3), write(4)));
        let ids = |waiting: Vec<Waiting>| -> Vec<u64> {
            waiting.into_iter().map(|(id, _)| id.0).collect()
        };
        assert_eq!(ids(groups.ended(&(2..3), Err(Fault::Full))), [1, 2]);
        assert!(
            groups.contains(2),
            "it is as before, and the next write asks again"
        );
        assert!(groups.wait(RequestId(4), write(2)));
        groups.mark(2);
        assert_eq!(ids(groups.ended(&(2..3), Ok(()))), [4]);
        assert!(groups.is_reached(2), "its first write is reported");
        assert!(!groups.is_reached(2), "once");
        assert!(!groups.is_reached(4));
    }

    #[test]
    fn writes_to_a_volume_that_is_gone_do_not_go_to_the_next_one() {
        let mut groups = Uninitialized::default();
        groups.insert(&[(0, 8)]);
        groups.wait(RequestId(1), write(2));
        let refused = groups.insert(&[(2, 2)]);
        assert_eq!(refused.len(), 1);
        assert!(groups.ended(&(2..3), Ok(())).is_empty());
    }
}
