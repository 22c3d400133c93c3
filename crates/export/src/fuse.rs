//! A device as one file, through FUSE.
//!
//! A regular file is mounted over with a file system whose root *is* a regular file: what was an
//! empty file is the device from then on, and a loop device makes a kernel block device of it.
//!
//! ```text
//!  ext4 ─ /dev/loop0 ── read, write, fsync, fallocate ──► /run/data.img   (the kernel's FUSE)
//!          direct I/O                                          │ /dev/fuse
//!                                     ┌────────────────────────┴───┐
//!                                     │ reader thread              │ replies, from the thread
//!                                     ▼                            │ that completes
//!                                  in_flight ── submit ──► BlockDevice ── completed ──┘
//! ```
//!
//! | the kernel asks | the device gets |
//! | --- | --- |
//! | read, write | `Read`, `Write`; with `O_DSYNC` force unit access |
//! | fsync, and flush (at each close) | `Flush` |
//! | fallocate, punch hole (a loop device's discard) | `Trim` |
//! | fallocate, zero range (a loop device's write-zeroes) | `WriteZeroes` |
//! | lseek, `SEEK_HOLE` and `SEEK_DATA` | no request: what the device says of its extents |
//!
//! The file is opened for direct I/O whatever the opener says: the page cache belongs to the file
//! system on top, and a second one below it would hold everything twice and delay its errors. Reads
//! and writes are asynchronous in the kernel too, so that a loop device with `--direct-io=on` has
//! many of them in flight at once.
//!
//! **Memory pressure.** Writing back dirty pages of the file system on top needs this process. Its
//! allocations must therefore not wait for such write-back: the reader thread, and what it starts,
//! says so by `PR_SET_IO_FLUSHER`. A daemon says it for its other threads.

mod file;
mod in_flight;
pub mod loops;
mod place;
mod replies;
mod seek;
mod wire;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use block::{BlockDevice, Hint};
use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};

use file::DeviceFile;
use in_flight::InFlight;
use place::{MountState, Place};

/// What mounts are known by in the kernel's table.
const SOURCE: &str = "ravelin";
/// How long dropping a [`FuseFile`] waits for what is in flight, and for the kernel to let go.
const GOODBYE: Duration = Duration::from_secs(5);

/// Why a device could not be had as a file.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// This kernel, or this container, has no FUSE.
    #[error("/dev/fuse cannot be opened: {source}")]
    NoFuse {
        /// What opening it gave.
        source: io::Error,
    },
    /// The name is taken by something that is not a file.
    #[error("{} is not a regular file", .file.display())]
    NotAFile {
        /// The name.
        file: PathBuf,
    },
    /// Mounting over the file would hide what it is for others.
    #[error("{} exists already and is not Ravelin's", .file.display())]
    Exists {
        /// The file.
        file: PathBuf,
    },
    /// A running process has mounted something there.
    #[error("{} is mounted already", .file.display())]
    Busy {
        /// The file.
        file: PathBuf,
    },
    /// The file could not be looked at or created.
    #[error("{} cannot be prepared: {source}", .file.display())]
    Prepare {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel or `fusermount3` refused.
    #[error("{} cannot be mounted: {source}", .file.display())]
    Mount {
        /// The file.
        file: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

impl Hint for FuseError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        let hint = match self {
            Self::NoFuse { .. } => "load the kernel's module `fuse`, or run as root",
            Self::NotAFile { .. } => "choose the name of a file that need not exist",
            Self::Exists { .. } => "choose the name of a file that does not exist yet",
            Self::Busy { .. } => "detach it where it was attached, or choose another name",
            Self::Prepare { .. } => "check that its directory exists and may be written",
            Self::Mount { .. } => "run as root, or install `fusermount3`",
        };
        Some(hint.into())
    }
}

/// A device that is a file for as long as this lives. Dropping it unmounts.
pub struct FuseFile {
    place: Place,
    in_flight: Arc<InFlight>,
    unmounter: SessionUnmounter,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for FuseFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FuseFile")
            .field("file", &self.place.path())
            .finish_non_exhaustive()
    }
}

impl FuseFile {
    /// Mounts `device` over `file`, which is made for that and must not exist, unless a killed process of ours has
    /// left it: what that has mounted there is unmounted first. Only the caller's user (and root, if that is the
    /// caller) may open the file.
    ///
    /// # Errors
    /// When there is no FUSE, the file is not one to mount over, or the mount is refused.
    pub fn mount(file: &Path, device: Arc<dyn BlockDevice>) -> Result<Self, FuseError> {
        place::check_fuse()?;
        let mut place = Place::prepare(file)?;
        let mount_error = |source| FuseError::Mount {
            file: file.to_owned(),
            source,
        };
        let in_flight = Arc::new(InFlight::new(device));
        let root = rustix::process::geteuid().is_root();
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(SOURCE.to_owned()),
            MountOption::Subtype("ravelin".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoAtime,
        ];
        // A loop device's work is done by kernel threads, and an ordinary user may not say so.
        config.acl = if root {
            SessionACL::All
        } else {
            SessionACL::Owner
        };
        let served = DeviceFile::new(Arc::clone(&in_flight));
        let file = served.clone();
        let mut session = Session::new(file, place.path(), &config).map_err(mount_error)?;
        let kernel = session.as_fd().try_clone_to_owned().map_err(mount_error)?;
        in_flight.reply_to(kernel);
        let unmounter = session.unmount_callable();
        let thread = std::thread::Builder::new()
            .name("fuse".to_owned())
            .spawn(move || {
                if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
                    tracing::debug!("no PR_SET_IO_FLUSHER: {error}");
                }
                if let Err(error) = served.serve(session.as_fd()) {
                    tracing::warn!("a FUSE session ended: {error}");
                }
            })
            .map_err(mount_error)?;
        // From here on dropping unmounts, also when the next step fails.
        place.mounted();
        Ok(Self {
            place,
            in_flight,
            unmounter,
            thread: Some(thread),
        })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// How often the file is open now; a loop device counts once.
    #[must_use]
    pub fn opens(&self) -> usize {
        self.in_flight.opens()
    }

    fn ended(&self, deadline: Instant) -> bool {
        let thread = self.thread.as_ref();
        while thread.is_some_and(|thread| !thread.is_finished()) {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }
}

/// Removes what a killed process that had mounted `file` has left there: the dead mount, loop devices
/// over it, and the empty file that was mounted over. What is there otherwise is left alone.
///
/// # Errors
/// When it cannot be removed.
pub fn remove_dead(file: &Path) -> io::Result<()> {
    place::remove_dead(file)
}

impl Drop for FuseFile {
    fn drop(&mut self) {
        match self.place.state() {
            MountState::Ours => {
                // They end with the file, so their last words are sent on while it is there.
                loops::let_go(self.place.path());
            }
            MountState::Dead | MountState::NotOurs => {}
        }
        let deadline = Instant::now() + GOODBYE;
        match self.place.state() {
            MountState::Ours => {
                // Busy, as a rule because a loop device still has the file: cut it off.
                if self.unmounter.unmount().is_err() {
                    self.place.cut_off();
                }
            }
            MountState::Dead => self.place.cut_off(),
            MountState::NotOurs => {}
        }
        // By `fusermount3` a busy file is only detached; the last one to close it ends the session.
        let short = Instant::now() + Duration::from_millis(500);
        if !self.ended(short) {
            self.place.abort();
        }
        if !self.ended(deadline) {
            tracing::warn!(
                file = %self.place.path().display(),
                "still in use; it ends with its last user"
            );
        } else if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a FUSE reader had panicked");
        }
        if !self.in_flight.wait_completed(deadline) {
            tracing::warn!(
                file = %self.place.path().display(),
                "requests are still in flight"
            );
        }
        self.place.clean_up();
    }
}
