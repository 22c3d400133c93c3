//! How drives are named on a command line, in labels and in status: paths and URIs.
//!
//! ```text
//! drive   = spec [ "@" domain [ "#" slot ] ]         domain: an enclosure or host, [A-Za-z0-9._-]+; slot: a number
//! spec    = path [ "?" options ]                     /dev/sdb, file.img, ./odd:name.img
//!         | kind ":" body [ "?" options ]            body: a path, a size, another spec: as the kind reads it
//! options = key "=" value { "&" key "=" value }
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

use block::Hint;
use uuid::Uuid;

pub(crate) use self::display::{duration_text, path_text, size_text, word_of, write_options};
pub use self::kinds::{DriveKind, DriveSpec};
pub(crate) use self::kinds::{Named, Wrapper, wrapped};
use self::parse::NEST_MAX;
pub(crate) use self::parse::{NameText, bad, parse_duration, parse_path, parse_size, parse_word};
use super::volume::VolumeName;

/// A drive as it was named: what it is, its failure domain, and its bay there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveUri {
    /// What it is.
    pub spec: DriveSpec,
    /// The failure domain (`DRIVE@DOMAIN`), such as an enclosure or a host.
    pub domain: Option<String>,
    /// The number of its bay in the failure domain (`DRIVE@DOMAIN#SLOT`).
    pub slot: Option<u32>,
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
    /// A name that its kind refuses for a reason of its own.
    #[error("{reason}")]
    Refused {
        /// The reason.
        reason: String,
        /// What would be right.
        hint: &'static str,
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
            Self::Refused { hint, .. } => (*hint).into(),
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
                Self::Volume { pool, volume } => DriveSpec::new(VolumeName {
                    pool: pool.clone(),
                    volume: volume.clone(),
                }),
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
