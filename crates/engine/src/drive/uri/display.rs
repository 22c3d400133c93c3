//! Writes drives' names, in the form that parses to the same drive.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use super::DriveUri;

/// A path in a name.
pub(crate) fn path_text(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '?' | '@' | '%' => text += &format!("%{:02X}", u32::from(letter)),
                _ if letter.is_ascii_control() => text += &format!("%{:02X}", u32::from(letter)),
                _ => text.push(letter),
            }
        }
        for byte in chunk.invalid() {
            text += &format!("%{byte:02X}");
        }
    }
    text
}

/// The size in the largest unit that divides it, as it can be read back: `64K`, `1G`, `1000`.
pub(crate) fn size_text(bytes: u64) -> String {
    for (unit, shift) in [('P', 50), ('T', 40), ('G', 30), ('M', 20), ('K', 10)] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// The time in the largest unit that divides it.
pub(crate) fn duration_text(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    for (unit, size) in [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
        if nanoseconds.is_multiple_of(size) {
            return format!("{}{unit}", nanoseconds / size);
        }
    }
    format!("{nanoseconds}ns")
}

/// The word for a value, the reverse of [`super::parse_word`].
pub(crate) fn word_of<T: PartialEq>(value: &T, words: &[(&'static str, T)]) -> String {
    let word = words.iter().find(|(_, named)| named == value);
    word.map_or_else(String::new, |(word, _)| (*word).to_owned())
}

/// Writes the options that have a value, `?` before the first and `&` before the others.
pub(crate) fn write_options(
    f: &mut fmt::Formatter<'_>,
    options: impl IntoIterator<Item = (&'static str, Option<String>)>,
) -> fmt::Result {
    let given = options
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)));
    for (index, (key, value)) in given.enumerate() {
        write!(f, "{}{key}={value}", if index == 0 { '?' } else { '&' })?;
    }
    Ok(())
}

/// The canonical form: parsing it gives the same value.
impl fmt::Display for DriveUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.spec)?;
        if let Some(domain) = &self.domain {
            write!(f, "@{domain}")?;
        }
        match self.slot {
            Some(slot) => write!(f, "#{slot}"),
            None => Ok(()),
        }
    }
}
