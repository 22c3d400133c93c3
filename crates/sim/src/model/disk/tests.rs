use super::*;

fn options() -> DiskOptions {
    let zone = Zone {
        cylinders: 100,
        sectors_per_track: 100,
        track_skew: 10,
        cylinder_skew: 20,
    };
    DiskOptions {
        revolution_ns: 10_000_000,
        heads: 2,
        zones: vec![zone],
        seek: SeekCurve {
            one_ns: 1_000_000,
            knee_cylinders: 50,
            knee_ns: 5_000_000,
            full_ns: 6_000_000,
        },
        head_switch_ns: 950_000,
        cylinder_switch_ns: 1_900_000,
        write_settle_ns: 300_000,
        overhead_ns: 0,
        interface_bytes_per_second: 0,
        cache: DiskCacheOptions::default(),
        queue: QueueOptions::default(),
    }
}

fn operation(token: u64, kind: IoKind, sector: u64, sectors: u64) -> Operation {
    Operation {
        token,
        kind,
        offset: sector * SECTOR_BYTES,
        length: sectors * SECTOR_BYTES,
    }
}

/// Runs until nothing is due. Returns which operations were done, and when.
fn run(disk: &mut Disk) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    while let Some(at) = disk.poll_timeout() {
        disk.handle_timeout(at);
        while let Some(token) = disk.poll_done() {
            all.push((token, at.0));
        }
    }
    all
}

fn one(disk: &mut Disk, now: u64, kind: IoKind, sector: u64, sectors: u64) -> u64 {
    disk.handle_operation(Instant(now), operation(0, kind, sector, sectors));
    let done = run(disk);
    assert_eq!(done.len(), 1, "{done:?}");
    done[0].1
}

#[test]
fn an_access_is_seek_rotation_and_transfer() {
    let mut disk = Disk::new(options());
    // Sector 30 of the first track comes round after 3 ms and passes in 0.1.
    assert_eq!(one(&mut disk, 0, IoKind::Read, 30, 1), 3_100_000);
    // Cylinder 50, a seek of 5 ms; its first track is turned by 50 × 30 sectors, a whole number of turns: 8.1 → 10.
    assert_eq!(
        one(&mut disk, 3_100_000, IoKind::Read, 10_000, 1),
        10_100_000
    );
    assert_eq!((disk.work.seeks, disk.work.seek_ns), (1, 5_000_000));
    assert_eq!(disk.work.rotation_ns, 3_000_000 + 1_900_000);
    // The other head: a switch to a track turned by 10 sectors; a write in place settles too: 11.35 → 21.
    assert_eq!(
        one(&mut disk, 10_100_000, IoKind::Write, 10_100, 1),
        21_100_000
    );
}

#[test]
fn a_long_transfer_loses_the_skews_and_no_turn() {
    let mut disk = Disk::new(options());
    // Two cylinders: 4 turns, and skews of 10, 20 and 10 sectors between them.
    assert_eq!(
        one(&mut disk, 0, IoKind::Read, 0, 400),
        40_000_000 + 4_000_000
    );
    let mut late = options();
    // A switch that takes half a sector longer than its skew is in time, one of a whole sector loses a turn.
    late.head_switch_ns = 1_050_000;
    assert_eq!(
        one(&mut Disk::new(late.clone()), 0, IoKind::Read, 0, 200),
        21_000_000
    );
    late.head_switch_ns = 1_100_000;
    assert_eq!(
        one(&mut Disk::new(late), 0, IoKind::Read, 0, 200),
        31_000_000
    );
}

#[test]
fn shortest_positioning_first_takes_what_comes_round_first() {
    let mut options = options();
    options.queue = QueueOptions {
        order: crate::model::Order::Sptf,
        depth: 8,
    };
    let mut disk = Disk::new(options);
    disk.handle_operation(Instant::ZERO, operation(0, IoKind::Read, 0, 1));
    for (token, sector) in [(1, 90), (2, 10), (3, 50)] {
        disk.handle_operation(Instant(1), operation(token, IoKind::Read, sector, 1));
    }
    let done = run(&mut disk);
    assert_eq!(
        done,
        [(0, 100_000), (2, 1_100_000), (3, 5_100_000), (1, 9_100_000)]
    );
}

fn cached() -> DiskOptions {
    DiskOptions {
        overhead_ns: 200_000,
        cache: DiskCacheOptions {
            segments: 2,
            segment_sectors: 150,
            read_ahead_sectors: 100,
            write_sectors: 0,
        },
        ..options()
    }
}

#[test]
fn a_stream_of_small_reads_runs_at_the_speed_of_the_medium() {
    let mut disk = Disk::new(cached());
    let mut now = 0;
    for sector in (0..800).step_by(8) {
        now = one(&mut disk, now, IoKind::Read, sector, 8);
    }
    // Eight tracks with their skews, the first command's overhead with the turn that it lost (the head was at sector 0
    // at time 0), and no more.
    assert_eq!(
        now,
        10_000_000 + 8 * 10_000_000 + 4 * 1_000_000 + 3 * 2_000_000
    );
    assert_eq!(disk.work.rotations, 1);
    // Without read-ahead each read comes 0.2 ms late and waits for nearly a turn.
    let mut plain = cached();
    plain.cache = DiskCacheOptions::default();
    let mut disk = Disk::new(plain);
    let mut now = 0;
    for sector in (0..800).step_by(8) {
        now = one(&mut disk, now, IoKind::Read, sector, 8);
    }
    assert!(now > 90 * 10_000_000, "{now}");
}

#[test]
fn what_was_read_ahead_is_answered_at_once_and_what_is_written_is_not() {
    let mut disk = Disk::new(cached());
    let now = one(&mut disk, 0, IoKind::Read, 0, 8) + 50_000_000;
    assert_eq!(one(&mut disk, now, IoKind::Read, 60, 8), now + 200_000);
    assert_eq!(disk.work.cache_hits, 1);
    let now = one(&mut disk, now + 1, IoKind::Write, 40, 1);
    assert!(one(&mut disk, now, IoKind::Read, 40, 8) > now + 200_000);
    assert_eq!(disk.work.cache_hits, 1);
}

#[test]
fn a_cached_write_is_answered_at_once_and_a_flush_when_it_is_on_the_medium() {
    let mut options = options();
    options.cache.write_sectors = 64;
    let mut disk = Disk::new(options);
    disk.handle_operation(Instant::ZERO, operation(1, IoKind::Write, 2000, 8));
    disk.handle_operation(Instant::ZERO, operation(2, IoKind::Flush, 0, 0));
    disk.handle_operation(Instant(1), operation(3, IoKind::Read, 2000, 8));
    let done = run(&mut disk);
    assert_eq!(done[..2], [(1, 0), (3, 1)], "both from memory");
    let (token, at) = done[2];
    assert_eq!(token, 2);
    assert!(at > 1_000_000, "a seek at least: {at}");
    // A cache that is full makes writes wait for the medium, and all of them end.
    let mut now = at;
    for token in 0..40 {
        disk.handle_operation(
            Instant(now),
            operation(token, IoKind::Write, token * 331, 8),
        );
        now += 1;
    }
    let done = run(&mut disk);
    assert_eq!(done.len(), 40);
    assert!(done[39].1 > now + 20_000_000);
}
