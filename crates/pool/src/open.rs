//! Opening a pool: which labels and drives count.
//!
//! - The newest label wins. Drives that it lists as out are not read.
//! - A drive may lag by one generation (the pool stopped between two label writes). A drive that lags more has missed
//!   something and is out as stale. A drive that lags by one gets the newest generation before the next one is begun:
//!   otherwise another stop could leave it two behind.
//! - A drive that is too small for the pool's regions, or that cannot be read, is out: the pool opens without it.
//! - More than half of the drives that the newest label counts on must be there; otherwise the pool opens only with
//!   `--degraded`.
//! - A pool waits for drives that are away if the end of the journal may be on them: nothing is decided and nothing is
//!   written. An administrator can give drives up by name.
//! - A pool that was closed, or whose journal is there, but that cannot read all data without the drives that are away,
//!   opens only with `--degraded`.
//! - Labels of an earlier version may list more drives as out than the code survives, although these drives are there.
//!   Then the drives that went out last are in again ([`Pool::take_back`]): nothing was written to groups that could
//!   not be read.
//! - If two drives each list the other as out, and each has been used without the other since, the pool has split into
//!   two histories: the opening is refused in any case.
//! - A stop may leave a generation on so few drives that the pool opens without them. These drives return with a
//!   generation number that has been used again meanwhile. Nothing can have followed from a generation that no more
//!   drives had than the code survives, so the other label wins ([`overtakes`]).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use block::{Fault, Hint, Seat};
use format::seeded::{self, SeededFault};
use format::{CellPage, Generation, GroupId, Label};
use layout::Cell;
use plan::Geometry;
use plan::action::Command;
use uuid::Uuid;

use super::create::{CreateError, Sizes, from_hex, geometry, regions};
use super::space::fits;
use super::{
    Bay, OnDurable, OutReason, Pool, PoolFacts, Report, SeatFacts, SeatState, Ticket,
    is_recoverable,
};

/// A drive on which a label of the pool was found.
#[derive(Clone, Debug)]
pub struct FoundDrive {
    /// Where it is.
    pub path: String,
    /// Its newest label.
    pub label: Label,
    /// Which of the two copies that label is; the next label goes to the other one.
    pub label_slot: usize,
    /// Its size.
    pub size_bytes: u64,
    /// Reading its cell table failed: the pool opens without it.
    pub fault: Option<Fault>,
    /// Its bay, if the machine knows one.
    pub bay: Option<Bay>,
}

/// Why a pool is not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is nothing to open.
    #[error("no drive of the pool was found")]
    NoDrives,
    /// Two drives with one identity and the same generation: one is a copy.
    #[error("{first} and {second} claim to be the same drive of the pool (seat {seat})")]
    Duplicate {
        /// Whose identity.
        seat: Seat,
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// A label leaves no stripe of a group for data.
    #[error("groups with {free_stripes} free stripes have none for data in a pool of this shape")]
    FreeStripes {
        /// The number in the label.
        free_stripes: u64,
    },
    /// A label interleaves a volume by units that are not whole stripes, or that do not fill its groups.
    #[error("volume {volume} is interleaved by units that its groups are not a whole number of")]
    Interleave {
        /// The volume's name.
        volume: String,
    },
    /// Two halves that were used without each other.
    #[error(
        "{first} and {second} each went on without the other (generations {first_generation} and {second_generation})"
    )]
    SplitBrain {
        /// A drive of one half.
        first: String,
        /// Its generation.
        first_generation: Generation,
        /// A drive of the other half.
        second: String,
        /// Its generation.
        second_generation: Generation,
    },
    /// Half of the drives or more are missing.
    #[error("only {found} of {expected} drives are there (missing: {missing})")]
    TooFewDrives {
        /// How many are there.
        found: usize,
        /// How many there should be.
        expected: usize,
        /// Seats and paths of the missing ones.
        missing: String,
    },
    /// The drives that are there do not have all data.
    #[error("without {missing} not all data can be read (group {group} is lost)")]
    DataLost {
        /// Seats and paths of the missing ones.
        missing: String,
        /// A group that cannot be read.
        group: GroupId,
    },
    /// More drives are away than the code survives, and they may have the only copies of flushed data.
    #[error(
        "{missing} may have data that no other drive has: the pool waits for more of its drives"
    )]
    Waits {
        /// Seats and paths of the drives that are away.
        missing: String,
    },
    /// All data was given up that is on drives that are away, and more.
    #[error(
        "not all data can be read (group {group} is lost), and no drive is away that may have it"
    )]
    Damaged {
        /// A group that cannot be read.
        group: GroupId,
    },
    /// The label's scheme cannot be built by this version.
    #[error("the pool's label cannot be understood: {0}")]
    Geometry(#[from] CreateError),
    /// The scheme string in the label does not parse.
    #[error("the pool's label has an unknown scheme: {0}")]
    Scheme(#[from] layout::SchemeError),
}

impl Hint for OpenError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        let hint = match self {
            Self::NoDrives => "name the directories of its drives with --dir",
            Self::Duplicate { .. } => "remove the copy",
            Self::SplitBrain { .. } => {
                "decide which half to keep, and take the drives of the other half away"
            }
            Self::TooFewDrives { .. } => {
                "opening needs more than half, or --degraded if the others are really gone"
            }
            Self::DataLost { .. } => {
                "connect these drives and import the pool again. --degraded opens the pool for what the others have: read \
                 requests for the rest fail until the drives are back"
            }
            Self::Waits { .. } => {
                "connect these drives and import the pool again. If they are gone for good, --degraded --give-up SEAT,SEAT \
                 gives up by name what only they have: the last writes that were flushed, too"
            }
            Self::Damaged { .. } => "--degraded opens the pool for the rest",
            // Hints for new pools do not apply here.
            Self::Geometry(_)
            | Self::Scheme(_)
            | Self::Interleave { .. }
            | Self::FreeStripes { .. } => {
                "a newer version of Ravelin may have made it: use that one"
            }
        };
        Some(hint.into())
    }
}

/// The decisions of an opening, before the cell tables have been read.
#[derive(Debug)]
pub struct Opening {
    pool: Pool,
    seated: BTreeMap<Seat, usize>,
    /// Seated drives that do not have the newest generation.
    lagging: Vec<Seat>,
    /// Seats whose drive is out and was being replaced.
    heirs: Vec<Seat>,
    /// The facts of the newest generation.
    newest: PoolFacts,
    unclean: bool,
    degraded: bool,
    /// Seats of drives that an administrator gives up: what only these drives have is lost.
    given_up: BTreeSet<Seat>,
    /// Drives that are out and were found: they can be in again if data cannot be read without them.
    candidates: BTreeMap<Seat, Candidate>,
}

/// A drive that is out and was found.
#[derive(Clone, Debug)]
struct Candidate {
    /// Index of the found drive.
    at: usize,
    /// The first generation that it has missed.
    since: Generation,
    /// The seat by the drive's own label, when it was in use.
    facts: SeatFacts,
}

/// Decides which of the found drives are in use, and in which seat. `degraded` opens a pool of which too much is
/// missing.
///
/// # Errors
/// [`OpenError`]; nothing has been written.
pub fn open(found: &[FoundDrive], degraded: bool) -> Result<Opening, OpenError> {
    let overtaken = check_halves(found)?;
    let newest = found
        .iter()
        .enumerate()
        .filter(|(index, _)| !overtaken.contains(index))
        .map(|(_, drive)| drive)
        .max_by_key(|drive| drive.label.generation)
        .ok_or(OpenError::NoDrives)?;
    let generation = newest.label.generation;
    let mut facts = newest.label.facts.clone();
    let next = generation.next();
    let unclean = !facts.clean;
    let expected = facts
        .seats
        .iter()
        .filter(|seat| seat.state.takes_part())
        .count();
    let mut seated = BTreeMap::new();
    let mut missing = Vec::new();
    let mut gone = Vec::new();
    for index in 0..facts.seats.len() {
        let seat = Seat(u16::try_from(index).expect("seats are 16 bits"));
        let at = find_drive(found, facts.seats[index].drive, seat)?;
        let needed_bytes = facts.data_offset + facts.rows * facts.cell_bytes;
        let logged = facts.regions.is_some() && !facts.journal_empty;
        let entry = &mut facts.seats[index];
        entry.found_bytes = None;
        let lost = match at {
            None => Some(OutReason::Missing),
            Some(at) if found[at].fault.is_some() => Some(OutReason::IoErrors),
            Some(at) if found[at].size_bytes < needed_bytes => {
                entry.found_bytes = Some(found[at].size_bytes);
                Some(OutReason::Missing)
            }
            Some(at) if found[at].label.generation.plus(lag_max()) < generation => {
                Some(OutReason::Stale)
            }
            Some(at) => {
                found[at].path.clone_into(&mut entry.path);
                entry.bay = Bay::of_found(entry.bay.take(), found[at].bay.clone());
                if !matches!(entry.state, SeatState::Out { .. }) {
                    seated.insert(seat, at);
                }
                None
            }
        };
        if let Some(reason) = lost
            && !matches!(entry.state, SeatState::Out { .. })
        {
            let counted = entry.state.takes_part();
            entry.in_journal = counted && logged;
            entry.state = SeatState::Out {
                since: next,
                reason,
            };
            if counted {
                gone.push(seat);
                missing.push(named(seat, entry));
            }
        }
    }
    let heirs = without_heirs(&mut facts, next);
    let candidates = candidates(found, &facts, &overtaken)?;
    let missing = missing.join(", ");
    // A drive that lags is there, and may be needed: an opening that was interrupted may have counted on it again.
    gone.retain(|seat| !candidates.contains_key(seat));
    let there = expected - gone.len();
    if there * 2 <= expected && !degraded {
        return Err(OpenError::TooFewDrives {
            found: there,
            expected,
            missing,
        });
    }
    let pool = build(facts, generation)?;
    let lags =
        |(&seat, &at): (&Seat, &usize)| (found[at].label.generation < generation).then_some(seat);
    Ok(Opening {
        pool,
        lagging: seated.iter().filter_map(lags).collect(),
        heirs,
        newest: newest.label.facts.clone(),
        seated,
        unclean,
        degraded,
        given_up: BTreeSet::new(),
        candidates,
    })
}

/// A drive by its seat's number and its path, for errors; if it is too small, also by how much.
fn named(number: impl Display, seat: &SeatFacts) -> String {
    let cut = seat.short_of();
    let cut = cut.map_or_else(String::new, |cut| format!(": {cut}"));
    format!("seat {number} ({}{cut})", seat.path)
}

/// The drives of the layout that are out, were found, and were in use until they went out. A drive that an administrator
/// has failed stays out.
fn candidates(
    found: &[FoundDrive],
    facts: &PoolFacts,
    overtaken: &BTreeSet<usize>,
) -> Result<BTreeMap<Seat, Candidate>, OpenError> {
    let mut candidates = BTreeMap::new();
    if seeded::is(SeededFault::FoundNotAsked) {
        return Ok(candidates);
    }
    let needed_bytes = facts.data_offset + facts.rows * facts.cell_bytes;
    for (seat, of) in facts.seats() {
        let SeatState::Out { since, .. } = of.state else {
            continue;
        };
        let Some(at) = find_drive(found, of.drive, seat)? else {
            continue;
        };
        let drive = &found[at];
        let then = drive.label.facts.seats.get(seat.index());
        let Some(then) = then.filter(|then| then.drive == of.drive && then.state.takes_part())
        else {
            continue;
        };
        // A drive that lags missed the generation after its own.
        let since = since.min(drive.label.generation.next());
        let usable = drive.fault.is_none()
            && drive.size_bytes >= needed_bytes
            && !overtaken.contains(&at)
            && drive.label.generation < since;
        if usable {
            let facts = SeatFacts {
                path: drive.path.clone(),
                number: of.number,
                domain: of.domain.clone(),
                bay: of.bay.clone(),
                ..then.clone()
            };
            candidates.insert(seat, Candidate { at, since, facts });
        }
    }
    Ok(candidates)
}

/// How many generations a drive may lag.
fn lag_max() -> u64 {
    1 + u64::from(seeded::is(SeededFault::LagByTwo))
}

/// Ends replacements in which a drive is out. Returns the seats whose drive is out while its successor is there.
fn without_heirs(facts: &mut PoolFacts, since_now: Generation) -> Vec<Seat> {
    let mut heirs = Vec::new();
    for index in (0..facts.seats.len()).rev() {
        let Some(seat) = facts.seats[index].replaces else {
            continue;
        };
        let last = index + 1 == facts.seats.len();
        if facts.seats[index].is_removed(Seat(seat)) && usize::from(seat) == index {
            // A vacant seat of the layout stays.
            if last && index >= usize::from(facts.layout_drives) {
                facts.seats.pop();
            }
            continue;
        }
        let replaced = facts.seats.get(usize::from(seat));
        let current = replaced.is_some_and(|seat| seat.state == SeatState::Current);
        match facts.seats[index].state {
            SeatState::Waiting if current => {}
            SeatState::Waiting => {
                facts.seats[index].replaces = None;
                heirs.push(Seat(seat));
            }
            // It has been replaced, or it was a successor and the old drive keeps its place: nothing is missing.
            SeatState::Out { since, .. } if last && (current || since != since_now) => {
                facts.seats.pop();
            }
            SeatState::Out { .. } | SeatState::Current | SeatState::Filling => {
                facts.seats[index].replaces = None;
            }
        }
    }
    heirs
}

/// The found drive with this identity; of two, the newer one.
fn find_drive(found: &[FoundDrive], drive: Uuid, seat: Seat) -> Result<Option<usize>, OpenError> {
    let mut best: Option<usize> = None;
    for (index, candidate) in found.iter().enumerate() {
        if candidate.label.drive != drive {
            continue;
        }
        let Some(other) = best else {
            best = Some(index);
            continue;
        };
        let newer = candidate
            .label
            .generation
            .cmp(&found[other].label.generation);
        match newer {
            std::cmp::Ordering::Greater => best = Some(index),
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => {
                return Err(OpenError::Duplicate {
                    seat,
                    first: found[other].path.clone(),
                    second: candidate.path.clone(),
                });
            }
        }
    }
    Ok(best)
}

/// The generation since which a label lists a drive as out, if it does.
fn out_since(label: &Label, drive: Uuid) -> Option<Generation> {
    let of = |seat: &SeatFacts| match seat.state {
        SeatState::Out { since, .. } if seat.drive == drive => Some(since),
        _ => None,
    };
    label.facts.seats.iter().find_map(of)
}

/// Refuses labels of two histories. Otherwise returns the drives whose label is overtaken by another one.
fn check_halves(found: &[FoundDrive]) -> Result<BTreeSet<usize>, OpenError> {
    let mut overtaken = BTreeSet::new();
    for (index, a) in found.iter().enumerate() {
        for (other, b) in found.iter().enumerate().skip(index + 1) {
            let (label_a, label_b) = (&a.label, &b.label);
            // `a` lists `b` as out since a generation that `b` itself has, and vice versa: each has written generations
            // of its own since they were separated.
            let apart = |one: &Label, other: &Label| {
                out_since(one, other.drive).is_some_and(|since| other.generation >= since)
            };
            let same_generation_other_facts =
                label_a.generation == label_b.generation && label_a.facts != label_b.facts;
            let both_apart = apart(label_a, label_b) && apart(label_b, label_a);
            if !both_apart && !same_generation_other_facts {
                continue;
            }
            if overtakes(label_a, label_b)? {
                overtaken.insert(other);
            } else if overtakes(label_b, label_a)? {
                overtaken.insert(index);
            } else {
                return Err(OpenError::SplitBrain {
                    first: a.path.clone(),
                    first_generation: label_a.generation,
                    second: b.path.clone(),
                    second_generation: label_b.generation,
                });
            }
        }
    }
    Ok(overtaken)
}

/// Whether an opening that did not find the drives of `other` wrote `one` with the same generation number or a later
/// one, while the drives of `other` have not been used on their own.
///
/// That opening found the generation before on all drives that it found. So only drives that it missed had `other`. If
/// these are no more than the code survives, too few drives had `other` for anything to have followed from it
/// (`Pool::commit` waits for all drives, or for one more than that number if others fail), unless these few are all
/// that `other` counts on.
fn overtakes(one: &Label, other: &Label) -> Result<bool, OpenError> {
    let takes_part = |label: &Label, drive: Uuid| {
        let mut seats = label.facts.seats.iter();
        seats.any(|seat| seat.drive == drive && !matches!(seat.state, SeatState::Out { .. }))
    };
    if one.generation < other.generation || takes_part(one, other.drive) {
        return Ok(false);
    }
    // A drive that was missed may also have been given up by name.
    let missed = one.facts.seats.iter().filter(|seat| {
        let SeatState::Out { since, reason } = seat.state else {
            return false;
        };
        let missed = matches!(
            reason,
            OutReason::Missing | OutReason::FailedByAdministrator
        );
        missed && since == other.generation
    });
    // A drive that was being brought in is in none of the seats of `one`.
    let known = one.facts.seats.iter().any(|seat| seat.drive == other.drive);
    let missed = missed.count() + usize::from(!known);
    let pool = build(one.facts.clone(), one.generation)?;
    let few = usize::from(pool.cx.geometry.code().tolerance());
    let seats = other.facts.seats.iter();
    let counted_on = seats.filter(|seat| seat.state.takes_part()).count();
    let by_themselves = !takes_part(other, one.drive) && counted_on <= few;
    Ok(missed > 0 && missed <= few && !by_themselves)
}

/// The geometry of a pool with these facts.
pub(super) fn geometry_of(facts: &PoolFacts) -> Result<Geometry, OpenError> {
    let scheme = facts.parsed_scheme()?;
    let table = match &facts.layout_table {
        Some(text) => Some(from_hex(text).ok_or(CreateError::Table)?),
        None => None,
    };
    let drives = scheme.drives.unwrap_or_else(|| {
        if facts.layout_drives > 0 && !seeded::is(SeededFault::WidthFromSeats) {
            return facts.layout_drives;
        }
        // As long as no spare has taken a seat, all drives that do not wait are in the layout.
        let seats = facts
            .seats
            .iter()
            .filter(|seat| seat.state != SeatState::Waiting)
            .count();
        u16::try_from(seats).expect("seats are 16 bits")
    });
    let sizes = Sizes {
        chunk_bytes: facts.chunk_bytes,
        cell_bytes: facts.cell_bytes,
        rows: facts.rows,
        data_offset: facts.data_offset,
        lanes: facts.lanes.max(1),
        elastic: scheme.elastic && facts.regions.is_some(),
        regions: facts
            .regions
            .map(|stored| regions(stored, facts.uuid, |feature| facts.has(feature))),
    };
    let (geometry, _) = geometry(&scheme, drives, sizes, table.as_deref())?;
    Ok(geometry)
}

fn build(mut facts: PoolFacts, generation: Generation) -> Result<Pool, OpenError> {
    let geometry = geometry_of(&facts)?;
    let free_stripes = geometry.regions().map_or(0, |regions| regions.free_stripes);
    if free_stripes >= geometry.stripes_per_group() {
        return Err(OpenError::FreeStripes { free_stripes });
    }
    let fits = |how| fits(how, &geometry);
    let mut volumes = facts.volumes.iter();
    if let Some(volume) = volumes.find(|volume| !volume.interleave.is_none_or(fits)) {
        return Err(OpenError::Interleave {
            volume: volume.name.clone(),
        });
    }
    if seeded::is(SeededFault::InterleaveForgotten) {
        for volume in &mut facts.volumes {
            volume.interleave = None;
        }
    }
    Ok(Pool::assemble(geometry, facts, generation))
}

impl Opening {
    /// The drives that are in use or wait: for each seat, the index of the found drive. The driver reads their cell
    /// tables and passes them to [`Opening::finish`].
    #[must_use]
    pub const fn seated(&self) -> &BTreeMap<Seat, usize> {
        &self.seated
    }

    /// Drives that are out and were found: for each seat, the index of the found drive. The driver reads their cell
    /// tables, too. If data cannot be read without them, [`Opening::finish`] puts them in use again.
    #[must_use]
    pub fn candidates(&self) -> BTreeMap<Seat, usize> {
        let candidates = self.candidates.iter();
        candidates.map(|(&seat, of)| (seat, of.at)).collect()
    }

    /// The pool's facts as they will be, if no drive has to be in again.
    #[must_use]
    pub const fn facts(&self) -> &PoolFacts {
        &self.pool.cx.facts
    }

    /// Gives up the drives of these seats, if they are away: what only they have is lost.
    #[must_use]
    pub fn giving_up(mut self, seats: impl IntoIterator<Item = Seat>) -> Self {
        self.given_up.extend(seats);
        self
    }

    /// Seats of drives that are away and that are not given up.
    #[must_use]
    pub fn away(&self) -> Vec<Seat> {
        let mut away = self.pool.away(&self.given_up);
        away.retain(|seat| !self.candidates.contains_key(seat));
        away
    }

    /// Opens the pool. `tables` has the pages of the cell table of each seated drive and of each candidate, and `slots`
    /// the label copy that each of these drives had. When `ticket` is done, the new generation is durable and the lanes
    /// have the place of every column.
    ///
    /// # Errors
    /// [`OpenError::Waits`] if the end of the journal may be on drives that are away; if `degraded` was not given, also
    /// [`OpenError::DataLost`] and [`OpenError::Damaged`] if data cannot be read.
    pub fn finish(
        self,
        mut tables: BTreeMap<Seat, Vec<CellPage>>,
        slots: &BTreeMap<Seat, usize>,
        ticket: Ticket,
    ) -> Result<Pool, OpenError> {
        let Self {
            mut pool,
            lagging,
            heirs,
            newest,
            unclean,
            mut degraded,
            mut given_up,
            mut candidates,
            ..
        } = self;
        let of_candidates = tables.extract_if(.., |seat, _| candidates.contains_key(seat));
        let of_candidates: BTreeMap<_, _> = of_candidates.collect();
        let mut stale = pool.cx.placement.load(&pool.cx.facts, &tables);
        candidates.retain(|seat, _| !given_up.contains(seat));
        pool.read_journal_of(&candidates);
        if pool.waits_for_drives()
            && let Some((again, superseded)) = pool.take_back(&candidates, &tables, &of_candidates)
        {
            (pool, stale) = (again, superseded);
        }
        let away = pool.away(&given_up);
        if pool.may_have_the_journal(&away) {
            if !seeded::is(SeededFault::UndecidedDropped) {
                let missing = pool.named(&away);
                return Err(OpenError::Waits { missing });
            }
            degraded = true;
            given_up.extend(&away);
        }
        match pool.unreadable_group() {
            Some(group) if !degraded && !away.is_empty() => {
                let missing = pool.named(&away);
                return Err(OpenError::DataLost { missing, group });
            }
            Some(group) if !degraded => return Err(OpenError::Damaged { group }),
            _ => {}
        }
        pool.give_up(&given_up);
        let mut effects = pool.opening_effects();
        effects.extend(pool.replacements.reopen(&mut pool.cx));
        pool.cx.facts.clean = false;
        pool.cx.facts.journal_empty = false;
        for cell in stale {
            let page = pool.cx.placement.clear_entry(cell);
            pool.cx.write_cell_page(page);
        }
        let mut then = vec![OnDurable::VolumesChanged, OnDurable::Done(ticket, Ok(()))];
        // A drive that was to succeed one that is out takes the seat, and is rebuilt.
        then.extend(heirs.into_iter().map(OnDurable::SeatSpare));
        then.push(OnDurable::Requeue);
        // Replaying a journal makes parity right; without a journal parity is computed again.
        then.push(if unclean && pool.cx.facts.regions.is_none() {
            OnDurable::Resync
        } else {
            OnDurable::CopiesAgree
        });
        effects.push(OnDurable::Recover { fresh: false, then });
        pool.cx.level_labels(slots, &lagging, &newest);
        pool.cx.commit(effects);
        Ok(pool)
    }
}

/// Which drives an opening cannot do without.
impl Pool {
    /// Seats of the layout whose drive is out and may have data that no other drive has: all but those whose drives were
    /// given up.
    fn away(&self, given_up: &BTreeSet<Seat>) -> Vec<Seat> {
        let away = self.cx.layout_seats().filter(|seat| {
            let facts = &self.cx.facts.seats[seat.index()];
            let is_out = matches!(facts.state, SeatState::Out { .. });
            is_out && !facts.is_given_up() && !given_up.contains(seat)
        });
        away.collect()
    }

    /// A group of a volume that cannot be read.
    fn unreadable_group(&mut self) -> Option<GroupId> {
        let (placement, geometry, plans) =
            (&self.cx.placement, &self.cx.geometry, &mut self.cx.plans);
        let lost = placement.lacking().filter(|&group| {
            let readable = placement.readable(group, &[]);
            !is_recoverable(geometry, plans, group, &readable)
        });
        placement.groups().first(lost)
    }

    /// True if without the drives that are away data cannot be read, or the end of the journal is not known.
    fn waits_for_drives(&mut self) -> bool {
        let away = self.away(&BTreeSet::new());
        self.may_have_the_journal(&away) || !away.is_empty() && self.unreadable_group().is_some()
    }

    /// True if the end of the journal may be on these drives alone: more of them may have batches that count than a
    /// batch survives losses, which are as many as a stripe survives.
    fn may_have_the_journal(&self, away: &[Seat]) -> bool {
        let needed = away.iter().filter(|seat| {
            self.cx.facts.seats[seat.index()].in_journal && !self.journal.sources.contains(seat)
        });
        needed.count() > usize::from(self.cx.geometry.code().tolerance())
    }

    /// If more drives are out than a batch of the journal survives, the journal of those that were found is read, too.
    /// Otherwise it is not: a drive that is out may hang.
    fn read_journal_of(&mut self, candidates: &BTreeMap<Seat, Candidate>) {
        let needed = self.away(&BTreeSet::new());
        let needed = { needed.into_iter() }
            .filter(|seat| self.cx.facts.seats[seat.index()].in_journal)
            .collect::<BTreeSet<Seat>>();
        if needed.len() > usize::from(self.cx.geometry.code().tolerance()) {
            let found = candidates.keys().copied();
            self.journal.sources = found.filter(|seat| needed.contains(seat)).collect();
        }
    }

    /// Puts drives that are out in use again, with all that they have: those that went out last first, until all data
    /// can be read.
    ///
    /// If a group could not be read from the moment on when a drive left, nothing was written to the group since, and
    /// the drive's column is as it was. If it could be read then, without the drives that left before, the drive is out
    /// of date for it and does not help. Blocks of other groups may be old; their checksums show that, as for a drive
    /// that was set back.
    ///
    /// Returns the pool and the cells whose entries are superseded; `None` if the drives that were found do not suffice.
    fn take_back(
        &self,
        candidates: &BTreeMap<Seat, Candidate>,
        tables: &BTreeMap<Seat, Vec<CellPage>>,
        of_candidates: &BTreeMap<Seat, Vec<CellPage>>,
    ) -> Option<(Self, Vec<Cell>)> {
        let mut levels: BTreeMap<Generation, Vec<Seat>> = BTreeMap::new();
        for seat in self.away(&BTreeSet::new()) {
            let state = self.cx.facts.seats[seat.index()].state;
            let since = match (candidates.get(&seat), state) {
                (Some(candidate), _) => candidate.since,
                (None, SeatState::Out { since, .. }) => since,
                (None, _) => continue,
            };
            levels.entry(since).or_default().push(seat);
        }
        // Found or not: the drives of a level were in use when those of the level before it left.
        let mut then = self.cx.facts.clone();
        let mut tables = tables.clone();
        let mut back = Vec::new();
        for (_, seats) in levels.into_iter().rev() {
            let mut pool = build(then.clone(), self.cx.labels.generation()).ok()?;
            pool.cx.placement.load(&then, &tables);
            if pool.unreadable_group().is_none() {
                break;
            }
            for seat in seats {
                then.seats[seat.index()].state = SeatState::Current;
                if let (Some(candidate), Some(table)) =
                    (candidates.get(&seat), of_candidates.get(&seat))
                {
                    then.seats[seat.index()] = candidate.facts.clone();
                    tables.insert(seat, table.clone());
                    back.push(seat);
                }
            }
        }
        let mut facts = self.cx.facts.clone();
        for seat in &back {
            facts.seats[seat.index()] = candidates[seat].facts.clone();
        }
        let mut pool = build(facts, self.cx.labels.generation()).ok()?;
        pool.journal.sources.clone_from(&self.journal.sources);
        let stale = pool.cx.placement.load(&pool.cx.facts, &tables);
        if back.is_empty() || pool.waits_for_drives() {
            return None;
        }
        let columns = back
            .iter()
            .flat_map(|&seat| pool.cx.placement.columns_on(seat));
        let groups: BTreeSet<GroupId> = columns.map(|(group, _)| group).collect();
        for group in groups {
            // Copies of pages may be older there, or torn: they are compared.
            pool.scrub.scrub_for(&pool.cx, group, pool.fills.is_idle());
        }
        for seat in back {
            pool.cx.report(Report::DriveTakenBack { seat });
        }
        Some((pool, stale))
    }

    /// The drives of these seats are given up.
    fn give_up(&mut self, seats: &BTreeSet<Seat>) {
        for &seat in seats {
            if let Some(facts) = self.cx.facts.seats.get_mut(seat.index())
                && let SeatState::Out { reason, .. } = &mut facts.state
            {
                *reason = OutReason::FailedByAdministrator;
            }
        }
        self.cx.seats_changed();
    }

    /// Seats with the paths of their drives, for errors.
    fn named(&self, seats: &[Seat]) -> String {
        let name = |&seat: &Seat| {
            let number = self.cx.facts.number(seat);
            named(number, &self.cx.facts.seats[seat.index()])
        };
        seats.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}

impl Pool {
    /// The report on a drive that is smaller than its label states.
    fn cut_drive(&self, seat: Seat) -> Option<Report> {
        let facts = &self.cx.facts.seats[seat.index()];
        Some(Report::DriveCut {
            seat,
            label_bytes: facts.size_bytes,
            drive_bytes: facts.found_bytes?,
        })
    }

    /// Actions that give the lanes their state at opening.
    fn opening_effects(&self) -> Vec<OnDurable> {
        let mut effects = Vec::new();
        if !self.cx.facts.uninitialized.is_empty()
            && !seeded::is(SeededFault::UninitializedForgotten)
        {
            let runs = self.cx.facts.uninitialized.clone();
            effects.push(OnDurable::Lanes(Command::Uninitialized(runs)));
        }
        // Vacant seats, too: lanes have no drive there.
        for seat in (0..self.cx.geometry.layout().drives()).map(Seat) {
            match self.cx.facts.seats[seat.index()].state {
                SeatState::Current | SeatState::Waiting => {}
                SeatState::Filling => effects.push(OnDurable::Lanes(Command::SeatIn(seat))),
                SeatState::Out { since, reason } => {
                    effects.push(OnDurable::Lanes(Command::SeatOut(seat)));
                    if since == self.cx.labels.generation().next() {
                        effects.push(OnDurable::Report(Report::DriveOut {
                            seat,
                            reason,
                            since,
                        }));
                        effects.extend(self.cut_drive(seat).map(OnDurable::Report));
                    }
                }
            }
        }
        for record in self.cx.placement.records() {
            let (cell, (group, column)) = (record.cell, record.key);
            effects.push(OnDurable::Place {
                group,
                column,
                cell,
            });
        }
        effects
    }
}
