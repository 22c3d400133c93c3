//! Loop devices over a file: made, found, and let go.
//!
//! A loop device outlives the process that serves its file, and then has nothing but errors to
//! give. So they go together: whoever ends the file lets go of the loop devices over it, no matter
//! who made them, and so does whoever finds a dead one.
//!
//! The work is done by `losetup`, which knows what this kernel's loop driver can do.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a file system on a loop device may take to write back what it has not written yet. The
/// file may be stuck, and its end must come all the same.
const LAST_WRITES: Duration = Duration::from_secs(20);

/// Makes a loop device over `file`, with direct I/O; one that cannot be written if so asked.
///
/// # Errors
/// What `losetup` says, or that there is none.
pub fn make(file: &Path, read_only: bool) -> io::Result<PathBuf> {
    let made = Command::new("losetup")
        .args(read_only.then_some("--read-only"))
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

/// What the kernel reads ahead for a client that reads in sequence: several of FUSE's longest requests, so that all drives have
/// something to do. Loop devices have 128 KiB or 2,560, by kernel and by what was set on them before: ext4 on `raid6` of six
/// drives of 16 MiB/s reads 36 to 74 MiB/s with the former, 84 to 88 with the latter.
const READ_AHEAD_KIB: u32 = 4096;

/// Has the kernel read ahead far enough. Where it refuses, the device works all the same.
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

/// Has a loop device take the size that `file` has by now.
///
/// # Errors
/// What `losetup` says, or that there is none.
pub fn take_size(device: &Path, file: &Path) -> io::Result<()> {
    // Older kernels look at the size that they last heard of.
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

/// What tells a loop device from another one that has its number later: the kernel counts what it
/// attaches (since Linux 5.15).
#[must_use]
pub fn sequence(device: &Path) -> Option<u64> {
    let name = device.file_name()?;
    let text = fs::read_to_string(Path::new("/sys/block").join(name).join("diskseq")).ok()?;
    text.trim().parse().ok()
}

/// The name of the file below a loop device, as the kernel tells it.
fn below(device: &Path) -> Option<PathBuf> {
    let name = device.file_name()?;
    let file = Path::new("/sys/block").join(name).join("loop/backing_file");
    let text = fs::read_to_string(file).ok()?;
    // The kernel ends the name with one newline.
    Some(PathBuf::from(text.strip_suffix('\n').unwrap_or(&text)))
}

/// Detaches a loop device that a process which has ended had made over `file`, if it is still that
/// one. Where the process had a mount namespace of its own, the file has lost its name with it.
pub fn let_go_of(device: &Path, made: Option<u64>, file: &Path) {
    let Some(below) = below(device) else { return };
    let nameless = below == Path::new("/");
    let same = made.is_some() && made == sequence(device);
    if same && (nameless || below == file) {
        detach(device, file);
    }
}

/// Whether a loop device is mounted, or another block device is made of it. Whoever merely has it
/// open is not seen.
#[must_use]
pub fn is_held(device: &Path) -> bool {
    let holders = device
        .file_name()
        .map(|name| Path::new("/sys/block").join(name).join("holders"))
        .and_then(|holders| fs::read_dir(holders).ok());
    holders.is_some_and(|mut holders| holders.next().is_some()) || !mounted_at(device).is_empty()
}

/// Writes back what file systems on the loop devices over `file` have not written yet, and detaches
/// the devices. One that is still mounted goes when it is unmounted.
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

/// Has the file systems on a device write back.
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
        // Who waited may have given up.
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

/// Mount points of a device in a text like `/proc/self/mountinfo`. The device's name is asked for
/// and not its number, which btrfs does not tell there.
fn places_of(device: &Path, mounts: &str) -> Vec<PathBuf> {
    let of_line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let source = plain(after.split(' ').nth(1)?);
        let place = plain(before.split(' ').nth(4)?);
        (Path::new(&source) == device).then(|| PathBuf::from(place))
    };
    mounts.lines().filter_map(of_line).collect()
}

/// A name as it is: the kernel writes spaces, tabs, newlines and backslashes in octal.
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
