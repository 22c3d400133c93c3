//! Rings that a thread owns. What drives do through the ring threads is tested with the drives.

#![expect(
    clippy::cast_possible_truncation,
    reason = "small numbers made up by the tests"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use block::{Completed, Fault, Memory, Outcome, Region, RequestKind, SplitMix64};

use super::{LocalRing, support};
use crate::drive::tests::support::{Collector, Place, open_sized, request};
use crate::drive::{BackEnd, Drive, Open, open, sync};

const SIZE: u64 = 4 << 20;

/// Closing a drive wakes every ring of the process. With this lock, the test that closes very many
/// drives and the test that measures how long a ring sleeps take turns.
pub(super) static SLEEP: Mutex<()> = Mutex::new(());

/// Runs `test` on a thread of its own, or prints why it cannot.
fn with_ring(depth: u32, test: impl FnOnce(LocalRing) + Send) {
    if let Err(reason) = support() {
        eprintln!("skipped: {reason}");
        return;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| test(LocalRing::install(depth).unwrap()));
    });
}

fn ring_drives(place: &Place) -> Vec<Drive> {
    ["one", "two", "buffered?direct=off"]
        .map(|name| {
            let options = if name.contains('?') { "&" } else { "?" };
            open_sized(&format!("{}{options}backend=uring", place.file(name)), SIZE)
        })
        .into()
}

/// Turns until `count` requests have been answered.
fn turn_until(ring: &mut LocalRing, collector: &Collector, count: usize) {
    let begun = Instant::now();
    while collector.answered() < count {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{} of {count}",
            collector.answered()
        );
        ring.turn(Some(Duration::from_millis(100)), || false)
            .unwrap();
    }
}

#[test]
fn a_threads_own_ring_serves_its_drives_beyond_its_depth() {
    with_ring(32, |mut ring| {
        let place = Place::new();
        let (region, mut pool) = Region::cut(1, 1 << 20);
        let pool = pool.remove(0);
        let registered = ring.register(&region).and_then(|()| {
            // A region that is dropped at once: the next one takes its entry.
            ring.register(&Region::cut(1, 8192).0)?;
            ring.register(&Region::cut(1, 8192).0)?;
            ring.register(&region)
        });
        if let Err(error) = registered {
            eprintln!("skipped: registered memory: {error}");
        }
        let drives = ring_drives(&place);
        let mut chance = SplitMix64::new(3);
        for drive in &drives {
            assert_eq!(drive.back_end, BackEnd::Uring);
            let collector = Arc::new(Collector::default());
            let written: Vec<_> = (0..SIZE / 4096).map(|_| chance.bytes(4096)).collect();
            let mut token = 0;
            for (index, bytes) in written.iter().enumerate() {
                // Some in registered memory, some not, some in memory that the kernel cannot take.
                let memory = match index % 3 {
                    0 => {
                        let padded = [&[0; 24], bytes.as_slice()].concat();
                        Memory::from_bytes(&padded).slice(24..24 + 4096)
                    }
                    _ => Memory::from_bytes(bytes),
                };
                let write = request(RequestKind::Write, index as u64 * 4096, 4096);
                let write = block::Request {
                    fua: index % 100 == 0,
                    ..write
                };
                collector.submit(&*drive.device, write, memory, token);
                token += 1;
                if index % 10 == 0 {
                    let flush = request(RequestKind::Flush, 0, 0);
                    collector.submit(&*drive.device, flush, Memory::empty(), token);
                    token += 1;
                }
            }
            assert_eq!(collector.answered(), 0, "nothing before a turn");
            turn_until(&mut ring, &collector, token as usize);
            assert!(collector.once_each(token).iter().all(Result::is_ok));

            let collector = Arc::new(Collector::default());
            for index in 0..256 {
                let read = request(RequestKind::Read, index * 4096, 4096);
                let start = index as usize * 4096;
                let memory = pool.slice(start..start + 4096);
                collector.submit(&*drive.device, read, memory, index);
            }
            turn_until(&mut ring, &collector, 256);
            assert!(collector.once_each(256).iter().all(Result::is_ok));
            let whole = written[..256].concat();
            let again = Memory::from_bytes(&whole);
            assert!(same(&pool, &again), "{drive:?}");
        }
        // A thread that waits cannot turn its ring: the ring threads serve the request.
        assert_eq!(
            sync::read(&*drives[2].device, 0, 4096).map(|read| read.len()),
            Ok(4096)
        );
        // Trims go to a thread of the drive, from any submitter.
        let collector = Arc::new(Collector::default());
        let trim = request(RequestKind::Trim, 0, 1 << 20);
        collector.submit(&*drives[0].device, trim, Memory::empty(), 0);
        collector.wait(1);
        let read = request(RequestKind::Read, 0, 1 << 20);
        collector.submit(&*drives[0].device, read, pool.clone(), 1);
        turn_until(&mut ring, &collector, 2);
        assert!(same(&pool, &Memory::zeroed(1 << 20)));
    });
}

/// Compares through a memory drive, so that no test needs to access shared memory itself.
fn same(left: &Memory, right: &Memory) -> bool {
    let drive = open_sized("mem:64M", 0);
    let write = request(RequestKind::Write, 0, left.len() as u64);
    sync::run(&*drive.device, write, left.clone()).unwrap();
    let write = request(RequestKind::Write, 32 << 20, right.len() as u64);
    sync::run(&*drive.device, write, right.clone()).unwrap();
    sync::read(&*drive.device, 0, left.len()) == sync::read(&*drive.device, 32 << 20, right.len())
}

#[test]
fn a_waker_and_a_timeout_end_the_waiting_and_pending_work_prevents_it() {
    let _undisturbed = SLEEP.lock().unwrap_or_else(PoisonError::into_inner);
    with_ring(8, |mut ring| {
        let (wait, begun, mut turns) = (Duration::from_millis(50), Instant::now(), 0);
        while begun.elapsed() < wait {
            let left = wait.saturating_sub(begun.elapsed());
            assert_eq!(ring.turn(Some(left), || false).unwrap(), 0);
            turns += 1;
        }
        // Other tests close drives, which wakes this ring, too. A ring that does not wait would
        // turn many thousand times.
        assert!(turns < 500, "{turns} turns in {:?}", begun.elapsed());
        assert_eq!(
            ring.turn(None, || true).unwrap(),
            0,
            "pending work: no waiting"
        );
        assert_eq!(ring.turn(Some(Duration::ZERO), || false).unwrap(), 0);

        let (waker, stop) = (ring.waker(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..1000 {
                    waker.wake();
                    std::thread::yield_now();
                }
                std::thread::sleep(Duration::from_millis(20));
                stop.store(true, Ordering::SeqCst);
                waker.wake();
            });
            // A lost wake-up would hang here.
            while !stop.load(Ordering::SeqCst) {
                ring.turn(None, || stop.load(Ordering::SeqCst)).unwrap();
            }
        });
    });
}

#[test]
fn a_thread_has_one_ring_and_gets_another_after_it() {
    with_ring(8, |ring| {
        assert!(LocalRing::install(8).is_err());
        drop(ring);
        drop(LocalRing::install(8).unwrap());
        // Without a ring the ring threads serve this thread again.
        let place = Place::new();
        for drive in ring_drives(&place) {
            sync::write(&*drive.device, 4096, &[5; 8192]).unwrap();
            sync::flush(&*drive.device).unwrap();
            assert_eq!(sync::read(&*drive.device, 4096, 8192).unwrap(), [5; 8192]);
        }
    });
}

#[test]
fn dropping_a_ring_answers_what_it_holds() {
    for turns in 0..3 {
        with_ring(16, |mut ring| {
            let place = Place::new();
            let drives = ring_drives(&place);
            let collector = Arc::new(Collector::default());
            for token in 0..60 {
                let drive = &drives[token as usize % drives.len()];
                let (kind, length) = match token % 5 {
                    0 => (RequestKind::Flush, 0),
                    1 => (RequestKind::Read, 65536),
                    _ => (RequestKind::Write, 65536),
                };
                let request = request(kind, token * 65536, length);
                collector.submit(
                    &*drive.device,
                    request,
                    Memory::zeroed(length as usize),
                    token,
                );
            }
            for _ in 0..turns {
                ring.turn(Some(Duration::ZERO), || false).unwrap();
            }
            drop(ring);
            // Writes that would have waited in the kernel are with the drives' threads.
            collector.wait(60);
            for outcome in collector.once_each(60) {
                assert!(
                    matches!(outcome, Ok(()) | Err(Fault::Shutdown)),
                    "{outcome:?}"
                );
            }
        });
    }
}

/// Drops a drive inside a completion, on the thread whose ring still holds requests for it.
struct DropsTheDrive(std::sync::Mutex<Option<Drive>>, Arc<Collector>);

impl Completed for DropsTheDrive {
    fn completed(&self, token: u64, outcome: Outcome) {
        let drive = self.0.lock().unwrap().take();
        drop(drive);
        self.1.completed(token, outcome);
    }
}

#[test]
fn a_dropped_drive_is_free_for_others_once_the_ring_has_turned() {
    with_ring(8, |mut ring| {
        let place = Place::new();
        let name = format!("{}?backend=uring", place.file("drive"));
        for inside in [false, true] {
            let drive = open_sized(&name, SIZE);
            let collector = Arc::new(Collector::default());
            let device = Arc::clone(&drive.device);
            let dropper = DropsTheDrive(
                std::sync::Mutex::new(inside.then(|| drive.clone())),
                Arc::clone(&collector),
            );
            let to: Arc<dyn Completed> = Arc::new(dropper);
            for token in 0..20 {
                let read = request(RequestKind::Read, token * 4096, 4096);
                device.submit(read, Memory::zeroed(4096), token, &to);
            }
            drop(device);
            drop(drive);
            turn_until(&mut ring, &collector, 20);
            assert_eq!(collector.once_each(20).len(), 20);
            ring.turn(Some(Duration::ZERO), || false).unwrap();
        }
        let drive = open_sized(&name, SIZE);
        assert_eq!(drive.size_bytes, SIZE);
    });
}

#[test]
fn a_drive_dropped_elsewhere_waits_for_the_ring_to_let_go() {
    with_ring(8, |mut ring| {
        let place = Place::new();
        let name = format!("{}?backend=uring", place.file("drive"));
        let drive = open_sized(&name, SIZE);
        let collector = Arc::new(Collector::default());
        let read = request(RequestKind::Read, 0, 4096);
        collector.submit(&*drive.device, read, Memory::zeroed(4096), 0);
        turn_until(&mut ring, &collector, 1);
        let gone = AtomicBool::new(false);
        let waker = ring.waker();
        std::thread::scope(|scope| {
            let (uri, gone) = (name.parse().unwrap(), &gone);
            let other = scope.spawn(move || {
                drop(drive);
                // The lock is free as soon as `drop` returns, although a ring had the file.
                let how = Open {
                    exclusive: true,
                    ..Open::default()
                };
                let again = open(&uri, how).map(|drive| drive.size_bytes);
                gone.store(true, Ordering::SeqCst);
                waker.wake();
                again.unwrap()
            });
            while !gone.load(Ordering::SeqCst) {
                ring.turn(None, || gone.load(Ordering::SeqCst)).unwrap();
            }
            assert_eq!(other.join().unwrap(), SIZE);
        });
    });
}

#[test]
fn what_is_in_memory_is_done_in_the_turn_and_not_inside_submit() {
    let memory_files = std::path::Path::new("/dev/shm");
    let file = memory_files.join(format!("ravelin-{}-inline", std::process::id()));
    for name in ["mem:4M", file.to_str().unwrap()] {
        if name != "mem:4M" && !memory_files.is_dir() {
            eprintln!("skipped: no {}", memory_files.display());
            continue;
        }
        with_ring(8, |mut ring| {
            let drive = open_sized(name, SIZE);
            let collector = Arc::new(Collector::default());
            let mut chance = SplitMix64::new(8);
            let written: Vec<_> = (0..100).map(|_| chance.bytes(4096)).collect();
            for (token, bytes) in (0..).zip(&written) {
                let write = request(RequestKind::Write, token * 4096, 4096);
                collector.submit(&*drive.device, write, Memory::from_bytes(bytes), token);
            }
            assert_eq!(collector.answered(), 0, "nothing inside submit");
            let answered = ring.turn(None, || false).unwrap();
            assert_eq!((answered, collector.answered()), (100, 100), "{name}");
            assert!(collector.once_each(100).iter().all(Result::is_ok));
            let read = sync::read(&*drive.device, 0, 100 * 4096).unwrap();
            assert!(read == written.concat(), "{name}");

            // A long request is worth another thread. Dropping the ring answers the requests that
            // are left.
            let collector = Arc::new(Collector::default());
            let long = request(RequestKind::Read, 0, 1 << 20);
            collector.submit(&*drive.device, long, Memory::zeroed(1 << 20), 0);
            collector.wait(1);
            let short = request(RequestKind::Read, 0, 4096);
            collector.submit(&*drive.device, short, Memory::zeroed(4096), 1);
            drop(ring);
            assert_eq!(collector.once_each(2), [Ok(()), Err(Fault::Shutdown)]);
        });
    }
    let _ = std::fs::remove_file(file);
}
