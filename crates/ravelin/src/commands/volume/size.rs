//! Sizes of volumes as they are typed: bytes, a change, or a part of what is free in the pool.

use std::borrow::Cow;
use std::str::FromStr;

use block::{BLOCK_BYTES, ByteSize, Hint, ParseByteSizeError};

/// Why a size cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SizeError {
    /// It is no number with a unit.
    #[error("{0}")]
    Bytes(ParseByteSizeError),
    /// It is no number from 1 to 100.
    #[error("`{0}` is no part of what is free")]
    Percent(String),
    /// A part of what is free says nothing about a size that is there already.
    #[error("`{0}` is a part of what is free, and no new size")]
    NoChange(String),
}

impl Hint for SizeError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Bytes(error) => error.hint(),
            Self::Percent(_) => Some("write 1% to 100%".into()),
            Self::NoChange(text) => Some(
                format!("+{text} adds that part, and max all that is free")
                    .replace("+-", "+")
                    .into(),
            ),
        }
    }
}

fn bytes(text: &str) -> Result<u64, SizeError> {
    let size = text.parse::<ByteSize>().map_err(SizeError::Bytes)?;
    Ok(size.0)
}

/// The number before a percent sign; none if there is no sign.
fn percent(text: &str) -> Option<Result<u64, SizeError>> {
    let number = text.strip_suffix('%')?;
    let number = number.trim().parse().ok();
    let part = number.filter(|part| (1..=100).contains(part));
    Some(part.ok_or_else(|| SizeError::Percent(text.to_owned())))
}

/// A part of what is free, in whole blocks.
fn part_of(free_bytes: u64, percent: u64) -> u64 {
    let part = u128::from(free_bytes) * u128::from(percent) / 100;
    let part = u64::try_from(part).unwrap_or(free_bytes);
    part - part % BLOCK_BYTES
}

/// The size of a volume to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstSize {
    Bytes(u64),
    /// Of what is free in the pool.
    Percent(u64),
}

impl FirstSize {
    /// Whether the size depends on what is free.
    pub(crate) const fn needs_free(self) -> bool {
        matches!(self, Self::Percent(_))
    }

    /// In a pool with so many bytes free. 0: nothing is free.
    pub(crate) fn of(self, free_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => part_of(free_bytes, percent),
        }
    }
}

impl FromStr for FirstSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match (text, percent(text)) {
            ("max", _) => Self::Percent(100),
            (_, Some(percent)) => Self::Percent(percent?),
            (_, None) => Self::Bytes(bytes(text)?),
        })
    }
}

/// A volume's new size: absolute, or relative to its present size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewSize {
    To(u64),
    More(u64),
    Less(u64),
    /// A part of what is free in the pool is added.
    MorePercent(u64),
    /// All that is free in the pool is added.
    Max,
}

/// What a new size may depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Present {
    /// The volume's size.
    pub(crate) size_bytes: u64,
    /// What the pool has set aside for it.
    pub(crate) reserved_bytes: u64,
    /// What is free in the pool.
    pub(crate) free_bytes: u64,
}

impl NewSize {
    /// Whether the size depends on what is free.
    pub(crate) const fn needs_free(self) -> bool {
        matches!(self, Self::MorePercent(_) | Self::Max)
    }

    /// The new size; `None` if nothing would be left.
    pub(crate) fn of(self, now: Present) -> Option<u64> {
        let size = now.size_bytes;
        match self {
            Self::To(bytes) => Some(bytes),
            Self::More(bytes) => Some(size.saturating_add(bytes)),
            Self::Less(bytes) => size.checked_sub(bytes).filter(|&left| left > 0),
            Self::MorePercent(percent) => Some(size + part_of(now.free_bytes, percent)),
            Self::Max => Some(now.reserved_bytes.max(size) + now.free_bytes),
        }
    }
}

impl FromStr for NewSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let more = text.strip_prefix('+');
        if text == "max" {
            return Ok(Self::Max);
        }
        if let Some(percent) = percent(more.unwrap_or(text)) {
            return match more {
                Some(_) => Ok(Self::MorePercent(percent?)),
                None => Err(SizeError::NoChange(text.to_owned())),
            };
        }
        Ok(match (more, text.strip_prefix('-')) {
            (Some(more), _) => Self::More(bytes(more)?),
            (_, Some(less)) => Self::Less(bytes(less)?),
            (None, None) => Self::To(bytes(text)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_size_with_a_sign_is_a_change() {
        let now = Present {
            size_bytes: 10 * MIB,
            reserved_bytes: 16 * MIB,
            free_bytes: 100 * MIB,
        };
        let of = |text: &str| text.parse::<NewSize>().unwrap().of(now);
        assert_eq!(of("1M"), Some(MIB));
        assert_eq!(of("+1M"), Some(11 * MIB));
        assert_eq!(of("-1M"), Some(9 * MIB));
        assert_eq!(of("-10M"), None);
        assert_eq!(of("+50%"), Some(60 * MIB));
        assert_eq!(of("max"), Some(116 * MIB));
        for text in [
            "", "+", "-", "+-1M", "1M+", "--1M", "50%", "-50%", "+0%", "+max", "-max",
        ] {
            assert!(text.parse::<NewSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_part_is_one_of_what_is_free_in_whole_blocks() {
        let of = |text: &str| text.parse::<FirstSize>().unwrap().of(100 * MIB);
        assert_eq!(of("1M"), MIB);
        assert_eq!(of("max"), 100 * MIB);
        assert_eq!(of("100%"), 100 * MIB);
        assert_eq!(of("50%"), 50 * MIB);
        assert_eq!(of("33%"), 33 * MIB);
        assert_eq!("33%".parse::<FirstSize>().unwrap().of(40960), 12288);
        for text in ["", "%", "0%", "101%", "-5%", "maximum", "1.5%"] {
            assert!(text.parse::<FirstSize>().is_err(), "{text}");
        }
    }
}
