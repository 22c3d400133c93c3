//! The file that is mounted over: prepares it, tracks the mount's state, and cleans up.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, major, makedev, minor, statfs, statx};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::FuseError;

/// `f_type` of FUSE, `FUSE_SUPER_MAGIC` in the kernel's `fs/fuse/inode.c`.
const FUSE_MAGIC: i64 = 0x6573_5546;
/// The number of a FUSE mount's root inode.
const ROOT_INODE: u64 = 1;

pub(super) fn check_fuse() -> Result<(), FuseError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map(drop)
        .map_err(|source| FuseError::NoFuse { source })
}

/// The current state of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MountState {
    /// Our mount, and it answers.
    Ours,
    /// A FUSE mount without a server.
    Dead,
    /// Something that this process has not mounted.
    NotOurs,
}

/// A file to mount over.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    /// True if the empty file below the mount was created for it; then the file is removed with it.
    created: bool,
    /// The mount's device number.
    device: Option<u64>,
}

fn is_dead(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error())
}

impl Place {
    pub(super) fn prepare(file: &Path) -> Result<Self, FuseError> {
        let failed = |source| FuseError::Prepare {
            file: file.to_owned(),
            source,
        };
        let path = resolved(file).map_err(failed)?;
        let path = path.ok_or_else(|| FuseError::NotAFile {
            file: file.to_owned(),
        })?;

        let stale = clear_stale(&path).map_err(failed)?;
        let created = match fs::metadata(&path) {
            Ok(found) if !found.is_file() => {
                return Err(FuseError::NotAFile { file: path });
            }
            Ok(found) if found.ino() == ROOT_INODE && on_fuse(&path) => {
                return Err(FuseError::Busy { file: path });
            }
            // The empty file below a dead mount of ours was created for that mount.
            Ok(found) if found.len() == 0 && stale => true,
            Ok(_) => return Err(FuseError::Exists { file: path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&path)
                    .map_err(failed)?;
                true
            }
            Err(error) => return Err(failed(error)),
        };
        Ok(Self {
            path,
            created,
            device: None,
        })
    }

    /// The place of a file that an earlier process has mounted.
    pub(super) fn of_before(path: &Path, device: u64) -> Self {
        Self {
            path: path.to_owned(),
            created: true,
            device: Some(device),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Call this when the mount exists and is served.
    pub(super) fn mounted(&mut self) {
        self.device = fs::metadata(&self.path).map(|found| found.dev()).ok();
    }

    /// Asks the file itself: [`device_of`] asks the kernel only, which shows a mount without a server as any other.
    pub(super) fn state(&self) -> MountState {
        match fs::metadata(&self.path) {
            Ok(found) if Some(found.dev()) == self.device => MountState::Ours,
            Err(error) if is_dead(&error) => MountState::Dead,
            Ok(_) | Err(_) => MountState::NotOurs,
        }
    }

    /// Unmounts if the file is not open.
    pub(super) fn unmount(&self) -> io::Result<()> {
        Ok(unmount(&self.path, UnmountFlags::empty())?)
    }

    /// Unmounts even if the file is open: its users get errors from now on.
    pub(super) fn cut_off(&self) {
        // `FORCE` aborts the FUSE connection, even if the unmount itself fails.
        if unmount(&self.path, UnmountFlags::FORCE).is_ok() {
            return;
        }
        if let Err(error) = detach(&self.path) {
            tracing::warn!(file = %self.path.display(), "not unmounted: {error}");
        }
    }

    /// Aborts the connection of a mount that is detached already.
    pub(super) fn abort(&self) {
        let Some(device) = self.device else { return };
        // The connection's number is the anonymous device number in the kernel's encoding, see `fs/fuse/control.c`.
        let number = u64::from(major(device)) << 20 | u64::from(minor(device));
        let control = format!("/sys/fs/fuse/connections/{number}/abort");
        if let Err(error) = fs::write(&control, "1") {
            tracing::debug!("{control}: {error}");
        }
    }

    /// Removes the file if it was made for the mount and the mount is gone.
    pub(super) fn clean_up(&mut self) {
        let empty = fs::metadata(&self.path).is_ok_and(|found| {
            found.is_file() && found.len() == 0 && Some(found.dev()) != self.device
        });
        if std::mem::take(&mut self.created)
            && empty
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(file = %self.path.display(), "not removed: {error}");
        }
    }
}

impl Drop for Place {
    /// Cleans up if the mount failed. Otherwise `clean_up` has run already and this does nothing.
    fn drop(&mut self) {
        self.clean_up();
    }
}

/// The device number of a mount whose requests are not answered yet.
pub(super) fn device_of(path: &Path) -> io::Result<u64> {
    let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
    Ok(makedev(found.stx_dev_major, found.stx_dev_minor))
}

/// The path in the kernel's form: the parent directory resolved, the last component appended as it is, because a dead
/// mount cannot be resolved. `None` if the path has no file name.
pub(super) fn resolved(file: &Path) -> io::Result<Option<PathBuf>> {
    let Some(name) = file.file_name() else {
        return Ok(None);
    };
    let parent = file.parent().filter(|parent| *parent != Path::new(""));
    let parent = parent.unwrap_or(Path::new(".")).canonicalize()?;
    Ok(Some(parent.join(name)))
}

/// Removes dead mounts of ours over a file, and the loop devices over them. True if there were any.
fn clear_stale(path: &Path) -> io::Result<bool> {
    let mut stale = false;
    while fs::metadata(path).is_err_and(|error| is_dead(&error)) && is_ours(path) {
        tracing::info!(file = %path.display(), "a dead mount is removed");
        // Before the unmount: loop devices are found by the name of the mounted file.
        super::loops::let_go(path);
        detach(path)?;
        stale = true;
    }
    Ok(stale)
}

/// True if the topmost mount at a path is one of Ravelin's, by its source name.
fn is_ours(path: &Path) -> bool {
    // mountinfo writes white space and backslashes in octal.
    let escape = |text: String, letter: char| match letter {
        ' ' | '\t' | '\n' | '\\' => format!("{text}\\{:03o}", u32::from(letter)),
        letter => text + letter.encode_utf8(&mut [0; 4]),
    };
    let place = path.to_string_lossy().chars().fold(String::new(), escape);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let at = { mounts.lines() }.rfind(|line| line.split(' ').nth(4) == Some(&place));
    let source = at.and_then(|line| line.split_once(" - ")?.1.split(' ').nth(1));
    source == Some(super::SOURCE)
}

/// See [`super::remove_dead`].
pub(super) fn remove_dead(file: &Path) -> io::Result<()> {
    let Some(path) = resolved(file)? else {
        return Ok(());
    };
    clear_stale(&path)?;
    // The empty file below the mount was, as a rule, created for the mount. If the killed process had its own mount
    // namespace, the mount ended with the process, and only the file is left.
    let is_empty = |found: fs::Metadata| found.is_file() && found.len() == 0;
    if fs::metadata(&path).is_ok_and(is_empty) && !on_fuse(&path) {
        fs::remove_file(&path)?;
    }
    Ok(())
}

fn on_fuse(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.f_type == FUSE_MAGIC)
}

fn detach(path: &Path) -> io::Result<()> {
    match unmount(path, UnmountFlags::DETACH) {
        // Only root may unmount; other users need the helper that mounted.
        Err(Errno::PERM) => {
            let helper = std::process::Command::new("fusermount3")
                .args(["-u", "-q", "-z", "--"])
                .arg(path)
                .status()?;
            if helper.success() {
                Ok(())
            } else {
                Err(Errno::PERM.into())
            }
        }
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_new_file_is_mounted_over_and_others_are_left_as_they_are() {
        let directory = testing::Directory::new();
        let file = directory.join("f");

        drop(Place::prepare(&file).unwrap());
        assert!(!file.exists(), "it was made for the mount");

        for held in ["", "precious"] {
            fs::write(&file, held).unwrap();
            let refused = Place::prepare(&file);
            assert!(matches!(refused, Err(FuseError::Exists { .. })), "{held}");
            assert_eq!(fs::read_to_string(&file).unwrap(), held);
        }
        assert!(matches!(
            Place::prepare(&directory),
            Err(FuseError::NotAFile { .. })
        ));
        assert!(matches!(
            Place::prepare(&directory.join("no/such")),
            Err(FuseError::Prepare { .. })
        ));
    }
}
