//! Elastic RAID in the pool: which stripes are kept as copies, and which as parity.
//!
//! The lanes count and convert (`lane/convert.rs`); [`Conversion`] chooses the groups; a policy says how many stripes
//! should be copies. The pool keeps the administrator's share in its facts.

mod conversion;
mod policy;
mod spec;

use std::collections::BTreeSet;
use std::time::Duration;

use block::{Instant, Outcome};
use format::Form;
use layout::Scheme;
use plan::action::{Command, FormCounts};

use self::conversion::{Conversion, Space};
pub use self::policy::{ELASTIC_POLICIES, ElasticPolicy, policy_of};
pub use self::spec::{ElasticError, ElasticSpec};
use super::create::NewDrive;
use super::room::{DriveRoom, RoomLevel};
use super::{OnDurable, Pool, PoolError, SeatState, Ticket};

/// The time after which groups are tried again for whose copies there was no room. Each trial requests a sample of the
/// drives, so it must not follow from a sample at once.
const SHORT_AGAIN: Duration = Duration::from_secs(1);

/// The state of elastic stripes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElasticStatus {
    /// The share of written stripes that the administrator wants as copies; `None`: as many as there is space for.
    pub share: Option<u8>,
    /// Stripes that were written, as far as they have been counted.
    pub written: u64,
    /// How many of them are copies.
    pub copies: u64,
    /// Stripes converted since the pool was opened.
    pub converted: u64,
    /// The form that stripes are converted to now.
    pub converting: Option<Form>,
    /// Why stripes are converted, or are not.
    pub reason: ElasticReason,
}

/// Why stripes are converted, or are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElasticReason {
    /// As many as wanted are copies.
    AsWanted,
    /// They are being counted.
    Counting,
    /// A drive is away, or cells are being filled: every stripe must be whole before it is converted.
    Incomplete,
    /// More copies are wanted, and all drives are below their lower lines.
    SpaceFree,
    /// More copies are wanted, and a drive is above its lower line.
    SpaceEnough,
    /// A drive is above its upper line.
    SpaceShort,
    /// Fewer copies are wanted.
    FewerWanted,
    /// The pool is being closed, or opened.
    Closing,
}

impl ElasticReason {
    /// True if nothing is to be counted or converted for this reason.
    #[must_use]
    pub const fn is_at_rest(self) -> bool {
        match self {
            Self::AsWanted | Self::Incomplete | Self::SpaceEnough | Self::Closing => true,
            Self::Counting | Self::SpaceFree | Self::SpaceShort | Self::FewerWanted => false,
        }
    }

    /// The form that stripes are converted to for this reason.
    #[must_use]
    pub const fn form(self) -> Option<Form> {
        match self {
            Self::SpaceFree => Some(Form::Copies),
            Self::SpaceShort | Self::FewerWanted => Some(Form::Parity),
            Self::AsWanted
            | Self::Incomplete
            | Self::SpaceEnough
            | Self::Closing
            | Self::Counting => None,
        }
    }

    /// In words, for people.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::AsWanted => "as many stripes as wanted are copies",
            Self::Counting => "stripes are being counted",
            Self::Incomplete => {
                "stripes are not converted while a drive is away or cells are filled"
            }
            Self::SpaceFree => "stripes become copies: all drives have space",
            Self::SpaceEnough => "no more stripes become copies: a drive is above its lower line",
            Self::SpaceShort => "stripes become parity: a drive is above its upper line",
            Self::FewerWanted => "stripes become parity: fewer copies are wanted",
            Self::Closing => "the pool is not open",
        }
    }
}

/// The pool's part of elastic stripes.
#[derive(Clone, Debug, Default)]
pub(super) struct Elastic {
    conversion: Conversion,
    /// A step has failed: nothing is tried before something changes.
    failed: bool,
    /// Groups whose conversion is to end, and has not ended yet.
    let_go: BTreeSet<u64>,
    /// When it was checked last, every column was in its place.
    was_whole: bool,
    /// Bytes that copies may have added to a drive since the drives were sampled last.
    promised_bytes: u64,
    /// When groups for whose copies there was no room are tried again, with the first sample from then on.
    short_again_at: Instant,
    /// The conversions under way; they end when nothing is left to convert.
    run: Option<Run>,
}

/// Conversions to one form, one after another.
#[derive(Clone, Copy, Debug)]
struct Run {
    to: Form,
    began: Instant,
    /// Stripes that had been converted before.
    converted_before: u64,
}

/// How far conversions to one form are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConversionProgress {
    pub(super) began: Instant,
    /// Stripes that have been converted.
    pub(super) done: u64,
    /// Stripes that are still to be converted, at most.
    pub(super) left: u64,
    /// As many as are left are converted, whatever space drives have.
    pub(super) is_certain: bool,
}

impl Elastic {
    pub(super) fn is_idle(&self) -> bool {
        self.conversion.in_flight() == 0
    }

    pub(super) fn is_converting(&self, group: u64) -> bool {
        self.conversion.is_in_flight(group)
    }

    pub(super) fn check(&self) {
        self.conversion.check();
    }
}

impl Pool {
    /// The state of elastic stripes; `None` if the pool is not elastic.
    #[must_use]
    pub fn elastic_status(&self) -> Option<ElasticStatus> {
        if !self.cx.geometry.is_elastic() {
            return None;
        }
        let (written, copies) = self.elastic.conversion.totals();
        let reason = self.elastic_reason();
        let converting = reason.form().filter(|_| !self.elastic.is_idle());
        Some(ElasticStatus {
            share: self.cx.facts.elastic_share,
            written,
            copies,
            converted: self.elastic.conversion.converted(),
            converting,
            reason,
        })
    }

    /// Whether a drive that is new to the pool may join it: in an elastic pool it must be like those that the pool was
    /// created on.
    ///
    /// # Errors
    /// [`PoolError::Drive`] with what it lacks.
    pub fn check_new_drive(&self, drive: &NewDrive) -> Result<(), PoolError> {
        let scheme = self.cx.facts.scheme.parse::<Scheme>().ok();
        let expansion = scheme.and_then(|scheme| scheme.expansion);
        let Some(expansion) = expansion.filter(|_| self.cx.geometry.is_elastic()) else {
            return Ok(());
        };
        let spec = ElasticSpec {
            expansion,
            planes: self.cx.geometry.code().tolerance() + 1,
        };
        let mut seats = self.cx.layout_seats();
        let other = seats.find_map(|seat| {
            let facts = &self.cx.facts.seats[seat.index()];
            Some(NewDrive {
                physical_bytes: Some(self.room(seat)?.physical_bytes),
                ..NewDrive::new(facts.drive, facts.path.clone(), facts.size_bytes)
            })
        });
        let admitted = spec.admits(drive, other.as_ref());
        admitted.map_err(|error| PoolError::Drive { error })
    }

    /// Sets the share of written stripes that should be copies, in percent; `None`: as many as there is space for.
    ///
    /// # Errors
    /// [`PoolError::NotElastic`] when the pool's stripes have one form.
    pub fn set_elastic_share(
        &mut self,
        now: Instant,
        share: Option<u8>,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        if !self.cx.geometry.is_elastic() {
            return Err(PoolError::NotElastic);
        }
        self.cx.facts.elastic_share = share.map(|share| share.min(100));
        self.elastic_may_go_on();
        // What was written since the last checkpoint counts, too.
        self.count_forms();
        self.cx.commit(vec![OnDurable::Done(ticket, Ok(()))]);
        self.advance();
        Ok(())
    }

    /// Something has changed that conversions may have waited for: a drive is back, or the share is another one.
    pub(super) fn elastic_may_go_on(&mut self) {
        self.elastic.conversion.try_again();
        self.elastic.failed = false;
    }

    /// All groups are counted again.
    pub(super) fn count_forms(&mut self) {
        if self.cx.geometry.is_elastic() {
            let groups: Vec<u64> = self.cx.placement.groups().all().collect();
            self.elastic.conversion.count(groups);
        }
    }

    /// A lane has put blocks of these groups in place.
    pub(super) fn forms_may_have_changed(&mut self, groups: &[u64]) {
        self.elastic.failed = false;
        let ours =
            { groups.iter().copied() }.filter(|&group| self.cx.placement.groups().has(group));
        self.elastic.conversion.changed(ours);
    }

    /// These groups belong to no volume any more.
    pub(super) fn forget_forms(&mut self, freed: &[(u64, u64)]) {
        let is_freed = |group| format::runs::run_of(freed, group).is_some();
        self.elastic.conversion.forget(is_freed);
    }

    /// A step of a lane has ended.
    pub(super) fn converted(&mut self, group: u64, forms: FormCounts, outcome: Outcome) {
        let freed = !self.cx.placement.groups().has(group);
        self.elastic.conversion.ended(group, forms, outcome.is_ok());
        let let_go = self.elastic.let_go.remove(&group);
        self.elastic.failed |= outcome.is_err() && !let_go;
        if freed {
            self.elastic.conversion.forget(|other| other == group);
        }
    }

    /// Ends the conversion of a group.
    pub(super) fn let_conversion_go(&mut self, group: u64) {
        if self.elastic.is_converting(group) && self.elastic.let_go.insert(group) {
            let group_only = Command::StopConverting { group: Some(group) };
            self.cx.tell_lane(group, group_only);
        }
    }

    /// Begins what can be counted or converted now.
    pub(super) fn pump_elastic(&mut self) {
        if !self.cx.geometry.is_elastic() || !self.cx.recovered || self.cx.closing.is_some() {
            return;
        }
        let whole = self.is_whole_for_conversions();
        let before = std::mem::replace(&mut self.elastic.was_whole, whole);
        if whole && !before {
            self.elastic_may_go_on();
        }
        let (_, copies) = self.elastic.conversion.totals();
        self.set_frees_space(whole && copies > 0);
        if !whole || self.elastic.failed {
            return;
        }
        let stripes = self.cx.geometry.stripes_per_group();
        loop {
            let wanted = self.copies_wanted();
            let space = self.space();
            let Some(step) = self.elastic.conversion.next(wanted, space) else {
                if self.elastic.is_idle() && self.elastic_reason().form().is_none() {
                    self.elastic.run = None;
                }
                return;
            };
            if let Some(to) = step.to
                && self.elastic.run.is_none_or(|run| run.to != to)
            {
                self.elastic.run = Some(Run {
                    to,
                    began: self.cx.now,
                    converted_before: self.elastic.conversion.converted(),
                });
            }
            if step.to == Some(Form::Copies) {
                let copies = u64::from(self.cx.geometry.code().tolerance());
                let bytes = step.most * copies * self.cx.geometry.chunk_bytes();
                self.elastic.promised_bytes += bytes;
            }
            let command = Command::Convert {
                group: step.group,
                stripes: 0..stripes,
                to: step.to,
                most: step.most,
            };
            self.cx.tell_lane(step.group, command);
        }
    }

    fn copies_wanted(&self) -> u64 {
        let share = self.cx.facts.elastic_share;
        let (written, _) = self.elastic.conversion.totals();
        policy_of(share).wanted(written, share)
    }

    /// True if every column is in its place, and nothing is being filled or replaced.
    fn is_whole_for_conversions(&self) -> bool {
        let mut seats = self.cx.layout_seats();
        let current =
            |seat: block::Seat| self.cx.facts.seats[seat.index()].state == SeatState::Current;
        self.fills.is_idle() && !self.is_replacing() && seats.all(current)
    }

    /// How far the conversions under way are; `None` if there are none.
    pub(super) fn conversion_progress(&self) -> Option<ConversionProgress> {
        let Run {
            to,
            began,
            converted_before,
        } = self.elastic.run?;
        let reason = self.elastic_reason();
        if reason.form() != Some(to) {
            return None;
        }
        let conversion = &self.elastic.conversion;
        let (_, copies) = conversion.totals();
        let left = match reason {
            ElasticReason::SpaceShort => copies,
            _ => copies.abs_diff(self.copies_wanted()),
        };
        Some(ConversionProgress {
            began,
            done: conversion.converted() - converted_before,
            left,
            is_certain: match reason {
                ElasticReason::FewerWanted => true,
                ElasticReason::SpaceFree => self.has_space_for_copies_of(left),
                _ => false,
            },
        })
    }

    /// True if copies of so many stripes leave every drive below its lower line, even if they do not compress.
    fn has_space_for_copies_of(&self, stripes: u64) -> bool {
        let copies = u64::from(self.cx.geometry.code().tolerance());
        let bytes = stripes * copies * self.cx.geometry.stripe_data_bytes();
        let each = bytes / u64::from(self.cx.geometry.layout().drives());
        let fits = |room: DriveRoom| room.used_bytes.saturating_add(each) < room.lower_bytes;
        self.rooms().all(fits)
    }

    /// How much physical space the drives have, by the lines. Drives that do not know their use have enough.
    fn space(&self) -> Space {
        let short = self.writes_wait().is_some();
        if short || self.rooms().any(|room| room.level() == RoomLevel::Above) {
            return Space::Short;
        }
        // What becomes copies between two samples is not in the last one.
        let left = self
            .rooms()
            .map(|room| room.lower_bytes.saturating_sub(room.used_bytes));
        match left.min() {
            Some(left) if left <= self.elastic.promised_bytes => Space::Enough,
            Some(_) | None => Space::Free,
        }
    }

    /// The drives have been sampled.
    pub(super) fn elastic_sampled(&mut self) {
        self.elastic.promised_bytes = 0;
        if self.elastic.short_again_at <= self.cx.now {
            self.elastic.short_again_at = self.cx.now + SHORT_AGAIN;
            self.elastic.conversion.try_short_again();
        }
        if self.cx.geometry.is_elastic() {
            self.advance();
        }
    }

    fn elastic_reason(&self) -> ElasticReason {
        let conversion = &self.elastic.conversion;
        if !self.cx.recovered || self.cx.closing.is_some() {
            return ElasticReason::Closing;
        }
        if !self.is_whole_for_conversions() {
            return ElasticReason::Incomplete;
        }
        let (_, copies) = conversion.totals();
        let wanted = self.copies_wanted();
        if !conversion.is_counted(wanted) {
            return ElasticReason::Counting;
        }
        match self.space() {
            Space::Short if copies > 0 => ElasticReason::SpaceShort,
            _ if copies > wanted => ElasticReason::FewerWanted,
            _ if copies == wanted => ElasticReason::AsWanted,
            Space::Free => ElasticReason::SpaceFree,
            Space::Enough | Space::Short => ElasticReason::SpaceEnough,
        }
    }
}
