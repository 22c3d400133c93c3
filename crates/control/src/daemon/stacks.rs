//! Volumes of one pool as drives of another: what else is not done with such a volume, and the order in which pools
//! close.
//!
//! A volume has one user: clients, or a pool. Whoever becomes its user looks for another one first. That look and what
//! follows are one step: taking a volume as a drive excludes the rest ([`Daemon::takes_volumes`]), and the rest goes on
//! side by side ([`Daemon::uses_volumes`]).

use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard};

use engine::PoolHandle;
use engine::assemble::{self, FoundPool, OpenPool};
use engine::drive::{DriveUri, OpenVolume, Place};

use super::Daemon;
use crate::Failure;
use crate::state::{SavedPool, StateFile};

/// Whether a name is that of a volume.
pub(super) fn is_volume(name: &str) -> bool {
    DriveUri::typed(name).is_ok_and(|uri| uri.spec.volume().is_some())
}

/// Whether a pool that was found stands on volumes.
pub(super) fn stands_on_volumes(found: &FoundPool) -> bool {
    let mut places = found.found.iter().chain(&found.destroyed);
    places.any(|place| matches!(place, Place::Volume { .. }))
}

impl Daemon {
    /// Held while volumes are looked for a user and taken as drives; nothing if there are none among the drives.
    pub(super) fn takes_volumes(&self, any: bool) -> Option<RwLockWriteGuard<'_, ()>> {
        let taken = || self.stacks.write().unwrap_or_else(PoisonError::into_inner);
        any.then(taken)
    }

    /// Held while something is done that a volume which is a drive does not allow.
    pub(super) fn uses_volumes(&self) -> RwLockReadGuard<'_, ()> {
        self.stacks.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pool as others see it; `None` if it has just stopped.
    pub(super) fn seen_by_others(&self, name: String, handle: &PoolHandle) -> Option<OpenPool> {
        let (uuid, members) = handle.members().ok()?;
        let volumes = handle.volumes().into_iter();
        let volumes = volumes.map(|volume| OpenVolume {
            attached: self.address_of(&name, volume.name()),
            name: volume.name().to_owned(),
            uuid: volume.uuid(),
            device: volume,
        });
        Some(OpenPool {
            volumes: volumes.collect(),
            takes_volumes: handle.takes_volumes(),
            name,
            uuid,
            members,
        })
    }

    /// Refuses if a volume of the pool is a drive of another pool that is open.
    pub(super) fn refuse_below(&self, pool: &str, what: &str) -> Result<(), Failure> {
        let pools = self.open_pools();
        let Some((above, drive)) = assemble::above(&pools, pool, None) else {
            return Ok(());
        };
        let (above, number, path) = (&above.name, drive.number, &drive.path);
        Err(Failure::conflict(
            what,
            format!("pool `{above}` stands on it: the drive of seat {number} there is {path}"),
            format!("`ravelin pool export {above}` first"),
        ))
    }

    /// Refuses if the volume is a drive of a pool that is open, or that will be opened.
    pub(super) fn refuse_drive(&self, pool: &str, volume: &str, what: &str) -> Result<(), Failure> {
        let pools = self.open_pools();
        if let Some((above, drive)) = assemble::above(&pools, pool, Some(volume)) {
            let (above, number) = (&above.name, drive.number);
            return Err(Failure::conflict(
                what,
                format!("it is the drive of seat {number} of pool `{above}`"),
                format!("`ravelin pool export {above}` first"),
            ));
        }
        let Some(own) = pools.iter().find(|open| open.name == pool) else {
            return Ok(());
        };
        let uuid = own.uuid.to_string();
        match self.comes_above(&uuid, Some(volume)) {
            Some(above) => Err(Failure::conflict(
                what,
                format!("it is a drive of pool `{above}`, which is not open yet"),
                format!(
                    "`ravelin pool import {above}` opens it, `ravelin pool export {above}` forgets it"
                ),
            )),
            None => Ok(()),
        }
    }

    /// Refuses if a pool that will be opened stands on this one.
    pub(super) fn refuse_coming(&self, pool: &str, what: &str) -> Result<(), Failure> {
        let uuid = self.identity(pool).unwrap_or_default();
        match self.comes_above(&uuid, None) {
            Some(above) => Err(Failure::conflict(
                what,
                format!("pool `{above}` stands on it, and is not open yet"),
                format!(
                    "`ravelin pool import {above}` opens it, `ravelin pool export {above}` forgets it"
                ),
            )),
            None => Ok(()),
        }
    }

    /// The name of a pool that is recorded, not open, and has a volume of this pool as a drive.
    fn comes_above(&self, uuid: &str, volume: Option<&str>) -> Option<String> {
        let stands = |saved: &SavedPool| {
            let mut drives = saved.volumes.iter();
            drives.any(|drive| {
                drive.pool_uuid == uuid && volume.is_none_or(|volume| drive.volume == volume)
            })
        };
        let saved = self
            .state
            .as_ref()
            .map(StateFile::pools)
            .unwrap_or_default();
        let above = saved.into_iter().find(|saved| stands(saved))?;
        (!self.is_open(&above.uuid)).then_some(above.name)
    }

    /// The names of all pools, those above before those below.
    pub(super) fn upper_first(&self) -> Vec<String> {
        let order = assemble::upper_first(&self.open_pools());
        let mut names: Vec<String> = self.pools().keys().cloned().collect();
        // A pool that has stopped has no drives any more.
        names.retain(|name| !order.contains(name));
        [names, order].concat()
    }
}
