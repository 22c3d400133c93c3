//! Drives leave pools of pieces while clients write. The power is cut after every write and flush, and with it a drive is
//! lost: the pool opens, goes on, and every block is as it was written. Drives also fail meanwhile, the one that leaves or
//! another.

use array::pool::{Report, SeatState};
use block::Seat;
use sim::{Drive, Oracle, Pace, World};

use crate::growing::{Case, Client, ONE_IN, Template, lose_each, specs_of};
use crate::support::parts;

const SMALL: Case = Case {
    scheme: "ddp:2d:1p",
    drives: 6,
    spares: 0,
    lazy: false,
    groups: 6,
    fresh: 0,
    waiting: &[],
};

/// The drive that leaves.
const LEAVES: Seat = Seat(2);

/// The drive has left: its seat is vacant, all others are complete, and every column is at home.
fn check_left(world: &World, when: &str) {
    let pool = world.pool();
    let reports = &world.reports;
    assert_eq!(pool.leaving(), None, "{when}: {reports:#?}");
    let layout = pool.geometry().layout();
    assert_eq!(layout.vacant(), [LEAVES], "{when}: {reports:#?}");
    for (seat, facts) in pool.facts().seats().take(layout.drives().into()) {
        let vacant = seat == LEAVES && facts.is_removed(seat);
        assert!(
            vacant || facts.state == SeatState::Current,
            "{when}, {seat} is {:?}: {reports:#?}",
            facts.state
        );
    }
    for group in pool.facts().allocated_groups() {
        for column in 0..layout.columns() {
            let home = layout.cell(group, column);
            let place = world.place(group, column);
            assert_eq!(place, Some(home), "{when}: {group}, {column}");
        }
    }
    assert_eq!(pool.absent_columns(), 0, "{when}");
    assert_eq!(
        pool.survives_drives(),
        pool.geometry().code().tolerance(),
        "{when}"
    );
}

/// Before the drive is removed, it fails and its columns are rebuilt.
fn fails_first(template: &Template, world: &mut World, oracle: &Oracle) {
    world.pull(LEAVES);
    world.fail_drive(LEAVES, false).unwrap();
    world.settle();
    template.check(world, oracle, "a drive has failed");
    let state = world.pool().facts().seats[LEAVES.index()].state;
    assert!(matches!(state, SeatState::Out { .. }), "{state:?}");
    assert_eq!(world.pool().absent_columns(), 0);
}

#[test]
fn a_pool_without_a_drive_is_whole_and_grows_again() {
    let cases = [
        SMALL,
        Case {
            lazy: true,
            ..SMALL
        },
        Case {
            scheme: "ddp:2d:2p",
            drives: 7,
            ..SMALL
        },
        Case {
            scheme: "crush2:2d",
            drives: 7,
            ..SMALL
        },
        Case { spares: 1, ..SMALL },
    ];
    let cases = cases
        .into_iter()
        .flat_map(|case| [(case, false), (case, true)]);
    // A waiting spare would take the seat of a drive that has failed.
    for (case, failed) in cases.filter(|(case, failed)| case.spares == 0 || !failed) {
        let when = format!("{}, failed: {failed}", case.scheme);
        let template = Template::new(case);
        let (mut world, oracle) = template.open(1);
        if failed {
            fails_first(&template, &mut world, &oracle);
        }
        let planned = world.pool().plan_removal(LEAVES).unwrap();
        let before = world.pool().progress().copied_bytes;
        let capacity = world.pool().capacity_bytes();
        world.remove(LEAVES).unwrap();
        world.settle();
        check_left(&world, &when);
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
        check_left(&world, &when);
        let fresh = Drive::new(template.options.drive_bytes, Pace::Null);
        world.expand(vec![fresh], &[]).unwrap();
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
    let template = Template::new(SMALL);
    let (mut world, oracle) = template.open(1);
    world.begin_remove(LEAVES).unwrap();
    while world.pool().progress().cells_done < 1 {
        world.step();
    }
    assert_eq!(world.pool().leaving(), Some(LEAVES));
    world.keep(LEAVES).unwrap();
    world.settle();
    assert!(world.pool().geometry().layout().vacant().is_empty());
    let layout = world.pool().geometry().layout();
    for group in world.pool().facts().allocated_groups() {
        for column in 0..layout.columns() {
            let home = layout.cell(group, column);
            assert_eq!(world.place(group, column), Some(home));
        }
    }
    template.check(&mut world, &oracle, "called off");
}

/// Removes a drive while a client writes, and calls `at` after each write and flush of a drive that has ended. Returns their
/// number.
fn moments(template: &Template, failed: bool, mut at: impl FnMut(u64, &World, &Client)) -> u64 {
    let (mut world, oracle) = template.open(3);
    if failed {
        fails_first(template, &mut world, &oracle);
    }
    let mut client = Client::new(template, oracle);
    client.advance(&mut world, true);
    world.begin_remove(LEAVES).unwrap();
    let (mut seen, mut count) = (world.boundaries(), 0);
    loop {
        at(count, &world, &client);
        count += 1;
        while world.boundaries() == seen {
            let leaves = world.pool().leaving().is_some();
            client.advance(&mut world, leaves);
            if world.is_quiet() || !world.step() {
                check_left(&world, "without a cut");
                client.check(&mut world, "without a cut");
                return count;
            }
        }
        seen = world.boundaries();
    }
}

/// Cuts the power after every `every`th write and flush from `first` on: none, all, all but one and the first ones of the
/// un-flushed writes survive, and others by chance. With each cut each drive is lost once.
fn power_goes(case: Case, failed: bool, every: u64, first: u64) {
    let template = Template::new(case);
    let (mut cuts, mut losses) = (0_u64, 0_u64);
    let mut left = [0, 0];
    let ended = moments(&template, failed, |at, world, client| {
        if at % (every * ONE_IN) != first * ONE_IN {
            return;
        }
        let power = world.clone().lose_power();
        let specs = specs_of(&power, at);
        losses += lose_each(case, (&power, &specs), at, client);
        for spec in specs {
            cuts += 1;
            let when = format!("{}: cut after {at}, {spec:?}", case.scheme);
            let mut world = World::open(power.with(spec), false, 7).expect(&when);
            client.check(&mut world, &when);
            world.settle();
            // The removal goes on to the end, unless it had not begun.
            let began = !world.pool().geometry().layout().vacant().is_empty();
            left[usize::from(began)] += 1;
            if began {
                check_left(&world, &when);
            } else {
                assert_eq!(world.pool().leaving(), None, "{when}");
            }
            client.check(&mut world, &format!("{when}, settled"));
            // And no other copy of anything is missing.
            let seat = Seat(u16::try_from(cuts % u64::from(case.drives)).unwrap());
            if began && seat != LEAVES {
                world.pull(seat);
                client.check(&mut world, &format!("{when}, settled, {seat} out"));
            }
        }
    });
    let (scheme, began) = (case.scheme, left[1]);
    eprintln!(
        "{scheme}: {ended} writes and flushes, {cuts} cuts, {began} that went on, {losses} with a drive"
    );
    assert!(left[1] > 0, "{left:?}");
}

/// At every `every`th write and flush from `first` on each drive is pulled, the one that leaves or another, while the client
/// goes on; then a fresh drive takes the seat of one that was not to leave.
fn a_drive_fails(case: Case, every: u64, first: u64) {
    let template = Template::new(case);
    let mut failures = 0;
    moments(&template, false, |at, world, client| {
        if at % every != first {
            return;
        }
        for lost in 0..world.drives().len() {
            let when = format!("{}: drive {lost} fails after {at}", case.scheme);
            let (mut world, mut client) = (world.clone(), client.clone());
            world.drives_mut()[lost].pull();
            for step in 0.. {
                client.advance(&mut world, step < 300);
                if client.in_flight.is_empty() || !world.step() {
                    break;
                }
            }
            world.settle();
            client.check(&mut world, &when);
            let gone = |seat: &Seat| {
                let facts = &world.pool().facts().seats[seat.index()];
                matches!(facts.state, SeatState::Out { .. }) && !facts.is_removed(*seat)
            };
            let drives = world.pool().geometry().layout().drives();
            if let Some(seat) = (0..drives).map(Seat).find(gone) {
                let drive = Drive::new(template.options.drive_bytes, Pace::Null);
                world.replace_drive(seat, drive).expect(&when);
                world.settle();
            }
            let is_begin = |report: &Report| matches!(report, Report::RemoveBegins { .. });
            if world.reports.iter().any(is_begin) {
                check_left(&world, &when);
            } else {
                // A drive was out before the labels said that one leaves.
                assert_eq!(world.pool().leaving(), None, "{when}");
            }
            client.check(&mut world, &format!("{when}, replaced"));
            failures += 1;
        }
    });
    eprintln!("{}: {failures} failures", case.scheme);
    assert!(failures > 0);
}

parts!(the_power_goes_at_every_write_of_a_removal {
    of_a_working_drive_0 => power_goes(SMALL, false, 3, 0),
    of_a_working_drive_1 => power_goes(SMALL, false, 3, 1),
    of_a_working_drive_2 => power_goes(SMALL, false, 3, 2),
    of_a_failed_drive => power_goes(SMALL, true, 1, 0),
    with_two_parities => power_goes(Case { scheme: "ddp:2d:2p", drives: 7, ..SMALL }, false, 5, 1),
    of_a_crush_pool => power_goes(Case { scheme: "crush2:2d", drives: 7, ..SMALL }, false, 5, 2),
    with_groups_that_were_never_written => power_goes(Case { lazy: true, ..SMALL }, false, 5, 3),
});

parts!(drives_fail_during_a_removal {
    of_a_working_drive => a_drive_fails(SMALL, 9, 3),
    with_two_parities => a_drive_fails(Case { scheme: "ddp:2d:2p", drives: 7, ..SMALL }, 17, 7),
    with_groups_that_were_never_written => a_drive_fails(Case { lazy: true, ..SMALL }, 17, 5),
});
