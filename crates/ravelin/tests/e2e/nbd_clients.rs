//! The clients that people use, on a pool whose drives fail under them: nbdinfo, nbdcopy, qemu-img,
//! qemu-io, and fio with verification, all through the NBD server.
//!
//! A client that is not installed is named as skipped.

#![expect(clippy::print_stdout, reason = "tests say what they skip")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use array::pool::OutReason;
use block::{BlockDevice, Seat};
use engine::assemble::{NewPool, create, prepare};
use engine::drive::DriveUri;
use engine::{PoolHandle, RunOptions, Volume};
use export::nbd::{Exports, Listen, Options, Server};

const VOLUME_BYTES: u64 = 48 << 20;

struct One(Arc<Volume>);

impl Exports for One {
    fn list(&self) -> Vec<String> {
        vec!["test/v".to_owned()]
    }

    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        (name.is_empty() || name == "test/v").then(|| Arc::clone(&self.0) as _)
    }
}

/// A pool with one volume behind a socket of its own.
struct Bench {
    pool: PoolHandle,
    server: Server,
    directory: PathBuf,
}

impl Bench {
    fn new(test: &str, scheme: &str, drives: usize) -> Self {
        let directory = std::env::temp_dir().join(format!("ravelin-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let drive: DriveUri = "mem:96M".parse().unwrap();
        let new = NewPool {
            name: "test".to_owned(),
            scheme: scheme.parse().unwrap(),
            chunk_bytes: None,
            cell_bytes: None,
            drives: vec![drive; drives],
            spares: Vec::new(),
            force: false,
        };
        let pool = create(prepare(&new).unwrap(), RunOptions::default()).unwrap();
        pool.create_volume("v", VOLUME_BYTES).unwrap();
        let exports = Arc::new(One(pool.volume("v").unwrap()));
        let socket = Listen::Unix(directory.join("s"));
        let server = Server::bind(&socket, exports, &Options::default()).unwrap();
        Self {
            pool,
            server,
            directory,
        }
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.directory.join("s").display())
    }

    fn fail(&self, seat: u16) {
        let failed = self.pool.fail_drive(Seat(seat), OutReason::Failed, false);
        failed.unwrap();
    }

    fn wait_quiet(&self) {
        assert!(self.pool.wait_quiet(Duration::from_secs(120)), "no hang");
    }

    fn end(self) {
        self.server.shutdown();
        let status = self.pool.status().unwrap();
        assert_eq!(status.rebuild.map_or(0, |rebuild| rebuild.cells_lost), 0);
        self.pool.close().unwrap();
        std::fs::remove_dir_all(self.directory).unwrap();
    }
}

fn installed(tool: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|place| place.join(tool).exists()));
    if !found {
        println!("skipped: {tool} is not installed");
    }
    found
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {text}{errors}"
    );
    text
}

/// fio writes mixed sizes and reads them back, verified.
fn start_fio(bench: &Bench, seconds: u32) -> Child {
    Command::new("fio")
        .current_dir(&bench.directory)
        .args([
            "--name=verify",
            "--ioengine=nbd",
            &format!("--uri={}", bench.uri()),
            "--rw=randrw",
            "--bsrange=4k-1M",
            "--serialize_overlap=1",
            "--iodepth=16",
            "--numjobs=2",
            "--size=24M",
            "--offset_increment=24M",
            "--fsync=16",
            "--time_based=1",
            &format!("--runtime={seconds}"),
            "--verify=crc32c",
            "--verify_fatal=1",
            "--do_verify=1",
            "--verify_backlog=64",
            "--verify_state_save=0",
            "--group_reporting",
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
}

fn fio_through_failures(test: &str, scheme: &str, drives: usize, failures: u16) {
    if !installed("fio") {
        return;
    }
    let bench = Bench::new(test, scheme, drives);
    await_fio(start_fio(&bench, 2), "healthy");
    for seat in 0..failures {
        let fio = start_fio(&bench, 3);
        std::thread::sleep(Duration::from_millis(1500));
        bench.fail(seat);
        await_fio(fio, &format!("seat {seat} failed in the middle"));
    }
    bench.wait_quiet();
    // Into a rebuild: the drives come back while fio runs.
    for seat in 0..failures {
        let fio = start_fio(&bench, 3);
        std::thread::sleep(Duration::from_millis(500));
        bench.pool.insert_drive(Seat(seat), None).unwrap();
        await_fio(fio, &format!("seat {seat} being filled"));
    }
    bench.wait_quiet();
    bench.end();
}

#[test]
fn fio_verifies_raid5_through_a_failure_and_a_rebuild() {
    fio_through_failures("fio5", "raid5", 5, 1);
}

#[test]
fn fio_verifies_raid6_through_two_failures_and_rebuilds() {
    fio_through_failures("fio6", "raid6", 6, 2);
}

#[test]
fn fio_verifies_pddl2_through_two_failures_and_rebuilds() {
    fio_through_failures("fio14", "pddl2:4d:14c:2s", 14, 2);
}

/// A file of the volume's size of which no two blocks are alike.
fn image(path: &Path) {
    let mut state = 99_u64;
    let bytes: Vec<u8> = (0..VOLUME_BYTES / 8)
        .flat_map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_le_bytes()
        })
        .collect();
    std::fs::write(path, bytes).unwrap();
}

fn copy_and_compare(test: &str, scheme: &str, drives: usize, failures: u16) {
    let tools = ["nbdinfo", "nbdcopy", "qemu-img", "qemu-io"];
    // All of the missing ones are named.
    if tools.map(installed).contains(&false) {
        return;
    }
    let bench = Bench::new(test, scheme, drives);
    let uri = bench.uri();
    let info = run("nbdinfo", &[&uri]);
    assert!(info.contains(&VOLUME_BYTES.to_string()), "{info}");
    assert!(info.contains("can_multi_conn: true"), "{info}");

    let (original, copy) = (
        bench.directory.join("original"),
        bench.directory.join("copy"),
    );
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
            bench.fail(step);
        }
    }
    bench.wait_quiet();
    compare();
    bench.end();
}

#[test]
fn nbdcopy_and_qemu_read_back_what_they_wrote_on_raid5() {
    copy_and_compare("copy5", "raid5", 5, 1);
}

#[test]
fn nbdcopy_and_qemu_read_back_what_they_wrote_on_raid6() {
    copy_and_compare("copy6", "raid6", 6, 2);
}

#[test]
fn nbdcopy_and_qemu_read_back_what_they_wrote_on_pddl2() {
    copy_and_compare("copy14", "pddl2:4d:14c:2s", 14, 2);
}
