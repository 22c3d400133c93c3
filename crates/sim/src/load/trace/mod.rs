//! Recorded workloads.
//!
//! | form | line |
//! | --- | --- |
//! | MSR-Cambridge CSV | `128166372003061629,usr,0,Read,7014609920,24576,41286` |
//! | blkparse text | `8,0 1 1 0.000000000 697 Q R 223490 + 8 [kjournald]` |
//! | fio iolog, version 2 | `/dev/sda read 1048576 4096`, `/dev/sda wait 500` |
//! | fio iolog, version 3 | `12 /dev/sda write 1048576 4096` |
//!
//! The form is detected from the first line. A line that does not parse is reported with its column. No line is skipped
//! silently, except those that the forms have besides requests (opening and closing of files, other events of the block
//! layer, blkparse's summary).

mod blkparse;
mod iolog;
mod msr;

use block::RequestKind;

/// One recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, in nanoseconds on the recording's clock.
    pub at_ns: u64,
    /// What.
    pub kind: RequestKind,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// Why a recording cannot be read. Lines and columns count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct TraceError {
    /// Which line.
    pub line: usize,
    /// Which character of it.
    pub column: usize,
    /// What is wrong, and what should be there.
    pub what: String,
}

/// Requests of a recording, in the order of their times.
///
/// # Errors
/// [`TraceError`] names the first line that does not parse.
pub fn parse(text: &str) -> Result<Vec<Record>, TraceError> {
    let first = text.lines().find(|line| !line.trim().is_empty());
    let Some(first) = first else {
        return Err(TraceError {
            line: 1,
            column: 1,
            what: "the recording is empty".to_owned(),
        });
    };
    let mut records = if first.starts_with("fio version") {
        iolog::parse(text)?
    } else if first.split(',').count() >= 6 {
        msr::parse(text)?
    } else {
        blkparse::parse(text)?
    };
    if records.is_empty() {
        return Err(TraceError {
            line: 1,
            column: 1,
            what: "the recording has no read and no write".to_owned(),
        });
    }
    records.sort_by_key(|record| record.at_ns);
    Ok(records)
}

/// A line split into fields, each with its column.
struct Fields<'a> {
    line: usize,
    text: &'a str,
    fields: Vec<(usize, &'a str)>,
}

impl<'a> Fields<'a> {
    /// Fields between `separator`s; `None` stands for white space.
    fn of(line: usize, text: &'a str, separator: Option<char>) -> Self {
        let start = |part: &str| part.as_ptr() as usize - text.as_ptr() as usize;
        let parts: Vec<&str> = match separator {
            Some(separator) => text.split(separator).collect(),
            None => text.split_whitespace().collect(),
        };
        let column = |part: &str| text[..start(part)].chars().count() + 1;
        let fields = parts.into_iter().map(|part| (column(part), part));
        Self {
            line,
            text,
            fields: fields.collect(),
        }
    }

    fn error(&self, column: usize, what: impl Into<String>) -> TraceError {
        TraceError {
            line: self.line,
            column,
            what: what.into(),
        }
    }

    fn len(&self) -> usize {
        self.fields.len()
    }

    /// Field number `index`; `name` is its name in the error if it is missing.
    fn get(&self, index: usize, name: &str) -> Result<(usize, &'a str), TraceError> {
        let end = self.text.chars().count() + 1;
        let missing = || self.error(end, format!("the {name} is missing"));
        self.fields.get(index).copied().ok_or_else(missing)
    }

    fn number(&self, index: usize, name: &str) -> Result<u64, TraceError> {
        let (column, text) = self.get(index, name)?;
        let wrong = |_| self.error(column, format!("`{text}` is not a number for the {name}"));
        text.trim().parse().map_err(wrong)
    }

    /// A product that must not overflow.
    fn scaled(&self, index: usize, name: &str, by: u64) -> Result<u64, TraceError> {
        let value = self.number(index, name)?;
        let column = self.fields[index].0;
        value
            .checked_mul(by)
            .ok_or_else(|| self.error(column, format!("`{value}` is too large for the {name}")))
    }
}

#[cfg(test)]
mod tests;
