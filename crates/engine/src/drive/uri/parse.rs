//! Parses drives' names.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use block::ByteSize;

use super::super::{KINDS, file};
use super::{DriveKind, DriveSpec, DriveUri, ParseDriveUriError};

/// How deep wrappers may nest: parsing and opening recurse.
pub(super) const NEST_MAX: usize = 8;

impl FromStr for DriveUri {
    type Err = ParseDriveUriError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (rest, domain) = match text.rsplit_once('@') {
            // An @ inside a directory's name is an ordinary character.
            Some((rest, domain)) if !domain.contains('/') => (rest, Some(domain)),
            _ => (text, None),
        };
        let (domain, slot) = match domain.and_then(|domain| domain.split_once('#')) {
            Some((domain, slot)) => (Some(domain), Some(slot)),
            None => (domain, None),
        };
        if let Some(domain) = domain {
            let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            if domain.is_empty() || !domain.bytes().all(good) {
                return Err(ParseDriveUriError::BadDomain {
                    domain: domain.to_owned(),
                });
            }
        }
        let bad_slot = |text: &str, domain: &str| ParseDriveUriError::BadSlot {
            drive: format!("{rest}@{domain}"),
            slot: text.to_owned(),
        };
        let slot = match (slot, domain) {
            (Some(text), Some(domain)) => {
                Some(self::slot(text).ok_or_else(|| bad_slot(text, domain))?)
            }
            _ => None,
        };
        Ok(Self {
            spec: DriveSpec::parse(rest, 0)?,
            domain: domain.map(str::to_owned),
            slot,
        })
    }
}

/// The number of a slot: digits alone.
pub(super) fn slot(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

impl DriveSpec {
    fn parse(text: &str, depth: usize) -> Result<Self, ParseDriveUriError> {
        if depth > NEST_MAX {
            return Err(ParseDriveUriError::TooDeep);
        }
        let (word, rest) = split_kind(text).unwrap_or((file::KIND.word, text));
        let (body, options) = rest.rsplit_once('?').unwrap_or((rest, ""));
        match KINDS.iter().find(|kind| kind.word == word) {
            Some(&kind) => (kind.parse)(&NameText {
                whole: text,
                kind,
                body,
                options,
                depth,
            }),
            None => {
                let kind = word.to_owned();
                Err(match word {
                    "nbd" | "nbd+unix" | "nbds" => ParseDriveUriError::NotYet { kind },
                    _ => ParseDriveUriError::UnknownKind { kind },
                })
            }
        }
    }
}

/// A name, as its kind gets it to read: `kind:body?options`.
pub(crate) struct NameText<'a> {
    whole: &'a str,
    /// The kind that the name's word says.
    pub(crate) kind: &'static DriveKind,
    /// What stands between the word and the last `?`.
    pub(crate) body: &'a str,
    options: &'a str,
    depth: usize,
}

impl<'a> NameText<'a> {
    /// The options `a=1&b=2` in order; a key without `=` has an empty value.
    pub(crate) fn options(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let pairs = self.options.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    /// The body as a path.
    pub(crate) fn path(&self) -> Result<PathBuf, ParseDriveUriError> {
        parse_path(self.body).ok_or_else(|| ParseDriveUriError::Empty {
            uri: self.whole.to_owned(),
        })
    }

    /// The body as the name of another drive.
    pub(crate) fn inner(&self) -> Result<DriveSpec, ParseDriveUriError> {
        DriveSpec::parse(self.body, self.depth + 1)
    }

    /// The error of an option that the kind does not have.
    pub(crate) fn unknown(&self, key: &str) -> ParseDriveUriError {
        ParseDriveUriError::UnknownOption {
            kind: self.kind.word,
            key: key.to_owned(),
            known: self.kind.options,
        }
    }

    /// Refuses all options.
    pub(crate) fn no_options(&self) -> Result<(), ParseDriveUriError> {
        let first = self.options().next();
        first.map_or(Ok(()), |(key, _)| Err(self.unknown(key)))
    }
}

/// Splits `kind:rest`. A text that begins with `/` or `.`, or has no word like a kind before a
/// colon, is a path.
fn split_kind(text: &str) -> Option<(&str, &str)> {
    let (kind, rest) = text.split_once(':')?;
    let mut bytes = kind.bytes();
    let starts = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase());
    let word =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-".contains(&byte);
    (starts && bytes.all(word)).then_some((kind, rest))
}

/// The error of an option, or a body, that cannot be read.
pub(crate) fn bad(key: &'static str, value: &str, wanted: &'static str) -> ParseDriveUriError {
    ParseDriveUriError::BadValue {
        key,
        value: value.to_owned(),
        wanted,
    }
}

/// The value of an option that is one of a few words.
pub(crate) fn parse_word<T: Copy>(
    key: &'static str,
    value: &str,
    words: &[(&str, T)],
    wanted: &'static str,
) -> Result<T, ParseDriveUriError> {
    let word = words.iter().find(|(word, _)| *word == value);
    word.map_or_else(|| Err(bad(key, value, wanted)), |(_, found)| Ok(*found))
}

/// A size that is not 0.
pub(crate) fn parse_size(key: &'static str, value: &str) -> Result<u64, ParseDriveUriError> {
    match value.parse() {
        Ok(ByteSize(bytes)) if bytes > 0 => Ok(bytes),
        _ => {
            let wanted = "a size above 0, such as 512, 64K or 1.5G";
            Err(bad(key, value, wanted))
        }
    }
}

/// The longest time that a test can wait for; anything longer is a typing error.
const DURATION_MAX: Duration = Duration::from_secs(3600);

/// A time such as `2ms`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 4] = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (digits, seconds) = UNITS
        .iter()
        .find_map(|&(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))?;
    if !digits
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        return None;
    }
    let duration = Duration::try_from_secs_f64(digits.parse::<f64>().ok()? * seconds).ok()?;
    (duration <= DURATION_MAX).then_some(duration)
}

/// Decodes `%XX`; a `%` that is not followed by two hexadecimal digits is kept.
pub(crate) fn parse_path(text: &str) -> Option<PathBuf> {
    if text.is_empty() || text.contains('\0') {
        return None;
    }
    let bytes = text.as_bytes();
    let mut path = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|code| u8::from_str_radix(code, 16).ok())
            .filter(|&code| code != 0);
        path.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 3 } else { 1 };
    }
    Some(PathBuf::from(OsString::from_vec(path)))
}
