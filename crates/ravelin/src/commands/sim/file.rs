//! The file of `ravelin sim run`: it is read, checked, and made into an array, a load and faults, before anything runs.
//!
//! Errors name the place in the file. `docs/sim-run.md` has the tables and three examples.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use array::pool::{FILL_ORDERS, FillOrder};
use block::{ByteSize, Full, Seat};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use sim::load::trace::{self, Record};
use sim::load::{Access, Arrivals, Load, LoadOptions, Target};
use sim::model::disk::DiskCacheOptions;
use sim::model::{ModelOptions, PRESETS, Preset, Slowed, preset};
use sim::plain::rebuild::{CellOrder, ReadColumns, RebuildOptions};
use sim::plain::{CacheOptions, PlainArray, PlainOptions, ServersOptions};
use sim::{StudyOptions, StudyVolume};
use toml::Spanned;

use super::super::common::{Failure, parsed};
use super::machine::Machine;

/// Virtual seconds that a run may take. A count of nanoseconds would overflow after some hundreds of years.
const SECONDS_MAX: f64 = 1e9;

/// A checked file.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) machine: Machine,
    pub(super) load: Load,
    /// Virtual nanoseconds that are run and not counted.
    pub(super) warm_up_ns: u64,
    /// Virtual nanoseconds that are counted.
    pub(super) run_ns: u64,
    pub(super) interval_ns: u64,
    /// In the order of their times.
    pub(super) faults: Vec<Fault>,
    pub(super) seed: u64,
    pub(super) about: String,
}

/// A drive that fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    /// After the end of the warm-up.
    pub(super) at_ns: u64,
    pub(super) seat: Seat,
    pub(super) rebuild: Rebuild,
}

/// How the contents of the drive are rebuilt.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rebuild {
    /// By the plain array, if at all.
    Plain(Option<RebuildOptions>),
    /// By the pool, in this order.
    Pool(&'static dyn FillOrder),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    model: Option<Spanned<String>>,
    seconds: Spanned<f64>,
    warm_up: Option<Spanned<f64>>,
    interval: Option<Spanned<f64>>,
    seed: Option<u64>,
    drives: Drives,
    array: ArrayTable,
    work: Option<Work>,
    #[serde(default)]
    fault: Vec<FaultTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Drives {
    preset: Spanned<String>,
    count: Option<Spanned<u16>>,
    size: Option<Spanned<Size>>,
    queue: Option<Spanned<String>>,
    depth: Option<Spanned<usize>>,
    write_cache: Option<Spanned<Size>>,
    read_cache: Option<Spanned<bool>>,
    #[serde(default)]
    slow: Vec<Slow>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Slow {
    seat: Spanned<u16>,
    speed: Spanned<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArrayTable {
    scheme: Spanned<String>,
    chunk: Option<Spanned<Size>>,
    cell: Option<Spanned<Size>>,
    volume: Option<Spanned<Size>>,
    fill: Option<Spanned<f64>>,
    mirror_reads: Option<Spanned<String>>,
    small_writes: Option<Spanned<String>>,
    cache: Option<Spanned<String>>,
    cache_size: Option<Spanned<Size>>,
    destage: Option<Spanned<u64>>,
    controller_us: Option<Spanned<f64>>,
    link: Option<Spanned<Size>>,
    parity: Option<Spanned<Size>>,
    journal: Option<Spanned<bool>>,
    spares: Option<Spanned<u16>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Work {
    clients: Option<Spanned<u32>>,
    think_us: Option<Spanned<f64>>,
    rate: Option<Spanned<f64>>,
    arrivals: Option<Spanned<String>>,
    trace: Option<Spanned<PathBuf>>,
    access: Option<Spanned<String>>,
    streams: Option<Spanned<u32>>,
    hot_accesses: Option<Spanned<u32>>,
    hot_space: Option<Spanned<u32>>,
    exponent: Option<Spanned<f64>>,
    reads: Option<Spanned<u32>>,
    size: Option<Spanned<Size>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultTable {
    at: Spanned<f64>,
    fail: Spanned<u16>,
    rebuild: Option<Spanned<String>>,
    window: Option<Spanned<usize>>,
    step: Option<Spanned<Size>>,
    read: Option<Spanned<String>>,
    rate: Option<Spanned<Size>>,
}

/// A number of bytes: a number, or a text such as `64K`.
#[derive(Clone, Copy, Debug)]
struct Size(u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sizes;
        impl Visitor<'_> for Sizes {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"64K\" or a number of bytes")
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                let bytes = u64::try_from(bytes);
                bytes
                    .map(Size)
                    .map_err(|_| E::custom("a size is not negative"))
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                let size: ByteSize = parsed(text).map_err(E::custom)?;
                Ok(Size(size.0))
            }
        }
        deserializer.deserialize_any(Sizes)
    }
}

/// A file's text and name, for errors that name a place.
struct Text<'a> {
    name: &'a Path,
    text: &'a str,
}

impl Text<'_> {
    /// The error: file, line, column, what is wrong.
    fn wrong(&self, span: Range<usize>, what: impl fmt::Display) -> Failure {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
        refused(self.name, line, column, what)
    }

    fn at<T>(&self, value: &Spanned<T>, what: impl fmt::Display) -> Failure {
        self.wrong(value.span(), what)
    }

    /// A time in seconds as nanoseconds.
    fn ns(&self, seconds: &Spanned<f64>, what: &str) -> Result<u64, Failure> {
        let value = *seconds.get_ref();
        if !(0.0..=SECONDS_MAX).contains(&value) {
            let what = format!("{what} is {value}: it must be a number of seconds from 0 to 1e9");
            return Err(self.at(seconds, what));
        }
        Ok(to_ns(value * 1e9))
    }

    fn microseconds(&self, value: Option<&Spanned<f64>>, what: &str) -> Result<u64, Failure> {
        let Some(value) = value else {
            return Ok(0);
        };
        let time = *value.get_ref();
        if !(0.0..=1e9).contains(&time) {
            let what =
                format!("{what} is {time}: it must be a number of microseconds from 0 to 1e9");
            return Err(self.at(value, what));
        }
        Ok(to_ns(time * 1e3))
    }

    /// Parses a word with its type's parser.
    fn word<T>(&self, word: Option<&Spanned<String>>, default: T) -> Result<T, Failure>
    where
        T: std::str::FromStr,
        T::Err: fmt::Display,
    {
        let Some(word) = word else {
            return Ok(default);
        };
        let parsed = word.get_ref().parse();
        parsed.map_err(|error: T::Err| self.at(word, error))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be between 0 and 1e18"
)]
const fn to_ns(value: f64) -> u64 {
    (value + 0.5) as u64
}

fn refused(name: &Path, line: usize, column: usize, what: impl fmt::Display) -> Failure {
    Failure::usage(
        format!("{}:{line}:{column}", name.display()),
        what.to_string(),
        "",
    )
}

fn bytes(size: Option<&Spanned<Size>>) -> Option<u64> {
    size.map(|size| size.get_ref().0)
}

/// Reads and checks a file. `seed` replaces the file's own.
pub(super) fn read(name: &Path, seed: Option<u64>) -> Result<Setup, Failure> {
    let unreadable = |error| {
        Failure::usage(
            format!("cannot read {}", name.display()),
            format!("{error}"),
            "name a file that can be read",
        )
    };
    let text = std::fs::read_to_string(name).map_err(unreadable)?;
    parse(name, &text, seed)
}

/// Checks a file's text.
fn parse(name: &Path, text: &str, seed: Option<u64>) -> Result<Setup, Failure> {
    let here = Text { name, text };
    let file: File = toml::from_str(text).map_err(|error| {
        let end = text.len();
        let message = error.message().replace('\n', ", ");
        here.wrong(error.span().unwrap_or(end..end), message)
    })?;
    let run_ns = here.ns(&file.seconds, "seconds")?;
    if run_ns == 0 {
        return Err(here.at(&file.seconds, "a run of 0 seconds has nothing to show"));
    }
    let warm_up_ns = file
        .warm_up
        .as_ref()
        .map_or(Ok(0), |time| here.ns(time, "warm_up"))?;
    let interval_ns = match &file.interval {
        None => (run_ns / 60).max(1),
        Some(time) => match here.ns(time, "interval")? {
            0 => return Err(here.at(time, "an interval has more than 0 seconds")),
            interval if run_ns / interval > 100_000 => {
                let what = "more than 100000 intervals in one run: use longer ones";
                return Err(here.at(time, what));
            }
            interval => interval,
        },
    };
    let seed = seed.or(file.seed).unwrap_or(1);
    let drive = drive(&here, &file.drives)?;
    let (machine, about) = match file
        .model
        .as_ref()
        .map(|word| (word, word.get_ref().as_str()))
    {
        None | Some((_, "plain")) => plain(&here, &file, drive)?,
        Some((_, "pool")) => pool(&here, &file, drive, seed)?,
        Some((word, other)) => {
            let what = format!("`{other}` is not a model: use plain or pool");
            return Err(here.at(word, what));
        }
    };
    let region = volume(&here, &file.array, &machine)?;
    let work = file.work.unwrap_or_default();
    let load = load(&here, &work, region, &machine, seed)?;
    let faults = faults(&here, &file.fault, &machine, run_ns)?;
    Ok(Setup {
        machine,
        load,
        warm_up_ns,
        run_ns,
        interval_ns,
        faults,
        seed,
        about,
    })
}

fn drive(here: &Text<'_>, drives: &Drives) -> Result<Preset, Failure> {
    let name = &drives.preset;
    let Some(mut found) = preset(name.get_ref()) else {
        let what = format!(
            "`{}` is not a drive: use one of {}",
            name.get_ref(),
            PRESETS.join(", ")
        );
        return Err(here.at(name, what));
    };
    let disk_only = |span: Range<usize>, key: &str| {
        let what = format!(
            "`{key}` is for rotating disks, and `{}` is none",
            found.name
        );
        here.wrong(span, what)
    };
    let ModelOptions::Disk(disk) = &mut found.options else {
        let spans = [
            ("queue", drives.queue.as_ref().map(Spanned::span)),
            ("depth", drives.depth.as_ref().map(Spanned::span)),
            (
                "write_cache",
                drives.write_cache.as_ref().map(Spanned::span),
            ),
            ("read_cache", drives.read_cache.as_ref().map(Spanned::span)),
        ];
        for (key, span) in spans {
            if let Some(span) = span {
                return Err(disk_only(span, key));
            }
        }
        return Ok(found);
    };
    disk.queue.order = here.word(drives.queue.as_ref(), disk.queue.order)?;
    if let Some(depth) = &drives.depth {
        if *depth.get_ref() == 0 {
            return Err(here.at(depth, "a queue has a depth of at least 1"));
        }
        disk.queue.depth = *depth.get_ref();
    }
    if drives.read_cache.as_ref().is_some_and(|on| !*on.get_ref()) {
        disk.cache = DiskCacheOptions {
            write_sectors: disk.cache.write_sectors,
            ..DiskCacheOptions::default()
        };
    }
    if let Some(size) = &drives.write_cache {
        disk.cache.write_sectors = size.get_ref().0 / 512;
    }
    Ok(found)
}

/// Refuses keys of the pool in a file about a plain array, and the other way round.
fn misplaced(
    here: &Text<'_>,
    keys: &[(&str, Option<Range<usize>>)],
    model: &str,
) -> Result<(), Failure> {
    for (key, span) in keys {
        if let Some(span) = span {
            let what = format!("`{key}` says nothing to the model `{model}`: leave it out");
            return Err(here.wrong(span.clone(), what));
        }
    }
    Ok(())
}

fn plain(here: &Text<'_>, file: &File, drive: Preset) -> Result<(Machine, String), Failure> {
    let table = &file.array;
    let keys = [
        ("journal", table.journal.as_ref().map(Spanned::span)),
        ("spares", table.spares.as_ref().map(Spanned::span)),
    ];
    misplaced(here, &keys, "plain")?;
    let cache = cache(here, table)?;
    let base = PlainOptions::new(table.scheme.get_ref(), drive);
    let options = PlainOptions {
        drives: file.drives.count.as_ref().map(|count| *count.get_ref()),
        drive_bytes: bytes(file.drives.size.as_ref()),
        chunk_bytes: bytes(table.chunk.as_ref()).unwrap_or(base.chunk_bytes),
        cell_bytes: bytes(table.cell.as_ref()),
        mirror_reads: here.word(table.mirror_reads.as_ref(), base.mirror_reads)?,
        small_writes: here.word(table.small_writes.as_ref(), base.small_writes)?,
        cache,
        servers: ServersOptions {
            controller_ns: here.microseconds(table.controller_us.as_ref(), "controller_us")?,
            link_bytes_per_second: bytes(table.link.as_ref()).unwrap_or(0),
            parity_bytes_per_second: bytes(table.parity.as_ref()).unwrap_or(0),
        },
        ..base
    };
    let mut array =
        PlainArray::new(&options).map_err(|error| here.wrong(blame(file), Full(error)))?;
    if !file.drives.slow.is_empty() {
        let mut drives: Vec<_> = (0..array.seats()).map(|_| options.drive.build()).collect();
        for slow in &file.drives.slow {
            let seat = *slow.seat.get_ref();
            let speed = *slow.speed.get_ref();
            if seat >= array.seats() {
                return Err(here.at(&slow.seat, no_seat(seat, array.seats())));
            }
            if !(0.001..=1000.0).contains(&speed) {
                let what =
                    format!("a speed of {speed}: use 0.5 for half the speed, at least 0.001");
                return Err(here.at(&slow.speed, what));
            }
            let index = usize::from(seat);
            let model = drives[index].clone();
            drives[index] = Box::new(Slowed::new(model, to_ns(1000.0 / speed)));
        }
        array = PlainArray::with_drives(&options, drives)
            .map_err(|error| here.wrong(blame(file), Full(error)))?;
    }
    if let Some(fill) = &table.fill {
        if !(0.0..=100.0).contains(fill.get_ref()) {
            let what = format!("fill is {}: it is a percentage", fill.get_ref());
            return Err(here.at(fill, what));
        }
        array.set_fill(*fill.get_ref());
    }
    let about = format!(
        "plain array: {} on {} × {}",
        options.scheme,
        array.seats(),
        options.drive.about
    );
    Ok((Machine::Plain(Box::new(array)), about))
}

fn pool(
    here: &Text<'_>,
    file: &File,
    drive: Preset,
    seed: u64,
) -> Result<(Machine, String), Failure> {
    let table = &file.array;
    let keys = [
        ("fill", table.fill.as_ref().map(Spanned::span)),
        (
            "mirror_reads",
            table.mirror_reads.as_ref().map(Spanned::span),
        ),
        (
            "small_writes",
            table.small_writes.as_ref().map(Spanned::span),
        ),
        ("cache", table.cache.as_ref().map(Spanned::span)),
        ("cache_size", table.cache_size.as_ref().map(Spanned::span)),
        ("destage", table.destage.as_ref().map(Spanned::span)),
        (
            "controller_us",
            table.controller_us.as_ref().map(Spanned::span),
        ),
        ("link", table.link.as_ref().map(Spanned::span)),
        (
            "slow",
            file.drives.slow.first().map(|slow| slow.seat.span()),
        ),
    ];
    misplaced(here, &keys, "pool")?;
    let options = StudyOptions {
        drives: file.drives.count.as_ref().map(|count| *count.get_ref()),
        spares: table.spares.as_ref().map_or(0, |count| *count.get_ref()),
        drive_bytes: bytes(file.drives.size.as_ref()),
        chunk_bytes: bytes(table.chunk.as_ref()),
        cell_bytes: bytes(table.cell.as_ref()),
        journal: table.journal.as_ref().is_none_or(|on| *on.get_ref()),
        parity_bytes_per_second: bytes(table.parity.as_ref()).unwrap_or(0),
        seed,
        ..StudyOptions::new(table.scheme.get_ref(), drive)
    };
    let volume = bytes(table.volume.as_ref());
    let pool = StudyVolume::create(&options, volume).map_err(|error| {
        let place = match (&error, &table.volume) {
            (sim::StudyError::Volume(_), Some(volume)) => volume.span(),
            _ => blame(file),
        };
        here.wrong(place, Full(error))
    })?;
    let about = format!(
        "whole pool: {} on drives of {}",
        options.scheme, options.drive.about
    );
    Ok((Machine::Pool(Box::new(pool)), about))
}

/// The place of the error for an array that is impossible: the size of its drives if it is given and too large, else
/// its scheme.
fn blame(file: &File) -> Range<usize> {
    let capacity = preset(file.drives.preset.get_ref()).map_or(0, |found| found.capacity_bytes());
    match &file.drives.size {
        Some(size) if size.get_ref().0 > capacity => size.span(),
        _ => file.array.scheme.span(),
    }
}

fn no_seat(seat: u16, seats: u16) -> String {
    format!("there is no seat {seat}: the array has {seats}, from 0")
}

fn cache(here: &Text<'_>, table: &ArrayTable) -> Result<CacheOptions, Failure> {
    let size = bytes(table.cache_size.as_ref()).unwrap_or(256 << 20);
    let destage_percent = table.destage.as_ref().map_or(50, |share| *share.get_ref());
    if let Some(share) = table.destage.as_ref().filter(|_| destage_percent > 100) {
        let what = format!("destage is {destage_percent}: it is a percentage");
        return Err(here.at(share, what));
    }
    let Some(word) = &table.cache else {
        return Ok(CacheOptions::Off);
    };
    match word.get_ref().as_str() {
        "off" => Ok(CacheOptions::Off),
        "read" => Ok(CacheOptions::Read { bytes: size }),
        "write-back" => Ok(CacheOptions::WriteBack {
            bytes: size,
            destage_percent,
        }),
        other => {
            let what = format!("`{other}` is not a cache: use off, read or write-back");
            Err(here.at(word, what))
        }
    }
}

/// The bytes that the load may touch.
fn volume(here: &Text<'_>, table: &ArrayTable, machine: &Machine) -> Result<u64, Failure> {
    let capacity = machine.capacity_bytes();
    let Some(volume) = &table.volume else {
        return Ok(capacity);
    };
    let asked = volume.get_ref().0;
    if asked > capacity || asked < 4096 {
        let what = format!(
            "a volume of {} does not fit: the array has room for {}",
            ByteSize(asked),
            ByteSize(capacity)
        );
        return Err(here.at(volume, what));
    }
    Ok(asked)
}

fn load(
    here: &Text<'_>,
    work: &Work,
    region: u64,
    machine: &Machine,
    seed: u64,
) -> Result<Load, Failure> {
    let mut options = LoadOptions {
        region: Some((0, region)),
        ..LoadOptions::default()
    };
    // The place of the error for a load that is impossible.
    let mut place = work.size.as_ref().map(Spanned::span);
    if let Some(size) = &work.size {
        options.sizes = vec![(size.get_ref().0, 1)];
    }
    if let Some(reads) = &work.reads {
        options.read_percent = *reads.get_ref();
        if *reads.get_ref() > 100 {
            let what = format!("reads is {}: it is a percentage", reads.get_ref());
            return Err(here.at(reads, what));
        }
    }
    let clients = work
        .clients
        .as_ref()
        .map_or(16, |clients| *clients.get_ref());
    if let Some(count) = work.clients.as_ref().filter(|count| *count.get_ref() == 0) {
        return Err(here.at(count, "without clients nothing happens: use at least 1"));
    }
    options.arrivals = arrivals(here, work, clients)?;
    if let Some(word) = &work.access {
        place = Some(word.span());
        let or = |value: Option<&Spanned<u32>>, default| value.map_or(default, |v| *v.get_ref());
        options.access = match word.get_ref().as_str() {
            "uniform" => Access::Uniform,
            "sequential" => Access::Sequential {
                streams: or(work.streams.as_ref(), clients),
            },
            "hot" => Access::Hot {
                accesses_percent: or(work.hot_accesses.as_ref(), 80),
                space_percent: or(work.hot_space.as_ref(), 20),
            },
            "zipf" => Access::Zipf {
                exponent: work.exponent.as_ref().map_or(0.99, |v| *v.get_ref()),
            },
            other => {
                let what = format!(
                    "`{other}` is not an access pattern: use uniform, sequential, hot or zipf"
                );
                return Err(here.at(word, what));
            }
        };
    }
    Load::new(&options, machine.capacity_bytes(), seed)
        .map_err(|error| here.wrong(place.unwrap_or(0..0), error))
}

fn arrivals(here: &Text<'_>, work: &Work, clients: u32) -> Result<Arrivals, Failure> {
    let word = work.arrivals.as_ref();
    if let Some(path) = &work.trace {
        let records = records(here, path)?;
        return match word.map(|word| (word, word.get_ref().as_str())) {
            None | Some((_, "recorded")) => Ok(Arrivals::Recorded(records)),
            Some((_, "closed")) => Ok(Arrivals::Replayed { records, clients }),
            Some((word, other)) => {
                let what = format!(
                    "`{other}` is no way to replay a recording: use recorded (at its times) or closed (so many clients)"
                );
                Err(here.at(word, what))
            }
        };
    }
    if let Some(rate) = &work.rate {
        let per_second = *rate.get_ref();
        if !(per_second > 0.0 && per_second <= 1e9) {
            let what =
                format!("a rate of {per_second}: use a number of requests per second up to 1e9");
            return Err(here.at(rate, what));
        }
        return match word.map(|word| (word, word.get_ref().as_str())) {
            None | Some((_, "poisson")) => Ok(Arrivals::Poisson { per_second }),
            Some((_, "regular")) => Ok(Arrivals::Regular { per_second }),
            Some((word, other)) => {
                let what =
                    format!("`{other}` is no way to arrive at a rate: use poisson or regular");
                Err(here.at(word, what))
            }
        };
    }
    if let Some(word) = word.filter(|word| word.get_ref() != "closed") {
        let what = format!("arrivals `{}` need a rate or a trace", word.get_ref());
        return Err(here.at(word, what));
    }
    Ok(Arrivals::Closed {
        clients,
        think_ns: here.microseconds(work.think_us.as_ref(), "think_us")?,
    })
}

/// A recording; its path is relative to the file's folder.
fn records(here: &Text<'_>, path: &Spanned<PathBuf>) -> Result<Vec<Record>, Failure> {
    let folder = here.name.parent().unwrap_or_else(|| Path::new(""));
    let whole = folder.join(path.get_ref());
    let text = std::fs::read_to_string(&whole).map_err(|error| {
        let what = format!("cannot read the recording {}: {error}", whole.display());
        here.at(path, what)
    })?;
    trace::parse(&text).map_err(|error| refused(&whole, error.line, error.column, &error.what))
}

fn faults(
    here: &Text<'_>,
    tables: &[FaultTable],
    machine: &Machine,
    run_ns: u64,
) -> Result<Vec<Fault>, Failure> {
    let mut faults = Vec::new();
    for table in tables {
        let at_ns = here.ns(&table.at, "at")?;
        if at_ns >= run_ns {
            let what =
                "the fault comes after the end of the run: use a smaller `at`, or more `seconds`";
            return Err(here.at(&table.at, what));
        }
        let seat = *table.fail.get_ref();
        if seat >= machine.seats() {
            return Err(here.at(&table.fail, no_seat(seat, machine.seats())));
        }
        let rebuild = rebuild(here, table, machine)?;
        faults.push(Fault {
            at_ns,
            seat: Seat(seat),
            rebuild,
        });
    }
    faults.sort_by_key(|fault| fault.at_ns);
    Ok(faults)
}

fn rebuild(here: &Text<'_>, table: &FaultTable, machine: &Machine) -> Result<Rebuild, Failure> {
    match machine {
        Machine::Plain(_) => plain_rebuild(here, table).map(Rebuild::Plain),
        Machine::Pool(_) => pool_rebuild(here, table).map(Rebuild::Pool),
    }
}

/// The order in which the pool fills cells.
fn pool_rebuild(here: &Text<'_>, table: &FaultTable) -> Result<&'static dyn FillOrder, Failure> {
    let given = [
        table.window.as_ref().map(Spanned::span),
        table.step.as_ref().map(Spanned::span),
        table.read.as_ref().map(Spanned::span),
        table.rate.as_ref().map(Spanned::span),
    ];
    if let Some(place) = given.into_iter().flatten().next() {
        let what = "the pool decides this: only `rebuild` names its order";
        return Err(here.wrong(place, what));
    }
    let Some(word) = &table.rebuild else {
        return Ok(FILL_ORDERS[0]);
    };
    let order = FILL_ORDERS
        .iter()
        .find(|order| order.name() == word.get_ref());
    order.copied().ok_or_else(|| {
        let names: Vec<&str> = FILL_ORDERS.iter().map(|order| order.name()).collect();
        let what = format!(
            "`{}` is not an order in which a pool rebuilds: use {}",
            word.get_ref(),
            names.join(" or ")
        );
        here.at(word, what)
    })
}

fn plain_rebuild(here: &Text<'_>, table: &FaultTable) -> Result<Option<RebuildOptions>, Failure> {
    let Some(word) = &table.rebuild else {
        return Ok(None);
    };
    let window = table.window.as_ref().map(|window| *window.get_ref());
    let mut options = match word.get_ref().as_str() {
        "none" => return Ok(None),
        "lba" => RebuildOptions::draid(window.unwrap_or(256)),
        "least-queued" => RebuildOptions::ours(window.unwrap_or(16)),
        other => {
            let what = format!("`{other}` is not a rebuild order: use lba, least-queued or none");
            return Err(here.at(word, what));
        }
    };
    if let (Some(0), Some(window)) = (window, &table.window) {
        return Err(here.at(window, "a window holds at least 1"));
    }
    if let CellOrder::Lba { window } = &mut options.order {
        *window = (*window).max(1);
    }
    if let Some(step) = bytes(table.step.as_ref()) {
        options.step_bytes = step;
    }
    if let Some(rate) = bytes(table.rate.as_ref()) {
        options.bytes_per_second_max = rate;
    }
    if let Some(word) = &table.read {
        options.read = match word.get_ref().as_str() {
            "all" => ReadColumns::All,
            "needed" => ReadColumns::Needed,
            other => {
                let what = format!("`{other}` is no number of columns: use all or needed");
                return Err(here.at(word, what));
            }
        };
    }
    Ok(Some(options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_makes_the_parser_panic() {
        let whole = "seconds = 1\n[drives]\npreset = \"9lzx\"\ncount = 4\n[array]\nscheme = \"raid5\"\n[work]\nreads = 50\n[[fault]]\nat = 0.5\nfail = 1\n";
        let name = Path::new("f.toml");
        assert!(parse(name, whole, None).is_ok());
        // Omit each byte; double or omit each line, or put other numbers into it.
        for at in 0..whole.len() {
            let cut = format!("{}{}", &whole[..at], &whole[at + 1..]);
            let _ = parse(name, &cut, None);
            let _ = parse(name, &whole[..at], None);
        }
        for number in [
            "0",
            "-1",
            "99999999999999999999",
            "1e308",
            "nan",
            "inf",
            "\"x\"",
            "true",
            "[]",
        ] {
            for line in whole.lines().filter(|line| line.contains('=')) {
                let (key, _) = line.split_once('=').unwrap();
                let _ = parse(
                    name,
                    &whole.replace(line, &format!("{key}= {number}")),
                    None,
                );
            }
        }
    }
}
