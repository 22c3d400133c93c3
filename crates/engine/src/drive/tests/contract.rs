//! What every kind of drive promises.

use std::sync::Arc;

use block::{Completed, Fault, Memory, Outcome, Request, RequestKind, SplitMix64};

use super::support::{Collector, Place, against_the_model, copy, open_sized, request};
use crate::drive::{Drive, sync};
use crate::ring::support;

const SIZE: u64 = 2 << 20;

/// One drive of each kind and back end that needs no privilege.
fn every_kind(place: &Place) -> Vec<Drive> {
    let file = |name: &str| place.file(name);
    let memory = Place::under(std::path::Path::new("/dev/shm"));
    let drives = [
        "mem:2M".to_owned(),
        file("direct"),
        format!("{}?direct=off", file("buffered")),
        memory.file("tmpfs"),
        format!("{}?backend=threads", file("threads")),
        // Both rings of a kind share the ring threads.
        format!("{}?backend=uring", file("ring")),
        format!("{}?backend=uring", memory.file("tmpfs-ring")),
        format!("{}?backend=uring&direct=off", file("buffered-ring")),
        "slow:mem:2M?bandwidth=4G&latency=20us".to_owned(),
        format!("slow:{}?iops=200000", file("slowed")),
        "faulty:mem:2M".to_owned(),
        "slow:faulty:mem:2M??bandwidth=8G".to_owned(),
        "compress:mem:2M?physical=2M".to_owned(),
        format!("compress:{}?physical=2M", file("compressed")),
        "part:mem:4M?from=1M&to=3M".to_owned(),
    ];
    let works = |uri: &&String| {
        let here = support().is_ok() || !uri.contains("uring");
        if !here {
            eprintln!("skipped: {uri}: {support:?}", support = support());
        }
        here
    };
    drives
        .iter()
        .filter(works)
        .map(|uri| open_sized(uri, SIZE))
        .collect()
}

#[test]
fn every_kind_behaves_like_an_array_of_bytes() {
    let place = Place::new();
    for (seed, drive) in every_kind(&place).into_iter().enumerate() {
        assert_eq!(drive.size_bytes, SIZE, "{drive:?}");
        against_the_model(&*drive.device, 400, seed as u64);
        let done = drive.telemetry.snapshot();
        assert_eq!((done.errors(), done.in_flight), (0, 0), "{drive:?}");
        assert!(
            done.reads.requests > 0 && done.writes.bytes > 0,
            "{drive:?}"
        );
    }
}

#[test]
fn deep_queues_complete_each_request_once_with_its_own_bytes() {
    let place = Place::new();
    for drive in every_kind(&place) {
        let device = &*drive.device;
        let collector = Arc::new(Collector::default());
        let mut chance = SplitMix64::new(7);
        let blocks = SIZE / 4096;
        let written: Vec<Vec<u8>> = (0..blocks).map(|_| chance.bytes(4096)).collect();
        let mut token = 0;
        for (index, bytes) in written.iter().enumerate() {
            let write = request(RequestKind::Write, index as u64 * 4096, 4096);
            collector.submit(device, write, Memory::from_bytes(bytes), token);
            token += 1;
            if index % 16 == 0 {
                let flush = request(RequestKind::Flush, 0, 0);
                collector.submit(device, flush, Memory::empty(), token);
                token += 1;
            }
        }
        collector.wait(token as usize);
        assert!(
            collector.once_each(token).iter().all(Result::is_ok),
            "{drive:?}"
        );

        let collector = Arc::new(Collector::default());
        let mut memories: Vec<Memory> = (0..blocks).map(|_| Memory::zeroed(4096)).collect();
        for (index, memory) in memories.iter().enumerate() {
            let read = request(RequestKind::Read, index as u64 * 4096, 4096);
            collector.submit(device, read, memory.clone(), index as u64);
        }
        collector.wait(blocks as usize);
        assert!(
            collector.once_each(blocks).iter().all(Result::is_ok),
            "{drive:?}"
        );
        for (memory, bytes) in memories.iter_mut().zip(&written) {
            let read = memory
                .unique()
                .expect("a completed request's memory is ours alone");
            assert!(read == bytes, "{drive:?}");
        }
    }
}

/// Pieces of one buffer, the last one first, with gaps of the same length between them.
fn scattered(buffer: &Memory, piece: usize, skew: usize) -> Memory {
    let count = (buffer.len() - skew) / (2 * piece);
    let starts = (0..count).rev().map(|index| skew + 2 * index * piece);
    Memory::joined(
        starts
            .map(|start| buffer.slice(start..start + piece))
            .collect(),
    )
}

fn bytes_of(memory: &Memory) -> Vec<u8> {
    memory.parts().iter().flat_map(copy).collect()
}

#[test]
fn joined_memory_goes_in_one_request_however_many_ranges_it_has() {
    let place = Place::new();
    for drive in every_kind(&place) {
        let device = &*drive.device;
        let piece = device.limits().block_bytes_min as usize;
        let most = SIZE as usize / piece / 4 * 3;
        let mut chance = SplitMix64::new(13);
        // Two ranges, more than the kernel takes at once, and memory that direct I/O cannot use
        // directly.
        for (count, skew, fua) in [(2, 0, false), (most.min(1500), 0, true), (7, 24, false)] {
            let length = count * piece;
            let source = Memory::from_bytes(&chance.bytes(skew + 2 * length));
            let source = scattered(&source, piece, skew);
            assert_eq!((source.parts().len(), source.len()), (count, length));
            let before = drive.telemetry.snapshot();
            let write = Request {
                fua,
                ..request(RequestKind::Write, 12288, length as u64)
            };
            assert_eq!(
                sync::run(device, write, source.clone()),
                Ok(()),
                "{drive:?}"
            );
            let target = Memory::from_bytes(&vec![0x5a; skew + 2 * length]);
            let read = request(RequestKind::Read, 12288, length as u64);
            let joined = scattered(&target, piece, skew);
            assert_eq!(sync::run(device, read, joined.clone()), Ok(()), "{drive:?}");
            let after = drive.telemetry.snapshot();
            let requests = (
                after.writes.requests - before.writes.requests,
                after.reads.requests - before.reads.requests,
            );
            assert_eq!(requests, (1, 1), "{drive:?}");
            let written = bytes_of(&source);
            assert!(
                sync::read(device, 12288, length).unwrap() == written,
                "{drive:?} {count}"
            );
            assert!(bytes_of(&joined) == written, "{drive:?} {count}");
            // The bytes between the pieces have not changed.
            let mut between = copy(&target);
            for start in (0..count).map(|index| skew + 2 * index * piece) {
                between[start..start + piece].fill(0x5a);
            }
            assert!(
                between.iter().all(|&byte| byte == 0x5a),
                "{drive:?} {count}"
            );
        }
    }
}

#[test]
fn requests_outside_the_limits_are_invalid_and_change_nothing() {
    let place = Place::new();
    for drive in every_kind(&place) {
        let limits = drive.device.limits();
        let align = u64::from(limits.block_bytes_min);
        let read = RequestKind::Read;
        for (wrong, memory) in [
            (request(read, SIZE, align), align),
            (request(read, SIZE - align, 2 * align), 2 * align),
            (request(read, u64::MAX - 511, 512), 512),
            (request(read, 1, align), align),
            (request(read, 0, align + 1), align + 1),
            (request(read, 0, 2 * align), align),
            (request(RequestKind::Write, SIZE, align), align),
            (request(RequestKind::Trim, SIZE - align, 2 * align), 0),
            (request(RequestKind::WriteZeroes, 1, align), 0),
        ] {
            let memory = Memory::zeroed(memory as usize);
            let outcome = sync::run(&*drive.device, wrong, memory);
            assert_eq!(outcome, Err(Fault::Invalid), "{drive:?} {wrong:?}");
        }
        assert_eq!(
            sync::run(&*drive.device, request(read, 0, 0), Memory::empty()),
            Ok(())
        );
    }
}

#[test]
fn dropping_a_drive_answers_everything_in_flight_once() {
    for round in 0..8 {
        let place = Place::new();
        let mut drives = every_kind(&place);
        drives.push(open_sized("slow:mem:2M?iops=20&latency=1s", SIZE));
        drives.push(open_sized("faulty:mem:2M?fail=hang&times=all&nth=20", SIZE));
        for drive in drives {
            let collector = Arc::new(Collector::default());
            let count = 64 + round;
            for token in 0..count {
                let (kind, length) = match token % 8 {
                    0 => (RequestKind::Flush, 0),
                    1 => (RequestKind::Trim, 65536),
                    2..5 => (RequestKind::Write, 65536),
                    _ => (RequestKind::Read, 65536),
                };
                let memory = match kind {
                    RequestKind::Read | RequestKind::Write => Memory::zeroed(65536),
                    _ => Memory::empty(),
                };
                let request = request(kind, (token % 32) * 65536, length);
                collector.submit(&*drive.device, request, memory, token);
            }
            let name = format!("{drive:?}");
            drop(drive);
            // No waiting here: all answers came before `drop` returned.
            for outcome in collector.once_each(count) {
                let fine = matches!(outcome, Ok(()) | Err(Fault::Shutdown));
                assert!(fine, "{name}: {outcome:?}");
            }
        }
    }
}

/// Drops the drive from inside its own completion, on the drive's own thread.
struct DropsTheDrive(std::sync::Mutex<Option<Drive>>, Arc<Collector>);

impl Completed for DropsTheDrive {
    fn completed(&self, token: u64, outcome: Outcome) {
        let drive = self.0.lock().unwrap().take();
        drop(drive);
        self.1.completed(token, outcome);
    }
}

#[test]
fn a_drive_may_be_dropped_inside_its_own_completion() {
    let place = Place::new();
    let mut drives = every_kind(&place);
    drives.push(open_sized("slow:mem:2M?latency=2ms", SIZE));
    for drive in drives {
        let collector = Arc::new(Collector::default());
        let device = Arc::clone(&drive.device);
        let dropper = DropsTheDrive(std::sync::Mutex::new(Some(drive)), Arc::clone(&collector));
        let to: Arc<dyn Completed> = Arc::new(dropper);
        for token in 0..8 {
            let read: Request = request(RequestKind::Read, 0, 4096);
            device.submit(read, Memory::zeroed(4096), token, &to);
        }
        drop(device);
        collector.wait(8);
        assert_eq!(collector.once_each(8).len(), 8);
    }
}
