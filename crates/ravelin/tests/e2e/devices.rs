//! A pool on real block devices that are taken away under load.
//!
//! What Linux does (6.18, measured) when a device is to go that is open:
//!
//! | | open handles then |
//! | --- | --- |
//! | `losetup -d` | work on; the device goes with the last of them |
//! | zram `reset`, `hot_remove` | work on; the write to sysfs fails (EBUSY) |
//! | the loop's file unlinked | work on |
//! | the loop's size set to 0 | read 0 bytes, write ENOSPC: a pulled disk |
//! | the loop's file's server killed | EIO for everything: a dead disk |
//! | zram `mem_limit` used up | read, and fail writes: a full or worn out disk |
//!
//! So the first three must do no harm, and the others are how drives fail here. A loop's file that is only truncated is
//! none of these: reads beyond its end fail until something is written behind them, and return zeros from then on. That
//! is silent corruption, which checksums detect.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use block::{BlockDevice, SplitMix64, mix};
use engine::drive::sync;
use testing::{Directory, eventually};

use crate::common::{DEAD_DEVICES, all_installed, can_mount, installed, run, times_as_long};
use crate::disk::{Loop, Nbdfuse, Zram};
use crate::pool::TestPool;

const DRIVE_BYTES: u64 = 64 << 20;
const VOLUME_BYTES: u64 = 64 << 20;
const BLOCK_BYTES: usize = 16 << 10;
/// Each writer has an equal share of the volume.
const WRITERS: u64 = 4;

/// Content of one version of one block; does not compress.
fn content(block: u64, version: u64) -> Vec<u8> {
    SplitMix64::new(mix(block << 32 | version)).bytes(BLOCK_BYTES)
}

/// Threads write and read back, each in its own share, as long as `disturb` runs; then the whole volume is compared
/// with the last written versions.
fn under_load(device: &dyn BlockDevice, disturb: impl FnOnce(&AtomicU64)) {
    let blocks = VOLUME_BYTES / BLOCK_BYTES as u64;
    let share = blocks / WRITERS;
    let (stop, operations) = (AtomicBool::new(false), AtomicU64::new(0));
    let read = |block: u64| {
        let bytes = sync::read(device, block * BLOCK_BYTES as u64, BLOCK_BYTES);
        bytes.unwrap_or_else(|fault| panic!("block {block}: {fault}"))
    };
    let write_and_read = |writer: u64| {
        let mut versions = vec![0; usize::try_from(share).unwrap()];
        let mut random = SplitMix64::new(writer);
        while !stop.load(Ordering::SeqCst) {
            let index = usize::try_from(random.below(share)).unwrap();
            let block = writer * share + index as u64;
            if versions[index] > 0 {
                assert!(read(block) == content(block, versions[index]), "{block}");
            }
            versions[index] += 1;
            let bytes = content(block, versions[index]);
            sync::write(device, block * BLOCK_BYTES as u64, &bytes).unwrap();
            if random.below(16) == 0 {
                sync::flush(device).unwrap();
            }
            operations.fetch_add(1, Ordering::SeqCst);
        }
        versions
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write_and_read(writer)))
            .collect();
        // The writers must stop also when the disturbance panics.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let stopper = Stop(&stop);
        go_on(&operations);
        disturb(&operations);
        go_on(&operations);
        drop(stopper);
        for (writer, thread) in (0..).zip(writers) {
            let versions = thread
                .join()
                .expect("no fault and no wrong byte under load");
            for (index, version) in (0..).zip(versions) {
                let block = writer * share + index;
                if version > 0 {
                    assert!(read(block) == content(block, version), "{block} at the end");
                }
            }
        }
    });
}

/// Waits until the load has done some more operations.
fn go_on(operations: &AtomicU64) {
    let wanted = operations.load(Ordering::SeqCst) + 300 * u64::from(times_as_long());
    eventually("the load goes on", || {
        operations.load(Ordering::SeqCst) >= wanted
    });
}

#[test]
fn loop_and_zram_drives_that_are_pulled_under_load_cost_no_byte() {
    if !can_mount(&["/dev/loop-control"]) || !installed("losetup") {
        return;
    }
    let place = Directory::new();
    let make_loop = |name: &str| {
        let path = place.join(name);
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(DRIVE_BYTES).unwrap();
        Loop::over(&path)
    };
    let loops: Vec<Loop> = (0..4).map(|index| make_loop(&index.to_string())).collect();
    let Some(zrams) = (0..2)
        .map(|_| Zram::new(DRIVE_BYTES))
        .collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let mut drives: Vec<String> = loops.iter().map(|disk| disk.device().to_owned()).collect();
    drives.extend(zrams.iter().map(|zram| format!("zram:{}", zram.device())));
    let pool = TestPool::on(&drives, "raid6", VOLUME_BYTES);
    let volume = pool.volume();

    under_load(&*volume, |operations| {
        run("losetup", &["-d", loops[1].device()]);
        for zram in &zrams {
            assert!(zram.set("reset", "1").is_err(), "a reset in use is refused");
            assert!(zram.remove().is_err(), "and so is removal");
        }
        go_on(operations);
        // None of these calls removes an open device.
        pool.assert_whole();

        loops[0].shrink_to_nothing();
        eventually("the loop device is out", || pool.is_out(0));
        go_on(operations);
        // A zram device cannot be pulled, and one that is full has not failed.
        pool.fail(4);
        eventually("the zram device is out", || pool.is_out(4));
        go_on(operations);
    });

    // Two new drives take the seats, under load again.
    let (new_loop, new_zram) = (make_loop("new"), Zram::new(DRIVE_BYTES).unwrap());
    under_load(&*volume, |_| {
        pool.replace(0, new_loop.device());
        pool.replace(4, &format!("zram:{}", new_zram.device()));
        pool.wait_idle();
    });
    pool.assert_whole();
    zrams[0]
        .set("reset", "1")
        .expect("the pool has let go of it");

    // The new drives hold their data: other drives may fail.
    under_load(&*volume, |_| {
        loops[2].shrink_to_nothing();
        loops[3].shrink_to_nothing();
        eventually("both are out", || pool.is_out(2) && pool.is_out(3));
    });
    drop(volume);
    pool.close();
}

#[test]
fn drives_whose_servers_are_killed_under_load_cost_no_byte() {
    let tools = ["losetup", "nbdfuse", "nbdkit", "fusermount3"];
    if !can_mount(&["/dev/loop-control", "/dev/fuse"]) || !all_installed(&tools) {
        return;
    }
    let _alone = DEAD_DEVICES.write().unwrap_or_else(PoisonError::into_inner);
    let place = Directory::new();
    let size = DRIVE_BYTES.to_string();
    let mount = |index: usize| {
        let what = ["[", "nbdkit", "--exit-with-parent", "memory", &size, "]"];
        Nbdfuse::mount(&place.join(index.to_string()), &what)
    };
    let mut servers: Vec<Nbdfuse> = (0..2).map(mount).collect();
    let disks: Vec<Loop> = servers
        .iter()
        .map(|server| Loop::over(&server.file()))
        .collect();
    let mut drives: Vec<String> = disks.iter().map(|disk| disk.device().to_owned()).collect();
    drives.extend(vec![format!("mem:{DRIVE_BYTES}"); 4]);
    let pool = TestPool::on(&drives, "raid6", VOLUME_BYTES);
    let volume = pool.volume();
    under_load(&*volume, |operations| {
        for (seat, server) in (0..).zip(&mut servers) {
            server.kill();
            eventually("the dead drive is out", || pool.is_out(seat));
            go_on(operations);
        }
    });
    for seat in 0..2 {
        pool.replace(seat, &format!("mem:{DRIVE_BYTES}"));
    }
    pool.wait_idle();
    pool.assert_whole();
    drop(volume);
    pool.close();
}

/// A real drive that hangs: the kernel has its requests and completes none. Clients go on, the drive goes out at the
/// deadline, and returns when it answers again.
#[test]
fn a_drive_whose_server_stops_for_a_while_holds_up_nobody_for_long() {
    let tools = ["losetup", "nbdfuse", "nbdkit", "fusermount3", "kill"];
    if !can_mount(&["/dev/loop-control", "/dev/fuse"]) || !all_installed(&tools) {
        return;
    }
    let _alone = DEAD_DEVICES.write().unwrap_or_else(PoisonError::into_inner);
    let place = Directory::new();
    let size = DRIVE_BYTES.to_string();
    let what = ["[", "nbdkit", "--exit-with-parent", "memory", &size, "]"];
    let server = Nbdfuse::mount(&place.join("0"), &what);
    let disk = Loop::over(&server.file());
    let mut drives = vec![disk.device().to_owned()];
    drives.extend(vec![format!("mem:{DRIVE_BYTES}"); 4]);
    let pool = TestPool::on(&drives, "raid5", VOLUME_BYTES);
    let volume = pool.volume();
    under_load(&*volume, |operations| {
        server.hold(true);
        eventually("the drive that hangs is out", || pool.is_out(0));
        go_on(operations);
        server.hold(false);
    });
    eventually("the drive comes back when it has answered", || {
        pool.comes_back(0)
    });
    pool.wait_idle();
    pool.assert_whole();
    drop(volume);
    pool.close();
}
