//! Parses drives' names.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use block::{ByteSize, RequestKind};

use super::super::faulty::{Effect, Trap};
use super::{
    Backend, Budget, DriveSpec, DriveUri, Faults, FileOptions, ParseDriveUriError, Rate, kinds,
};

/// How deep `slow:`, `compress:` and `faulty:` may nest: parsing and opening recurse.
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
                    return Err(unknown("mem", key));
                }
                let size_bytes = positive("mem", body, SIZE)?;
                Ok(Self::Mem { size_bytes })
            }
            "volume" => {
                if let Some((key, _)) = pairs(options).next() {
                    return Err(unknown("volume", key));
                }
                let whole = |part: &str| !part.is_empty() && !part.contains('/');
                match body.split_once('/') {
                    Some((pool, volume)) if whole(pool) && whole(volume) => Ok(Self::Volume {
                        pool: pool.to_owned(),
                        volume: volume.to_owned(),
                    }),
                    _ => Err(ParseDriveUriError::NoVolume {
                        name: body.to_owned(),
                    }),
                }
            }
            "slow" => Ok(Self::Slow {
                rate: Rate::parse(options)?,
                inner: Box::new(Self::parse(body, depth + 1)?),
            }),
            "compress" => Ok(Self::Compress {
                budget: Budget::parse(options)?,
                inner: Box::new(Self::parse(body, depth + 1)?),
            }),
            "faulty" => Ok(Self::Faulty {
                faults: Faults::parse(options)?,
                inner: Box::new(Self::parse(body, depth + 1)?),
            }),
            "nbd" | "nbd+unix" | "nbds" => Err(ParseDriveUriError::NotYet {
                kind: kind.to_owned(),
            }),
            _ => Err(ParseDriveUriError::UnknownKind {
                kind: kind.to_owned(),
            }),
        }
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

fn unknown(kind: &'static str, key: &str) -> ParseDriveUriError {
    ParseDriveUriError::UnknownOption {
        kind,
        key: key.to_owned(),
        known: kinds::options(kind),
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
                    return Err(unknown(kind, key));
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
                _ => return Err(unknown("slow", key)),
            }
        }
        if rate == Self::default() && !options.contains("latency") {
            return Err(ParseDriveUriError::NoRate);
        }
        Ok(rate)
    }
}

impl Budget {
    fn parse(options: &str) -> Result<Self, ParseDriveUriError> {
        let mut physical = None;
        let mut exposed_bytes = None;
        for (key, value) in pairs(options) {
            match key {
                "physical" => physical = Some(positive("physical", value, SIZE)?),
                "exposed" => exposed_bytes = Some(positive("exposed", value, SIZE)?),
                _ => return Err(unknown("compress", key)),
            }
        }
        let physical_bytes = physical.ok_or(ParseDriveUriError::NoBudget)?;
        match exposed_bytes {
            Some(exposed_bytes) if exposed_bytes < physical_bytes => {
                Err(ParseDriveUriError::ExposesLess {
                    exposed_bytes,
                    physical_bytes,
                })
            }
            _ => Ok(Self {
                physical_bytes,
                exposed_bytes,
            }),
        }
    }
}

/// The longest time that a test can wait for; anything longer is a typing error.
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
                        "discard" => Some(RequestKind::Discard),
                        "zero" => Some(RequestKind::WriteZeroes),
                        _ => {
                            let wanted = "any, read, write, flush, trim, discard or zero";
                            return Err(bad("on", value, wanted));
                        }
                    };
                }
                "while" => {
                    let file = decode_path(value);
                    faults.only_while = Some(file.ok_or_else(|| bad("while", value, "a file"))?);
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
                _ => {
                    return Err(unknown("faulty", key));
                }
            }
        }
        faults.trap = armed.then_some(trap);
        Ok(faults)
    }
}

/// Decodes `%XX`; a `%` that is not followed by two hexadecimal digits is kept.
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
