//! Why a pool does not grow, and what to do.

use std::borrow::Cow;

use block::{ByteSize, Hint, Seat};

/// Why a pool does not get more drives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrowError {
    /// The layout is no table of pieces.
    #[error("a pool of scheme `{scheme}` cannot grow by a drive yet")]
    NotPieces {
        /// Its scheme.
        scheme: String,
    },
    /// Failure domains are counted by seat.
    #[error(
        "scheme `{scheme}` has failure domains, and a pool with failure domains cannot grow by a drive yet"
    )]
    Domains {
        /// Its scheme.
        scheme: String,
    },
    /// No drive was named.
    #[error("no drive was named")]
    NoDrives,
    /// A drive was named twice.
    #[error("{drive} was named twice")]
    Twice {
        /// Which.
        drive: String,
    },
    /// A named drive of the pool does not wait.
    #[error("the drive in seat {seat} is no waiting spare")]
    NotWaiting {
        /// Which seat.
        seat: Seat,
    },
    /// A drive is smaller than the others.
    #[error("{path} has {size_bytes} bytes, the pool needs {needed_bytes} of each drive")]
    TooSmall {
        /// Which.
        path: String,
        /// Its size.
        size_bytes: u64,
        /// Size that is needed.
        needed_bytes: u64,
    },
    /// The pool grows already.
    #[error("the pool is being expanded already")]
    Grows,
    /// A drive leaves the pool.
    #[error("the drive in seat {seat} is being removed")]
    Leaving {
        /// Which seat.
        seat: Seat,
    },
    /// A drive is out or being filled.
    #[error("the drive in seat {seat} is {}", if *out { "out" } else { "not filled yet" })]
    NotWhole {
        /// Which seat.
        seat: Seat,
        /// Whether it is out.
        out: bool,
    },
    /// A drive is being replaced.
    #[error("the drive in seat {seat} is being replaced")]
    Replacing {
        /// Which seat.
        seat: Seat,
    },
    /// Columns are not where they should be.
    #[error("columns of {groups} groups are lost or away from their drives")]
    Incomplete {
        /// Groups with such a column.
        groups: u64,
    },
    /// Data is lost.
    #[error("{blocks} blocks of data are lost")]
    Lost {
        /// How many.
        blocks: u64,
    },
    /// The table would not fit into a label.
    #[error(
        "the table of pieces of {drives} drives takes {bytes} bytes and a label has room for {room}"
    )]
    TableTooLarge {
        /// Drives after the growth.
        drives: u32,
        /// Bytes of the table.
        bytes: u64,
        /// The room in a label.
        room: u64,
        /// A size of pieces with which the table of a new pool would fit.
        piece_bytes: u64,
    },
    /// The layout does not exist on so many drives.
    #[error("{why}")]
    Layout {
        /// Why.
        why: String,
    },
    /// Something happened before the new drives had their seats.
    #[error("a drive went out or took another place before the pool had grown")]
    CalledOff,
}

impl GrowError {
    /// The same with other numbers for seats.
    #[must_use]
    pub(crate) fn renumbered(mut self, number: impl Fn(Seat) -> Seat) -> Self {
        match &mut self {
            Self::NotWaiting { seat }
            | Self::Leaving { seat }
            | Self::NotWhole { seat, .. }
            | Self::Replacing { seat } => {
                *seat = number(*seat);
            }
            _ => {}
        }
        self
    }
}

impl Hint for GrowError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        let hint = match self {
            Self::NotPieces { .. } | Self::Domains { .. } => {
                "pools made as `ddp`, `crush2` or `crush3` without failure domains can; a spare (`ravelin drive add`) or a \
                 second pool is possible here"
            }
            Self::NoDrives => "name fresh drives, or the numbers of waiting spares",
            Self::Twice { .. } => "name each drive once",
            Self::NotWaiting { .. } => {
                "`ravelin pool status` shows which spares wait; fresh drives are named by their path"
            }
            Self::TooSmall { .. } => "use a larger one",
            Self::Grows => "`ravelin pool wait --for expand` waits until that is done",
            Self::Leaving { .. } => {
                "`ravelin pool wait --for remove` waits until that is done, and `ravelin drive online` calls it off"
            }
            Self::NotWhole { out: true, .. } => {
                "bring it back or replace it first: a pool grows when no redundancy is missing"
            }
            Self::NotWhole { .. } | Self::Replacing { .. } | Self::Incomplete { .. } => {
                "`ravelin pool wait` waits until that is done: a pool grows when no redundancy is missing"
            }
            Self::Lost { .. } => {
                "`ravelin pool status` says where: write these blocks again, or delete their volume"
            }
            Self::TableTooLarge { piece_bytes, .. } => {
                let pieces = ByteSize(*piece_bytes);
                return Some(
                    format!("fewer drives, or a new pool with larger pieces (-o piece={pieces})")
                        .into(),
                );
            }
            Self::Layout { .. } => "fewer drives",
            Self::CalledOff => {
                "nothing has moved; the drives that were named wait as spares. `ravelin pool status` shows what happened"
            }
        };
        Some(hint.into())
    }
}
