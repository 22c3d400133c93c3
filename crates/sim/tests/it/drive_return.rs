//! Drives that were away return: the blocks that they missed are copied. A drive whose state does not fit is filled
//! as a whole.

#![expect(clippy::print_stdout, reason = "a test prints what it measured")]

use array::pool::{Rejected, Report, SeatState};
use block::Seat;
use rand::{Rng, RngExt};
use sim::{CutSpec, Drive, Oracle, World, WorldOptions};

const VOLUME: &str = "v";
const BLOCK: u64 = 4096;

fn options(scheme: &str, drives: u16, cell_bytes: u64) -> WorldOptions {
    WorldOptions {
        drive_bytes: 64 << 20,
        chunk_bytes: 64 << 10,
        cell_bytes,
        seed: u64::from(drives),
        ..WorldOptions::small(scheme, drives)
    }
}

/// A pool of small drives and chunks, quick to fill.
fn small(scheme: &str, drives: u16) -> WorldOptions {
    WorldOptions {
        drive_bytes: 14 << 20,
        chunk_bytes: 4096,
        ..options(scheme, drives, 64 << 10)
    }
}

#[derive(Clone)]
struct Run {
    world: World,
    oracle: Oracle,
    size: u64,
}

impl Run {
    fn new(options: &WorldOptions, groups: u64) -> Self {
        let mut world = World::create(options);
        let size = groups * world.pool().geometry().group_data_bytes();
        world.create_volume(VOLUME, size).unwrap();
        let mut run = Self {
            world,
            oracle: Oracle::new(size),
            size,
        };
        run.write(0, size);
        run.world.settle();
        run
    }

    fn write(&mut self, offset: u64, length: u64) {
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        self.world.rng().fill_bytes(&mut bytes);
        self.world.write(VOLUME, offset, &bytes).unwrap();
        self.oracle.wrote(offset, &bytes);
    }

    /// Changes `blocks` blocks at random places.
    fn scribble(&mut self, blocks: u64) {
        for _ in 0..blocks {
            let at = self.world.rng().random_range(0..self.size / BLOCK);
            self.write(at * BLOCK, BLOCK);
        }
    }

    fn check(&mut self, when: &str) {
        let read = self.world.read(VOLUME, 0, self.size);
        let read =
            read.unwrap_or_else(|fault| panic!("{when}: {fault}: {:#?}", self.world.reports));
        self.oracle.check(0, &read, when);
    }

    fn reopen(self, drives: impl FnOnce(Vec<Drive>) -> Vec<Drive>) -> Self {
        let drives = drives(self.world.close().unwrap());
        Self {
            world: World::open(drives, false, 7).unwrap(),
            ..self
        }
    }

    fn is_complete(&self, seat: Seat) -> bool {
        self.world.pool().facts().seats[seat.index()].state == SeatState::Current
    }

    fn rejected(&self) -> Option<Rejected> {
        self.world.reports.iter().find_map(|report| match report {
            Report::FullRebuild { reason, .. } => Some(*reason),
            _ => None,
        })
    }

    fn copied(&self) -> Option<u64> {
        self.world.reports.iter().find_map(|report| match report {
            Report::CaughtUp { copied_bytes, .. } => Some(*copied_bytes),
            _ => None,
        })
    }

    /// Checks that all data is right, that a scrub finds nothing, and that the drives `others` may be lost.
    fn stands(&mut self, others: &[u16]) {
        self.check("caught up");
        self.world.scrub().unwrap();
        self.world.settle();
        assert_eq!(
            self.world.pool().scrub_progress().bad,
            0,
            "a scrub finds nothing"
        );
        for &seat in others {
            self.world.pull(Seat(seat));
        }
        self.check("and others lost");
    }
}

/// The bytes that a fill of a whole drive writes to the drive, for comparison.
fn whole_fill(options: &WorldOptions, groups: u64, seat: Seat) -> u64 {
    let mut run = Run::new(options, groups);
    run.world.fail_drive(seat, false).unwrap();
    run.world.settle();
    let drive = Drive::new(options.drive_bytes, options.pace);
    run.world.replace_drive(seat, drive).unwrap();
    run.world.settle();
    run.world.drive(seat).written_bytes()
}

#[test]
fn a_drive_that_missed_a_hundredth_is_written_less_than_a_twentieth_of_a_full_fill() {
    for (scheme, drives, groups) in [("raid6", 6, 5), ("raid5", 4, 5), ("pddl2:2d:7c:1s", 7, 7)] {
        let options = options(scheme, drives, 2 << 20);
        let seat = Seat(2);
        let mut run = Run::new(&options, groups);
        run.world.pull(seat);
        run.scribble(run.size / BLOCK / 100);
        // With distributed spares, the drive's columns are on other drives meanwhile, and are copied back.
        run.world.settle();
        assert!(!run.is_complete(seat), "{scheme}: it is out");
        run.world.plug_in(seat, None);
        let before = run.world.drive(seat).written_bytes();
        run.world.return_drive(seat).unwrap();
        run.world.settle();
        let written = run.world.drive(seat).written_bytes() - before;
        assert!(run.is_complete(seat), "{scheme}: {:#?}", run.world.reports);
        assert_eq!(run.rejected(), None, "{scheme}");
        let whole = whole_fill(&options, groups, seat);
        let copied = run.copied().expect("it says what was copied");
        println!("{scheme}: {copied} bytes copied, {written} written, a full fill writes {whole}");
        assert!(written * 20 < whole, "{scheme}: {written} of {whole}");
        assert!(copied > 0 && copied <= written, "{scheme}: {copied}");
        run.stands(&[0]);
    }
}

#[test]
fn a_drive_catches_up_after_every_cut_of_its_catching_up() {
    for (scheme, drives) in [("raid6", 4), ("pddl2:2d:5c:1s", 5), ("raid6:dcode", 5)] {
        let options = small(scheme, drives);
        let seat = Seat(1);
        let mut run = Run::new(&options, 4);
        run.world.pull(seat);
        run.scribble(6);
        run.world.settle();
        for lost in [None, Some(3)] {
            let mut back = run.clone();
            back.world.plug_in(seat, lost);
            assert!(back.world.begin_return_drive(seat, None));
            let mut cuts = 0;
            while !back.is_complete(seat) {
                let moment = back.world.clone().cut(CutSpec::Seed(cuts));
                let mut cut = Run {
                    world: World::open(moment, false, cuts).unwrap(),
                    ..back.clone()
                };
                if cuts % 2 == 0 {
                    cut.scribble(1);
                }
                cut.world.settle();
                if !cut.is_complete(seat) {
                    // The cut came before the drive's new label. If the other labels have its new identity, the
                    // drive is a stranger, and is filled as a whole.
                    let stranger = cut.world.drive_in(seat).is_none();
                    let instead = stranger.then(|| cut.world.drives()[seat.index()].clone());
                    assert!(cut.world.begin_return_drive(seat, instead));
                    cut.world.settle();
                    assert_eq!(cut.rejected().is_some(), stranger);
                }
                assert!(cut.is_complete(seat), "{scheme} cut {cuts}");
                cut.stands(&[0, 2]);
                cuts += 1;
                // Every step near the beginning, sampled steps later.
                for _ in 0..1 + cuts / 4 {
                    back.world.step();
                }
            }
            assert!(cuts > 20, "{scheme}: {cuts} cuts");
        }
    }
}

#[test]
fn what_a_drive_had_not_flushed_when_it_lost_power_is_copied() {
    // No flush is requested before the drive leaves: any part of its writes may be on it.
    for seed in 0..24 {
        let options = small("raid5", 4);
        let seat = Seat(2);
        let mut run = Run::new(&options, 6);
        run.world.reseed(seed);
        run.scribble(20);
        // In the middle of a checkpoint.
        for _ in 0..seed * 7 {
            run.world.step();
        }
        run.world.pull(seat);
        run.scribble(2);
        run.world.settle();
        run.world.plug_in(seat, Some(seed));
        run.world.return_drive(seat).unwrap();
        run.world.settle();
        assert!(run.is_complete(seat));
        assert_eq!(run.rejected(), None);
        run.stands(&[0]);
    }
}

#[test]
fn a_drive_that_leaves_again_while_it_catches_up_catches_up_again() {
    let options = small("raid6", 5);
    let seat = Seat(3);
    let mut first = Run::new(&options, 6);
    first.world.pull(seat);
    first.scribble(12);
    first.world.settle();
    first.world.plug_in(seat, Some(1));
    first.world.return_drive(seat).unwrap();
    for steps in 0..12 {
        let mut run = first.clone();
        for _ in 0..steps * 40 {
            run.world.step();
        }
        if run.is_complete(seat) {
            break;
        }
        run.world.pull(seat);
        run.scribble(3);
        run.world.settle();
        run.world.plug_in(seat, Some(steps));
        run.world.return_drive(seat).unwrap();
        run.world.settle();
        assert!(run.is_complete(seat), "{steps}");
        assert_eq!(run.rejected(), None, "{steps}");
        run.stands(&[1, 4]);
    }
}

#[test]
fn neighbours_that_are_out_at_once_come_back_in_either_order() {
    for (first, second) in [(1, 2), (2, 1), (0, 3), (3, 0)] {
        let options = small("raid6", 4);
        let mut run = Run::new(&options, 6);
        for seat in [first, second] {
            run.world.pull(Seat(seat));
            run.scribble(8);
            run.world.settle();
        }
        for seat in [first, second] {
            run.world.plug_in(Seat(seat), Some(u64::from(seat)));
            run.world.return_drive(Seat(seat)).unwrap();
            run.scribble(4);
            run.world.settle();
            assert!(run.is_complete(Seat(seat)), "{first} then {second}");
        }
        let others: Vec<u16> = (0..4).filter(|&s| s != first && s != second).collect();
        run.stands(&others);
    }
}

#[test]
fn a_group_that_was_given_to_another_volume_meanwhile_has_nothing_of_its_earlier_life() {
    let options = small("raid5", 4);
    let seat = Seat(2);
    let mut run = Run::new(&options, 6);
    run.world.pull(seat);
    run.scribble(1);
    run.world.settle();
    run.world.delete_volume(VOLUME).unwrap();
    run.world.create_volume(VOLUME, run.size).unwrap();
    run.oracle = Oracle::new(run.size);
    run.scribble(5);
    run.world.settle();
    run.world.plug_in(seat, None);
    run.world.return_drive(seat).unwrap();
    run.world.settle();
    assert_eq!(run.rejected(), None);
    run.stands(&[1]);
}

#[test]
fn a_stale_snapshot_of_a_drive_is_copied_what_changed_since_the_snapshot() {
    let options = small("raid5", 4);
    let seat = Seat(1);
    let mut run = Run::new(&options, 6);
    // The snapshot has the same label as the drive when it leaves.
    let snapshot = run.world.drive(seat).clone();
    run.scribble(10);
    run.world.settle();
    run.world.fail_drive(seat, false).unwrap();
    run.scribble(2);
    run.world.settle();
    assert!(run.world.begin_return_drive(seat, Some(snapshot)));
    run.world.settle();
    assert_eq!(run.rejected(), None);
    // In a pool of four drives half of all block writes change a given drive: its data or its parity.
    assert!(run.copied() > Some(3 * BLOCK), "{:?}", run.copied());
    run.stands(&[3]);
}

#[test]
fn a_clone_of_a_drive_that_came_back_is_a_stranger() {
    let options = small("raid5", 4);
    let seat = Seat(1);
    let mut run = Run::new(&options, 6);
    run.world.fail_drive(seat, false).unwrap();
    run.scribble(2);
    run.world.settle();
    let clone = run.world.drive(seat).clone();
    run.world.return_drive(seat).unwrap();
    run.world.settle();
    run.scribble(5);
    // The clone is beside the original at an opening: the clone is ignored.
    let again = clone.clone();
    let mut run = run.reopen(|mut drives| {
        drives.insert(0, again);
        drives
    });
    assert!(run.is_complete(seat));
    run.check("with a clone beside the original");
    // In place of the original, the clone has missed everything since the original's return, and is filled as a
    // whole.
    let mut run = run.reopen(|mut drives| {
        drives.remove(0);
        drives[1] = clone;
        drives
    });
    assert!(!run.is_complete(seat));
    run.check("with a clone in the original's place");
}

#[test]
fn a_drive_whose_label_does_not_fit_is_filled_as_a_whole() {
    let options = small("raid6", 5);
    let seat = Seat(1);
    let mut out = Run::new(&options, 6);
    let [other, third] = [2, 3].map(|seat| out.world.drive(Seat(seat)).clone());
    let mut incomplete = out.clone();
    out.world.fail_drive(seat, false).unwrap();
    out.scribble(2);
    out.world.settle();
    let own = out.world.drive(seat).clone();

    // The drive is used elsewhere, in a pool with earlier copies of two other drives.
    let half = vec![own.clone(), other.clone(), third];
    let mut elsewhere = World::open(half, true, 9).unwrap();
    elsewhere.settle();
    let apart = elsewhere.kill().remove(0);
    let mut nameless = own.clone();
    nameless.zero(4096, 508 << 10).unwrap();
    nameless.zero(512 << 10, 508 << 10).unwrap();
    let mut mute = own.clone();
    let facts = out.world.pool().facts();
    let regions = facts.regions.unwrap();
    for lane in 0..u64::from(facts.lanes) {
        let ring = regions.journal_offset + lane * regions.ring_bytes;
        mute.zero(ring, 8192).unwrap();
    }
    let cases = [
        (other, Rejected::AnotherDrive),
        (apart, Rejected::WentOn),
        (nameless, Rejected::NoLabel),
        (mute, Rejected::NoAnchor),
    ];
    for (drive, reason) in cases {
        let mut run = out.clone();
        assert!(
            run.world.begin_return_drive(seat, Some(drive)),
            "{reason:?}"
        );
        run.world.settle();
        assert_eq!(run.rejected(), Some(reason));
        assert_eq!(run.copied(), None);
        assert!(run.is_complete(seat), "{reason:?}");
        run.stands(&[0, 4]);
    }

    // A replacement that leaves before it is complete.
    incomplete.world.fail_drive(seat, false).unwrap();
    let drive = Drive::new(options.drive_bytes, options.pace);
    incomplete.world.replace_drive(seat, drive).unwrap();
    assert!(!incomplete.is_complete(seat));
    incomplete.world.fail_drive(seat, false).unwrap();
    incomplete.world.settle();
    incomplete.world.return_drive(seat).unwrap();
    incomplete.world.settle();
    assert_eq!(incomplete.rejected(), Some(Rejected::Incomplete));
    incomplete.stands(&[0, 4]);
}

/// Before, the anchor of such a drive had the higher number, so that the next opening followed the journal of
/// another history, and acknowledged writes were lost.
#[test]
fn the_journal_of_a_drive_that_went_on_elsewhere_is_never_read() {
    let options = small("raid6", 5);
    let seat = Seat(1);
    let mut out = Run::new(&options, 6);
    let [other, third] = [2, 3].map(|seat| out.world.drive(Seat(seat)).clone());
    out.world.fail_drive(seat, false).unwrap();
    out.world.settle();
    let own = out.world.drive(seat).clone();
    // The drive is used elsewhere, and its journal there becomes longer than the pool's own.
    let half = vec![own, other, third];
    let world = World::open(half, true, 9).unwrap();
    let mut elsewhere = Run {
        world,
        ..out.clone()
    };
    for _ in 0..8 {
        elsewhere.scribble(4);
        elsewhere.world.settle();
    }
    let apart = elsewhere.world.kill().remove(0);
    assert!(out.world.begin_return_drive(seat, Some(apart)));
    out.world.settle();
    assert_eq!(out.rejected(), Some(Rejected::WentOn));
    out.scribble(4);
    let drives = out.world.kill();
    out.world = World::open(drives, false, 7).unwrap();
    out.check("after a kill");
}
