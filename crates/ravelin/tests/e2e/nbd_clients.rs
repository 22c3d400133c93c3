//! Widely used clients, on a pool whose drives fail: nbdinfo, nbdcopy, qemu-img, qemu-io, and fio
//! with verification, all through the NBD server.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{all_installed, installed, run, times_as_long};
use crate::pool::{Served, TestPool};
use block::SplitMix64;
use testing::Directory;

/// Volume size for the clients that copy the whole volume.
const COPIED_BYTES: u64 = 48 << 20;
/// Volume size for fio; each job has a quarter of it.
const VERIFIED_BYTES: u64 = 192 << 20;

/// A pool with its volume behind a socket.
struct Bench {
    pool: TestPool,
    served: Served,
    place: Directory,
}

impl Bench {
    fn new(scheme: &str, drives: usize, volume_bytes: u64) -> Self {
        let place = Directory::new();
        let pool = TestPool::in_memory(scheme, drives, volume_bytes);
        let served = pool.serve(&place);
        Self {
            pool,
            served,
            place,
        }
    }

    fn end(self) {
        self.served.shutdown();
        self.pool.close();
    }
}

/// Four connections at depth 32, each with a quarter of the volume. Two write and read aligned
/// requests from 512 B to 4 MiB, two have requests without any alignment; every byte is verified.
fn start_fio(bench: &Bench, seconds: u32) -> Child {
    let seconds = seconds * times_as_long();
    Command::new("fio")
        .current_dir(&*bench.place)
        .args([
            "--ioengine=nbd",
            &format!("--uri={}", bench.served.uri()),
            "--rw=randrw",
            "--serialize_overlap=1",
            "--iodepth=32",
            "--size=48M",
            "--fsync=32",
            "--time_based=1",
            &format!("--runtime={seconds}"),
            "--verify=crc32c",
            "--verify_fatal=1",
            "--do_verify=1",
            "--verify_backlog=64",
            "--verify_state_save=0",
            "--group_reporting",
            "--name=aligned",
            "--numjobs=2",
            "--offset_increment=48M",
            "--bssplit=512/30:4k/30:32k/20:256k/10:1M/8:4M/2",
            // fio requires all sizes to be multiples of the smallest one; so are the offsets.
            "--name=multiples-of-513",
            "--offset=96M",
            "--bssplit=513/30:4104/30:30780/20:70281/10:1048572/8:4194288/2",
            "--name=multiples-of-1000",
            "--offset=144M",
            "--bssplit=1000/30:3000/30:24000/20:99000/10:1048000/8:4194000/2",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn await_fio(child: Child, when: &str) {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("err= 0"),
        "{when}: {text}{errors}"
    );
    // All four jobs have connected.
    let connected = errors.matches("connected").count() + text.matches("connected").count();
    assert_eq!(connected, 4, "{when}: {text}{errors}");
}

fn fio_through_failures(scheme: &str, drives: usize, failures: u16) {
    if !installed("fio") {
        return;
    }
    let bench = Bench::new(scheme, drives, VERIFIED_BYTES);
    let pool = &bench.pool;
    await_fio(start_fio(&bench, 1), "healthy");
    for seat in 0..failures {
        let fio = start_fio(&bench, 2);
        std::thread::sleep(Duration::from_millis(1000));
        pool.fail(seat);
        await_fio(fio, &format!("seat {seat} failed in the middle"));
    }
    pool.wait_idle();
    await_fio(start_fio(&bench, 1), "degraded");
    // The drives return while fio runs, and then one drive fails and returns in a loop until fio
    // ends. At every moment a column is being filled, or has just been.
    for seat in 0..failures {
        let mut fio = start_fio(&bench, 2);
        std::thread::sleep(Duration::from_millis(200));
        pool.bring_back(seat);
        let mut rebuilds = 0;
        while fio.try_wait().unwrap().is_none() {
            pool.wait_idle();
            rebuilds += 1;
            pool.fail(seat);
            pool.bring_back(seat);
        }
        await_fio(fio, &format!("seat {seat} being filled"));
        assert!(rebuilds > 0);
    }
    pool.wait_idle();
    pool.assert_whole();
    await_fio(start_fio(&bench, 1), "whole again");
    bench.end();
}

#[test]
fn fio_verifies_raid5_through_a_failure_and_a_rebuild() {
    fio_through_failures("raid5", 5, 1);
}

#[test]
fn fio_verifies_raid6_through_two_failures_and_rebuilds() {
    fio_through_failures("raid6", 6, 2);
}

#[test]
fn fio_verifies_pddl2_through_two_failures_and_rebuilds() {
    fio_through_failures("pddl2:4d:14c:2s", 14, 2);
}

/// A file of the volume's size; no two blocks are equal.
fn image(path: &Path) {
    let bytes = SplitMix64::new(99).bytes(usize::try_from(COPIED_BYTES).unwrap());
    std::fs::write(path, bytes).unwrap();
}

fn copy_and_compare(scheme: &str, drives: usize, failures: u16) {
    let tools = ["nbdinfo", "nbdcopy", "qemu-img", "qemu-io"];
    if !all_installed(&tools) {
        return;
    }
    let bench = Bench::new(scheme, drives, COPIED_BYTES);
    let uri = bench.served.uri().to_owned();
    let info = run("nbdinfo", &[&uri]);
    assert!(info.contains(&COPIED_BYTES.to_string()), "{info}");
    assert!(info.contains("can_multi_conn: true"), "{info}");

    let (original, copy) = (bench.place.join("original"), bench.place.join("copy"));
    image(&original);
    let (original, copy) = (original.to_str().unwrap(), copy.to_str().unwrap());
    let compare = || {
        run(
            "qemu-img",
            &["compare", "-f", "raw", "-F", "raw", original, &uri],
        )
    };
    run("nbdcopy", &[original, &uri]);
    for step in 0..=failures {
        run("nbdcopy", &[&uri, copy]);
        assert!(
            std::fs::read(original).unwrap() == std::fs::read(copy).unwrap(),
            "{scheme}, {step} out: nbdcopy"
        );
        compare();
        let commands = [
            "write -P 0x5a 4097 70001",
            "flush",
            "read -P 0x5a 4097 70001",
            "write -z 1048576 300000",
            "read -P 0 1048576 300000",
            "discard 8388608 4194304",
            "read -P 0 8388608 4194304",
        ];
        let mut arguments = vec!["-f", "raw"];
        for command in commands {
            arguments.extend(["-c", command]);
        }
        arguments.push(&uri);
        let said = run("qemu-io", &arguments);
        assert!(!said.contains("verification failed"), "{said}");
        run("nbdcopy", &[original, &uri]);
        if step < failures {
            bench.pool.fail(step);
        }
    }
    bench.pool.wait_idle();
    compare();
    bench.end();
}

#[test]
fn nbdcopy_and_qemu_read_back_what_they_wrote_on_raid5() {
    copy_and_compare("raid5", 5, 1);
}

#[test]
fn nbdcopy_and_qemu_read_back_what_they_wrote_on_raid6() {
    copy_and_compare("raid6", 6, 2);
}

#[test]
fn nbdcopy_and_qemu_read_back_what_they_wrote_on_pddl2() {
    copy_and_compare("pddl2:4d:14c:2s", 14, 2);
}
