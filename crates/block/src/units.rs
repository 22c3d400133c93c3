//! Seats and byte sizes.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::Hint;

/// A drive's place in the pool, counted from 0. The seat stays when its drive is replaced.
///
/// Sixteen bits everywhere, on disk too: OpenZFS's one-byte map entries limit a dRAID to fewer than 256 children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat(pub u16);

impl Seat {
    /// The seat as an index into a table with one entry per seat.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<u16> for Seat {
    fn from(seat: u16) -> Self {
        Self(seat)
    }
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A number of bytes that reads and prints in binary units: `64K`, `1G`, `1.5T`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// Why a size could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a size")]
pub struct ParseByteSizeError {
    /// The text that was given.
    pub text: String,
}

impl Hint for ParseByteSizeError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(
            "write a number with an optional unit K, M, G, T or P (binary), such as 64K or 1.5G"
                .into(),
        )
    }
}

const UNITS: [(char, u32); 5] = [('K', 10), ('M', 20), ('G', 30), ('T', 40), ('P', 50)];

impl FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseByteSizeError {
            text: text.to_owned(),
        };
        let upper = text.trim().to_ascii_uppercase();
        // `64K`, `64KB` and `64KiB` all mean 64 × 1024.
        let stem = upper
            .strip_suffix("IB")
            .or_else(|| upper.strip_suffix('B'))
            .unwrap_or(&upper);
        let (digits, shift) = UNITS
            .iter()
            .find_map(|&(unit, shift)| stem.strip_suffix(unit).map(|digits| (digits, shift)))
            .unwrap_or((stem, 0));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || fraction.len() > 9 {
            return Err(error());
        }
        let whole: u64 = whole.parse().map_err(|_| error())?;
        let bytes = whole.checked_mul(1 << shift).ok_or_else(error)?;
        if fraction.is_empty() {
            return Ok(Self(bytes));
        }
        let numerator: u128 = fraction.parse().map_err(|_| error())?;
        let scale = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| error())?);
        let part = (numerator << shift) / scale;
        let part = u64::try_from(part).map_err(|_| error())?;
        bytes.checked_add(part).map(Self).ok_or_else(error)
    }
}

impl ByteSize {
    /// The size rounded to about three digits, where `Display` rounds down. Sizes that divide evenly are exact in both.
    #[must_use]
    pub fn rounded(self) -> String {
        let mut unit = "";
        let mut divisor = 1_u64;
        for next in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
            if self.0 / divisor < 1024 {
                break;
            }
            unit = next;
            divisor *= 1024;
        }
        if self.0.is_multiple_of(divisor) {
            let unit = if unit.is_empty() { "B" } else { unit };
            return format!("{} {unit}", self.0 / divisor);
        }
        #[expect(clippy::cast_precision_loss, reason = "three digits for display")]
        let value = self.0 as f64 / divisor as f64;
        format!("{value:.*} {unit}", if value < 10.0 { 2 } else { 1 })
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(&(unit, shift)) = UNITS.iter().rev().find(|&&(_, shift)| self.0 >> shift > 0)
        else {
            return write!(f, "{} B", self.0);
        };
        let whole = self.0 >> shift;
        let hundredths = (u128::from(self.0) * 100) >> shift;
        let rest = hundredths % 100;
        match (rest, whole) {
            (0, _) => write!(f, "{whole} {unit}iB"),
            (_, 100..) => write!(f, "{whole} {unit}iB"),
            (_, 10..) => write!(f, "{whole}.{} {unit}iB", rest / 10),
            _ => write!(f, "{whole}.{rest:02} {unit}iB"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_in_binary_units() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("64K", 64 << 10),
            ("64kib", 64 << 10),
            ("1.5G", 3 << 29),
            ("2TB", 2 << 40),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "G", "-1", "1.2.3", "1X", "99999999999P", "0x10"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_print_with_three_digits() {
        for (bytes, text) in [
            (17, "17 B"),
            (4096, "4 KiB"),
            (3 << 29, "1.50 GiB"),
            ((10 << 20) + (1 << 19), "10.5 MiB"),
        ] {
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
    }
}
