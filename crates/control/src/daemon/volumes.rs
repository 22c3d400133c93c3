//! Volumes of the daemon's pools.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use block::{BlockDevice, ExtentsAnswer};

use super::{Daemon, named};
use crate::Failure;
use crate::api::{Bench, Benched, CreateVolume, DeleteVolume, RenameVolume, ResizeVolume, Volume};
use crate::failure::no_volume;

/// The longest benchmark that the daemon runs.
const BENCH_TIME_MAX: Duration = Duration::from_secs(300);

/// How long a volume is searched for data. A volume in which none is found by then counts as one that holds data.
const SEARCH_MAX: Duration = Duration::from_secs(5);

/// Whether any block of a volume has been written and not trimmed since.
fn holds_data(volume: &dyn BlockDevice) -> bool {
    let until = Instant::now() + SEARCH_MAX;
    let size_bytes = volume.limits().size_bytes;
    let mut offset = 0;
    while offset < size_bytes {
        let extents = volume.extents(offset, size_bytes - offset);
        let length: u64 = extents.iter().map(|extent| extent.length).sum();
        if length == 0 || extents.iter().any(|extent| !extent.hole) || Instant::now() > until {
            return true;
        }
        offset += length;
    }
    false
}

/// The bytes of a volume that have been written and not trimmed since; none if finding out takes longer than
/// `timeout`.
fn allocated_bytes(volume: &dyn BlockDevice, timeout: Duration) -> Option<u64> {
    let until = Instant::now() + timeout;
    let size_bytes = volume.limits().size_bytes;
    let (mut offset, mut allocated) = (0, 0);
    while offset < size_bytes {
        // A drive that does not answer delays the answer, and not this.
        let (to, answer) = channel();
        let give = ExtentsAnswer::new(move |extents| to.send(extents).unwrap_or_default());
        volume.find_extents(offset, size_bytes - offset, give);
        let left = until.saturating_duration_since(Instant::now());
        let extents = answer.recv_timeout(left).ok()?;
        let length: u64 = extents.iter().map(|extent| extent.length).sum();
        if length == 0 {
            return None;
        }
        let written = extents.iter().filter(|extent| !extent.hole);
        allocated += written.map(|extent| extent.length).sum::<u64>();
        offset += length;
    }
    Some(allocated)
}

impl Daemon {
    /// The volumes of a pool. With `timeout` also what of each is allocated, as far as this is found in so long a
    /// time for each volume.
    pub fn volumes(&self, pool: &str, timeout: Option<Duration>) -> Result<Vec<Volume>, Failure> {
        let status = self.status(pool)?;
        let handle = self.handle(pool, &format!("the volumes of `{pool}` cannot be listed"))?;
        let geometry = handle.geometry();
        let volumes = status.pool.volumes.into_iter();
        Ok(volumes
            .map(|volume| {
                let device =
                    timeout.and_then(|timeout| Some((handle.volume(&volume.name)?, timeout)));
                let listed = Volume {
                    pool: pool.to_owned(),
                    exports: self.exports_of(pool, Some(&volume.name)),
                    name: volume.name,
                    uuid: volume.uuid,
                    size_bytes: volume.size_bytes,
                    reserved_bytes: { volume.size_bytes }
                        .next_multiple_of(geometry.group_data_bytes().max(1)),
                    allocated_bytes: device
                        .and_then(|(device, timeout)| allocated_bytes(&*device, timeout)),
                    chunk_bytes: geometry.chunk_bytes(),
                    stripe_bytes: geometry.stripe_data_bytes(),
                    mkfs: Vec::new(),
                    qemu: String::new(),
                };
                listed.with_mkfs()
            })
            .collect())
    }

    /// One volume, with what of it is allocated, as far as this is found in so long a time.
    pub fn show_volume(
        &self,
        pool: &str,
        name: &str,
        timeout: Duration,
    ) -> Result<Volume, Failure> {
        let what = format!("volume `{pool}/{name}` cannot be shown");
        let mut volume = self.volume(pool, name, &what)?;
        let device = self.handle(pool, &what)?.volume(name);
        volume.allocated_bytes = device.and_then(|device| allocated_bytes(&*device, timeout));
        Ok(volume)
    }

    fn volume(&self, pool: &str, name: &str, what: &str) -> Result<Volume, Failure> {
        let mut volumes = self.volumes(pool, None)?;
        match volumes.iter().position(|volume| volume.name == name) {
            Some(at) => Ok(volumes.swap_remove(at)),
            None => Err(no_volume(
                what,
                name,
                volumes.iter().map(|volume| &*volume.name),
            )),
        }
    }

    /// Creates a volume; it reads as zeros.
    pub fn create_volume(&self, pool: &str, request: &CreateVolume) -> Result<Volume, Failure> {
        let name = &request.name;
        let what = format!("volume `{pool}/{name}` was not created");
        self.handle(pool, &what)?
            .create_volume(name, request.size_bytes)
            .map_err(|error| Failure::pool(&what, &error))?;
        self.volume(pool, name, &what)
    }

    /// Runs a benchmark load on a volume, inside the daemon. A load that writes destroys what the volume holds: it is
    /// refused while others use the volume, and where the volume holds data the request names the volume.
    pub fn bench(&self, pool: &str, name: &str, request: &Bench) -> Result<Benched, Failure> {
        let what = format!("the load on `{pool}/{name}` was not run");
        let handle = self.handle(pool, &what)?;
        let Some(volume) = handle.volume(name) else {
            let why = format!("there is no volume `{name}` in pool `{pool}`");
            return Err(Failure::missing(what, why, "see `ravelin volume list`"));
        };
        let device: Arc<dyn BlockDevice> = volume;
        let load = request.load;
        // A longer run would delay a stop of the daemon.
        if load.time > BENCH_TIME_MAX {
            let why = format!("{} s are longer than it may take", load.time.as_secs());
            return Err(Failure::request(what, why, "--time 300 at most"));
        }
        let writes = load.writes();
        if writes {
            self.refuse_drive(pool, name, &what)?;
        }
        if writes && !request.force {
            self.refuse_clients(pool, Some(name), &what)?;
        }
        let holds_data = writes && holds_data(&*device);
        if request.dry_run {
            return Ok(Benched::Planned { holds_data });
        }
        let named = format!("{pool}/{name}");
        if holds_data && request.confirm.as_deref() != Some(&*named) {
            return Err(Failure::conflict(
                what,
                "it writes, the volume holds data, and the request's body does not name the volume",
                format!("put \"confirm\": \"{named}\" into the body if it is meant"),
            ));
        }
        engine::load::run(&device, load)
            .map(Benched::Report)
            .map_err(|error| Failure::of(StatusCode::BAD_REQUEST, what, &error))
    }

    /// Resizes a volume.
    pub fn resize_volume(
        &self,
        pool: &str,
        name: &str,
        request: &ResizeVolume,
    ) -> Result<Volume, Failure> {
        let what = format!("volume `{pool}/{name}` was not resized");
        let _used = self.uses_volumes();
        let handle = self.handle(pool, &what)?;
        let now = self.volume(pool, name, &what)?;
        if request.size_bytes < now.size_bytes && !request.shrink {
            return Err(Failure::conflict(
                what,
                format!(
                    "it would shrink from {} to {} bytes, and what lies behind its new end would be lost",
                    now.size_bytes, request.size_bytes
                ),
                "say that this is meant (`shrink`)",
            ));
        }
        if request.size_bytes < now.size_bytes {
            self.refuse_drive(pool, name, &what)?;
            named(request.pool.as_deref(), pool, &what)?;
            if let ([export, ..], false) = (now.exports.as_slice(), request.force) {
                return Err(Failure::conflict(
                    what,
                    format!(
                        "it would shrink while it is attached to {}, below a file system that may be mounted there",
                        export.address
                    ),
                    format!(
                        "`ravelin volume detach {pool}/{name}` first, or give --force if its clients expect it"
                    ),
                ));
            }
        }
        handle
            .resize_volume(name, request.size_bytes)
            .map_err(|error| Failure::pool(&what, &error))?;
        self.resize_devices(pool, name).map_err(|(device, error)| {
            Failure::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("volume `{pool}/{name}` is resized, and its block device is not"),
                format!("{}: {error}", device.display()),
                format!("`losetup --set-capacity {}`", device.display()),
            )
        })?;
        self.volume(pool, name, &what)
    }

    /// Renames a volume that has no exports.
    pub fn rename_volume(
        &self,
        pool: &str,
        name: &str,
        request: &RenameVolume,
    ) -> Result<Volume, Failure> {
        let what = format!("volume `{pool}/{name}` was not renamed");
        let _used = self.uses_volumes();
        let handle = self.handle(pool, &what)?;
        if let [export, ..] = self.volume(pool, name, &what)?.exports.as_slice() {
            return Err(Failure::conflict(
                what,
                format!(
                    "its clients know it by its name: it is attached to {}",
                    export.address
                ),
                format!("`ravelin volume detach {pool}/{name}` first"),
            ));
        }
        self.refuse_drive(pool, name, &what)?;
        handle
            .rename_volume(name, &request.name)
            .map_err(|error| Failure::pool(&what, &error))?;
        // A failed restore of this volume would be retried under the old name.
        let uuid = self.status(pool)?.pool.uuid;
        self.forget_exports(&uuid, |export| export.volume == name);
        self.missing_no_more(&uuid, name);
        self.volume(pool, &request.name, &what)
    }

    /// Deletes a volume that has no exports.
    pub fn delete_volume(
        &self,
        pool: &str,
        name: &str,
        request: &DeleteVolume,
    ) -> Result<(), Failure> {
        let what = format!("volume `{pool}/{name}` was not deleted");
        let _used = self.uses_volumes();
        let handle = self.handle(pool, &what)?;
        self.volume(pool, name, &what)?;
        named(request.pool.as_deref(), pool, &what)?;
        if let [export, ..] = self.exports_of(pool, Some(name)).as_slice() {
            return Err(Failure::conflict(
                what,
                format!("it is attached to {}", export.address),
                format!("`ravelin volume detach {pool}/{name}`"),
            ));
        }
        self.refuse_drive(pool, name, &what)?;
        handle
            .delete_volume(name)
            .map_err(|error| Failure::pool(&what, &error))?;
        // A failed restore of this volume must not be retried: the volume is gone.
        let uuid = self.status(pool)?.pool.uuid;
        self.forget_exports(&uuid, |export| export.volume == name);
        self.missing_no_more(&uuid, name);
        Ok(())
    }
}
