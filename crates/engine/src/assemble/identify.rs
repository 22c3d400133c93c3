//! Whose drive this is, by what the drive itself says: for udev and for people, without a daemon.
//!
//! The drive is opened to read, without a lock, and nothing else of it is looked at: udev asks for every device that
//! appears, and again whenever a program has written to one.

use std::io;
use std::path::Path;

use array::format::{FORMAT, Generation, Label, LabelError};
use uuid::Uuid;

use super::find::{labels_of, open_for_labels};
use crate::status::seat_state;

/// What the label of a drive says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberLabel {
    /// The pool's name.
    pub pool: String,
    /// The pool's identity.
    pub pool_uuid: Uuid,
    /// The pool's scheme.
    pub scheme: String,
    /// The number of the drive.
    pub number: u16,
    /// The drive's identity.
    pub drive: Uuid,
    /// The drive's state when the label was written: a name of `drives[].state` in `pool status`.
    pub state: &'static str,
    /// The generation of the label.
    pub generation: Generation,
}

impl MemberLabel {
    fn new(label: &Label) -> Self {
        let facts = &label.facts;
        let own = facts.seats.get(label.seat.index());
        Self {
            pool: facts.name.clone(),
            pool_uuid: facts.uuid,
            scheme: crate::status::scheme_as_it_is(facts),
            number: facts.number(label.seat),
            drive: label.drive,
            state: own.map_or("out", |own| seat_state(own).0),
            generation: label.generation,
        }
    }
}

/// Whose drive it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identified {
    /// The drive of a pool.
    Member(MemberLabel),
    /// It has a label that this program cannot read.
    Unreadable(LabelError),
    /// What is at the beginning is no label; the copy of one is at the end.
    Overwritten(MemberLabel),
    /// A command has taken the label from the drive, and can give it back.
    Retired(MemberLabel),
    /// It has no label.
    Other,
}

impl Identified {
    /// The format of the label, where it is known.
    #[must_use]
    pub fn format(&self) -> Option<u32> {
        match self {
            Self::Member(_) | Self::Unreadable(LabelError::Features { .. }) => Some(FORMAT),
            Self::Unreadable(LabelError::Format { format }) => Some(*format),
            Self::Unreadable(LabelError::EarlyFormat) => Some(0),
            Self::Unreadable(LabelError::Absent | LabelError::Damaged { .. })
            | Self::Overwritten(_)
            | Self::Retired(_)
            | Self::Other => None,
        }
    }
}

/// Reads the label of the file or device at a path.
///
/// # Errors
/// When it cannot be opened.
pub fn identify(path: &Path) -> io::Result<Identified> {
    let file = open_for_labels(path)?;
    let found = labels_of(&file);
    Ok(match (found.label, found.copy, found.retired) {
        (Ok(label), ..) => Identified::Member(MemberLabel::new(&label)),
        (Err(_), Some(copy), _) => Identified::Overwritten(MemberLabel::new(&copy)),
        (Err(_), None, Some(label)) => Identified::Retired(MemberLabel::new(&label)),
        (Err(LabelError::Absent), None, None) => Identified::Other,
        (Err(error), None, None) => Identified::Unreadable(error),
    })
}
