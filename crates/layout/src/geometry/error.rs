//! Why a scheme has no layout on these drives.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use block::Hint;

/// Which part of a scheme an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// The scheme's name or a word of it.
    Name,
    /// `d`.
    Data,
    /// `p`.
    Parity,
    /// `c`, or the number of drives given.
    Drives,
    /// `s`.
    Spares,
    /// `f`.
    Domains,
    /// `r`.
    Copies,
    /// The height of a drive in cells.
    Rows,
    /// The table stored with the pool.
    Stored,
}

impl Field {
    /// The field's letter.
    #[must_use]
    pub const fn letter(self) -> Option<char> {
        match self {
            Self::Data => Some('d'),
            Self::Parity => Some('p'),
            Self::Drives => Some('c'),
            Self::Spares => Some('s'),
            Self::Domains => Some('f'),
            Self::Copies => Some('r'),
            Self::Name | Self::Rows | Self::Stored => None,
        }
    }

    /// Range of the field in a scheme string; range of the name if the field is not given.
    #[must_use]
    pub fn span_in(self, text: &str) -> Range<usize> {
        let mut at = 0;
        let mut name = 0..text.len();
        for (index, part) in text.split(':').enumerate() {
            let span = at..at + part.len();
            at = span.end + 1;
            if index == 0 {
                name = span;
            } else if part.starts_with(|first: char| first.is_ascii_digit())
                && part.chars().last().map(|last| last.to_ascii_lowercase()) == self.letter()
            {
                return span;
            }
        }
        name
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "the scheme's name",
            Self::Data => "data columns (d)",
            Self::Parity => "parity (p)",
            Self::Drives => "drives (c)",
            Self::Spares => "spares (s)",
            Self::Domains => "failure domains (f)",
            Self::Copies => "copies (r)",
            Self::Rows => "the drive's height",
            Self::Stored => "the stored table",
        })
    }
}

/// Why a scheme has no layout on these drives. Every message names the field and shows the arithmetic; every hint is
/// the nearest value that works.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// Neither the scheme nor the caller gives the number of drives.
    #[error("drives (c) are not said: the layout depends on their number")]
    DriveCountMissing {
        /// The scheme.
        scheme: String,
        /// The least number that works.
        least: u16,
    },
    /// The scheme and the caller give different numbers of drives.
    #[error("drives (c): the scheme says {said} and {given} were given")]
    DrivesDiffer {
        /// The number in the scheme.
        said: u16,
        /// The number from the caller.
        given: u16,
    },
    /// Fewer drives than the scheme needs.
    #[error("drives (c): {drives} are too few: {why}")]
    TooFewDrives {
        /// How many there are.
        drives: u16,
        /// True if the scheme says so, and not the number of drives that are given.
        said: bool,
        /// The arithmetic.
        why: String,
        /// The least number that works.
        least: u32,
    },
    /// Spares leave too few drives for a group.
    #[error("spares (s): {spares} of {drives} drives leave {left}, and a group takes {width}")]
    TooManySpares {
        /// The requested number.
        spares: u16,
        /// How many drives there are.
        drives: u16,
        /// What is left.
        left: u16,
        /// Columns of a group.
        width: u32,
        /// The nearest thing that works.
        nearest: String,
    },
    /// A group is wider than the drives that are not spares.
    #[error(
        "data columns (d): {data} data and {parity} parity columns take {needed} drives, and \
         {drives} drives less {spares} spares are {left}"
    )]
    TooWide {
        /// d.
        data: u16,
        /// p.
        parity: u16,
        /// d + p.
        needed: u32,
        /// n.
        drives: u16,
        /// s.
        spares: u16,
        /// n − s.
        left: u16,
        /// The nearest thing that works.
        nearest: String,
    },
    /// More columns than a stripe can have.
    #[error("{field}: a stripe of {columns} columns is too wide: 255 is the most")]
    TooManyColumns {
        /// Which field makes it so wide.
        field: Field,
        /// How many.
        columns: u32,
        /// The nearest thing that works.
        nearest: String,
    },
    /// More drives than a family's format can name.
    #[error("drives (c): {drives} are too many: {why}")]
    TooManyDrives {
        /// n.
        drives: u16,
        /// The limit and its source.
        why: String,
        /// The nearest thing that works.
        nearest: String,
    },
    /// The drives do not divide into whole islands.
    #[error(
        "drives (c): {drives} drives less {spares} spares are {left}, no multiple of a group's \
         {width}"
    )]
    IslandsUneven {
        /// n.
        drives: u16,
        /// s.
        spares: u16,
        /// n − s.
        left: u16,
        /// d + p.
        width: u16,
        /// The nearest thing that works.
        nearest: String,
    },
    /// A value that is not possible for the family.
    #[error("{field}: {why}")]
    Impossible {
        /// Which field.
        field: Field,
        /// The arithmetic.
        why: String,
        /// The nearest thing that works.
        nearest: String,
    },
    /// The stored table does not fit the scheme.
    #[error("the stored table does not fit: {why}")]
    Stored {
        /// What is wrong with it.
        why: String,
    },
}

impl GeometryError {
    /// The field that is wrong.
    #[must_use]
    pub const fn field(&self) -> Field {
        match self {
            Self::DriveCountMissing { .. }
            | Self::DrivesDiffer { .. }
            | Self::TooFewDrives { .. }
            | Self::TooManyDrives { .. }
            | Self::IslandsUneven { .. } => Field::Drives,
            Self::TooManySpares { .. } => Field::Spares,
            Self::TooWide { .. } => Field::Data,
            Self::TooManyColumns { field, .. } | Self::Impossible { field, .. } => *field,
            Self::Stored { .. } => Field::Stored,
        }
    }
}

impl Hint for GeometryError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        let hint = match self {
            Self::DriveCountMissing { scheme, least } => format!("`{scheme}:{least}c`"),
            Self::DrivesDiffer { said, given } => format!("`{given}c` or give {said}"),
            Self::TooFewDrives {
                said: true, least, ..
            } => format!("`{least}c`"),
            Self::TooFewDrives { drives, least, .. } => {
                match least.saturating_sub(u32::from(*drives)) {
                    1 => "name one more drive, or take a scheme for fewer".to_owned(),
                    missing => format!("name {missing} more drives, or take a scheme for fewer"),
                }
            }
            Self::TooManySpares { nearest, .. }
            | Self::TooWide { nearest, .. }
            | Self::TooManyColumns { nearest, .. }
            | Self::TooManyDrives { nearest, .. }
            | Self::IslandsUneven { nearest, .. }
            | Self::Impossible { nearest, .. } => format!("`{nearest}`"),
            Self::Stored { .. } => return Some("an intact copy of the label".into()),
        };
        Some(hint.into())
    }
}
