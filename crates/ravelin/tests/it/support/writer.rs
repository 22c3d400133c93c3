//! A client that can be killed, and a check of the data that it wrote.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use export::nbd::{Client, ClientError};
use rustix::process::{Pid, Signal, kill_process};

const BLOCK: usize = 4096;
/// Writes between two flushes.
const BATCH: u64 = 16;
/// How long a client tries to reconnect.
const RECONNECT: Duration = Duration::from_secs(20);

/// The task of the other process: `target|base|blocks|log`.
const TASK: &str = "RAVELIN_TEST_WRITER";

/// The target of a client.
#[derive(Clone, Copy)]
pub(crate) enum Target<'a> {
    /// The client reconnects when the connection fails.
    Nbd(&'a str),
    /// The client ends at the first error, because a failed device does not return.
    Device(&'a Path),
}

pub(crate) struct Writer {
    child: Child,
    log: PathBuf,
    /// The log's length at the last check.
    seen: usize,
}

impl Writer {
    pub(crate) fn start(target: Target<'_>, base: u64, length: u64, log: &Path) -> Self {
        let target = match target {
            Target::Nbd(uri) => uri.to_owned(),
            Target::Device(path) => path.display().to_string(),
        };
        let blocks = length / BLOCK as u64;
        let task = format!("{target}|{base}|{blocks}|{}", log.display());
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "support::writer::writes_until_it_is_ended",
                "--nocapture",
            ])
            .env(TASK, task)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self {
            child,
            log: log.to_owned(),
            seen: lines(log).len(),
        }
    }

    /// Waits until more has been flushed.
    pub(crate) fn has_flushed(&mut self, timeout: Duration) {
        self.seen = lines(&self.log).len();
        let deadline = Instant::now() + timeout;
        while lines(&self.log).len() == self.seen {
            assert!(Instant::now() < deadline, "the client does not get on");
            assert!(self.child.try_wait().unwrap().is_none(), "it has ended");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks the client to end in an orderly way.
    pub(crate) fn stop(mut self, timeout: Duration) {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + timeout;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the client hangs");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn kill(mut self) {
        let pid = Pid::from_child(&self.child);
        // The process may have ended already.
        let _ = kill_process(pid, Signal::KILL);
        self.child.wait().unwrap();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn lines(log: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// The block of write number `k`.
fn block_of(k: u64, blocks: u64) -> u64 {
    (k.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) % blocks
}

/// The bytes of write number `k`.
fn bytes_of(k: u64) -> Vec<u8> {
    (0..BLOCK as u64 / 8)
        .flat_map(|word| (k << 16 | word).to_le_bytes())
        .collect()
}

/// Every block holds at least its last flushed write, and only bytes that were written to it.
#[track_caller]
pub(crate) fn verify(bytes: &[u8], log: &Path) {
    let blocks = (bytes.len() / BLOCK) as u64;
    let flushed = lines(log).last().copied().unwrap_or(0);
    let mut least = vec![0; bytes.len() / BLOCK];
    for k in 1..=flushed {
        least[usize::try_from(block_of(k, blocks)).unwrap()] = k;
    }
    for (index, (found, least)) in bytes.chunks(BLOCK).zip(least).enumerate() {
        let k = u64::from_le_bytes(found[..8].try_into().unwrap()) >> 16;
        assert!(
            k >= least,
            "block {index} holds write {k}, and write {least} had been flushed"
        );
        if k == 0 {
            assert!(found.iter().all(|&byte| byte == 0), "block {index}");
        } else {
            assert!(found == bytes_of(k), "block {index}: write {k} is torn");
            assert_eq!(block_of(k, blocks), index as u64, "write {k}");
        }
    }
}

/// Connects; if necessary, waits until the server accepts connections.
pub(crate) fn connect(uri: &str, timeout: Duration) -> Client {
    let deadline = Instant::now() + timeout;
    loop {
        match Client::connect(&uri.parse().unwrap(), None) {
            Ok(mut client) => {
                client.set_timeout(Some(RECONNECT));
                return client;
            }
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The body of the other process.
#[test]
fn writes_until_it_is_ended() {
    let Ok(task) = std::env::var(TASK) else {
        return;
    };
    let parts: Vec<&str> = task.split('|').collect();
    let [target, base, blocks, log] = parts[..] else {
        panic!("{task}")
    };
    let (base, blocks): (u64, u64) = (base.parse().unwrap(), blocks.parse().unwrap());
    static STOP: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        // Ends when the parent closes its end.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        STOP.store(true, Ordering::Release);
    });
    let mut flushed = lines(Path::new(log)).last().copied().unwrap_or(0);
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(log)
        .unwrap();
    // One system call a line, so that a kill leaves no partial line.
    let mut note = |k: u64| log.write_all(format!("{k}\n").as_bytes()).unwrap();
    let stopped = || STOP.load(Ordering::Acquire);
    let at = |k: u64| base + block_of(k, blocks) * BLOCK as u64;
    if target.starts_with('/') {
        let file = File::options().write(true).open(target).unwrap();
        while !stopped() {
            let batch = flushed + 1..=flushed + BATCH;
            let write = |k| file.write_all_at(&bytes_of(k), at(k));
            if batch.clone().try_for_each(write).is_err() || file.sync_data().is_err() {
                return;
            }
            flushed = *batch.end();
            note(flushed);
        }
        return;
    }
    let mut client = connect(target, RECONNECT);
    while !stopped() {
        let batch = flushed + 1..=flushed + BATCH;
        let written: Result<(), ClientError> = batch
            .clone()
            .try_for_each(|k| client.write(at(k), &bytes_of(k), false))
            .and_then(|()| client.flush());
        if written.is_ok() {
            flushed = *batch.end();
            note(flushed);
            continue;
        }
        // When the server is back, the unflushed writes are repeated.
        let deadline = Instant::now() + RECONNECT;
        client = loop {
            if stopped() {
                return;
            }
            match Client::connect(&target.parse().unwrap(), None) {
                Ok(client) => break client,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        client.set_timeout(Some(RECONNECT));
    }
    let _ = client.disconnect();
}
