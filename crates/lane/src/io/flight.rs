//! A drive operation in flight, and how it ends.

use block::{Fault, Instant, Outcome};
use plan::action::{Io, IoId};

use super::stragglers::Late;
use crate::purpose::Purpose;

/// A drive operation in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) purpose: Purpose,
    pub(crate) io: Io,
    /// When it was submitted.
    pub(crate) since: Instant,
    /// How often it has been tried before.
    pub(crate) tries: u8,
    /// Bytes of the drive operation that it is, or is a member of (`join.rs`).
    pub(crate) span: u64,
    /// Not to be joined with others: it was a member of a joined operation that failed.
    pub(crate) alone: bool,
    /// It has been found to be late.
    pub(crate) late: bool,
    /// What could be done about its lateness has been done.
    pub(crate) hedged: bool,
    /// It is the first part of a write to two drives (`twins.rs`).
    pub(crate) pair: Option<u64>,
    /// Its drive has left the seat since: its outcome does not concern the drive that has the seat now.
    pub(crate) left: bool,
}

impl Flight {
    pub(super) const fn new(purpose: Purpose, io: Io, now: Instant) -> Self {
        Self {
            purpose,
            io,
            since: now,
            tries: 0,
            span: io.length,
            alone: false,
            late: false,
            hedged: false,
            pair: None,
            left: false,
        }
    }

    /// True if it may be joined with its neighbours. An operation that has failed once goes alone.
    pub(super) const fn may_be_joined(&self) -> bool {
        !self.alone && self.tries == 0
    }
}

/// The end of a drive operation, for its purpose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) purpose: Purpose,
    /// First byte on the drive.
    pub(crate) offset: u64,
    pub(crate) outcome: Outcome,
    /// Its drive has left the seat since: a failure does not concern the drive that has the seat now.
    pub(crate) left: bool,
}

impl Ended {
    pub(crate) const fn new(purpose: Purpose, offset: u64, outcome: Outcome) -> Self {
        Self {
            purpose,
            offset,
            outcome,
            left: false,
        }
    }

    /// The end of an operation of a drive that has left its seat.
    pub(super) fn left(purpose: Purpose, offset: u64, outcome: Outcome) -> Self {
        Self {
            purpose,
            offset,
            outcome: outcome.map_err(|_| Fault::Medium),
            left: true,
        }
    }
}

/// The effect of a drive's answer.
#[derive(Clone, Debug)]
pub(crate) enum Answered {
    /// An operation has ended.
    Ended(Ended),
    /// Nothing has ended: it was submitted again, or is one part of a pair.
    Pending,
    /// Members of a joined operation: each goes to [`super::IoTable::member_answered`], in this order.
    Members(Vec<(IoId, Outcome)>),
    /// A straggler has ended. Then [`super::IoTable::straggler_came_back`].
    Late(Late),
}

impl From<Option<Ended>> for Answered {
    fn from(ended: Option<Ended>) -> Self {
        ended.map_or(Self::Pending, Self::Ended)
    }
}
