use std::collections::BTreeSet;
use std::time::Duration;

use block::{BLOCK_BYTES, Outcome, Seat};
use format::{Column, Generation, GroupId, Sequence, StripeId, VolumeId};
use plan::action::{Action, BufferId, Computed, Io, IoKind, Service, Slice};
use plan::{RequestId, ScratchId};

use super::batch::State;
use super::*;
use crate::blocks::block;
use crate::io::IoTable;
use crate::op::{Owner, Prepared};
use crate::purpose::Computing;
use testing::walk::{Changes, Machine};

/// The log of a small lane of six drives, of which two may fail. Its ring has room for 32 of the smallest batches: one
/// block of content and one of header, on three drives.
#[derive(Clone)]
struct Lab {
    log: Log,
    cx: Context,
    ios: IoTable,
    overlay: Overlay,
    held: bool,
    direct: usize,
    room_comes: bool,
    /// The number of the last operation.
    last: u64,
}

const RING_BLOCKS: u64 = 64;
const REFUSED: Outcome = Err(Fault::Medium);
const A: VolumeId = VolumeId(10);

fn at(millis: u64) -> Instant {
    Instant(millis * 1_000_000)
}

impl Lab {
    fn new() -> Self {
        let mut log = Log::default();
        log.go_on(Recovered {
            ring: Ring::new(RING_BLOCKS),
            incarnation: Generation(3),
            first: Sequence(7),
            next: Sequence(7),
        });
        Self {
            log,
            cx: Context::of_test("raid6", 6),
            ios: IoTable::new(6),
            overlay: Overlay::default(),
            held: false,
            direct: 0,
            room_comes: true,
            last: 100,
        }
    }

    /// An operation logs a unit of so many blocks.
    fn push_unit(&mut self, op: &Op, blocks: u32) -> u64 {
        self.last += 1;
        let slice = |index: u32| Slice {
            buffer: BufferId::Request(RequestId(1)),
            offset: u64::from(index) * BLOCK_BYTES,
            length: BLOCK_BYTES,
        };
        let blocks = (0..blocks).map(|index| (block(Column(0), index), slice(index), index));
        let unit = Unit {
            blocks: blocks.collect(),
            ..Unit::of(OpId(self.last))
        };
        self.log.push(self.cx.now, op, vec![unit]);
        self.last
    }

    /// A client writes so many blocks, as a commit or as part of a stream.
    fn push(&mut self, blocks: u32, bulk: bool) -> u64 {
        let task = Task::Write(Prepared::of(Vec::new()));
        let mut op = Op::new(
            Owner::Request(RequestId(1)),
            GroupId(0),
            StripeId::range(0..1),
            task,
        );
        op.service = Service::of_client(A, bulk);
        op.begun = self.cx.now;
        self.push_unit(&op, blocks)
    }

    fn commit(&mut self) -> u64 {
        self.push(1, false)
    }

    fn stream(&mut self) -> u64 {
        self.push(12, true)
    }

    /// A preserved block is logged again.
    fn relog(&mut self) -> u64 {
        let op = Op::new(
            Owner::Background,
            GroupId(0),
            StripeId::range(0..1),
            Task::Relog(Vec::new()),
        );
        self.push_unit(&op, 1)
    }

    fn begin_if(&mut self, due: bool) -> Begun {
        let inputs = Inputs {
            ios: &self.ios,
            due,
            held: self.held,
            direct: self.direct,
            room_comes: self.room_comes,
        };
        self.log.begin(&mut self.cx, &mut self.overlay, inputs)
    }

    /// All inputs of this moment are known: the next batch begins, if it may.
    fn begin(&mut self) -> Begun {
        self.begin_if(true)
    }

    /// A batch that has begun is laid out. Returns the writes of its columns.
    fn write(&mut self, sequence: Sequence) -> Vec<Io> {
        self.cx.take_actions();
        let early = self.log.headed(&mut self.cx, &mut self.ios, sequence);
        assert_eq!(early, []);
        self.writes()
    }

    fn writes(&mut self) -> Vec<Io> {
        let actions = self.cx.take_actions().into_iter();
        let writes = actions.map(|action| match action {
            Action::Io(io) if io.kind == IoKind::Write => io,
            other => panic!("{other:?} is no write"),
        });
        writes.collect()
    }

    /// As many drives are out as the code survives, and one of the others has refused batch 7.
    fn refused_with_no_drive_to_spare() -> Self {
        let mut lab = Self::new();
        lab.seat_out(Seat(0));
        lab.seat_out(Seat(1));
        let (mut lab, writes) = lab.written();
        lab.end(Sequence(7), &writes, &[writes[0].seat]);
        lab
    }

    /// One commit is being written to its drives.
    fn written(mut self) -> (Self, Vec<Io>) {
        let sequence = self.log.next_sequence();
        self.commit();
        assert_eq!(self.begin(), Begun::Batch);
        let writes = self.write(sequence);
        (self, writes)
    }

    /// The writes of a batch's columns end. Those of the drives in `refusing` fail, and the pool keeps these drives.
    fn end(&mut self, sequence: Sequence, writes: &[Io], refusing: &[Seat]) {
        for io in writes {
            let refuses = refusing.contains(&io.seat);
            let outcome = if refuses { REFUSED } else { Ok(()) };
            self.log.written(sequence, io.seat, outcome, false);
        }
        for &seat in refusing {
            self.log.judged(seat, false);
        }
    }

    /// The batches that have ended now: sequence, result for the back-off, and outcome.
    fn ended(&mut self) -> Vec<(u64, Option<Outcome>, Outcome)> {
        let mut all = Vec::new();
        while let Some(ended) = self.log.next_ended(&mut self.cx) {
            all.push((ended.header.sequence.0, ended.tried, ended.outcome));
            assert!(!ended.ops.is_empty());
            // An operation that waits for the batch may log, or let a checkpoint continue, as soon as it gets the
            // outcome.
            assert!(ended.is_done || self.log.has_gaps());
        }
        all
    }

    /// The gaps that are filled, and the result for the back-off.
    fn filled(&mut self) -> (Vec<u64>, Option<Outcome>) {
        let filled = self.log.gaps_ended(&mut self.cx);
        let sequences = filled.sequences.iter().map(|sequence| sequence.0);
        (sequences.collect(), filled.tried)
    }

    /// Batch 7 is a gap: a drive refuses its column and stays.
    fn with_gap() -> (Self, Seat) {
        let (mut lab, writes) = Self::new().written();
        let seat = writes[1].seat;
        lab.end(Sequence(7), &writes, &[seat]);
        assert_eq!(lab.ended(), [(7, Some(REFUSED), REFUSED)]);
        assert!(lab.log.has_gaps());
        (lab, seat)
    }

    fn seat_out(&mut self, seat: Seat) {
        self.cx.change_view(|view, _| view.seat_out(seat));
    }
}

fn seats(writes: &[Io]) -> BTreeSet<Seat> {
    writes.iter().map(|io| io.seat).collect()
}

const TAKEN: Option<Outcome> = Some(Ok(()));

#[test]
fn a_lone_commit_begins_when_all_of_its_moment_is_known() {
    let mut lab = Lab::new();
    lab.commit();
    assert_eq!(lab.begin_if(false), Begun::Nothing);
    assert_eq!(lab.log.due_at(), Some(lab.cx.now));
    assert!(!lab.log.take_due(lab.cx.now, false, false), "more may come");
    assert!(!lab.log.take_due(lab.cx.now, true, true) && lab.log.due_at().is_none());
    lab.begin_if(false);
    assert!(lab.log.take_due(lab.cx.now, true, false));
    assert_eq!(lab.begin(), Begun::Batch);
    assert_eq!((lab.begin(), lab.log.due_at()), (Begun::Nothing, None));
}

#[test]
fn commits_that_come_while_one_is_written_share_the_next_batch() {
    let (mut lab, writes) = Lab::new().written();
    let ops = [lab.commit(), lab.commit()];
    assert_eq!(lab.begin(), Begun::Nothing);
    lab.end(Sequence(7), &writes, &[]);
    assert_eq!(lab.ended(), [(7, TAKEN, Ok(()))]);
    assert_eq!(lab.begin(), Begun::Batch);
    let writes = lab.write(Sequence(8));
    lab.end(Sequence(8), &writes, &[]);
    let ended = lab.log.next_ended(&mut lab.cx).expect("it is written");
    assert_eq!(ended.ops, ops.map(OpId));
}

#[test]
fn a_batch_begins_beside_another_one_when_enough_has_gathered() {
    let (mut lab, _) = Lab::new().written();
    for _ in 0..11 {
        lab.commit();
    }
    assert_eq!(lab.begin_if(false), Begun::Nothing);
    lab.commit();
    assert_eq!(lab.begin_if(false), Begun::Batch);
    for _ in 0..2 {
        lab.push(12, false);
        assert_eq!(lab.begin_if(false), Begun::Batch);
    }
    lab.push(12, false);
    assert_eq!(lab.begin_if(false), Begun::Nothing, "four are in flight");
}

#[test]
fn streams_have_two_batches_in_flight_while_commits_come() {
    for commits in [false, true] {
        let mut lab = Lab::new();
        if commits {
            lab.commit();
        }
        for _ in 0..2 {
            lab.stream();
            assert_eq!(lab.begin_if(false), Begun::Batch);
        }
        lab.stream();
        let third = if commits {
            Begun::Nothing
        } else {
            Begun::Batch
        };
        assert_eq!(lab.begin_if(false), third);
        lab.cx.now = at(3000);
        assert_eq!(
            lab.begin_if(false),
            if commits {
                Begun::Batch
            } else {
                Begun::Nothing
            }
        );
    }
}

#[test]
fn records_of_stripes_in_place_wait_for_those_on_their_way() {
    let mut lab = Lab::new();
    let task = Task::Write(Prepared::of(Vec::new()));
    let mut op = Op::new(
        Owner::Request(RequestId(1)),
        GroupId(0),
        StripeId::range(0..1),
        task,
    );
    op.service = Service::of_client(A, true);
    let unit = Unit {
        direct: vec![(block(Column(0), 0), vec![1, 2])],
        ..Unit::of(OpId(1))
    };
    lab.log.push(lab.cx.now, &op, vec![unit]);
    lab.direct = 2;
    assert_eq!(lab.begin(), Begun::Nothing);
    lab.direct = 1;
    assert_eq!(lab.begin(), Begun::Batch);
}

#[test]
fn a_block_is_copied_to_as_many_drives_as_survive_losses() {
    let (mut lab, writes) = Lab::new().written();
    assert_eq!((writes.len(), seats(&writes).len()), (3, 3));
    let offset = lab.cx.ring_offset(0);
    assert!(
        writes
            .iter()
            .all(|io| (io.offset, io.length) == (offset, 2 * BLOCK_BYTES))
    );
    assert!(
        writes.iter().all(|io| io.slice == writes[0].slice),
        "from one memory"
    );
    lab.end(Sequence(7), &writes, &[]);
    lab.ended();
    let (_, others) = lab.written();
    assert_ne!(writes[0].seat, others[0].seat, "another drive is first");
    assert_eq!(others[0].offset, offset + 2 * BLOCK_BYTES);
}

#[test]
fn headers_wait_for_checksums_that_do_not_follow_from_those_of_blocks() {
    let mut lab = Lab::new();
    lab.push(64, false);
    assert_eq!(lab.begin(), Begun::Batch);
    let compute = lab
        .cx
        .take_actions()
        .into_iter()
        .find_map(|action| match action {
            Action::Compute(compute) => Some(compute),
            _ => None,
        });
    let compute = compute.expect("blocks are copied");
    assert!(matches!(
        lab.cx.computes.remove(compute.id),
        Some(Computing::Laid(Sequence(7)))
    ));
    assert_eq!((compute.sums.len(), compute.puts.len()), (2, 0), "P and Q");
    let rows = usize::try_from(compute.sums[0].length / BLOCK_BYTES).unwrap();
    let sums = Computed {
        sums: (0..2 * u32::try_from(rows).unwrap()).collect(),
        ..Computed::default()
    };
    lab.log.laid(&mut lab.cx, Sequence(7), sums.clone());
    assert_eq!(lab.log.batches[&Sequence(7)].header.parity_crcs, sums.sums);
    let [Action::Compute(compute)] = &lab.cx.take_actions()[..] else {
        panic!("headers are put");
    };
    assert_eq!(compute.puts.len(), 6, "before each column");
    // With one data column all checksums are known.
    lab.log.batches.clear();
    lab.commit();
    assert_eq!(lab.begin(), Begun::Batch);
    let (_, last) = lab.cx.computes.iter().last().expect("it is laid out");
    assert!(matches!(last, Computing::Headed(Sequence(8))));
}

#[test]
fn batches_end_in_order() {
    let (mut lab, first) = Lab::new().written();
    lab.push(12, false);
    assert_eq!(lab.begin(), Begun::Batch);
    let second = lab.write(Sequence(8));
    lab.end(Sequence(8), &second, &[]);
    assert_eq!(lab.ended(), []);
    assert_eq!(lab.log.completed(), Sequence(6));
    lab.end(Sequence(7), &first, &[]);
    assert_eq!(lab.ended(), [(7, TAKEN, Ok(())), (8, TAKEN, Ok(()))]);
    assert_eq!(lab.log.completed(), Sequence(8));
    assert!(lab.log.is_idle());
}

#[test]
fn a_batch_waits_for_the_verdict_about_a_drive_that_refuses_it() {
    let (mut lab, writes) = Lab::new().written();
    for io in &writes {
        let outcome = if io.seat == writes[0].seat {
            REFUSED
        } else {
            Ok(())
        };
        lab.log.written(Sequence(7), io.seat, outcome, false);
    }
    assert_eq!(lab.ended(), []);
    lab.seat_out(writes[0].seat);
    lab.log.judged(writes[0].seat, true);
    assert_eq!(
        lab.ended(),
        [(7, TAKEN, Ok(()))],
        "it counts without that drive"
    );
    assert!(!lab.log.has_gaps() && !lab.log.is_blocked());
}

#[test]
fn what_drives_that_stay_refuse_is_a_gap_and_written_again_before_anything_else() {
    let (mut lab, seat) = Lab::with_gap();
    assert_eq!(lab.log.completed(), Sequence(6));
    lab.commit();
    assert_eq!(lab.begin(), Begun::Nothing);
    lab.log.write_gaps(&mut lab.cx, &mut lab.ios);
    let again = lab.writes();
    assert_eq!(seats(&again), BTreeSet::from([seat]), "what was refused");
    assert_eq!(again[0].offset, lab.cx.ring_offset(0), "where it was");
    assert!(lab.log.writes_gaps());
    assert_eq!(lab.filled(), (vec![], None));
    lab.end(Sequence(7), &again, &[]);
    assert_eq!(lab.filled(), (vec![7], TAKEN));
    assert_eq!(lab.log.completed(), Sequence(7));
    assert_eq!(lab.begin(), Begun::Batch);
}

#[test]
fn a_gap_that_is_refused_again_stays_one() {
    let (mut lab, seat) = Lab::with_gap();
    lab.log.write_gaps(&mut lab.cx, &mut lab.ios);
    let again = lab.writes();
    lab.end(Sequence(7), &again, &[seat]);
    assert_eq!(lab.filled(), (vec![], Some(REFUSED)));
    assert_eq!(lab.filled(), (vec![], None), "one try fails once");
    assert!(lab.log.has_gaps() && !lab.log.writes_gaps());
    assert_eq!(lab.log.gap_fault(), Some(Fault::Medium));
}

#[test]
fn a_batch_behind_a_gap_fails_with_it_and_is_complete_when_it_is_filled() {
    let (mut lab, first) = Lab::new().written();
    lab.push(12, false);
    assert_eq!(lab.begin(), Begun::Batch);
    let second = lab.write(Sequence(8));
    lab.end(Sequence(7), &first, &[first[0].seat]);
    lab.end(Sequence(8), &second, &[]);
    let gap = (7, Some(REFUSED), REFUSED);
    assert_eq!(lab.ended(), [gap, (8, None, REFUSED)]);
    lab.log.write_gaps(&mut lab.cx, &mut lab.ios);
    let again = lab.writes();
    lab.end(Sequence(7), &again, &[]);
    assert_eq!(lab.filled(), (vec![7], TAKEN));
    assert_eq!(lab.log.completed(), Sequence(8));
}

#[test]
fn a_gap_whose_drive_leaves_is_none() {
    let (mut lab, seat) = Lab::with_gap();
    lab.seat_out(seat);
    assert_eq!(
        lab.filled(),
        (vec![7], None),
        "a checkpoint is to make it unnecessary"
    );
    assert!(!lab.log.has_gaps() && lab.log.is_blocked());
}

#[test]
fn gaps_are_tried_once_for_each_checkpoint() {
    let (mut lab, _) = Lab::with_gap();
    assert!(lab.log.try_gaps() && !lab.log.try_gaps());
    lab.log.checkpoint_ended(Sequence(7));
    assert!(lab.log.try_gaps());
}

/// Two drives are out. So a batch is on one drive only when another refuses its column.
#[test]
fn a_batch_on_fewer_drives_than_it_should_be_blocks_the_log_until_a_checkpoint() {
    let mut lab = Lab::refused_with_no_drive_to_spare();
    assert_eq!(lab.ended(), [(7, Some(REFUSED), Ok(()))], "it is durable");
    assert!(lab.log.is_blocked() && lab.log.needs_checkpoint());
    lab.commit();
    assert_eq!(lab.begin(), Begun::Nothing);
    lab.log.checkpoint_ended(Sequence(7));
    assert!(lab.log.is_blocked(), "the checkpoint holds it back");
    lab.log.checkpoint_ended(Sequence(8));
    assert_eq!(lab.begin(), Begun::Batch);
}

/// Regression: blocks that only the journal had were released, because they could not be logged again.
#[test]
fn while_a_batch_is_in_the_way_only_preserved_blocks_are_logged() {
    let mut lab = Lab::refused_with_no_drive_to_spare();
    lab.ended();
    assert_eq!(lab.log.blocked(), Some(Sequence(7)));
    lab.commit();
    let again = lab.relog();
    lab.stream();
    assert_eq!(lab.begin(), Begun::Batch);
    assert_eq!(lab.begin(), Begun::Nothing, "commits and streams wait");
    let writes = lab.write(Sequence(8));
    for io in &writes {
        lab.log.written(Sequence(8), io.seat, Ok(()), false);
    }
    let ended = lab.log.next_ended(&mut lab.cx).expect("it has ended");
    assert_eq!(ended.ops, [OpId(again)]);
    assert!(lab.log.is_blocked(), "until a checkpoint moves the tail");
    lab.log.checkpoint_ended(Sequence(8));
    assert_eq!(lab.begin(), Begun::Batch);
}

#[test]
fn operations_that_wait_for_the_log_can_be_refused_by_name() {
    let mut lab = Lab::new();
    let [one, other] = [lab.commit(), lab.commit()];
    let refused = lab.log.refuse_ops(&BTreeSet::from([OpId(one), OpId(99)]));
    assert_eq!(refused, [OpId(one)]);
    assert_eq!(lab.log.refuse_all(), [OpId(other)]);
}

#[test]
fn a_batch_whose_drives_have_all_left_is_lost() {
    let (mut lab, writes) = Lab::new().written();
    for io in &writes {
        lab.seat_out(io.seat);
        lab.log
            .written(Sequence(7), io.seat, Err(Fault::Gone), true);
    }
    assert_eq!(lab.ended(), [(7, None, Err(Fault::Lost))]);
}

/// Fills the ring with the smallest batches.
fn full() -> Lab {
    let mut lab = Lab::new();
    for _ in 0..RING_BLOCKS / 2 {
        let sequence = lab.log.next_sequence();
        let (next, writes) = lab.written();
        lab = next;
        lab.end(sequence, &writes, &[]);
        lab.ended();
    }
    lab
}

#[test]
fn a_full_ring_waits_for_a_checkpoint() {
    let mut lab = full();
    assert!(lab.log.wants_checkpoint(&lab.cx, &lab.overlay));
    lab.commit();
    assert_eq!(lab.begin(), Begun::NoRoom);
    assert!(lab.log.still_waits_for_room() && lab.log.needs_checkpoint());
    lab.log.checkpoint_ended(Sequence(9));
    assert_eq!(lab.begin(), Begun::Batch, "7 and 8 are released");
    assert!(!lab.log.is_out_of_space());
}

#[test]
fn what_waits_is_refused_when_no_checkpoint_can_make_room() {
    let mut lab = full();
    let op = lab.commit();
    lab.log.installs_ended(Some(Fault::Full));
    assert_eq!(lab.begin(), Begun::NoRoom, "one is under way");
    lab.room_comes = false;
    assert_eq!(lab.begin(), Begun::Full(Fault::Full));
    assert_eq!(lab.log.refuse_all(), [OpId(op)]);
    assert!(!lab.log.waits());
}

#[test]
fn without_drives_nothing_is_logged() {
    let mut lab = Lab::new();
    (0..6).for_each(|seat| lab.seat_out(Seat(seat)));
    lab.commit();
    lab.room_comes = false;
    assert_eq!(lab.begin(), Begun::Full(Fault::Lost));
    assert_eq!(lab.log.next_sequence(), Sequence(7));
}

#[test]
fn streams_leave_room_for_commits() {
    let mut lab = Lab::new();
    for sequence in (7..7 + RING_BLOCKS * 3 / 8).map(Sequence) {
        lab.push(1, true);
        assert_eq!(lab.begin(), Begun::Batch);
        let writes = lab.write(sequence);
        lab.end(sequence, &writes, &[]);
        lab.ended();
    }
    lab.push(1, true);
    assert_eq!(lab.begin(), Begun::NoRoom);
    lab.commit();
    assert_eq!(lab.begin(), Begun::Batch);
}

#[test]
fn nothing_is_logged_beyond_the_memory_of_batches() {
    let mut lab = Lab::new();
    let all = batch_memory(&lab.cx);
    lab.overlay
        .add_buffer(Sequence(1), ScratchId(1), all - 1, Vec::new());
    lab.commit();
    assert_eq!(lab.begin(), Begun::Batch);
    lab.overlay
        .add_buffer(Sequence(2), ScratchId(2), 1, Vec::new());
    lab.push(12, false);
    assert_eq!(lab.begin(), Begun::NoRoom);
}

#[test]
fn what_is_preserved_makes_way_for_clients_and_not_for_itself() {
    let mut lab = full();
    let (_, relog) = (lab.commit(), lab.relog());
    assert_eq!(lab.begin(), Begun::NoRoom);
    assert_eq!(lab.log.refuse_relogs(), [OpId(relog)]);
    assert!(lab.log.still_waits_for_room());
    let mut lab = full();
    let relog = lab.relog();
    assert_eq!(lab.begin(), Begun::NoRoom);
    assert_eq!(lab.log.refuse_relogs(), [OpId(relog)]);
    assert!(!lab.log.still_waits_for_room() && !lab.log.needs_checkpoint());
}

#[test]
fn what_is_logged_again_is_first() {
    let mut lab = Lab::new();
    let ops = [lab.commit(), lab.relog()];
    assert_eq!(lab.begin(), Begun::Batch);
    let units = &lab.log.batches[&Sequence(7)].units;
    let in_order: Vec<OpId> = units.iter().map(|unit| unit.op).collect();
    assert_eq!(in_order, [OpId(ops[1]), OpId(ops[0])]);
}

#[test]
fn those_that_have_waited_for_long_are_refused_alone() {
    let mut lab = Lab::new();
    let first = lab.commit();
    lab.cx.now += Duration::from_secs(3);
    lab.commit();
    assert_eq!(lab.log.refuse_overdue(at(2000)), [OpId(first)]);
    assert!(lab.log.waits());
}

#[test]
fn a_batch_begins_when_discards_have_ended() {
    let mut lab = Lab::new();
    lab.held = true;
    lab.commit();
    assert_eq!(lab.begin(), Begun::Nothing);
    lab.held = false;
    assert_eq!(lab.begin(), Begun::Batch);
}

#[test]
fn slow_drives_get_no_batches_while_enough_others_are_there() {
    let mut lab = Lab::new();
    (0..3).for_each(|seat| lab.ios.suspect(Seat(seat), true));
    let (mut lab, writes) = lab.written();
    assert_eq!(seats(&writes), BTreeSet::from([3, 4, 5].map(Seat)));
    lab.end(Sequence(7), &writes, &[]);
    lab.ended();
    lab.ios.suspect(Seat(3), true);
    lab.push(64, false);
    assert_eq!(lab.begin(), Begun::Batch);
    assert_eq!(
        lab.write(Sequence(8)).len(),
        6,
        "two would not survive two losses"
    );
}

#[test]
fn an_anchor_says_where_the_oldest_batch_is_that_counts() {
    let mut lab = full();
    lab.log.flush_covered(Sequence(9));
    let anchor = lab.log.next_anchor(Sequence(9));
    assert_eq!((anchor.first, anchor.position), (Sequence(9), 4));
    assert_eq!(
        (anchor.number, anchor.incarnation, anchor.inherited),
        (1, Generation(3), Sequence(6))
    );
    assert_eq!(lab.log.next_anchor(Sequence(9)).number, 2);
    assert_eq!(lab.log.flushed(), Sequence(9));
}

impl Lab {
    /// Nine drives, stripes of three columns of which one may fail: a commit is on two drives.
    fn narrow() -> Self {
        Self {
            cx: Context::of_test("ddp:2d:1p", 9),
            ios: IoTable::new(9),
            ..Self::new()
        }
    }

    /// A commit is complete on its drives, which have not been flushed.
    fn complete(self) -> (Self, Vec<Seat>) {
        let (mut lab, writes) = self.written();
        lab.end(Sequence(7), &writes, &[]);
        let ended = lab.log.next_ended(&mut lab.cx).expect("it is written");
        assert!(!ended.is_done, "its buffer may be needed");
        (lab, seats(&writes).into_iter().collect())
    }

    fn out_and_relocated(&mut self, seats: &[Seat]) {
        seats.iter().for_each(|&seat| self.seat_out(seat));
        self.log.relocate(&mut self.cx);
    }
}

#[test]
fn a_batch_that_its_drives_leave_before_a_flush_is_relocated() {
    let (mut lab, left) = Lab::narrow().complete();
    lab.out_and_relocated(&left[..1]);
    assert!(!lab.log.has_gaps(), "the other drive has it");
    lab.out_and_relocated(&left[1..]);
    assert!(lab.log.relocates());
    assert_eq!(lab.log.completed(), Sequence(6));
    assert_eq!(lab.filled(), (vec![], None), "it is being laid out");
    lab.commit();
    assert_eq!(lab.begin(), Begun::Nothing);
    let again = lab.write(Sequence(7));
    assert_eq!(seats(&again).len(), 2);
    assert!(seats(&again).iter().all(|seat| !left.contains(seat)));
    assert_eq!(again[0].offset, lab.cx.ring_offset(0), "where it was");
    lab.end(Sequence(7), &again, &[]);
    assert_eq!(
        lab.filled(),
        (vec![], TAKEN),
        "it stays in memory until a flush"
    );
    assert_eq!(lab.log.completed(), Sequence(7));
    assert_eq!(lab.log.flush_covered(Sequence(7)), [Sequence(7)]);
    assert_eq!(lab.begin(), Begun::Batch);
}

#[test]
fn a_relocated_batch_may_be_relocated_again() {
    let (mut lab, left) = Lab::narrow().complete();
    lab.out_and_relocated(&left);
    let again = lab.write(Sequence(7));
    for io in &again {
        lab.seat_out(io.seat);
        lab.log
            .written(Sequence(7), io.seat, Err(Fault::Gone), true);
    }
    assert_eq!(lab.filled(), (vec![], None));
    let third = lab.write(Sequence(7));
    assert!(seats(&third).is_disjoint(&seats(&again)));
    lab.end(Sequence(7), &third, &[]);
    assert_eq!(lab.filled(), (vec![], TAKEN));
}

#[test]
fn a_batch_that_its_drives_leave_while_it_is_written_is_relocated() {
    let (mut lab, writes) = Lab::narrow().written();
    for io in &writes {
        lab.seat_out(io.seat);
        lab.log
            .written(Sequence(7), io.seat, Err(Fault::Gone), true);
    }
    assert_eq!(lab.ended(), []);
    let again = lab.write(Sequence(7));
    lab.end(Sequence(7), &again, &[]);
    let ended = lab.log.next_ended(&mut lab.cx).expect("it is written");
    assert_eq!((ended.ops.len(), ended.outcome), (1, Ok(())));
}

#[test]
fn batches_behind_one_that_is_relocated_end_after_it() {
    let (mut lab, left) = Lab::narrow().complete();
    lab.commit();
    assert_eq!(lab.begin(), Begun::Batch);
    let writes = lab.write(Sequence(8));
    lab.end(Sequence(8), &writes, &[]);
    lab.out_and_relocated(&left);
    assert_eq!(lab.ended(), []);
    let again = lab.write(Sequence(7));
    lab.end(Sequence(7), &again, &[]);
    assert_eq!(lab.filled(), (vec![], TAKEN));
    let ended = lab.log.next_ended(&mut lab.cx).expect("it is written");
    assert_eq!(ended.outcome, Ok(()));
    assert_eq!(lab.log.completed(), Sequence(8));
}

#[test]
fn what_drives_refuse_of_a_relocated_batch_is_not_durable() {
    let (mut lab, left) = Lab::narrow().complete();
    lab.out_and_relocated(&left);
    let again = lab.write(Sequence(7));
    let both = [again[0].seat, again[1].seat];
    lab.end(Sequence(7), &again, &both);
    assert_eq!(lab.filled(), (vec![], Some(REFUSED)));
    assert!(!lab.log.relocates());
    assert_eq!(lab.log.relocation_fault(), Some(Fault::Medium));
    let covered = lab.log.flush_covered(Sequence(7));
    assert!(covered.is_empty(), "by a flush that began before");
    assert_eq!(lab.log.flushed(), Sequence(6));
}

#[test]
fn a_batch_that_a_flush_has_covered_is_kept_no_more() {
    let (mut lab, left) = Lab::narrow().complete();
    assert_eq!(lab.log.flush_covered(Sequence(7)), [Sequence(7)]);
    lab.out_and_relocated(&left);
    assert!(!lab.log.has_gaps());
}

#[test]
fn where_stripes_are_on_all_drives_no_batch_is_kept() {
    let (mut lab, writes) = Lab::new().written();
    lab.end(Sequence(7), &writes, &[]);
    let ended = lab.log.next_ended(&mut lab.cx).expect("it is written");
    assert!(ended.is_done);
}

/// A log with batch 7, and all inputs that may come: for the drawing of the batch's states.
#[derive(Clone)]
struct Way {
    lab: Lab,
    begins: bool,
    /// Drives that have yet to write a column of the batch.
    writes: Vec<Seat>,
    /// The drives whose refusals are to be judged.
    refusing: BTreeSet<Seat>,
    /// So often drives may still refuse columns, or go out.
    faults: usize,
}

const SEVEN: Sequence = Sequence(7);

impl Way {
    fn of(mut lab: Lab, seats_out: u16) -> Self {
        (0..seats_out).for_each(|seat| lab.seat_out(Seat(seat)));
        lab.commit();
        Self {
            lab,
            begins: true,
            writes: Vec::new(),
            refusing: BTreeSet::new(),
            faults: 4,
        }
    }

    fn batch(&self) -> Option<&Batch> {
        let log = &self.lab.log;
        let mut all = [&log.batches, &log.gaps, &log.unflushed].into_iter();
        all.find_map(|batches| batches.get(&SEVEN))
    }

    fn with(&self, input: impl FnOnce(&mut Lab)) -> Self {
        let mut after = self.clone();
        input(&mut after.lab);
        let actions = after.lab.cx.take_actions().into_iter();
        let writes = actions.filter_map(|action| match action {
            Action::Io(io) => Some(io.seat),
            _ => None,
        });
        after.writes.extend(writes);
        after
    }

    /// The first of its writes in flight ends.
    fn written(&self, outcome: Outcome) -> Self {
        let mut ready = self.clone();
        let seat = ready.writes.remove(0);
        let out = self.lab.cx.view().is_out(seat);
        if outcome.is_err() && !out {
            ready.refusing.insert(seat);
            ready.faults -= 1;
        }
        ready.with(|lab| lab.log.written(SEVEN, seat, outcome, out))
    }

    fn judged(&self, seat: Seat, out: bool) -> Self {
        let mut ready = self.clone();
        ready.refusing.remove(&seat);
        ready.with(|lab| {
            if out {
                lab.seat_out(seat);
            }
            lab.log.judged(seat, out);
        })
    }

    /// Drives of the batch go out.
    fn relocate(&self, seats: &[Seat]) -> Self {
        let mut ready = self.clone();
        ready.faults -= 1;
        ready.refusing.retain(|seat| !seats.contains(seat));
        ready.with(|lab| {
            lab.out_and_relocated(seats);
            seats.iter().for_each(|&seat| lab.log.judged(seat, true));
        })
    }
}

impl Machine for Way {
    fn state(&self) -> &'static str {
        let kept = self.lab.log.unflushed.contains_key(&SEVEN);
        match self.batch().map(|batch| batch.state) {
            None => "none",
            Some(_) if kept => "kept",
            Some(State::Laying) => "laying",
            Some(State::Writing) => "writing",
            Some(State::Refused) => "refused",
        }
    }

    fn key(&self) -> String {
        let batch = self
            .batch()
            .map(|batch| (&batch.writes, &batch.header.seats));
        let is_gap = self.lab.log.gaps.contains_key(&SEVEN);
        let seats = self.lab.cx.journal_seats();
        let rest = (self.begins, &self.writes, &self.refusing, self.faults);
        format!("{} {batch:?} {is_gap} {seats:?} {rest:?}", self.state())
    }

    fn after(&self) -> Vec<(&'static str, Self)> {
        let Some(batch) = self.batch() else {
            let mut after = self.with(|lab| _ = self.begins && lab.begin() == Begun::Batch);
            after.begins = false;
            return vec![("begin", after)];
        };
        let mut after = vec![
            (
                "next_ended",
                self.with(|lab| _ = lab.log.next_ended(&mut lab.cx)),
            ),
            (
                "gaps_ended",
                self.with(|lab| _ = lab.log.gaps_ended(&mut lab.cx)),
            ),
            (
                "write_gaps",
                self.with(|lab| lab.log.write_gaps(&mut lab.cx, &mut lab.ios)),
            ),
            (
                "flush_covered",
                self.with(|lab| _ = lab.log.flush_covered(SEVEN)),
            ),
        ];
        if self.state() == "laying" {
            let headed = |lab: &mut Lab| _ = lab.log.headed(&mut lab.cx, &mut lab.ios, SEVEN);
            after.push(("headed", self.with(headed)));
        }
        if !self.writes.is_empty() {
            after.push(("written", self.written(Ok(()))));
            if self.faults > 0 {
                after.push(("written", self.written(REFUSED)));
            }
        }
        for &seat in &self.refusing {
            after.extend([true, false].map(|out| ("judged", self.judged(seat, out))));
        }
        if self.faults > 0 {
            let seats = &batch.header.seats;
            after.extend([&seats[..1], seats].map(|seats| ("relocate", self.relocate(seats))));
        }
        after
    }
}

/// The drawing in the head of the file of batches is what the log does: every input, in every state.
#[test]
fn the_states_of_a_batch_are_those_of_the_drawing() {
    let ways = [
        Way::of(Lab::new(), 0),
        Way::of(Lab::new(), 2),
        Way::of(Lab::narrow(), 0),
    ];
    Changes::of(ways).assert_drawn_in(include_str!("batch.rs"));
}
