//! Volumes: space in units of groups. New space reads as zeros: in pools with the feature `lazy-initialization` because
//! it was never written (`initialize.rs`), in others because it is zeroed before.

use block::{BLOCK_BYTES, Fault, Outcome};
use format::{INTERLEAVED_VOLUMES, LAZY_INITIALIZATION, runs};
use plan::action::Command;
use uuid::Uuid;

use super::space::{VolumeSpace, interleave_for};
use super::{OnDurable, Pool, PoolError, Ticket, VolumeFacts};

/// Maximum of volumes in a pool: what a quarter of a label can name.
const VOLUMES_MAX: usize = 400;
/// Groups of a volume that are zeroed at a time.
const ZEROING_MAX: usize = 16;

/// Space being zeroed for a volume that is created or grown.
#[derive(Clone, Debug)]
pub(super) struct NewVolume {
    ticket: Ticket,
    /// The volume as it will be.
    volume: VolumeFacts,
    /// Groups still to be zeroed.
    waiting: Vec<u64>,
    in_flight: usize,
    fault: Option<Fault>,
}

impl NewVolume {
    fn groups(&self) -> impl Iterator<Item = u64> + '_ {
        self.volume
            .extents
            .iter()
            .flat_map(|&(first, count)| first..first + count)
    }
}

/// Whether this is a valid name for a volume or pool.
#[must_use]
pub(super) fn is_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(good) && !name.starts_with(['.', '-'])
}

impl Pool {
    /// Groups that no volume has, as runs: first and count.
    pub(super) fn free_runs(&self) -> Vec<(u64, u64)> {
        let being_made = self.new_volumes.iter().flat_map(|new| &new.volume.extents);
        let mut used: Vec<(u64, u64)> = self
            .cx
            .facts
            .volumes
            .iter()
            .flat_map(|volume| &volume.extents)
            .chain(being_made)
            .copied()
            .collect();
        used.sort_unstable();
        let groups = self.growth.lasting(self.cx.geometry.groups());
        let free = runs::without(0..groups, &used).into_iter();
        free.map(|run| (run.start, run.end - run.start)).collect()
    }

    /// Bytes of user data that new volumes can have.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        let groups: u64 = self.free_runs().iter().map(|&(_, count)| count).sum();
        groups * self.cx.geometry.group_data_bytes()
    }

    /// First-fit runs of free groups for `bytes` more user data.
    fn allocate(&self, bytes: u64) -> Result<Vec<(u64, u64)>, PoolError> {
        let group_bytes = self.cx.geometry.group_data_bytes();
        let wanted = bytes.div_ceil(group_bytes);
        let free = self.free_runs();
        let free_groups: u64 = free.iter().map(|&(_, count)| count).sum();
        if wanted > free_groups {
            return Err(PoolError::NoSpace {
                wanted_bytes: bytes,
                wanted,
                group_bytes,
                free: free_groups,
                total: self.growth.lasting(self.cx.geometry.groups()),
                free_bytes: free_groups * group_bytes,
            });
        }
        let mut extents = Vec::new();
        let mut left = wanted;
        for (first, count) in free {
            let take = count.min(left);
            if take > 0 {
                extents.push((first, take));
                left -= take;
            }
        }
        Ok(extents)
    }

    fn volume_index(&self, name: &str) -> Result<usize, PoolError> {
        self.cx
            .facts
            .volumes
            .iter()
            .position(|volume| volume.name == name)
            .ok_or_else(|| PoolError::NoVolume {
                name: name.to_owned(),
            })
    }

    /// Creates a volume of `size_bytes`, rounded up to a block. Done when its space reads as zeros and the labels
    /// record it.
    ///
    /// # Errors
    /// When the name is taken or not allowed, or there is not enough space.
    pub fn create_volume(
        &mut self,
        now: block::Instant,
        name: &str,
        uuid: Uuid,
        size_bytes: u64,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        if self.cx.closing.is_some() {
            return Err(PoolError::Closing);
        }
        if !is_name(name) {
            return Err(PoolError::VolumeName {
                name: name.to_owned(),
            });
        }
        let being_made = self.new_volumes.iter().any(|new| new.volume.name == name);
        if being_made || self.volume_index(name).is_ok() {
            return Err(PoolError::VolumeExists {
                name: name.to_owned(),
            });
        }
        if size_bytes == 0 {
            return Err(PoolError::NoSize);
        }
        let count = self.cx.facts.volumes.len() + self.new_volumes.len();
        if count >= VOLUMES_MAX {
            return Err(PoolError::TooManyVolumes { count });
        }
        let extents = self.allocate(size_bytes)?;
        let volume = VolumeFacts {
            name: name.to_owned(),
            uuid,
            size_bytes: size_bytes.next_multiple_of(BLOCK_BYTES),
            extents,
            interleave: { self.cx.facts.has(INTERLEAVED_VOLUMES) }
                .then(|| interleave_for(&self.cx.geometry))
                .flatten(),
        };
        if self.cx.facts.has(LAZY_INITIALIZATION) {
            self.leave_uninitialized(&volume.extents);
            self.cx.facts.volumes.push(volume);
            self.cx.groups_changed();
            self.volumes_changed(ticket);
        } else {
            self.zero_for(volume, 0, ticket);
        }
        Ok(())
    }

    /// The facts have the volumes as changed: make that durable in the labels.
    fn volumes_changed(&mut self, ticket: Ticket) {
        self.cx.commit(vec![
            OnDurable::VolumesChanged,
            OnDurable::Done(ticket, Ok(())),
        ]);
        self.advance();
    }

    /// Gives a volume another size. Growing zeroes the new space first, or marks it as never written. Shrinking loses
    /// the data beyond the new end; the caller checks that this is wanted (`shrink`).
    ///
    /// # Errors
    /// When there is no such volume, or not enough space.
    pub fn resize_volume(
        &mut self,
        now: block::Instant,
        name: &str,
        size_bytes: u64,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        let index = self.volume_index(name)?;
        if size_bytes == 0 {
            return Err(PoolError::NoSize);
        }
        let mut volume = self.cx.facts.volumes[index].clone();
        let group_bytes = self.cx.geometry.group_data_bytes();
        let have: u64 = volume.extents.iter().map(|&(_, count)| count).sum();
        let wanted = size_bytes.div_ceil(group_bytes);
        volume.size_bytes = size_bytes.next_multiple_of(BLOCK_BYTES);
        if wanted > have {
            let more = self.allocate((wanted - have) * group_bytes)?;
            volume.extents.extend(&more);
            if self.cx.facts.has(LAZY_INITIALIZATION) {
                self.leave_uninitialized(&more);
                self.cx.facts.volumes[index] = volume;
                self.cx.groups_changed();
                self.volumes_changed(ticket);
            } else {
                self.zero_for(volume, have, ticket);
            }
            return Ok(());
        }
        let before = volume.extents.clone();
        let mut left = VolumeSpace::new(group_bytes, &volume).groups_kept(size_bytes);
        volume.extents.retain_mut(|(_, count)| {
            *count = (*count).min(left);
            left -= *count;
            *count > 0
        });
        let freed = self.written_of(&before, &volume.extents);
        self.cx.facts.volumes[index] = volume;
        self.losses.forget(&mut self.cx);
        self.forget_uninitialized();
        self.groups_freed(freed, ticket);
        Ok(())
    }

    /// Deletes a volume. Its groups are free at once.
    ///
    /// # Errors
    /// When there is no such volume.
    pub fn delete_volume(
        &mut self,
        now: block::Instant,
        name: &str,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        let index = self.volume_index(name)?;
        let volume = self.cx.facts.volumes.remove(index);
        let freed = self.written_of(&volume.extents, &[]);
        self.losses.forget(&mut self.cx);
        self.forget_uninitialized();
        self.requeue_fills();
        self.groups_freed(freed, ticket);
        Ok(())
    }

    /// Gives a volume another name. Its identity stays.
    ///
    /// # Errors
    /// When there is no such volume, or the new name is taken or not allowed.
    pub fn rename_volume(
        &mut self,
        now: block::Instant,
        name: &str,
        new: &str,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        let index = self.volume_index(name)?;
        if !is_name(new) {
            return Err(PoolError::VolumeName {
                name: new.to_owned(),
            });
        }
        let being_made = |other: &NewVolume| [name, new].contains(&other.volume.name.as_str());
        if self.volume_index(new).is_ok() || self.new_volumes.iter().any(being_made) {
            return Err(PoolError::VolumeExists {
                name: new.to_owned(),
            });
        }
        new.clone_into(&mut self.cx.facts.volumes[index].name);
        self.volumes_changed(ticket);
        Ok(())
    }

    /// Gives the pool another name. Its identity stays.
    ///
    /// # Errors
    /// When the name is not allowed.
    pub fn rename(
        &mut self,
        now: block::Instant,
        name: &str,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
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

    /// Zeroes all groups of `volume` except the first `ready` ones.
    fn zero_for(&mut self, volume: VolumeFacts, ready: u64, ticket: Ticket) {
        let mut new = NewVolume {
            ticket,
            volume,
            waiting: Vec::new(),
            in_flight: 0,
            fault: None,
        };
        let skip = usize::try_from(ready).expect("a number of groups");
        new.waiting = new.groups().skip(skip).collect();
        new.waiting.reverse();
        self.new_volumes.push(new);
        self.advance();
    }

    /// Starts waiting groups; not while labels are being written, as in `pump_initialization`.
    pub(super) fn pump_zeroing(&mut self) {
        if !self.cx.labels.is_settled() {
            return;
        }
        let mut commands = Vec::new();
        let mut new_volumes = std::mem::take(&mut self.new_volumes);
        for new in &mut new_volumes {
            while new.in_flight < ZEROING_MAX
                && new.fault.is_none()
                && let Some(index) = new
                    .waiting
                    .iter()
                    .rposition(|&group| self.can_be_made_blank(group))
            {
                new.in_flight += 1;
                commands.push(new.waiting.remove(index));
            }
        }
        self.new_volumes = new_volumes;
        for group in commands {
            self.cx.tell_lane(group, Command::Zero { group });
        }
    }

    /// A group reads as zeros, or could not be zeroed.
    pub(super) fn zeroed(&mut self, group: u64, outcome: Outcome) {
        self.check_blank(group);
        let Some(index) = self
            .new_volumes
            .iter()
            .position(|new| new.groups().any(|other| other == group))
        else {
            self.made_blank(group, outcome);
            return;
        };
        let new = &mut self.new_volumes[index];
        new.in_flight -= 1;
        if let Err(fault) = outcome {
            new.fault = Some(fault);
        }
        if new.in_flight == 0 && (new.waiting.is_empty() || new.fault.is_some()) {
            let new = self.new_volumes.remove(index);
            self.finish_volume(new);
        }
    }

    fn finish_volume(&mut self, new: NewVolume) {
        if let Some(fault) = new.fault {
            self.cx.done(new.ticket, Err(PoolError::Fault { fault }));
            return;
        }
        match self.volume_index(&new.volume.name) {
            Ok(index) => self.cx.facts.volumes[index] = new.volume,
            Err(_) => self.cx.facts.volumes.push(new.volume),
        }
        self.cx.groups_changed();
        // Groups given out while a drive is out have a column to fill.
        self.requeue_fills();
        self.cx.commit(vec![
            OnDurable::VolumesChanged,
            OnDurable::Done(new.ticket, Ok(())),
        ]);
    }
}
