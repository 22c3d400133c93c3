//! How drives are named on a command line, in labels and in status: paths and URIs.
//!
//! ```text
//! drive   = spec [ "@" domain [ "#" slot ] ]         domain: an enclosure or host, [A-Za-z0-9._-]+; slot: a number
//! spec    = path [ "?" file-options ]                /dev/sdb, file.img, ./odd:name.img
//!         | "file:" path [ "?" file-options ]
//!         | "zram:" path [ "?" file-options ]        /dev/zram1
//!         | "mem:" size                              1G
//!         | "volume:" pool "/" name                 tank/stripe
//!         | "slow:" spec "?" rate-options            bandwidth=8M & iops=500 & latency=2ms
//!         | "compress:" spec "?" budget-options   physical=1G & exposed=4G
//!         | "faulty:" spec [ "?" fault-options ]     fail=eio & nth=7 & times=1 & on=read & bad=1M+4K
//! ```
//!
//! The *last* `?` of a URI starts the options of the outermost kind, so `slow:` can wrap any drive that has options
//! of its own. In a path, `?`, `@` and `%` are written `%3F`, `%40`, `%25` (an `@` before a later `/` may stand as it
//! is), and any byte may be written `%XX`.

mod display;
mod kinds;
mod parse;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use block::{ByteSize, Hint};
use uuid::Uuid;

pub use self::kinds::{KINDS, NamedKind};
use self::parse::NEST_MAX;
use super::faulty::Trap;

/// A drive as it was named: what it is, its failure domain, and its bay there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DriveUri {
    /// What it is.
    pub spec: DriveSpec,
    /// The failure domain (`DRIVE@DOMAIN`), such as an enclosure or a host.
    pub domain: Option<String>,
    /// The number of its bay in the failure domain (`DRIVE@DOMAIN#SLOT`).
    pub slot: Option<u32>,
}

/// What a drive is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DriveSpec {
    /// A regular file or a block device.
    File {
        /// Where it is.
        path: PathBuf,
        /// How to do I/O on it.
        options: FileOptions,
    },
    /// A zram device.
    Zram {
        /// Where it is.
        path: PathBuf,
        /// How to do I/O on it.
        options: FileOptions,
    },
    /// This process's memory.
    Mem {
        /// Size in bytes, not zero.
        size_bytes: u64,
    },
    /// A volume of a pool that is open here.
    Volume {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
    },
    /// Another drive behind one FIFO server.
    Slow {
        /// The drive that holds the bytes.
        inner: Box<Self>,
        /// How fast it appears.
        rate: Rate,
    },
    /// Another drive behind a budget of physical space.
    Compress {
        /// The drive that holds the bytes.
        inner: Box<Self>,
        /// How much space it appears to have.
        budget: Budget,
    },
    /// Another drive that fails on request.
    Faulty {
        /// The drive that holds the bytes.
        inner: Box<Self>,
        /// How it fails from the start.
        faults: Faults,
    },
}

/// How to do I/O on a file or device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileOptions {
    /// `backend=`: what carries out reads, writes and flushes.
    pub backend: Backend,
    /// `direct=`: bypass the page cache where the file can (the default).
    pub direct: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            backend: Backend::Auto,
            direct: true,
        }
    }
}

/// What carries out a file drive's reads, writes and flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backend {
    /// io_uring where it works and pays, else threads.
    #[default]
    Auto,
    /// io_uring, or the drive does not open.
    Uring,
    /// `pread` and `pwrite` on a few threads.
    Threads,
}

/// The parameters of `slow:`. At least one is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rate {
    /// `bandwidth=`: bytes per second through the server, not zero.
    pub bandwidth_bytes_per_second: Option<u64>,
    /// `iops=`: requests per second through the server, not zero.
    pub requests_per_second: Option<u64>,
    /// `latency=`: added after the server.
    pub latency: Duration,
}

/// The parameters of `compress:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// `physical=`: physical capacity in bytes, not zero.
    pub physical_bytes: u64,
    /// `exposed=`: the drive's size in bytes, at least `physical_bytes`; the inner drive's size by default.
    pub exposed_bytes: Option<u64>,
}

/// The parameters of `faulty:`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// `fail=`, `nth=`, `times=`, `on=`: which requests fail and how.
    pub trap: Option<Trap>,
    /// `while=FILE`: the trap catches, and counts, only what comes while this file exists.
    pub only_while: Option<PathBuf>,
    /// `bad=OFFSET+LENGTH`, repeatable: bytes that cannot be read until they are written.
    pub bad: Vec<(u64, u64)>,
}

/// Why a drive's name could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDriveUriError {
    /// Nothing where a drive or path should be.
    #[error("`{uri}` names no drive")]
    Empty {
        /// What was given.
        uri: String,
    },
    /// A kind that is planned.
    #[error("`{kind}:` drives are not supported yet")]
    NotYet {
        /// The kind.
        kind: String,
    },
    /// A kind that does not exist.
    #[error("`{kind}:` is not a kind of drive")]
    UnknownKind {
        /// The kind.
        kind: String,
    },
    /// An option that this kind of drive does not have.
    #[error("`{kind}:` drives have no option `{key}`")]
    UnknownOption {
        /// The kind.
        kind: &'static str,
        /// The option.
        key: String,
        /// What would be right.
        known: &'static str,
    },
    /// An option's value, or a size, cannot be read.
    #[error("`{key}={value}` cannot be read")]
    BadValue {
        /// The option.
        key: &'static str,
        /// What was given.
        value: String,
        /// What would be right.
        wanted: &'static str,
    },
    /// `volume:` without a pool and a volume.
    #[error("`volume:{name}` names no volume of a pool")]
    NoVolume {
        /// What was given.
        name: String,
    },
    /// `slow:` without anything that slows.
    #[error("`slow:` needs at least one of bandwidth=, iops= and latency=")]
    NoRate,
    /// `compress:` without a budget.
    #[error("`compress:` needs physical=")]
    NoBudget,
    /// `compress:` with less to expose than to hold.
    #[error("exposed={} is less than physical={}", ByteSize(*exposed_bytes), ByteSize(*physical_bytes))]
    ExposesLess {
        /// The size that was asked for.
        exposed_bytes: u64,
        /// The physical capacity.
        physical_bytes: u64,
    },
    /// Too many wrappers in each other.
    #[error("the drive is wrapped more than {NEST_MAX} times")]
    TooDeep,
    /// Two files: one has literally this name, the other has the name as a URI says it.
    #[error("`{text}` names two drives: the file that is called so, and {} as a URI", other.display())]
    Ambiguous {
        /// What was given.
        text: String,
        /// The other file.
        other: PathBuf,
    },
    /// A character that a domain's name cannot have.
    #[error("`{domain}` is not a name for a failure domain")]
    BadDomain {
        /// What was given.
        domain: String,
    },
    /// What follows the failure domain is not the number of a slot.
    #[error("`#{slot}` is not the number of a slot")]
    BadSlot {
        /// The name up to the slot.
        drive: String,
        /// What was given.
        slot: String,
    },
    /// A slot without the enclosure that it is in.
    #[error("`#{slot}` is a slot, and the enclosure is not named")]
    SlotAlone {
        /// The name without the slot.
        drive: String,
        /// The slot.
        slot: u32,
    },
}

impl Hint for ParseDriveUriError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            Self::Empty { .. } => {
                "give a path such as /dev/sdb or disk.img, or a URI such as mem:1G".into()
            }
            Self::NotYet { .. } => {
                "use a file, a block device, zram:, mem:, volume:, compress: or slow:".into()
            }
            Self::UnknownKind { kind } => {
                let kinds = kinds::words();
                format!("use {kinds}; write ./{kind}:… if it is a file's name").into()
            }
            Self::UnknownOption { known, .. } => format!("they take {known}").into(),
            Self::BadValue { wanted, .. } => format!("write {wanted}").into(),
            Self::NoVolume { .. } => "write volume:POOL/NAME, such as volume:tank/stripe".into(),
            Self::NoRate => "such as slow:disk.img?bandwidth=8M".into(),
            Self::NoBudget => "such as compress:disk.img?physical=1G".into(),
            Self::ExposesLess { .. } => {
                "leave out exposed=, or expose more: data that compresses takes less physical space"
                    .into()
            }
            Self::TooDeep => "name it with fewer slow:, compress: and faulty:".into(),
            Self::Ambiguous { text, .. } => {
                let literal = DriveSpec::plain(Path::new(text));
                format!("write `{literal}` for the file that is called so").into()
            }
            Self::BadDomain { .. } => {
                "use letters, digits, `.`, `_` and `-`, or write %40 for an @ in a path".into()
            }
            Self::BadSlot { drive, .. } => {
                format!("write a whole number, such as {drive}#3, or leave the slot out").into()
            }
            Self::SlotAlone { drive, slot } => {
                format!("write {drive}@ENCLOSURE#{slot}, or the name of a file that is there")
                    .into()
            }
        })
    }
}

impl DriveUri {
    /// The same drive with paths made absolute against the current directory, so that the name means the same to a
    /// daemon that runs elsewhere. Symbolic links stay: `/dev/disk/by-id` names survive a reboot, their targets do
    /// not.
    #[must_use]
    pub fn absolute(&self) -> Self {
        Self {
            spec: self.spec.absolute(),
            domain: self.domain.clone(),
            slot: self.slot,
        }
    }
}

impl DriveUri {
    /// Parses a name as a person gives it. A file or device that has literally this name is meant, whatever the
    /// characters in it stand for in a URI: `disk@old` is a file of this name where there is one.
    ///
    /// # Errors
    /// As [`str::parse`]; if the name read as a URI leads to another file that is there as well; and if it ends in a
    /// slot without an enclosure. Read as a URI, that is part of a path.
    pub fn typed(text: &str) -> Result<Self, ParseDriveUriError> {
        let parsed: Result<Self, _> = text.parse();
        let literal = Path::new(text);
        let special = text.contains(['@', '?', '%', '#']);
        if !special || !literal.exists() {
            return match (parsed, slot_alone(text)) {
                (Ok(Self { domain: None, .. }), Some(error)) => Err(error),
                (parsed, _) => parsed,
            };
        }
        let other = parsed
            .ok()
            .and_then(|uri| uri.spec.path().map(Path::to_owned));
        match other {
            Some(other) if other != literal && other.exists() => {
                Err(ParseDriveUriError::Ambiguous {
                    text: text.to_owned(),
                    other,
                })
            }
            _ => Ok(Self {
                spec: DriveSpec::plain(literal),
                domain: None,
                slot: None,
            }),
        }
    }

    /// Whether both names lead to one file, device or volume, through any links. Two drives in memory are never the
    /// same.
    #[must_use]
    pub fn is_same_drive(&self, other: &Self) -> bool {
        let (Some(one), Some(two)) = (self.spec.place(), other.spec.place()) else {
            return false;
        };
        if one == two {
            return true;
        }
        match (one, two) {
            (Place::Path(one), Place::Path(two)) => {
                identity(&one).is_some_and(|one| identity(&two) == Some(one))
            }
            _ => false,
        }
    }
}

/// The error of a name that ends in a slot.
fn slot_alone(text: &str) -> Option<ParseDriveUriError> {
    let (drive, slot) = text.rsplit_once('#')?;
    let drive = drive.to_owned();
    let slot = parse::slot(slot)?;
    Some(ParseDriveUriError::SlotAlone { drive, slot })
}

/// Where the bytes of a drive are: what is left of its name without wrappers, options and domain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A file or a block device.
    Path(PathBuf),
    /// A volume of a pool.
    Volume {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
    },
}

impl Place {
    /// The drive there, without options.
    #[must_use]
    pub fn plain(&self) -> DriveUri {
        DriveUri {
            spec: match self {
                Self::Path(path) => DriveSpec::plain(path),
                Self::Volume { pool, volume } => DriveSpec::Volume {
                    pool: pool.clone(),
                    volume: volume.clone(),
                },
            },
            domain: None,
            slot: None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Volume { pool, volume } => write!(f, "volume:{pool}/{volume}"),
        }
    }
}

/// Identifies a drive: a device's number, a file's place in its file system, or a volume's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// A block device.
    Device(u64),
    /// A file: file system and number.
    File(u64, u64),
    /// A volume of a pool.
    Volume(Uuid),
}

/// The identity of the drive that a path leads to; `None` if it leads nowhere.
#[must_use]
pub fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let found = std::fs::metadata(path).ok()?;
    Some(match found.file_type().is_block_device() {
        true => Identity::Device(found.rdev()),
        false => Identity::File(found.dev(), found.ino()),
    })
}

impl DriveSpec {
    /// The file or device at a path, without options.
    #[must_use]
    pub fn plain(path: &Path) -> Self {
        Self::File {
            path: path.to_owned(),
            options: FileOptions::default(),
        }
    }

    fn absolute(&self) -> Self {
        let mut spec = self.clone();
        match &mut spec {
            Self::File { path, .. } | Self::Zram { path, .. } => {
                if let Ok(absolute) = std::path::absolute(&*path) {
                    *path = absolute;
                }
            }
            Self::Mem { .. } | Self::Volume { .. } => {}
            Self::Slow { inner, .. }
            | Self::Compress { inner, .. }
            | Self::Faulty { inner, .. } => **inner = inner.absolute(),
        }
        spec
    }

    /// The same drive, with the same wrappers, under another path.
    #[must_use]
    pub fn with_path(&self, path: &Path) -> Self {
        let mut spec = self.clone();
        match &mut spec {
            Self::File { path: own, .. } | Self::Zram { path: own, .. } => path.clone_into(own),
            Self::Mem { .. } | Self::Volume { .. } => {}
            Self::Slow { inner, .. }
            | Self::Compress { inner, .. }
            | Self::Faulty { inner, .. } => {
                **inner = inner.with_path(path);
            }
        }
        spec
    }

    /// The file or device that holds the bytes, under all wrappers.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } | Self::Zram { path, .. } => Some(path),
            Self::Mem { .. } | Self::Volume { .. } => None,
            Self::Slow { inner, .. }
            | Self::Compress { inner, .. }
            | Self::Faulty { inner, .. } => inner.path(),
        }
    }

    /// The pool and the volume that holds the bytes, under all wrappers.
    #[must_use]
    pub fn volume(&self) -> Option<(&str, &str)> {
        match self {
            Self::Volume { pool, volume } => Some((pool, volume)),
            Self::File { .. } | Self::Zram { .. } | Self::Mem { .. } => None,
            Self::Slow { inner, .. }
            | Self::Compress { inner, .. }
            | Self::Faulty { inner, .. } => inner.volume(),
        }
    }

    /// Where the bytes are; `None` for memory, which is gone with the daemon.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        let volume = |(pool, volume): (&str, &str)| Place::Volume {
            pool: pool.to_owned(),
            volume: volume.to_owned(),
        };
        let path = self.path().map(|path| Place::Path(path.to_owned()));
        path.or_else(|| self.volume().map(volume))
    }
}
