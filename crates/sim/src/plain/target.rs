//! A plain array by name, for measurements from outside: bursts of requests in, times out.
//!
//! ```text
//! [sim:]SCHEME[?KEY=VALUE[&KEY=VALUE]…]        raid5:la:6c?chunk=8K&disk=9lzx&fail=4
//!
//!   chunk=8K            cell=256K              disk=9lzx|10k|15k|nearline|ssd
//!   cache=off|read|writeback                   memory=4M        size of that cache
//!   mirror=first|alternate|least-queued        small=cheaper|read-modify|reconstruct
//!   fail=SEAT           shared=SEAT:SEAT       two seats on one spindle
//!   slow=SEAT:SPEED     turn=SEAT:SPEED        seek=SEAT:SPEED   all, turns or seeks of one drive: 0.5 is half as fast
//!   drive=1G            bytes of each drive    queue=fifo|sstf|clook|sptf
//!   noise=PERCENT       of each answer's time  foreign=PERCENT   requests of others, of ours
//!   seed=N              of noise and of foreign requests
//! ```

use std::borrow::Cow;

use block::{ByteSize, Hint, Instant, Request, RequestKind, Seat};
use rand::{RngExt as _, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{CacheOptions, MirrorReads, PlainArray, PlainError, PlainOptions, SmallWrites};
use crate::model::{Model, ModelOptions, Order, Preset, Slowed, preset};

/// A write-back cache begins to write when half of it waits to be written.
const DESTAGE_PERCENT: u64 = 50;
const BLOCK: u64 = 4096;

/// Why a name does not give a plain array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The array.
    #[error("{0}")]
    Plain(#[from] PlainError),
    /// An option.
    #[error("`{key}={value}` is not an option of a simulated array")]
    Option {
        /// Its name.
        key: String,
        /// Its value.
        value: String,
        /// The values that are valid.
        hint: &'static str,
    },
    /// Only disks have turns and seeks.
    #[error("drives of kind {drive} do not turn or seek")]
    NoDisk {
        /// The kind of the drives.
        drive: &'static str,
    },
    /// The array cannot lose that drive.
    #[error("the array has {drives} drives and no redundancy for seat {seat} to fail")]
    Seat {
        /// The seat.
        seat: u16,
        /// Drives.
        drives: u16,
    },
}

impl Hint for TargetError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Plain(error) => error.hint(),
            Self::Option { hint, .. } => Some((*hint).into()),
            Self::NoDisk { .. } => Some("use slow".into()),
            Self::Seat { .. } => None,
        }
    }
}

/// A simulated volume that is measured from outside.
#[derive(Clone, Debug)]
pub struct Target {
    array: PlainArray,
    rng: ChaCha8Rng,
    noise: f64,
    foreign: f64,
    tokens: u64,
}

/// The content of the text, before the array is created.
struct Parsed {
    options: PlainOptions,
    fail: Vec<u16>,
    /// Seats, and the thousandths to which all times are scaled.
    slow: Vec<(u16, u64)>,
    /// Seats, and the thousandths to which the times of turns and of seeks are scaled.
    scaled: Vec<(u16, u64, u64)>,
    shared: Vec<(u16, u16)>,
    noise: f64,
    foreign: f64,
    seed: u64,
}

fn parse(text: &str) -> Result<Parsed, TargetError> {
    let text = text.strip_prefix("sim:").unwrap_or(text);
    let (scheme, rest) = text.split_once('?').unwrap_or((text, ""));
    let drive = preset("9lzx").expect("is a preset");
    let mut parsed = Parsed {
        options: PlainOptions::new(scheme, drive),
        fail: Vec::new(),
        slow: Vec::new(),
        scaled: Vec::new(),
        shared: Vec::new(),
        noise: 0.0,
        foreign: 0.0,
        seed: 0,
    };
    let mut cache = "off";
    let mut memory = 4 << 20;
    let mut queue = None;
    for pair in rest.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let wrong = |hint: &'static str| TargetError::Option {
            key: key.to_owned(),
            value: value.to_owned(),
            hint,
        };
        let size = || -> Result<u64, TargetError> {
            let size: ByteSize = value
                .parse()
                .map_err(|_| wrong("give a size, such as 64K"))?;
            match size.0 {
                bytes if bytes >= BLOCK && bytes.is_multiple_of(BLOCK) => Ok(bytes),
                _ => Err(wrong("give a multiple of 4K")),
            }
        };
        let seat = |text: &str| -> Result<u16, TargetError> {
            text.parse()
                .map_err(|_| wrong("give the number of a seat, from 0"))
        };
        let percent = || -> Result<f64, TargetError> {
            let percent: f64 = value.parse().map_err(|_| wrong("give percent, 0 to 90"))?;
            match percent {
                0.0..=90.0 => Ok(percent / 100.0),
                _ => Err(wrong("give percent, 0 to 90")),
            }
        };
        let speed = || -> Result<(u16, u64), TargetError> {
            let hint = "give SEAT:SPEED, such as 2:0.5 for half the speed";
            let (at, speed) = value.split_once(':').ok_or_else(|| wrong(hint))?;
            let speed: f64 = speed.parse().map_err(|_| wrong(hint))?;
            if !(0.01..=100.0).contains(&speed) {
                return Err(wrong(hint));
            }
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "10 to 100,000"
            )]
            let thousandths = (1000.0 / speed).round() as u64;
            Ok((seat(at)?, thousandths))
        };
        match key {
            "chunk" => parsed.options.chunk_bytes = size()?,
            "cell" => parsed.options.cell_bytes = Some(size()?),
            "drive" => parsed.options.drive_bytes = Some(size()?),
            "disk" => {
                parsed.options.drive =
                    preset(value).ok_or_else(|| wrong("use 9lzx, 10k, 15k, nearline or ssd"))?;
            }
            "queue" => {
                let order: Order = value
                    .parse()
                    .map_err(|_| wrong("use fifo, sstf, clook or sptf"))?;
                queue = Some(order);
            }
            "cache" => {
                cache = ["off", "read", "writeback"]
                    .into_iter()
                    .find(|&known| known == value)
                    .ok_or_else(|| wrong("use off, read or writeback"))?;
            }
            "memory" => memory = size()?,
            "mirror" => {
                parsed.options.mirror_reads = value
                    .parse::<MirrorReads>()
                    .map_err(|_| wrong("use first, alternate or least-queued"))?;
            }
            "small" => {
                parsed.options.small_writes = value
                    .parse::<SmallWrites>()
                    .map_err(|_| wrong("use cheaper, read-modify or reconstruct"))?;
            }
            "fail" => parsed.fail.push(seat(value)?),
            "slow" => parsed.slow.push(speed()?),
            "turn" => {
                let (seat, turn) = speed()?;
                parsed.scaled.push((seat, turn, 1000));
            }
            "seek" => {
                let (seat, seek) = speed()?;
                parsed.scaled.push((seat, 1000, seek));
            }
            "shared" => {
                let hint = "give SEAT:SEAT, such as 0:1";
                let (kept, gone) = value.split_once(':').ok_or_else(|| wrong(hint))?;
                parsed.shared.push((seat(kept)?, seat(gone)?));
            }
            "noise" => parsed.noise = percent()?,
            "foreign" => parsed.foreign = percent()?,
            "seed" => parsed.seed = value.parse().map_err(|_| wrong("give a number"))?,
            _ => {
                return Err(wrong(
                    "options are chunk, cell, disk, drive, queue, cache, memory, mirror, small, fail, slow, turn, seek, shared, noise, foreign, seed",
                ));
            }
        }
    }
    if !parsed.scaled.is_empty() && !matches!(parsed.options.drive.options, ModelOptions::Disk(_)) {
        let drive = parsed.options.drive.name;
        return Err(TargetError::NoDisk { drive });
    }
    if let Some(order) = queue {
        parsed.options.drive = parsed.options.drive.with_queue(order, 32);
    }
    parsed.options.cache = match cache {
        "read" => CacheOptions::Read { bytes: memory },
        "writeback" => CacheOptions::WriteBack {
            bytes: memory,
            destage_percent: DESTAGE_PERCENT,
        },
        _ => CacheOptions::Off,
    };
    Ok(parsed)
}

impl Target {
    /// The array that `text` names.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn open(text: &str) -> Result<Self, TargetError> {
        let parsed = parse(text)?;
        let geometry = parsed.options.geometry()?;
        let drives = geometry.layout().drives();
        let of_array = |seat: u16| match seat < drives {
            true => Ok(Seat(seat)),
            false => Err(TargetError::Seat { seat, drives }),
        };
        let mut presets = vec![parsed.options.drive.clone(); usize::from(drives)];
        for &(seat, turn, seek) in &parsed.scaled {
            let drive = &mut presets[of_array(seat)?.index()];
            *drive = drive.clone().with_times(turn, seek);
        }
        let mut models: Vec<Box<dyn Model>> = presets.iter().map(Preset::build).collect();
        for &(seat, thousandths) in &parsed.slow {
            let seat = of_array(seat)?.index();
            models[seat] = Box::new(Slowed::new(presets[seat].build(), thousandths));
        }
        let mut array = PlainArray::with_drives(&parsed.options, models)?;
        let tolerated = geometry.code().tolerance();
        for (count, &seat) in parsed.fail.iter().enumerate() {
            if count >= usize::from(tolerated) {
                return Err(TargetError::Seat { seat, drives });
            }
            array.fail(Instant::ZERO, of_array(seat)?);
        }
        for &(kept, gone) in &parsed.shared {
            array.share_spindle(of_array(gone)?, of_array(kept)?, 0);
        }
        Ok(Self {
            array,
            rng: ChaCha8Rng::seed_from_u64(parsed.seed),
            noise: parsed.noise,
            foreign: parsed.foreign,
            tokens: 0,
        })
    }

    /// The array.
    #[must_use]
    pub const fn array(&self) -> &PlainArray {
        &self.array
    }

    /// Carries out a burst: submits all requests now. Returns for each request the nanoseconds until it ended. On
    /// return none of them is in the array, though a cache may still have data to write.
    pub fn burst(&mut self, requests: &[Request]) -> Vec<u64> {
        let begin = self.array.now();
        let first = self.tokens;
        let mut foreign = 0;
        for (at, request) in requests.iter().enumerate() {
            if self.foreign > 0.0 && self.rng.random::<f64>() < self.foreign {
                // Requests of others: each reads one block somewhere. They are queued among ours, and their times are
                // not returned.
                let blocks = self.array.capacity_bytes() / BLOCK;
                let read = Request {
                    kind: RequestKind::Read,
                    offset: self.rng.random_range(0..blocks) * BLOCK,
                    length: BLOCK,
                    fua: false,
                };
                self.array.handle_request(begin, u64::MAX, read);
                foreign += 1;
            }
            self.array
                .handle_request(begin, first + at as u64, *request);
        }
        self.tokens += requests.len() as u64;
        let mut times = vec![0; requests.len()];
        let mut open = requests.len() + foreign;
        while open > 0 {
            while let Some((token, _)) = self.array.poll_done() {
                open -= 1;
                let index = usize::try_from(token.wrapping_sub(first)).unwrap_or(usize::MAX);
                if let Some(time) = times.get_mut(index) {
                    *time = self.array.now().0 - begin.0;
                }
            }
            match self.array.poll_timeout() {
                Some(at) if open > 0 => self.array.handle_timeout(at),
                _ => break,
            }
        }
        if self.noise > 0.0 {
            for time in &mut times {
                // The sum of twelve uniform numbers is close to a Gaussian one.
                let gauss: f64 = (0..12).map(|_| self.rng.random::<f64>()).sum::<f64>() - 6.0;
                let factor = (1.0 + self.noise * gauss).max(0.05);
                #[expect(
                    clippy::cast_precision_loss,
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a time times a factor near 1"
                )]
                let noisy = (*time as f64 * factor) as u64;
                *time = noisy;
            }
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use block::Full;

    use super::*;

    #[test]
    fn names_say_what_is_wrong_with_them() {
        for (text, word) in [
            ("raid5:6c?chunk=5", "multiple of 4K"),
            ("raid5:6c?disk=tape", "9lzx"),
            ("raid5:6c?speed=2", "options are"),
            ("raid5:6c?slow=2", "SEAT:SPEED"),
            ("raid5:6c?seek=2:fast", "SEAT:SPEED"),
            ("raid5:6c?turn=6:0.5", "6 drives"),
            ("raid5:6c?disk=ssd&turn=1:0.5", "do not turn"),
            ("raid0:6c?fail=1", "no redundancy"),
            ("raid5:6c?fail=1&fail=2", "no redundancy"),
            ("raid5:6c?slow=6:0.5", "6 drives"),
            ("raid5:x", "raid5:x"),
        ] {
            let error = Full(Target::open(text).unwrap_err()).to_string();
            assert!(error.contains(word) || word == "raid5:x", "{text}: {error}");
        }
    }

    #[test]
    fn a_burst_on_one_drive_takes_as_long_as_it_has_requests() {
        let mut target = Target::open("sim:raid0:4c?chunk=64K&disk=9lzx").unwrap();
        let read = |offset: u64| Request {
            kind: RequestKind::Read,
            offset,
            length: BLOCK,
            fua: false,
        };
        let mut mean = |stride: u64| -> u64 {
            (0..20)
                .map(|round| {
                    let at = |request: u64| (request * 7919 + round * 104_729) % 30_000;
                    let burst: Vec<Request> =
                        (0..8).map(|request| read(at(request) * stride)).collect();
                    target.burst(&burst).into_iter().max().unwrap()
                })
                .sum()
        };
        let (one, all) = (mean(4 << 16), mean((4 << 16) + (1 << 16)));
        assert!(
            one * 10 > all * 18,
            "{one} ns on one drive, {all} ns on all"
        );
    }
}
