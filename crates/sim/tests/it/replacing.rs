//! Working drives are replaced: a drive's blocks count until its successor has all of them. Meanwhile every block of
//! every other drive goes bad, either drive fails, and the power goes, at sampled steps.

use array::pool::{Report, SeatState};
use block::{Request, RequestKind, Seat};
use rand::{Rng, RngExt};
use sim::{CutSpec, Drive, Oracle, Pace, World, WorldOptions};

const VOLUME: &str = "v";
const BLOCK: u64 = 4096;

/// A pool with a volume full of random bytes, all in place, closed.
struct Template {
    options: WorldOptions,
    size: u64,
    drives: Vec<Drive>,
    oracle: Oracle,
}

impl Template {
    fn new(scheme: &str, drives: u16, groups: u64) -> Self {
        let options = WorldOptions {
            cell_bytes: 8192,
            ..WorldOptions::small(scheme, drives)
        };
        let mut world = World::create(&options);
        let size = groups * world.pool().geometry().group_data_bytes();
        world.create_volume(VOLUME, size).unwrap();
        let mut oracle = Oracle::new(size);
        write(&mut world, &mut oracle, 0, size);
        let drives = world.close().unwrap();
        Self {
            options,
            size,
            drives,
            oracle,
        }
    }

    fn open(&self, seed: u64) -> (World, Oracle) {
        let world = World::open(self.drives.clone(), false, seed).unwrap();
        (world, self.oracle.clone())
    }

    fn fresh(&self) -> Drive {
        Drive::new(self.options.drive_bytes, Pace::Null)
    }

    fn seats(&self) -> impl Iterator<Item = Seat> + use<> {
        (0..self.options.drives).map(Seat)
    }

    /// Byte offsets on the drive of all blocks of its cells that are in use.
    fn blocks(&self, world: &World, seat: Seat) -> Vec<u64> {
        let geometry = world.pool().geometry();
        let groups = world.pool().facts().allocated_groups();
        let cells = groups.flat_map(|group| {
            let columns = geometry.columns();
            columns.map(move |column| geometry.home(group, column))
        });
        let here = cells.filter(|cell| cell.seat == seat);
        let blocks = geometry.cell_bytes() / BLOCK;
        here.flat_map(|cell| (0..blocks).map(move |block| geometry.block_offset(cell, block)))
            .collect()
    }

    fn check(&self, world: &mut World, oracle: &Oracle, when: &str) {
        let read = world.read(VOLUME, 0, self.size);
        let read = read.unwrap_or_else(|fault| panic!("{when}: {fault}: {:#?}", world.reports));
        oracle.check(0, &read, when);
    }
}

fn write(world: &mut World, oracle: &mut Oracle, offset: u64, length: u64) {
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    world.rng().fill_bytes(&mut bytes);
    world.write(VOLUME, offset, &bytes).unwrap();
    oracle.wrote(offset, &bytes);
}

fn flush(world: &mut World) {
    let flush = Request {
        kind: RequestKind::Flush,
        offset: 0,
        length: 0,
        fua: false,
    };
    world.request(VOLUME, flush, &[]).unwrap();
}

/// Writes some blocks at random places, and flushes.
fn scribble(world: &mut World, oracle: &mut Oracle, size: u64) {
    for _ in 0..3 {
        let offset = world.rng().random_range(0..size / BLOCK) * BLOCK;
        let length = world.rng().random_range(1..4) * BLOCK;
        write(world, oracle, offset, length.min(size - offset));
    }
    flush(world);
}

fn all_current(world: &World, when: &str) {
    let seats = usize::from(world.pool().geometry().layout().drives());
    for (seat, facts) in world.pool().facts().seats().take(seats) {
        let reports = &world.reports;
        assert_eq!(
            facts.state,
            SeatState::Current,
            "{when}, {seat}: {reports:#?}"
        );
    }
}

/// Before, a working drive was put out before its successor was filled. A block that had silently gone bad on another
/// drive could then not be reconstructed, although the drive just taken out had the data for it.
fn every_bad_block_beside_every_replaced_drive(scheme: &str, drives: u16, groups: u64) {
    let template = Template::new(scheme, drives, groups);
    let mut pairs = 0;
    for replaced in template.seats() {
        for other in template.seats().filter(|&other| other != replaced) {
            let blocks = template.blocks(&template.open(0).0, other);
            for offset in blocks {
                let (mut world, oracle) = template.open(offset ^ u64::from(replaced.0));
                let when = format!("{scheme}: {replaced} replaced, {other} bad at {offset}");
                match pairs % 2 {
                    0 => world.drive(other).spoil(offset),
                    _ => world.drive(other).flip(offset, 77),
                }
                world.replace_working(replaced, template.fresh()).unwrap();
                world.settle();
                all_current(&world, &when);
                template.check(&mut world, &oracle, &when);
                let lost = |report: &Report| {
                    matches!(report, Report::CellLost { .. } | Report::StripeLost { .. })
                };
                assert!(!world.reports.iter().any(lost), "{when}");
                pairs += 1;
            }
        }
    }
    assert!(pairs > 100, "{pairs}");
}

#[test]
fn nothing_is_lost_that_a_replaced_drive_of_raid5_has() {
    every_bad_block_beside_every_replaced_drive("raid5", 4, 6);
}

#[test]
fn nothing_is_lost_that_a_replaced_drive_of_raid6_has() {
    every_bad_block_beside_every_replaced_drive("raid6", 5, 5);
}

#[test]
fn nothing_is_lost_that_a_replaced_drive_of_pddl2_has() {
    every_bad_block_beside_every_replaced_drive("pddl2:2d:1s", 7, 14);
}

/// Before, a fill wrote unchanged checksum pages only to cells that the lane's view showed as being filled. A successor
/// has no cell in the view: it gets the writes that go to the drive it succeeds. It took the seat without these pages,
/// and its blocks could not be read once the other drives were lost.
#[test]
fn a_successor_has_the_pages_that_have_not_changed() {
    for (scheme, drives, groups) in SCHEMES {
        let template = Template::new(scheme, drives, groups);
        let (mut world, oracle) = template.open(1);
        world.replace_working(Seat(1), template.fresh()).unwrap();
        world.settle();
        all_current(&world, scheme);
        let tolerance = world.pool().geometry().code().tolerance();
        let other = template.seats().filter(|&seat| seat != Seat(1));
        let lost: Vec<usize> = other
            .take(usize::from(tolerance))
            .map(|seat| world.drive_index_of(seat))
            .collect();
        // Closed and opened, so that no page is in memory.
        let mut left = world.close().unwrap();
        lost.iter().for_each(|&drive| left[drive].pull());
        let mut world = World::open(left, true, 1).expect(scheme);
        template.check(&mut world, &oracle, scheme);
    }
}

/// Begins a replacement of seat 1 and runs `steps` steps, with writes among them; false if the replacement ended
/// before.
fn replace_for(
    template: &Template,
    world: &mut World,
    oracle: &mut Oracle,
    steps: usize,
) -> (Seat, bool) {
    let with = world.replace_working(Seat(1), template.fresh()).unwrap();
    for step in 0..steps {
        if step % 40 == 20 {
            scribble(world, oracle, template.size);
        }
        if !world.step() || world.is_quiet() {
            return (with, false);
        }
    }
    (with, true)
}

/// Whatever has become of the replacement, the pool survives the loss of as many drives as its code does.
fn the_code_survives_as_much_as_ever(
    template: &Template,
    mut world: World,
    oracle: &Oracle,
    when: &str,
) {
    world.settle();
    all_current(&world, when);
    template.check(&mut world, oracle, when);
    let tolerance = world.pool().geometry().code().tolerance();
    for seat in template.seats().skip(1).take(usize::from(tolerance)) {
        world.pull(seat);
    }
    template.check(&mut world, oracle, &format!("{when}, {tolerance} out"));
}

const SCHEMES: [(&str, u16, u64); 4] = [
    ("raid1:2r", 2, 6),
    ("raid5", 4, 6),
    ("raid6", 5, 5),
    ("pddl1:2d:1s", 7, 14),
];

#[test]
fn the_new_drive_fails_at_any_step_and_the_old_one_keeps_its_place() {
    for (scheme, drives, groups) in SCHEMES {
        let template = Template::new(scheme, drives, groups);
        for steps in (0..).step_by(17) {
            let (mut world, mut oracle) = template.open(steps as u64);
            let (with, under_way) = replace_for(&template, &mut world, &mut oracle, steps);
            if !under_way {
                assert!(steps > 100, "{scheme}: {steps}");
                break;
            }
            let when = format!("{scheme}: the new drive fails after {steps}");
            match world.drive_in(with) {
                Some(drive) => drive.pull(),
                None => continue,
            }
            scribble(&mut world, &mut oracle, template.size);
            world.settle();
            assert_eq!(
                world.pool().facts().seats.len(),
                usize::from(drives),
                "{when}"
            );
            the_code_survives_as_much_as_ever(&template, world, &oracle, &when);
        }
    }
}

#[test]
fn the_old_drive_fails_at_any_step_and_the_new_one_is_rebuilt_to_the_end() {
    for (scheme, drives, groups) in SCHEMES {
        let template = Template::new(scheme, drives, groups);
        for steps in (0..).step_by(17) {
            let (mut world, mut oracle) = template.open(steps as u64);
            let old = world.drive_index_of(Seat(1));
            let (_, under_way) = replace_for(&template, &mut world, &mut oracle, steps);
            if !under_way {
                assert!(steps > 100, "{scheme}: {steps}");
                break;
            }
            let when = format!("{scheme}: the old drive fails after {steps}");
            world.drives_mut()[old].pull();
            scribble(&mut world, &mut oracle, template.size);
            template.check(&mut world, &oracle, &when);
            world.settle();
            the_code_survives_as_much_as_ever(&template, world, &oracle, &when);
        }
    }
}

#[test]
fn the_power_goes_at_any_step_and_either_drive_is_the_member() {
    let mut ended = [0, 0];
    for (scheme, drives, groups) in SCHEMES {
        let template = Template::new(scheme, drives, groups);
        for steps in (0..).step_by(7) {
            let (mut world, mut oracle) = template.open(steps as u64);
            let (_, under_way) = replace_for(&template, &mut world, &mut oracle, steps);
            if !under_way {
                assert!(steps > 100, "{scheme}: {steps}");
                break;
            }
            let power = world.lose_power();
            for spec in [CutSpec::None, CutSpec::All, CutSpec::Seed(steps as u64)] {
                let left = power.with(spec);
                let when = format!("{scheme}: cut after {steps}, {spec:?}");
                let mut world = World::open(left.clone(), false, 7).expect(&when);
                let going_on = world.pool().successor(Seat(1)).is_some();
                ended[usize::from(going_on)] += 1;
                template.check(&mut world, &oracle, &when);
                the_code_survives_as_much_as_ever(&template, world, &oracle, &when);
                // The same if as many drives as the code survives are lost with the power.
                let mut world = World::open(left.clone(), false, 7).expect(&when);
                let tolerance = world.pool().geometry().code().tolerance();
                for lost in template.seats().take(usize::from(tolerance)) {
                    let index = world.drive_index_of(lost);
                    let mut fewer = left.clone();
                    fewer[index].pull();
                    let when = format!("{when}, {lost} lost with it");
                    world = World::open(fewer, true, 7).expect(&when);
                    template.check(&mut world, &oracle, &when);
                }
            }
        }
    }
    assert!(ended.iter().all(|&count| count > 20), "{ended:?}");
}
