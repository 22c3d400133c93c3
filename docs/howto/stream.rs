//! The whole volume to whoever connects, from beginning to end: `socat -u UNIX:/run/v.stream - | zstd > v.zst`.
//!
//! It is no snapshot: what is written meanwhile is sent as it is found.

use std::io::{self, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use block::{BlockDevice, Completed, Memory, Outcome, Request, RequestKind};
use export::socket::{self, SocketFile};

use super::{ExportKind, Served, Serving};
use crate::Failure;
use crate::state::SavedDevice;

/// Bytes read at a time.
const PIECE_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Stream;

impl ExportKind for Stream {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn value_name(&self) -> &'static str {
        "SOCKET"
    }

    fn help(&self) -> &'static str {
        "The whole volume to whoever connects to this socket, from beginning to end"
    }

    fn absolute(&self, place: &str) -> io::Result<String> {
        Ok(std::path::absolute(place)?.display().to_string())
    }

    fn serve(&self, place: &str, serving: &Serving<'_>) -> Result<Box<dyn Served>, Failure> {
        let (path, device) = (PathBuf::from(place), Arc::clone(&serving.device));
        // Only the daemon's user may connect.
        let (socket, file) = socket::listen(&path, 0o600, 8)
            .map_err(|error| Failure::of(StatusCode::CONFLICT, serving.what, &error))?;
        let listener = UnixListener::from(socket);
        let clients = Clients::default();
        let begun = listener.set_nonblocking(false).and_then(|()| {
            let (clients, thread) = (clients.clone(), std::thread::Builder::new());
            thread.spawn(move || accept(&listener, &device, &clients))
        });
        begun.map_err(|error| {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            Failure::new(status, serving.what, error.to_string(), "attach it again")
        })?;
        Ok(Box::new(Running {
            path,
            clients,
            _file: file,
        }))
    }

    fn remove_dead(&self, place: &str, _device: Option<&SavedDevice>) {
        if let Err(error) = socket::remove_dead(Path::new(place)) {
            tracing::debug!("{error}");
        }
    }
}

/// A client and its number.
type Client = (u64, UnixStream);

/// Who is connected; `None` once it has ended.
#[derive(Clone)]
struct Clients(Arc<Mutex<Option<Vec<Client>>>>);

impl Default for Clients {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Some(Vec::new()))))
    }
}

impl Clients {
    fn with<T>(&self, look: impl FnOnce(&mut Option<Vec<Client>>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Running {
    path: PathBuf,
    clients: Clients,
    _file: SocketFile,
}

impl Served for Running {
    fn address(&self) -> String {
        format!("stream:{}", self.uri())
    }

    fn uri(&self) -> String {
        self.path.display().to_string()
    }

    fn clients(&self) -> usize {
        self.clients
            .with(|clients| clients.as_ref().map_or(0, Vec::len))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let clients = self.clients.with(Option::take);
        for (_, client) in clients.into_iter().flatten() {
            client.shutdown(std::net::Shutdown::Both).ok();
        }
        // The thread that accepts sees that it has ended when somebody connects.
        UnixStream::connect(&self.path).ok();
    }
}

/// Takes clients until it has ended.
fn accept(listener: &UnixListener, device: &Arc<dyn BlockDevice>, clients: &Clients) {
    for number in 0.. {
        let Ok((client, _)) = listener.accept() else {
            return;
        };
        let Ok(twin) = client.try_clone() else {
            continue;
        };
        let goes_on = clients.with(|all| match all {
            Some(all) => {
                all.push((number, twin));
                true
            }
            None => false,
        });
        if !goes_on {
            return;
        }
        let (device, clients) = (Arc::clone(device), clients.clone());
        std::thread::spawn(move || {
            if let Err(error) = send(&*device, client) {
                tracing::debug!("a stream ended early: {error}");
            }
            clients.with(|all| {
                if let Some(all) = all {
                    all.retain(|&(other, _)| other != number);
                }
            });
        });
    }
}

/// Sends the volume as it is when its turn comes.
fn send(device: &dyn BlockDevice, mut client: UnixStream) -> io::Result<()> {
    let (sender, answers) = sync_channel(1);
    let to: Arc<dyn Completed> = Arc::new(Answer(sender));
    let mut offset = 0;
    loop {
        let length = PIECE_BYTES.min(device.limits().size_bytes.saturating_sub(offset));
        if length == 0 {
            return Ok(());
        }
        let mut bytes = read(device, (offset, length), &to, &answers)?;
        client.write_all(bytes.unique().ok_or(io::ErrorKind::ResourceBusy)?)?;
        offset += length;
    }
}

fn read(
    device: &dyn BlockDevice,
    (offset, length): (u64, u64),
    to: &Arc<dyn Completed>,
    answers: &Receiver<Result<Option<Memory>, String>>,
) -> io::Result<Memory> {
    let memory = Memory::zeroed(usize::try_from(length).expect("a piece"));
    let request = Request {
        kind: RequestKind::Read,
        offset,
        length,
        fua: false,
    };
    device.submit(request, memory.clone(), 0, to);
    match answers.recv() {
        Ok(Ok(elsewhere)) => Ok(elsewhere.unwrap_or(memory)),
        Ok(Err(why)) => Err(io::Error::other(why)),
        Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Hands an answer to the thread that waits for it: nothing, or other memory that the bytes are in.
struct Answer(SyncSender<Result<Option<Memory>, String>>);

impl Completed for Answer {
    fn completed(&self, _token: u64, outcome: Outcome) {
        let answer = outcome.map(|()| None).map_err(|fault| format!("{fault:?}"));
        self.0.send(answer).ok();
    }

    fn completed_elsewhere(&self, _token: u64, bytes: Memory) {
        self.0.send(Ok(Some(bytes))).ok();
    }
}
