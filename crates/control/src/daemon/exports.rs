//! Exports of volumes: begins and ends them, and records them for the next start.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use block::Full;
use export::fuse::loops;

use super::Daemon;
use super::links::DeviceLink;
use crate::Failure;
use crate::api::{Attach, Export};
use crate::exports::{self, EXPORTS, Served, Serving};
use crate::failure::no_volume;
use crate::state::{SavedDevice, SavedExport};

/// How long a client that has disconnected may still be counted as connected.
const GOODBYE: Duration = Duration::from_secs(1);

/// Logical blocks of a loop device, unless the request says otherwise.
const LOOP_BLOCK_BYTES: u32 = 512;

/// A volume at an address.
pub(super) struct Exported {
    pool: String,
    volume: String,
    /// As requested.
    attach: Attach,
    /// Restored at start: not requested in this run of the daemon.
    restored: bool,
    /// The stable name of its own device. The field order matters: the link is dropped before the device.
    link: Option<DeviceLink>,
    served: Box<dyn Served>,
    /// The directory of its file, if the daemon chose the place. Dropped after the file is unmounted.
    _directory: Option<OwnDirectory>,
}

/// The directory of a pool's files whose places the daemon chose. Dropping this removes the directory and the one
/// above it, if no other files are there.
struct OwnDirectory(PathBuf);

impl OwnDirectory {
    fn make(file: &str) -> io::Result<Self> {
        let directory = Path::new(file).parent().unwrap_or(Path::new("/"));
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        Ok(Self(directory.to_owned()))
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        // Fails, as intended, if there are files of other volumes.
        for directory in self.0.ancestors().take(2) {
            std::fs::remove_dir(directory).ok();
        }
    }
}

impl Exported {
    fn is(&self, pool: &str, volume: Option<&str>) -> bool {
        self.pool == pool && volume.is_none_or(|volume| self.volume == volume)
    }

    fn view(&self) -> Export {
        let own = self.served.own_device().map(Path::to_owned);
        let link = self.link.as_ref().filter(|_| own.is_some());
        Export {
            pool: self.pool.clone(),
            volume: self.volume.clone(),
            address: self.served.address(),
            uri: self.served.uri(),
            clients: self.served.clients(),
            device: own.or_else(|| self.served.device()),
            link: link.map(|link| link.path().to_owned()),
            read_only: self.attach.read_only,
            block_bytes: self
                .attach
                .block_size
                .unwrap_or(match self.attach.loop_device {
                    true => LOOP_BLOCK_BYTES,
                    false => 1,
                }),
        }
    }
}

impl Daemon {
    pub(super) fn exports(&self) -> MutexGuard<'_, Vec<Exported>> {
        self.exports.lock().expect("no holder of the lock panics")
    }

    /// The exports of a volume, or of every volume of a pool.
    pub(super) fn exports_of(&self, pool: &str, volume: Option<&str>) -> Vec<Export> {
        let exports = self.exports();
        let of = exports.iter().filter(|exported| exported.is(pool, volume));
        of.map(Exported::view).collect()
    }

    /// Where a volume is served, if it is.
    pub(super) fn address_of(&self, pool: &str, volume: &str) -> Option<String> {
        let exports = self.exports();
        let export = exports
            .iter()
            .find(|exported| exported.is(pool, Some(volume)))?;
        Some(export.served.address())
    }

    /// Refuses if clients are connected, or a program has a block device of a volume open.
    pub(super) fn refuse_clients(
        &self,
        pool: &str,
        volume: Option<&str>,
        what: &str,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + GOODBYE;
        loop {
            let exports = self.exports_of(pool, volume);
            let Some(by) = exports.iter().find_map(used_by) else {
                return Ok(());
            };
            if Instant::now() > deadline {
                let hint = "disconnect them first, or give --force to cut them off";
                return Err(Failure::conflict(what, by, hint));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Serves a volume.
    pub fn attach(&self, pool: &str, name: &str, request: &Attach) -> Result<Export, Failure> {
        // Success if the restoration has attached the volume in the same way: a script that attaches after each start
        // may run after the restoration.
        let restored = self.exports().iter().find_map(|exported| {
            let same = exported.is(pool, Some(name)) && exported.attach == *request;
            (same && exported.restored).then(|| exported.view())
        });
        if let Some(restored) = restored {
            return Ok(restored);
        }
        let what = format!("volume `{pool}/{name}` was not attached");
        let uuid = self.status(pool)?.pool.uuid;
        let noted = self.remember_export(&uuid, name, request, &what)?;
        let served = self.serve(pool, name, request, (false, None), &what);
        // The same request with the port that was assigned, so that the next start uses the same port.
        let taken = served.as_ref().ok().and_then(|(_, taken)| taken.clone());
        if noted && (taken.is_some() || served.is_err()) {
            self.forget_exports(&uuid, |export| export.is(name, request));
        }
        if let Some(taken) = taken
            && let Err(failure) = self.remember_export(&uuid, name, &taken, &what)
        {
            // It is served: the next start serves it at another port.
            tracing::error!("{}", Full(&failure.problem));
        }
        let served = served.map(|(view, _)| view);
        if let Ok(served) = &served {
            self.remember_device(&uuid, request, served);
            self.missing_no_more(&uuid, name);
        }
        served
    }

    /// Serves a volume as an earlier run did.
    pub(super) fn attach_again(&self, pool: &str, export: &SavedExport) -> Result<Export, Failure> {
        let (name, request) = (&export.volume, &export.attach);
        let what = format!("volume `{pool}/{name}` was not attached again");
        // The sockets and mounts of a killed daemon remain in use until the kernel has torn the process down.
        let deadline = Instant::now() + GOODBYE;
        loop {
            self.remove_dead(pool, export);
            match self.serve(pool, name, request, (true, export.device.as_ref()), &what) {
                Err(failure)
                    if failure.status == StatusCode::CONFLICT && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(50));
                }
                served => return served.map(|(view, _)| view),
            }
        }
    }

    /// Serves a volume. Returns the export, and the request that gets the same place again if that differs from
    /// `request`.
    fn serve(
        &self,
        pool: &str,
        name: &str,
        request: &Attach,
        (restored, device_before): (bool, Option<&SavedDevice>),
        what: &str,
    ) -> Result<(Export, Option<Attach>), Failure> {
        let _used = self.uses_volumes();
        self.refuse_drive(pool, name, what)?;
        let handle = self.handle(pool, what)?;
        let uuid = self.status(pool)?.pool.uuid;
        let device = handle.volume(name).ok_or_else(|| {
            let volumes = self.volumes(pool, None).unwrap_or_default();
            no_volume(what, name, volumes.iter().map(|volume| &*volume.name))
        })?;
        let whole = self.with_place(request, (pool, name));
        let (kind, place) = exports::chosen(&whole, what)?;
        let mut exports = self.exports();
        let directory = { request.at.is_empty() }.then(|| OwnDirectory::make(place));
        let directory = directory.transpose().map_err(|error| {
            Failure::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                what,
                format!("the directory of its file {place} cannot be made: {error}"),
                "choose a file with --fuse FILE",
            )
        })?;
        let served_at = |address: &str| {
            let other = exports
                .iter()
                .find(|other| other.served.address() == address)?;
            Some(format!("{}/{}", other.pool, other.volume))
        };
        let served = kind.serve(
            place,
            &Serving {
                volume: (pool, name),
                device,
                attach: &whole,
                restored,
                what,
                served_at: &served_at,
                identity: format!("{uuid}/{name}"),
                kept: &self.kept,
                device_before,
            },
        )?;
        let taken = served.place().filter(|taken| taken != place).map(|taken| {
            tracing::debug!("{place} became {taken}");
            let at = [(kind.name().to_owned(), taken)].into();
            Attach {
                at,
                ..request.clone()
            }
        });
        let exported = Exported {
            pool: pool.to_owned(),
            volume: name.to_owned(),
            attach: request.clone(),
            restored,
            link: self.link_to(served.own_device(), (pool, name)),
            served,
            _directory: directory,
        };
        let view = exported.view();
        tracing::info!(
            volume = format!("{pool}/{name}"),
            address = view.address,
            "attached"
        );
        exports.push(exported);
        drop(exports);
        // If the pool has begun to close meanwhile, closing may have missed this export. End it here.
        drop(handle);
        if self.handle(pool, what).is_err() {
            self.end_exports(pool, Some(name));
        }
        Ok((view, taken))
    }

    /// The request with the file that the daemon chooses if the request has no place for a loop device. The same volume
    /// has the same file after each start. Not stored: after the volume is renamed, the file has another name.
    fn with_place(&self, request: &Attach, (pool, name): (&str, &str)) -> Attach {
        let mut whole = request.clone();
        if let (Some(files), true, true) = (&self.files, whole.at.is_empty(), whole.loop_device) {
            let file = files.join(pool).join(name).display().to_string();
            whole.at = [(exports::FILE.name().to_owned(), file)].into();
        }
        whole
    }

    /// Removes sockets, mounts and devices of an export that a killed daemon left behind, if they are no longer in use.
    pub(super) fn remove_dead(&self, pool: &str, export: &SavedExport) {
        let whole = self.with_place(&export.attach, (pool, &export.volume));
        for kind in EXPORTS {
            if let Some(place) = whole.at.get(kind.name())
                && !self.kept.waits(Path::new(place))
            {
                kind.remove_dead(place, export.device.as_ref());
            }
        }
    }

    /// Creates the stable name of a device. Without a link the device can still be used by its number.
    fn link_to(&self, device: Option<&Path>, (pool, name): (&str, &str)) -> Option<DeviceLink> {
        let made = DeviceLink::make(self.links.as_ref()?, (pool, name), device?);
        made.inspect_err(|error| tracing::warn!(pool, name, "no link to its device: {error}"))
            .ok()
    }

    /// Removes the stable names of devices that are not ours any more: somebody has detached a loop device, and the
    /// kernel may have given its number to another one.
    pub(super) fn remove_foreign_links(&self) {
        for exported in self.exports().iter_mut() {
            if exported.link.is_some() && exported.served.own_device().is_none() {
                tracing::warn!(
                    volume = format!("{}/{}", exported.pool, exported.volume),
                    "its loop device was detached by another program: detach the volume and attach it again"
                );
                exported.link = None;
            }
        }
    }

    /// Ends all exports of a volume.
    pub fn detach(&self, pool: &str, name: &str, force: bool) -> Result<Vec<Export>, Failure> {
        let what = format!("volume `{pool}/{name}` was not detached");
        let uuid = self.status(pool)?.pool.uuid;
        if !force {
            self.refuse_clients(pool, Some(name), &what)?;
        }
        let ended = self.end_exports(pool, Some(name));
        self.forget_exports(&uuid, |export| export.volume == name);
        if self.missing_no_more(&uuid, name) {
            return Ok(ended);
        }
        if ended.is_empty() {
            return Err(Failure::missing(
                what,
                "it is not attached",
                "`ravelin volume list` shows what is attached where",
            ));
        }
        Ok(ended)
    }

    /// Sets the size of a volume's devices. Returns the first device that failed and its error.
    pub(super) fn resize_devices(
        &self,
        pool: &str,
        name: &str,
    ) -> Result<(), (PathBuf, io::Error)> {
        let exports = self.exports();
        for exported in exports.iter().filter(|one| one.is(pool, Some(name))) {
            if let Err(error) = exported.served.resized() {
                let device = exported
                    .served
                    .own_device()
                    .unwrap_or(Path::new("its device"));
                return Err((device.to_owned(), error));
            }
        }
        Ok(())
    }

    /// Leaves all exports that outlive the daemon to the next one. The others stay.
    pub(super) fn leave_exports(&self) {
        let exports: Vec<Exported> = self.exports().drain(..).collect();
        for mut exported in exports {
            let volume = format!("{}/{}", exported.pool, exported.volume);
            if exported.served.leave() {
                tracing::info!(volume, "left to the next daemon");
                // The device stays, and its name with it.
                if let Some(link) = exported.link {
                    link.leave();
                }
            } else {
                self.exports().push(exported);
            }
        }
    }

    /// Ends the exports of a volume, or of every volume of a pool.
    pub(super) fn end_exports(&self, pool: &str, volume: Option<&str>) -> Vec<Export> {
        let ended: Vec<Exported> = self
            .exports()
            .extract_if(.., |exported| exported.is(pool, volume))
            .collect();
        let views = ended.iter().map(Exported::view).collect();
        for exported in ended {
            tracing::info!(volume = format!("{pool}/{}", exported.volume), "detached");
            drop(exported);
        }
        views
    }
}

/// Who uses an export, if anybody does. A program that has its block device open is no client of the file below.
fn used_by(export: &Export) -> Option<String> {
    if export.clients > 0 {
        let are = match export.clients {
            1 => "client is",
            _ => "clients are",
        };
        let (clients, address) = (export.clients, &export.address);
        let volume = format!("`{}/{}`", export.pool, export.volume);
        return Some(format!(
            "{clients} {are} connected to volume {volume} at {address}"
        ));
    }
    let device = export.device.as_ref()?;
    let by = loops::opened_by(device)?;
    Some(format!("{} is open in {by}", device.display()))
}
