//! Errors of parsing a scheme string, with the position in the text.

use std::borrow::Cow;
use std::ops::Range;

use block::Hint;

use super::foreign::meant_by;

/// Why a scheme string could not be read. [`SchemeError::span`] is the wrong part of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemeError {
    /// The text is empty.
    #[error("the scheme is empty: it begins with a layout's name")]
    Empty,
    /// The first part is not the name of a layout.
    #[error("`{name}` is not a layout: {known}")]
    UnknownName {
        /// What was written.
        name: String,
        /// The names that exist.
        known: String,
        /// The scheme that is probably meant, if there is one.
        nearest: Option<String>,
        /// Where.
        span: Range<usize>,
    },
    /// The name lacks the digit for the number of drives that may fail.
    #[error("`{name}` does not say how many drives may fail: add a digit or a field `p`")]
    ParityMissing {
        /// The name.
        name: &'static str,
        /// Where.
        span: Range<usize>,
    },
    /// Parity is out of range.
    #[error("parity {parity} is not possible: `{name}` takes 1 to 3")]
    Parity {
        /// The name.
        name: &'static str,
        /// The requested parity.
        parity: u32,
        /// The nearest scheme name or field that works.
        nearest: String,
        /// Where.
        span: Range<usize>,
    },
    /// A word that the family does not have.
    #[error("`{word}` means nothing to `{name}`: it knows {known}")]
    UnknownWord {
        /// What was written.
        word: String,
        /// The scheme's name.
        name: String,
        /// Its words.
        known: String,
        /// The nearest of them.
        nearest: String,
        /// Where.
        span: Range<usize>,
    },
    /// A number without a letter, an unknown letter, or no number.
    #[error("`{field}` is not a field: fields are a number and one of the letters {letters}")]
    BadField {
        /// What was written.
        field: String,
        /// Letters that the family takes.
        letters: String,
        /// The nearest thing that works.
        nearest: String,
        /// Where.
        span: Range<usize>,
    },
    /// A letter that exists but has no meaning for this family.
    #[error("`{field}` has no place in `{name}`: {why}")]
    Misplaced {
        /// What was written.
        field: String,
        /// The scheme's name.
        name: String,
        /// Why not.
        why: String,
        /// The nearest thing that works.
        nearest: String,
        /// Where.
        span: Range<usize>,
    },
    /// A number that no field can hold.
    #[error("`{field}` is out of range: `{letter}` takes {range}")]
    Range {
        /// What was written.
        field: String,
        /// Its letter.
        letter: char,
        /// What it takes.
        range: &'static str,
        /// The nearest thing that works.
        nearest: String,
        /// Where.
        span: Range<usize>,
    },
    /// The same field or word occurs twice.
    #[error("`{field}` says again what `{first}` said: each is said once")]
    Twice {
        /// The second.
        field: String,
        /// The first.
        first: String,
        /// Where the second is.
        span: Range<usize>,
    },
}

impl SchemeError {
    /// The same error when `drives` drives are available; the hint takes them into account.
    #[must_use]
    pub fn with_drives(mut self, drives: u16) -> Self {
        if let Self::UnknownName { name, nearest, .. } = &mut self
            && meant_by(name, None).is_some()
        {
            *nearest = meant_by(name, Some(drives));
        }
        self
    }

    /// The part of the text that is wrong, in bytes.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        match self {
            Self::Empty => 0..0,
            Self::UnknownName { span, .. }
            | Self::ParityMissing { span, .. }
            | Self::Parity { span, .. }
            | Self::UnknownWord { span, .. }
            | Self::BadField { span, .. }
            | Self::Misplaced { span, .. }
            | Self::Range { span, .. }
            | Self::Twice { span, .. } => span.clone(),
        }
    }
}

impl Hint for SchemeError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        let hint = match self {
            Self::Empty => return Some("`raid6` or `pddl2:8d:1s`".into()),
            Self::UnknownName { nearest: None, .. } => return Some("write one of these".into()),
            Self::ParityMissing { name, .. } => format!("`{name}2`"),
            Self::UnknownName {
                nearest: Some(nearest),
                ..
            }
            | Self::Parity { nearest, .. }
            | Self::UnknownWord { nearest, .. }
            | Self::BadField { nearest, .. }
            | Self::Misplaced { nearest, .. }
            | Self::Range { nearest, .. } => format!("`{nearest}`"),
            Self::Twice { field, first, .. } => format!("leave out `{field}` or `{first}`"),
        };
        Some(hint.into())
    }
}

/// The candidate that is fewest edits away from `text` (Levenshtein's distance); the first of
/// equals.
pub(crate) fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> &'a str {
    candidates
        .into_iter()
        .min_by_key(|candidate| distance(text, candidate))
        .unwrap_or("")
}

pub(super) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
