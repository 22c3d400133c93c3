//! Drives leave pools of pieces while clients write. The power is cut after every write and flush, and with it a drive is
//! lost: the pool opens, goes on, and every block is as it was written. Drives also fail meanwhile, the one that leaves or
//! another.

use array::pool::SeatState;
use block::Seat;
use sim::{Counted, CutSpec, DriveFault, Trigger, World};

use crate::growing::sample;
use crate::resizing::{Change, Client, LEAVES, SHRINKS, Template, cuts::power_goes, pairs};
use testing::parts;

#[test]
fn a_pool_without_a_drive_is_whole_and_grows_again() {
    let schemes = [
        SHRINKS,
        SHRINKS.of("ddp:2d:2p", 7),
        SHRINKS.of("crush2:2d", 7),
    ];
    let cases = { schemes.into_iter() }
        .chain([SHRINKS.lazy()])
        .flat_map(|case| [case, case.failed()]);
    // A waiting spare would take the seat of a drive that has failed.
    for case in cases.chain([SHRINKS.beside(1)]) {
        let when = format!("{case:?}");
        let template = Template::new(case);
        let failed = matches!(case.change, Change::Leave { failed: true, .. });
        let (mut world, oracle) = template.open(1);
        let planned = world.pool().plan_removal(LEAVES).unwrap();
        let before = world.pool().progress().copied_bytes;
        let capacity = world.pool().capacity_bytes();
        world.remove(LEAVES).unwrap();
        world.settle();
        template.check_done(&world, &when);
        let copied = world.pool().progress().copied_bytes - if failed { before } else { 0 };
        match (failed, case.lazy) {
            (true, _) => assert_eq!((planned.moved_bytes, copied), (0, 0), "{when}"),
            (false, false) => assert_eq!(copied, planned.moved_bytes, "{when}"),
            (false, true) => assert!(
                (1..planned.moved_bytes).contains(&copied),
                "{when}: {copied}"
            ),
        }
        let now = world.pool().capacity_bytes();
        assert_eq!((capacity, now), planned.capacity_bytes, "{when}");
        // What is not in use makes way, so that another drive may fail.
        assert_eq!(world.pool().spare_drives_left(), 1, "{when}");
        assert_eq!(
            planned.spare_drives.1,
            world.pool().spare_drives_left(),
            "{when}"
        );
        template.check(&mut world, &oracle, &when);
        // After a restart, too, and without any one drive.
        let mut drives = world.close().unwrap();
        drives.retain(|drive| drive.size_bytes() > 0);
        for lost in 0..drives.len() {
            let mut left = drives.clone();
            left[lost].pull();
            let when = format!("{when}, {lost} lost");
            let mut world = World::open(left, true, 1).expect(&when);
            template.check(&mut world, &oracle, &when);
        }
        // The next drive takes the vacant seat.
        let mut world = World::open(drives, false, 2).expect(&when);
        template.check_done(&world, &when);
        world.expand(vec![template.fresh()], &[]).unwrap();
        world.settle();
        let layout = world.pool().geometry().layout();
        assert_eq!(
            (layout.drives(), layout.vacant()),
            (case.drives, &[][..]),
            "{when}"
        );
        assert!(!world.pool().is_growing(), "{when}");
        assert_eq!(
            world.pool().facts().seats[LEAVES.index()].state,
            SeatState::Current,
            "{when}"
        );
        template.check(&mut world, &oracle, &when);
        let drives = world.close().unwrap();
        let mut world = World::open(drives, false, 3).expect(&when);
        template.check(&mut world, &oracle, &when);
    }
}

#[test]
fn a_removal_that_is_called_off_moves_everything_back() {
    let template = Template::new(SHRINKS);
    let (mut world, oracle) = template.open(1);
    world.begin_remove(LEAVES).unwrap();
    while world.pool().progress().cells_done < 1 {
        world.step();
    }
    assert_eq!(world.pool().leaving(), Some(LEAVES));
    world.keep(LEAVES).unwrap();
    world.settle();
    assert!(world.pool().geometry().layout().vacant().is_empty());
    let geometry = world.pool().geometry();
    for group in world.pool().facts().allocated_groups() {
        for column in geometry.columns() {
            let home = geometry.home(group, column);
            assert_eq!(world.place(group, column), Some(home));
        }
    }
    template.check(&mut world, &oracle, "called off");
}

/// A drive beside a vacant seat refuses writes for lack of space, from one of them on; after some steps the power goes, and
/// another drive is lost. What was flushed is there. All by number.
pub(super) fn numbered(number: u64) {
    let when = format!("number {number}");
    let template = Template::new(SHRINKS.tiny());
    let (mut world, oracle) = template.open(number);
    world.remove(LEAVES).unwrap();
    world.settle();
    template.check_done(&world, &when);
    let seats = [0, 1, 3, 4, 5].map(Seat);
    let at = usize::try_from(number % 20).unwrap();
    let (full, lost) = (seats[at % 5], seats[(at % 5 + 1 + at / 5) % 5]);
    let trigger = Trigger {
        counted: Counted::Writes,
        ..Trigger::nth(number / 20 % 7)
    };
    let fault = DriveFault::Full { for_good: true };
    world.drive(full).inject(trigger, fault);
    let mut client = Client::new(&template, oracle);
    client.may_be_refused = true;
    for _ in 0..40 + number % 61 {
        client.advance(&mut world, true);
        world.step();
    }
    let [full, lost] = [full, lost].map(|seat| world.drive_index_of(seat));
    let mut drives = world.cut(CutSpec::All);
    drives[full].stop_faults();
    drives[full].recover();
    drives[lost].pull();
    let mut world = World::open(drives, true, number).expect(&when);
    client.check(&mut world, &when);
    world.settle();
    client.check(&mut world, &when);
}

#[test]
fn what_a_full_drive_refuses_is_elsewhere_although_a_seat_is_vacant() {
    (0..40).for_each(numbered);
}

parts!(the_power_goes_at_every_write_of_a_removal {
    of_a_working_drive_0 => power_goes(SHRINKS, sample(3, 0)),
    of_a_working_drive_1 => power_goes(SHRINKS, sample(3, 1)),
    of_a_working_drive_2 => power_goes(SHRINKS, sample(3, 2)),
    of_a_failed_drive => power_goes(SHRINKS.failed(), sample(1, 0)),
    with_two_parities => power_goes(SHRINKS.of("ddp:2d:2p", 7), sample(5, 1)),
    of_a_crush_pool => power_goes(SHRINKS.of("crush2:2d", 7), sample(5, 2)),
    with_groups_that_were_never_written => power_goes(SHRINKS.lazy(), sample(5, 3)),
});

parts!(drives_fail_during_a_removal {
    of_a_working_drive => pairs::one(SHRINKS, 9, 3),
    with_two_parities => pairs::one(SHRINKS.of("ddp:2d:2p", 7), 17, 7),
    with_groups_that_were_never_written => pairs::one(SHRINKS.lazy(), 17, 5),
});
