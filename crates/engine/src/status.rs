//! The state of a pool, as a value that can be sent.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use array::format::Form;
use array::pool::{
    self, ElasticReason, OutReason, Pool, PoolFacts, Report, SeatFacts, SeatState, WritesWait,
};
use block::{ByteSize, Instant, Seat};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::run::Seats;
use crate::run::purposes::Asked;
use crate::traffic::{DriveLine, Traffic};

/// How bad an event is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nothing to do.
    #[default]
    Info,
    /// Redundancy is less, or a drive is not what it should be.
    Warning,
    /// Data cannot be read, or the pool cannot be used.
    Error,
}

/// A line of the pool's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedEvent {
    /// Counts from 1 since the pool was created, or since the oldest event on record.
    pub number: u64,
    /// When, by the wall clock.
    pub at: SystemTime,
    /// The kind of event, in a word: `drive_out`, `rebuild_begins`, `stripe_lost`, …
    #[serde(default)]
    pub event: String,
    /// How bad it is.
    #[serde(default)]
    pub severity: Severity,
    /// The number of the drive that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<u16>,
    /// The drive's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The event in words.
    pub text: String,
}

impl LoggedEvent {
    /// What identifies a flood: the event's name, and its seat.
    pub(crate) fn key(report: &Report) -> (String, Option<u16>) {
        (word(report), report.seat().map(|seat| seat.0))
    }

    /// The event of a report about the drive at `path`.
    pub(crate) fn new(number: u64, report: &Report, path: Option<String>) -> Self {
        let (event, seat) = Self::key(report);
        let mut text = report.to_string();
        if let (Some(seat), Some(path)) = (seat, &path)
            && let Some(rest) = text.strip_prefix(&format!("seat {seat}"))
        {
            text = format!("seat {seat} ({path}){rest}");
        }
        Self {
            number,
            at: SystemTime::now(),
            event,
            severity: match report.severity() {
                pool::Severity::Info => Severity::Info,
                pool::Severity::Warning => Severity::Warning,
                pool::Severity::Error => Severity::Error,
            },
            seat,
            path,
            text,
        }
    }
}

/// The name of a report's variant, as programs write it: `drive_out` for `DriveOut`.
fn word(report: &Report) -> String {
    let debug = format!("{report:?}");
    let name = debug.split(|c: char| !c.is_alphanumeric()).next();
    let mut word = String::new();
    for letter in name.unwrap_or_default().chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.extend(letter.to_lowercase());
    }
    word
}

/// Health of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// All redundancy is there.
    Healthy,
    /// Everything can be read, with less redundancy than there should be.
    Degraded,
    /// Everything can be read, and some group has no redundancy left: another failure loses its data.
    Critical,
    /// Some data is lost: it can neither be read nor reconstructed. The rest can be read and written.
    Damaged,
    /// So many drives are out that some data cannot be read; or another host has the pool.
    Unusable,
}

/// The state of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Name.
    pub name: String,
    /// Identity.
    pub uuid: String,
    /// Scheme string.
    pub scheme: String,
    /// Generation of its facts.
    pub generation: u64,
    /// Health.
    pub health: Health,
    /// Drives that may fail at once from now on, whichever they are, while everything can still be read.
    #[serde(default)]
    pub survives_drives: u16,
    /// Drives, beside those that are out, that the pool can rebuild onto its spare space.
    #[serde(default)]
    pub spare_drives_left: u16,
    /// Bytes of drives that nothing uses, because every drive counts as the smallest one.
    #[serde(default)]
    pub wasted_bytes: u64,
    /// Bytes of user data that it can hold.
    pub capacity_bytes: u64,
    /// Of those, bytes that are not yet given to volumes.
    pub free_bytes: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Features of the pool's format, by name; none in pools that are older than features.
    pub features: Vec<String>,
    /// Bytes of a cell.
    pub cell_bytes: u64,
    /// Drives in the order of their numbers.
    pub seats: Vec<SeatStatus>,
    /// Volumes.
    pub volumes: Vec<VolumeStatus>,
    /// The rebuild under way or the last one since the pool was opened.
    pub rebuild: Option<RebuildStatus>,
    /// The forms of its stripes, if the pool is elastic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elastic: Option<ElasticStatus>,
    /// The pool is being expanded: drives are to join, what moves to them is not there yet, or the room that they bring is
    /// not there yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expanding: bool,
    /// Work under way.
    #[serde(default)]
    pub work: Vec<WorkStatus>,
    /// What an administrator has set for rebuild and scrub.
    #[serde(default)]
    pub steering: SteerStatus,
    /// The scrub under way or the last one since the pool was opened.
    pub scrub: Option<ScrubStatus>,
    /// The last scrub that has ended, also if the daemon has been started again since.
    #[serde(default)]
    pub last_scrub: Option<ScrubStatus>,
    /// Days from one scrub to the next; 0: only on command.
    #[serde(default)]
    pub scrub_every_days: u32,
    /// When the next planned scrub begins, in milliseconds since 1970; `None` if none is planned, or one is under way.
    #[serde(default)]
    pub next_scrub_at_milliseconds: Option<u64>,
    /// Data that is lost.
    #[serde(default)]
    pub lost: LostStatus,
    /// Whether writes are journalled and blocks have checksums.
    pub journal: bool,
    /// Another opening has taken the pool over: this one serves nothing any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_over: Option<TakenOver>,
    /// Why writes wait for physical space, or end without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes_wait: Option<String>,
    /// A spare takes the seat of a missing drive in so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spares_in_seconds: Option<u64>,
    /// Groups whose parity is still to be recomputed after a stop that was not clean.
    pub resync_groups: u64,
    /// The log's last lines.
    pub events: Vec<LoggedEvent>,
}

/// Work under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkStatus {
    /// `rebuild`, `copy_back`, `replace`, `expand`, `scrub` or `elastic`.
    pub kind: String,
    /// The priority that is in force: `high` while groups without redundancy are rebuilt, whatever is set.
    pub priority: String,
    /// It is paused.
    pub paused: bool,
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// The rate of late.
    pub bytes_per_second: f64,
    /// Seconds until it ends: the least, the likely, the most.
    pub eta_seconds: Option<[f64; 3]>,
    /// The number of the drive with the most left to do.
    pub bottleneck_seat: Option<u16>,
    /// Bytes read for it.
    pub read_bytes: u64,
    /// Of these, bytes that were compared with their checksums.
    pub verified_bytes: u64,
    /// Blocks that were reconstructed and written again meanwhile.
    pub repaired_blocks: u64,
    /// Groups that cannot lose another drive, though their code has redundancy.
    pub groups_without_redundancy: u64,
}

/// What an administrator has set for rebuild and scrub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteerStatus {
    /// How they make way for clients: a name of [`array::priority::PRIORITIES`].
    pub priority: String,
    /// Bytes that they may move in a second.
    pub rate_bytes: Option<u64>,
    /// They do not go on.
    pub paused: bool,
    /// Groups that cannot lose another drive, though their code has redundancy.
    pub groups_without_redundancy: u64,
}

impl Default for SteerStatus {
    fn default() -> Self {
        Self {
            priority: array::priority::standard().name().to_owned(),
            rate_bytes: None,
            paused: false,
            groups_without_redundancy: 0,
        }
    }
}

/// Which opening has taken a pool over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenOver {
    /// The other opening's identity.
    pub opening: String,
}

/// Data that can neither be read nor reconstructed, until it is written again or a scrub finds it correct.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostStatus {
    /// All lost bytes: those in `ranges` and those that are not listed.
    pub bytes: u64,
    /// Where, by volume and offset. Bounded.
    pub ranges: Vec<LostRange>,
    /// Lost bytes that have no room in `ranges`.
    pub unlisted_bytes: u64,
}

/// Part of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRange {
    /// The volume.
    pub volume: String,
    /// First byte of the volume.
    pub offset_bytes: u64,
    /// Number of bytes.
    pub length_bytes: u64,
}

/// A seat and its drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeatStatus {
    /// The drive's number. When a spare takes the place of another drive, both keep their numbers.
    pub seat: u16,
    /// The seat of the layout whose place the drive has taken as a spare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takes_place_of: Option<u16>,
    /// The number of the spare that has taken the drive's place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place_taken_by: Option<u16>,
    /// The drive's name.
    pub path: String,
    /// The drive's identity.
    pub drive: String,
    /// Its size.
    pub size_bytes: u64,
    /// Its physical capacity, where the drive knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physical_bytes: Option<u64>,
    /// How much of its physical capacity is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Below so much use, stripes of elastic pools may become copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_bytes: Option<u64>,
    /// Above so much use, stripes of elastic pools become parity, and writes wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper_bytes: Option<u64>,
    /// Its enclosure or host, as an administrator has named it.
    pub domain: Option<String>,
    /// The number of its bay, as an administrator has named it, or as the machine knows it.
    #[serde(default)]
    pub slot: Option<u32>,
    /// The enclosure of this bay, if the machine knows it.
    #[serde(default)]
    pub enclosure: Option<String>,
    /// `current`, `filling`, `out`, `waiting`.
    pub state: String,
    /// The drive is filled because the pool is being expanded, and nothing is lacking.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joins: bool,
    /// The drive is being removed: what it has moves to other drives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaves: bool,
    /// It is being removed, and the other drives have no room for what it has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lacks_room: bool,
    /// The seat whose drive it replaces once it is complete; `state` is `filling` until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<u16>,
    /// The seat of the drive that takes its place once that one is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<u16>,
    /// Why the drive is out.
    pub reason: Option<OutReason>,
    /// The reason in a sentence, where there is more to report than a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The drive is much slower than others, and is read only where no other drive can answer.
    #[serde(default)]
    pub slow: bool,
    /// The drive does not answer, and stays because the pool cannot spare it.
    #[serde(default)]
    pub hangs: bool,
    /// The drive has answered with errors alone for some time, and stays because the pool cannot spare it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fails: bool,
    /// Operations, bytes and errors since it was opened.
    pub traffic: DriveTraffic,
    /// Blocks on the drive that did not match what was written, since it took the seat.
    pub bad_blocks: u64,
    /// Bytes that the rebuild has read from it.
    pub rebuild_read_bytes: u64,
    /// Bytes that the rebuild has written to it.
    pub rebuild_write_bytes: u64,
}

/// What a drive has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveTraffic {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Operations that failed.
    pub errors: u64,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Name.
    pub name: String,
    /// Identity.
    pub uuid: String,
    /// Bytes that clients see.
    pub size_bytes: u64,
}

/// A rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RebuildStatus {
    /// Nothing is rebuilt: what is there moves to drives that have joined.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expands: bool,
    /// Nothing is rebuilt: what is on a drive that leaves moves to other drives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removes: bool,
    /// Whether it is under way.
    pub running: bool,
    /// Cells filled.
    pub cells_done: u64,
    /// Cells to fill in all.
    pub cells_total: u64,
    /// Cells that cannot be filled.
    pub cells_lost: u64,
    /// Whether cells that could not be filled are tried again within seconds.
    #[serde(default)]
    pub tries_again: bool,
    /// Bytes filled, also of cells that are being filled.
    pub done_bytes: u64,
    /// Bytes to fill in all.
    pub total_bytes: u64,
    /// Bytes copied. Not among them: what a returned drive still had, and what reads as zeros.
    #[serde(default)]
    pub copied_bytes: u64,
    /// Time since it began, or that it took.
    pub seconds: f64,
    /// Bytes filled per second so far.
    pub bytes_per_second: f64,
    /// Time left, as in [`WorkStatus`].
    pub eta_seconds: Option<f64>,
}

/// The forms of an elastic pool's stripes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ElasticStatus {
    /// The percentage of written stripes that should be copies; without it as many as there is space for.
    pub target_percent: Option<u8>,
    /// The share of written stripes that are copies, 0 to 1; `None` while they are being counted.
    pub coverage: Option<f64>,
    /// Stripes of which something was written.
    pub written_stripes: u64,
    /// How many of them are copies.
    pub copy_stripes: u64,
    /// Bytes of user data in a stripe.
    pub stripe_bytes: u64,
    /// Stripes that have been converted since the pool was opened.
    pub converted_stripes: u64,
    /// True if nothing is to be converted now, as far as is known.
    pub at_rest: bool,
    /// The form that stripes are converted to now: `copies` or `parity`.
    pub converting_to: Option<String>,
    /// Why stripes are converted, or are not.
    pub reason: String,
}

fn elastic(pool: &Pool) -> Option<ElasticStatus> {
    let status = pool.elastic_status()?;
    #[expect(clippy::cast_precision_loss, reason = "a share for display")]
    let share = status.copies as f64 / status.written.max(1) as f64;
    let counted = status.reason != ElasticReason::Counting;
    let name = |form| match form {
        Form::Parity => "parity",
        Form::Copies => "copies",
    };
    Some(ElasticStatus {
        target_percent: status.share,
        coverage: counted.then_some(share),
        written_stripes: status.written,
        copy_stripes: status.copies,
        stripe_bytes: pool.geometry().stripe_data_bytes(),
        converted_stripes: status.converted,
        at_rest: status.reason.is_at_rest(),
        converting_to: status.converting.map(name).map(str::to_owned),
        reason: status.reason.what().to_owned(),
    })
}

/// A scrub, under way or ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// Whether it is under way.
    pub running: bool,
    /// Groups read.
    pub groups_done: u64,
    /// Groups to read in all.
    pub groups_total: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Blocks that did not match what was written.
    pub bad_blocks: u64,
    /// Blocks that were reconstructed and written again.
    #[serde(default)]
    pub repaired_blocks: u64,
    /// Blocks of data that can neither be read nor reconstructed.
    #[serde(default)]
    pub lost_blocks: u64,
    /// Groups that could not be read as a whole.
    pub failed_groups: u64,
    /// Time since it began, or that it took.
    pub seconds: f64,
    /// It has begun and not ended, and goes on when it is resumed.
    #[serde(default)]
    pub paused: bool,
    /// Bytes read per second since it began, was resumed, or the pool was opened.
    #[serde(default)]
    pub bytes_per_second: f64,
    /// Time left at the present rate.
    #[serde(default)]
    pub eta_seconds: Option<f64>,
    /// When it ended, in milliseconds since 1970 by the wall clock.
    #[serde(default)]
    pub ended_at_milliseconds: Option<u64>,
}

/// The wall clock, in milliseconds since 1970.
fn wall_milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// When the next planned scrub begins.
fn next_scrub(pool: &Pool) -> Option<u64> {
    const DAY_MILLISECONDS: u64 = 86_400_000;
    let facts = &pool.facts().scrub;
    if facts.every_days == 0 || pool.is_scrubbing() || pool.is_scrub_paused() {
        return None;
    }
    // The days are counted from the first time at which the pool gets the wall clock.
    let from = match facts.counted_from {
        Some(seconds) => seconds.saturating_mul(1000),
        None => wall_milliseconds(),
    };
    Some(from.saturating_add(u64::from(facts.every_days) * DAY_MILLISECONDS))
}

fn scrub(pool: &Pool, now: Instant) -> Option<ScrubStatus> {
    let progress = pool.scrub_progress();
    let paused = pool.is_scrub_paused();
    let running = pool.is_scrubbing() && !paused;
    if !running && !paused && progress.ended.is_none() {
        return None;
    }
    let until = progress.ended.unwrap_or(now);
    let (from, groups_before, blocks_before) = progress.rate_from;
    let seconds = until.since(from).as_secs_f64();
    let read = progress.blocks.saturating_sub(blocks_before) * block::BLOCK_BYTES;
    let groups = progress.groups_done.saturating_sub(groups_before);
    let left = progress.groups_total.saturating_sub(progress.groups_done);
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let (read, groups, left) = (read as f64, groups as f64, left as f64);
    Some(ScrubStatus {
        running,
        groups_done: progress.groups_done,
        groups_total: progress.groups_total,
        read_bytes: progress.blocks * block::BLOCK_BYTES,
        bad_blocks: progress.bad,
        repaired_blocks: progress.mended,
        lost_blocks: progress.lost,
        failed_groups: progress.failed,
        seconds: until.since(progress.began).as_secs_f64(),
        paused,
        bytes_per_second: if seconds > 0.0 { read / seconds } else { 0.0 },
        eta_seconds: (running && groups > 0.0).then(|| left * seconds / groups),
        ended_at_milliseconds: progress.ended.filter(|_| !running).map(|ended| {
            let ago = u64::try_from(now.since(ended).as_millis()).unwrap_or(u64::MAX);
            wall_milliseconds().saturating_sub(ago)
        }),
    })
}

/// The name of a pool's scheme; what the label says where that cannot be parsed.
pub(crate) fn scheme_as_it_is(facts: &PoolFacts) -> String {
    let parsed = facts.parsed_scheme();
    parsed.map_or_else(|_| facts.scheme.clone(), |scheme| scheme.to_string())
}

impl PoolStatus {
    pub(crate) fn new(
        pool: &Pool,
        seats: &Seats,
        now: Instant,
        events: &VecDeque<LoggedEvent>,
    ) -> Self {
        let facts = pool.facts();
        Self {
            name: facts.name.clone(),
            uuid: facts.uuid.to_string(),
            scheme: scheme_as_it_is(facts),
            generation: pool.generation().0,
            health: match lacks_drives(pool, seats) {
                true => Health::Unusable,
                false => health(pool),
            },
            survives_drives: pool.survives_drives(),
            spare_drives_left: pool.spare_drives_left(),
            wasted_bytes: wasted_bytes(pool),
            capacity_bytes: pool.capacity_bytes(),
            free_bytes: pool.free_bytes(),
            chunk_bytes: facts.chunk_bytes,
            features: facts.features.clone(),
            cell_bytes: facts.cell_bytes,
            seats: seat_statuses(pool, seats),
            volumes: facts
                .volumes
                .iter()
                .map(|volume| VolumeStatus {
                    name: volume.name.clone(),
                    uuid: volume.uuid.to_string(),
                    size_bytes: volume.size_bytes,
                })
                .collect(),
            rebuild: rebuild(pool, now),
            elastic: elastic(pool),
            expanding: pool.is_growing(),
            work: work(pool, now),
            steering: SteerStatus {
                priority: array::priority::of(&facts.steer).name().to_owned(),
                rate_bytes: facts.steer.rate_bytes,
                paused: facts.steer.paused,
                groups_without_redundancy: pool.groups_without_redundancy(),
            },
            scrub: scrub(pool, now),
            // The driver of the pool does not know of earlier openings.
            last_scrub: None,
            scrub_every_days: facts.scrub.every_days,
            next_scrub_at_milliseconds: next_scrub(pool),
            lost: lost(pool),
            journal: facts.regions.is_some(),
            taken_over: None,
            writes_wait: writes_wait(pool),
            spares_in_seconds: None,
            resync_groups: pool.resync_left(),
            events: events.iter().cloned().collect(),
        }
    }
}

impl RebuildStatus {
    /// What it is, in a word: `rebuild`, `expand` or `remove`.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match (self.expands, self.removes) {
            (true, _) => "expand",
            (_, true) => "remove",
            _ => "rebuild",
        }
    }
}

impl WorkStatus {
    /// Whether cells are filled.
    #[must_use]
    pub fn is_fill(&self) -> bool {
        !matches!(&*self.kind, "scrub" | "elastic")
    }
}

impl PoolStatus {
    /// The status of a pool that another opening has taken over.
    pub(crate) fn taken_over(self, by: Uuid) -> Self {
        Self {
            health: Health::Unusable,
            taken_over: Some(TakenOver {
                opening: by.to_string(),
            }),
            ..self
        }
    }
}

/// Why writes wait for physical space, or end without.
fn writes_wait(pool: &Pool) -> Option<String> {
    let wait = pool.writes_wait()?;
    let (WritesWait::ForRoom(seat) | WritesWait::NoSpace(seat)) = wait;
    let name = pool.facts().number(seat);
    let use_of = pool.room(seat).map_or_else(String::new, |room| {
        let (used, upper) = (ByteSize(room.used_bytes), ByteSize(room.upper_bytes));
        format!("drive {name} uses {used} of the {upper} that data may take")
    });
    Some(match wait {
        WritesWait::ForRoom(_) => format!("they wait until space is freed: {use_of}"),
        WritesWait::NoSpace(_) => format!(
            "they end with \"no space\": {use_of}, and nothing is left to free; trim data or delete volumes"
        ),
    })
}

/// Bytes that drives of the layout have beyond the size of the smallest of them.
fn wasted_bytes(pool: &Pool) -> u64 {
    let drives = usize::from(pool.geometry().layout().drives());
    let sizes = || {
        pool.facts()
            .seats
            .iter()
            .take(drives)
            .map(|seat| seat.size_bytes)
    };
    let least = sizes().min().unwrap_or(0);
    sizes().map(|bytes| bytes - least).sum()
}

fn health(pool: &Pool) -> Health {
    if pool.lost_groups() > 0 {
        Health::Unusable
    } else if pool.has_lost_data() {
        Health::Damaged
    } else if pool.groups_without_redundancy() > 0 {
        Health::Critical
    } else if pool.absent_columns() > 0 || is_filled(pool) || !pool.spares_make_up_for_it() {
        Health::Degraded
    } else {
        Health::Healthy
    }
}

/// Whether a drive is filled with what the pool lacks. While a pool grows or a drive leaves, nothing is lacking: what moves
/// is complete where it is.
fn is_filled(pool: &Pool) -> bool {
    let filling = |(seat, facts): (Seat, &SeatFacts)| {
        facts.state == SeatState::Filling && pool.leaving() != Some(seat)
    };
    !pool.is_growing() && pool.facts().seats().any(filling)
}

fn lost(pool: &Pool) -> LostStatus {
    let ranges: Vec<LostRange> = pool
        .lost_data()
        .into_iter()
        .map(|data| LostRange {
            volume: data.volume,
            offset_bytes: data.offset_bytes,
            length_bytes: data.length_bytes,
        })
        .collect();
    let unlisted_bytes = pool.unlisted_lost_bytes();
    let listed: u64 = ranges.iter().map(|range| range.length_bytes).sum();
    LostStatus {
        bytes: listed + unlisted_bytes,
        ranges,
        unlisted_bytes,
    }
}

/// The traffic of the drives, in the order of their numbers.
pub(crate) fn drive_traffic(pool: &Pool, seats: &Seats) -> Vec<DriveLine> {
    let seat_of = |number: u16| pool.facts().seat_numbered(number);
    let line = |status: SeatStatus| {
        let seat = seat_of(status.seat);
        let drive = seat.and_then(|seat| seats.drive(seat));
        let seen = drive.map(|drive| drive.telemetry.snapshot());
        let asked = seat.and_then(|seat| seats.asked(seat));
        DriveLine {
            seat: status.seat,
            path: status.path,
            drive: status.drive,
            physical_bytes: status.physical_bytes,
            used_bytes: status.used_bytes,
            state: status.state,
            traffic: seen.as_ref().map(Traffic::new).unwrap_or_default(),
            purposes: asked.map(Asked::snapshot).unwrap_or_default(),
        }
    };
    seat_statuses(pool, seats).into_iter().map(line).collect()
}

/// All drives that are or were in the pool, in the order of their numbers.
fn seat_statuses(pool: &Pool, seats: &Seats) -> Vec<SeatStatus> {
    let there = pool.facts().seats();
    let there = there.filter(|(seat, facts)| !facts.is_removed(*seat));
    let mut all: Vec<SeatStatus> = there
        .map(|(seat, _)| seat_status(pool, seats, seat))
        .collect();
    all.sort_by_key(|status| status.seat);
    all
}

/// So many errors one after another, and nothing else: the drive does not work. A renewal of the lease alone makes
/// two requests in five seconds.
const FAILS_FROM: u64 = 3;

/// Whether the drive of a seat is in use, and all that it answers are errors.
fn fails(pool: &Pool, seats: &Seats, seat: Seat) -> bool {
    let drive = seats.drive(seat);
    pool.facts().seats[seat.index()].state.takes_part()
        && drive.is_some_and(|drive| drive.telemetry.failed_in_a_row() >= FAILS_FROM)
}

/// Whether more drives than may fail do not work at present, though they are not out.
fn lacks_drives(pool: &Pool, seats: &Seats) -> bool {
    let all = pool.facts().seats().map(|(seat, _)| seat);
    let lacking = all.filter(|&seat| fails(pool, seats, seat) || pool.is_hanging(seat));
    lacking.count() > usize::from(pool.survives_drives())
}

/// The name of a seat's state, and why its drive is out.
pub(crate) fn seat_state(facts: &SeatFacts) -> (&'static str, Option<OutReason>) {
    match facts.state {
        SeatState::Current => ("current", None),
        SeatState::Filling => ("filling", None),
        SeatState::Waiting if facts.is_successor() => ("filling", None),
        SeatState::Waiting => ("waiting", None),
        SeatState::Out { reason, .. } => ("out", Some(reason)),
    }
}

fn seat_status(pool: &Pool, seats: &Seats, seat: Seat) -> SeatStatus {
    let number = |seat: Seat| pool.facts().number(seat);
    let own = number(seat);
    let mut in_layout = (0..pool.geometry().layout().drives()).map(Seat);
    let first = pool.facts().first_number(seat);
    let stands_in = seat.0 < pool.geometry().layout().drives() && first != own;
    let place = in_layout.find(|&seat| pool.facts().first_number(seat) == own);
    let facts = &pool.facts().seats[seat.index()];
    let (state, reason) = seat_state(facts);
    let room = pool.room(seat);
    let moved = pool
        .progress()
        .seats
        .get(&seat)
        .copied()
        .unwrap_or_default();
    let traffic = seats
        .drive(seat)
        .map_or_else(DriveTraffic::default, |drive| {
            let seen = drive.telemetry.snapshot();
            DriveTraffic {
                reads: seen.reads.requests,
                read_bytes: seen.reads.bytes,
                writes: seen.writes.requests,
                write_bytes: seen.writes.bytes,
                errors: seen.errors(),
            }
        });
    SeatStatus {
        seat: own,
        takes_place_of: stands_in.then_some(first),
        place_taken_by: place.filter(|&place| place != seat).map(number),
        path: facts.path.clone(),
        drive: facts.drive.to_string(),
        size_bytes: facts.size_bytes,
        physical_bytes: room.map(|room| room.physical_bytes),
        used_bytes: room.map(|room| room.used_bytes),
        lower_bytes: room.map(|room| room.lower_bytes),
        upper_bytes: room.map(|room| room.upper_bytes),
        domain: facts.domain.clone(),
        slot: facts.bay.as_ref().map(|bay| bay.slot),
        enclosure: { facts.bay.as_ref() }.and_then(|bay| bay.enclosure.clone()),
        state: state.to_owned(),
        joins: facts.state == SeatState::Filling && pool.is_growing(),
        leaves: pool.leaving() == Some(seat),
        lacks_room: pool.leaving() == Some(seat) && pool.leaving_waits_for_room(),
        replaces: { facts.replaces.filter(|_| facts.is_successor()) }
            .map(|seat| number(Seat(seat))),
        replaced_by: pool.successor(seat).map(number),
        reason,
        detail: facts.short_of(),
        slow: pool.is_suspect(seat),
        hangs: pool.is_hanging(seat),
        fails: fails(pool, seats, seat),
        traffic,
        bad_blocks: pool.bad_blocks(seat),
        rebuild_read_bytes: moved.read_bytes,
        rebuild_write_bytes: moved.write_bytes,
    }
}

fn work(pool: &Pool, now: Instant) -> Vec<WorkStatus> {
    let status = |work: pool::Work| WorkStatus {
        kind: work.kind.to_owned(),
        priority: work.priority.to_owned(),
        paused: work.paused,
        done_bytes: work.done_bytes,
        total_bytes: work.total_bytes,
        bytes_per_second: work.bytes_per_second,
        eta_seconds: work.eta_seconds,
        bottleneck_seat: work.bottleneck.map(|seat| pool.facts().number(seat)),
        read_bytes: work.read_bytes,
        verified_bytes: work.verified_bytes,
        repaired_blocks: work.repaired_blocks,
        groups_without_redundancy: work.groups_without_redundancy,
    };
    pool.work(now).into_iter().map(status).collect()
}

#[expect(clippy::cast_precision_loss, reason = "rates for display")]
fn rebuild(pool: &Pool, now: Instant) -> Option<RebuildStatus> {
    let progress = pool.progress();
    if progress.cells_total == 0 {
        return None;
    }
    let seconds = progress
        .ended
        .unwrap_or(now)
        .since(progress.began)
        .as_secs_f64();
    let done_bytes = pool.rebuilt_bytes();
    let total_bytes = progress.cells_total * progress.cell_bytes;
    let bytes_per_second = if seconds > 0.0 {
        done_bytes as f64 / seconds
    } else {
        0.0
    };
    let work = { work(pool, now).into_iter() }.find(WorkStatus::is_fill);
    Some(RebuildStatus {
        expands: progress.expands,
        removes: progress.removes,
        running: progress.ended.is_none(),
        cells_done: progress.cells_done,
        cells_total: progress.cells_total,
        cells_lost: progress.cells_lost,
        tries_again: progress.ended.is_some() && pool.retries_fills(),
        done_bytes,
        total_bytes,
        copied_bytes: progress.copied_bytes,
        seconds,
        bytes_per_second,
        eta_seconds: work.and_then(|work| Some(work.eta_seconds?[1])),
    })
}

#[cfg(test)]
mod tests {
    use array::format::{Generation, GroupId, StripeId};

    use super::*;

    #[test]
    fn a_report_has_a_word_for_programs_and_the_seat_that_it_is_about() {
        let out = Report::DriveOut {
            seat: Seat(3),
            reason: OutReason::FailedByAdministrator,
            since: Generation(7),
        };
        let event = LoggedEvent::new(1, &out, None);
        assert_eq!((&*event.event, event.seat), ("drive_out", Some(3)));
        let event = LoggedEvent::new(2, &Report::ResyncEnds, None);
        assert_eq!((&*event.event, event.seat), ("resync_ends", None));
        let lost = Report::StripeLost {
            group: GroupId(0),
            stripe: StripeId(1),
            times: 1,
        };
        assert_eq!(LoggedEvent::new(3, &lost, None).event, "stripe_lost");
    }
}
