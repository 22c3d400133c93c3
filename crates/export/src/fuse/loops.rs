//! Loop devices over a file: creates, finds and detaches them.
//!
//! A loop device remains when the process that serves its file ends, and then returns errors only. So file and loop
//! devices end together: unmounting the file detaches all loop devices over it, whichever process created them, and
//! so does removing a dead mount.
//!
//! `losetup` does the work: it supports the loop driver of the running kernel.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long file systems on a loop device may take to write back their dirty pages. The file may hang, and must be
/// unmounted all the same.
const LAST_WRITES: Duration = Duration::from_secs(20);

/// A loop device that was made here. Its number is no identity: anybody may detach the device, and the kernel gives the
/// number to the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopDevice {
    path: PathBuf,
    sequence: Option<u64>,
    below: Option<PathBuf>,
}

impl LoopDevice {
    /// Creates a loop device over `file`, with direct I/O, optionally read-only, optionally with logical blocks of
    /// another size than the kernel's 512 bytes.
    ///
    /// # Errors
    /// The error of `losetup`, or that it is not installed.
    pub fn over(file: &Path, read_only: bool, block_bytes: Option<u32>) -> io::Result<Self> {
        let path = make(file, read_only, block_bytes)?;
        Ok(Self {
            sequence: sequence(&path),
            below: below(&path),
            path,
        })
    }

    /// A device that an earlier process created, if its sequence number is still the same.
    #[must_use]
    pub fn of_before(path: &Path, made: Option<u64>) -> Option<Self> {
        let sequence = sequence(path);
        (made.is_some() && made == sequence).then(|| Self {
            sequence,
            below: below(path),
            path: path.to_owned(),
        })
    }

    /// Writes back file systems on the device, and detaches it. The kernel detaches a device that is still mounted
    /// when it is unmounted.
    pub fn end(&self, file: &Path) {
        if let Some(device) = self.path() {
            write_back(device);
            detach(device, file);
        }
    }

    /// The device, unless another one has its number by now.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        let same = (&sequence(&self.path), &below(&self.path)) == (&self.sequence, &self.below);
        same.then_some(&*self.path)
    }
}

fn make(file: &Path, read_only: bool, block_bytes: Option<u32>) -> io::Result<PathBuf> {
    let made = Command::new("losetup")
        .args(read_only.then_some("--read-only"))
        .args(block_bytes.map(|bytes| format!("--sector-size={bytes}")))
        .args(["--direct-io=on", "--find", "--show", "--"])
        .arg(file)
        .stdin(Stdio::null())
        .output()?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        return Err(io::Error::other(said.trim().to_owned()));
    }
    let device = PathBuf::from(String::from_utf8_lossy(&made.stdout).trim().to_owned());
    read_ahead(&device);
    Ok(device)
}

/// The kernel's read-ahead for sequential readers: several of FUSE's longest requests, so that all drives have work.
/// The default of loop devices is 128 KiB or 2,560 KiB, depending on the kernel and on earlier settings: ext4 on
/// `raid6` of six drives of 16 MiB/s reads 36 to 74 MiB/s with the former, 84 to 88 with the latter.
const READ_AHEAD_KIB: u32 = 4096;

/// Raises the device's read-ahead. If the kernel refuses, the device works all the same.
fn read_ahead(device: &Path) {
    let Some(name) = device.file_name() else {
        return;
    };
    let setting = Path::new("/sys/block")
        .join(name)
        .join("queue/read_ahead_kb");
    let now = fs::read_to_string(&setting).ok();
    let now: Option<u32> = now.and_then(|text| text.trim().parse().ok());
    if now.is_some_and(|now| now < READ_AHEAD_KIB)
        && let Err(error) = fs::write(&setting, READ_AHEAD_KIB.to_string())
    {
        tracing::debug!("{}: {error}", setting.display());
    }
}

/// Sets a loop device's size to the current size of `file`.
///
/// # Errors
/// The error of `losetup`, or that it is not installed.
pub fn take_size(device: &Path, file: &Path) -> io::Result<()> {
    // Older kernels use their cached size of the file: refresh it.
    fs::metadata(file)?;
    let told = Command::new("losetup")
        .arg("--set-capacity")
        .arg(device)
        .stdin(Stdio::null())
        .output()?;
    if !told.status.success() {
        let said = String::from_utf8_lossy(&told.stderr);
        return Err(io::Error::other(said.trim().to_owned()));
    }
    Ok(())
}

/// The loop devices over `file`.
#[must_use]
pub fn over(file: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let loops = names.filter(|name| {
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        // The kernel ends the name with one newline.
        fs::read_to_string(backing)
            .is_ok_and(|text| Path::new(text.strip_suffix('\n').unwrap_or(&text)) == file)
    });
    loops.map(|name| Path::new("/dev").join(name)).collect()
}

/// The disk sequence number, which distinguishes a loop device from a later one with the same number: the kernel
/// counts attachments (since Linux 5.15).
#[must_use]
pub fn sequence(device: &Path) -> Option<u64> {
    let name = device.file_name()?;
    let text = fs::read_to_string(Path::new("/sys/block").join(name).join("diskseq")).ok()?;
    text.trim().parse().ok()
}

/// The name of a loop device's backing file, as the kernel reports it.
fn below(device: &Path) -> Option<PathBuf> {
    let name = device.file_name()?;
    let file = Path::new("/sys/block").join(name).join("loop/backing_file");
    let text = fs::read_to_string(file).ok()?;
    // The kernel ends the name with one newline.
    Some(PathBuf::from(text.strip_suffix('\n').unwrap_or(&text)))
}

/// Detaches a loop device that an ended process created over `file`, if the device's sequence number is still the
/// same. If the process had its own mount namespace, the file lost its name with the process, and the kernel reports
/// `/`.
pub fn let_go_of(device: &Path, made: Option<u64>, file: &Path) {
    let Some(below) = below(device) else { return };
    let nameless = below == Path::new("/");
    let same = made.is_some() && made == sequence(device);
    if same && (nameless || below == file) {
        detach(device, file);
    }
}

/// True if a loop device is mounted, or is part of another block device. A process that only has the device open is
/// not detected.
#[must_use]
pub fn is_held(device: &Path) -> bool {
    let holders = device
        .file_name()
        .map(|name| Path::new("/sys/block").join(name).join("holders"))
        .and_then(|holders| fs::read_dir(holders).ok());
    holders.is_some_and(|mut holders| holders.next().is_some()) || !mounted_at(device).is_empty()
}

/// A process that has a device open, as far as this process may see: `pid 17, fio`. Not this process itself.
#[must_use]
pub fn opened_by(device: &Path) -> Option<String> {
    let device = fs::canonicalize(device).ok()?;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(descriptors) = fs::read_dir(entry.path().join("fd")) else {
            continue;
        };
        let mut links = descriptors
            .flatten()
            .map(|entry| fs::read_link(entry.path()));
        if pid != std::process::id() && links.any(|link| link.is_ok_and(|link| link == device)) {
            let command = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            return Some(format!("pid {pid}, {}", command.trim()));
        }
    }
    None
}

/// Writes back file systems on the loop devices over `file`, and detaches the devices. The kernel detaches a device
/// that is still mounted when it is unmounted.
pub(super) fn let_go(file: &Path) {
    for device in over(file) {
        write_back(&device);
        detach(&device, file);
    }
}

fn detach(device: &Path, file: &Path) {
    let ended = Command::new("losetup")
        .arg("-d")
        .arg(device)
        .stdin(Stdio::null())
        .output();
    let (device, file) = (device.display(), file.display());
    let said = match &ended {
        Ok(ended) if ended.status.success() => {
            tracing::info!(%device, %file, "loop device detached");
            return;
        }
        Ok(ended) => String::from_utf8_lossy(&ended.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    tracing::warn!("{device} stays: {said}");
}

/// Writes back the file systems on a device.
fn write_back(device: &Path) {
    let places = mounted_at(device);
    if places.is_empty() {
        return;
    }
    let (to, done) = mpsc::channel();
    let writing = std::thread::Builder::new().spawn(move || {
        for place in places {
            let synced = File::open(&place).and_then(|place| Ok(rustix::fs::syncfs(place)?));
            if let Err(error) = synced {
                tracing::warn!("{} is not written back: {error}", place.display());
            }
        }
        // The receiver may have timed out.
        to.send(()).ok();
    });
    if writing.is_ok() && done.recv_timeout(LAST_WRITES).is_err() {
        tracing::warn!("{} is not written back in time", device.display());
    }
}

/// Where a device is mounted in our mount namespace.
fn mounted_at(device: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    places_of(device, &mounts)
}

/// Mount points of a device in a text like `/proc/self/mountinfo`. Compares the device's name and not its number:
/// btrfs does not show its device's number there.
fn places_of(device: &Path, mounts: &str) -> Vec<PathBuf> {
    let of_line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let source = plain(after.split(' ').nth(1)?);
        let place = plain(before.split(' ').nth(4)?);
        (Path::new(&source) == device).then(|| PathBuf::from(place))
    };
    mounts.lines().filter_map(of_line).collect()
}

/// Unescapes a name: the kernel writes spaces, tabs, newlines and backslashes in octal.
fn plain(word: &str) -> String {
    let octals = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    let spelt = |text: String, (octal, byte): (&str, &str)| text.replace(octal, byte);
    octals.into_iter().fold(word.to_owned(), spelt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_as_the_kernel_writes_them() {
        let mounts = "\
36 35 7:3 / /mnt/a\\040b rw,noatime master:1 - ext4 /dev/loop3 rw
37 35 7:30 / /mnt/c rw - ext4 /dev/loop30 rw
38 35 0:41 /sub /mnt/d rw - btrfs /dev/loop3 rw
";
        let places = ["/mnt/a b", "/mnt/d"].map(PathBuf::from);
        assert_eq!(places_of(Path::new("/dev/loop3"), mounts), places);
        assert_eq!(
            places_of(Path::new("/dev/loop4"), mounts),
            [] as [PathBuf; 0]
        );
    }
}
