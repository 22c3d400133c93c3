//! How a part of a stripe is written: which old elements are read for the new parity.

use std::str::FromStr;

use array::plan::Preference;

/// A policy for writes of parts of stripes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SmallWrites {
    /// Old data and old parity, always: a controller without reconstruct-write.
    ReadModify,
    /// The data that does not change, always: md before it had read-modify-write for RAID-6.
    Reconstruct,
    /// Whichever reads fewer elements.
    #[default]
    Cheaper,
}

impl SmallWrites {
    pub(super) const fn preference(self) -> Preference {
        match self {
            Self::ReadModify => Preference::ReadModify,
            Self::Reconstruct => Preference::Reconstruct,
            Self::Cheaper => Preference::Cheaper,
        }
    }
}

/// Not a policy for small writes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a way to write parts of stripes: use read-modify, reconstruct or cheaper")]
pub struct UnknownSmallWrites(String);

impl FromStr for SmallWrites {
    type Err = UnknownSmallWrites;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "read-modify" => Ok(Self::ReadModify),
            "reconstruct" => Ok(Self::Reconstruct),
            "cheaper" => Ok(Self::Cheaper),
            _ => Err(UnknownSmallWrites(text.to_owned())),
        }
    }
}
