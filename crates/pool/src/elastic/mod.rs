//! Elastic RAID in the pool: which stripes are kept as copies, and which as parity.
//!
//! The lanes count and convert (`lane/convert.rs`); [`Conversion`] chooses the groups; a policy says how many stripes
//! should be copies. The pool keeps the administrator's share in its facts.
//!
//! Input: groups that lanes have changed, steps that have ended, samples of the drives, and groups that are needed for
//! something else; with each question the room of the drives, and whether columns move. Output: commands to lanes, and
//! whether physical space can be freed.
//!
//! Invariant: nothing is converted unless every column is in its place.

mod conversion;
mod policy;
mod spec;

use std::collections::BTreeSet;
use std::time::Duration;

use block::{Instant, Outcome};
use format::{Form, GroupId, StripeId};
use layout::Scheme;
use plan::action::{Command, FormCounts};

use self::conversion::{Conversion, Space};
pub use self::policy::{ELASTIC_POLICIES, ElasticPolicy, policy_of};
pub use self::spec::{ElasticError, ElasticSpec};
use super::context::Context;
use super::room::{DriveRoom, RoomLevel, Rooms};
use super::spec::NewDrive;
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
    let_go: BTreeSet<GroupId>,
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

/// What conversions depend on beside the context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside<'a> {
    /// How much physical space the drives have.
    pub(super) rooms: &'a Rooms,
    /// Cells are filled, or a drive is being replaced.
    pub(super) moving: bool,
}

impl Beside<'_> {
    /// True if every column is in its place, and nothing is being filled or replaced.
    fn is_whole(self, cx: &Context) -> bool {
        let mut seats = cx.layout_seats();
        !self.moving && seats.all(|seat| cx.state(seat) == SeatState::Current)
    }

    /// True if copies of so many stripes leave every drive below its lower line, even if they do not compress.
    fn has_space_for_copies_of(self, cx: &Context, stripes: u64) -> bool {
        let copies = u64::from(cx.geometry.code().tolerance());
        let bytes = stripes * copies * cx.geometry.stripe_data_bytes();
        let each = bytes / u64::from(cx.geometry.layout().drives());
        let fits = |room: DriveRoom| room.used_bytes.saturating_add(each) < room.lower_bytes;
        self.rooms.drives().all(fits)
    }
}

/// Questions.
impl Elastic {
    pub(super) fn is_idle(&self) -> bool {
        self.conversion.in_flight() == 0
    }

    pub(super) fn is_converting(&self, group: GroupId) -> bool {
        self.conversion.is_in_flight(group)
    }

    pub(super) fn check(&self) {
        self.conversion.check();
    }

    fn status(&self, cx: &Context, beside: Beside<'_>) -> ElasticStatus {
        let (written, copies) = self.conversion.totals();
        let reason = self.reason(cx, beside);
        ElasticStatus {
            share: cx.facts.elastic_share,
            written,
            copies,
            converted: self.conversion.converted(),
            converting: reason.form().filter(|_| !self.is_idle()),
            reason,
        }
    }

    fn reason(&self, cx: &Context, beside: Beside<'_>) -> ElasticReason {
        if !cx.recovered || cx.closing.is_some() {
            return ElasticReason::Closing;
        }
        if !beside.is_whole(cx) {
            return ElasticReason::Incomplete;
        }
        let (_, copies) = self.conversion.totals();
        let wanted = self.copies_wanted(cx);
        if !self.conversion.is_counted(wanted) {
            return ElasticReason::Counting;
        }
        match self.space(beside.rooms) {
            Space::Short if copies > 0 => ElasticReason::SpaceShort,
            _ if copies > wanted => ElasticReason::FewerWanted,
            _ if copies == wanted => ElasticReason::AsWanted,
            Space::Free => ElasticReason::SpaceFree,
            Space::Enough | Space::Short => ElasticReason::SpaceEnough,
        }
    }

    fn copies_wanted(&self, cx: &Context) -> u64 {
        let share = cx.facts.elastic_share;
        let (written, _) = self.conversion.totals();
        policy_of(share).wanted(written, share)
    }

    /// How much physical space the drives have, by the lines. Drives that do not know their use have enough.
    fn space(&self, rooms: &Rooms) -> Space {
        let is_above = |room: DriveRoom| room.level() == RoomLevel::Above;
        if rooms.writes_wait().is_some() || rooms.drives().any(is_above) {
            return Space::Short;
        }
        // What becomes copies between two samples is not in the last one.
        let left = |room: DriveRoom| room.lower_bytes.saturating_sub(room.used_bytes);
        match rooms.drives().map(left).min() {
            Some(left) if left <= self.promised_bytes => Space::Enough,
            Some(_) | None => Space::Free,
        }
    }

    /// How far the conversions under way are; `None` if there are none.
    fn progress(&self, cx: &Context, beside: Beside<'_>) -> Option<ConversionProgress> {
        let Run {
            to,
            began,
            converted_before,
        } = self.run?;
        let reason = self.reason(cx, beside);
        if reason.form() != Some(to) {
            return None;
        }
        let (_, copies) = self.conversion.totals();
        let left = match reason {
            ElasticReason::SpaceShort => copies,
            _ => copies.abs_diff(self.copies_wanted(cx)),
        };
        Some(ConversionProgress {
            began,
            done: self.conversion.converted() - converted_before,
            left,
            is_certain: match reason {
                ElasticReason::FewerWanted => true,
                ElasticReason::SpaceFree => beside.has_space_for_copies_of(cx, left),
                _ => false,
            },
        })
    }
}

/// What happens.
impl Elastic {
    /// The administrator wants another share of copies.
    fn set_share(&mut self, cx: &mut Context, share: Option<u8>) {
        cx.facts.elastic_share = share.map(|share| share.min(100));
        self.may_go_on();
        // What was written since the last checkpoint counts, too.
        self.count(cx);
    }

    /// Something has changed that conversions may have waited for: a drive is back, or the share is another one.
    fn may_go_on(&mut self) {
        self.conversion.try_again();
        self.failed = false;
    }

    /// All groups are counted again.
    pub(super) fn count(&mut self, cx: &Context) {
        if cx.geometry.is_elastic() {
            self.conversion.count(cx.placement.groups().all());
        }
    }

    /// A lane has put blocks of these groups in place.
    pub(super) fn may_have_changed(&mut self, cx: &Context, groups: &[GroupId]) {
        self.failed = false;
        let ours = { groups.iter().copied() }.filter(|&group| cx.placement.groups().has(group));
        self.conversion.changed(ours);
    }

    /// These groups belong to no volume any more.
    pub(super) fn forget(&mut self, freed: &[(u64, u64)]) {
        let is_freed = |group: GroupId| format::runs::run_of(freed, group.0).is_some();
        self.conversion.forget(is_freed);
    }

    /// A step of a lane has ended.
    pub(super) fn converted(
        &mut self,
        cx: &Context,
        group: GroupId,
        forms: FormCounts,
        outcome: Outcome,
    ) {
        self.conversion.ended(group, forms, outcome.is_ok());
        let let_go = self.let_go.remove(&group);
        self.failed |= outcome.is_err() && !let_go;
        if !cx.placement.groups().has(group) {
            self.conversion.forget(|other| other == group);
        }
    }

    /// Ends the conversion of a group.
    pub(super) fn let_go(&mut self, cx: &mut Context, group: GroupId) {
        if self.is_converting(group) && self.let_go.insert(group) {
            let group_only = Command::StopConverting { group: Some(group) };
            cx.tell_lane(group, group_only);
        }
    }

    /// The pool is being closed: all conversions end.
    pub(super) fn stop(&self, cx: &mut Context) {
        if !self.is_idle() {
            cx.tell_lanes(&Command::StopConverting { group: None });
        }
    }

    /// The drives have been sampled.
    pub(super) fn sampled(&mut self, cx: &Context) {
        self.promised_bytes = 0;
        if self.short_again_at <= cx.now {
            self.short_again_at = cx.now + SHORT_AGAIN;
            self.conversion.try_short_again();
        }
    }

    /// Begins what can be counted or converted now. Returns whether copies can be given up to free space; `None` if that is
    /// as before.
    pub(super) fn pump(&mut self, cx: &mut Context, beside: Beside<'_>) -> Option<bool> {
        if !cx.geometry.is_elastic() || !cx.recovered || cx.closing.is_some() {
            return None;
        }
        let whole = beside.is_whole(cx);
        let before = std::mem::replace(&mut self.was_whole, whole);
        if whole && !before {
            self.may_go_on();
        }
        let (_, copies) = self.conversion.totals();
        if whole && !self.failed {
            self.begin_steps(cx, beside);
        }
        Some(whole && copies > 0)
    }

    fn begin_steps(&mut self, cx: &mut Context, beside: Beside<'_>) {
        let stripes = cx.geometry.stripes_per_group();
        loop {
            let wanted = self.copies_wanted(cx);
            let space = self.space(beside.rooms);
            let Some(step) = self.conversion.next(wanted, space) else {
                if self.is_idle() && self.reason(cx, beside).form().is_none() {
                    self.run = None;
                }
                return;
            };
            if let Some(to) = step.to
                && self.run.is_none_or(|run| run.to != to)
            {
                self.run = Some(Run {
                    to,
                    began: cx.now,
                    converted_before: self.conversion.converted(),
                });
            }
            if step.to == Some(Form::Copies) {
                let copies = u64::from(cx.geometry.code().tolerance());
                self.promised_bytes += step.most * copies * cx.geometry.chunk_bytes();
            }
            let command = Command::Convert {
                group: step.group,
                stripes: StripeId::range(0..stripes),
                to: step.to,
                most: step.most,
            };
            cx.tell_lane(step.group, command);
        }
    }
}

impl ElasticSpec {
    /// That of a pool; `None` if it is not elastic.
    fn of_pool(cx: &Context) -> Option<Self> {
        let scheme = cx.facts.scheme.parse::<Scheme>().ok()?;
        let expansion = scheme.expansion.filter(|_| cx.geometry.is_elastic())?;
        Some(Self {
            expansion,
            planes: cx.geometry.code().tolerance() + 1,
        })
    }
}

impl Pool {
    fn beside_conversions(&self) -> Beside<'_> {
        Beside {
            rooms: &self.rooms,
            moving: self.moves_columns(),
        }
    }

    fn moves_columns(&self) -> bool {
        !self.fills.is_idle() || self.is_replacing()
    }

    pub(super) fn pump_elastic(&mut self) {
        let beside = Beside {
            moving: self.moves_columns(),
            rooms: &self.rooms,
        };
        if let Some(frees) = self.elastic.pump(&mut self.cx, beside) {
            self.rooms.set_frees(frees);
        }
    }

    pub(super) fn conversion_progress(&self) -> Option<ConversionProgress> {
        self.elastic.progress(&self.cx, self.beside_conversions())
    }

    /// The state of elastic stripes; `None` if the pool is not elastic.
    #[must_use]
    pub fn elastic_status(&self) -> Option<ElasticStatus> {
        let status = || self.elastic.status(&self.cx, self.beside_conversions());
        self.cx.geometry.is_elastic().then(status)
    }

    /// Whether a drive that is new to the pool may join it: in an elastic pool it must be like those that the pool was
    /// created on.
    ///
    /// # Errors
    /// [`PoolError::Drive`] with what it lacks.
    pub fn check_new_drive(&self, drive: &NewDrive) -> Result<(), PoolError> {
        let Some(spec) = ElasticSpec::of_pool(&self.cx) else {
            return Ok(());
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
        self.elastic.set_share(&mut self.cx, share);
        self.cx.commit(vec![OnDurable::Done(ticket, Ok(()))]);
        self.advance();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use block::{Fault, Seat, Usage};

    use super::super::room::Shape;
    use super::*;
    use crate::fixture;

    const MIB: u64 = 1 << 20;

    /// The stripes of a pool with the volume `v` of four groups, of which each has ten stripes that were written.
    struct Lab {
        cx: Context,
        elastic: Elastic,
        rooms: Rooms,
        moving: bool,
        /// Copies in each group.
        copies: [u64; 4],
    }

    impl Lab {
        fn new() -> Self {
            let cx = fixture::elastic_context(4);
            Self {
                rooms: Rooms::new(cx.geometry.lanes()),
                cx,
                elastic: Elastic::default(),
                moving: false,
                copies: [0; 4],
            }
        }

        /// The same, of which all groups are counted.
        fn counted(share: u8, copies: [u64; 4]) -> Self {
            let mut lab = Self::new();
            lab.cx.facts.elastic_share = Some(share);
            lab.copies = copies;
            lab.elastic.count(&lab.cx);
            // Columns move: nothing is converted yet.
            lab.moving = true;
            lab.elastic.conversion.try_again();
            for group in (0..4).map(GroupId) {
                let step = lab.elastic.conversion.next(1, Space::Enough);
                assert_eq!(step.map(|step| (step.group, step.to)), Some((group, None)));
                lab.ends(group, 0, Ok(()));
            }
            lab.moving = false;
            lab
        }

        fn beside(&self) -> Beside<'_> {
            Beside {
                rooms: &self.rooms,
                moving: self.moving,
            }
        }

        fn reason(&self) -> ElasticReason {
            self.elastic.reason(&self.cx, self.beside())
        }

        /// What lanes convert from now on, and how many stripes at most.
        fn pump(&mut self) -> Vec<(GroupId, Option<Form>, u64)> {
            let beside = Beside {
                rooms: &self.rooms,
                moving: self.moving,
            };
            self.elastic.pump(&mut self.cx, beside);
            let commands = fixture::commands(&mut self.cx).into_iter();
            let begun = commands.map(|(lane, command)| match command {
                Command::Convert {
                    group, to, most, ..
                } => {
                    assert_eq!(lane, self.cx.geometry.lane_of(group));
                    (group, to, most)
                }
                other => panic!("{other:?}"),
            });
            begun.collect()
        }

        /// A step ends. So many stripes became copies, or parity.
        fn ends(&mut self, group: GroupId, converted: i64, outcome: Outcome) {
            let copies = &mut self.copies[usize::try_from(group.0).unwrap()];
            *copies = copies.checked_add_signed(converted).unwrap();
            let forms = FormCounts {
                written: 10,
                copies: *copies,
                converted: converted.unsigned_abs(),
                left: 0,
                short: 0,
            };
            self.elastic.converted(&self.cx, group, forms, outcome);
            self.elastic.check();
        }

        /// All drives use so much of the 64 MiB below their upper lines.
        fn use_is(&mut self, used_mib: u64) {
            let shape = Shape {
                reserve_bytes: 0,
                drives: 4,
                spares: 0,
                used_spares: 0,
            };
            let usage = Usage {
                physical_bytes: 65 * MIB,
                used_bytes: used_mib * MIB,
            };
            let seats = (0..4).map(|seat| (Seat(seat), Some(usage), shape));
            self.rooms.sampled(self.cx.now, self.cx.now, seats);
            self.elastic.sampled(&self.cx);
        }
    }

    const COPIES: Option<Form> = Some(Form::Copies);
    const PARITY: Option<Form> = Some(Form::Parity);

    #[test]
    fn at_first_all_groups_are_counted() {
        let mut lab = Lab::new();
        lab.elastic.count(&lab.cx);
        let counts = (0..4).map(|group| (GroupId(group), None, 0));
        assert!(lab.pump().into_iter().eq(counts));
        assert_eq!(lab.reason(), ElasticReason::Counting);
        assert!(!lab.elastic.is_idle());
    }

    #[test]
    fn stripes_become_copies_until_the_share_is_reached() {
        let mut lab = Lab::counted(30, [0; 4]);
        assert_eq!(lab.reason(), ElasticReason::SpaceFree);
        assert_eq!(
            lab.pump(),
            [(GroupId(0), COPIES, 10), (GroupId(1), COPIES, 2)]
        );
        lab.ends(GroupId(0), 10, Ok(()));
        lab.ends(GroupId(1), 2, Ok(()));
        assert!(lab.pump().is_empty());
        assert_eq!(lab.reason(), ElasticReason::AsWanted);
    }

    #[test]
    fn a_smaller_share_makes_parity_of_the_last_copies() {
        let mut lab = Lab::counted(50, [10, 10, 0, 0]);
        assert!(lab.pump().is_empty());
        lab.elastic.set_share(&mut lab.cx, Some(10));
        assert_eq!(lab.cx.facts.elastic_share, Some(10));
        let counts = (0..4).map(|group| (GroupId(group), None, 0));
        assert!(lab.pump().into_iter().eq(counts), "by a command all are");
        for group in (0..4).map(GroupId) {
            lab.ends(group, 0, Ok(()));
        }
        assert_eq!(lab.reason(), ElasticReason::FewerWanted);
        assert_eq!(
            lab.pump(),
            [(GroupId(1), PARITY, 10), (GroupId(0), PARITY, 6)]
        );
    }

    #[test]
    fn nothing_is_converted_while_columns_move_or_a_drive_is_out() {
        let mut lab = Lab::counted(100, [0; 4]);
        lab.moving = true;
        assert!(lab.pump().is_empty());
        lab.moving = false;
        fixture::is_out(&mut lab.cx, Seat(1), crate::OutReason::Hung);
        assert!(lab.pump().is_empty());
        assert_eq!(lab.reason(), ElasticReason::Incomplete);
        lab.cx.facts.seats[1].state = SeatState::Current;
        assert_eq!(lab.pump().len(), 4);
    }

    #[test]
    fn what_could_not_be_converted_is_tried_again_when_every_column_is_in_place_again() {
        let mut lab = Lab::counted(10, [0; 4]);
        assert_eq!(lab.pump(), [(GroupId(0), COPIES, 4)]);
        lab.ends(GroupId(0), 0, Ok(()));
        assert_eq!(lab.pump(), [(GroupId(1), COPIES, 4)]);
        lab.ends(GroupId(1), 0, Ok(()));
        lab.moving = true;
        lab.pump();
        lab.moving = false;
        assert_eq!(lab.pump(), [(GroupId(0), COPIES, 4)]);
    }

    #[test]
    fn after_a_fault_nothing_is_tried_until_something_changes() {
        let mut lab = Lab::counted(10, [0; 4]);
        lab.pump();
        lab.ends(GroupId(0), 0, Err(Fault::Medium));
        assert!(lab.pump().is_empty());
        lab.elastic
            .may_have_changed(&lab.cx, &[GroupId(2), GroupId(99)]);
        assert_eq!(lab.pump(), [(GroupId(0), None, 0), (GroupId(2), None, 0)]);
    }

    #[test]
    fn a_group_that_is_needed_is_let_go_once_and_that_is_no_fault() {
        let mut lab = Lab::counted(10, [0; 4]);
        lab.pump();
        for _ in 0..2 {
            lab.elastic.let_go(&mut lab.cx, GroupId(0));
            lab.elastic.let_go(&mut lab.cx, GroupId(3));
        }
        let lane = lab.cx.geometry.lane_of(GroupId(0));
        let stop = Command::StopConverting {
            group: Some(GroupId(0)),
        };
        assert_eq!(fixture::commands(&mut lab.cx), [(lane, stop)]);
        lab.ends(GroupId(0), 0, Err(Fault::Shutdown));
        assert_eq!(lab.pump(), [(GroupId(0), None, 0)]);
    }

    #[test]
    fn above_the_upper_line_copies_are_given_up_whatever_share_is_wanted() {
        let mut lab = Lab::counted(100, [10, 0, 0, 0]);
        lab.use_is(64);
        assert_eq!(lab.reason(), ElasticReason::SpaceShort);
        assert_eq!(lab.pump(), [(GroupId(0), PARITY, 10)]);
    }

    #[test]
    fn between_the_lines_nothing_is_converted() {
        let mut lab = Lab::counted(100, [10, 0, 0, 0]);
        lab.use_is(62);
        assert!(lab.pump().is_empty());
        assert_eq!(lab.reason(), ElasticReason::SpaceEnough);
    }

    #[test]
    fn what_has_been_promised_to_copies_counts_until_the_next_sample() {
        let mut lab = Lab::counted(100, [0; 4]);
        // The lower line is at 59.9 MiB and more, so there is room for one group.
        lab.use_is(59);
        let copies = u64::from(lab.cx.geometry.code().tolerance());
        let bytes = 10 * copies * lab.cx.geometry.chunk_bytes();
        let left = lab
            .rooms
            .drives()
            .map(|room| room.lower_bytes - room.used_bytes);
        let groups = left.min().unwrap().div_ceil(bytes);
        assert!((1..4).contains(&groups), "{groups} groups of {bytes}");
        assert_eq!(lab.pump().len() as u64, groups);
        lab.use_is(59);
        assert_eq!(lab.pump().len() as u64, groups.min(4 - groups));
    }

    #[test]
    fn groups_without_room_are_tried_again_with_a_sample_and_not_at_once() {
        let mut lab = Lab::counted(10, [0; 4]);
        lab.use_is(0);
        lab.cx.now = Instant::ZERO + SHORT_AGAIN / 2;
        let short = FormCounts {
            written: 10,
            copies: 0,
            converted: 0,
            left: 4,
            short: 4,
        };
        for group in (0..4).map(GroupId) {
            assert_eq!(lab.pump(), [(group, COPIES, 4)]);
            lab.elastic.converted(&lab.cx, group, short, Ok(()));
        }
        lab.use_is(0);
        assert!(lab.pump().is_empty());
        lab.cx.now = Instant::ZERO + SHORT_AGAIN;
        lab.use_is(0);
        assert_eq!(lab.pump(), [(GroupId(0), COPIES, 4)]);
    }

    #[test]
    fn space_can_be_freed_while_there_are_copies_and_every_column_is_in_place() {
        let frees = |copies, moving| {
            let mut lab = Lab::counted(25, copies);
            let rooms = &lab.rooms;
            lab.elastic.pump(&mut lab.cx, Beside { rooms, moving })
        };
        assert_eq!(frees([10, 0, 0, 0], false), Some(true));
        assert_eq!(frees([10, 0, 0, 0], true), Some(false));
        assert_eq!(frees([0; 4], false), Some(false));
    }

    #[test]
    fn a_group_that_was_given_up_during_its_step_counts_no_more() {
        let mut lab = Lab::counted(25, [0; 4]);
        assert_eq!(lab.pump(), [(GroupId(0), COPIES, 10)]);
        lab.cx.facts.volumes[0].extents = vec![(1, 3)];
        lab.cx.groups_changed();
        lab.elastic.forget(&[(0, 1)]);
        lab.ends(GroupId(0), 10, Ok(()));
        assert_eq!(lab.elastic.conversion.totals(), (30, 0));
    }

    #[test]
    fn progress_is_that_of_the_conversions_under_way_and_ends_with_them() {
        let mut lab = Lab::counted(30, [0; 4]);
        let progress = |lab: &Lab| lab.elastic.progress(&lab.cx, lab.beside());
        assert!(progress(&lab).is_none());
        lab.cx.now = Instant(7);
        lab.pump();
        lab.ends(GroupId(0), 10, Ok(()));
        let now = progress(&lab).unwrap();
        assert_eq!((now.began, now.done, now.left), (Instant(7), 10, 2));
        assert!(
            now.is_certain,
            "drives that do not know their use have room"
        );
        lab.ends(GroupId(1), 2, Ok(()));
        lab.pump();
        assert!(progress(&lab).is_none() && lab.elastic.run.is_none());
    }

    #[test]
    fn when_the_pool_is_closed_what_is_under_way_ends_and_nothing_begins() {
        let mut lab = Lab::counted(30, [0; 4]);
        lab.elastic.stop(&mut lab.cx);
        assert!(fixture::commands(&mut lab.cx).is_empty());
        lab.pump();
        lab.cx.closing = Some(Ticket(1));
        lab.elastic.stop(&mut lab.cx);
        let stop = Command::StopConverting { group: None };
        let stops = fixture::commands(&mut lab.cx);
        assert!(stops.iter().all(|(_, command)| *command == stop) && !stops.is_empty());
        lab.ends(GroupId(0), 0, Err(Fault::Shutdown));
        lab.ends(GroupId(1), 0, Err(Fault::Shutdown));
        assert!(lab.pump().is_empty());
        assert_eq!(lab.reason(), ElasticReason::Closing);
    }

    #[test]
    fn a_pool_of_one_form_counts_and_converts_nothing() {
        let mut lab = Lab::new();
        lab.cx = fixture::context("raid6", 6, 4);
        lab.elastic.count(&lab.cx);
        assert!(lab.pump().is_empty());
        assert!(ElasticSpec::of_pool(&lab.cx).is_none());
    }

    #[test]
    fn a_drive_that_joins_must_know_its_use() {
        let pool = fixture::elastic_pool();
        let lacks = pool.check_new_drive(&fixture::drive(9));
        let Err(PoolError::Drive { error }) = lacks else {
            panic!("{lacks:?}");
        };
        assert!(matches!(error, ElasticError::Unknown { plain: None, .. }));
        assert_eq!(pool.check_new_drive(&fixture::elastic_drive(9)), Ok(()));
        let plain = fixture::pool("raid6", 6);
        assert_eq!(plain.check_new_drive(&fixture::drive(9)), Ok(()));
    }
}
