use std::collections::BTreeSet;

use format::{BlockName, Column, Descriptor, Entry, Generation, GroupId, Sequence, StripeId};
use plan::action::ComputeStep;

use super::*;
use crate::blocks::block;
use crate::op::{Owner, Task};
use crate::overlay::{Bytes, Logged};
use testing::walk::{Changes, Machine};

/// The recovery of a small lane of six drives that may lose two. The drives have no content: each test gives the
/// results of reads.
#[derive(Clone)]
struct Lab {
    recovery: Recovery,
    cx: Context,
    ios: IoTable,
    overlay: Overlay,
}

const RING_BYTES: u64 = 1 << 20;
const DRIVES: usize = 6;
const LOST: Result<u64, Fault> = Err(Fault::Lost);

/// Number 5, of incarnation 3: batches up to 8 are those of earlier ones, and 7 is the oldest that counts.
const ANCHOR: Anchor = Anchor {
    incarnation: Generation(3),
    first: Sequence(7),
    position: 0,
    inherited: Sequence(8),
    number: 5,
};

/// A batch of one block and two copies, on drives 0, 1 and 2.
fn mirrored(sequence: Sequence) -> BatchHeader {
    let crc = u32::try_from(sequence.0).unwrap();
    BatchHeader {
        incarnation: Generation(3),
        sequence,
        flushed: Sequence(0),
        seats: (0..3).map(Seat).collect(),
        data_columns: 1,
        rows: 1,
        parity_crcs: vec![crc; 2],
        descriptors: vec![Descriptor::Content {
            name: block(Column(1), crc),
            crc,
        }],
    }
}

/// A batch of two blocks with P and Q, on drives 0 to 3.
fn spread(sequence: Sequence) -> BatchHeader {
    let crc = |column: u32| u32::try_from(sequence.0).unwrap() + column;
    let content = |column: u32| Descriptor::Content {
        name: block(Column(1), crc(column)),
        crc: crc(column),
    };
    BatchHeader {
        seats: (0..4).map(Seat).collect(),
        data_columns: 2,
        parity_crcs: vec![crc(2), crc(3)],
        descriptors: vec![content(0), content(1)],
        ..mirrored(sequence)
    }
}

/// A batch whose two blocks are in place, of which nothing but checksums is logged.
fn direct(sequence: Sequence, first: BlockName) -> BatchHeader {
    BatchHeader {
        rows: 0,
        parity_crcs: Vec::new(),
        descriptors: vec![Descriptor::Direct {
            first,
            crcs: vec![20, 21],
        }],
        ..mirrored(sequence)
    }
}

impl Lab {
    fn new() -> Self {
        Self {
            recovery: Recovery::new(RING_BYTES, Generation(4), (Vec::new(), Vec::new())),
            cx: Context::of_test("raid6", 6),
            ios: IoTable::new(6),
            overlay: Overlay::default(),
        }
    }

    fn step(&mut self, step: impl FnOnce(&mut Recovery, &mut Lent<'_>) -> Next) -> Next {
        let mut lent = Lent {
            cx: &mut self.cx,
            ios: &mut self.ios,
            overlay: &mut self.overlay,
        };
        step(&mut self.recovery, &mut lent)
    }

    fn flushed(&mut self, outcome: Outcome) -> Next {
        self.step(|recovery, lent| recovery.flushed(lent, outcome))
    }

    fn seat_out(&mut self, seat: u16) {
        self.cx.change_view(|view, _| view.seat_out(Seat(seat)));
    }

    /// All reads in flight end, those of the `failing` drives with a fault. Returns where they were.
    fn answer_reads(&mut self, failing: &[u16]) -> (Vec<(u16, u64)>, Next) {
        let mut places = Vec::new();
        let mut next = Next::Wait;
        for action in self.cx.take_actions() {
            let Action::Io(io) = action else { continue };
            assert_eq!(io.kind, IoKind::Read);
            let Some(Purpose::Recovery { index, .. }) = self.ios.purpose_of(io.id) else {
                panic!("recovery alone reads");
            };
            let place = (io.seat, io.offset);
            places.push((io.seat.0, io.offset));
            let fails = failing.contains(&io.seat.0);
            let outcome = if fails { Err(Fault::Medium) } else { Ok(()) };
            next = self.step(|recovery, lent| recovery.read(lent, place, index, outcome));
        }
        (places, next)
    }

    /// The computation that is waited for.
    fn compute(&mut self) -> Compute {
        let computes = { self.cx.take_actions().into_iter() }.filter_map(|action| match action {
            Action::Compute(compute) => Some(compute),
            _ => None,
        });
        let mut computes: Vec<Compute> = computes.collect();
        assert_eq!(computes.len(), 1, "one at a time");
        computes.remove(0)
    }

    fn computed(&mut self, computed: &Computed) -> Next {
        self.step(|recovery, lent| recovery.computed(lent, computed))
    }

    fn summed(&mut self, sums: Vec<u32>) -> Next {
        self.computed(&Computed {
            sums,
            ..Computed::default()
        })
    }

    /// A read of all drives has ended with these bytes, drive by drive.
    fn read_everywhere(&mut self, of_drive: impl Fn(usize) -> Vec<u8>) -> Next {
        self.answer_reads(&[]);
        assert_eq!(self.compute().takes.len(), DRIVES);
        self.computed(&Computed {
            bytes: (0..DRIVES).map(of_drive).collect(),
            ..Computed::default()
        })
    }

    /// Begins, and finds these anchors on the drives.
    fn anchors(&mut self, of_drive: impl Fn(usize) -> Option<Anchor>) -> Next {
        assert!(matches!(
            self.step(|recovery, lent| recovery.begin(lent, false)),
            Next::Wait
        ));
        let pool = self.cx.geometry.regions().unwrap().pool;
        self.read_everywhere(|drive| match of_drive(drive) {
            Some(anchor) => anchor.encode(pool, 0),
            None => vec![0; PAGE_BYTES],
        })
    }

    /// With this anchor on all drives.
    fn anchored_at(anchor: Anchor) -> Self {
        let mut lab = Self::new();
        assert!(matches!(lab.anchors(|_| Some(anchor)), Next::Anchored(5)));
        assert!(matches!(lab.step(Recovery::read_next), Next::Wait));
        lab
    }

    /// With [`ANCHOR`] on all drives.
    fn anchored() -> Self {
        Self::anchored_at(ANCHOR)
    }

    /// With the oldest batch that counts three blocks before the ring's end.
    fn anchored_at_the_end() -> Self {
        let blocks = (RING_BYTES - RING_HEAD_BYTES) / BLOCK_BYTES;
        Self::anchored_at(Anchor {
            position: blocks - 3,
            ..ANCHOR
        })
    }

    /// No earlier recovery has found a batch that counts.
    fn not_inherited() -> Self {
        Self::anchored_at(Anchor {
            inherited: Sequence(6),
            ..ANCHOR
        })
    }

    /// A header, or none, is found where the next one should be.
    fn header(&mut self, header: Option<&BatchHeader>) -> Next {
        let pool = self.cx.geometry.regions().unwrap().pool;
        let bytes = header.map_or(vec![0; PAGE_BYTES], |header| header.encode(pool, 0));
        self.read_everywhere(|_| bytes.clone())
    }

    /// The checksums of a batch's columns if these are as they were written.
    fn sums(&self, header: &BatchHeader) -> Vec<u32> {
        let contents = header.descriptors.iter();
        let contents = contents.filter_map(|descriptor| match descriptor {
            Descriptor::Content { crc, .. } => Some(*crc),
            _ => None,
        });
        let pool = self.cx.geometry.regions().unwrap().pool;
        let head = header.encode(pool, 0);
        let heads = header.seats.iter().map(|_| block::crc32c(&head));
        contents
            .chain(header.parity_crcs.iter().copied())
            .chain(heads)
            .collect()
    }

    /// The reads of a batch's columns end, and the columns have these checksums.
    fn columns(&mut self, failing: &[u16], sums: Vec<u32>) -> Next {
        self.answer_reads(failing);
        let wanted = self.compute().sums;
        let blocks: u64 = wanted.iter().map(|slice| slice.length / BLOCK_BYTES).sum();
        assert_eq!(blocks, sums.len() as u64);
        self.summed(sums)
    }

    /// A batch is there and counts; the next one is searched for.
    fn find(&mut self, header: &BatchHeader) {
        assert!(matches!(self.header(Some(header)), Next::Wait));
        let sums = self.sums(header);
        let next = self.columns(&[], sums);
        self.apply(&next, header);
    }

    /// Applies a batch that counts, as far as these tests need it.
    fn apply(&mut self, next: &Next, header: &BatchHeader) {
        let Next::Found(found, _) = next else {
            panic!("{next:?}");
        };
        assert_eq!(found, header);
        self.enter(header);
        self.overlay.unpin(header.sequence);
        assert!(matches!(self.step(Recovery::read_next), Next::Wait));
    }

    /// The blocks that are in place by a batch are in the overlay.
    fn enter(&mut self, header: &BatchHeader) {
        let pool = self.cx.geometry.regions().unwrap().pool;
        for descriptor in &header.descriptors {
            let Descriptor::Direct { first, crcs } = descriptor else {
                continue;
            };
            for (block, &crc) in (first.block..).zip(crcs) {
                let name = BlockName { block, ..*first };
                let logged = Logged {
                    bytes: Bytes::InPlace,
                    entry: Entry::new(pool, name, crc, header.sequence),
                    sequence: header.sequence,
                };
                self.overlay.insert(name, logged);
            }
        }
    }

    /// The log ends here: nothing is where the next batch would be, nor at the ring's start.
    fn end_of_log(&mut self) -> Next {
        assert!(matches!(self.header(None), Next::Wait));
        self.header(None)
    }

    /// Nothing is to be repaired: what was found is flushed. Returns where the log goes on.
    fn recovered(&mut self, next: &Next) -> Recovered {
        assert!(
            matches!(next, Next::Repair(ops) if ops.is_empty()),
            "{next:?}"
        );
        assert!(matches!(self.repaired(true), Next::Cover));
        match self.flushed(Ok(())) {
            Next::Anchor(recovered) => recovered,
            other => panic!("{other:?}"),
        }
    }

    fn repaired(&mut self, whole: bool) -> Next {
        self.repaired_without(whole, &[])
    }

    fn repaired_without(&mut self, whole: bool, bad: &[BlockName]) -> Next {
        self.step(|recovery, lent| recovery.repaired(lent, whole, bad.to_vec()))
    }

    fn written(&mut self, seat: u16, outcome: Outcome) -> Next {
        self.step(|recovery, lent| recovery.written(lent, Seat(seat), outcome, false))
    }

    /// The columns that are written again.
    fn writes(&mut self) -> BTreeSet<u16> {
        let writes = self.cx.take_actions().into_iter();
        let writes = writes.filter_map(|action| match action {
            Action::Io(io) if io.kind == IoKind::Write => Some(io.seat.0),
            _ => None,
        });
        writes.collect()
    }
}

#[track_caller]
fn is_end(next: &Next, ended: Result<u64, Fault>) {
    assert!(matches!(next, Next::End(end) if *end == ended), "{next:?}");
}

#[test]
fn a_fresh_lane_reads_nothing_and_begins_with_batch_1() {
    let mut lab = Lab::new();
    let Next::Anchor(recovered) = lab.step(|recovery, lent| recovery.begin(lent, true)) else {
        panic!("nothing is to be read");
    };
    assert_eq!(
        (recovered.first, recovered.next),
        (Sequence(1), Sequence(1))
    );
    assert!(recovered.ring.is_empty() && lab.cx.take_actions().is_empty());
    let blocks = (RING_BYTES - RING_HEAD_BYTES) / BLOCK_BYTES;
    assert_eq!(
        (recovered.ring.blocks(), recovered.incarnation),
        (blocks, Generation(4))
    );
}

#[test]
fn without_an_anchor_or_a_drive_nothing_is_known() {
    is_end(&Lab::new().anchors(|_| None), LOST);
    let mut lab = Lab::new();
    (0..6).for_each(|seat| lab.seat_out(seat));
    is_end(
        &lab.step(|recovery, lent| recovery.begin(lent, false)),
        LOST,
    );
}

#[test]
fn the_newest_anchor_counts_and_a_drive_that_lags_by_two_is_reported() {
    let mut lab = Lab::new();
    let numbers = [5, 4, 3, 5, 5, 5];
    let next = lab.anchors(|drive| {
        let number = numbers[drive];
        Some(Anchor { number, ..ANCHOR })
    });
    assert!(matches!(next, Next::Anchored(5)));
    let old = Event::DriveOld {
        seat: Seat(2),
        anchor: 3,
        newest: 5,
    };
    assert_eq!(lab.cx.take_events(), [old]);
}

#[test]
fn an_empty_log_goes_on_where_its_anchor_says() {
    let mut lab = Lab::anchored();
    let next = lab.header(None);
    let recovered = lab.recovered(&next);
    assert_eq!(
        (recovered.first, recovered.next),
        (Sequence(7), Sequence(7))
    );
    let scratch = ScratchId(900);
    let step = lab.step(|recovery, lent| recovery.anchor_submitted(lent, scratch, 2));
    assert!(matches!(step, Next::Wait));
    assert!(matches!(lab.written(0, Ok(())), Next::Wait));
    assert!(matches!(lab.written(1, Ok(())), Next::Flush));
    is_end(&lab.flushed(Ok(())), Ok(0));
}

#[test]
fn what_a_drive_that_stays_does_not_flush_is_not_called_durable() {
    let mut lab = Lab::anchored();
    lab.find(&mirrored(Sequence(7)));
    assert!(matches!(lab.end_of_log(), Next::Repair(ops) if ops.is_empty()));
    assert!(matches!(lab.repaired(true), Next::Cover));
    is_end(&lab.flushed(Err(Fault::Medium)), Err(Fault::Medium));
}

#[test]
fn batches_follow_one_another_to_the_first_that_is_not_there() {
    let mut lab = Lab::anchored();
    for sequence in (7..10).map(Sequence) {
        lab.find(&mirrored(sequence));
    }
    let next = lab.end_of_log();
    let recovered = lab.recovered(&next);
    assert_eq!(
        (recovered.first, recovered.next),
        (Sequence(7), Sequence(10))
    );
    assert_eq!(
        (
            recovered.ring.position_of(Sequence(9)),
            recovered.ring.head()
        ),
        (4, 6)
    );
    let step = lab.step(|recovery, lent| recovery.anchor_submitted(lent, ScratchId(900), 1));
    assert!(matches!(step, Next::Wait));
    assert!(matches!(lab.written(0, Ok(())), Next::Flush));
    is_end(&lab.flushed(Ok(())), Ok(3));
}

#[test]
fn a_batch_that_had_no_room_at_the_end_is_at_the_start_of_the_ring() {
    let mut lab = Lab::anchored_at_the_end();
    lab.find(&mirrored(Sequence(7)));
    assert!(matches!(lab.header(None), Next::Wait));
    lab.find(&mirrored(Sequence(8)));
    assert_eq!(lab.recovery.ring.position_of(Sequence(8)), 0);
}

#[test]
fn a_batch_that_had_room_elsewhere_is_not_at_the_start_of_the_ring() {
    let mut lab = Lab::anchored();
    lab.find(&mirrored(Sequence(7)));
    assert!(matches!(lab.header(None), Next::Wait));
    let next = lab.header(Some(&mirrored(Sequence(8))));
    assert_eq!(
        lab.recovered(&next).next,
        Sequence(8),
        "a drive wrote it astray"
    );
}

#[test]
fn what_an_earlier_incarnation_has_left_behind_does_not_count() {
    let mut lab = Lab::anchored();
    for sequence in [7, 8].map(Sequence) {
        lab.find(&mirrored(sequence));
    }
    let superseded = BatchHeader {
        incarnation: Generation(2),
        ..mirrored(Sequence(9))
    };
    assert!(matches!(lab.header(Some(&superseded)), Next::Wait));
    let next = lab.header(Some(&superseded));
    assert_eq!(lab.recovered(&next).next, Sequence(9));
}

#[test]
fn of_two_incarnations_that_have_written_a_batch_the_later_one_counts() {
    let mut lab = Lab::anchored_at_the_end();
    lab.find(&mirrored(Sequence(7)));
    let of = |incarnation, header| BatchHeader {
        incarnation,
        ..header
    };
    let short = of(Generation(1), direct(Sequence(8), block(Column(1), 0)));
    assert!(matches!(lab.header(Some(&short)), Next::Wait), "inherited");
    lab.find(&of(Generation(2), mirrored(Sequence(8))));
    assert_eq!(lab.recovery.ring.position_of(Sequence(8)), 0);
}

#[test]
fn of_a_relocated_batch_the_header_counts_of_which_more_drives_have_a_column() {
    let before = mirrored(Sequence(7));
    let after = BatchHeader {
        seats: (3..6).map(Seat).collect(),
        ..mirrored(Sequence(7))
    };
    let (a, b) = (&before, &after);
    for (found, counts) in [
        (vec![(0, a), (3, b), (4, b)], b),
        (vec![(3, b), (4, b), (0, a)], b),
        (vec![(0, a), (1, a), (3, b)], a),
        (vec![(0, a), (1, b), (2, b)], a),
    ] {
        let found = found.into_iter();
        let found = found.map(|(seat, header)| (Seat(seat), header.clone()));
        assert_eq!(newest_header(found).as_ref(), Some(counts));
    }
    assert_eq!(newest_header(std::iter::empty()), None);
}

#[test]
fn a_column_that_cannot_be_read_is_written_again() {
    let mut lab = Lab::anchored();
    let header = mirrored(Sequence(7));
    lab.header(Some(&header));
    let sums = lab.sums(&header);
    let next = lab.columns(&[1], sums);
    assert!(matches!(next, Next::Wait));
    let fault = lab.cx.take_events();
    assert!(matches!(
        fault[..],
        [Event::DriveFault { seat: Seat(1), .. }]
    ));
    assert_eq!(lab.compute().puts.len(), 3, "laid out as it was");
    assert!(matches!(lab.summed(Vec::new()), Next::Wait));
    assert_eq!(lab.writes(), BTreeSet::from([0, 1, 2]));
    for seat in [0, 1] {
        assert!(matches!(lab.written(seat, Ok(())), Next::Wait));
    }
    let next = lab.written(2, Ok(()));
    lab.apply(&next, &header);
}

#[test]
fn a_column_that_a_drive_refuses_waits_for_the_verdict() {
    let mut lab = Lab::anchored();
    let header = mirrored(Sequence(7));
    lab.header(Some(&header));
    let sums = lab.sums(&header);
    lab.columns(&[1], sums);
    lab.compute();
    lab.summed(Vec::new());
    lab.writes();
    lab.written(0, Ok(()));
    lab.written(2, Ok(()));
    assert!(matches!(lab.written(1, Err(Fault::Full)), Next::Wait));
    let next = lab.step(|recovery, lent| recovery.judged(lent, Seat(1), false));
    lab.apply(&next, &header);
}

#[test]
fn a_drive_that_is_out_lacks_nothing() {
    let mut lab = Lab::anchored();
    let header = mirrored(Sequence(7));
    lab.header(Some(&header));
    lab.seat_out(1);
    let sums = lab.sums(&header);
    let next = lab.columns(&[1], sums);
    assert!(matches!(next, Next::Found(..)), "the others are whole");
    assert!(lab.cx.take_events().is_empty(), "the pool knows");
}

#[test]
fn a_header_that_is_missing_before_a_column_is_written_again() {
    let mut lab = Lab::anchored();
    let header = mirrored(Sequence(7));
    lab.header(Some(&header));
    let mut sums = lab.sums(&header);
    *sums.last_mut().unwrap() ^= 1;
    assert!(matches!(lab.columns(&[], sums), Next::Wait));
    assert_eq!(lab.compute().puts.len(), 3);
}

#[test]
fn data_is_computed_from_parity_and_compared_once_more() {
    let mut lab = Lab::anchored();
    let header = spread(Sequence(7));
    lab.header(Some(&header));
    let mut torn = lab.sums(&header);
    torn[0] ^= 1;
    torn[3] ^= 1;
    assert!(matches!(lab.columns(&[], torn.clone()), Next::Wait));
    let ComputeStep { terms, .. } = &lab.compute().steps[0];
    assert_eq!(terms.len(), 2, "of the other block and P");
    assert!(matches!(lab.summed(Vec::new()), Next::Wait));
    assert_eq!(lab.compute().sums.len(), 8);
    let mut computed = lab.sums(&header);
    computed[3] = torn[3];
    assert!(matches!(lab.summed(computed), Next::Wait));
    assert_eq!(lab.compute().puts.len(), 4, "it is written again");
}

#[test]
fn data_that_is_not_right_after_it_was_computed_is_not_computed_again() {
    let mut lab = Lab::anchored();
    let header = spread(Sequence(7));
    lab.header(Some(&header));
    let mut torn = lab.sums(&header);
    torn[0] ^= 1;
    lab.columns(&[], torn.clone());
    lab.compute();
    lab.summed(Vec::new());
    lab.compute();
    assert!(matches!(lab.summed(torn), Next::Wait));
    // Headers behind it are read for proof that it was flushed.
    let (places, _) = lab.answer_reads(&[]);
    let behind = lab.cx.ring_offset(header.length());
    assert!(places.iter().all(|&(_, offset)| offset == behind));
}

/// A batch that cannot be reconstructed, before a header by which batches up to `flushed` are flushed.
fn torn_before(flushed: Sequence) -> Next {
    let mut lab = Lab::anchored();
    let header = spread(Sequence(7));
    lab.header(Some(&header));
    let sums = lab.sums(&header);
    let torn = sums.iter().map(|sum| sum ^ 1).collect();
    assert!(matches!(lab.columns(&[], torn), Next::Wait));
    let proof = BatchHeader {
        flushed,
        ..mirrored(Sequence(8))
    };
    lab.header(Some(&proof))
}

#[test]
fn the_log_ends_before_a_torn_batch_unless_it_was_flushed() {
    let next = torn_before(Sequence(6));
    assert!(
        matches!(&next, Next::Repair(ops) if ops.is_empty()),
        "{next:?}"
    );
    is_end(&torn_before(Sequence(7)), LOST);
}

/// By batch 7, two blocks of the first stripe are in place; these are their checksums.
fn compared(sums: [u32; 2]) -> (Lab, Next) {
    let mut lab = Lab::not_inherited();
    lab.find(&direct(Sequence(7), block(Column(1), 0)));
    assert!(matches!(lab.end_of_log(), Next::Wait));
    let next = lab.columns(&[], sums.to_vec());
    (lab, next)
}

#[test]
fn what_an_earlier_recovery_has_found_or_a_flush_has_covered_is_not_compared() {
    let mut lab = Lab::anchored();
    lab.find(&direct(Sequence(7), block(Column(1), 0)));
    let next = lab.end_of_log();
    assert_eq!(lab.recovered(&next).next, Sequence(8));
    let mut lab = Lab::not_inherited();
    lab.find(&direct(Sequence(7), block(Column(1), 0)));
    let flushed = Sequence(7);
    lab.find(&BatchHeader {
        flushed,
        ..mirrored(Sequence(8))
    });
    let next = lab.end_of_log();
    assert_eq!(lab.recovered(&next).next, Sequence(9));
}

#[test]
fn what_is_in_place_and_right_is_left_as_it_is() {
    let (mut lab, next) = compared([20, 21]);
    assert_eq!(lab.recovered(&next).next, Sequence(8));
}

#[test]
fn a_torn_stripe_is_repaired_before_the_log_goes_on() {
    let (mut lab, next) = compared([20, 7]);
    let Next::Repair(ops) = next else {
        panic!("{next:?}");
    };
    let [op] = &ops[..] else {
        panic!("one stripe is torn");
    };
    assert_eq!(
        (op.owner, op.group, op.stripes.clone()),
        (Owner::Recovery, GroupId(0), StripeId::range(0..1))
    );
    let Task::Repair(repair) = &op.task else {
        panic!("it is a repair");
    };
    assert_eq!(repair.entries.len(), 1, "one block is torn");
    assert!(matches!(lab.repaired(true), Next::Wait), "all have begun");
    assert!(matches!(lab.repaired(true), Next::Cover));
}

#[test]
fn a_stripe_that_could_not_be_repaired_is_compared_again() {
    let (mut lab, _) = compared([20, 7]);
    lab.repaired(true);
    assert!(matches!(lab.repaired(false), Next::Wait));
    let next = lab.columns(&[], vec![20, 21]);
    assert_eq!(lab.recovered(&next).next, Sequence(8));
}

#[test]
fn the_log_ends_before_a_torn_stripe_whose_other_blocks_are_damaged() {
    for (damaged, survives) in [(1, true), (2, false)] {
        let (mut lab, _) = compared([20, 7]);
        lab.repaired(true);
        let bad = [block(Column(2), 1), block(Column(3), 1)];
        let next = lab.repaired_without(false, &bad[..damaged]);
        assert!(matches!(next, Next::Wait), "all is compared again");
        let next = lab.columns(&[], vec![20, 7]);
        match survives {
            true => assert!(matches!(next, Next::Repair(ops) if ops.len() == 1)),
            false => assert!(matches!(next, Next::ReadAgain), "{next:?}"),
        }
    }
}

#[test]
fn all_is_compared_again_without_a_drive_that_leaves_meanwhile() {
    let (mut lab, next) = compared([20, 21]);
    assert!(matches!(next, Next::Repair(_)));
    lab.seat_out(4);
    assert!(matches!(lab.repaired(true), Next::Wait));
    let next = lab.columns(&[], vec![20, 21]);
    assert_eq!(lab.recovered(&next).next, Sequence(8));
}

#[test]
fn the_log_ends_before_a_stripe_that_cannot_be_made_whole() {
    let mut lab = Lab::not_inherited();
    lab.find(&mirrored(Sequence(7)));
    lab.find(&direct(Sequence(8), block(Column(1), 0)));
    lab.seat_out(4);
    lab.seat_out(5);
    // Four drives are left to be read.
    let empty = |lab: &mut Lab| {
        lab.answer_reads(&[]);
        assert_eq!(lab.compute().takes.len(), 4);
        let bytes = vec![vec![0; PAGE_BYTES]; 4];
        lab.computed(&Computed {
            bytes,
            ..Computed::default()
        })
    };
    // The first of the reads went to all drives.
    assert!(matches!(lab.header(None), Next::Wait));
    assert!(matches!(empty(&mut lab), Next::Wait));
    let next = lab.columns(&[], vec![6, 7]);
    assert!(matches!(next, Next::ReadAgain), "{next:?}");
    assert!(lab.overlay.get(block(Column(1), 0)).is_none());
    assert_eq!(
        (lab.recovery.expected, lab.recovery.limit),
        (Sequence(7), Some(Sequence(8)))
    );
    assert!(matches!(lab.step(Recovery::read_next), Next::Wait));
    lab.answer_reads(&[]);
    lab.compute();
    let pool = lab.cx.geometry.regions().unwrap().pool;
    let bytes = vec![mirrored(Sequence(7)).encode(pool, 0); 4];
    lab.computed(&Computed {
        bytes,
        ..Computed::default()
    });
    let sums = lab.sums(&mirrored(Sequence(7)));
    assert!(matches!(lab.columns(&[], sums), Next::Found(..)));
    let next = lab.step(Recovery::read_next);
    assert_eq!(lab.recovered(&next).next, Sequence(8), "whatever is there");
}

#[test]
fn an_anchor_that_no_drive_takes_ends_it() {
    let mut lab = Lab::anchored();
    let next = lab.header(None);
    lab.recovered(&next);
    is_end(
        &lab.step(|recovery, lent| recovery.anchor_submitted(lent, ScratchId(900), 0)),
        LOST,
    );
}

/// A recovery on its way, whose inputs are all that may come: for the drawing of its phases.
#[derive(Clone)]
struct Way {
    lab: Lab,
    /// What the recovery asks for. `None` before it begins.
    next: Option<Next>,
    /// What drives and computations have yet to answer.
    reads: Vec<((Seat, u64), usize)>,
    writes: Vec<Seat>,
    compute: Option<Compute>,
    /// Repairs that have not ended, and one more until all have begun.
    repairs: usize,
    /// The drive whose refusal is to be judged.
    refusing: Option<Seat>,
    /// So many drives may still go out, or fail reads or a write.
    faults: usize,
    /// The header that was found last.
    header: Option<BatchHeader>,
}

/// A row of data without its parity, which the batch leaves out.
fn without_parity(lab: &Lab, sequence: Sequence) -> BatchHeader {
    let code = lab.cx.geometry.code();
    let row = lab
        .cx
        .geometry
        .row_of(block(Column(1), 0), format::Form::Parity);
    let descriptors = row.map(|(slot, name)| match code.is_data(slot) {
        true => Descriptor::Content { name, crc: 4 },
        false => Descriptor::Derived { name, crc: 5 },
    });
    let mut descriptors: Vec<Descriptor> = descriptors.collect();
    descriptors.sort_by_key(|descriptor| matches!(descriptor, Descriptor::Derived { .. }));
    BatchHeader {
        rows: 4,
        parity_crcs: vec![4; 8],
        descriptors,
        ..mirrored(sequence)
    }
}

impl Way {
    fn new() -> Self {
        Self {
            lab: Lab::new(),
            next: None,
            reads: Vec::new(),
            writes: Vec::new(),
            compute: None,
            repairs: 0,
            refusing: None,
            faults: 3,
            header: None,
        }
    }

    /// With an input, and with what follows from it at once.
    fn with(&self, input: impl FnOnce(&mut Lab) -> Next) -> Self {
        let mut after = self.clone();
        let mut next = input(&mut after.lab);
        loop {
            match &next {
                Next::Found(header, _) => {
                    after.lab.enter(header);
                    after.lab.overlay.unpin(header.sequence);
                }
                Next::Anchored(_) | Next::ReadAgain => {}
                _ => break,
            }
            next = after.lab.step(Recovery::read_next);
        }
        for action in after.lab.cx.take_actions() {
            match action {
                Action::Io(io) if io.kind == IoKind::Read => {
                    let Some(Purpose::Recovery { index, .. }) = after.lab.ios.purpose_of(io.id)
                    else {
                        panic!("recovery alone reads");
                    };
                    after.reads.push(((io.seat, io.offset), index));
                }
                Action::Io(io) => after.writes.push(io.seat),
                Action::Compute(compute) => after.compute = Some(compute),
                _ => {}
            }
        }
        if let Next::Repair(ops) = &next {
            after.repairs = 1 + ops.len();
        }
        after.next = Some(next);
        after
    }

    fn step(&self, step: impl FnOnce(&mut Recovery, &mut Lent<'_>) -> Next) -> Self {
        self.with(|lab| lab.step(step))
    }

    /// All reads in flight end, and so many of them fail.
    fn read(&self, failing: usize) -> Self {
        let mut ready = self.clone();
        let reads = std::mem::take(&mut ready.reads);
        ready.faults -= failing.min(1);
        ready.with(|lab| {
            let mut next = Next::Wait;
            for (at, (place, index)) in reads.into_iter().enumerate() {
                assert!(matches!(next, Next::Wait), "reads are in flight");
                let outcome = if at < failing {
                    Err(Fault::Medium)
                } else {
                    Ok(())
                };
                next = lab.step(|recovery, lent| recovery.read(lent, place, index, outcome));
            }
            next
        })
    }

    fn computed(&self, bytes: Vec<Vec<u8>>, sums: Vec<u32>) -> Self {
        let mut ready = self.clone();
        ready.compute = None;
        let computed = Computed { bytes, sums };
        ready.with(|lab| lab.computed(&computed))
    }

    /// The results that a computation may have.
    fn results(&self) -> Vec<Self> {
        let compute = self.compute.as_ref().expect("it is in flight");
        let everywhere = |bytes: Vec<u8>| vec![bytes; compute.takes.len()];
        let pool = self.lab.cx.geometry.regions().expect("a journal").pool;
        let recovery = &self.lab.recovery;
        let of_sums = |sums: Vec<u32>| self.computed(Vec::new(), sums);
        match &recovery.phase {
            Phase::Anchors => {
                let blocks = (RING_BYTES - RING_HEAD_BYTES) / BLOCK_BYTES;
                let inherited = Sequence(6);
                let anchors = [0, blocks - 3].map(|position| Anchor {
                    position,
                    inherited,
                    ..ANCHOR
                });
                let found = anchors.map(|anchor| anchor.encode(pool, 0));
                let found = found.into_iter().chain([vec![0; PAGE_BYTES]]);
                found
                    .map(|bytes| self.computed(everywhere(bytes), Vec::new()))
                    .collect()
            }
            Phase::Headers { .. } => {
                let expected = recovery.expected;
                let mut headers = vec![None];
                if recovery.batches < 2 {
                    let flushed = expected;
                    headers.extend([
                        Some(mirrored(expected)),
                        Some(spread(expected)),
                        Some(direct(expected, block(Column(1), 0))),
                        Some(without_parity(&self.lab, expected)),
                        Some(BatchHeader {
                            flushed,
                            ..mirrored(expected.next())
                        }),
                    ]);
                }
                let found = headers.into_iter().map(|header| {
                    let bytes = header.as_ref().map(|header| header.encode(pool, 0));
                    let bytes = everywhere(bytes.unwrap_or(vec![0; PAGE_BYTES]));
                    let mut after = self.clone();
                    after.header = header.or(after.header);
                    after.computed(bytes, Vec::new())
                });
                found.collect()
            }
            Phase::Checking(_) => {
                let header = self.header.as_ref().expect("it was found");
                let right = self.lab.sums(header);
                let wrong = |from: usize| {
                    let sums = right.iter().enumerate();
                    sums.map(|(at, &sum)| if at >= from { sum ^ 1 } else { sum })
                        .collect()
                };
                let mut first = right.clone();
                first[0] ^= 1;
                let last = wrong(right.len() - 1);
                [right.clone(), first, last, wrong(0)].map(of_sums).into()
            }
            Phase::Deriving(_) => [5, 6].map(|sum| of_sums(vec![sum; 2])).into(),
            Phase::Comparing(_) => [[20, 21], [20, 7], [6, 7]]
                .map(|sums| of_sums(sums.to_vec()))
                .into(),
            _ => vec![of_sums(Vec::new())],
        }
    }

    fn repaired(&self, whole: bool) -> Self {
        let mut ready = self.clone();
        ready.repairs -= 1;
        let wait = ready.repairs > 0;
        let mut after = ready.with(|lab| lab.repaired(whole));
        if wait {
            after.next = self.next.clone();
        }
        after
    }

    /// The first of the writes in flight ends.
    fn written(&self, outcome: Outcome) -> Self {
        let mut ready = self.clone();
        let seat = ready.writes.remove(0);
        if outcome.is_err() {
            ready.faults -= 1;
            ready.refusing = Some(seat);
        }
        let out = self.lab.cx.view().is_out(seat);
        ready.step(|recovery, lent| recovery.written(lent, seat, outcome, out))
    }
}

impl Machine for Way {
    fn state(&self) -> &'static str {
        if matches!(self.next, Some(Next::End(_))) {
            return "over";
        }
        match &self.lab.recovery.phase {
            Phase::Anchors => "anchors",
            Phase::Headers { .. } => "headers",
            Phase::Columns(_) => "columns",
            Phase::Checking(_) => "checking",
            Phase::Reconstructing(_) => "reconstructing",
            Phase::Restoring(_) => "restoring",
            Phase::Deriving(_) => "deriving",
            Phase::Comparing(_) => "comparing",
            Phase::Covering => "covering",
            Phase::Anchoring => "anchoring",
            Phase::Flushing => "flushing",
        }
    }

    fn key(&self) -> String {
        let recovery = &self.lab.recovery;
        let next = format!("{:?}", self.next);
        let next = next.split(['(', '{']).next().map(str::to_owned);
        let log = (recovery.batches, recovery.limit, recovery.ring.head());
        let detail = match &recovery.phase {
            Phase::Headers { at, seek } => format!("{at} {seek:?}"),
            Phase::Columns(found) | Phase::Checking(found) | Phase::Restoring(found) => {
                format!("{found:?}")
                    .split("missing")
                    .nth(1)
                    .unwrap_or_default()
                    .to_owned()
            }
            _ => String::new(),
        };
        let waits = (self.reads.len(), self.writes.len(), self.compute.is_some());
        let again = (
            recovery.comparisons.min(2),
            self.repairs,
            self.faults,
            self.refusing,
        );
        let header = self.header.as_ref();
        let header = header.map(|header| (header.sequence, &header.descriptors));
        let seats = self.lab.cx.live_seats().len();
        let state = self.state();
        format!("{state} {next:?} {log:?} {detail} {waits:?} {again:?} {header:?} {seats}")
    }

    fn after(&self) -> Vec<(&'static str, Self)> {
        let mut after = Vec::new();
        match &self.next {
            None => {
                return [true, false]
                    .map(|fresh| {
                        let begin = self.step(|recovery, lent| recovery.begin(lent, fresh));
                        ("begin", begin)
                    })
                    .into();
            }
            Some(Next::End(_)) => return Vec::new(),
            Some(Next::Cover | Next::Flush) => {
                for outcome in [Ok(()), Err(Fault::Medium)] {
                    let flushed = self.with(|lab| lab.flushed(outcome));
                    after.push(("flushed", flushed));
                }
            }
            Some(Next::Anchor(_)) => {
                for drives in [0, 1] {
                    let mut submitted = self.step(|recovery, lent| {
                        recovery.anchor_submitted(lent, ScratchId(900), drives)
                    });
                    submitted.writes.extend((0..drives).map(|_| Seat(5)));
                    after.push(("anchor_submitted", submitted));
                }
            }
            _ if self.repairs > 0 => {
                after.extend([true, false].map(|whole| ("repaired", self.repaired(whole))));
            }
            _ => {}
        }
        if let Some(seat) = self.refusing {
            for out in [true, false] {
                let mut ready = self.clone();
                ready.refusing = None;
                if out {
                    ready.lab.seat_out(seat.0);
                }
                let judged = ready.step(|recovery, lent| recovery.judged(lent, seat, out));
                after.push(("judged", judged));
            }
        } else if !self.writes.is_empty() {
            after.push(("written", self.written(Ok(()))));
            if self.faults > 0 {
                after.push(("written", self.written(Err(Fault::Full))));
            }
        }
        if !self.reads.is_empty() {
            after.push(("read", self.read(0)));
            if self.faults > 0 {
                after.extend([1, 3].map(|failing| ("read", self.read(failing))));
            }
        }
        if self.compute.is_some() {
            after.extend(self.results().into_iter().map(|after| ("computed", after)));
        }
        let waits = !self.reads.is_empty() || !self.writes.is_empty() || self.compute.is_some();
        if self.faults > 0 && (waits || self.repairs > 0) {
            for seats in [0..1, 4..6, 0..3, 0..6] {
                let mut left = self.clone();
                left.faults -= 1;
                seats.for_each(|seat| left.lab.seat_out(seat));
                after.push(("seats_out", left));
            }
        }
        after
    }
}

/// The drawing in the head of the file is what a recovery does: every input, in every phase in which it may come.
#[test]
fn the_phases_of_a_recovery_are_those_of_the_drawing() {
    let mut without_drives = Way::new();
    (0..6).for_each(|seat| without_drives.lab.seat_out(seat));
    Changes::of([Way::new(), without_drives]).assert_drawn_in(include_str!("mod.rs"));
}
