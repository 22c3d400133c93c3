//! Drives that are slow or faulty on purpose.

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{Fault, Memory, RequestKind};
use testing::eventually;

use super::support::{Collector, Place, open_sized, request};
use crate::drive::{Effect, Trap, sync};

/// Seconds for `count` requests of `length` bytes with all of them in flight at once.
fn seconds(uri: &str, kind: RequestKind, length: u64, count: u64) -> f64 {
    let drive = open_sized(uri, 64 << 20);
    let collector = Arc::new(Collector::default());
    let carried = match kind {
        RequestKind::Read | RequestKind::Write => length as usize,
        _ => 0,
    };
    let begun = Instant::now();
    for token in 0..count {
        let request = request(kind, token % 64 * length, length);
        collector.submit(&*drive.device, request, Memory::zeroed(carried), token);
    }
    collector.wait(count as usize);
    assert!(collector.once_each(count).iter().all(Result::is_ok));
    begun.elapsed().as_secs_f64()
}

/// Measures until it is right, five times at most: a deadline is never early, but how late the
/// last answer is depends on how busy the machine is at that moment.
fn assert_about(wanted: f64, what: &str, mut measure: impl FnMut() -> f64) {
    let mut found = 0.0;
    for _ in 0..5 {
        found = measure();
        assert!(
            found >= wanted * 0.999,
            "{what}: {found} s is faster than {wanted} s"
        );
        if found <= wanted * 1.04 {
            return;
        }
    }
    panic!("{what}: {found} s for {wanted} s");
}

#[test]
fn a_slow_drive_keeps_its_bandwidth_its_iops_and_their_sum() {
    let (read, write, trim) = (RequestKind::Read, RequestKind::Write, RequestKind::Trim);
    assert_about(0.5, "32 MiB at 64 MiB/s", || {
        seconds("slow:mem:64M?bandwidth=64M", write, 256 << 10, 128)
    });
    assert_about(0.5, "1000 requests at 2000/s", || {
        seconds("slow:mem:64M?iops=2000", read, 4096, 1000)
    });
    assert_about(250.0 / 1024.0 + 0.25, "both", || {
        seconds("slow:mem:64M?bandwidth=64M&iops=1000", write, 64 << 10, 250)
    });
    assert_about(0.5, "a trim pays for a request and for no bytes", || {
        seconds("slow:mem:64M?bandwidth=1K&iops=1000", trim, 64 << 10, 500)
    });
    assert_about(0.5, "latency comes on top, once", || {
        seconds("slow:mem:64M?iops=2500&latency=100ms", read, 4096, 1000)
    });
}

#[test]
fn latency_alone_does_not_queue() {
    let drive = open_sized("slow:mem:1M?latency=50ms", 1 << 20);
    assert_about(0.25, "five in turn", || {
        let begun = Instant::now();
        for _ in 0..5 {
            sync::read(&*drive.device, 0, 4096).unwrap();
        }
        begun.elapsed().as_secs_f64()
    });
    let p50 = drive.telemetry.snapshot().reads.quantile(500);
    assert!(p50 >= Duration::from_millis(50), "{p50:?}");
}

#[test]
fn a_drive_is_gone_while_a_file_exists_and_back_when_it_does_not() {
    let place = Place::new();
    let flag = place.file("flag");
    let uri = format!("faulty:mem:1M?fail=gone&times=all&while={flag}");
    let drive = open_sized(&uri, 1 << 20);
    let device = &*drive.device;
    assert_eq!(sync::write(device, 0, &[1; 4096]), Ok(()));
    std::fs::write(&flag, "").unwrap();
    assert_eq!(sync::write(device, 0, &[2; 4096]), Err(Fault::Gone));
    assert_eq!(sync::flush(device), Err(Fault::Gone));
    std::fs::remove_file(&flag).unwrap();
    assert_eq!(sync::read(device, 0, 4096).unwrap(), [1; 4096]);
}

#[test]
fn the_nth_request_of_a_kind_fails_and_the_others_do_not() {
    let drive = open_sized("faulty:mem:1M?fail=enospc&on=write&nth=3&times=2", 1 << 20);
    let device = &*drive.device;
    let outcomes: Vec<_> = (0..6)
        .map(|_| {
            assert!(sync::read(device, 0, 4096).is_ok());
            sync::write(device, 0, &[1; 4096])
        })
        .collect();
    let full = Err(Fault::Full);
    assert_eq!(outcomes, [Ok(()), Ok(()), full, full, Ok(()), Ok(())]);
    let faults = drive.faults.as_ref().unwrap();
    assert_eq!(faults.requests(), 12);
    faults.set(Trap {
        on: Some(RequestKind::Flush),
        times: None,
        ..Trap::default()
    });
    assert_eq!(sync::flush(device), Err(Fault::Medium));
    assert_eq!(sync::flush(device), Err(Fault::Medium));
    assert_eq!(sync::write(device, 0, &[2; 4096]), Ok(()));
    let telemetry = drive.telemetry.snapshot();
    assert_eq!((telemetry.errors_full, telemetry.errors_medium), (2, 2));
}

#[test]
fn bad_bytes_cannot_be_read_until_they_are_written() {
    let drive = open_sized("faulty:mem:1M?bad=64K+16K", 1 << 20);
    let device = &*drive.device;
    let medium = Err(Fault::Medium);
    assert_eq!(sync::read(device, 0, 68 << 10).map(drop), medium);
    assert!(sync::read(device, 0, 64 << 10).is_ok());
    assert!(sync::read(device, 80 << 10, 4096).is_ok());
    sync::write(device, 68 << 10, &[1; 4096]).unwrap();
    assert_eq!(sync::read(device, 68 << 10, 4096).unwrap(), [1; 4096]);
    assert_eq!(
        sync::read(device, 64 << 10, 4096).map(drop),
        medium,
        "left of the write"
    );
    assert_eq!(
        sync::read(device, 72 << 10, 4096).map(drop),
        medium,
        "right of the write"
    );
    sync::trim(device, 0, 1 << 20).unwrap();
    assert!(sync::read(device, 0, 1 << 20).is_ok());
    drive.faults.unwrap().set_bad(0..512);
    assert_eq!(sync::read(device, 0, 4096).map(drop), medium);
}

#[test]
fn a_failed_drive_answers_held_requests_and_a_restored_one_performs_them() {
    for restore in [false, true] {
        let drive = open_sized("faulty:mem:1M", 1 << 20);
        let faults = drive.faults.clone().unwrap();
        faults.set(Trap {
            times: Some(3),
            effect: Effect::Hang,
            ..Trap::default()
        });
        let collector = Arc::new(Collector::default());
        for token in 0..3 {
            let write = request(RequestKind::Write, token * 4096, 4096);
            collector.submit(&*drive.device, write, Memory::from_bytes(&[9; 4096]), token);
        }
        assert_eq!(faults.held(), 3);
        assert!(sync::read(&*drive.device, 0, 4096).is_ok(), "others pass");
        assert_eq!(collector.answered(), 0);
        if restore {
            faults.restore();
            collector.wait(3);
            assert!(collector.once_each(3).iter().all(Result::is_ok));
            assert_eq!(
                sync::read(&*drive.device, 0, 12 << 10).unwrap(),
                [9; 12 << 10]
            );
        } else {
            faults.fail();
            collector.wait(3);
            assert_eq!(collector.once_each(3), [Err(Fault::Gone); 3]);
            assert_eq!(
                sync::read(&*drive.device, 0, 4096).map(drop),
                Err(Fault::Gone)
            );
            faults.restore();
            assert_eq!(sync::read(&*drive.device, 0, 4096).unwrap(), [0; 4096]);
        }
    }
}

#[test]
fn gone_under_load_means_every_request_ends() {
    let drive = open_sized("faulty:mem:1M?fail=gone&nth=100", 1 << 20);
    let collector = Arc::new(Collector::default());
    for token in 0..200 {
        let read = request(RequestKind::Read, 0, 4096);
        collector.submit(&*drive.device, read, Memory::zeroed(4096), token);
    }
    collector.wait(200);
    let outcomes = collector.once_each(200);
    assert!(outcomes[..99].iter().all(Result::is_ok));
    assert!(
        outcomes[99..]
            .iter()
            .all(|&outcome| outcome == Err(Fault::Gone))
    );
    eventually("nothing is left in flight", || {
        drive.telemetry.snapshot().in_flight == 0
    });
}
