//! `part:`: some of the bytes of another drive, as a drive: `part:/dev/sdb?from=1G&to=5G`.

use std::fmt;
use std::io;
use std::sync::Arc;

use block::{BlockDevice, Completed, Extent, Limits, Memory, Request};

use super::uri::{
    DriveKind, DriveSpec, NameText, ParseDriveUriError, Wrapper, parse_size, size_text, wrapped,
    write_options,
};
use super::{Open, OpenDriveError, Opened, Opening};

pub(super) static KIND: DriveKind = DriveKind {
    word: "part",
    names: &["part:disk.img?from=1G&to=5G"],
    what: "some of the bytes of another drive",
    options: "from= and to=",
    parse: wrapped::<Part>,
};

/// The options: the part's beginning, and its end, which is that of the inner drive by default.
#[derive(Clone, Debug)]
struct Part {
    from: u64,
    to: Option<u64>,
}

impl Wrapper for Part {
    fn parse(text: &NameText<'_>) -> Result<Self, ParseDriveUriError> {
        let mut part = Self { from: 0, to: None };
        for (key, value) in text.options() {
            match key {
                "from" => part.from = parse_size("from", value)?,
                "to" => part.to = Some(parse_size("to", value)?),
                _ => return Err(text.unknown(key)),
            }
        }
        let is_empty = part.to.is_some_and(|to| to <= part.from);
        if is_empty || !(part.from | part.to.unwrap_or(0)).is_multiple_of(4096) {
            return Err(ParseDriveUriError::Refused {
                reason: "a part begins and ends at multiples of 4K, and ends behind its beginning"
                    .to_owned(),
                hint: "such as part:disk.img?from=1G&to=5G",
            });
        }
        Ok(part)
    }

    fn open(&self, inner: &DriveSpec, opening: &Opening<'_>) -> Result<Opened, OpenDriveError> {
        let create_size = opening.how.create_size;
        let opened = inner.open(&Opening {
            how: Open {
                create_size: create_size
                    .map(|size| self.to.unwrap_or(self.from.saturating_add(size))),
                ..opening.how
            },
            ..*opening
        })?;
        let size_bytes = opened.device.limits().size_bytes;
        let to = self.to.unwrap_or(size_bytes);
        if to > size_bytes {
            return Err(OpenDriveError::TooSmall {
                drive: inner.to_string(),
                size_bytes,
                option: "to",
                needed_bytes: to,
            });
        }
        // Its requests are those of the inner drive, and counted there.
        Ok(Opened {
            device: Arc::new(PartDrive {
                from: self.from,
                size_bytes: to.saturating_sub(self.from),
                inner: opened.device,
            }),
            kind: KIND.word,
            ..opened
        })
    }

    fn size_bytes(&self, inner: &DriveSpec) -> io::Result<u64> {
        let to = self.to.map_or_else(|| inner.size_bytes(), Ok)?;
        Ok(to.saturating_sub(self.from))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = (self.from > 0).then(|| size_text(self.from));
        // A `?` without options keeps those of the inner drive its own.
        match (&from, self.to) {
            (None, None) => f.write_str("?"),
            _ => write_options(f, [("from", from), ("to", self.to.map(size_text))]),
        }
    }
}

struct PartDrive {
    inner: Arc<dyn BlockDevice>,
    from: u64,
    size_bytes: u64,
}

impl PartDrive {
    /// The same request to the inner drive. One that leaves the part leaves the inner drive as well, which refuses it.
    fn moved(&self, request: Request) -> Request {
        const OUTSIDE: u64 = 1 << 62;
        let end = request.offset.checked_add(request.length);
        let inside = end.is_some_and(|end| end <= self.size_bytes);
        Request {
            offset: if inside {
                self.from + request.offset
            } else {
                OUTSIDE
            },
            ..request
        }
    }
}

impl BlockDevice for PartDrive {
    fn limits(&self) -> Limits {
        Limits {
            size_bytes: self.size_bytes,
            ..self.inner.limits()
        }
    }

    fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
        self.inner.submit(self.moved(request), memory, token, to);
    }

    fn extents(&self, offset: u64, length: u64) -> Vec<Extent> {
        let length = length.min(self.size_bytes.saturating_sub(offset));
        self.inner.extents(self.from.saturating_add(offset), length)
    }
}
