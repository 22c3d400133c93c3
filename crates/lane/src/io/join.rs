//! Neighbours on a drive go out as one operation, wherever their bytes lie in memory.
//!
//! ```text
//!   begun in one turn                                handed out at its end
//!   write  seat 2   8..12   batch 7 ┐
//!   write  seat 2  12..16   batch 9 ├─ sorted by ──► Joined: write  seat 2  8..20, three slices
//!   write  seat 2  16..20   batch 7 ┘  place
//!   read   seat 4   8..12            ──────────────► Io, as it is
//! ```
//!
//! A drive that does 500 operations a second moves 512 KiB with each of them, and not one block.
//!
//! Invariants:
//! - A *member* stays an operation of its own in the lane, with its own [`IoId`]: it is hedged, abandoned, repeated and
//!   reported separately. Only the drive sees one operation.
//! - If a joined operation fails and its drive is not out, its members are repeated one by one: a bad block fails its
//!   own member and no others.
//! - No outcome depends on the order within a turn: a flush covers what had ended when it began, and operations in
//!   flight never overlap if one of them writes.
//! - The latency tracker sees one operation of the joined length (`Flight::span`), and not one for each member.

use std::collections::BTreeMap;

use block::Seat;
use plan::action::{Action, Io, IoId, IoKind, Joined, Service, Slice};

use super::held_reads::HeldReads;
use super::{Flight, JOINED_BYTES_MAX, first_run};
use crate::context::Context;
use crate::sequence_map::SequenceMap;

/// Operations that a turn has begun, and joined ones in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Joins {
    /// How many drive operations this turn has begun.
    begun: usize,
    /// True if one of them is a long read, which may have to wait.
    long_read: bool,
    pub(super) reads: HeldReads,
    /// The members of each joined operation, in order of their places.
    in_flight: BTreeMap<IoId, Vec<IoId>>,
    /// Memory that [`Self::join_begun`] uses again; empty between turns.
    candidates: Vec<Candidate>,
}

/// An operation of this turn that may be joined with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    seat: Seat,
    write: bool,
    offset: u64,
    length: u64,
    /// Its index among the lane's actions.
    index: usize,
}

impl Candidate {
    fn of(index: usize, io: &Io) -> Option<Self> {
        let write = match (io.kind, io.slice) {
            (IoKind::Read, Some(_)) => false,
            (IoKind::Write, Some(_)) => true,
            (
                IoKind::Read
                | IoKind::Write
                | IoKind::WriteZeroes
                | IoKind::Discard
                | IoKind::Flush,
                _,
            ) => return None,
        };
        let (seat, offset, length) = (io.seat, io.offset, io.length);
        (length < JOINED_BYTES_MAX).then_some(Self {
            seat,
            write,
            offset,
            length,
            index,
        })
    }

    /// True if `next` begins where this one ends.
    fn is_before(&self, next: &Self) -> bool {
        (self.seat, self.write) == (next.seat, next.write)
            && self.offset + self.length == next.offset
    }

    fn first_run(sorted: &[Self]) -> usize {
        first_run(sorted, |candidate| candidate.length, Self::is_before)
    }
}

impl Joins {
    /// An operation has been put among the lane's actions.
    pub(super) fn begins(&mut self, io: &Io) {
        self.begun += 1;
        self.long_read |= self.reads.is_long(io);
    }

    /// The turn ends: the operations that it has begun are joined with their neighbours on the drives.
    pub(super) fn join_begun(&mut self, cx: &mut Context, ios: &mut SequenceMap<IoId, Flight>) {
        let begun = std::mem::take(&mut self.begun);
        let long_read = std::mem::take(&mut self.long_read);
        if long_read || self.reads.have_room() {
            self.hold_long_reads(cx, ios);
        } else if begun < 2 || !shares_a_drive(cx) {
            return;
        }
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.extend((0..).zip(&cx.actions).filter_map(|(index, action)| {
            let Action::Io(io) = action else { return None };
            // An operation that was abandoned is skipped.
            let waited_for = ios.get(io.id).is_some_and(Flight::may_be_joined);
            waited_for.then(|| Candidate::of(index, io)).flatten()
        }));
        candidates.sort_unstable();
        // By the index of the last member among the actions: the memory of all members has been allocated by then.
        let mut joined: BTreeMap<usize, Action> = BTreeMap::new();
        let mut members: Vec<usize> = Vec::new();
        let mut rest = &candidates[..];
        while !rest.is_empty() {
            let (run, later) = rest.split_at(Candidate::first_run(rest));
            rest = later;
            if run.len() > 1 {
                let last = run.iter().map(|member| member.index).max();
                joined.insert(last.expect("a run has members"), self.join(cx, ios, run));
                members.extend(run.iter().map(|member| member.index));
            } else {
                self.count_read(cx, run[0]);
            }
        }
        if !joined.is_empty() {
            members.sort_unstable();
            let mut members = members.into_iter().peekable();
            let actions = std::mem::take(&mut cx.actions);
            cx.actions.reserve(actions.len());
            for (index, action) in actions.into_iter().enumerate() {
                if members.next_if_eq(&index).is_none() {
                    cx.actions.push_back(action);
                }
                cx.actions.extend(joined.remove(&index));
            }
        }
        candidates.clear();
        self.candidates = candidates;
    }

    /// Holds long reads whose drives have enough of them, and adds held reads that may go now.
    fn hold_long_reads(&mut self, cx: &mut Context, ios: &SequenceMap<IoId, Flight>) {
        let reads = &mut self.reads;
        cx.actions.retain(|action| {
            let Action::Io(io) = action else { return true };
            let may_wait = reads.is_long(io) && ios.get(io.id).is_some_and(Flight::may_be_joined);
            !(may_wait && reads.hold(io))
        });
        let ready = reads.take_ready();
        cx.actions.extend(ready.into_iter().map(Action::Io));
    }

    /// An operation goes out unjoined: if it is a read, its bytes are counted for its drive.
    fn count_read(&mut self, cx: &Context, candidate: Candidate) {
        if let Action::Io(io) = &cx.actions[candidate.index]
            && !candidate.write
        {
            self.reads.hand_out(io.id, io.seat, io.length);
        }
    }

    /// Joins neighbours into one operation.
    fn join(
        &mut self,
        cx: &mut Context,
        ios: &mut SequenceMap<IoId, Flight>,
        run: &[Candidate],
    ) -> Action {
        let id = IoId(cx.fresh());
        let length = run.iter().map(|member| member.length).sum();
        if !run[0].write {
            self.reads.hand_out(id, run[0].seat, length);
        }
        let mut ids = Vec::with_capacity(run.len());
        let mut slices: Vec<Slice> = Vec::with_capacity(run.len());
        let mut service = None;
        for member in run {
            let Action::Io(io) = &cx.actions[member.index] else {
                unreachable!("candidates are drive operations");
            };
            ids.push(io.id);
            slices.extend(io.slice);
            service = service
                .filter(|first: &Service| !first.bulk)
                .or(Some(io.service));
            let flight = ios.get_mut(io.id).expect("it was just begun");
            flight.span = length;
        }
        self.in_flight.insert(id, ids);
        Action::Joined(Joined {
            id,
            seat: run[0].seat,
            kind: if run[0].write {
                IoKind::Write
            } else {
                IoKind::Read
            },
            offset: run[0].offset,
            length,
            slices: slices.into(),
            service: service.expect("a run has members"),
        })
    }

    /// The members of a joined operation that a drive has answered; `None` if it is not a joined one.
    pub(super) fn members(&mut self, id: IoId) -> Option<Vec<IoId>> {
        self.in_flight.remove(&id)
    }
}

/// True if two operations of this turn may be for one drive. Mostly there are none: the operations of a small request
/// are all for different drives.
fn shares_a_drive(cx: &Context) -> bool {
    let mut seen = 0_u64;
    let mut ios = cx.actions.iter().filter_map(|action| match action {
        Action::Io(io) if io.slice.is_some() => Some(io),
        _ => None,
    });
    ios.any(|io| {
        let bit = 1 << (io.seat.0 % 64);
        let shared = seen & bit != 0;
        seen |= bit;
        shared
    })
}

#[cfg(test)]
mod tests {
    use block::BLOCK_BYTES;

    use super::*;

    fn candidate(seat: u16, write: bool, block: u64, blocks: u64) -> Candidate {
        Candidate {
            seat: Seat(seat),
            write,
            offset: block * BLOCK_BYTES,
            length: blocks * BLOCK_BYTES,
            index: 0,
        }
    }

    fn runs(mut candidates: Vec<Candidate>) -> Vec<usize> {
        candidates.sort_unstable();
        let mut rest = &candidates[..];
        let mut runs = Vec::new();
        while !rest.is_empty() {
            runs.push(Candidate::first_run(rest));
            rest = &rest[runs[runs.len() - 1]..];
        }
        runs
    }

    #[test]
    fn runs_are_of_one_drive_and_kind_and_have_no_gaps() {
        assert!(runs(Vec::new()).is_empty());
        let neighbours = |seat, write| (0..3).map(move |at| candidate(seat, write, 2 * at, 2));
        let mut all: Vec<Candidate> = neighbours(1, true).collect();
        assert_eq!(runs(all.clone()), [3]);
        all.extend(neighbours(2, true));
        all.extend(neighbours(2, false));
        all.reverse();
        assert_eq!(runs(all.clone()), [3, 3, 3]);
        // A gap, and an operation that lies within another one.
        all = vec![
            candidate(1, true, 0, 2),
            candidate(1, true, 3, 1),
            candidate(1, true, 4, 4),
            candidate(1, true, 5, 3),
        ];
        assert_eq!(runs(all), [1, 2, 1]);
    }

    #[test]
    fn runs_end_at_the_longest_operation() {
        let blocks = JOINED_BYTES_MAX / BLOCK_BYTES;
        let all = (0..2 * blocks + 1).map(|at| candidate(0, true, at, 1));
        let full = usize::try_from(blocks).unwrap();
        assert_eq!(runs(all.collect()), [full, full, 1]);
        let long = vec![
            candidate(0, true, 0, 3),
            candidate(0, true, 3, blocks - 2),
            candidate(0, true, blocks + 1, 1),
        ];
        assert_eq!(runs(long), [1, 2]);
    }
}
