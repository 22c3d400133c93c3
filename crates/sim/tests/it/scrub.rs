//! Scrubs that are planned, make way for clients, and resume where an earlier run of the pool left off.

#![expect(clippy::print_stdout, reason = "figures for the documents")]

use std::time::Duration;

use array::format::GroupId;
use array::pool::Report;
use block::{Request, RequestKind};
use sim::{Drive, Pace, World, WorldOptions};

const VOLUME: &str = "v";
const BLOCK: u64 = 4096;
const DAY: u64 = 86_400;

/// A pool of disks with a fully written volume: enough for a scrub of seconds.
fn filled() -> (World, u64) {
    let mut world = World::create(&WorldOptions {
        scheme: "raid6".to_owned(),
        drives: 6,
        spares: 0,
        drive_bytes: 40 << 20,
        chunk_bytes: 16 << 10,
        cell_bytes: 1 << 20,
        regions: None,
        lazy: false,
        interleave: false,
        free_stripes: false,
        physical_blocks: None,
        pace: Pace::Server {
            bytes_per_second: 200 << 20,
            per_operation: Duration::from_micros(100),
        },
        seed: 1,
    });
    let size = 24 * world.pool().geometry().group_data_bytes();
    world.create_volume(VOLUME, size).unwrap();
    for offset in (0..size).step_by(1 << 20) {
        world.write(VOLUME, offset, &[0x5a; 1 << 20]).unwrap();
    }
    world.settle();
    (world, size)
}

fn run(world: &mut World, time: Duration) {
    let until = world.now() + time;
    while world.now() < until && world.step() {}
}

fn goes_on_at(world: &World) -> Option<GroupId> {
    world.reports.iter().find_map(|report| match report {
        Report::ScrubResumed { group } => Some(*group),
        _ => None,
    })
}

/// Groups that the world's scrub has done so far.
fn done(world: &World) -> u64 {
    world.scrub_progress().groups_done
}

fn reopened(drives: Vec<Drive>) -> World {
    World::open(drives, false, 5).unwrap()
}

#[test]
fn a_scrub_is_resumed_where_it_was_when_the_pool_was_closed() {
    let (mut world, _) = filled();
    assert!(world.begin_scrub());
    while done(&world) < 10 {
        assert!(world.step());
    }
    let (before, blocks) = (done(&world), world.scrub_progress().blocks);
    let mut world = reopened(world.close_now().unwrap());
    assert_eq!(
        goes_on_at(&world).map(|group| group.0 >= before),
        Some(true)
    );
    world.settle();
    let progress = world.scrub_progress();
    assert_eq!((progress.groups_done, progress.groups_total), (24, 24));
    assert!(progress.blocks > blocks, "{progress:?}");
    let all = progress.blocks;
    // As many blocks as an uninterrupted scrub reads.
    let mut world = reopened(world.close().unwrap());
    assert_eq!(goes_on_at(&world), None, "it has ended");
    assert!(world.begin_scrub());
    world.settle();
    assert_eq!(world.scrub_progress().blocks, all);
}

/// The recorded position is at most a minute old, and never ahead of the work that is done.
#[test]
fn a_scrub_is_resumed_near_where_it_was_when_the_daemon_died() {
    let (mut world, _) = filled();
    assert!(world.begin_scrub());
    while done(&world) < 4 {
        assert!(world.step());
    }
    let mut world = reopened(world.kill());
    assert_eq!(
        goes_on_at(&world),
        Some(GroupId(0)),
        "nothing was noted in so short a time"
    );
    world.settle();
    assert_eq!(done(&world), 24);
    // A plan makes the pool check the time now and then, so that virtual time passes.
    world.plan_scrub(30).unwrap();
    assert!(world.begin_scrub());
    world.pause_scrub_after(6);
    run(&mut world, Duration::from_secs(70));
    world.resume_scrub();
    while done(&world) < 12 {
        assert!(world.step());
    }
    let at = done(&world);
    let world = reopened(world.kill());
    let noted = goes_on_at(&world).expect("it was under way");
    assert!((6..=at).contains(&noted.0), "{noted} of {at}");
}

/// Reads beside a scrub take little longer than without, and the scrub comes to its end. Without clients the scrub runs
/// at full speed.
#[test]
fn a_scrub_makes_way_for_clients_and_goes_on() {
    let (mut world, size) = filled();
    let reads = |world: &mut World, count: u64| -> Duration {
        let mut took: Vec<Duration> = (0..count)
            .map(|index| {
                let request = Request {
                    kind: RequestKind::Read,
                    offset: index * 977 % (size / BLOCK) * BLOCK,
                    length: BLOCK,
                    fua: false,
                };
                let begun = world.now();
                world.request(VOLUME, request, &[]).unwrap();
                world.now().since(begun)
            })
            .collect();
        took.sort_unstable();
        took.iter().sum::<Duration>() / u32::try_from(count).unwrap()
    };
    let alone = reads(&mut world, 1000);
    assert!(world.begin_scrub());
    let began = world.now();
    let mut beside = Vec::new();
    while done(&world) < 24 {
        beside.push(reads(&mut world, 50));
    }
    let time = world.now().since(began);
    let beside = beside.iter().sum::<Duration>() / u32::try_from(beside.len()).unwrap();
    println!("reads alone {alone:?}, beside a scrub {beside:?}, which took {time:?}");
    assert!(beside < alone * 2, "{alone:?} and {beside:?}");
    // The client has stopped.
    run(&mut world, Duration::from_secs(2));
    assert!(world.begin_scrub());
    let began = world.now();
    while done(&world) < 24 {
        assert!(world.step());
    }
    let free = world.now().since(began);
    println!("without clients {free:?}");
    assert!(free * 2 < time, "it runs free");
}

#[test]
fn a_planned_scrub_begins_when_it_is_due_and_not_before() {
    let begun = |world: &World| {
        let begins = |report: &&Report| matches!(report, Report::ScrubBegins { .. });
        world.reports.iter().filter(begins).count()
    };
    let (mut world, _) = filled();
    let today = 20_000 * DAY;
    world.tell_wall_clock(today);
    world.plan_scrub(7).unwrap();
    world.tell_wall_clock(today + 7 * DAY - 1);
    assert_eq!(begun(&world), 0);
    let mut world = reopened(world.close_now().unwrap());
    world.tell_wall_clock(today + 7 * DAY - 1);
    assert_eq!(begun(&world), 0, "a restart changes nothing");
    world.tell_wall_clock(today + 8 * DAY);
    assert_eq!(begun(&world), 1);
    while world.scrub_progress().ended.is_none() {
        assert!(world.step());
    }
    world.tell_wall_clock(today + 15 * DAY - 1);
    assert_eq!(begun(&world), 1, "counted from the end of the last one");
    world.tell_wall_clock(today + 15 * DAY);
    assert_eq!(begun(&world), 2);
    while world.scrub_progress().ended.is_none() {
        assert!(world.step());
    }
    world.plan_scrub(0).unwrap();
    world.tell_wall_clock(today + 400 * DAY);
    assert_eq!(begun(&world), 2, "there is no plan any more");
}
