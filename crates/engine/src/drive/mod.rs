//! Drives: whatever holds bytes below an array, opened by name.
//!
//! ```text
//! DriveUri ──open──► Drive { device: Arc<dyn BlockDevice>, … }
//!
//!   slow ┐                      timer (one thread)
//!  faulty┤
//! compress──► file, zram ─┬─► handle (system calls) ◄── workers (threads of this drive)
//!        │               └─► crate::ring (io_uring: reads, writes, flushes)
//!        ├─► mem        ───► store                 ◄── worker
//!        └─► volume     ───► lanes of the pool below
//! ```
//!
//! Every kind keeps the contract of [`BlockDevice`]: a request is completed exactly once, never
//! inside `submit`, and only when the drive holds no part of its memory any more. Dropping a drive
//! answers requests that have not begun with [`block::Fault::Shutdown`], waits for the others, and
//! ends the drive's threads.

mod claim;
mod compress;
mod content;
mod enclosures;
mod faulty;
mod file;
mod handle;
mod mem;
/// The example of `docs/howto/add-a-drive-kind.md`, which is compiled and tested here.
#[cfg(test)]
#[path = "../../../../docs/howto/part.rs"]
mod part;
mod signature;
mod slow;
pub mod sync;
pub(crate) mod telemetry;
mod ticket;
mod timer;
mod uri;
mod volume;
mod workers;
mod zram;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use array::pool::Bay;
use block::{BlockDevice, ByteSize, Hint};

pub use claim::Claim;
pub(crate) use content::GIVEN_UP;
pub use content::{Content, content, give_up};
pub use enclosures::Enclosures;
pub use faulty::{Effect, FaultHandle, Trap};
pub use file::{Holder, create_sparse};
pub use signature::{RAVELIN_MAGIC, RAVELIN_MAGIC_OFFSET, Signature, probe, signatures};
pub use telemetry::{BUCKETS, Telemetry, TelemetrySnapshot, TrafficSnapshot};
pub use uri::{DriveKind, DriveSpec, DriveUri, Identity, ParseDriveUriError, Place, identity};
pub use volume::OpenVolume;

pub(crate) use handle::{AGAIN_MAX, Handle, gather, ranges_from, scatter};
pub(crate) use ticket::Ticket;
pub(crate) use workers::{ASK_AGAIN, Backlog, Halt, Perform, check};

/// All kinds of drives, in the order of the help. A new one is a file, its `mod` line and its line here
/// (`docs/howto/add-a-drive-kind.md`).
pub static KINDS: &[&DriveKind] = &[
    &file::KIND,
    &zram::KIND,
    &mem::KIND,
    &volume::KIND,
    &slow::KIND,
    &compress::KIND,
    &faulty::KIND,
    #[cfg(test)]
    &part::KIND,
];

/// How to open a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// Make the file, sparse and this long, if it does not exist; also sets the size of a zram
    /// device that has none. Existing files and devices keep their size.
    pub create_size: Option<u64>,
    /// Take the drive's lock, and for a block device also the exclusive claim that mounts take.
    /// Only probing does without.
    pub exclusive: bool,
    /// Only read. When a program closes a device that it could have written, udev reads the partition table of the
    /// device again, and keeps everybody else from it meanwhile. So a command that only says what it would do opens
    /// drives in this way. A drive that could not be opened for writing either is refused all the same.
    pub read_only: bool,
}

/// What carries out a drive's reads, writes and flushes; for status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackEnd {
    /// io_uring.
    Uring,
    /// Threads that block.
    Threads {
        /// Why io_uring is not used.
        reason: String,
    },
    /// A thread that copies from and to this process's memory.
    Memory,
    /// The lanes of the pool below.
    Pool,
}

impl fmt::Display for BackEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uring => f.write_str("io_uring"),
            Self::Threads { reason } => write!(f, "threads ({reason})"),
            Self::Memory => f.write_str("memory"),
            Self::Pool => f.write_str("pool"),
        }
    }
}

/// An open drive.
#[derive(Clone)]
pub struct Drive {
    /// The drive itself.
    pub device: Arc<dyn BlockDevice>,
    /// Its canonical name, with absolute paths and without its slot.
    pub uri: DriveUri,
    /// Its bay: the one that its name says, or that [`Enclosures::place`] has found.
    pub bay: Option<Bay>,
    /// What is open, whatever the name leads to by now; `None` for memory.
    pub identity: Option<Identity>,
    /// Its size when it was opened.
    pub size_bytes: u64,
    /// The word of its kind, or `block` for a block device; that of the outermost wrapper if it is wrapped.
    pub kind: &'static str,
    /// Whether its I/O bypasses the page cache.
    pub direct: bool,
    /// What does its I/O, under all wrappers.
    pub back_end: BackEnd,
    /// Whether small requests are real work, such as compression, for the thread that submits them.
    pub works_in_caller: bool,
    /// Its counters since it was opened, as seen from outside.
    pub telemetry: Arc<Telemetry>,
    /// Controls the outermost `faulty:` of its name, if there is one.
    pub faults: Option<FaultHandle>,
}

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Drive({}, {} bytes)", self.uri, self.size_bytes)
    }
}

/// Why a drive could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenDriveError {
    /// Nothing has this name.
    #[error("{}: there is no such file or device", path.display())]
    NotFound {
        /// The drive.
        path: PathBuf,
    },
    /// The user may not read and write it.
    #[error("{}: permission denied", path.display())]
    Denied {
        /// The drive.
        path: PathBuf,
    },
    /// A directory, a terminal, a pipe.
    #[error("{}: neither a regular file nor a block device", path.display())]
    NotADrive {
        /// The drive.
        path: PathBuf,
    },
    /// No volume of a pool that is open here has this name.
    #[error("volume:{name}: no pool that is open here has this volume")]
    NoVolume {
        /// The pool and the volume.
        name: String,
    },
    /// The volume is served to clients.
    #[error("volume:{name}: it is attached to {address}, where clients may write to it")]
    Attached {
        /// The pool and the volume.
        name: String,
        /// Where it is served.
        address: String,
    },
    /// Another daemon, this one, or another program has it open.
    #[error("{}: in use by {}", path.display(), Holder::named(holder.as_ref()))]
    InUse {
        /// The drive.
        path: PathBuf,
        /// Who has it, where that could be found.
        holder: Option<Holder>,
    },
    /// The kernel has claimed it.
    #[error("{}: in use{}", path.display(), named(claims))]
    Busy {
        /// The drive.
        path: PathBuf,
        /// For what, as far as the machine shows it.
        claims: Vec<Claim>,
    },
    /// `zram:` before the name of another device.
    #[error("{}: not a zram device", path.display())]
    NotZram {
        /// The drive.
        path: PathBuf,
    },
    /// The drive has no bytes.
    #[error("{}: has no bytes", path.display())]
    NoBytes {
        /// The drive.
        path: PathBuf,
    },
    /// A wrapper before a drive that is smaller than the wrapper's option demands.
    #[error("{drive}: has {}, less than {option}={}", ByteSize(*size_bytes), ByteSize(*needed_bytes))]
    TooSmall {
        /// The drive's name, under the wrapper.
        drive: String,
        /// Its size.
        size_bytes: u64,
        /// The wrapper's option.
        option: &'static str,
        /// The size that it demands.
        needed_bytes: u64,
    },
    /// io_uring was asked for by name, and does not work here.
    #[error("{}: {reason}", path.display())]
    NoUring {
        /// The drive.
        path: PathBuf,
        /// Why there is no io_uring.
        reason: String,
    },
    /// The operating system refused otherwise.
    #[error("{}: {doing} it failed: {source}", path.display())]
    Io {
        /// The drive.
        path: PathBuf,
        /// What was being done, such as "opening".
        doing: &'static str,
        /// The operating system's reason.
        source: io::Error,
    },
    /// No memory or thread for a drive that is not a file.
    #[error("the {kind} drive could not be started: {source}")]
    Start {
        /// Its kind.
        kind: &'static str,
        /// The operating system's reason.
        source: io::Error,
    },
}

impl Hint for OpenDriveError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        let hint = match self {
            Self::NotFound { .. } => {
                "check the name; `truncate -s 10G FILE` makes a file to try with"
            }
            Self::Denied { .. } => "reading and writing a drive takes its owner or root",
            Self::NotADrive { .. } => "name one of those",
            Self::NoVolume { .. } => {
                "`ravelin volume list` shows the volumes; `ravelin pool import` opens their pool"
            }
            Self::Attached { name, .. } => {
                return Some(format!("`ravelin volume detach {name}` first").into());
            }
            Self::InUse { holder, .. } => match Holder::is_ravelin(holder.as_ref()) {
                true => "export the pool there first",
                false => "end that program first",
            },
            Self::Busy { claims, .. } => match claims.first() {
                Some(claim) => return Some(claim.hint().into()),
                None => "wait a moment and do it again; `lsblk` shows what is made of it",
            },
            Self::NotZram { .. } => "name it without `zram:`",
            Self::NoBytes { .. } => "give it a size first (files: truncate -s, zram: its disksize)",
            Self::TooSmall { option, .. } => {
                return Some(format!("leave out {option}=, or name a larger drive").into());
            }
            Self::NoUring { .. } => "name the drive without backend=uring",
            Self::Io { .. } => return None,
            Self::Start { .. } => "make it smaller or free memory",
        };
        Some(hint.into())
    }
}

/// The words for the owners of a drive in errors.
fn named(claims: &[Claim]) -> String {
    const SHOWN: usize = 3;
    if claims.is_empty() {
        return " by the kernel, which does not say for what".to_owned();
    }
    let mut shown: Vec<String> = { claims.iter().take(SHOWN) }
        .map(ToString::to_string)
        .collect();
    if claims.len() > SHOWN {
        shown.push(format!("and {} more", claims.len() - SHOWN));
    }
    format!(": {}", shown.join(", "))
}

/// Opens the drive that `uri` names, which is no volume.
pub fn open(uri: &DriveUri, how: Open) -> Result<Drive, OpenDriveError> {
    open_over(uri, how, None)
}

/// The same; `volume` is the volume that it names, if it names one.
pub(crate) fn open_over(
    uri: &DriveUri,
    how: Open,
    volume: Option<&OpenVolume>,
) -> Result<Drive, OpenDriveError> {
    let mut uri = uri.absolute();
    let bay = uri.slot.take().map(Bay::named);
    let opened = uri.spec.open(&Opening { how, volume })?;
    let size_bytes = opened.device.limits().size_bytes;
    if size_bytes == 0 {
        return Err(OpenDriveError::NoBytes {
            path: uri.spec.path().unwrap_or(Path::new("mem:")).to_owned(),
        });
    }
    Ok(Drive {
        device: opened.device,
        identity: opened.identity,
        size_bytes,
        kind: opened.kind,
        direct: opened.direct,
        back_end: opened.back_end,
        works_in_caller: opened.works_in_caller,
        telemetry: opened.telemetry,
        faults: opened.faults,
        uri,
        bay,
    })
}

/// Shows udev what is on a block device by now. udev looks when a program closes a device that it could write to; a
/// pool keeps its drives open.
pub fn show_to_udev(drive: &Drive) {
    let device = matches!(drive.identity, Some(Identity::Device(_)));
    let Some(path) = drive.uri.spec.path().filter(|_| device) else {
        return;
    };
    if identity(path) != drive.identity {
        return;
    }
    // Where that fails, udev learns it at the next start.
    let _ = std::fs::OpenOptions::new().write(true).open(path);
}

/// How a drive is opened, and the volume that its name leads to.
#[derive(Clone, Copy)]
pub(crate) struct Opening<'a> {
    how: Open,
    volume: Option<&'a OpenVolume>,
}

/// A [`Drive`] that is being opened: each wrapper adds to it.
pub(crate) struct Opened {
    device: Arc<dyn BlockDevice>,
    identity: Option<Identity>,
    kind: &'static str,
    direct: bool,
    back_end: BackEnd,
    works_in_caller: bool,
    telemetry: Arc<Telemetry>,
    faults: Option<FaultHandle>,
}

#[cfg(test)]
pub(crate) mod tests;
