//! Searched bases as bytes.
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | version, 1 |
//! | 1 | bytes of an entry: 1 up to 256 drives, else 2 |
//! | rest | the bases, one after the other, n entries each, little-endian |

use crate::developed::Shape;

const VERSION: u8 = 1;

/// Why stored bases cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredError {
    /// Another version, or nothing at all.
    #[error("version {version} of stored bases is not known here")]
    Version {
        /// The first byte.
        version: u8,
    },
    /// Not a whole number of bases.
    #[error("{bytes} bytes are no whole bases of {drives} drives")]
    Length {
        /// Bytes given.
        bytes: usize,
        /// n.
        drives: u16,
    },
    /// A base that names a drive twice or one that is not there.
    #[error("base {base} is no permutation of {drives} drives")]
    Base {
        /// Its number.
        base: usize,
        /// n.
        drives: u16,
    },
}

pub(super) fn encode(shape: Shape, bases: &[u16]) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    if shape.drives <= 256 {
        bytes.push(1);
        bytes.extend(bases.iter().map(|drive| drive.to_le_bytes()[0]));
    } else {
        bytes.push(2);
        bytes.extend(bases.iter().flat_map(|drive| drive.to_le_bytes()));
    }
    bytes
}

pub(super) fn decode(shape: Shape, stored: &[u8]) -> Result<Vec<u16>, StoredError> {
    let drives = shape.drives;
    let length = StoredError::Length {
        bytes: stored.len(),
        drives,
    };
    let bases: Vec<u16> = match stored {
        [VERSION, 1, entries @ ..] => entries.iter().map(|&entry| entry.into()).collect(),
        [VERSION, 2, entries @ ..] => {
            let (words, rest) = entries.as_chunks::<2>();
            if !rest.is_empty() {
                return Err(length);
            }
            words.iter().map(|word| u16::from_le_bytes(*word)).collect()
        }
        [VERSION, ..] => return Err(length),
        _ => {
            return Err(StoredError::Version {
                version: stored.first().copied().unwrap_or(0),
            });
        }
    };
    let n = usize::from(drives);
    if bases.is_empty() || !bases.len().is_multiple_of(n) {
        return Err(length);
    }
    for (base, entries) in bases.chunks(n).enumerate() {
        let mut seen = vec![false; n];
        for &drive in entries {
            match seen.get_mut(usize::from(drive)) {
                Some(seen) if !*seen => *seen = true,
                _ => return Err(StoredError::Base { base, drives }),
            }
        }
    }
    Ok(bases)
}
