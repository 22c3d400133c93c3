//! Volumes: space in units of groups. New space reads as zeros: in pools with the feature `lazy-initialization` because
//! it was never written (`initialize.rs`), in others because it is zeroed before.
//!
//! Input: what administrators ask for, groups that lanes are about to write, the end of zeroing, and which groups are in
//! use. Output: [`Output`] and [`Changed`], which `Pool` routes. Changes of the facts that concern no other machine are
//! committed here.
//!
//! Invariant: no group belongs to two volumes, those that are being made included.

use block::{BLOCK_BYTES, Fault, Instant, Outcome};
use format::runs::{self, Runs};
use format::{GroupId, INTERLEAVED_VOLUMES, LAZY_INITIALIZATION};
use plan::SubStripePlans;
use plan::action::Command;
use uuid::Uuid;

use super::context::Context;
use super::initialize::{Changed, Initialization, Output, can_be_made_blank};
use super::space::{VolumeSpace, interleave_for};
use super::{OnDurable, Pool, PoolError, Ticket, VolumeFacts};

/// Maximum of volumes in a pool: what a quarter of a label can name.
const VOLUMES_MAX: usize = 400;
/// Groups of a volume that are zeroed at a time.
const ZEROING_MAX: usize = 16;

/// Space being zeroed for a volume that is created or grown.
#[derive(Clone, Debug)]
struct NewVolume {
    ticket: Ticket,
    /// The volume as it will be.
    volume: VolumeFacts,
    /// Groups still to be zeroed, the first one last.
    waiting: Vec<GroupId>,
    in_flight: usize,
    fault: Option<Fault>,
}

impl NewVolume {
    /// `more`: the groups that are new to the volume.
    fn new(volume: VolumeFacts, more: &Runs, ticket: Ticket) -> Self {
        let mut waiting: Vec<GroupId> = groups_of(more).collect();
        waiting.reverse();
        Self {
            ticket,
            volume,
            waiting,
            in_flight: 0,
            fault: None,
        }
    }
}

fn groups_of(runs: &Runs) -> impl Iterator<Item = GroupId> {
    let groups = runs.iter().flat_map(|&(first, count)| first..first + count);
    groups.map(GroupId)
}

/// Volumes that are being made, and groups that are being made blank.
#[derive(Clone, Debug, Default)]
pub(super) struct Volumes {
    new: Vec<NewVolume>,
    initialization: Initialization,
}

/// Whether this is a valid name for a volume or pool.
#[must_use]
pub(super) fn is_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(good) && !name.starts_with(['.', '-'])
}

/// Questions.
impl Volumes {
    pub(super) fn is_idle(&self) -> bool {
        self.new.is_empty() && !self.is_initializing()
    }

    /// Whether groups that were never written are being made blank.
    pub(super) fn is_initializing(&self) -> bool {
        !self.initialization.is_idle()
    }

    /// Groups that no volume has, as runs: first and count. `lasting`: how many groups volumes can get.
    pub(super) fn free_runs(&self, cx: &Context, lasting: u64) -> Runs {
        let being_made = self.new.iter().map(|new| &new.volume);
        let volumes = cx.facts.volumes.iter().chain(being_made);
        let mut used: Vec<(u64, u64)> = volumes
            .flat_map(|volume| &volume.extents)
            .copied()
            .collect();
        used.sort_unstable();
        let free = runs::without(0..lasting, &used).into_iter();
        free.map(|run| (run.start, run.end - run.start)).collect()
    }

    fn free_groups(&self, cx: &Context, lasting: u64) -> u64 {
        let free = self.free_runs(cx, lasting);
        free.iter().map(|&(_, count)| count).sum()
    }

    /// First-fit runs of free groups for `bytes` more user data.
    fn allocate(&self, cx: &Context, lasting: u64, bytes: u64) -> Result<Runs, PoolError> {
        let group_bytes = cx.geometry.group_data_bytes();
        let wanted = bytes.div_ceil(group_bytes);
        let free = self.free_groups(cx, lasting);
        if wanted > free {
            return Err(PoolError::NoSpace {
                wanted_bytes: bytes,
                wanted,
                group_bytes,
                free,
                total: lasting,
                free_bytes: free * group_bytes,
            });
        }
        let mut extents = self.free_runs(cx, lasting);
        keep_first(&mut extents, wanted);
        Ok(extents)
    }
}

/// Keeps the first `groups` of these runs.
fn keep_first(extents: &mut Runs, mut groups: u64) {
    extents.retain_mut(|(_, count)| {
        *count = (*count).min(groups);
        groups -= *count;
        *count > 0
    });
}

fn volume_index(cx: &Context, name: &str) -> Result<usize, PoolError> {
    let mut volumes = cx.facts.volumes.iter();
    let index = volumes.position(|volume| volume.name == name);
    index.ok_or_else(|| PoolError::NoVolume {
        name: name.to_owned(),
    })
}

/// The facts have the volume from now on, with all its groups.
fn put(cx: &mut Context, volume: VolumeFacts) {
    match volume_index(cx, &volume.name) {
        Ok(index) => cx.facts.volumes[index] = volume,
        Err(_) => cx.facts.volumes.push(volume),
    }
    cx.groups_changed();
}

/// The facts have the volumes as changed: makes that durable.
fn commit(cx: &mut Context, ticket: Ticket) {
    cx.commit(vec![
        OnDurable::VolumesChanged,
        OnDurable::Done(ticket, Ok(())),
    ]);
}

/// What administrators ask for.
impl Volumes {
    /// As [`Pool::create_volume`].
    pub(super) fn create(
        &mut self,
        cx: &mut Context,
        lasting: u64,
        name: &str,
        uuid: Uuid,
        size_bytes: u64,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        if cx.closing.is_some() {
            return Err(PoolError::Closing);
        }
        let owned = || name.to_owned();
        if !is_name(name) {
            return Err(PoolError::VolumeName { name: owned() });
        }
        let being_made = self.new.iter().any(|new| new.volume.name == name);
        if being_made || volume_index(cx, name).is_ok() {
            return Err(PoolError::VolumeExists { name: owned() });
        }
        if size_bytes == 0 {
            return Err(PoolError::NoSize);
        }
        let count = cx.facts.volumes.len() + self.new.len();
        if count >= VOLUMES_MAX {
            return Err(PoolError::TooManyVolumes { count });
        }
        let more = self.allocate(cx, lasting, size_bytes)?;
        let volume = VolumeFacts {
            name: owned(),
            uuid,
            size_bytes: size_bytes.next_multiple_of(BLOCK_BYTES),
            extents: more.clone(),
            interleave: { cx.facts.has(INTERLEAVED_VOLUMES) }
                .then(|| interleave_for(&cx.geometry))
                .flatten(),
        };
        self.give(cx, volume, &more, ticket);
        Ok(())
    }

    /// A volume is new, or gets more groups.
    fn give(&mut self, cx: &mut Context, volume: VolumeFacts, more: &Runs, ticket: Ticket) {
        if cx.facts.has(LAZY_INITIALIZATION) {
            cx.leave_uninitialized(more);
            put(cx, volume);
            commit(cx, ticket);
        } else {
            self.new.push(NewVolume::new(volume, more, ticket));
        }
    }

    /// As [`Pool::resize_volume`]. Returns what follows if the volume is not larger than before.
    pub(super) fn resize(
        &mut self,
        cx: &mut Context,
        lasting: u64,
        name: &str,
        size_bytes: u64,
        ticket: Ticket,
    ) -> Result<Option<Changed>, PoolError> {
        let index = volume_index(cx, name)?;
        self.check_at_rest(name)?;
        if size_bytes == 0 {
            return Err(PoolError::NoSize);
        }
        let mut volume = cx.facts.volumes[index].clone();
        let group_bytes = cx.geometry.group_data_bytes();
        let have: u64 = volume.extents.iter().map(|&(_, count)| count).sum();
        let wanted = size_bytes.div_ceil(group_bytes);
        volume.size_bytes = size_bytes.next_multiple_of(BLOCK_BYTES);
        if wanted > have {
            let more = self.allocate(cx, lasting, (wanted - have) * group_bytes)?;
            volume.extents.extend(&more);
            self.give(cx, volume, &more, ticket);
            return Ok(None);
        }
        let before = volume.extents.clone();
        let kept = VolumeSpace::new(group_bytes, &volume).groups_kept(size_bytes);
        keep_first(&mut volume.extents, kept);
        let freed = cx.written_of(&before, &volume.extents);
        cx.facts.volumes[index] = volume;
        Ok(Some(self.gives_up(cx, lasting, freed, false, ticket)))
    }

    /// As [`Pool::delete_volume`].
    pub(super) fn delete(
        &mut self,
        cx: &mut Context,
        lasting: u64,
        name: &str,
        ticket: Ticket,
    ) -> Result<Changed, PoolError> {
        let index = volume_index(cx, name)?;
        self.check_at_rest(name)?;
        let volume = cx.facts.volumes.remove(index);
        let freed = cx.written_of(&volume.extents, &[]);
        Ok(self.gives_up(cx, lasting, freed, true, ticket))
    }

    /// Whether no new space of the volume is being zeroed: what the volume is after that has been decided when it began.
    fn check_at_rest(&self, name: &str) -> Result<(), PoolError> {
        let grows = self.new.iter().any(|new| new.volume.name == name);
        let name = || name.to_owned();
        (!grows)
            .then_some(())
            .ok_or_else(|| PoolError::VolumeGrows { name: name() })
    }

    /// A volume has given up groups.
    fn gives_up(
        &self,
        cx: &mut Context,
        lasting: u64,
        freed: Runs,
        refill: bool,
        ticket: Ticket,
    ) -> Changed {
        cx.forget_uninitialized(&self.free_runs(cx, lasting));
        Changed {
            refill,
            effects: vec![
                OnDurable::VolumesChanged,
                OnDurable::Freed(freed.clone()),
                OnDurable::Done(ticket, Ok(())),
            ],
            freed: Some(freed),
        }
    }

    /// As [`Pool::rename_volume`].
    pub(super) fn rename(
        &self,
        cx: &mut Context,
        name: &str,
        new: &str,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        let index = volume_index(cx, name)?;
        let owned = || new.to_owned();
        if !is_name(new) {
            return Err(PoolError::VolumeName { name: owned() });
        }
        let being_made = |other: &NewVolume| [name, new].contains(&other.volume.name.as_str());
        if volume_index(cx, new).is_ok() || self.new.iter().any(being_made) {
            return Err(PoolError::VolumeExists { name: owned() });
        }
        cx.facts.volumes[index].name = owned();
        commit(cx, ticket);
        Ok(())
    }
}

/// Groups that are to be made blank.
impl Volumes {
    /// A lane reports that groups that were never written are to be written, or soon will be.
    pub(super) fn wants_initialized(&mut self, cx: &Context, group: GroupId) {
        self.initialization.wanted(cx, group);
    }

    /// Starts waiting groups. Not while labels are being written: they may bring in a drive that the lanes do not use
    /// yet, and its pages would be left out. `is_in_use`: a lane fills, scrubs or converts the group. `replacing`: a drive
    /// is being replaced.
    pub(super) fn pump(
        &mut self,
        cx: &mut Context,
        is_in_use: impl Fn(GroupId) -> bool,
        replacing: bool,
    ) -> Vec<Output> {
        let mut outputs = Vec::new();
        if cx.labels.is_settled() {
            self.pump_zeroing(cx, &is_in_use, &mut outputs);
        }
        self.initialization
            .pump(cx, &is_in_use, replacing, &mut outputs);
        outputs
    }

    fn pump_zeroing(
        &mut self,
        cx: &Context,
        is_in_use: impl Fn(GroupId) -> bool,
        outputs: &mut Vec<Output>,
    ) {
        let mut begun = Vec::new();
        for new in &mut self.new {
            for index in (0..new.waiting.len()).rev() {
                if new.in_flight >= ZEROING_MAX || new.fault.is_some() {
                    break;
                }
                let group = new.waiting[index];
                if can_be_made_blank(cx, group, is_in_use(group), outputs) {
                    new.in_flight += 1;
                    begun.push(new.waiting.remove(index));
                }
            }
        }
        outputs.extend(begun.into_iter().map(Output::Zero));
    }

    /// A group reads as zeros, or could not be zeroed. `is_lost`: too few drives have its pages.
    pub(super) fn zeroed(
        &mut self,
        cx: &mut Context,
        group: GroupId,
        outcome: Outcome,
        is_lost: bool,
        replacing: bool,
    ) -> Option<Changed> {
        let has = |new: &NewVolume| groups_of(&new.volume.extents).any(|other| other == group);
        let Some(index) = self.new.iter().position(has) else {
            // Drives that went out meanwhile were left out, however many: if they return, neither their pages nor their
            // blocks are those of a blank group.
            let kept = if is_lost { Err(Fault::Lost) } else { Ok(()) };
            let outcome = outcome.and(kept);
            return self.initialization.ended(cx, group, outcome, replacing);
        };
        let new = &mut self.new[index];
        new.in_flight -= 1;
        if let Err(fault) = outcome {
            new.fault = Some(fault);
        }
        let ended = new.in_flight == 0 && (new.waiting.is_empty() || new.fault.is_some());
        ended
            .then(|| self.new.remove(index))
            .and_then(|new| finish(cx, new))
    }
}

/// The space of a volume reads as zeros, or could not be zeroed.
fn finish(cx: &mut Context, new: NewVolume) -> Option<Changed> {
    if let Some(fault) = new.fault {
        cx.done(new.ticket, Err(PoolError::Fault { fault }));
        return None;
    }
    put(cx, new.volume);
    Some(Changed {
        freed: None,
        // Groups given out while a drive is out have a column to fill.
        refill: true,
        effects: vec![
            OnDurable::VolumesChanged,
            OnDurable::Done(new.ticket, Ok(())),
        ],
    })
}

/// What volumes ask of other machines.
impl Pool {
    /// How many groups volumes can get.
    fn lasting_groups(&self) -> u64 {
        self.growth.lasting(self.cx.geometry.groups())
    }

    fn volumes_changed(&mut self, changed: Changed) {
        if changed.freed.is_some() {
            self.losses.forget(&mut self.cx);
        }
        if changed.refill {
            self.requeue_fills();
        }
        if let Some(freed) = &changed.freed {
            self.leave_unscrubbed(freed);
            self.elastic.forget(freed);
        }
        self.cx.commit(changed.effects);
    }

    pub(super) fn pump_volumes(&mut self) {
        let replacing = self.is_replacing();
        let is_in_use = |group| {
            self.fills.is_filling(group)
                || self.scrub.is_scrubbing(group)
                || self.elastic.is_converting(group)
        };
        for output in self.volumes.pump(&mut self.cx, is_in_use, replacing) {
            match output {
                Output::Zero(group) => self.cx.tell_lane(group, Command::Zero { group }),
                Output::LetGo(group) => {
                    self.fills.abandon_in(&mut self.cx, group);
                    self.scrub.let_go(&mut self.cx, group);
                    self.elastic.let_go(&mut self.cx, group);
                }
                Output::BringHome(group) => _ = self.fills.bring_home(&mut self.cx, group),
                Output::Changed(changed) => self.volumes_changed(changed),
            }
        }
    }

    pub(super) fn zeroed(&mut self, group: GroupId, outcome: Outcome) {
        self.check_blank(group);
        let is_lost = self.cx.is_lost(group, &mut SubStripePlans::default());
        let replacing = self.is_replacing();
        let cx = &mut self.cx;
        if let Some(changed) = self.volumes.zeroed(cx, group, outcome, is_lost, replacing) {
            self.volumes_changed(changed);
        }
    }

    /// The labels record these groups as free.
    pub(super) fn discard_freed(&mut self, freed: &Runs) {
        let free = self.volumes.free_runs(&self.cx, self.lasting_groups());
        self.cx.discard_freed(freed, &free);
    }
}

/// What administrators ask for.
impl Pool {
    /// Bytes of user data that new volumes can have.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        let groups = self.volumes.free_groups(&self.cx, self.lasting_groups());
        groups * self.cx.geometry.group_data_bytes()
    }

    /// Creates a volume of `size_bytes`, rounded up to a block. Done when its space reads as zeros and the labels
    /// record it.
    ///
    /// # Errors
    /// When the name is taken or not allowed, or there is not enough space.
    pub fn create_volume(
        &mut self,
        now: Instant,
        name: &str,
        uuid: Uuid,
        size_bytes: u64,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        let lasting = self.lasting_groups();
        let cx = &mut self.cx;
        self.volumes
            .create(cx, lasting, name, uuid, size_bytes, ticket)?;
        self.advance();
        Ok(())
    }

    /// Gives a volume another size. Growing zeroes the new space first, or marks it as never written. Shrinking loses
    /// the data beyond the new end; the caller checks that this is wanted (`shrink`).
    ///
    /// # Errors
    /// When there is no such volume, or not enough space.
    pub fn resize_volume(
        &mut self,
        now: Instant,
        name: &str,
        size_bytes: u64,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        let lasting = self.lasting_groups();
        let cx = &mut self.cx;
        let changed = self.volumes.resize(cx, lasting, name, size_bytes, ticket)?;
        if let Some(changed) = changed {
            self.volumes_changed(changed);
        }
        self.advance();
        Ok(())
    }

    /// Deletes a volume. Its groups are free at once.
    ///
    /// # Errors
    /// When there is no such volume.
    pub fn delete_volume(
        &mut self,
        now: Instant,
        name: &str,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        let lasting = self.lasting_groups();
        let changed = self.volumes.delete(&mut self.cx, lasting, name, ticket)?;
        self.volumes_changed(changed);
        self.advance();
        Ok(())
    }

    /// Gives a volume another name. Its identity stays.
    ///
    /// # Errors
    /// When there is no such volume, or the new name is taken or not allowed.
    pub fn rename_volume(
        &mut self,
        now: Instant,
        name: &str,
        new: &str,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        self.volumes.rename(&mut self.cx, name, new, ticket)?;
        self.advance();
        Ok(())
    }

    /// Gives the pool another name. Its identity stays.
    ///
    /// # Errors
    /// When the name is not allowed.
    pub fn rename(&mut self, now: Instant, name: &str, ticket: Ticket) -> Result<(), PoolError> {
        self.cx.now = now;
        if !is_name(name) {
            return Err(PoolError::PoolName {
                name: name.to_owned(),
            });
        }
        name.clone_into(&mut self.cx.facts.name);
        self.cx.commit(vec![OnDurable::Done(ticket, Ok(()))]);
        self.advance();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use format::Column;

    use super::*;
    use crate::fixture;

    const TICKET: Ticket = Ticket(5);

    /// Volumes of a pool that has the volume `v` of the first two groups.
    struct Lab {
        cx: Context,
        volumes: Volumes,
        lasting: u64,
        /// Groups that lanes fill, scrub or convert.
        used: BTreeSet<GroupId>,
    }

    impl Lab {
        fn new() -> Self {
            let cx = fixture::context("raid6", 6, 2);
            Self {
                lasting: cx.geometry.groups(),
                cx,
                volumes: Volumes::default(),
                used: BTreeSet::new(),
            }
        }

        fn bytes(&self, groups: u64) -> u64 {
            groups * self.cx.geometry.group_data_bytes()
        }

        fn create(&mut self, name: &str, groups: u64) -> Result<(), PoolError> {
            let (uuid, bytes) = (Uuid::from_u128(8), self.bytes(groups));
            let (cx, lasting) = (&mut self.cx, self.lasting);
            self.volumes.create(cx, lasting, name, uuid, bytes, TICKET)
        }

        fn resize(&mut self, name: &str, groups: u64) -> Option<Changed> {
            let bytes = self.bytes(groups);
            let (cx, lasting) = (&mut self.cx, self.lasting);
            let changed = self.volumes.resize(cx, lasting, name, bytes, TICKET);
            changed.unwrap()
        }

        fn delete(&mut self, name: &str) -> Changed {
            let (cx, lasting) = (&mut self.cx, self.lasting);
            self.volumes.delete(cx, lasting, name, TICKET).unwrap()
        }

        fn pump(&mut self) -> Vec<String> {
            let is_in_use = |group| self.used.contains(&group);
            let outputs = self.volumes.pump(&mut self.cx, is_in_use, false);
            outputs.iter().map(|output| format!("{output:?}")).collect()
        }

        fn zeroed(&mut self, group: GroupId, outcome: Outcome) -> Option<Changed> {
            self.volumes
                .zeroed(&mut self.cx, group, outcome, false, false)
        }

        fn names(&self) -> Vec<&str> {
            let volumes = self.cx.facts.volumes.iter();
            volumes.map(|volume| volume.name.as_str()).collect()
        }
    }

    #[test]
    fn a_volume_is_in_the_facts_once_all_its_space_reads_as_zeros() {
        let mut lab = Lab::new();
        lab.create("w", 2).unwrap();
        assert_eq!(lab.pump(), ["Zero(2)", "Zero(3)"]);
        assert!(lab.zeroed(GroupId(3), Ok(())).is_none());
        assert_eq!(lab.names(), ["v"]);
        let changed = lab
            .zeroed(GroupId(2), Ok(()))
            .expect("the last group is ready");
        assert!(changed.refill && changed.freed.is_none());
        assert_eq!(lab.names(), ["v", "w"]);
        assert!(lab.cx.placement.groups().has(GroupId(3)) && lab.volumes.is_idle());
    }

    #[test]
    fn a_volume_whose_groups_are_made_blank_later_needs_labels_only() {
        let mut lab = Lab::new();
        lab.cx.facts.features.push(LAZY_INITIALIZATION.to_owned());
        lab.create("w", 2).unwrap();
        assert!(lab.resize("v", 3).is_none());
        assert_eq!(lab.names(), ["v", "w"]);
        assert_eq!(lab.cx.facts.volumes[0].extents, [(0, 2), (4, 1)]);
        assert_eq!(lab.cx.facts.uninitialized, [(2, 3)]);
        let sent = fixture::commands(&mut lab.cx).into_iter();
        let sent = sent.filter(|&(lane, _)| lane == 0).map(|sent| sent.1);
        let spaces = [vec![(2, 2)], vec![(4, 1)]].map(Command::Uninitialized);
        assert!(sent.eq(spaces));
        assert_eq!(fixture::durable(&mut lab.cx).len(), 4);
        assert!(lab.volumes.is_idle() && lab.pump().is_empty());
    }

    #[test]
    fn groups_of_a_volume_that_is_being_made_are_not_given_out_again() {
        let mut lab = Lab::new();
        lab.create("w", 2).unwrap();
        lab.create("x", 1).unwrap();
        assert_eq!(lab.pump(), ["Zero(2)", "Zero(3)", "Zero(4)"]);
        let free = lab.volumes.free_runs(&lab.cx, lab.lasting);
        assert_eq!(free[0].0, 5);
    }

    #[test]
    fn space_between_volumes_is_used_first() {
        let mut lab = Lab::new();
        let other = fixture::volume("o", vec![(4, 1)], &lab.cx);
        lab.cx.facts.volumes.push(other);
        lab.create("w", 3).unwrap();
        assert_eq!(lab.pump(), ["Zero(2)", "Zero(3)", "Zero(5)"]);
    }

    #[test]
    fn no_volume_gets_groups_that_do_not_last() {
        let mut lab = Lab::new();
        lab.lasting = 4;
        let refused = lab.create("w", 3);
        let Err(PoolError::NoSpace {
            wanted: 3,
            free: 2,
            total: 4,
            ..
        }) = refused
        else {
            panic!("{refused:?}");
        };
        assert!(lab.volumes.is_idle());
        lab.create("w", 2).unwrap();
    }

    #[test]
    fn a_volume_that_grows_is_neither_resized_nor_deleted_before_that_has_ended() {
        let mut lab = Lab::new();
        assert!(lab.resize("v", 4).is_none());
        let grows = PoolError::VolumeGrows {
            name: "v".to_owned(),
        };
        let (bytes, lasting) = (lab.bytes(5), lab.lasting);
        for size_bytes in [bytes, 1] {
            let (cx, volumes) = (&mut lab.cx, &mut lab.volumes);
            let resized = volumes.resize(cx, lasting, "v", size_bytes, TICKET);
            assert_eq!(resized.unwrap_err(), grows);
        }
        let deleted = lab.volumes.delete(&mut lab.cx, lasting, "v", TICKET);
        assert_eq!(deleted.unwrap_err(), grows);
        lab.pump();
        for group in [2, 3] {
            lab.zeroed(GroupId(group), Ok(()));
        }
        assert_eq!(lab.cx.facts.volumes[0].extents, [(0, 2), (2, 2)]);
        _ = lab.delete("v");
        assert!(lab.names().is_empty());
    }

    #[test]
    fn only_some_groups_are_zeroed_at_a_time() {
        let mut lab = Lab::new();
        lab.lasting = 100;
        lab.create("w", 20).unwrap();
        let begun = lab.pump();
        assert_eq!((begun.len(), &*begun[0]), (ZEROING_MAX, "Zero(2)"));
        assert!(lab.pump().is_empty());
        assert!(lab.zeroed(GroupId(4), Ok(())).is_none());
        assert_eq!(lab.pump(), ["Zero(18)"]);
    }

    #[test]
    fn a_group_that_cannot_be_zeroed_ends_the_volume_when_the_others_have_ended() {
        let mut lab = Lab::new();
        lab.create("w", 2).unwrap();
        lab.pump();
        assert!(lab.zeroed(GroupId(2), Err(Fault::Full)).is_none());
        assert!(fixture::done(&mut lab.cx).is_empty() && !lab.volumes.is_idle());
        assert!(lab.zeroed(GroupId(3), Ok(())).is_none());
        let fault = Err(PoolError::Fault { fault: Fault::Full });
        assert_eq!(fixture::done(&mut lab.cx), [(TICKET, fault)]);
        assert_eq!(lab.names(), ["v"]);
        assert_eq!(lab.volumes.free_runs(&lab.cx, 9), [(2, 7)]);
    }

    #[test]
    fn a_group_waits_while_it_is_in_use_and_is_let_go_if_moves_are_paused() {
        let mut lab = Lab::new();
        lab.used.insert(GroupId(2));
        lab.create("w", 2).unwrap();
        assert_eq!(lab.pump(), ["Zero(3)"]);
        lab.cx.facts.steer.paused = true;
        assert_eq!(lab.pump(), ["LetGo(2)"]);
        lab.used.clear();
        assert_eq!(lab.pump(), ["Zero(2)"]);
    }

    #[test]
    fn columns_in_spare_space_are_brought_home_before_their_group_is_made_blank() {
        let mut lab = Lab::new();
        lab.cx = fixture::context("draid2:4d:8c:1s", 8, 2);
        let home = lab.cx.placement.home((GroupId(2), Column(1)));
        fixture::is_out(&mut lab.cx, home.seat, crate::OutReason::Hung);
        let spare = crate::fill::kind::target(&lab.cx.placement, (GroupId(2), Column(1))).unwrap();
        fixture::record(&mut lab.cx, (GroupId(2), Column(1)), spare);
        lab.create("w", 1).unwrap();
        lab.cx.facts.seats[home.seat.index()].state = crate::SeatState::Current;
        lab.cx.seats_changed();
        assert_eq!(lab.pump(), ["BringHome(2)"]);
        fixture::record(&mut lab.cx, (GroupId(2), Column(1)), home);
        assert_eq!(lab.pump(), ["Zero(2)"]);
    }

    #[test]
    fn nothing_is_zeroed_while_labels_are_written() {
        let mut lab = Lab::new();
        lab.create("w", 1).unwrap();
        lab.cx.commit(Vec::new());
        assert!(lab.pump().is_empty());
        fixture::durable(&mut lab.cx);
        assert_eq!(lab.pump(), ["Zero(2)"]);
    }

    #[test]
    fn a_volume_that_grows_keeps_its_space_and_only_the_rest_is_zeroed() {
        let mut lab = Lab::new();
        assert!(lab.resize("v", 4).is_none());
        assert_eq!(lab.pump(), ["Zero(2)", "Zero(3)"]);
        lab.zeroed(GroupId(2), Ok(()));
        assert!(lab.zeroed(GroupId(3), Ok(())).is_some());
        assert_eq!(lab.cx.facts.volumes[0].extents, [(0, 2), (2, 2)]);
        assert_eq!(lab.names(), ["v"]);
    }

    #[test]
    fn what_a_smaller_volume_gives_up_is_what_was_written_behind_its_end() {
        let mut lab = Lab::new();
        lab.cx.facts.volumes[0] = fixture::volume("v", vec![(0, 4), (6, 2)], &lab.cx);
        lab.cx.facts.uninitialized = vec![(3, 1), (7, 1)];
        lab.cx.groups_changed();
        let changed = lab.resize("v", 2).expect("it has become smaller");
        assert_eq!(changed.freed, Some(vec![(2, 1), (6, 1)]));
        assert!(!changed.refill);
        assert_eq!(lab.cx.facts.volumes[0].extents, [(0, 2)]);
        assert!(lab.cx.facts.uninitialized.is_empty());
    }

    #[test]
    fn the_groups_of_a_deleted_volume_are_free_and_have_no_content() {
        let mut lab = Lab::new();
        let changed = lab.delete("v");
        assert!(changed.refill);
        assert_eq!(changed.freed, Some(vec![(0, 2)]));
        assert_eq!(lab.volumes.free_runs(&lab.cx, 9), [(0, 9)]);
        assert!(lab.cx.placement.groups().is_empty());
        let gone = lab.volumes.delete(&mut lab.cx, 9, "v", TICKET);
        assert!(matches!(gone, Err(PoolError::NoVolume { .. })));
    }

    #[test]
    fn a_name_is_taken_from_the_moment_on_when_a_volume_is_asked_for() {
        let mut lab = Lab::new();
        lab.create("w", 1).unwrap();
        let taken = |outcome| matches!(outcome, Err(PoolError::VolumeExists { .. }));
        assert!(taken(lab.create("w", 1)) && taken(lab.create("v", 1)));
        let cx = &mut lab.cx;
        assert!(taken(lab.volumes.rename(cx, "v", "w", TICKET)));
        let bad = lab.volumes.rename(cx, "v", ".x", TICKET);
        assert!(matches!(bad, Err(PoolError::VolumeName { .. })));
        lab.volumes.rename(cx, "v", "x", TICKET).unwrap();
        assert_eq!(lab.names(), ["x"]);
        assert_eq!(fixture::durable(&mut lab.cx).len(), 2);
    }

    #[test]
    fn a_volume_that_grows_keeps_its_name_until_it_has_grown() {
        let mut lab = Lab::new();
        lab.resize("v", 3);
        let renamed = lab.volumes.rename(&mut lab.cx, "v", "x", TICKET);
        assert!(matches!(renamed, Err(PoolError::VolumeExists { .. })));
    }

    #[test]
    fn no_volume_is_made_while_the_pool_is_being_closed() {
        let mut lab = Lab::new();
        lab.cx.closing = Some(Ticket(1));
        assert_eq!(lab.create("w", 1), Err(PoolError::Closing));
        assert!(lab.volumes.is_idle());
    }

    #[test]
    fn groups_that_another_volume_has_by_now_are_not_discarded() {
        let mut lab = Lab::new();
        let freed = lab.delete("v").freed.unwrap();
        lab.create("w", 1).unwrap();
        let free = lab.volumes.free_runs(&lab.cx, lab.lasting);
        lab.cx.discard_freed(&freed, &free);
        let sent = fixture::commands(&mut lab.cx);
        assert_eq!(sent[0].1, Command::Freed(vec![(1, 1)]));
        lab.cx.closing = Some(Ticket(1));
        lab.cx.discard_freed(&freed, &free);
        assert!(fixture::commands(&mut lab.cx).is_empty());
    }
}
