//! Repairs: blocks that operations have found bad or unknown are reconstructed and written again, a stripe at a time.
//!
//! ```text
//!   an operation ends ─► found ─► a repair of each stripe ── its lock ─► planned ─► ended: repaired, or lost
//!                                                              │   ▲
//!                                                              └───┘ planned again; blocks written meanwhile are not repaired
//! ```
//!
//! A repair's plan lists the blocks that cannot be reconstructed. Under the stripe's lock these are exactly the lost
//! blocks ([`assess_lost`](plan::assess_lost), `known_losses.rs`).
//!
//! Invariant: a stripe has one repair under way.

use std::collections::{BTreeMap, BTreeSet};

use block::{BLOCK_BYTES, Fault, Outcome};
use format::{BlockName, Column, Entry, GroupId, StripeId};
use plan::Row;
use plan::action::Event;

use super::context::Context;
use super::entries::Entries;
use super::op::{Assessed, Op, Owner, Repair, Task};
use super::overlay::Bytes;

/// The repairs of a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Repairs {
    /// Stripes with a repair in flight.
    under_way: BTreeSet<(GroupId, StripeId)>,
}

/// True if the blocks that an operation has found are to be repaired.
fn is_to_be_repaired(op: &Op, outcome: Outcome) -> bool {
    // Blocks that a client's request failed on are repaired too, to find out whether they are lost.
    let asked = matches!(op.task, Task::Read(_) | Task::Write(_));
    let refused = matches!(outcome, Err(Fault::Lost | Fault::Medium));
    let gone = op.found.read_fault == Some(Fault::Gone);
    let ended = outcome.is_ok() || asked && refused && !gone;
    ended
        && !(op.found.bad.is_empty()
            && op.found.unknown.is_empty()
            && op.found.arbitration.is_blank())
}

impl Repairs {
    /// An operation has ended: returns the repairs of the blocks that it has found bad or unknown, stripe by stripe.
    /// They count as under way from now on.
    pub(super) fn found(
        &mut self,
        cx: &Context,
        entries: Entries<'_>,
        op: &Op,
        outcome: Outcome,
    ) -> Vec<Op> {
        if !is_to_be_repaired(op, outcome) {
            return Vec::new();
        }
        let mut bad = op.found.bad.clone();
        bad.extend(&op.found.unknown);
        let stale = match outcome {
            Ok(()) => op.found.arbitration.rows_to_repair(cx, op.group),
            Err(_) => BTreeSet::new(),
        };
        if bad.is_empty() && stale.is_empty() {
            return Vec::new();
        }
        let mut repairs = Vec::new();
        for stripe in StripeId::each(op.stripes.clone()) {
            let found = blocks_to_repair(cx, entries, op, &bad, stripe);
            let doubts: BTreeMap<Row, usize> = stale
                .iter()
                .filter(|row| row.stripe == stripe)
                .map(|&row| (row, 0))
                .collect();
            let nothing = found.is_empty() && doubts.is_empty();
            if nothing || !self.under_way.insert((op.group, stripe)) {
                continue;
            }
            let blocks = found.iter().map(|&(at, _)| at).collect();
            let known = found.into_iter();
            let repair = Repair {
                blocks,
                entries: known.filter_map(|(at, entry)| Some((at, entry?))).collect(),
                scrub: match (op.owner, &op.task) {
                    (Owner::Job(job), Task::Scrub) => Some(job),
                    _ => None,
                },
                assessed: Assessed::new(),
            };
            let mut repair = Op::repair(Owner::Background, op.group, stripe, repair);
            repair.location.forms = std::iter::once(op.form_of(stripe)).collect();
            // The repair itself finds out under its own lock which blocks are stale.
            if !doubts.is_empty() {
                repair.found.arbitration.begin(doubts);
            }
            repairs.push(repair);
        }
        repairs
    }

    /// A repair has ended. Returns the number of blocks that it has written again.
    pub(super) fn ended(&mut self, cx: &mut Context, op: &Op, outcome: Outcome) -> u64 {
        let (group, stripe) = (op.group, op.stripes.start);
        self.under_way.remove(&(group, stripe));
        let Task::Repair(Repair { blocks, .. }) = &op.task else {
            unreachable!("it is no repair");
        };
        let lost = op.plan.as_ref().map_or(0, |plan| plan.lost.len());
        let mended = match outcome {
            Ok(()) => blocks.len().saturating_sub(lost) as u64,
            Err(_) => 0,
        };
        if mended > 0 {
            cx.events.push_back(Event::Repaired {
                group,
                stripe,
                blocks: mended,
            });
        }
        mended
    }
}

/// The blocks of a stripe among those that were found bad or unknown (element, first byte in it), and the entry of
/// each.
fn blocks_to_repair(
    cx: &Context,
    entries: Entries<'_>,
    op: &Op,
    bad: &BTreeSet<(Column, u64)>,
    stripe: StripeId,
) -> Vec<((usize, u64), Option<Entry>)> {
    let per_chunk = cx.geometry.chunk_bytes() / BLOCK_BYTES;
    let mut found = Vec::new();
    let form = op.form_of(stripe);
    for slot in 0..cx.geometry.code_of(form).elements() {
        let (column, chunk) = cx.geometry.place(op.group, stripe, form, slot);
        let first = chunk * per_chunk;
        for &(_, block) in bad.range((column, first)..(column, first + per_chunk)) {
            let name = BlockName {
                group: op.group,
                column,
                block: u32::try_from(block).expect("cells have fewer than 2^32 blocks"),
            };
            let entry = entries.present(name);
            let known = entry.is_some_and(|entry| entry != Entry::UNKNOWN);
            let logged = entries.overlay.get(name).map(|logged| logged.bytes);
            // A newer content of the block may have been logged meanwhile, also by the operation itself.
            let anew = matches!(logged, Some(Bytes::Memory(_)));
            if !anew && (!known || op.found.bad.contains(&(column, block))) {
                found.push(((slot, (block - first) * BLOCK_BYTES), entry));
            }
        }
    }
    found
}

/// The blocks that a repair still has to repair: all but those that have been written since they were found bad. A
/// repair waits for its lock, and may be planned more than once. `None` if the operation is no repair.
pub(super) fn left_to_repair(
    cx: &Context,
    entries: Entries<'_>,
    op: &Op,
) -> Option<Vec<(usize, u64)>> {
    let Task::Repair(Repair {
        blocks,
        entries: found,
        ..
    }) = &op.task
    else {
        return None;
    };
    let (group, stripe) = (op.group, op.stripes.start);
    let same = |&&(slot, low): &&(usize, u64)| {
        let (column, chunk) = cx.geometry.place(group, stripe, op.form(), slot);
        let block = (chunk * cx.geometry.chunk_bytes() + low) / BLOCK_BYTES;
        let now = entries.present(BlockName {
            group,
            column,
            block: u32::try_from(block).expect("cells have fewer than 2^32 blocks"),
        });
        let then = found.get(&(slot, low)).copied();
        now.is_none() || then.is_none() || now == then
    };
    Some(blocks.iter().filter(same).copied().collect())
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use format::{Form, HeldIn, Sequence};
    use plan::action::{BufferId, Slice};
    use plan::{Absent, Kind, Plan, RequestId, ScratchId};

    use super::*;
    use crate::blocks::block;
    use crate::ids::JobId;
    use crate::overlay::{Logged, Overlay};
    use crate::pages::PageCache;

    /// The repairs of a small lane with all blocks written: a stripe has four blocks of each of six columns.
    struct Lab {
        repairs: Repairs,
        cx: Context,
        overlay: Overlay,
        pages: PageCache,
    }

    /// A client's read of stripe 1 that has found these blocks bad.
    fn read(bad: &[(Column, u64)]) -> Op {
        let owner = Owner::Request(RequestId(1));
        with_bad(
            Op::new(
                owner,
                GroupId(0),
                StripeId::range(1..2),
                Task::Read(Vec::new()),
            ),
            bad,
        )
    }

    /// A step of a scrub.
    fn scrub(stripes: Range<StripeId>, bad: &[(Column, u64)]) -> Op {
        with_bad(
            Op::new(Owner::Job(JobId(3)), GroupId(0), stripes, Task::Scrub),
            bad,
        )
    }

    fn with_bad(mut op: Op, bad: &[(Column, u64)]) -> Op {
        op.found.bad.extend(bad);
        op
    }

    impl Lab {
        fn new() -> Self {
            let cx = Context::of_test("raid6", 6);
            let pages = PageCache::all_written(6);
            Self {
                repairs: Repairs::default(),
                cx,
                overlay: Overlay::default(),
                pages,
            }
        }

        /// The repairs that begin when an operation ends: stripe, and blocks by column and number.
        fn found(&mut self, op: &Op, outcome: Outcome) -> Vec<(u64, Vec<(u16, u64)>)> {
            let repairs = self.repairs(op, outcome);
            let geometry = &self.cx.geometry;
            let of = |op: &Op| {
                let Task::Repair(Repair { blocks, .. }) = &op.task else {
                    panic!("{op:?} is no repair");
                };
                let stripe = op.stripes.start;
                let block = |&(slot, low): &(usize, u64)| {
                    let (column, chunk) = geometry.place(GroupId(0), stripe, Form::Parity, slot);
                    let first = chunk * geometry.chunk_bytes();
                    (column.0, (first + low) / BLOCK_BYTES)
                };
                (stripe.0, blocks.iter().map(block).collect())
            };
            repairs.iter().map(of).collect()
        }

        fn repairs(&mut self, op: &Op, outcome: Outcome) -> Vec<Op> {
            let entries = Entries {
                overlay: &self.overlay,
                pages: &self.pages,
            };
            self.repairs.found(&self.cx, entries, op, outcome)
        }

        fn left(&self, op: &Op) -> Option<usize> {
            let entries = Entries {
                overlay: &self.overlay,
                pages: &self.pages,
            };
            left_to_repair(&self.cx, entries, op).map(|left| left.len())
        }

        fn log(&mut self, name: BlockName, bytes: Bytes) {
            let logged = Logged {
                bytes,
                entry: Entry::of_map(HeldIn::parity(StripeId(1)), Sequence(7)),
                sequence: Sequence(7),
            };
            self.overlay.insert(name, logged);
        }
    }

    const MEMORY: Bytes = Bytes::Memory(Slice {
        buffer: BufferId::Scratch(ScratchId(7)),
        offset: 0,
        length: BLOCK_BYTES,
    });

    #[test]
    fn what_has_found_nothing_begins_no_repair() {
        let mut lab = Lab::new();
        assert_eq!(lab.found(&read(&[]), Ok(())), []);
    }

    #[test]
    fn bad_and_unknown_blocks_are_repaired_together() {
        let mut lab = Lab::new();
        lab.pages.set(block(Column(3), 6), Entry::UNKNOWN);
        let mut op = read(&[(Column(2), 4)]);
        op.found.unknown.insert((Column(3), 6));
        let mut found = lab.found(&op, Ok(()));
        found[0].1.sort_unstable();
        assert_eq!(found, [(1, vec![(2, 4), (3, 6)])]);
    }

    #[test]
    fn a_block_that_is_known_by_now_is_not_repaired_if_it_was_only_unknown() {
        let mut lab = Lab::new();
        let mut op = read(&[]);
        op.found.unknown.insert((Column(3), 6));
        assert_eq!(lab.found(&op, Ok(())), []);
    }

    #[test]
    fn what_was_written_anew_is_not_repaired() {
        let mut lab = Lab::new();
        lab.log(block(Column(2), 4), MEMORY);
        assert_eq!(lab.found(&read(&[(Column(2), 4)]), Ok(())), []);
        lab.log(block(Column(2), 4), Bytes::InPlace);
        assert_eq!(lab.found(&read(&[(Column(2), 4)]), Ok(())).len(), 1);
    }

    #[test]
    fn each_stripe_of_a_run_has_a_repair_of_its_own() {
        let mut lab = Lab::new();
        let op = scrub(
            StripeId::range(0..4),
            &[(Column(2), 1), (Column(2), 9), (Column(4), 8)],
        );
        let mut found = lab.found(&op, Ok(()));
        found[1].1.sort_unstable();
        assert_eq!(found, [(0, vec![(2, 1)]), (2, vec![(2, 9), (4, 8)])]);
    }

    #[test]
    fn a_scrub_waits_for_its_repairs_and_a_client_does_not() {
        let mut lab = Lab::new();
        let repairs = lab.repairs(&scrub(StripeId::range(1..2), &[(Column(2), 4)]), Ok(()));
        let Task::Repair(repair) = &repairs[0].task else {
            panic!("it is a repair");
        };
        assert_eq!(repair.scrub, Some(JobId(3)));
        let repairs = lab.repairs(&scrub(StripeId::range(2..3), &[(Column(2), 8)]), Ok(()));
        lab.repairs.ended(&mut lab.cx, &repairs[0], Ok(()));
        let repairs = lab.repairs(&read(&[(Column(2), 8)]), Ok(()));
        assert!(repairs.is_empty(), "the block is of another stripe");
    }

    #[test]
    fn a_stripe_has_one_repair_at_a_time() {
        let mut lab = Lab::new();
        let repairs = lab.repairs(&read(&[(Column(2), 4)]), Ok(()));
        assert_eq!(lab.found(&read(&[(Column(2), 5)]), Ok(())), []);
        lab.repairs.ended(&mut lab.cx, &repairs[0], Ok(()));
        assert_eq!(lab.found(&read(&[(Column(2), 5)]), Ok(())).len(), 1);
    }

    #[test]
    fn what_a_client_was_refused_is_looked_into() {
        for fault in [Fault::Lost, Fault::Medium] {
            let mut lab = Lab::new();
            assert_eq!(lab.found(&read(&[(Column(2), 4)]), Err(fault)).len(), 1);
        }
        let mut lab = Lab::new();
        assert_eq!(
            lab.found(&read(&[(Column(2), 4)]), Err(Fault::Shutdown)),
            []
        );
        assert_eq!(
            lab.found(
                &scrub(StripeId::range(1..2), &[(Column(2), 4)]),
                Err(Fault::Lost)
            ),
            []
        );
    }

    #[test]
    fn what_failed_for_a_drive_that_is_gone_waits_for_the_pool() {
        let mut lab = Lab::new();
        let mut op = read(&[(Column(2), 4)]);
        op.found.read_fault = Some(Fault::Gone);
        assert_eq!(lab.found(&op, Err(Fault::Lost)), []);
        assert_eq!(lab.found(&op, Ok(())).len(), 1, "it was read around");
    }

    #[test]
    fn rows_in_doubt_are_repaired_though_no_block_is_bad() {
        let mut lab = Lab::new();
        let mut op = scrub(StripeId::range(0..3), &[]);
        let row = Row {
            stripe: StripeId(2),
            form: Form::Parity,
            low: 0,
        };
        op.found.arbitration.begin(BTreeMap::from([(row, 1)]));
        let repairs = lab.repairs(&op, Ok(()));
        assert_eq!(repairs.len(), 1);
        assert_eq!(repairs[0].stripes, StripeId::range(2..3));
        let next = repairs[0].found.arbitration.next_rows(6);
        assert_eq!(next, (vec![row], 0), "the search starts again");
    }

    #[test]
    fn a_repair_leaves_what_was_written_since_as_it_is() {
        let mut lab = Lab::new();
        let repairs = lab.repairs(&read(&[(Column(2), 4), (Column(2), 5)]), Ok(()));
        assert_eq!(lab.left(&repairs[0]), Some(2));
        lab.log(block(Column(2), 4), MEMORY);
        assert_eq!(lab.left(&repairs[0]), Some(1));
        assert_eq!(lab.left(&read(&[])), None);
        // A page that is not in memory gives no entry.
        lab.pages = PageCache::new(64);
        assert_eq!(lab.left(&repairs[0]), Some(1));
    }

    #[test]
    fn what_was_mended_is_reported_and_what_is_lost_is_not() {
        let mut lab = Lab::new();
        let mut repair = lab
            .repairs(&read(&[(Column(2), 4), (Column(2), 5)]), Ok(()))
            .remove(0);
        let (cx, repairs) = (&mut lab.cx, &mut lab.repairs);
        assert_eq!(repairs.ended(cx, &repair, Err(Fault::Lost)), 0);
        assert!(cx.take_events().is_empty());
        let mut plan = Plan::new(Kind::Repair);
        plan.lost = vec![Absent {
            column: Column(2),
            offset: 4 * BLOCK_BYTES,
            length: BLOCK_BYTES,
            slice: None,
        }];
        repair.plan = Some(plan);
        assert_eq!(repairs.ended(cx, &repair, Ok(())), 1);
        let repaired = Event::Repaired {
            group: GroupId(0),
            stripe: StripeId(1),
            blocks: 1,
        };
        assert_eq!(cx.take_events(), [repaired]);
    }
}
