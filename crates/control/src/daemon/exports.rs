//! Volumes served: by NBD, one server per address and one volume per server, or as a file by FUSE.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use block::{
    BlockDevice, Completed, Extent, ExtentsAnswer, Limits, Memory, Region, Request, Submission,
};
use export::fuse::{FuseError, FuseFile, loops};
use export::nbd::{
    self, BindError, Listen, Options, ParseListenError, Place, Server, ServerTls, Uri,
};
use export::socket::SocketError;

use super::Daemon;
use super::links::DeviceLink;
use crate::Failure;
use crate::api::{Attach, Export};
use crate::state::SavedExport;

/// How long a client that has hung up may still count as one.
const GOODBYE: Duration = Duration::from_secs(1);

/// What serves a volume. Dropping it ends it.
enum Way {
    Nbd(Server),
    /// With the loop device made over it, which goes with it, and its name that stays.
    Fuse(FuseFile, Option<PathBuf>, Option<DeviceLink>),
}

/// A volume at an address.
pub(super) struct Exported {
    pool: String,
    volume: String,
    /// As it was asked for.
    attach: Attach,
    /// Not asked for in this life of the daemon.
    restored: bool,
    way: Way,
}

impl Exported {
    fn is(&self, pool: &str, volume: Option<&str>) -> bool {
        self.pool == pool && volume.is_none_or(|volume| self.volume == volume)
    }

    fn listens_on(&self, listen: &Listen) -> bool {
        match &self.way {
            Way::Nbd(server) => server.address() == listen,
            Way::Fuse(..) => false,
        }
    }

    fn view(&self) -> Export {
        let mut link = None;
        let (address, uri, clients, device) = match &self.way {
            Way::Nbd(server) => {
                let address = server.address();
                let uri = Uri {
                    place: match address {
                        Listen::Unix(path) => Place::Unix(path.clone()),
                        Listen::Tcp(address) => {
                            Place::Tcp(address.ip().to_string(), address.port())
                        }
                    },
                    name: format!("{}/{}", self.pool, self.volume),
                    tls: self.attach.tls.is_some() || self.attach.tls_psk.is_some(),
                };
                (
                    address.to_string(),
                    uri.to_string(),
                    server.connections(),
                    server.devices().into_iter().next(),
                )
            }
            Way::Fuse(file, device, name) => {
                link = name.as_ref().map(|name| name.path().to_owned());
                let path = file.path().display();
                let clients = match device {
                    None => file.opens(),
                    Some(device) => {
                        file.opens().saturating_sub(1) + usize::from(loops::is_held(device))
                    }
                };
                (
                    format!("fuse:{path}"),
                    path.to_string(),
                    clients,
                    device.clone(),
                )
            }
        };
        Export {
            pool: self.pool.clone(),
            volume: self.volume.clone(),
            address,
            uri,
            clients,
            device,
            link,
            read_only: self.attach.read_only,
        }
    }
}

/// A volume that nothing changes: what would is refused as if it were outside.
struct ReadOnly(Arc<engine::Volume>);

impl ReadOnly {
    /// Far behind any volume's end.
    const OUTSIDE: u64 = 1 << 62;

    const fn allowed(request: Request) -> Request {
        match request.kind.mutates() {
            true => Request {
                offset: Self::OUTSIDE,
                ..request
            },
            false => request,
        }
    }
}

impl BlockDevice for ReadOnly {
    fn limits(&self) -> Limits {
        Limits {
            trims: false,
            ..self.0.limits()
        }
    }

    fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
        self.0.submit(Self::allowed(request), memory, token, to);
    }

    fn submit_all(&self, batch: &mut Vec<Submission>, to: &Arc<dyn Completed>) {
        for one in batch.iter_mut() {
            one.request = Self::allowed(one.request);
        }
        self.0.submit_all(batch, to);
    }

    fn lend(&self, region: &Region) {
        self.0.lend(region);
    }

    fn extents(&self, offset: u64, length: u64) -> Vec<Extent> {
        self.0.extents(offset, length)
    }

    fn find_extents(&self, offset: u64, length: u64, answer: ExtentsAnswer) {
        self.0.find_extents(offset, length, answer);
    }
}

/// What the NBD server is told of the volume. A client that gives no name means it too.
struct One {
    name: String,
    volume: Arc<engine::Volume>,
}

impl nbd::Exports for One {
    fn list(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        (name.is_empty() || name == self.name).then(|| Arc::clone(&self.volume) as _)
    }
}

impl Daemon {
    pub(super) fn exports(&self) -> MutexGuard<'_, Vec<Exported>> {
        self.exports.lock().expect("no holder of the lock panics")
    }

    /// Where a volume, or every volume of a pool, is served.
    pub(super) fn exports_of(&self, pool: &str, volume: Option<&str>) -> Vec<Export> {
        let exports = self.exports();
        let of = exports.iter().filter(|exported| exported.is(pool, volume));
        of.map(Exported::view).collect()
    }

    /// Refuses when clients are connected.
    pub(super) fn refuse_clients(
        &self,
        pool: &str,
        volume: Option<&str>,
        what: &str,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + GOODBYE;
        loop {
            let exports = self.exports_of(pool, volume);
            let Some(busy) = exports.iter().find(|export| export.clients > 0) else {
                return Ok(());
            };
            if Instant::now() > deadline {
                return Err(Failure::conflict(
                    what,
                    format!(
                        "{} {} connected to volume `{}/{}` at {}",
                        busy.clients,
                        if busy.clients == 1 {
                            "client is"
                        } else {
                            "clients are"
                        },
                        busy.pool,
                        busy.volume,
                        busy.address
                    ),
                    "disconnect them first, or give --force to cut them off",
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Serves a volume.
    pub fn attach(&self, pool: &str, name: &str, request: &Attach) -> Result<Export, Failure> {
        // Scripts that attach after each start find it done.
        let restored = self.exports().iter().find_map(|exported| {
            let same = exported.is(pool, Some(name)) && exported.attach == *request;
            (same && exported.restored).then(|| exported.view())
        });
        if let Some(restored) = restored {
            return Ok(restored);
        }
        let what = format!("volume `{pool}/{name}` was not attached");
        let uuid = self.status(pool)?.pool.uuid;
        let noted = self.remember_export(&uuid, name, request);
        let served = self.serve(pool, name, request, false, &what);
        // With the port that was taken, so that it is the same next time.
        let taken = served.as_ref().ok().and_then(|view| {
            let nbd = request.nbd.as_ref().filter(|nbd| **nbd != view.address)?;
            tracing::debug!("{nbd} became {}", view.address);
            Some(Attach {
                nbd: Some(view.address.clone()),
                ..request.clone()
            })
        });
        if noted && (taken.is_some() || served.is_err()) {
            self.forget_exports(&uuid, |export| export.is(name, request));
        }
        if let Some(taken) = taken {
            self.remember_export(&uuid, name, &taken);
        }
        if let Ok(served) = &served {
            self.remember_device(&uuid, request, served);
            self.missing_no_more(&uuid, name);
        }
        served
    }

    /// Serves a volume as it was served in an earlier life.
    pub(super) fn attach_again(&self, pool: &str, export: &SavedExport) -> Result<Export, Failure> {
        let (name, request) = (&export.volume, &export.attach);
        let what = format!("volume `{pool}/{name}` was not attached again");
        // A killed daemon's sockets and mounts are dead when the kernel has taken it down.
        let deadline = Instant::now() + GOODBYE;
        loop {
            remove_dead(export);
            match self.serve(pool, name, request, true, &what) {
                Err(failure)
                    if failure.status == StatusCode::CONFLICT && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(50));
                }
                served => return served,
            }
        }
    }

    fn serve(
        &self,
        pool: &str,
        name: &str,
        request: &Attach,
        restored: bool,
        what: &str,
    ) -> Result<Export, Failure> {
        let handle = self.handle(pool, what)?;
        let volume = handle.volume(name).ok_or_else(|| {
            let name = name.to_owned();
            Failure::pool(what, &array::pool::PoolError::NoVolume { name })
        })?;
        let secured = request.tls.is_some() || request.tls_psk.is_some();
        if request.nbd.is_none() && (secured || request.insecure) {
            return Err(Failure::request(
                what,
                "TLS is for NBD, and a file has none",
                "give --nbd ADDRESS, or leave it out",
            ));
        }
        if request.loop_device && request.fuse.is_none() {
            return Err(Failure::request(
                what,
                "a loop device needs a file",
                "give --fuse FILE too",
            ));
        }
        let mut exports = self.exports();
        let way = match (&request.nbd, &request.fuse) {
            (Some(address), None) => {
                let one = One {
                    name: format!("{pool}/{name}"),
                    volume,
                };
                Way::Nbd(serve_nbd(
                    &exports,
                    (address, request, restored),
                    one,
                    what,
                )?)
            }
            (None, Some(path)) => {
                let device: Arc<dyn BlockDevice> = match request.read_only {
                    true => Arc::new(ReadOnly(volume)),
                    false => volume,
                };
                let file = serve_fuse(path, device, what)?;
                let device = request
                    .loop_device
                    .then(|| loop_over(&file, request.read_only, what));
                let device = device.transpose()?;
                let link = self.link_to(device.as_deref(), (pool, name));
                Way::Fuse(file, device, link)
            }
            (None, None) | (Some(_), Some(_)) => {
                return Err(Failure::request(
                    what,
                    "it takes either an NBD address or a file",
                    "give --nbd ADDRESS or --fuse FILE",
                ));
            }
        };
        let exported = Exported {
            pool: pool.to_owned(),
            volume: name.to_owned(),
            attach: request.clone(),
            restored,
            way,
        };
        let view = exported.view();
        tracing::info!(
            volume = format!("{pool}/{name}"),
            address = view.address,
            "attached"
        );
        exports.push(exported);
        drop(exports);
        // The pool may have begun to close meanwhile, and then did not see this export.
        drop(handle);
        if self.handle(pool, what).is_err() {
            self.end_exports(pool, Some(name));
        }
        Ok(view)
    }

    /// Gives a device its name that stays. It can be had by its number without one.
    fn link_to(&self, device: Option<&Path>, (pool, name): (&str, &str)) -> Option<DeviceLink> {
        let made = DeviceLink::make(self.links.as_ref()?, pool, name, device?);
        made.inspect_err(|error| tracing::warn!(pool, name, "no link to its device: {error}"))
            .ok()
    }

    /// Serves a volume no longer, anywhere.
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

    /// Ends what serves a volume, or every volume of a pool.
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

/// Removes what a killed daemon has left where a volume was served, if nobody lives there.
pub(super) fn remove_dead(export: &SavedExport) {
    let SavedExport { attach, device, .. } = export;
    let socket = attach.nbd.as_ref().and_then(|nbd| nbd.parse().ok());
    if let Some(Listen::Unix(path)) = socket
        && let Err(error) = export::socket::remove_dead(&path)
    {
        tracing::debug!("{error}");
    }
    if let (Some(device), Some(file)) = (device, &attach.fuse) {
        loops::let_go_of(&device.path, device.sequence, file);
    }
    if let Some(file) = &attach.fuse
        && let Err(error) = export::fuse::remove_dead(file)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!("{} is not unmounted: {error}", file.display());
    }
}

fn serve_nbd(
    exports: &[Exported],
    (address, request, restored): (&str, &Attach, bool),
    one: One,
    what: &str,
) -> Result<Server, Failure> {
    let listen: Listen = address.parse().map_err(|error: ParseListenError| {
        Failure::request(
            what,
            format!("`{}` is not an address to listen on", error.text),
            "write unix:PATH or tcp:127.0.0.1:PORT",
        )
    })?;
    if let Some(other) = exports.iter().find(|other| other.listens_on(&listen)) {
        return Err(Failure::conflict(
            what,
            format!(
                "`{}/{}` is already served at {listen}",
                other.pool, other.volume
            ),
            "choose another address, or detach that one first",
        ));
    }
    let tls = match (&request.tls, &request.tls_psk) {
        (None, None) => None,
        (Some(files), None) => {
            let authority = files.client_authority.as_deref();
            Some(ServerTls::for_clients(
                &files.certificate,
                &files.key,
                authority,
                true,
            ))
        }
        (None, Some(keys)) => Some(ServerTls::from_keys(keys, true)),
        (Some(_), Some(_)) => {
            return Err(Failure::request(
                what,
                "clients show either a certificate or a key that both sides know",
                "leave one of them out",
            ));
        }
    };
    let tls = tls.transpose().map_err(|error| {
        let text = error.to_string();
        let (why, hint) = text.rsplit_once("; ").unwrap_or((&text, ""));
        Failure::request(what, why, hint)
    })?;
    if let Listen::Tcp(to) = &listen
        && !to.ip().is_loopback()
        && tls.is_none()
        && !(request.insecure || restored)
    {
        return Err(Failure::request(
            what,
            format!(
                "{to} can be reached from other machines, and without TLS whoever reaches it has the volume"
            ),
            "--tls-cert FILE --tls-key FILE --tls-client-ca FILE or --tls-psk FILE, or --insecure where the network is trusted",
        ));
    }
    let options = Options {
        read_only: request.read_only,
        tls,
        ..Options::default()
    };
    Server::bind(&listen, Arc::new(one), &options).map_err(|error| bind_failure(what, &error))
}

fn serve_fuse(file: &Path, volume: Arc<dyn BlockDevice>, what: &str) -> Result<FuseFile, Failure> {
    if !file.is_absolute() {
        return Err(Failure::request(
            what,
            format!("`{}` is not an absolute path", file.display()),
            "the daemon runs in another directory; give the whole path",
        ));
    }
    FuseFile::mount(file, volume).map_err(|error| {
        let status = match &error {
            FuseError::NotAFile { .. } | FuseError::Exists { .. } | FuseError::Busy { .. } => {
                StatusCode::CONFLICT
            }
            FuseError::Prepare { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                StatusCode::NOT_FOUND
            }
            FuseError::Prepare { .. } => StatusCode::CONFLICT,
            FuseError::NoFuse { .. } | FuseError::Mount { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        failure_of(status, what, &error.to_string())
    })
}

fn loop_over(file: &FuseFile, read_only: bool, what: &str) -> Result<PathBuf, Failure> {
    loops::make(file.path(), read_only).map_err(|error| {
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            what,
            format!("there is no loop device over it: {error}"),
            "run the daemon as root with util-linux installed, or attach it without --loop",
        )
    })
}

/// From a message that ends in "; " and the thing to try.
fn failure_of(status: StatusCode, what: &str, text: &str) -> Failure {
    let (why, hint) = text.rsplit_once("; ").unwrap_or((text, ""));
    Failure::new(status, what, why, hint)
}

fn bind_failure(what: &str, error: &io::Error) -> Failure {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<BindError>());
    let status = match (inner, error.kind()) {
        (Some(BindError::Socket(SocketError::TooLong { .. })), _) => StatusCode::BAD_REQUEST,
        (
            Some(BindError::Socket(
                SocketError::Busy { .. }
                | SocketError::NotASocket { .. }
                | SocketError::Left { .. },
            )),
            _,
        )
        | (_, io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied) => StatusCode::CONFLICT,
        (_, io::ErrorKind::NotFound) => StatusCode::NOT_FOUND,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    failure_of(status, what, &error.to_string())
}
