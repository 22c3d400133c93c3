//! Why an administrator's command is refused, and what to do.

use std::borrow::Cow;
use std::fmt;

use block::{ByteSize, Hint, Seat};
use format::GroupId;

use super::elastic::ElasticError;
use super::grow::GrowError;
use super::leave::LeaveError;

/// Why an administrator's command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// No such seat.
    #[error("the pool has no seat {seat}")]
    NoSeat {
        /// The requested seat.
        seat: Seat,
        /// The last seat that exists.
        last: u16,
    },
    /// The pool's stripes have one form.
    #[error("the pool is not elastic: its stripes are never kept as copies")]
    NotElastic,
    /// The seat's drive is already out.
    #[error("the drive in seat {seat} is already out")]
    AlreadyOut {
        /// Which seat.
        seat: Seat,
    },
    /// The seat is in use.
    #[error("seat {seat} has a working drive")]
    Occupied {
        /// Which seat.
        seat: Seat,
    },
    /// The drive has not answered all operations from before it went out.
    #[error(
        "the drive in seat {seat} has not answered {operations} operations from before it went out; what it writes for them could land on what it is given now"
    )]
    StillBusy {
        /// Which seat.
        seat: Seat,
        /// How many.
        operations: u64,
    },
    /// The seat's drive is going out, and lanes still use the seat.
    #[error(
        "the drive in seat {seat} is going out, and the other drives have not recorded that yet"
    )]
    GoingOut {
        /// Which seat.
        seat: Seat,
    },
    /// Taking the drive out would lose data.
    #[error("without the drive in seat {seat}, group {group} could not be read any more")]
    WouldLose {
        /// Which seat.
        seat: Seat,
        /// A group that would be lost.
        group: GroupId,
    },
    /// A replacement is smaller than the pool needs.
    #[error("the drive has {size_bytes} bytes, the pool needs {needed_bytes}")]
    DriveTooSmall {
        /// Size of the drive.
        size_bytes: u64,
        /// Size that is needed.
        needed_bytes: u64,
    },
    /// A drive that an elastic pool cannot use.
    #[error("{error}")]
    Drive {
        /// Why.
        error: ElasticError,
    },
    /// A pool that does not grow.
    #[error("{error}")]
    Grow {
        /// Why.
        error: GrowError,
    },
    /// A drive that does not leave the pool.
    #[error("{error}")]
    Leave {
        /// Why.
        error: LeaveError,
    },
    /// A name that is taken.
    #[error("there is already a volume `{name}`")]
    VolumeExists {
        /// Which name.
        name: String,
    },
    /// The volume is being made larger.
    #[error("volume `{name}` is being made larger, and its new space is not zeroed yet")]
    VolumeGrows {
        /// Its name.
        name: String,
    },
    /// A name that does not exist.
    #[error("there is no volume `{name}` in this pool")]
    NoVolume {
        /// Which name.
        name: String,
    },
    /// A pool's name that is not allowed.
    #[error("`{name}` is not a name for a pool")]
    PoolName {
        /// Which name.
        name: String,
    },
    /// A name that is not allowed.
    #[error("`{name}` is not a volume name")]
    VolumeName {
        /// Which name.
        name: String,
    },
    /// Not enough free groups.
    #[error(
        "{} are wanted, and {} of {} are free (given out in units of {})",
        ByteSize(*wanted_bytes), ByteSize(*free_bytes), ByteSize(total * group_bytes), ByteSize(*group_bytes)
    )]
    NoSpace {
        /// The requested size.
        wanted_bytes: u64,
        /// In groups.
        wanted: u64,
        /// User data of a group.
        group_bytes: u64,
        /// Free groups.
        free: u64,
        /// All groups.
        total: u64,
        /// Free groups in bytes.
        free_bytes: u64,
    },
    /// The label has no room for another name.
    #[error("the pool has {count} volumes, and its labels have room for no more")]
    TooManyVolumes {
        /// How many there are.
        count: usize,
    },
    /// A volume of no size.
    #[error("a volume needs a size")]
    NoSize,
    /// Drives failed while the command ran.
    #[error("a drive operation failed while the command ran ({fault})")]
    Fault {
        /// The error of the drive.
        fault: block::Fault,
    },
    /// The journal cannot be read.
    #[error(
        "the journal of lane {lane} cannot be read: writes that had been acknowledged are lost with it"
    )]
    JournalLost {
        /// Which lane.
        lane: u16,
    },
    /// The pool has no checksums to compare with.
    #[error("the pool was made with `-o journal=off`: it has no checksums to compare with")]
    NoChecksums,
    /// Nothing was paused.
    #[error("neither its rebuild nor its scrub is paused")]
    NotPaused,
    /// A rate so low that moves would hardly end.
    #[error(
        "{rate_bytes} bytes a second is less than a megabyte: {} would take {}",
        ByteSize(*left_bytes), Days(*left_bytes / (*rate_bytes).max(1))
    )]
    RateTooLow {
        /// The rate.
        rate_bytes: u64,
        /// What there is to move, or what a drive holds if there is nothing.
        left_bytes: u64,
    },
    /// The drive has a successor already.
    #[error("the drive of seat {seat} is being replaced already, by that of seat {with}")]
    BeingReplaced {
        /// Which seat.
        seat: Seat,
        /// Where its successor is meanwhile.
        with: Seat,
    },
    /// The seat is one of the layout's, or its drive is to succeed another one.
    #[error("the drive in seat {seat} is no spare")]
    NotASpare {
        /// Which seat.
        seat: Seat,
    },
    /// There is no complete drive to copy from.
    #[error("the drive of seat {seat} is not complete: nothing can be copied from it alone")]
    NotCurrent {
        /// Which seat.
        seat: Seat,
    },
    /// Another opening of the pool is at work.
    #[error(
        "another host has taken the pool over: nothing is written or acknowledged here any more, and what was not flushed before is lost"
    )]
    TakenOver,
    /// The pool is being closed.
    #[error("the pool is being exported")]
    Closing,
}

impl PoolError {
    /// The same with other numbers for seats: those by which users know the drives.
    #[must_use]
    pub fn renumbered(mut self, number: impl Fn(Seat) -> Seat) -> Self {
        match &mut self {
            Self::Grow { error } => *error = error.clone().renumbered(number),
            Self::Leave { error } => *error = error.clone().renumbered(number),
            Self::BeingReplaced { seat, with } => {
                (*seat, *with) = (number(*seat), number(*with));
            }
            Self::AlreadyOut { seat }
            | Self::Occupied { seat }
            | Self::StillBusy { seat, .. }
            | Self::GoingOut { seat }
            | Self::WouldLose { seat, .. }
            | Self::NotASpare { seat }
            | Self::NotCurrent { seat } => *seat = number(*seat),
            _ => {}
        }
        self
    }
}

/// Seconds in the largest unit that fits.
struct Days(u64);

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = match self.0 {
            seconds @ ..120 => (seconds.max(1), "second"),
            seconds @ ..7_200 => (seconds / 60, "minute"),
            seconds @ ..172_800 => (seconds / 3_600, "hour"),
            seconds => (seconds / 86_400, "day"),
        };
        let plural = if count == 1 { "" } else { "s" };
        write!(f, "{count} {unit}{plural}")
    }
}

impl Hint for PoolError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(Cow::Borrowed(match self {
            Self::NoSeat { last, .. } => return Some(format!("it has seats 0 to {last}").into()),
            Self::NotElastic => "only pools that are created as `elastic5` or `elastic6` are",
            Self::AlreadyOut { .. } => "`ravelin pool status` shows which drives are in",
            Self::Occupied { .. } => "fail it first (`ravelin drive fail`)",
            Self::StillBusy { .. } => "wait until it answers, or put another drive in its place",
            Self::GoingOut { .. } => "again in a moment",
            Self::WouldLose { .. } => "wait for the rebuild, or bring another drive back first",
            Self::DriveTooSmall { .. } => "use a larger one",
            Self::Drive { error } => return error.hint(),
            Self::Grow { error } => return error.hint(),
            Self::Leave { error } => return error.hint(),
            Self::VolumeExists { .. } => "choose another name",
            Self::VolumeGrows { .. } => "wait until that has ended",
            Self::NoVolume { .. } => "`ravelin volume list` shows what there is",
            Self::PoolName { .. } | Self::VolumeName { .. } => {
                "use letters, digits, `-`, `_` and `.`, at most 64"
            }
            Self::NoSpace { .. } => "make it smaller, or delete a volume that is no longer needed",
            Self::TooManyVolumes { .. } => "delete one, or make larger ones",
            Self::NoSize => "at least 4096 bytes",
            Self::Fault { .. } => "see `ravelin pool status`",
            Self::JournalLost { .. } => {
                "bring the missing drives back: see `ravelin pool status`, and what the kernel says of the drives"
            }
            Self::NoChecksums => "a new pool has them unless it is told otherwise",
            Self::NotPaused => "`ravelin pool status` shows what goes on",
            Self::RateTooLow { .. } => "at least `--rate 1M`; `--pause` stops it altogether",
            Self::BeingReplaced { .. } => "wait until that is done, or fail that one",
            Self::NotASpare { .. } => {
                "`ravelin drive fail` takes it out, `ravelin drive replace` puts another one in its place"
            }
            Self::NotCurrent { .. } => return None,
            Self::TakenOver => {
                "see which host has it, and export the pool here (`ravelin pool export`)"
            }
            Self::Closing => "import it again first",
        }))
    }
}
