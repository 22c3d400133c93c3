//! Computations and writes of operations: what is computed next, where the result goes, and the next step when it is
//! written.

use block::{Fault, Outcome, Seat};
use erasure::ElementSet;
use format::seeded::{self, SeededFault};
use plan::action::Compute;
use plan::{SubStripePlans, Transfer};

use super::compare::{must_check, sums_to_check};
use crate::context::Context;
use crate::op::{Op, Owner, Phase, Task};
use crate::records;

/// The computation of an operation.
#[derive(Debug)]
pub(crate) enum Computation {
    /// Nothing: the bytes of a read are where they belong, and the read ends.
    ReadEnds,
    /// Nothing: the operation goes on at once.
    Nothing,
    /// This computation, which is in flight now.
    Begins(Compute),
}

/// The next step when all is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterComputation {
    /// Its blocks are put together: it is planned again.
    Plan,
    /// A direct write waits for the other stripes of its turn.
    Gather,
    /// Its blocks are logged.
    Log,
    /// A fill writes in place, unless it must wait for a checkpoint.
    Fill,
    /// It writes in place, if it writes anything.
    Write,
}

/// The next step when all writes in place have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterWrites {
    /// Its blocks are logged.
    Log,
    /// Some of the writes have happened and some have not: parity is computed again from the data that is there now.
    /// The request fails in any case.
    Resync,
    End(Outcome),
}

/// The next computation of an operation.
pub(crate) fn computation(cx: &Context, op: &mut Op) -> Computation {
    let plan = op.plan.as_ref().expect("it was planned");
    let open = op.found.arbitration.is_trying() || must_check(cx, op);
    if matches!(op.task, Task::Read(_))
        && plan.steps.is_empty()
        && op.memory.puts.is_empty()
        && !open
    {
        // Nearly all reads end here.
        return Computation::ReadEnds;
    }
    let (sums, count) = match open {
        true => sums_to_check(cx, op),
        false => (records::sums_of_writes(cx, op), plan.steps.len()),
    };
    let plan = op.plan.as_mut().expect("it was planned");
    let later = plan.steps.split_off(count);
    let steps = std::mem::replace(&mut plan.steps, later);
    let puts = std::mem::take(&mut op.memory.puts);
    if steps.is_empty() && sums.is_empty() && puts.is_empty() {
        return Computation::Nothing;
    }
    op.phase = Phase::Computing;
    Computation::Begins(Compute {
        puts,
        steps,
        sums,
        ..Compute::default()
    })
}

/// The computation of an operation has ended, and the blocks that it reconstructs are right.
pub(crate) fn computed(cx: &Context, op: &mut Op) -> AfterComputation {
    let journaled = cx.geometry.regions().is_some();
    match &mut op.task {
        Task::Write(prepared) if !prepared.is_staged() => {
            prepared.filled();
            AfterComputation::Plan
        }
        Task::Write(_) if op.direct.is_some() => AfterComputation::Gather,
        Task::Convert(convert) if !convert.chosen.is_empty() => AfterComputation::Gather,
        // Repairs of recovery write in place: the content that they replace does not count.
        Task::Write(_) | Task::Repair(_) | Task::Relog(_)
            if journaled && op.owner != Owner::Recovery =>
        {
            AfterComputation::Log
        }
        Task::Fill { .. } if journaled => AfterComputation::Fill,
        _ => AfterComputation::Write,
    }
}

/// True if the drive that an operation fills is out.
pub(crate) fn lacks_target(cx: &Context, op: &Op) -> bool {
    matches!(&op.task, Task::Fill { target, .. } if cx.view().is_out(target.seat))
        && !seeded::is(SeededFault::FillBeforeJoined)
}

/// The writes of an operation in place, without those to drives that are out. They are in flight from now on.
pub(crate) fn begin_writes(cx: &Context, op: &mut Op) -> Vec<Transfer> {
    let plan = op.plan.as_ref().expect("it was planned");
    let there = |write: &&Transfer| !cx.view().is_out(write.seat);
    let writes: Vec<Transfer> = plan.writes.iter().filter(there).copied().collect();
    op.begin_writes(writes.len() as u64);
    writes
}

/// All writes of an operation have ended, and the pool has decided about drives that have failed one.
pub(crate) fn written(cx: &Context, (op, plans): (&mut Op, &mut SubStripePlans)) -> AfterWrites {
    if op.direct.is_some() {
        return AfterWrites::Log;
    }
    if let Some(fault) = op.fault {
        let journaled = cx.geometry.regions().is_some();
        if journaled || !matches!(op.task, Task::Write(_) | Task::Zero) {
            return AfterWrites::End(Err(fault));
        }
        op.task = Task::Resync;
        return AfterWrites::Resync;
    }
    match is_durable(cx, op, plans) {
        true => AfterWrites::End(Ok(())),
        false => AfterWrites::End(Err(Fault::Lost)),
    }
}

/// True if the writes of an operation can be read back without the drives that went out meanwhile.
fn is_durable(cx: &Context, op: &Op, plans: &mut SubStripePlans) -> bool {
    let plan = op.plan.as_ref().expect("it was planned");
    let is_out = |seat: Seat| cx.view().is_out(seat);
    if !plan.writes.iter().any(|write| is_out(write.seat)) {
        return true;
    }
    let code = cx.geometry.code_of(op.form());
    let columns = cx.view().columns(&cx.geometry, op.group);
    let mut there = ElementSet::new(code.elements());
    for slot in 0..code.elements() {
        let (column, _) = cx
            .geometry
            .place(op.group, op.stripes.start, op.form(), slot);
        if columns[column.index()].writable() {
            there.insert(slot);
        }
    }
    let data: ElementSet = code.data_slots().collect();
    plans.recover(code, &there, &data).is_ok()
}

#[cfg(test)]
mod tests {
    use format::{Column, GroupId};
    use plan::action::{ComputeStep, IoKind};
    use plan::{Recovered, ScratchId};

    use super::super::lab::{self, Lab};
    use super::*;
    use crate::direct_writes::DirectWrites;
    use crate::ids::JobId;
    use crate::op::{Direct, Prepared, Repair, Staging};

    fn step() -> ComputeStep {
        ComputeStep {
            target: lab::memory(0, 1),
            accumulate: false,
            terms: Vec::new(),
        }
    }

    fn write() -> Task {
        Task::Write(Prepared::of(Vec::new()))
    }

    fn fill(lab: &Lab) -> Task {
        Task::Fill {
            column: Column(2),
            target: lab.cx.geometry.home(GroupId(0), Column(2)),
            avoid: Vec::new(),
            held: None,
        }
    }

    impl Lab {
        /// The operation writes a block of this column.
        fn writes(mut self, column: Column) -> Self {
            let write = self.transfer(column, IoKind::Write, 1);
            self.plan().writes.push(write);
            self
        }

        fn computation(&mut self) -> Computation {
            computation(&self.cx, &mut self.op)
        }

        /// The numbers of steps and checksums that are computed.
        fn begins(&mut self) -> (usize, usize) {
            match self.computation() {
                Computation::Begins(work) => (work.steps.len(), work.sums.len()),
                other => panic!("{other:?} computes nothing"),
            }
        }

        fn computed(&mut self) -> AfterComputation {
            computed(&self.cx, &mut self.op)
        }

        fn written(&mut self) -> AfterWrites {
            written(&self.cx, (&mut self.op, &mut self.plans))
        }
    }

    #[test]
    fn a_read_whose_bytes_are_where_they_should_be_ends() {
        let mut lab = Lab::new(lab::read(0, 1));
        assert!(matches!(lab.computation(), Computation::ReadEnds));
        lab.plan().steps.push(step());
        assert_eq!(lab.begins(), (1, 0));
        assert_eq!(lab.op.phase, Phase::Computing);
    }

    #[test]
    fn what_has_nothing_to_compute_goes_on_at_once() {
        let mut lab = Lab::new(Task::Scrub);
        assert!(matches!(lab.computation(), Computation::Nothing));
    }

    #[test]
    fn the_blocks_of_a_write_are_summed_with_its_steps() {
        let mut lab = Lab::new(write()).writes(Column(1)).writes(Column(5));
        lab.plan().steps.push(step());
        assert_eq!(lab.begins(), (1, 2));
    }

    #[test]
    fn what_is_reconstructed_is_summed_before_the_rest_is_computed() {
        let mut lab = Lab::new(write()).writes(Column(1));
        lab.plan().steps = vec![step(), step(), step()];
        lab.plan().first_steps = 2;
        lab.plan().recovered.push(Recovered {
            column: Column(3),
            offset: 4 * block::BLOCK_BYTES,
            slice: lab::memory(0, 1),
            row: lab::ROW,
        });
        assert_eq!(lab.begins(), (2, 1));
        lab.op.found.checked = true;
        assert_eq!(lab.begins(), (1, 1), "the last step, and what is written");
    }

    #[test]
    fn a_write_is_planned_again_when_its_blocks_are_put_together_and_then_logged() {
        let mut lab = Lab::new(write());
        let Task::Write(prepared) = &mut lab.op.task else {
            unreachable!();
        };
        prepared.staging = Staging::Provided(ScratchId(9), 4096);
        assert_eq!(lab.computed(), AfterComputation::Plan);
        assert_eq!(lab.computed(), AfterComputation::Log);
    }

    #[test]
    fn what_goes_in_place_before_it_is_logged_is_gathered() {
        let mut lab = Lab::new(write());
        lab.op.direct = Some(Box::new(Direct {
            sums: Vec::new(),
            failed: false,
            turn: DirectWrites::default().begin(),
            charged: Vec::new(),
        }));
        assert_eq!(lab.computed(), AfterComputation::Gather);
        assert_eq!(lab.written(), AfterWrites::Log);
    }

    #[test]
    fn repairs_are_logged_but_for_those_of_recovery_and_in_pools_without_a_journal() {
        let mut lab = Lab::new(Task::Repair(Repair::default()));
        assert_eq!(lab.computed(), AfterComputation::Log);
        lab.op.owner = Owner::Recovery;
        assert_eq!(lab.computed(), AfterComputation::Write);
        let mut bare = Lab::without_journal(write());
        assert_eq!(bare.computed(), AfterComputation::Write);
    }

    #[test]
    fn a_fill_writes_in_place_unless_its_target_is_out() {
        let mut lab = Lab::new(Task::Scrub);
        lab.op.task = fill(&lab);
        lab.op.owner = Owner::Job(JobId(1));
        assert_eq!(lab.computed(), AfterComputation::Fill);
        assert!(!lacks_target(&lab.cx, &lab.op));
        lab.out(Column(2));
        assert!(lacks_target(&lab.cx, &lab.op));
        assert!(!lacks_target(&lab.cx, &Lab::new(write()).op));
    }

    #[test]
    fn nothing_is_written_to_a_drive_that_is_out() {
        let mut lab = Lab::new(Task::Resync).writes(Column(1)).writes(Column(2));
        lab.out(Column(1));
        let columns = begin_writes(&lab.cx, &mut lab.op).into_iter();
        let columns: Vec<Column> = columns.map(|write| write.column).collect();
        assert_eq!(columns, [Column(2)]);
        assert!(lab.op.is_in_flight());
    }

    #[test]
    fn what_is_written_well_ends_well_and_a_fault_is_its_outcome() {
        let mut lab = Lab::new(Task::Resync).writes(Column(1));
        assert_eq!(lab.written(), AfterWrites::End(Ok(())));
        lab.op.fault = Some(Fault::Full);
        assert_eq!(lab.written(), AfterWrites::End(Err(Fault::Full)));
    }

    #[test]
    fn without_a_journal_parity_follows_what_of_a_failed_write_is_there() {
        let mut bare = Lab::without_journal(write());
        bare.op.fault = Some(Fault::Medium);
        assert_eq!(bare.written(), AfterWrites::Resync);
        assert!(matches!(bare.op.task, Task::Resync));
        assert_eq!(bare.written(), AfterWrites::End(Err(Fault::Medium)));
        let mut lab = Lab::new(write());
        lab.op.fault = Some(Fault::Medium);
        assert_eq!(lab.written(), AfterWrites::End(Err(Fault::Medium)));
    }

    #[test]
    fn what_was_written_to_drives_that_have_left_since_is_there_if_the_rest_suffices() {
        let mut lab = Lab::new(Task::Resync).writes(Column(1)).writes(Column(2));
        lab.out(Column(1));
        lab.out(Column(2));
        assert_eq!(lab.written(), AfterWrites::End(Ok(())));
        lab.out(Column(3));
        assert_eq!(lab.written(), AfterWrites::End(Err(Fault::Lost)));
    }
}
