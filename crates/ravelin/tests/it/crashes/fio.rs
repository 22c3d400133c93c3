//! fio over NBD: many writes in flight, and blocks that can be checked whichever write was the
//! last. Each 4 KiB block has a header with its place and checksums.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::TIMEOUT;

/// The range that fio writes to, behind our client's.
const REGION: &[&str] = &["--offset=4m", "--size=4m"];

fn command(uri: &str, job: &[&str]) -> Command {
    let mut command = Command::new("fio");
    command
        .args(["--name=load", "--thread", "--ioengine=nbd", "--bs=4k"])
        .args(["--verify=crc32c"])
        .args(["--verify_fatal=1", "--verify_state_save=0"])
        .arg(format!("--uri={uri}"))
        .args(REGION)
        .args(job)
        .stdin(Stdio::null());
    command
}

/// Runs a command that must succeed in time.
#[track_caller]
fn succeeds(mut command: Command) {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("fio hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let [words, errors] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "fio: {words}{errors}");
}

/// Whether fio with NBD is there; otherwise reports the tests as skipped.
pub(crate) fn is_installed() -> bool {
    let engines = Command::new("fio").arg("--enghelp").output();
    let found = engines.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("nbd"));
    if !found {
        println!("skipped: fio with its nbd engine is not installed");
    }
    found
}

/// Writes every block once.
pub(crate) fn fill(uri: &str) {
    let job = [
        "--rw=write",
        "--iodepth=16",
        "--do_verify=0",
        "--end_fsync=1",
    ];
    succeeds(command(uri, &job));
}

/// Every block holds a write to this place.
#[track_caller]
pub(crate) fn verify(uri: &str) {
    succeeds(command(uri, &["--rw=read", "--iodepth=16"]));
}

/// Writes until fio or its server ends.
pub(crate) struct Fio(Child);

impl Fio {
    pub(crate) fn start(uri: &str, seed: u64) -> Self {
        let mut command = command(uri, &["--rw=randwrite", "--iodepth=16", "--do_verify=0"]);
        command
            .arg(format!("--randseed={}", seed >> 1))
            .args([
                "--norandommap",
                "--fsync=64",
                "--time_based",
                "--runtime=600",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    pub(crate) fn end(mut self) {
        // fio may have ended already.
        self.0.kill().ok();
        self.0.wait().unwrap();
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
