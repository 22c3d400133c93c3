//! Pools of pieces grow by a drive or two while clients write. The power is cut after every write and flush, and with it a
//! drive is lost: the pool opens, goes on, and every block is as it was written. Drives also fail while the pool is open.

use block::Seat;
use rand::RngExt;
use sim::{CutSpec, World};

use crate::resizing::{
    BLOCK, GROWS, Template,
    cuts::{Cut, Sample, power_goes},
    pairs, write,
};
use testing::parts;

#[test]
fn a_pool_that_has_grown_reads_right_and_has_room_for_more() {
    let cases = [
        GROWS,
        GROWS.lazy(),
        GROWS.by(2),
        GROWS.of("ddp:2d:2p", 5),
        GROWS.of("crush2:2d", 5),
        GROWS.beside(2),
        GROWS.beside(2).by_spares(&[Seat(5)]),
    ];
    for case in cases {
        let when = &format!("{case:?}");
        let template = Template::new(case);
        let (mut world, mut oracle) = template.open(1);
        let (drives, waiting) = template.joining();
        let joining = drives.len() + waiting.len();
        let planned = world.pool().plan_growth(joining).unwrap();
        let before = world.pool().capacity_bytes();
        world.expand(drives, waiting).unwrap();
        for _ in 0..3 {
            let offset = world.rng().random_range(0..template.size / BLOCK) * BLOCK;
            write(&mut world, &mut oracle, offset, BLOCK);
        }
        world.settle();
        template.check_done(&world, when);
        let after = world.pool().capacity_bytes();
        assert_eq!((before, after), planned.capacity_bytes, "{when}");
        let copied = world.pool().progress().copied_bytes;
        match case.lazy {
            false => assert_eq!(copied, planned.moved_bytes, "{when}"),
            true => assert!(
                (1..=planned.moved_bytes).contains(&copied),
                "{when}: {copied}"
            ),
        }
        template.check(&mut world, &oracle, when);
        // New groups take data.
        let free = world.pool().free_bytes();
        world.create_volume("more", free).unwrap();
        let bytes = vec![7; usize::try_from(free).unwrap()];
        world.write("more", 0, &bytes).unwrap();
        world.settle();
        template.check(&mut world, &oracle, when);
        // After a restart, too, and without any one drive.
        let drives = world.close().unwrap();
        for lost in 0..drives.len() {
            let mut left = drives.clone();
            left[lost].pull();
            let mut world = World::open(left, true, 1).expect(when);
            let when = format!("{when}, {lost} lost");
            template.check(&mut world, &oracle, &when);
            assert!(world.read("more", 0, free).unwrap() == bytes, "{when}");
        }
    }
}

/// A sample, of which a build with debug assertions takes one in seven.
pub(crate) const fn sample(every: u64, first: u64) -> Option<Sample> {
    let one_in = if cfg!(debug_assertions) { 7 } else { 1 };
    Some(Sample {
        every: every * one_in,
        first: first * one_in,
    })
}

/// The power goes after one of the first writes and flushes of a growth by a spare, by number: none, all, all but one, or the
/// first ones of the un-flushed writes survive, and each drive is lost.
#[cfg(debug_assertions)]
pub(super) fn numbered(number: u64) {
    let template = Template::new(GROWS.tiny().beside(1).by_spares(&[Seat(4)]));
    template.moments(|at, world, client| {
        if at != number % 64 {
            return;
        }
        let power = world.clone().lose_power();
        for spec in CutSpec::of(power.writes(), 0) {
            for lost in 0..world.drives().len() {
                let when = format!("number {number}, {spec:?}");
                let cut = Cut {
                    template: &template,
                    client,
                    when,
                };
                cut.without(power.with(spec), &[lost]);
            }
        }
    });
}

#[cfg(debug_assertions)]
#[test]
fn the_power_goes_early_in_a_growth_by_a_spare() {
    (0..16).for_each(numbered);
}

parts!(the_power_goes_at_every_write_of_a_growth {
    by_a_drive_0 => power_goes(GROWS, sample(4, 0)),
    by_a_drive_1 => power_goes(GROWS, sample(4, 1)),
    by_a_drive_2 => power_goes(GROWS, sample(4, 2)),
    by_a_drive_3 => power_goes(GROWS, sample(4, 3)),
    by_two_drives => power_goes(GROWS.by(2), sample(7, 0)),
    by_a_spare_behind_another => power_goes(GROWS.beside(2).by_spares(&[Seat(5)]), sample(7, 1)),
    with_two_parities => power_goes(GROWS.of("ddp:2d:2p", 5), sample(7, 2)),
    of_a_crush_pool => power_goes(GROWS.of("crush2:2d", 5), sample(7, 3)),
    with_groups_that_were_never_written => power_goes(GROWS.lazy(), sample(7, 4)),
});

parts!(drives_fail_during_a_growth {
    by_a_drive => pairs::one(GROWS, 9, 3),
    by_two_drives => pairs::one(GROWS.by(2), 17, 7),
    with_groups_that_were_never_written => pairs::one(GROWS.lazy(), 17, 5),
    of_a_crush_pool => pairs::one(GROWS.of("crush2:2d", 5), 17, 4),
});

parts!(two_drives_fail_during_a_growth {
    and_a_replacement => pairs::two(GROWS.of("ddp:2d:2p", 6).tiny().replacing(Seat(1)), 3),
});
