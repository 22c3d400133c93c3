//! From drives to a running pool: creating, finding, opening.
//!
//! ```text
//!   names ──prepare──► Prepared ──create──┐
//!                                         ├──► PoolHandle
//!   places ──scan──► FoundPool ──import───┘
//! ```

mod create;
mod drive;
mod find;
mod identify;
mod import;
mod occupant;
mod permit;
mod plan;
mod probe;
mod retired;
mod stack;

use std::borrow::Cow;
use std::path::PathBuf;

use array::format::LabelError;
use array::pool::{CreateError, OpenError, Ticket};
use block::{Fault, Hint};

use crate::drive::{Drive, OpenDriveError};
use crate::run::StartError;

pub(crate) use create::new_drive;
pub use create::{NewPool, Prepared, create, prepare, prepare_beside};
pub(crate) use drive::proof;
pub use drive::{
    Permitted, Restorable, forget_earlier_life, give_up, open_empty, open_for, refusal,
    restore_label, wipe_drive, wipe_label,
};
pub use find::{
    FoundPool, Names, choose, find, names, scan, scan_destroyed, used_again, with_label_of,
};
pub use identify::{Identified, MemberLabel, identify};
pub use import::{Without, import, repair_labels};
pub use occupant::{
    ANSWER_WITHIN, Access, Examined, Occupant, OpenPool, examine, examine_open, examine_released,
    is_still,
};
pub use permit::{Answer, Command, Meant, Permit, permit};
pub use plan::{
    DRIVE_BYTES_PER_SECOND, ElasticCapacity, ElasticPlan, ExpandPlan, PoolPlan, RemovalPlan,
    estimate,
};

pub(crate) use stack::takes_volumes;
pub use stack::{above, refuse_volume, upper_first};

/// The ticket of creating or opening.
const OPENED: Ticket = Ticket(0);

/// Why a pool could not be created or opened.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// A drive cannot be opened.
    #[error("{0}")]
    Drive(#[from] OpenDriveError),
    /// A drive holds something.
    #[error("{drive} holds {what}")]
    Occupied {
        /// Which drive.
        drive: String,
        /// What was found there.
        what: String,
    },
    /// A drive has no label that could be given back.
    #[error("{drive} has no label that could be restored: it holds {what}")]
    NoLabelLeft {
        /// Which drive.
        drive: String,
        /// What was found there.
        what: String,
    },
    /// A pool has the drive open here.
    #[error("{drive} is in use: it has seat {seat} of pool `{pool}`, which is open here")]
    InUseHere {
        /// Which drive.
        drive: String,
        /// Which pool.
        pool: String,
        /// The number of the drive.
        seat: u16,
    },
    /// A pool lists the drive that is open here without it.
    #[error("{drive} is the drive of seat {seat} of pool `{pool}`, which is open here without it{}", elsewhere(*went_on))]
    Listed {
        /// Which drive.
        drive: String,
        /// Which pool.
        pool: String,
        /// The number of the drive.
        seat: u16,
        /// Whether the drive was in use elsewhere since the pool has lost it.
        went_on: bool,
    },
    /// A drive does not answer.
    #[error("{drive} does not answer: it was asked for its label {} seconds ago", ANSWER_WITHIN.as_secs())]
    NoAnswer {
        /// Which drive.
        drive: String,
    },
    /// One drive is named twice.
    #[error("{drive} is named twice")]
    Twice {
        /// Which drive.
        drive: String,
    },
    /// Two names lead to one device.
    #[error(
        "{first} and {second} are one device under two names: a word written to one is read from the other"
    )]
    SameDevice {
        /// One name.
        first: String,
        /// The other.
        second: String,
    },
    /// Some drives are in a failure domain and some are not.
    #[error("{drive} has no failure domain and others have")]
    NoDomain {
        /// Which drive.
        drive: String,
    },
    /// Two drives are named with one slot.
    #[error(
        "{first} and {second} are both named with slot {slot} of `{domain}`, and a slot has one drive"
    )]
    SlotTwice {
        /// The failure domain.
        domain: String,
        /// The slot.
        slot: u32,
        /// The drive that has it first.
        first: String,
        /// The other one.
        second: String,
    },
    /// A volume as a drive of a pool that takes none.
    #[error("{drive} is a volume, and of all schemes only raid0 takes volumes as drives")]
    TakesNoVolumes {
        /// Which drive.
        drive: String,
    },
    /// A pool would stand on itself.
    #[error("{drive} would close a circle of pools: {}", circle.join(" -> "))]
    Circle {
        /// Which drive.
        drive: String,
        /// The pools, each with a volume of the next as a drive; the first is also the last.
        circle: Vec<String>,
    },
    /// The specification does not work.
    #[error("{0}")]
    Create(#[from] CreateError),
    /// The pool must not be opened like this.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// A drive failed while labels were read or written.
    #[error("{drive}: {doing} failed: {fault}")]
    Io {
        /// Which drive.
        drive: String,
        /// What was being done.
        doing: &'static str,
        /// The fault that it returned.
        fault: Fault,
    },
    /// Another host is at work on it.
    #[error("pool `{name}` is open on another host, which is at work on it")]
    Held {
        /// Which pool.
        name: String,
    },
    /// It did not start.
    #[error("{0}")]
    Start(#[from] StartError),
    /// No pool of this name was found.
    #[error("no pool {name} was found in {places}")]
    NotFound {
        /// Which name.
        name: String,
        /// Where was searched.
        places: String,
    },
    /// No pool of this name was found, but a label of a version that this program does not read.
    #[error("no pool {name} was found, and on {}: {error}", path.display())]
    Label {
        /// Which name.
        name: String,
        /// The drive.
        path: PathBuf,
        /// What its label is.
        error: LabelError,
    },
    /// Several pools of this name.
    #[error("there are {count} pools called `{name}` here")]
    Ambiguous {
        /// Which name.
        name: String,
        /// How many.
        count: usize,
        /// Their identities.
        choices: String,
    },
    /// A label was not written.
    #[error("not every drive took its label: {failed} failed; nothing was kept")]
    Labels {
        /// Which drives.
        failed: String,
    },
}

impl Hint for AssembleError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(Cow::Borrowed(match self {
            Self::Drive(error) => return error.hint(),
            Self::Create(error) => return error.hint(),
            Self::Open(error) => return error.hint(),
            Self::Start(error) => return error.hint(),
            Self::Label { error, .. } => return error.hint(),
            Self::Io {
                fault: Fault::Full, ..
            } => "free space on the file system below it",
            Self::Io { .. } => return None,
            Self::Labels { .. } => "is the file system below them full?",
            Self::Occupied { .. } => "name another drive, or give --force to destroy what is on it",
            Self::NoLabelLeft { .. } => "a label is lost once the drive is used again",
            Self::InUseHere { .. } => "name another drive",
            Self::Listed {
                pool,
                seat,
                went_on: false,
                ..
            } => {
                return Some(format!("`ravelin drive online {pool} {seat}` brings it back").into());
            }
            Self::Listed { pool, seat, .. } => {
                return Some(
                    format!(
                        "export the pool and import it with that drive to see what is there, or `ravelin drive online {pool} {seat} --force` to give that up"
                    )
                    .into(),
                );
            }
            Self::NoAnswer { .. } => {
                "look at the drive and its cable, and what the kernel says of it"
            }
            Self::Twice { .. } => "each drive takes one seat",
            Self::SameDevice { .. } => {
                "name each disk once; with two cables to a disk, name the multipath device"
            }
            Self::NoDomain { .. } => {
                "write DRIVE@DOMAIN for every drive of the layout, or for none"
            }
            Self::TakesNoVolumes { .. } => {
                "create a raid0 pool over volumes, and let the pools below survive failures; or name drives"
            }
            Self::Circle { circle, .. } => {
                let pool = circle.first().map_or("", |pool| pool);
                return Some(
                    format!("name a volume of a pool that does not stand on `{pool}`").into(),
                );
            }
            Self::SlotTwice { .. } => "name each drive with its own slot, or without",
            Self::Held { .. } => "export it there, or stop that host",
            Self::NotFound { .. } => "name the directories of its drives with --dir",
            Self::Ambiguous { choices, .. } => {
                return Some(format!("give the identity instead ({choices})").into());
            }
        }))
    }
}

const fn elsewhere(went_on: bool) -> &'static str {
    match went_on {
        true => {
            ", and was in use elsewhere since: what was written to it there may be nowhere else"
        }
        false => "",
    }
}

fn io_error(drive: &Drive, doing: &'static str, fault: Fault) -> AssembleError {
    AssembleError::Io {
        drive: drive.uri.to_string(),
        doing,
        fault,
    }
}
