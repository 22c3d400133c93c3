//! Writes drives' names, in the form that parses to the same drive.

use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use block::RequestKind;

use super::super::faulty::Effect;
use super::{Backend, Budget, DriveSpec, DriveUri, Faults, FileOptions, Rate};

fn write_path(path: &Path, f: &mut impl fmt::Write) -> fmt::Result {
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

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options = Options(false);
        options.next(f, "physical")?;
        write_size(self.physical_bytes, f)?;
        if let Some(exposed_bytes) = self.exposed_bytes {
            options.next(f, "exposed")?;
            write_size(exposed_bytes, f)?;
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
                Some(RequestKind::Discard) => "discard",
                Some(RequestKind::WriteZeroes) => "zero",
            })?;
        }
        if let Some(file) = &self.only_while {
            options.next(f, "while")?;
            let mut path = String::new();
            write_path(file, &mut path)?;
            // In an option `&` would end the path.
            f.write_str(&path.replace('&', "%26"))?;
        }
        for &(offset, length) in &self.bad {
            options.next(f, "bad")?;
            write_size(offset, f)?;
            f.write_char('+')?;
            write_size(length, f)?;
        }
        // An empty `?` is written, too: without it the wrapped drive's options would be taken for
        // the wrapper's.
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
            Self::Volume { pool, volume } => write!(f, "volume:{pool}/{volume}"),
            Self::Slow { inner, rate } => write!(f, "slow:{inner}{rate}"),
            Self::Compress { inner, budget } => write!(f, "compress:{inner}{budget}"),
            Self::Faulty { inner, faults } => write!(f, "faulty:{inner}{faults}"),
        }
    }
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
