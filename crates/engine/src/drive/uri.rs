//! How drives are named on a command line, in labels and in status: paths and URIs.
//!
//! ```text
//! drive   = spec [ "@" domain ]                      domain: an enclosure or host, [A-Za-z0-9._-]+
//! spec    = path [ "?" file-options ]                /dev/sdb, file.img, ./odd:name.img
//!         | "file:" path [ "?" file-options ]
//!         | "zram:" path [ "?" file-options ]        /dev/zram1
//!         | "mem:" size                              1G
//!         | "slow:" spec "?" rate-options            bandwidth=8M & iops=500 & latency=2ms
//!         | "faulty:" spec [ "?" fault-options ]     fail=eio & nth=7 & times=1 & on=read & bad=1M+4K
//! ```
//!
//! The *last* `?` of a URI starts the options of the outermost kind, so `slow:` can wrap anything
//! that brings its own. In a path, `?`, `@` and `%` are written `%3F`, `%40`, `%25` (an `@` before
//! a later `/` may stand as it is), and any byte may be written `%XX`.

use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use block::{ByteSize, RequestKind};

use super::faulty::{Effect, Trap};

/// A drive as it was named: what it is, and where it is housed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DriveUri {
    /// What it is.
    pub spec: DriveSpec,
    /// The failure domain (`DRIVE@DOMAIN`), such as an enclosure or a host.
    pub domain: Option<String>,
}

/// What a drive is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DriveSpec {
    /// A regular file or a block device.
    File {
        /// Where it is.
        path: PathBuf,
        /// How to do I/O on it.
        options: FileOptions,
    },
    /// A zram device.
    Zram {
        /// Where it is.
        path: PathBuf,
        /// How to do I/O on it.
        options: FileOptions,
    },
    /// This process's memory.
    Mem {
        /// Size in bytes, not zero.
        size_bytes: u64,
    },
    /// Another drive behind one FIFO server.
    Slow {
        /// The drive that holds the bytes.
        inner: Box<Self>,
        /// How fast it appears.
        rate: Rate,
    },
    /// Another drive that fails on request.
    Faulty {
        /// The drive that holds the bytes.
        inner: Box<Self>,
        /// How it fails from the start.
        faults: Faults,
    },
}

/// How to do I/O on a file or device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileOptions {
    /// `backend=`: who does reads, writes and flushes.
    pub backend: Backend,
    /// `direct=`: bypass the page cache where the file can (the default).
    pub direct: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            backend: Backend::Auto,
            direct: true,
        }
    }
}

/// Who does a file drive's reads, writes and flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backend {
    /// io_uring where it works and pays, else threads.
    #[default]
    Auto,
    /// io_uring, or the drive does not open.
    Uring,
    /// `pread` and `pwrite` on a few threads.
    Threads,
}

/// The parameters of `slow:`. At least one is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rate {
    /// `bandwidth=`: bytes per second through the server, not zero.
    pub bandwidth_bytes_per_second: Option<u64>,
    /// `iops=`: requests per second through the server, not zero.
    pub requests_per_second: Option<u64>,
    /// `latency=`: added after the server.
    pub latency: Duration,
}

/// The parameters of `faulty:`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// `fail=`, `nth=`, `times=`, `on=`: which requests fail and how.
    pub trap: Option<Trap>,
    /// `bad=OFFSET+LENGTH`, repeatable: bytes that cannot be read until they are written.
    pub bad: Vec<(u64, u64)>,
}

/// Why a drive's name could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDriveUriError {
    /// Nothing where a drive or path should be.
    #[error(
        "`{uri}` names no drive: give a path such as /dev/sdb or disk.img, or a URI such as mem:1G"
    )]
    Empty {
        /// What was given.
        uri: String,
    },
    /// A kind that is planned.
    #[error(
        "`{kind}:` drives are not supported yet: use a file, a block device, zram:, mem: or slow:"
    )]
    NotYet {
        /// The kind.
        kind: String,
    },
    /// A kind that does not exist.
    #[error(
        "`{kind}:` is not a kind of drive: use file:, zram:, mem:, slow: or faulty:; write ./{kind}:… if it is a file's name"
    )]
    UnknownKind {
        /// The kind.
        kind: String,
    },
    /// An option that this kind of drive does not have.
    #[error("`{kind}:` drives have no option `{key}`: they take {known}")]
    UnknownOption {
        /// The kind.
        kind: &'static str,
        /// The option.
        key: String,
        /// What would be right.
        known: &'static str,
    },
    /// An option's value, or a size, cannot be read.
    #[error("`{key}={value}` cannot be read: write {wanted}")]
    BadValue {
        /// The option.
        key: &'static str,
        /// What was given.
        value: String,
        /// What would be right.
        wanted: &'static str,
    },
    /// `slow:` without anything that slows.
    #[error(
        "`slow:` needs at least one of bandwidth=, iops= and latency=, such as slow:disk.img?bandwidth=8M"
    )]
    NoRate,
    /// Wrappers in wrappers in wrappers.
    #[error(
        "the drive is wrapped more than {NEST_MAX} times: name it with fewer slow: and faulty:"
    )]
    TooDeep,
    /// A character that a domain's name cannot have.
    #[error(
        "`{domain}` is not a name for a failure domain: use letters, digits, `.`, `_` and `-`, or write %40 for an @ in a path"
    )]
    BadDomain {
        /// What was given.
        domain: String,
    },
}

/// How deep `slow:` and `faulty:` may nest: parsing and opening recurse.
const NEST_MAX: usize = 8;

impl FromStr for DriveUri {
    type Err = ParseDriveUriError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (rest, domain) = match text.rsplit_once('@') {
            // An @ inside a directory's name is just a letter.
            Some((rest, domain)) if !domain.contains('/') => (rest, Some(domain)),
            _ => (text, None),
        };
        if let Some(domain) = domain {
            let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            if domain.is_empty() || !domain.bytes().all(good) {
                return Err(ParseDriveUriError::BadDomain {
                    domain: domain.to_owned(),
                });
            }
        }
        Ok(Self {
            spec: DriveSpec::parse(rest, 0)?,
            domain: domain.map(str::to_owned),
        })
    }
}

impl DriveUri {
    /// The same drive with paths made absolute against the current directory, so that the name
    /// means the same to a daemon that runs elsewhere. Symbolic links stay: `/dev/disk/by-id`
    /// names survive a reboot, what they point to does not.
    #[must_use]
    pub fn absolute(&self) -> Self {
        Self {
            spec: self.spec.absolute(),
            domain: self.domain.clone(),
        }
    }
}

impl DriveSpec {
    fn parse(text: &str, depth: usize) -> Result<Self, ParseDriveUriError> {
        if depth > NEST_MAX {
            return Err(ParseDriveUriError::TooDeep);
        }
        let empty = || ParseDriveUriError::Empty {
            uri: text.to_owned(),
        };
        let Some((kind, rest)) = split_kind(text) else {
            let (path, options) = split_options(text);
            return Ok(Self::File {
                path: decode_path(path).ok_or_else(empty)?,
                options: FileOptions::parse("file", options)?,
            });
        };
        let (body, options) = split_options(rest);
        match kind {
            "file" => Ok(Self::File {
                path: decode_path(body).ok_or_else(empty)?,
                options: FileOptions::parse("file", options)?,
            }),
            "zram" => Ok(Self::Zram {
                path: decode_path(body).ok_or_else(empty)?,
                options: FileOptions::parse("zram", options)?,
            }),
            "mem" => {
                if let Some((key, _)) = pairs(options).next() {
                    return Err(unknown("mem", key, "only a size, such as mem:1G"));
                }
                let size_bytes = positive("mem", body, SIZE)?;
                Ok(Self::Mem { size_bytes })
            }
            "slow" => Ok(Self::Slow {
                rate: Rate::parse(options)?,
                inner: Box::new(Self::parse(body, depth + 1)?),
            }),
            "faulty" => Ok(Self::Faulty {
                faults: Faults::parse(options)?,
                inner: Box::new(Self::parse(body, depth + 1)?),
            }),
            "nbd" | "nbd+unix" | "nbds" | "compress" => Err(ParseDriveUriError::NotYet {
                kind: kind.to_owned(),
            }),
            _ => Err(ParseDriveUriError::UnknownKind {
                kind: kind.to_owned(),
            }),
        }
    }

    fn absolute(&self) -> Self {
        let mut spec = self.clone();
        match &mut spec {
            Self::File { path, .. } | Self::Zram { path, .. } => {
                if let Ok(absolute) = std::path::absolute(&*path) {
                    *path = absolute;
                }
            }
            Self::Mem { .. } => {}
            Self::Slow { inner, .. } | Self::Faulty { inner, .. } => **inner = inner.absolute(),
        }
        spec
    }

    /// The file or device that holds the bytes, under all wrappers.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } | Self::Zram { path, .. } => Some(path),
            Self::Mem { .. } => None,
            Self::Slow { inner, .. } | Self::Faulty { inner, .. } => inner.path(),
        }
    }
}

/// Splits `kind:rest`. What begins with `/` or `.`, or has no kind-like word before a colon, is a
/// path.
fn split_kind(text: &str) -> Option<(&str, &str)> {
    let (kind, rest) = text.split_once(':')?;
    let mut bytes = kind.bytes();
    let starts = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase());
    let word =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-".contains(&byte);
    (starts && bytes.all(word)).then_some((kind, rest))
}

fn split_options(text: &str) -> (&str, &str) {
    text.rsplit_once('?').unwrap_or((text, ""))
}

/// `a=1&b=2` in order; a key without `=` has an empty value.
fn pairs(options: &str) -> impl Iterator<Item = (&str, &str)> {
    options
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn unknown(kind: &'static str, key: &str, known: &'static str) -> ParseDriveUriError {
    ParseDriveUriError::UnknownOption {
        kind,
        key: key.to_owned(),
        known,
    }
}

fn bad(key: &'static str, value: &str, wanted: &'static str) -> ParseDriveUriError {
    ParseDriveUriError::BadValue {
        key,
        value: value.to_owned(),
        wanted,
    }
}

const SIZE: &str = "a size above 0, such as 512, 64K or 1.5G";

fn positive(
    key: &'static str,
    value: &str,
    wanted: &'static str,
) -> Result<u64, ParseDriveUriError> {
    match value.parse() {
        Ok(ByteSize(bytes)) if bytes > 0 => Ok(bytes),
        _ => Err(bad(key, value, wanted)),
    }
}

impl FileOptions {
    fn parse(kind: &'static str, options: &str) -> Result<Self, ParseDriveUriError> {
        let mut parsed = Self::default();
        for (key, value) in pairs(options) {
            match key {
                "backend" => {
                    parsed.backend = match value {
                        "auto" => Backend::Auto,
                        "uring" => Backend::Uring,
                        "threads" => Backend::Threads,
                        _ => return Err(bad("backend", value, "auto, uring or threads")),
                    }
                }
                "direct" => {
                    parsed.direct = match value {
                        "on" => true,
                        "off" => false,
                        _ => return Err(bad("direct", value, "on or off")),
                    }
                }
                _ => {
                    return Err(unknown(
                        kind,
                        key,
                        "backend= and direct=; write %3F for a ? in a path",
                    ));
                }
            }
        }
        Ok(parsed)
    }
}

impl Rate {
    fn parse(options: &str) -> Result<Self, ParseDriveUriError> {
        let mut rate = Self::default();
        for (key, value) in pairs(options) {
            match key {
                "bandwidth" => {
                    rate.bandwidth_bytes_per_second = Some(positive("bandwidth", value, SIZE)?);
                }
                "iops" => {
                    let iops = value.parse().ok().filter(|&iops: &u64| iops > 0);
                    let wanted = "a whole number above 0, such as 500";
                    rate.requests_per_second =
                        Some(iops.ok_or_else(|| bad("iops", value, wanted))?);
                }
                "latency" => {
                    let wanted = "a time up to an hour, such as 2ms, 150us or 1s";
                    rate.latency =
                        parse_duration(value).ok_or_else(|| bad("latency", value, wanted))?;
                }
                _ => return Err(unknown("slow", key, "bandwidth=, iops= and latency=")),
            }
        }
        if rate == Self::default() && !options.contains("latency") {
            return Err(ParseDriveUriError::NoRate);
        }
        Ok(rate)
    }
}

/// Times that a test can wait for; anything longer is a slip of the pen.
const DURATION_MAX: Duration = Duration::from_secs(3600);

fn parse_duration(text: &str) -> Option<Duration> {
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

impl Faults {
    fn parse(options: &str) -> Result<Self, ParseDriveUriError> {
        let mut faults = Self::default();
        let mut trap = Trap::default();
        let mut armed = false;
        for (key, value) in pairs(options) {
            match key {
                "fail" => {
                    armed = true;
                    trap.effect = match value {
                        "eio" => Effect::Medium,
                        "enospc" => Effect::Full,
                        "gone" => Effect::Gone,
                        "hang" => Effect::Hang,
                        _ => return Err(bad("fail", value, "eio, enospc, gone or hang")),
                    };
                }
                "nth" => {
                    let nth = value.parse().ok().filter(|&nth: &u64| nth > 0);
                    trap.nth = nth.ok_or_else(|| bad("nth", value, "a count from 1"))?;
                }
                "times" => {
                    trap.times = match value {
                        "all" => None,
                        _ => {
                            let times = value.parse().ok();
                            Some(times.ok_or_else(|| bad("times", value, "a count or all"))?)
                        }
                    };
                }
                "on" => {
                    trap.on = match value {
                        "any" => None,
                        "read" => Some(RequestKind::Read),
                        "write" => Some(RequestKind::Write),
                        "flush" => Some(RequestKind::Flush),
                        "trim" => Some(RequestKind::Trim),
                        "zero" => Some(RequestKind::WriteZeroes),
                        _ => return Err(bad("on", value, "any, read, write, flush, trim or zero")),
                    };
                }
                "bad" => {
                    let wanted = "OFFSET+LENGTH in sizes, such as 1M+4K";
                    let range = value.split_once('+').and_then(|(offset, length)| {
                        let ByteSize(offset) = offset.parse().ok()?;
                        let ByteSize(length) = length.parse().ok()?;
                        offset.checked_add(length)?;
                        Some((offset, length))
                    });
                    faults
                        .bad
                        .push(range.ok_or_else(|| bad("bad", value, wanted))?);
                }
                _ => return Err(unknown("faulty", key, "fail=, nth=, times=, on= and bad=")),
            }
        }
        faults.trap = armed.then_some(trap);
        Ok(faults)
    }
}

/// Decodes `%XX`; a `%` that is not followed by two hexadecimal digits stands for itself.
fn decode_path(text: &str) -> Option<PathBuf> {
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

fn write_path(path: &Path, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '?' | '@' | '%' => write!(f, "%{:02X}", u32::from(letter))?,
                _ if letter.is_ascii_control() => write!(f, "%{:02X}", u32::from(letter))?,
                _ => f.write_char(letter)?,
            }
        }
        for byte in chunk.invalid() {
            write!(f, "%{byte:02X}")?;
        }
    }
    Ok(())
}

/// The size in the largest unit that divides it, as it can be read back: `64K`, `1G`, `1000`.
fn write_size(bytes: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (unit, shift) in [('P', 50), ('T', 40), ('G', 30), ('M', 20), ('K', 10)] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return write!(f, "{}{unit}", bytes >> shift);
        }
    }
    write!(f, "{bytes}")
}

fn write_duration(duration: Duration, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let nanoseconds = duration.as_nanos();
    for (unit, size) in [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
        if nanoseconds.is_multiple_of(size) {
            return write!(f, "{}{unit}", nanoseconds / size);
        }
    }
    write!(f, "{nanoseconds}ns")
}

/// Writes `?` before the first option and `&` before the others.
struct Options(bool);

impl Options {
    fn next(&mut self, f: &mut fmt::Formatter<'_>, key: &str) -> fmt::Result {
        write!(f, "{}{key}=", if self.0 { '&' } else { '?' })?;
        self.0 = true;
        Ok(())
    }
}

impl fmt::Display for FileOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options = Options(false);
        match self.backend {
            Backend::Auto => {}
            Backend::Uring => {
                options.next(f, "backend")?;
                f.write_str("uring")?;
            }
            Backend::Threads => {
                options.next(f, "backend")?;
                f.write_str("threads")?;
            }
        }
        if !self.direct {
            options.next(f, "direct")?;
            f.write_str("off")?;
        }
        Ok(())
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options = Options(false);
        if let Some(bandwidth) = self.bandwidth_bytes_per_second {
            options.next(f, "bandwidth")?;
            write_size(bandwidth, f)?;
        }
        if let Some(iops) = self.requests_per_second {
            options.next(f, "iops")?;
            write!(f, "{iops}")?;
        }
        if self.latency != Duration::ZERO || !options.0 {
            options.next(f, "latency")?;
            write_duration(self.latency, f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options = Options(false);
        if let Some(trap) = &self.trap {
            options.next(f, "fail")?;
            f.write_str(match trap.effect {
                Effect::Medium => "eio",
                Effect::Full => "enospc",
                Effect::Gone => "gone",
                Effect::Hang => "hang",
            })?;
            options.next(f, "nth")?;
            write!(f, "{}", trap.nth)?;
            options.next(f, "times")?;
            match trap.times {
                Some(times) => write!(f, "{times}")?,
                None => f.write_str("all")?,
            }
            options.next(f, "on")?;
            f.write_str(match trap.on {
                None => "any",
                Some(RequestKind::Read) => "read",
                Some(RequestKind::Write) => "write",
                Some(RequestKind::Flush) => "flush",
                Some(RequestKind::Trim) => "trim",
                Some(RequestKind::WriteZeroes) => "zero",
            })?;
        }
        for &(offset, length) in &self.bad {
            options.next(f, "bad")?;
            write_size(offset, f)?;
            f.write_char('+')?;
            write_size(length, f)?;
        }
        // An empty `?` keeps the wrapped drive's own options its own.
        if options.0 { Ok(()) } else { f.write_char('?') }
    }
}

impl fmt::Display for DriveSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, options } => {
                let start = path.as_os_str().as_bytes();
                if !start.starts_with(b"/") && start.contains(&b':') {
                    // A relative path that could be taken for a kind of drive.
                    f.write_str("file:")?;
                }
                write_path(path, f)?;
                write!(f, "{options}")
            }
            Self::Zram { path, options } => {
                f.write_str("zram:")?;
                write_path(path, f)?;
                write!(f, "{options}")
            }
            Self::Mem { size_bytes } => {
                f.write_str("mem:")?;
                write_size(*size_bytes, f)
            }
            Self::Slow { inner, rate } => write!(f, "slow:{inner}{rate}"),
            Self::Faulty { inner, faults } => write!(f, "faulty:{inner}{faults}"),
        }
    }
}

/// The canonical form: parsing it gives the same value.
impl fmt::Display for DriveUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.spec)?;
        match &self.domain {
            Some(domain) => write!(f, "@{domain}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn canonical_forms_are_what_people_type() {
        for (typed, canonical) in [
            ("/dev/sdb", "/dev/sdb"),
            ("file.img@shelf-1", "file.img@shelf-1"),
            ("file:/a/b.img", "/a/b.img"),
            ("file:odd:name", "file:odd:name"),
            ("./odd:name", "file:./odd:name"),
            ("/dev/disk@home/x", "/dev/disk%40home/x"),
            ("/a%3Fb%40c%25d", "/a%3Fb%40c%25d"),
            ("x%zz", "x%25zz"),
            ("f?backend=uring&direct=off", "f?backend=uring&direct=off"),
            ("f?direct=on&backend=auto", "f"),
            ("mem:1024M@h", "mem:1G@h"),
            ("zram:/dev/zram1", "zram:/dev/zram1"),
            (
                "slow:a.img?latency=2ms&bandwidth=8M&iops=500",
                "slow:a.img?bandwidth=8M&iops=500&latency=2ms",
            ),
            (
                "slow:file:a?direct=off?bandwidth=8MiB@d",
                "slow:a?direct=off?bandwidth=8M@d",
            ),
            ("slow:mem:1G?latency=0.5ms", "slow:mem:1G?latency=500us"),
            ("faulty:mem:64M", "faulty:mem:64M?"),
            (
                "faulty:mem:64M?bad=1M+4K&fail=hang&on=write",
                "faulty:mem:64M?fail=hang&nth=1&times=1&on=write&bad=1M+4K",
            ),
        ] {
            let uri: DriveUri = typed
                .parse()
                .unwrap_or_else(|error| panic!("{typed}: {error}"));
            assert_eq!(uri.to_string(), canonical, "{typed}");
            assert_eq!(canonical.parse(), Ok(uri), "{typed}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_the_reason() {
        for (typed, message) in [
            ("", "names no drive"),
            ("slow:?bandwidth=8M", "names no drive"),
            ("nbd://host/export", "`nbd:` drives are not supported yet"),
            (
                "compress:f?physical=1G",
                "`compress:` drives are not supported yet",
            ),
            (
                "slow:nbd+unix:///x?iops=1",
                "`nbd+unix:` drives are not supported yet",
            ),
            ("quick:f", "not a kind of drive"),
            ("mem:", "cannot be read"),
            ("mem:0", "cannot be read"),
            ("mem:1G?size=2", "no option `size`"),
            ("f?size=2", "no option `size`"),
            ("f?backend=spdk", "`backend=spdk`"),
            ("slow:f", "needs at least one"),
            ("slow:f?iops=0", "`iops=0`"),
            ("slow:f?bandwidth=fast", "`bandwidth=fast`"),
            ("slow:f?latency=2", "`latency=2`"),
            ("slow:f?latency=-2ms", "`latency=-2ms`"),
            ("slow:f?latency=1e9s", "`latency=1e9s`"),
            ("faulty:f?bad=1M", "`bad=1M`"),
            ("f@", "not a name for a failure domain"),
            ("f@rack 1", "not a name for a failure domain"),
        ] {
            let error = typed.parse::<DriveUri>().expect_err(typed).to_string();
            assert!(error.contains(message), "{typed}: {error}");
        }
        let deep = "slow:".repeat(100_000) + "f";
        assert!(deep.parse::<DriveUri>().is_err());
        let deep = "faulty:".repeat(NEST_MAX + 1) + "f";
        assert_eq!(deep.parse::<DriveUri>(), Err(ParseDriveUriError::TooDeep));
    }

    #[test]
    fn absolute_names_keep_the_wrappers_and_the_domain() {
        let uri: DriveUri = "slow:a.img?iops=9@d".parse().unwrap();
        let here = std::env::current_dir().unwrap();
        let absolute = uri.absolute();
        assert_eq!(absolute.spec.path(), Some(&*here.join("a.img")));
        assert_eq!(absolute.domain.as_deref(), Some("d"));
        assert!(absolute.to_string().starts_with("slow:/"));
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_display_reads_back(
            text in "(file:|mem:|slow:|faulty:|zram:|nbd:)*[a-z0-9./%?@&=:+ \\PC]{0,40}(\\?(bandwidth=[0-9]{1,5}K?|latency=[0-9]{1,4}ms|iops=[0-9]{1,3}|bad=[0-9]M\\+4K|fail=(eio|hang)|direct=off)(&iops=7|&on=read|&times=all)?)?(@[a-z]{1,3})?"
        ) {
            if let Ok(uri) = text.parse::<DriveUri>() {
                let canonical = uri.to_string();
                prop_assert_eq!(canonical.parse::<DriveUri>(), Ok(uri), "{}", canonical);
            }
        }

        #[test]
        fn every_path_survives_the_round_trip(bytes in proptest::collection::vec(1_u8.., 1..30)) {
            let path = PathBuf::from(OsString::from_vec(bytes));
            let spec = DriveSpec::Slow {
                inner: Box::new(DriveSpec::File { path, options: FileOptions::default() }),
                rate: Rate { requests_per_second: Some(3), ..Rate::default() },
            };
            let uri = DriveUri { spec, domain: None };
            prop_assert_eq!(uri.to_string().parse::<DriveUri>(), Ok(uri));
        }
    }
}
