//! A volume by NBD: one server per address and one volume per server.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::http::StatusCode;
use block::{BlockDevice, Full};
use export::nbd::{
    self, BindError, Listen, Options, ParseListenError, Place, Server, ServerTls, Uri,
};
use export::socket::SocketError;

use super::blocks::Blocks;
use super::{ExportKind, Served, Serving};
use crate::Failure;
use crate::api::Attach;
use crate::state::SavedDevice;

#[derive(Debug)]
pub(super) struct Nbd;

/// A server, and the volume's export name.
struct Running {
    server: Server,
    name: String,
    secured: bool,
}

impl ExportKind for Nbd {
    fn name(&self) -> &'static str {
        "nbd"
    }

    fn value_name(&self) -> &'static str {
        "ADDRESS"
    }

    fn help(&self) -> &'static str {
        "By NBD: unix:PATH or tcp:127.0.0.1:PORT"
    }

    fn absolute(&self, place: &str) -> io::Result<String> {
        match place.strip_prefix("unix:") {
            Some(socket) if !socket.is_empty() => {
                let socket = std::path::absolute(Path::new(socket))?;
                Ok(format!("unix:{}", socket.display()))
            }
            _ => Ok(place.to_owned()),
        }
    }

    fn options(&self, attach: &Attach) -> Vec<&'static str> {
        let given = [
            (attach.tls.is_some(), "tls-cert"),
            (attach.tls_psk.is_some(), "tls-psk"),
            (attach.insecure, "insecure"),
        ];
        let given = given.into_iter().filter(|(given, _)| *given);
        given.map(|(_, option)| option).collect()
    }

    fn serve(&self, place: &str, serving: &Serving<'_>) -> Result<Box<dyn Served>, Failure> {
        let what = serving.what;
        let refused = |error: ParseListenError| Failure::of(StatusCode::BAD_REQUEST, what, &error);
        let listen: Listen = place.parse().map_err(refused)?;
        if let Some(other) = (serving.served_at)(&listen.to_string()) {
            return Err(Failure::conflict(
                what,
                format!("`{other}` is already served at {listen}"),
                "choose another address, or detach that one first",
            ));
        }
        let tls = security(&listen, serving)?;
        let secured = tls.is_some();
        let options = Options {
            read_only: serving.attach.read_only,
            tls,
            ..Options::default()
        };
        let volume = Arc::clone(&serving.device);
        let one = One {
            name: serving.name(),
            volume: match serving.attach.block_size {
                Some(block_bytes) => Arc::new(Blocks {
                    volume,
                    block_bytes,
                }),
                None => volume,
            },
        };
        let server = Server::bind(&listen, Arc::new(one), &options)
            .map_err(|error| bind_failure(what, &error))?;
        Ok(Box::new(Running {
            server,
            name: serving.name(),
            secured,
        }))
    }

    fn remove_dead(&self, place: &str, _device: Option<&SavedDevice>) {
        if let Ok(Listen::Unix(path)) = place.parse()
            && let Err(error) = export::socket::remove_dead(&path)
        {
            tracing::debug!("{}", Full(error));
        }
    }
}

impl Served for Running {
    fn address(&self) -> String {
        self.server.address().to_string()
    }

    fn uri(&self) -> String {
        let place = match self.server.address() {
            Listen::Unix(path) => Place::Unix(path.clone()),
            Listen::Tcp(address) => Place::Tcp(address.ip().to_string(), address.port()),
        };
        let uri = Uri {
            place,
            name: self.name.clone(),
            tls: self.secured,
        };
        uri.to_string()
    }

    fn clients(&self) -> usize {
        self.server.connections()
    }

    fn place(&self) -> Option<String> {
        Some(self.address())
    }

    /// The device of the kernel's NBD client that is connected.
    fn device(&self) -> Option<PathBuf> {
        self.server.devices().into_iter().next()
    }
}

/// The server's only export. An empty name selects it, too.
struct One {
    name: String,
    volume: Arc<dyn BlockDevice>,
}

impl nbd::Exports for One {
    fn list(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        (name.is_empty() || name == self.name).then(|| Arc::clone(&self.volume))
    }
}

/// The TLS configuration of the request. A server that other machines can reach is refused if it serves every client that
/// reaches it, unless the request is explicitly `insecure` or is restored from an earlier run. A server's certificate
/// alone encrypts and authenticates the server, not its clients.
fn security(listen: &Listen, serving: &Serving<'_>) -> Result<Option<ServerTls>, Failure> {
    let (attach, what) = (serving.attach, serving.what);
    let tls = match (&attach.tls, &attach.tls_psk) {
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
    let tls = tls
        .transpose()
        .map_err(|error| Failure::of(StatusCode::BAD_REQUEST, what, &error))?;
    let knows_clients = match (&attach.tls, &attach.tls_psk) {
        (_, Some(_)) => true,
        (Some(files), None) => files.client_authority.is_some(),
        (None, None) => false,
    };
    if let Listen::Tcp(to) = listen
        && !to.ip().is_loopback()
        && !knows_clients
        && !attach.insecure
    {
        let encrypts = match &tls {
            Some(_) => "a server's certificate encrypts, and does not say who the client is",
            None => "there is no TLS",
        };
        if serving.restored {
            tracing::warn!(
                "{} at {to}: it serves every client; {encrypts}",
                serving.name()
            );
            return Ok(tls);
        }
        let hint = match &tls {
            Some(_) => "--tls-client-ca FILE, or --insecure where the network is trusted",
            None => {
                "--tls-cert FILE --tls-key FILE --tls-client-ca FILE or --tls-psk FILE, or --insecure where the network is trusted"
            }
        };
        return Err(Failure::request(
            what,
            format!(
                "{to} can be reached from other machines, and whoever reaches it has the volume: {encrypts}"
            ),
            hint,
        ));
    }
    Ok(tls)
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
    match inner {
        Some(error) => Failure::of(status, what, error),
        None => Failure::new(status, what, error.to_string(), ""),
    }
}
