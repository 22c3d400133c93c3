//! Whether a drive answers at all, asked by a process of its own.
//!
//! A thread that waits for a drive that hangs cannot be ended: not by a signal, and not by the end of its process,
//! which stays until the drive answers. So the first read of a drive that could hang is done by `dd`, and a drive that
//! does not answer it is not touched.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, StatxFlags};

use super::occupant::ANSWER_WITHIN;

/// How often the process is asked whether it has ended.
const ASK_AGAIN: Duration = Duration::from_millis(2);

/// File systems that other programs or machines serve; files elsewhere are as good as the disk below.
const SERVED: [&str; 6] = ["fuse", "nfs", "cifs", "smb", "9p", "ceph"];

/// Whether the drive answers a read in time; an error is an answer.
pub(super) fn answers(path: &Path) -> bool {
    if !could_hang(path) {
        return true;
    }
    let mut input = std::ffi::OsString::from("if=");
    input.push(path);
    let reads = [
        "of=/dev/null",
        "bs=4096",
        "skip=1",
        "count=1",
        "iflag=direct",
    ];
    let child = Command::new("dd")
        .arg(input)
        .args(reads)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    // Without `dd` the drive is taken at its word.
    let Ok(mut child) = child else { return true };
    let until = Instant::now() + ANSWER_WITHIN;
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < until => std::thread::sleep(ASK_AGAIN),
            Ok(None) => {
                // It ends when the drive answers.
                child.kill().unwrap_or_default();
                return false;
            }
            Ok(Some(_)) | Err(_) => return true,
        }
    }
}

/// Whether reads may wait without end: devices, and files that other programs or machines serve.
fn could_hang(path: &Path) -> bool {
    // What the kernel knows, without a question to the server of the file: such a question could hang as well.
    let (flags, wanted) = (AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE);
    let Ok(found) = rustix::fs::statx(rustix::fs::CWD, path, flags, wanted) else {
        return false;
    };
    if FileType::from_raw_mode(found.stx_mode.into()).is_block_device() {
        return true;
    }
    let number = format!("{}:{}", found.stx_dev_major, found.stx_dev_minor);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let kind = mounts.lines().find_map(|line| {
        let (place, what) = line.split_once(" - ")?;
        (place.split(' ').nth(2) == Some(&*number)).then(|| what.split(' ').next())?
    });
    kind.is_some_and(|kind| SERVED.iter().any(|served| kind.starts_with(served)))
}
