//! Compares the blocks that operations reconstruct with their entries, and reads rows in doubt as a whole
//! (`arbitration/`).

use std::collections::{BTreeMap, BTreeSet};

use block::BLOCK_BYTES;
use format::{BlockName, PageName, Sequence};
use plan::action::Slice;
use plan::{Plan, Row, Scratch, ScratchId, Stripe, SubStripePlans};

use crate::arbitration::Reconstructed;
use crate::blocks::LaneBlocks;
use crate::context::Context;
use crate::entries::Entries;
use crate::op::{Op, Owner, Task};
use crate::records;

/// The result of comparing the blocks that an operation reconstructs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// The blocks are right, or a scrub has noted those that are not: the operation goes on.
    Right,
    /// Rows are in doubt, or a page was dropped meanwhile: the operation is planned again.
    Again,
    /// Rows of a second read are in doubt: its reader waits for the late drive, and finds the stale blocks itself.
    LeftToReader,
}

/// How rows in doubt are read.
#[derive(Debug)]
pub(crate) enum Trials {
    /// By this plan, into this memory. The operation has pinned the batches that the plan reads.
    Plan(Plan, ScratchId),
    /// Later, when these pages are in memory.
    Pages(BTreeSet<PageName>),
    /// Not at all: the code cannot reconstruct the rows without so many columns. The operation is planned again and
    /// does without these rows.
    Unrecoverable,
}

/// True if an operation reconstructs blocks that have not been compared yet.
pub(crate) fn must_check(cx: &Context, op: &Op) -> bool {
    let plan = op.plan.as_ref();
    let recovers = plan.is_some_and(|plan| !plan.recovered.is_empty());
    recovers && !op.found.checked && !cx.trusted && cx.geometry.regions().is_some()
}

/// True if an operation writes all the blocks that it reconstructs, so that one checksum serves both.
pub(crate) fn writes_what_it_recovers(op: &Op) -> bool {
    matches!(op.task, Task::Repair(_) | Task::Fill { .. })
}

/// The blocks whose checksums are computed before the operation goes on, and the number of steps before that.
pub(super) fn sums_to_check(cx: &Context, op: &Op) -> (Vec<Slice>, usize) {
    let plan = op.plan.as_ref().expect("it was planned");
    if op.found.arbitration.is_trying() {
        return (op.found.arbitration.results().collect(), plan.steps.len());
    }
    if writes_what_it_recovers(op) {
        return (records::sums_of_writes(cx, op), plan.steps.len());
    }
    let slices = plan.recovered.iter().map(|recovered| recovered.slice);
    (slices.collect(), plan.first_steps)
}

/// The blocks that a plan reconstructs, one by one, with their rows.
fn recovered_blocks(op: &Op) -> Vec<(BlockName, Row)> {
    let plan = op.plan.as_ref().expect("it was planned");
    let blocks = plan.recovered.iter().flat_map(|part| {
        let first = part.offset / BLOCK_BYTES;
        (0..part.slice.length / BLOCK_BYTES).map(move |index| {
            let name = BlockName {
                group: op.group,
                column: part.column,
                block: u32::try_from(first + index).expect("cells have fewer than 2^32 blocks"),
            };
            let low = part.row.low + index * BLOCK_BYTES;
            let row = Row { low, ..part.row };
            (name, row)
        })
    });
    blocks.collect()
}

/// Compares the blocks that an operation has reconstructed: they have these checksums.
pub(crate) fn compare(cx: &Context, entries: Entries<'_>, op: &mut Op, sums: &[u32]) -> Compared {
    let blocks = recovered_blocks(op);
    let one_sum = writes_what_it_recovers(op);
    let written: BTreeMap<BlockName, u32> = match one_sum {
        true => {
            let written = records::written_blocks(cx, op).into_iter();
            let names = written.map(|(name, _)| name);
            names.zip(sums.iter().copied()).collect()
        }
        false => BTreeMap::new(),
    };
    let sum_of = |index: usize, name: BlockName| match one_sum {
        // Blocks without a place are not written.
        true => written.get(&name).copied(),
        false => Some(sums[index]),
    };
    let blocks = blocks.into_iter().enumerate();
    let blocks = blocks.filter_map(|(index, (name, row))| {
        let sum = sum_of(index, name)?;
        Some(Reconstructed { name, row, sum })
    });
    let scrubs = matches!(op.task, Task::Scrub);
    let bad = scrubs.then_some(&op.found.bad);
    let doubts = { &op.found.arbitration }.compare(cx, entries, op.group, blocks, bad);
    let Some(doubts) = doubts else {
        return Compared::Again;
    };
    if !doubts.is_empty() && matches!(op.owner, Owner::Hedge(_)) {
        return Compared::LeftToReader;
    }
    if scrubs || doubts.is_empty() {
        if !doubts.is_empty() {
            op.found.arbitration.begin(doubts);
        } else if let Some(arbitration) = op.found.arbitration.written() {
            arbitration.begin(doubts);
        }
        op.found.checked = true;
        return Compared::Right;
    }
    op.found.arbitration.doubt(&cx.geometry, op.group, doubts);
    Compared::Again
}

/// Plans reads of the rows in doubt, and trials that compute these rows without some of their columns.
pub(crate) fn plan_trials(
    cx: &mut Context,
    entries: Entries<'_>,
    (op, plans): (&mut Op, &mut SubStripePlans),
) -> Trials {
    let scratch = cx.fresh_scratch();
    let columns = cx.geometry.layout().columns();
    let (rows, doubted) = op.found.arbitration.next_rows(columns);
    let columns = cx.view().columns(&cx.geometry, op.group);
    let blocks = LaneBlocks::new(entries, op);
    let stripe = Stripe {
        geometry: &cx.geometry,
        group: op.group,
        stripe: op.stripes.start,
        form: op.form(),
        columns: &columns,
        blocks: &blocks,
    };
    let (plan, trials) = plan::plan_arbitrate(plans, stripe, &rows, doubted, Scratch(scratch));
    let missing = blocks.missing.into_inner();
    let pinned = blocks.pinned.into_inner();
    if !missing.is_empty() {
        return Trials::Pages(missing);
    }
    if trials.is_empty() {
        for row in rows {
            op.found.arbitration.despair(&cx.geometry, op.group, row);
        }
        return Trials::Unrecoverable;
    }
    op.memory.pinned = pinned.into_iter().collect();
    op.found.arbitration.begin_trials(trials);
    Trials::Plan(plan, scratch)
}

/// Evaluates the trials of some rows, which have these checksums. A repair writes the blocks again that are shown to be
/// stale. `next_sequence`: the number of the next batch.
pub(crate) fn tried(
    cx: &mut Context,
    entries: Entries<'_>,
    op: &mut Op,
    sums: &[u32],
    next_sequence: Sequence,
) {
    let group = op.group;
    let stale = { &mut op.found.arbitration }.tried(cx, entries, group, sums, next_sequence);
    if let Task::Repair(repair) = &mut op.task {
        for at in stale {
            if !repair.blocks.contains(&at) {
                repair.blocks.push(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use format::{Column, Form, StripeId};
    use plan::Recovered;

    use super::super::lab::{self, Lab, ROW};
    use super::*;
    use crate::blocks::block;
    use crate::ids::OpId;
    use crate::op::Repair;
    use crate::pages::{PageCache, sum_of};

    /// An operation that has reconstructed two blocks of column 3.
    fn recovers(task: Task) -> Lab {
        let mut lab = Lab::new(task);
        lab.plan().first_steps = 1;
        lab.plan().recovered.push(Recovered {
            column: Column(3),
            offset: 4 * BLOCK_BYTES,
            slice: lab::memory(0, 2),
            row: ROW,
        });
        lab
    }

    fn reads() -> Lab {
        recovers(lab::read(0, 2))
    }

    /// The second block's row.
    const NEXT: Row = Row {
        stripe: StripeId(1),
        form: Form::Parity,
        low: BLOCK_BYTES,
    };

    /// The checksums of both blocks as they were written.
    fn right() -> [u32; 2] {
        [4, 5].map(|at| sum_of(block(Column(3), at)))
    }

    impl Lab {
        fn compare(&mut self, sums: &[u32]) -> Compared {
            let entries = Entries {
                overlay: &self.overlay,
                pages: &self.pages,
            };
            compare(&self.cx, entries, &mut self.op, sums)
        }

        fn trials(&mut self) -> Trials {
            let entries = Entries {
                overlay: &self.overlay,
                pages: &self.pages,
            };
            let op = (&mut self.op, &mut self.plans);
            plan_trials(&mut self.cx, entries, op)
        }
    }

    #[test]
    fn what_is_reconstructed_is_compared_once() {
        let mut lab = reads();
        assert!(must_check(&lab.cx, &lab.op));
        assert_eq!(lab.compare(&right()), Compared::Right);
        assert!(!must_check(&lab.cx, &lab.op));
    }

    #[test]
    fn nothing_is_compared_where_nothing_is_reconstructed_or_known() {
        let lab = Lab::new(lab::read(0, 1));
        assert!(!must_check(&lab.cx, &lab.op));
        let mut trusted = reads();
        trusted.cx.trusted = true;
        assert!(!must_check(&trusted.cx, &trusted.op));
    }

    #[test]
    fn a_row_that_differs_is_in_doubt_and_its_operation_is_planned_again() {
        let mut lab = reads();
        let [first, second] = right();
        assert_eq!(lab.compare(&[first, second + 1]), Compared::Again);
        assert_eq!(lab.op.found.arbitration.next_rows(6), (vec![NEXT], 1));
        assert!(!lab.op.found.checked);
    }

    #[test]
    fn a_second_read_leaves_doubts_to_its_reader() {
        let mut lab = reads();
        lab.op.owner = Owner::Hedge(OpId(1));
        assert_eq!(lab.compare(&[1, 2]), Compared::LeftToReader);
        assert_eq!(lab.op.found.arbitration.in_doubt(), 0);
    }

    #[test]
    fn a_page_that_was_dropped_is_read_again() {
        let mut lab = reads();
        lab.pages = PageCache::new(64);
        assert_eq!(lab.compare(&right()), Compared::Again);
        assert_eq!(lab.op.found.arbitration.in_doubt(), 0);
    }

    #[test]
    fn a_scrub_notes_doubts_and_goes_on() {
        let mut lab = recovers(Task::Scrub);
        assert_eq!(lab.compare(&[1, 2]), Compared::Right);
        assert!(lab.op.found.checked && lab.op.found.arbitration.in_doubt() == 2);
    }

    #[test]
    fn a_scrub_leaves_rows_with_a_bad_block_to_their_repair() {
        let mut lab = recovers(Task::Scrub);
        lab.op.found.bad.insert((Column(1), 4));
        assert_eq!(lab.compare(&[1, 2]), Compared::Right);
        assert_eq!(lab.op.found.arbitration.in_doubt(), 1);
    }

    #[test]
    fn doubts_end_when_the_operation_has_found_out_what_is_right() {
        let mut lab = reads();
        lab.compare(&[1, 2]);
        assert_eq!(lab.compare(&right()), Compared::Right);
        assert_eq!(lab.op.found.arbitration.in_doubt(), 0);
    }

    #[test]
    fn what_a_repair_writes_is_summed_once_for_both() {
        let mut lab = recovers(Task::Repair(Repair::of_test(vec![(0, 0)])));
        let write = lab.transfer(Column(3), plan::action::IoKind::Write, 2);
        lab.plan().writes.push(write);
        assert!(writes_what_it_recovers(&lab.op));
        assert_eq!(sums_to_check(&lab.cx, &lab.op).0.len(), 2);
        assert_eq!(lab.compare(&right()), Compared::Right);
        lab.op.found.checked = false;
        lab.plan().writes.clear();
        assert_eq!(lab.compare(&[]), Compared::Right, "it has no place");
    }

    #[test]
    fn what_is_reconstructed_for_a_read_is_summed_after_the_first_steps() {
        let lab = reads();
        let (sums, steps) = sums_to_check(&lab.cx, &lab.op);
        assert_eq!((sums, steps), (vec![lab::memory(0, 2)], 1));
    }

    #[test]
    fn rows_in_doubt_are_read_whole_and_tried() {
        let mut lab = reads();
        lab.compare(&[1, right()[1]]);
        let before = lab.cx.fresh_scratch();
        let Trials::Plan(plan, scratch) = lab.trials() else {
            panic!("all pages are here");
        };
        assert!(scratch > before);
        let columns: BTreeSet<Column> = plan.reads.iter().map(|read| read.column).collect();
        assert_eq!(columns.len(), 6);
        assert!(lab.op.found.arbitration.is_trying());
        let results = lab.op.found.arbitration.results().count();
        assert_eq!(sums_to_check(&lab.cx, &lab.op).0.len(), results);
    }

    #[test]
    fn rows_in_doubt_need_the_pages_of_all_columns() {
        let mut lab = reads();
        lab.compare(&[1, right()[1]]);
        lab.pages = PageCache::new(64);
        let Trials::Pages(names) = lab.trials() else {
            panic!("no page is here");
        };
        assert_eq!(names.len(), 6);
        assert!(!lab.op.found.arbitration.is_trying());
    }

    #[test]
    fn a_row_that_the_code_cannot_do_without_more_columns_of_is_given_up() {
        let mut lab = reads();
        lab.compare(&[1, right()[1]]);
        for column in [1, 2, 4].map(Column) {
            lab.out(column);
        }
        assert!(matches!(lab.trials(), Trials::Unrecoverable));
        assert_eq!(lab.op.found.arbitration.in_doubt(), 0);
        assert!(
            lab.op
                .found
                .arbitration
                .distrusted()
                .contains(&(Column(3), 4))
        );
    }

    #[test]
    fn what_trials_show_to_be_stale_a_repair_writes_anew() {
        let mut lab = recovers(Task::Repair(Repair::of_test(vec![(0, 0)])));
        lab.op.found.arbitration.begin([(ROW, 1)].into());
        let Trials::Plan(..) = lab.trials() else {
            panic!("all pages are here");
        };
        let count = lab.op.found.arbitration.results().count();
        let sums = vec![7; count];
        let entries = Entries {
            overlay: &lab.overlay,
            pages: &lab.pages,
        };
        tried(&mut lab.cx, entries, &mut lab.op, &sums, Sequence(10));
        assert!(!lab.op.found.arbitration.is_trying());
        assert_eq!(
            lab.op.found.arbitration.next_rows(6).1,
            2,
            "two columns next"
        );
    }
}
