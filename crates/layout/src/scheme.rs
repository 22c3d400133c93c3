//! Scheme strings: how a user names an array.
//!
//! ```text
//!   raid6 : dcode : 7c            pddl2 : rdp : 4d : 13c : 1s          elastic5 : la : 1.8x
//!   ───── ─────── ──              ─────  ───   ──   ───   ──           ────────   ──   ────
//!   name   word   field           name   word       fields               name    word  field
//! ```
//!
//! The name gives the family and, for most, how many drives may fail. Words select a form or a
//! code. Fields are a number and a letter. Words and fields come in any order and in any case. A
//! [`Scheme`] holds only what the text gives, so that it prints back as the same text.
//! [`Geometry`](crate::Geometry) does the arithmetic once the number of drives is known.

mod error;
mod foreign;
mod forms;
mod parse;

use std::fmt;

pub use error::SchemeError;
pub use foreign::meant_by;
pub use forms::{Raid5Form, Raid6Form, Raid10Form};
pub use parse::names;

use crate::declustered::Kind;

/// Codes whose names are words of two-parity schemes.
pub fn code_words() -> impl Iterator<Item = &'static str> {
    let families = erasure::FAMILIES.iter().filter(|family| family.in_schemes);
    families.map(|family| family.name)
}

/// What kind of placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Striping.
    Raid0,
    /// Copies on neighbouring drives.
    Raid1,
    /// md's three ways to place copies.
    Raid10(Raid10Form),
    /// Chained declustering: the second copy is one drive further on.
    Chained,
    /// Striping that turns round at the end of each row.
    Zigzag,
    /// Single rotating parity.
    Raid5(Raid5Form),
    /// Double rotating parity.
    Raid6(Raid6Form),
    /// Triple rotating parity.
    Raid7,
    /// Groups over more drives than they have columns.
    Declustered(&'static Kind),
}

impl Family {
    /// The family's name without a digit for parity.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raid0 => "raid0",
            Self::Raid1 => "raid1",
            Self::Raid10(_) => "raid10",
            Self::Chained => "chained",
            Self::Zigzag => "zigzag",
            Self::Raid5(_) => "raid5",
            Self::Raid6(_) => "raid6",
            Self::Raid7 => "raid7",
            Self::Declustered(kind) => kind.name,
        }
    }

    /// Whether groups are spread over more drives than they have columns.
    #[must_use]
    pub const fn is_declustered(self) -> bool {
        matches!(self, Self::Declustered(_))
    }

    /// Whether the placement is a stored table that grows with the pool.
    #[must_use]
    pub const fn is_pool(self) -> bool {
        matches!(self, Self::Declustered(kind) if kind.is_pool)
    }

    /// Whether chunks are copied and not coded.
    #[must_use]
    pub const fn is_mirror(self) -> bool {
        matches!(self, Self::Raid1 | Self::Raid10(_) | Self::Chained)
    }
}

/// The ratio of the address space that drives present to their physical space: `1.8x`. Stored in
/// thousandths so that it compares and prints exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expansion {
    thousandths: u32,
}

impl Expansion {
    /// No more address space than physical space.
    pub const MIN: Self = Self { thousandths: 1000 };
    /// More than any data compresses.
    pub const MAX: Self = Self {
        thousandths: 16_000,
    };

    /// From thousandths, `1000..=16000`.
    #[must_use]
    pub const fn from_thousandths(thousandths: u32) -> Option<Self> {
        match thousandths {
            1000..=16000 => Some(Self { thousandths }),
            _ => None,
        }
    }

    /// In thousandths.
    #[must_use]
    pub const fn thousandths(self) -> u32 {
        self.thousandths
    }

    /// As a ratio.
    #[must_use]
    pub fn ratio(self) -> f64 {
        f64::from(self.thousandths) / 1000.0
    }
}

impl fmt::Display for Expansion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:03}", self.thousandths / 1000, self.thousandths % 1000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// A parsed scheme string. `None` is a field that the text does not give;
/// [`Geometry`](crate::Geometry) fills in the defaults.
///
/// Prints in a canonical form that parses back to an equal value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scheme {
    /// What kind of placement.
    pub family: Family,
    /// Columns that a group can lose, 0 to 3: from the name's digit, the field `p`, or the default
    /// of the family. 0 for mirrors, where `copies` counts.
    pub parity: u16,
    /// A code's name where the code is not the family's default (P+Q and the like).
    pub code: Option<String>,
    /// `d`: data columns of a group.
    pub data: Option<u16>,
    /// `c`: drives.
    pub drives: Option<u16>,
    /// `s`: spares.
    pub spares: Option<u16>,
    /// `f`: failure domains; drive x is in domain x mod f.
    pub domains: Option<u16>,
    /// `r`: copies.
    pub copies: Option<u16>,
    /// Whether stripes may change between parity and copies.
    pub elastic: bool,
    /// `x`: the address space that an elastic array's drives present.
    pub expansion: Option<Expansion>,
}

impl Scheme {
    /// The scheme with only its family and parity given.
    #[must_use]
    pub const fn of(family: Family, parity: u16) -> Self {
        Self {
            family,
            parity,
            code: None,
            data: None,
            drives: None,
            spares: None,
            domains: None,
            copies: None,
            elastic: false,
            expansion: None,
        }
    }

    /// The scheme of a new pool on `drives` drives: `raid1` without fields keeps a copy on each of them, as `md` and
    /// `zpool` do. Labels give the number of copies; `raid1` without it means two copies there, as in earlier versions.
    #[must_use]
    pub fn for_new_pool(mut self, drives: u16) -> Self {
        let drives = self.drives.unwrap_or(drives);
        let copies = drives.saturating_sub(self.spares.unwrap_or(0));
        if self.family == Family::Raid1 && self.copies.is_none() && copies > 2 {
            self.copies = Some(copies);
        }
        self
    }

    /// The same scheme without elastic stripes (which change between parity and copies). A pool whose label has
    /// `elastic5` without the feature is a plain `raid5`.
    #[must_use]
    pub const fn plain(mut self) -> Self {
        self.elastic = false;
        self.expansion = None;
        self
    }

    /// The same scheme with the field `c` set to `drives`.
    #[must_use]
    pub const fn on(mut self, drives: u16) -> Self {
        self.drives = Some(drives);
        self
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut elastic_said = true;
        match self.family {
            Family::Raid5(_) if self.elastic => f.write_str("elastic5")?,
            Family::Raid6(_) if self.elastic => f.write_str("elastic6")?,
            Family::Declustered(kind) => f.write_str(&kind.named(self.parity))?,
            family => f.write_str(family.name())?,
        }
        if self.elastic && !matches!(self.family, Family::Raid5(_) | Family::Raid6(_)) {
            elastic_said = self.expansion.is_some();
        }
        let word = match self.family {
            Family::Raid10(form) if form != Raid10Form::Near => form.word(),
            Family::Raid5(form) if form != Raid5Form::default() => form.word(),
            Family::Raid6(form) if form != Raid6Form::default_with(self.code.as_deref()) => {
                form.word()
            }
            Family::Raid10(_) | Family::Raid5(_) | Family::Raid6(_) => "",
            Family::Raid0
            | Family::Raid1
            | Family::Chained
            | Family::Zigzag
            | Family::Raid7
            | Family::Declustered(_) => "",
        };
        for word in [word, self.code.as_deref().unwrap_or("")] {
            if !word.is_empty() {
                write!(f, ":{word}")?;
            }
        }
        if !elastic_said {
            f.write_str(":elastic")?;
        }
        let parity = match self.family {
            Family::Declustered(kind) => kind.parity_field(self),
            _ => None,
        };
        for (number, letter) in [
            (self.copies, 'r'),
            (self.data, 'd'),
            (parity, 'p'),
            (self.drives, 'c'),
            (self.spares, 's'),
            (self.domains, 'f'),
        ] {
            if let Some(number) = number {
                write!(f, ":{number}{letter}")?;
            }
        }
        if let Some(expansion) = self.expansion {
            write!(f, ":{expansion}x")?;
        }
        Ok(())
    }
}
