//! Reads of operations: the next step when one has ended, and the verification of what was read.

use block::{BLOCK_BYTES, Fault, Outcome};
use format::BlockName;
use format::seeded::{self, SeededFault};
use plan::Transfer;
use plan::action::Slice;

use crate::context::Context;
use crate::known_losses::KnownLosses;
use crate::maps::StripeMaps;
use crate::op::{Op, Phase, Task};
use crate::verify::BadBlock;

/// The next step when a read has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterRead {
    /// Other reads are in flight.
    Wait,
    /// The drive cannot read some of the range: both halves are read, to find the bad blocks. The other blocks are
    /// valid, and are needed where more drives than the code survives have a bad block each.
    Halves([Transfer; 2]),
    /// Some blocks are not available: the operation is planned again without them.
    Again,
    /// No source is left.
    Lost,
    /// All reads have ended: their content is verified.
    Verify,
}

/// A read of an operation has ended. `out`: its drive is out.
pub(crate) fn read_ended(
    cx: &Context,
    op: &mut Op,
    transfer: Transfer,
    outcome: Outcome,
    out: bool,
) -> AfterRead {
    let locked = op.is_locked();
    let Phase::Reading { in_flight, failed } = &mut op.phase else {
        unreachable!("its reads are in flight");
    };
    if outcome == Err(Fault::Medium) && !out && transfer.length > BLOCK_BYTES {
        *in_flight += 1;
        return AfterRead::Halves(halves(transfer));
    }
    if let Err(fault) = outcome {
        let block = cx.geometry.block_of(transfer.offset);
        let blocks = block..block + transfer.length / BLOCK_BYTES;
        op.found
            .bad
            .extend(blocks.map(|block| (transfer.column, block)));
        *failed = true;
        if op.found.read_fault != Some(Fault::Gone) {
            op.found.read_fault = Some(fault);
        }
    }
    *in_flight -= 1;
    if *in_flight > 0 {
        AfterRead::Wait
    } else if seeded::is(SeededFault::OneFailureOnly) && locked && outcome.is_err() && !out {
        AfterRead::Lost
    } else if *failed && !matches!(op.task, Task::Scrub) {
        AfterRead::Again
    } else {
        AfterRead::Verify
    }
}

/// The two parts of a read of more than one block.
fn halves(transfer: Transfer) -> [Transfer; 2] {
    let slice = transfer.slice.expect("reads have bytes");
    let middle = (transfer.length / BLOCK_BYTES / 2).max(1) * BLOCK_BYTES;
    [(0, middle), (middle, transfer.length)].map(|(from, to)| Transfer {
        offset: transfer.offset + from,
        length: to - from,
        slice: Some(slice.part(from, to - from)),
        ..transfer
    })
}

/// True if a failed read is new information about its drive. The halves of a failed read are not; and a drive must not
/// go out because clients read again and again what is known to be lost.
pub(crate) fn is_news(
    cx: &Context,
    losses: &KnownLosses,
    maps: &StripeMaps,
    op: &Op,
    transfer: Transfer,
) -> bool {
    let knows = |transfer: &Transfer| {
        let mut blocks = transfer.blocks(&cx.geometry);
        blocks.any(|block| {
            let name = BlockName {
                group: op.group,
                column: transfer.column,
                block: u32::try_from(block).expect("cells have fewer than 2^32 blocks"),
            };
            losses.has(cx, maps, name)
        })
    };
    let whole = |read: &&Transfer| {
        let end = transfer.offset + transfer.length;
        read.seat == transfer.seat
            && read.offset <= transfer.offset
            && end <= read.offset + read.length
    };
    let mut reads = op.plan.iter().flat_map(|plan| &plan.reads);
    match reads.find(whole) {
        Some(read) if *read != transfer => {
            transfer.length == BLOCK_BYTES && knows(read) && !knows(&transfer)
        }
        _ => !knows(&transfer),
    }
}

/// The memory of all reads of an operation, for their checksums; `None` if they need no verification.
pub(crate) fn sums_to_verify(cx: &Context, op: &Op) -> Option<Vec<Slice>> {
    let plan = op.plan.as_ref().expect("it was planned");
    if cx.geometry.regions().is_none() || cx.trusted || plan.reads.is_empty() {
        return None;
    }
    Some(plan.reads.iter().filter_map(|read| read.slice).collect())
}

/// So many blocks of an operation were verified, and these are bad. True if the operation goes on with the blocks that
/// it has read; else it is planned again, without the bad ones.
pub(crate) fn note_verified(op: &mut Op, blocks: u64, bad: &[BadBlock]) -> bool {
    op.found.verified += blocks;
    let names = bad.iter().map(|bad| bad.name);
    op.found
        .bad
        .extend(names.map(|name| (name.column, name.block.into())));
    bad.is_empty() || matches!(op.task, Task::Scrub)
}

#[cfg(test)]
mod tests {
    use format::{Column, DataStripe, GroupId};
    use plan::LostRange;
    use plan::action::IoKind;

    use super::super::lab::{self, Lab};
    use super::*;
    use crate::op::Lock;

    /// A read of so many blocks of columns 1 and 2.
    fn reading(blocks: u64) -> Lab {
        let mut lab = Lab::new(lab::read(0, blocks));
        for column in [1, 2].map(Column) {
            let read = lab.transfer(column, IoKind::Read, blocks);
            lab.plan().reads.push(read);
        }
        lab.op.begin_reads(2);
        lab
    }

    impl Lab {
        /// The read of a column ends. `out`: its drive is out.
        fn read_ends(&mut self, column: Column, outcome: Outcome, out: bool) -> AfterRead {
            let mut reads = self.plan().reads.iter();
            let read = *reads.find(|read| read.column == column).unwrap();
            read_ended(&self.cx, &mut self.op, read, outcome, out)
        }

        fn is_news(&self, losses: &KnownLosses, transfer: Transfer) -> bool {
            is_news(&self.cx, losses, &StripeMaps::default(), &self.op, transfer)
        }
    }

    /// Block 4 of the stripe's columns is known to be lost.
    fn known(lab: &Lab) -> KnownLosses {
        let slot = lab.cx.geometry.code().data_slots().next().unwrap();
        let first = lab.cx.geometry.data_block(DataStripe(1), slot, 0).unwrap();
        let mut losses = KnownLosses::default();
        losses.know(&[LostRange {
            group: GroupId(0),
            first,
            blocks: 1,
        }]);
        losses
    }

    #[test]
    fn what_is_read_is_verified_with_the_last_read() {
        let mut lab = reading(1);
        assert_eq!(lab.read_ends(Column(1), Ok(()), false), AfterRead::Wait);
        assert_eq!(lab.read_ends(Column(2), Ok(()), false), AfterRead::Verify);
        assert!(lab.op.found.bad.is_empty());
    }

    #[test]
    fn a_block_that_cannot_be_read_is_planned_around_when_all_have_ended() {
        let mut lab = reading(1);
        let fault = Err(Fault::Medium);
        assert_eq!(lab.read_ends(Column(1), fault, false), AfterRead::Wait);
        assert_eq!(lab.read_ends(Column(2), Ok(()), false), AfterRead::Again);
        assert_eq!(lab.op.found.bad, [(Column(1), 4)].into());
        assert_eq!(lab.op.found.read_fault, Some(Fault::Medium));
    }

    #[test]
    fn of_a_range_that_a_drive_cannot_read_both_halves_are_read() {
        let mut lab = reading(3);
        let AfterRead::Halves([low, high]) = lab.read_ends(Column(1), Err(Fault::Medium), false)
        else {
            panic!("its blocks are looked for");
        };
        let offset = lab.plan().reads[0].offset;
        assert_eq!((low.offset, low.length), (offset, BLOCK_BYTES));
        let second = (offset + BLOCK_BYTES, 2 * BLOCK_BYTES);
        assert_eq!((high.offset, high.length), second);
        assert_eq!(high.slice, Some(lab::memory(9, 2)));
        assert!(lab.op.found.bad.is_empty(), "it is not known yet which");
        let end = |lab: &mut Lab, part| read_ended(&lab.cx, &mut lab.op, part, Ok(()), false);
        assert_eq!(lab.read_ends(Column(2), Ok(()), false), AfterRead::Wait);
        assert_eq!(end(&mut lab, low), AfterRead::Wait);
        assert_eq!(end(&mut lab, high), AfterRead::Verify);
    }

    #[test]
    fn what_a_drive_was_asked_that_is_gone_is_bad_as_a_whole() {
        let mut lab = reading(3);
        assert_eq!(
            lab.read_ends(Column(1), Err(Fault::Gone), true),
            AfterRead::Wait
        );
        assert_eq!(
            lab.op.found.bad,
            [(Column(1), 4), (Column(1), 5), (Column(1), 6)].into()
        );
        let out = Err(Fault::Medium);
        assert_eq!(
            lab.read_ends(Column(2), out, true),
            AfterRead::Again,
            "no halves"
        );
    }

    #[test]
    fn that_a_drive_is_gone_is_remembered_before_other_faults() {
        let mut lab = reading(1);
        lab.read_ends(Column(1), Err(Fault::Gone), false);
        lab.read_ends(Column(2), Err(Fault::Medium), false);
        assert_eq!(lab.op.found.read_fault, Some(Fault::Gone));
    }

    #[test]
    fn a_scrub_verifies_the_rest() {
        let mut lab = reading(1);
        lab.op.task = Task::Scrub;
        lab.read_ends(Column(1), Err(Fault::Medium), false);
        assert_eq!(lab.read_ends(Column(2), Ok(()), false), AfterRead::Verify);
    }

    #[test]
    fn a_failed_read_is_news_unless_its_blocks_are_known_to_be_lost() {
        let lab = reading(1);
        let read = lab.op.plan.as_ref().unwrap().reads[0];
        assert!(lab.is_news(&KnownLosses::default(), read));
        assert!(!lab.is_news(&known(&lab), read));
    }

    #[test]
    fn a_half_is_news_only_as_the_first_block_that_was_not_known() {
        let lab = reading(3);
        let read = lab.op.plan.as_ref().unwrap().reads[0];
        let [low, high] = halves(read);
        assert!(!lab.is_news(&KnownLosses::default(), low), "the whole was");
        let losses = known(&lab);
        assert!(!lab.is_news(&losses, read));
        assert!(!lab.is_news(&losses, low), "it is known to be lost");
        let [second, _] = halves(high);
        assert!(lab.is_news(&losses, second));
    }

    #[test]
    fn nothing_is_verified_without_checksums() {
        let lab = reading(2);
        assert_eq!(
            sums_to_verify(&lab.cx, &lab.op).map(|sums| sums.len()),
            Some(2)
        );
        let mut trusted = reading(2);
        trusted.cx.trusted = true;
        assert_eq!(sums_to_verify(&trusted.cx, &trusted.op), None);
        let bare = Lab::without_journal(Task::Scrub);
        assert_eq!(sums_to_verify(&bare.cx, &bare.op), None);
        let nothing = Lab::new(Task::Scrub);
        assert_eq!(sums_to_verify(&nothing.cx, &nothing.op), None);
    }

    #[test]
    fn what_is_bad_is_planned_around_and_a_scrub_verifies_the_rest() {
        let mut lab = reading(1);
        lab.op.lock = Lock::Own;
        let read = lab.op.plan.as_ref().unwrap().reads.clone();
        let sums = [7, crate::pages::sum_of(crate::blocks::block(Column(2), 4))];
        let verified = crate::verify::verify(&lab.cx, lab.entries(), &lab.op, &sums);
        let crate::verify::Verified::Blocks(2, bad) = verified else {
            panic!("{read:?} were compared");
        };
        assert!(!note_verified(&mut lab.op, 2, &bad));
        assert_eq!(
            (lab.op.found.bad.clone(), lab.op.found.verified),
            ([(Column(1), 4)].into(), 2)
        );
        lab.op.task = Task::Scrub;
        assert!(note_verified(&mut lab.op, 2, &bad));
        assert!(note_verified(&mut lab.op, 1, &[]));
        assert_eq!(lab.op.found.verified, 5);
    }
}
