//! A device as one file, through FUSE.
//!
//! A file system whose root *is* a regular file is mounted over an empty regular file: that file appears as the
//! device from then on, and a loop device makes a kernel block device of it.
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
//! | lseek, `SEEK_HOLE` and `SEEK_DATA` | no request: a query of the device's extents |
//!
//! The file is opened for direct I/O, whatever flags the opener passes: the page cache belongs to the file system on
//! top. A second page cache below it would hold all data twice and delay errors. Reads and writes are asynchronous in
//! the kernel, too, so a loop device with `--direct-io=on` has many of them in flight at once.
//!
//! **Memory pressure.** Write-back of dirty pages of the file system on top needs this process. Allocations of this
//! process must therefore not wait for such write-back. The reader thread sets `PR_SET_IO_FLUSHER` for that, and
//! threads that it starts inherit the setting. A daemon sets it for its other threads.

mod file;
mod in_flight;
mod inbox;
pub mod kept;
pub mod loops;
mod place;
mod replies;
mod seek;
mod wire;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use block::{BlockDevice, Hint};
use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};

use file::{DeviceFile, Ended};
use in_flight::InFlight;
use inbox::{About, Inbox};
use kept::{Kept, Names, Retention};
use place::{MountState, Place};

/// The mounts' source name in the kernel's mount table.
const SOURCE: &str = "ravelin";
/// How long dropping a [`FuseFile`] waits for requests in flight, and for the kernel to end the session.
const GOODBYE: Duration = Duration::from_secs(5);

/// Why a device could not be mounted as a file.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// This kernel, or this container, has no FUSE.
    #[error("/dev/fuse cannot be opened: {source}")]
    NoFuse {
        /// The error of opening it.
        source: io::Error,
    },
    /// The path is something else than a regular file.
    #[error("{} is not a regular file", .file.display())]
    NotAFile {
        /// The name.
        file: PathBuf,
    },
    /// The file exists already: mounting over it would hide its contents.
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
    /// The file could not be examined or created.
    #[error("{} cannot be prepared: {source}", .file.display())]
    Prepare {
        /// The file.
        file: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The kernel or `fusermount3` refused.
    #[error("{} cannot be mounted: {source}", .file.display())]
    Mount {
        /// The file.
        file: PathBuf,
        /// Its error.
        source: io::Error,
    },
    /// A file that an earlier process has served cannot be served again.
    #[error("{} was kept over the restart and cannot be taken up: {source}", .file.display())]
    TakeUp {
        /// The file.
        file: PathBuf,
        /// What prevents it.
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
            Self::TakeUp { .. } => {
                "unmount what is mounted on it, detach the volume and attach it again"
            }
        };
        Some(hint.into())
    }
}

/// A device that is mounted as a file. Dropping this unmounts it.
pub struct FuseFile {
    place: Place,
    in_flight: Arc<InFlight>,
    /// `None`: an earlier process has mounted it.
    unmounter: Option<SessionUnmounter>,
    thread: Option<JoinHandle<()>>,
    /// What a supervisor keeps of it for the next process.
    kept: Option<Names>,
}

impl fmt::Debug for FuseFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FuseFile")
            .field("file", &self.place.path())
            .finish_non_exhaustive()
    }
}

impl FuseFile {
    /// Mounts `device` over `file`. The file is created for that and must not exist, except for one that a killed
    /// process of this program left behind: a dead mount on it is unmounted first. Only the caller's user (and root,
    /// if that is the caller) may open the file.
    ///
    /// # Errors
    /// If there is no FUSE, the file cannot be mounted over, or the mount is refused.
    pub fn mount(file: &Path, device: Arc<dyn BlockDevice>) -> Result<Self, FuseError> {
        Self::mount_kept(file, device, None)
    }

    /// As [`FuseFile::mount`], for a file that a supervisor keeps for the next process.
    ///
    /// # Errors
    /// As for [`FuseFile::mount`]. If the file cannot be kept, it ends with this process, and a warning is logged.
    pub fn mount_kept(
        file: &Path,
        device: Arc<dyn BlockDevice>,
        retention: Option<&Retention>,
    ) -> Result<Self, FuseError> {
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
        // The kernel threads of a loop device run as root, so they need access. Only root may permit access by other
        // users.
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
        let kept = retention.and_then(|retention| {
            let kept = keep(
                retention,
                session.as_fd(),
                &served,
                (&in_flight, place.path()),
            );
            kept.inspect_err(|error| {
                tracing::warn!(file = %place.path().display(), "it ends with the daemon: {error}");
            })
            .ok()
        });
        let unmounter = session.unmount_callable();
        let thread = serve_on_a_thread(move || {
            let ended = served.serve(session.as_fd());
            if matches!(ended, Ok(Ended::Left)) {
                // Dropping it would unmount the file.
                std::mem::forget(session);
            }
            ended
        })
        .map_err(mount_error)?;
        // From here on a drop unmounts, also if the next step fails.
        place.mounted();
        Ok(Self {
            place,
            in_flight,
            unmounter: Some(unmounter),
            thread: Some(thread),
            kept,
        })
    }

    /// Serves a file that an earlier process has served, with another handle to the same device. What that process
    /// has read from the kernel and not answered is answered now.
    ///
    /// # Errors
    /// If something else was served there. The file ends then.
    pub fn take_up(
        kept: Kept,
        device: Arc<dyn BlockDevice>,
        retention: &Retention,
    ) -> Result<Self, FuseError> {
        let failed = |source| FuseError::TakeUp {
            file: kept.path().to_owned(),
            source,
        };
        if kept.what() != retention.what {
            let other = format!("it was {} and is {} now", kept.what(), retention.what);
            return Err(failed(io::Error::other(other)));
        }
        if let Err(error) = kept.mount_again() {
            tracing::warn!(file = %kept.path().display(), "has no path any more: {error}");
        }
        let in_flight = Arc::new(InFlight::new(device));
        let replies = kept.kernel.try_clone().map_err(failed)?;
        in_flight.reply_to(replies);
        let left = kept.inbox.left();
        let (kernel, file) = (kept.kernel.as_fd(), (kept.path(), kept.about.device));
        let names = Names::keep(retention, (kernel, &kept.inbox), file, Some(&kept));
        let names = names.inspect_err(|error| {
            tracing::warn!(file = %kept.path().display(), "it ends with the daemon: {error}");
        });
        let place = Place::of_before(kept.path(), kept.about.device);
        let served = DeviceFile::since(Arc::clone(&in_flight), kept.about.since);
        in_flight.keep_in(kept.inbox);
        let (kernel, path) = (kept.kernel, kept.about.path);
        let unanswered = left.len();
        let thread = serve_on_a_thread(move || {
            served.take_up(left);
            served.serve(kernel.as_fd())
        })
        .map_err(|source| FuseError::TakeUp {
            file: path.clone(),
            source,
        })?;
        tracing::info!(file = %path.display(), unanswered, "taken up from the process before");
        Ok(Self {
            place,
            in_flight,
            unmounter: None,
            thread: Some(thread),
            kept: names.ok(),
        })
    }

    /// True if a supervisor keeps the file for the next process.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// Ends the service and leaves a file that is kept as it is: requests wait for the process that takes it up. Waits
    /// until the requests that the device has are completed, for a few seconds.
    pub fn leave(self) {
        self.in_flight.leave();
        if !self.in_flight.wait_completed(Instant::now() + GOODBYE) {
            tracing::info!(file = %self.place.path().display(), "requests are left to the next process");
        }
        std::mem::forget(self);
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

/// Gives a file's descriptors to its keeper, and the file an inbox that outlives this process.
fn keep(
    retention: &Retention,
    kernel: BorrowedFd<'_>,
    served: &DeviceFile,
    (in_flight, path): (&InFlight, &Path),
) -> io::Result<Names> {
    let device = place::device_of(path)?;
    let inbox = Inbox::create(&About {
        room: served.room(),
        device,
        since: served.times(),
        path: path.to_owned(),
        what: retention.what.clone(),
    })?;
    let names = Names::keep(retention, (kernel, &inbox), (path, device), None)?;
    in_flight.keep_in(inbox);
    Ok(names)
}

fn serve_on_a_thread(
    serve: impl FnOnce() -> io::Result<Ended> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name("fuse".to_owned())
        .spawn(move || {
            if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
                tracing::debug!("no PR_SET_IO_FLUSHER: {error}");
            }
            if let Err(error) = serve() {
                tracing::warn!("a FUSE session ended: {error}");
            }
        })
}

/// Removes what a killed process left behind at `file`: the dead mount, loop devices over it, and the empty file
/// below the mount. Anything else there stays as it is.
///
/// # Errors
/// If it cannot be removed.
pub fn remove_dead(file: &Path) -> io::Result<()> {
    place::remove_dead(file)
}

impl Drop for FuseFile {
    fn drop(&mut self) {
        // A descriptor that is kept would keep requests waiting for ever.
        drop(self.kept.take());
        match self.place.state() {
            MountState::Ours => {
                // The loop devices end with the file. Write back their file systems while the file is still served.
                loops::let_go(self.place.path());
            }
            MountState::Dead | MountState::NotOurs => {}
        }
        let deadline = Instant::now() + GOODBYE;
        match self.place.state() {
            MountState::Ours => {
                // Busy, usually because a loop device still has the file open: force it.
                let unmounted = match &mut self.unmounter {
                    Some(unmounter) => unmounter.unmount().is_ok(),
                    None => self.place.unmount().is_ok(),
                };
                if !unmounted {
                    self.place.cut_off();
                }
            }
            MountState::Dead => self.place.cut_off(),
            MountState::NotOurs => {}
        }
        // `fusermount3` only detaches a busy mount, and the session would then end with the last close. Abort the
        // connection if the session does not end soon.
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
