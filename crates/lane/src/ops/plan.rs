//! Decides the next step of an operation from what is known of its blocks.
//!
//! ```text
//!   begin ─► some need no plan of single blocks: zeros, what is logged again, discards, rows in doubt, most reads
//!     │
//!     └─► closely ─► pages are missing ─► fetched, and planned again
//!            │
//!            ├─► not available ─► with the late drives, once more, or lost
//!            └─► available ─► way: locked first, in place, to a free stripe, or as it is
//! ```
//!
//! Invariants:
//! - Blocks are avoided only while there is another way. Blocks that a drive could not read are read once more before
//!   they count as lost.
//! - If a drive is gone, its content may return with it. Until the pool has decided about the drive, nothing of the
//!   stripe counts as lost, and no parity is given up for a write.

use std::collections::BTreeSet;

use block::{BLOCK_BYTES, Fault, Seat};
use format::{Column, PageName, StripeId};
use plan::{AssessedRow, Lost, Plan, Scratch, ScratchId, Stripe, SubStripePlans};

use super::hedge::avoided;
use crate::balance::{Balance, Known, Sound};
use crate::blocks::LaneBlocks;
use crate::context::Context;
use crate::entries::Entries;
use crate::io::IoTable;
use crate::maps::StripeMaps;
use crate::op::{Convert, Discarded, Op, Owner, Probe, Repair, Task};
use crate::trusted;

/// How often blocks that a drive could not read are read again before their loss is reported. While they can be
/// reconstructed they are not read again: their repair writes them again.
const READ_RETRIES: u8 = 2;

/// The first step of an operation.
#[derive(Debug)]
pub(crate) enum Beginning {
    /// Its group is made blank.
    Blank,
    /// A record that its stripes are zero is logged.
    LogZeroes,
    /// Blocks are logged again from the memory that holds them.
    Relog,
    /// This space is discarded.
    Discard(Discarded),
    /// Rows in doubt are read as a whole.
    Trials,
    /// It is a read, with this plan.
    Read(Plan),
    /// These pages are read first.
    Pages(BTreeSet<PageName>),
    /// It needs a detailed plan: [`closely`].
    Closely,
}

/// The result of detailed planning.
#[derive(Debug)]
pub(crate) enum Planned {
    /// This plan, with this memory. The operation has pinned the batches that the plan reads. The next step is [`way`].
    Plan(Plan, ScratchId),
    /// These pages are read first.
    Pages(BTreeSet<PageName>),
    /// There is no way around the late drives: the operation waits for them.
    Wait,
    /// Blocks that a drive could not read are read once more.
    Retry,
    /// These drives could not read blocks without which the operation would decide that something is lost. They are read
    /// elsewhere first: a drive that fails there too does not work, and nothing is decided.
    Probe(BTreeSet<Seat>),
    /// More blocks are missing than the code survives.
    Lost,
}

/// The first step of an operation, by its task.
pub(crate) fn begin(balance: &Balance, known: &Known<'_>, op: &Op) -> Beginning {
    let journaled = known.cx.geometry.regions().is_some();
    match (&op.task, op.owner) {
        (Task::Zero, Owner::Job(_)) if journaled => return Beginning::Blank,
        (Task::Zero, _) if journaled => return Beginning::LogZeroes,
        (Task::Relog(_), _) => return Beginning::Relog,
        (&Task::Discard(what), _) => return Beginning::Discard(what),
        _ => {}
    }
    if op.found.arbitration.in_doubt() > 0 {
        return Beginning::Trials;
    }
    match balance.plan(known, op) {
        Some(Sound::Plan(plan)) => Beginning::Read(plan),
        Some(Sound::Pages(names)) => Beginning::Pages(names),
        None => Beginning::Closely,
    }
}

/// True if an operation's plan finds losses. They are named by the data that the stripe holds, so the map is needed.
pub(crate) const fn finds_losses(op: &Op) -> bool {
    matches!(op.task, Task::Repair(_) | Task::Scrub)
}

/// Plans an operation by the state of its blocks.
pub(crate) fn closely(
    cx: &mut Context,
    ios: &IoTable,
    entries: Entries<'_>,
    maps: &StripeMaps,
    (op, plans): (&mut Op, &mut SubStripePlans),
) -> Planned {
    let Entries { overlay, pages } = entries;
    let plain = trusted::is_plain_fill(cx, overlay, op);
    if plain {
        let missing = trusted::missing_pages(cx, pages, op);
        if !missing.is_empty() {
            return Planned::Pages(missing);
        }
    }
    let scratch = cx.fresh_scratch();
    let cx = &*cx;
    let avoided = avoided(cx, ios, op);
    let journaled = cx.geometry.regions().is_some();
    let columns = cx.view().columns(&cx.geometry, op.group);
    let held = op.task.held();
    let blocks = LaneBlocks {
        journaled: journaled && !plain,
        held,
        leaves_out_lost: held.is_some_and(|held| columns[held.column.index()].source.is_none()),
        avoid: &op.detour.avoid,
        avoided: &avoided,
        ..LaneBlocks::new(entries, op)
    };
    let stripe = Stripe {
        geometry: &cx.geometry,
        group: op.group,
        stripe: op.stripes.start,
        form: op.form(),
        columns: &columns,
        blocks: &blocks,
    };
    let converts = match &op.task {
        Task::Convert(convert) => Some(convert.chosen(cx, (ios, overlay), maps, (op, &stripe))),
        _ => None,
    };
    let (planned, assessed) = match &converts {
        Some(convert) => {
            let planned = plan_convert(plans, stripe, convert, Scratch(scratch));
            (planned, Vec::new())
        }
        None => plan_task(cx, plans, op, stripe, Scratch(scratch)),
    };
    let missing = blocks.missing.into_inner();
    let pinned = blocks.pinned.into_inner();
    let unknown = blocks.unknown.into_inner();
    if !missing.is_empty() {
        return Planned::Pages(missing);
    }
    // Blocks of a readable column should be known: they are repaired when this operation has ended.
    let here = |&(column, _): &(Column, u64)| columns[column.index()].readable();
    op.found.unknown = unknown.into_iter().filter(here).collect();
    if let Some(convert) = converts {
        op.task = Task::Convert(convert);
    }
    if let Task::Repair(repair) = &mut op.task {
        let assessed = assessed.into_iter();
        // A stripe that holds no data has no lost data.
        let data = maps.data_held_by(cx, op.group, op.stripes.start);
        repair.assessed = match data {
            Some(data) => assessed.map(|row| (data, row)).collect(),
            None => Vec::new(),
        };
    }
    let lossy = planned.as_ref().map_or(true, |plan| !plan.lost.is_empty());
    let around = !avoided.is_empty() || !op.detour.avoid.is_empty();
    let again = op.found.read_fault == Some(Fault::Medium) && op.found.retries < READ_RETRIES;
    let gone = op.found.read_fault == Some(Fault::Gone);
    if !(around || again) && decides_by_bad_reads(op, &planned) {
        let of = |&(column, _): &(Column, u64)| columns[column.index()].source;
        let seats = op.found.bad.iter().filter_map(of).map(|cell| cell.seat);
        let seats: BTreeSet<Seat> = seats.filter(|&seat| !cx.view().is_out(seat)).collect();
        // Drives that have gone out since cannot be asked.
        if !seats.is_empty() {
            return Planned::Probe(seats);
        }
    }
    match planned {
        Ok(plan)
            if !(lossy && (around || again || gone))
                && (plan.absent.is_empty() || !keeps_absent_columns(cx, op)) =>
        {
            op.memory.pinned = pinned.into_iter().collect();
            Planned::Plan(plan, scratch)
        }
        Ok(_) | Err(Lost) if around => {
            op.detour.waits = true;
            op.detour.avoid.clear();
            Planned::Wait
        }
        Ok(_) | Err(Lost) if again => {
            op.found.retries += 1;
            op.found.bad.clear();
            Planned::Retry
        }
        Ok(_) | Err(Lost) => Planned::Lost,
    }
}

/// True if a plan would decide that something is lost because drives have failed reads, which perhaps fail all: parity in
/// a row of which other blocks cannot be read, or a cell that is filled, or parts of it.
fn decides_by_bad_reads(op: &Op, planned: &Result<Plan, Lost>) -> bool {
    let decides = match (&op.task, planned) {
        (Task::Write(_), Ok(plan)) => !plan.lost.is_empty(),
        (Task::Fill { .. }, Ok(plan)) => !plan.lost.is_empty() || !plan.absent.is_empty(),
        (Task::Fill { .. }, Err(Lost)) => true,
        _ => false,
    };
    let failed = op.found.read_fault == Some(Fault::Medium) && !op.found.bad.is_empty();
    decides && failed && op.found.probe == Probe::None
}

/// The plan of a step of a conversion.
fn plan_convert(
    plans: &mut SubStripePlans,
    stripe: Stripe<'_>,
    convert: &Convert,
    name: Scratch,
) -> Result<Plan, Lost> {
    let stripes: Vec<StripeId> = convert.chosen.iter().map(|&(stripe, _)| stripe).collect();
    match convert.to {
        Some(to) => plan::plan_convert(plans, stripe, &stripes, to, name),
        None => Ok(Plan::new(plan::Kind::Convert)),
    }
}

/// The plan of an operation; in a repair also its rows with their lost blocks.
fn plan_task(
    cx: &Context,
    plans: &mut SubStripePlans,
    op: &Op,
    stripe: Stripe<'_>,
    name: Scratch,
) -> (Result<Plan, Lost>, Vec<AssessedRow>) {
    let stripes = op.stripes.clone();
    let planned = match &op.task {
        Task::Read(pieces) => plan::plan_read(plans, &stripe, pieces, name),
        Task::Write(prepared) if !prepared.is_staged() => {
            plan::plan_read(plans, &stripe, &prepared.reads, name).map(|mut plan| {
                plan.steps.extend(prepared.overlay.iter().cloned());
                plan
            })
        }
        Task::Write(prepared) => plan::plan_write(plans, &stripe, &prepared.sources, name),
        Task::Fill {
            column,
            target,
            avoid,
            ..
        } => plan::plan_fill(plans, stripe, stripes, (*column, *target), avoid, name),
        Task::Zero => plan::plan_zero(plans, stripe, stripes),
        Task::Resync => plan::plan_resync(plans, stripe, stripes, name),
        Task::Scrub => Ok(plan::plan_scrub(plans, stripe, stripes, name)),
        Task::Repair(Repair { blocks, .. }) => {
            let mut assessed = plan::assess_lost(plans, &stripe, blocks);
            for row in &mut assessed {
                // A block that only contradicts its row can still be read where it is.
                row.lost.retain(|&slot| {
                    let place = cx.geometry.place(op.group, stripes.start, op.form(), slot);
                    let (column, chunk) = place;
                    let block = (chunk * cx.geometry.chunk_bytes() + row.low) / BLOCK_BYTES;
                    blocks.contains(&(slot, row.low))
                        || !op.found.arbitration.distrusted().contains(&(column, block))
                });
            }
            return (
                Ok(plan::plan_repair(plans, &stripe, blocks, name)),
                assessed,
            );
        }
        Task::Convert(_) => unreachable!("it has a plan of its own"),
        Task::Relog(_) | Task::Discard(_) => unreachable!("it needs no plan"),
    };
    (planned, Vec::new())
}

/// True if a write must leave absent columns unchanged. Logged blocks may complete a stripe of a group that has lost
/// more columns than the code survives. Even then no block of an absent column changes: if the drive of the column was
/// among the last to leave, it holds the column as it is, and that column counts as soon as the drive is back.
fn keeps_absent_columns(cx: &Context, op: &Op) -> bool {
    let columns = cx.view().columns(&cx.geometry, op.group);
    let absent = columns.iter().filter(|column| !column.readable()).count();
    cx.geometry.regions().is_some()
        && matches!(op.task, Task::Write(_))
        && !cx.geometry.layout().has_spare_space()
        && cx.geometry.stripes_use_all_columns()
        && absent > usize::from(cx.geometry.code().tolerance())
}

/// The fault of an operation that needs more blocks than are available. If no column is missing, only this range cannot
/// be read: a medium error.
pub(crate) fn fault_of_loss(cx: &Context, op: &Op) -> Fault {
    let columns = cx.view().columns(&cx.geometry, op.group);
    let whole = columns.iter().all(|column| column.source.is_some());
    match whole && op.found.read_fault == Some(Fault::Medium) {
        true => Fault::Medium,
        false => Fault::Lost,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use format::{Entry, Form, GroupId, Sequence};
    use plan::Kind;

    use super::super::lab::{self, Lab};
    use super::*;
    use crate::blocks::block;
    use crate::ids::{JobId, OpId};
    use crate::overlay::{Bytes, Logged};
    use crate::pages::PageCache;

    pub(in crate::ops) fn slots(cx: &Context) -> Vec<usize> {
        cx.geometry.code().data_slots().collect()
    }

    /// A read of a block of the first data element, and the column of that element.
    pub(in crate::ops) fn reads() -> (Lab, Column) {
        let mut lab = Lab::new(Task::Scrub);
        let slot = slots(&lab.cx)[0];
        lab.op.task = lab::read(slot, 1);
        let (column, _) = lab
            .cx
            .geometry
            .place(GroupId(0), StripeId(1), Form::Parity, slot);
        (lab, column)
    }

    /// The other columns, in order.
    fn others(column: Column) -> Vec<Column> {
        (0..6)
            .map(Column)
            .filter(|&other| other != column)
            .collect()
    }

    impl Lab {
        fn begin(&self) -> Beginning {
            let known = Known {
                cx: &self.cx,
                ios: &self.ios,
                overlay: &self.overlay,
                pages: &self.pages,
            };
            begin(&Balance::new(&self.cx.geometry), &known, &self.op)
        }

        fn closely(&mut self) -> Planned {
            let entries = Entries {
                overlay: &self.overlay,
                pages: &self.pages,
            };
            let op = (&mut self.op, &mut self.plans);
            closely(&mut self.cx, &self.ios, entries, &StripeMaps::default(), op)
        }

        pub(in crate::ops) fn planned(&mut self) -> Plan {
            match self.closely() {
                Planned::Plan(plan, _) => plan,
                other => panic!("{other:?} is no plan"),
            }
        }

        fn suspect(&mut self, column: Column) {
            let seat = self.cx.geometry.home(GroupId(0), column).seat;
            self.ios.suspect(seat, true);
        }
    }

    #[test]
    fn zeros_are_logged_and_those_of_a_job_make_their_group_unwritten() {
        let mut lab = Lab::new(Task::Zero);
        assert!(matches!(lab.begin(), Beginning::LogZeroes));
        lab.op.owner = Owner::Job(JobId(1));
        assert!(matches!(lab.begin(), Beginning::Blank));
        let bare = Lab::without_journal(Task::Zero);
        assert!(matches!(bare.begin(), Beginning::Closely));
    }

    #[test]
    fn what_is_logged_again_or_discarded_needs_no_plan() {
        let again = Lab::new(Task::Relog(Vec::new()));
        assert!(matches!(again.begin(), Beginning::Relog));
        let what = Discarded::Stripes;
        let discard = Lab::new(Task::Discard(what));
        assert!(matches!(discard.begin(), Beginning::Discard(it) if it == what));
    }

    #[test]
    fn a_read_of_what_is_in_place_begins_at_once() {
        let (mut lab, column) = reads();
        let Beginning::Read(plan) = lab.begin() else {
            panic!("it is there");
        };
        assert_eq!(plan.reads.len(), 1);
        assert_eq!(plan.reads[0].column, column);
        lab.op.found.bad.insert((column, 4));
        assert!(matches!(lab.begin(), Beginning::Closely));
    }

    #[test]
    fn rows_in_doubt_are_read_before_all_else() {
        let (mut lab, _) = reads();
        lab.op.found.arbitration.begin([(lab::ROW, 1)].into());
        assert!(matches!(lab.begin(), Beginning::Trials));
    }

    #[test]
    fn pages_that_are_not_here_are_read_first() {
        let (mut lab, column) = reads();
        lab.out(column);
        lab.pages = PageCache::new(64);
        let Planned::Pages(names) = lab.closely() else {
            panic!("nothing is known");
        };
        assert!(!names.is_empty());
        assert!(lab.op.memory.pinned.is_empty());
    }

    #[test]
    fn more_than_the_code_survives_is_lost() {
        let (mut lab, column) = reads();
        lab.out(column);
        lab.out(others(column)[0]);
        assert!(matches!(lab.closely(), Planned::Plan(..)));
        lab.out(others(column)[1]);
        assert!(matches!(lab.closely(), Planned::Lost));
    }

    #[test]
    fn a_late_drive_is_read_around_as_long_as_there_is_a_way() {
        let (mut lab, column) = reads();
        lab.suspect(column);
        let plan = lab.planned();
        assert!(plan.reads.iter().all(|read| read.column != column));
        for other in &others(column)[..2] {
            lab.out(*other);
        }
        assert!(matches!(lab.closely(), Planned::Wait));
        assert!(lab.op.detour.waits);
        let plan = lab.planned();
        assert_eq!(plan.reads[0].column, column);
    }

    #[test]
    fn late_blocks_are_forgotten_where_there_is_no_way_around_them() {
        let (mut lab, column) = reads();
        lab.op.detour.avoid.insert((column, 4));
        let plan = lab.planned();
        assert!(plan.reads.iter().all(|read| read.column != column));
        for other in &others(column)[..2] {
            lab.out(*other);
        }
        assert!(matches!(lab.closely(), Planned::Wait));
        assert!(lab.op.detour.avoid.is_empty());
    }

    #[test]
    fn what_a_drive_could_not_read_is_asked_for_again_before_it_is_lost() {
        let (mut lab, column) = reads();
        for other in &others(column)[..2] {
            lab.out(*other);
        }
        for _ in 0..READ_RETRIES {
            lab.op.found.bad.insert((column, 4));
            lab.op.found.read_fault = Some(Fault::Medium);
            assert!(matches!(lab.closely(), Planned::Retry));
            assert!(lab.op.found.bad.is_empty());
        }
        lab.op.found.bad.insert((column, 4));
        assert!(matches!(lab.closely(), Planned::Lost));
    }

    #[test]
    fn while_a_drive_is_gone_and_not_judged_a_repair_gives_nothing_up() {
        let (mut lab, column) = reads();
        let slot = slots(&lab.cx)[0];
        lab.op.task = Task::Repair(Repair::of_test(vec![(slot, 0)]));
        for other in &others(column)[..2] {
            lab.out(*other);
        }
        lab.op.found.bad.insert((column, 4));
        assert!(!lab.planned().lost.is_empty(), "it is lost");
        let Task::Repair(repair) = &lab.op.task else {
            panic!("it is a repair");
        };
        let lost = repair.assessed.len();
        assert_eq!(lost, 1, "and named by the data of the stripe");
        lab.op.found.read_fault = Some(Fault::Gone);
        assert!(matches!(lab.closely(), Planned::Lost));
    }

    #[test]
    fn a_block_of_which_nothing_is_known_is_noted_where_its_column_is() {
        let (mut lab, column) = reads();
        lab.pages.set(block(column, 4), Entry::UNKNOWN);
        lab.planned();
        assert_eq!(lab.op.found.unknown, [(column, 4)].into());
        lab.out(column);
        lab.planned();
        assert!(lab.op.found.unknown.is_empty());
    }

    #[test]
    fn a_plan_pins_the_batches_whose_memory_it_uses() {
        let (mut lab, column) = reads();
        let logged = Logged {
            bytes: Bytes::Memory(lab::memory(32, 1)),
            entry: Entry::WRITTEN,
            sequence: Sequence(12),
        };
        lab.overlay.insert(block(column, 4), logged);
        let plan = lab.planned();
        assert!(plan.reads.is_empty() && plan.steps.len() == 1);
        assert_eq!(lab.op.memory.pinned, [Sequence(12)]);
    }

    #[test]
    fn a_loss_without_missing_columns_is_a_medium_error() {
        let (mut lab, column) = reads();
        assert_eq!(fault_of_loss(&lab.cx, &lab.op), Fault::Lost);
        lab.op.found.read_fault = Some(Fault::Medium);
        assert_eq!(fault_of_loss(&lab.cx, &lab.op), Fault::Medium);
        lab.out(others(column)[0]);
        assert_eq!(fault_of_loss(&lab.cx, &lab.op), Fault::Lost);
    }

    #[test]
    fn a_second_read_plans_as_its_reader_does() {
        let (mut lab, column) = reads();
        lab.op.owner = Owner::Hedge(OpId(1));
        lab.op.detour.avoid.insert((column, 4));
        let plan = lab.planned();
        assert_eq!(plan.kind, Kind::DegradedRead);
    }
}
