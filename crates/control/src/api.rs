//! What goes over the wire, the same for server and client.
//!
//! Sizes are bytes. Requests refuse fields that they do not know, so that a misspelt option is an
//! error and not a default.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use block::Hint;
use engine::assemble::PoolPlan;
use engine::status::{Health, LoggedEvent, PoolStatus};
use serde::{Deserialize, Serialize};

use crate::exports::EXPORTS;

/// The longest request body, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// What kind of failure, for programs: the words around it are for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What was asked for cannot be, whatever the state of things.
    Usage,
    /// It is about something that is not there.
    NotFound,
    /// The state of things forbids it: a name, drive or socket is in use, or data would be lost.
    Conflict,
    /// Nobody answers at the daemon's socket.
    NoDaemon,
    /// It was tried and did not succeed.
    #[default]
    Failed,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What was not done.
    pub what: String,
    /// Why not.
    pub why: String,
    /// One thing to try; may be empty.
    #[serde(rename = "try")]
    pub hint: String,
    /// What kind of failure.
    #[serde(default)]
    pub kind: Kind,
    /// The part of a text in the request that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<Box<Span>>,
}

impl Problem {
    /// What was not done, and why and what to try as `error` has them.
    pub fn of(kind: Kind, what: impl Into<String>, error: &(impl Hint + ?Sized)) -> Self {
        Self {
            what: what.into(),
            why: error.to_string(),
            hint: error.hint().unwrap_or_default().into_owned(),
            kind,
            span: None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

impl Hint for Problem {
    fn hint(&self) -> Option<Cow<'_, str>> {
        (!self.hint.is_empty()).then(|| (&*self.hint).into())
    }
}

/// A part of a text, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The whole text.
    pub text: String,
    /// First byte that is meant.
    pub start: usize,
    /// The byte after the last one.
    pub end: usize,
}

impl Span {
    /// The `part` of `text` that is meant.
    #[must_use]
    pub fn new(text: &str, part: Range<usize>) -> Self {
        Self {
            text: text.to_owned(),
            start: part.start,
            end: part.end,
        }
    }
}

/// The body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: Problem,
}

/// `GET health`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// The daemon's version.
    pub ravelin: String,
    /// Its process.
    pub pid: u32,
}

/// `POST pools`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    /// Its name.
    pub name: String,
    /// Scheme string.
    pub scheme: String,
    /// Drives of the layout as URIs, in order of seats.
    pub drives: Vec<String>,
    /// Drives that wait as spares.
    #[serde(default)]
    pub spares: Vec<String>,
    /// `-o chunk=`.
    #[serde(default)]
    pub chunk_bytes: Option<u64>,
    /// `-o cell=`.
    #[serde(default)]
    pub cell_bytes: Option<u64>,
    /// `-o journal=intent -o checksum=off`: neither data in a journal nor checksums.
    #[serde(default)]
    pub unprotected: bool,
    /// Take drives that hold something.
    #[serde(default)]
    pub force: bool,
    /// Check everything and write nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// `POST pools/NAME/scrub`: begins a scrub, or holds it, or lets it go on, or plans it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScrubPool {
    /// Hold the one under way, or let it go on.
    #[serde(default)]
    pub pause: Option<bool>,
    /// Begin none now, but one every so many days; 0: none any more.
    #[serde(default)]
    pub every_days: Option<u32>,
}

/// Answer to [`CreatePool`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedPool {
    /// Its name.
    pub name: String,
    /// Its scheme.
    pub scheme: String,
    /// Whether it exists now; false after a dry run.
    pub created: bool,
    /// Capacity in words.
    pub arithmetic: String,
    /// Bytes of user data that it holds.
    pub capacity_bytes: u64,
    /// What it survives, how long a rebuild takes, and where the bytes go.
    #[serde(default)]
    pub plan: PoolPlan,
    /// What is, or was, on its drives.
    pub overwrites: Vec<Overwrite>,
}

/// Something that a new pool puts an end to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overwrite {
    /// The drive.
    pub drive: String,
    /// What is on it, with its article.
    pub holds: String,
}

/// `GET pools`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pools {
    /// By name.
    pub pools: Vec<PoolSummary>,
    /// What was there before the daemon started and is not now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_restores: Vec<FailedRestore>,
}

/// A pool or an export that a start of the daemon did not bring back. It is tried again at the next
/// start, and forgotten by `pool export` or `volume detach`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRestore {
    /// The pool.
    pub pool: String,
    /// Its identity.
    pub uuid: String,
    /// The volume, where the pool is open and only an export of it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Why.
    pub problem: Problem,
    /// It may yet come back by itself: its drives are waited for, or it is being opened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restoring: bool,
}

/// A line of `pool list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSummary {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: String,
    /// Its scheme.
    pub scheme: String,
    /// How it is.
    pub health: Health,
    /// Bytes of user data that it can hold.
    pub capacity_bytes: u64,
    /// Of those, not yet given to volumes.
    pub free_bytes: u64,
    /// Seats, waiting spares included.
    pub drives: usize,
    /// Volumes.
    pub volumes: usize,
}

/// `POST pools/scan`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scan {
    /// Directories, files and devices; all block devices if empty.
    #[serde(default)]
    pub places: Vec<PathBuf>,
}

/// Answer to [`Scan`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundPools {
    /// Pools whose labels were found and that are not open here.
    pub pools: Vec<FoundPool>,
}

/// A pool that could be imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundPool {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: String,
    /// Its scheme.
    pub scheme: String,
    /// Newest generation found.
    pub generation: u64,
    /// Drives that the newest label knows.
    pub drives: usize,
    /// Drives found.
    pub paths: Vec<PathBuf>,
}

/// `POST pools/import`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Import {
    /// Name or identity.
    pub name: String,
    /// Directories, files and devices; all block devices if empty.
    #[serde(default)]
    pub places: Vec<PathBuf>,
    /// Open it although too much is missing.
    #[serde(default)]
    pub degraded: bool,
}

/// `GET pools/{name}/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The pool.
    #[serde(flatten)]
    pub pool: PoolStatus,
    /// Where its volumes are served.
    pub exports: Vec<Export>,
}

/// `GET pools/{name}/events`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// In order.
    pub events: Vec<LoggedEvent>,
}

/// `GET pools/{name}/idle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    /// Whether nothing is being filled or computed anew.
    pub idle: bool,
}

/// `POST pools/{name}/drives/…`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveChange {
    /// The seat's number or the drive's name; for `add` the new drive.
    pub drive: String,
    /// The new drive of a replacement.
    #[serde(default)]
    pub new: Option<String>,
    /// Go on although data is lost.
    #[serde(default)]
    pub force: bool,
    /// `offline`: rebuild onto spares what the drive held, as `fail` does.
    #[serde(default)]
    pub rebuild: bool,
    /// `add` and `replace`: say what is on the new drive, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// Answer to [`DriveChange`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedDrive {
    /// Its seat.
    pub seat: u16,
    /// Its name.
    pub path: String,
    /// `current`, `filling`, `out`, `waiting`, or `removed`.
    pub state: String,
    /// What is, or was, on a new drive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overwrites: Vec<Overwrite>,
}

/// `POST pools/{name}/volumes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
}

/// `POST pools/{name}/volumes/{volume}/rename`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenameVolume {
    /// Its new name within the pool.
    pub name: String,
}

/// `POST drives/wipe`: removes whatever tells what a drive holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WipeDrive {
    /// The drive.
    pub drive: String,
    /// The drive once more: what it holds is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
    /// Say what it holds, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// Answer to [`WipeDrive`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WipedDrive {
    /// The drive.
    pub drive: String,
    /// What it holds, or held, with its article; none if nothing that is known.
    pub holds: Option<String>,
    /// Whether that is gone now.
    pub wiped: bool,
}

/// `PATCH pools/{name}/volumes/{volume}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// Its new size.
    pub size_bytes: u64,
    /// Cut off what does not fit; `pool` must then name the pool.
    #[serde(default)]
    pub shrink: bool,
    /// The pool's name once more, where data is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Shrink it although it is attached.
    #[serde(default)]
    pub force: bool,
}

/// `DELETE pools/{name}/volumes/{volume}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteVolume {
    /// The pool's name once more: what the volume holds is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// `DELETE pools/{name}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestroyPool {
    /// The pool's name once more: what it holds is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Cut off clients that are connected.
    #[serde(default)]
    pub force: bool,
}

/// `GET pools/{name}/volumes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volumes {
    /// By name.
    pub volumes: Vec<Volume>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: String,
    /// Bytes that clients see.
    pub size_bytes: u64,
    /// Where it is served.
    pub exports: Vec<Export>,
}

/// `POST pools/{name}/volumes/{volume}/attach`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "AttachFields")]
pub struct Attach {
    /// By which [kind of export](crate::exports::EXPORTS), and where; one. `nbd` with `unix:PATH` or `tcp:ADDRESS:PORT`, or
    /// `fuse` with the file that the volume is to be; absolute.
    #[serde(flatten)]
    pub at: BTreeMap<String, String>,
    /// By FUSE: with a loop device over that file.
    #[serde(default, skip_serializing_if = "is_false")]
    pub loop_device: bool,
    /// Whatever would change the volume is refused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub read_only: bool,
    /// By NBD: clients must use TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<AttachTls>,
    /// By NBD: clients must use TLS with one of the keys in this file, lines of `NAME:KEY`; absolute. In place of
    /// `tls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_psk: Option<PathBuf>,
    /// By NBD over TCP: serve other machines without TLS.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure: bool,
}

/// The same as it is read: fields that are not known are kinds of exports, or errors.
#[derive(Deserialize)]
struct AttachFields {
    #[serde(flatten)]
    at: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    loop_device: bool,
    #[serde(default)]
    read_only: bool,
    tls: Option<AttachTls>,
    tls_psk: Option<PathBuf>,
    #[serde(default)]
    insecure: bool,
}

impl TryFrom<AttachFields> for Attach {
    type Error = String;

    fn try_from(fields: AttachFields) -> Result<Self, String> {
        let mut at = BTreeMap::new();
        for (name, place) in fields.at {
            if !EXPORTS.iter().any(|kind| kind.name() == name) {
                return Err(format!("unknown field `{name}`"));
            }
            match place {
                serde_json::Value::String(place) => {
                    at.insert(name, place);
                }
                serde_json::Value::Null => {}
                other => return Err(format!("`{name}` is a string, and not {other}")),
            }
        }
        Ok(Self {
            at,
            loop_device: fields.loop_device,
            read_only: fields.read_only,
            tls: fields.tls,
            tls_psk: fields.tls_psk,
            insecure: fields.insecure,
        })
    }
}

/// Files of a server's TLS, in PEM; absolute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachTls {
    /// The server's certificate and those between it and its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities of which clients must show a certificate; without it any client is served that uses TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_authority: Option<PathBuf>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(value: &bool) -> bool {
    !value
}

/// A volume that is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    /// The pool.
    pub pool: String,
    /// The volume.
    pub volume: String,
    /// `unix:PATH`, `tcp:ADDRESS:PORT` with the port that was taken, or `fuse:FILE`.
    pub address: String,
    /// What an NBD client connects to, or the file.
    pub uri: String,
    /// The loop device made over the file, or the device that the kernel's NBD client has made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<PathBuf>,
    /// The device's name that stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<PathBuf>,
    /// Whether whatever would change the volume is refused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub read_only: bool,
    /// Clients now; for a file, how often it is open, and for a loop device, whether it is held.
    pub clients: usize,
}

/// Answer to attaching and detaching.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exports {
    /// What was begun or ended.
    pub exports: Vec<Export>,
}

/// `POST pools/{name}/export` and `POST pools/{name}/volumes/{volume}/detach`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClosePool {
    /// Cut off clients that are connected.
    #[serde(default)]
    pub force: bool,
}

/// An answer that only says that it was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}
