//! Shares and parts of volumes as they are typed.

use std::borrow::Cow;
use std::str::FromStr;

use block::{ByteSize, Hint, ParseByteSizeError};
use engine::load::{Hot, HotPart};

/// Why `--hot` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HotError {
    /// There is no part behind a slash.
    #[error("`{0}` is not a share of the requests and a part of the volume")]
    Shape(String),
    /// A share that leaves requests for only one side, or no number.
    #[error("`{0}` is not a percentage from 1 to 99")]
    Percent(String),
    /// A part that is no size.
    #[error("{0}")]
    Bytes(ParseByteSizeError),
}

impl Hint for HotError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Shape(_) | Self::Percent(_) => Some(
                "write 90/10% or 90/2G: 90 % of the requests go to that part of the volume".into(),
            ),
            Self::Bytes(error) => error.hint(),
        }
    }
}

/// A percentage with something on both sides.
fn percent(text: &str) -> Result<u8, HotError> {
    let number = text.trim().parse().ok();
    let number = number.filter(|number| (1..=99).contains(number));
    number.ok_or_else(|| HotError::Percent(text.to_owned()))
}

/// `SHARE/SIZE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HotValue(pub(super) Hot);

impl FromStr for HotValue {
    type Err = HotError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let shape = || HotError::Shape(text.to_owned());
        let (share, part) = text.split_once('/').ok_or_else(shape)?;
        let share = share.trim();
        let part = part.trim();
        let part = match part.strip_suffix('%') {
            Some(number) => HotPart::Percent(percent(number)?),
            None => HotPart::Bytes(part.parse::<ByteSize>().map_err(HotError::Bytes)?.0),
        };
        Ok(Self(Hot {
            requests_percent: percent(share.strip_suffix('%').unwrap_or(share))?,
            part,
        }))
    }
}

/// Why `--compressible` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CompressibleError {
    /// All of it would be zeros.
    #[error("blocks that get 100 % smaller are zeros")]
    Zeros,
    /// No number, or too large.
    #[error("`{0}` is not a percentage from 0 to 99")]
    Percent(String),
}

impl Hint for CompressibleError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            Self::Zeros => "leave --compressible out to write zeros, or give 99 at most".into(),
            Self::Percent(_) => {
                "0 writes noise, 50 blocks that get half as long, 99 next to nothing".into()
            }
        })
    }
}

/// By how much blocks get smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CompressibleValue(pub(super) u8);

impl FromStr for CompressibleValue {
    type Err = CompressibleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.strip_suffix('%').unwrap_or(text).trim();
        match number.parse() {
            Ok(100) => Err(CompressibleError::Zeros),
            Ok(number) if number < 100 => Ok(Self(number)),
            _ => Err(CompressibleError::Percent(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_percentages_or_sizes() {
        let hot = |part| {
            Ok(HotValue(Hot {
                requests_percent: 90,
                part,
            }))
        };
        assert_eq!("90/10%".parse(), hot(HotPart::Percent(10)));
        assert_eq!("90%/2G".parse(), hot(HotPart::Bytes(2 << 30)));
        for (text, error) in [
            ("90", HotError::Shape("90".into())),
            ("0/10%", HotError::Percent("0".into())),
            ("100/10%", HotError::Percent("100".into())),
            ("90/100%", HotError::Percent("100".into())),
            ("ninety/10%", HotError::Percent("ninety".into())),
        ] {
            assert_eq!(text.parse::<HotValue>(), Err(error));
        }
        assert!(matches!(
            "90/much".parse::<HotValue>(),
            Err(HotError::Bytes(_))
        ));
    }

    #[test]
    fn everything_up_to_zeros_is_compressible() {
        assert_eq!("0".parse(), Ok(CompressibleValue(0)));
        assert_eq!("99%".parse(), Ok(CompressibleValue(99)));
        assert_eq!(
            "100".parse::<CompressibleValue>(),
            Err(CompressibleError::Zeros)
        );
        for text in ["-1", "101", "300", "half", ""] {
            assert!(text.parse::<CompressibleValue>().is_err(), "{text}");
        }
    }
}
