//! The JSON documents of the API, the same types for server and client.
//!
//! Sizes are bytes. Requests with unknown fields are refused, so that a misspelt option is an error and not a
//! default.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use block::Hint;
use engine::assemble::{ExpandPlan, PoolPlan, RemovalPlan};
use engine::status::{Health, LoggedEvent, PoolStatus};
use serde::{Deserialize, Serialize};

use crate::exports::EXPORTS;

/// The longest request body, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// The kind of a failure, for programs; the texts beside it are for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The request is invalid, whatever the state of the pools.
    Usage,
    /// An object that the request names does not exist.
    NotFound,
    /// The current state does not permit it: a name, drive or socket is in use, or data would be lost.
    Conflict,
    /// No process answers at the daemon's socket.
    NoDaemon,
    /// The operation was attempted and failed.
    #[default]
    Failed,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What was not done.
    pub what: String,
    /// Why not.
    pub why: String,
    /// One thing to try; may be empty.
    #[serde(rename = "try")]
    pub hint: String,
    /// The kind of failure.
    #[serde(default)]
    pub kind: Kind,
    /// The part of a text in the request that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<Box<Span>>,
}

impl Problem {
    /// A problem whose `why` and `hint` are taken from `error`.
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
    /// First byte of the part.
    pub start: usize,
    /// The byte after the part's last one.
    pub end: usize,
}

impl Span {
    /// The `part` of `text`.
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
    /// Use drives even if they contain data.
    #[serde(default)]
    pub force: bool,
    /// Check everything and write nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// `POST pools/NAME/scrub`: begins, pauses, resumes or schedules a scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScrubPool {
    /// Pause the scrub in progress (true), or resume it (false).
    #[serde(default)]
    pub pause: Option<bool>,
    /// Do not begin a scrub now; begin one every so many days. 0: no more scheduled scrubs.
    #[serde(default)]
    pub every_days: Option<u32>,
}

/// `POST pools/NAME/elastic`: sets how many stripes of an elastic pool are kept as copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetElastic {
    /// The percentage of written stripes, 0 to 100; without it as many as there is space for.
    #[serde(default)]
    pub percent: Option<u8>,
}

/// `POST pools/NAME/rebuild`: sets how rebuild and scrub go on. What is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SteerPool {
    /// How they make way for clients: `low`, `medium` or `high`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// Bytes that they may move in a second; 0: as many as they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes: Option<u64>,
    /// Pause them (true), or let them go on (false).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<bool>,
}

/// `POST pools/NAME/expand`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpandPool {
    /// Fresh drives, and numbers of waiting spares.
    pub drives: Vec<String>,
    /// Also take drives that hold something, which is lost.
    #[serde(default)]
    pub force: bool,
    /// Report what would be done, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// Answer to [`ExpandPool`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpandedPool {
    /// Its name.
    pub name: String,
    /// True if the new drives are in the layout now; false after a dry run.
    pub expanded: bool,
    /// How many drives, how much moves, how long that takes, and the capacity.
    #[serde(flatten)]
    pub plan: ExpandPlan,
    /// What is on the new drives, or was before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overwrites: Vec<Overwrite>,
}

/// Answer to [`CreatePool`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CreatedPool {
    /// Its name.
    pub name: String,
    /// Its scheme.
    pub scheme: String,
    /// True if the pool exists now; false after a dry run.
    pub created: bool,
    /// How the capacity is computed, as text.
    pub arithmetic: String,
    /// Capacity for user data, in bytes.
    pub capacity_bytes: u64,
    /// How many failures the pool survives, how long a rebuild takes, and how the space is divided.
    #[serde(default)]
    pub plan: PoolPlan,
    /// What is on its drives, or was before.
    pub overwrites: Vec<Overwrite>,
}

/// Contents of a drive that the operation overwrites.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overwrite {
    /// The drive.
    pub drive: String,
    /// What is on it, with the article.
    pub holds: String,
}

/// `GET pools`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pools {
    /// By name.
    pub pools: Vec<PoolSummary>,
    /// Pools and exports of an earlier run that are not restored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_restores: Vec<FailedRestore>,
}

/// A pool or an export that the start of the daemon did not restore. The next start tries again; `pool export` or
/// `volume detach` removes it from the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRestore {
    /// The pool.
    pub pool: String,
    /// Its identity.
    pub uuid: String,
    /// The volume, if the pool is open and only this export failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Why.
    pub problem: Problem,
    /// The daemon is still working on it: it waits for the pool's drives, or is opening the pool.
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
    /// Its health.
    pub health: Health,
    /// Capacity for user data, in bytes.
    pub capacity_bytes: u64,
    /// The part of it that is not yet allocated to volumes.
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
    /// Pools that were destroyed and can be brought back, instead of those that can be imported.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub destroyed: bool,
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
    /// Number of drives according to the newest label.
    pub drives: usize,
    /// Drives found.
    pub paths: Vec<PathBuf>,
    /// Drives of which only the copy of the label at the end was found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overwritten: Vec<PathBuf>,
    /// Drives of a destroyed pool that are in use again: nothing brings them back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_again: Vec<Overwrite>,
}

/// `POST pools/import`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Import {
    /// Name or identity.
    pub name: String,
    /// The name that the pool has from now on, if another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_name: Option<String>,
    /// Directories, files and devices; all block devices if empty.
    #[serde(default)]
    pub places: Vec<PathBuf>,
    /// Open it although half of its drives or data are missing.
    #[serde(default)]
    pub degraded: bool,
    /// Numbers of drives that are away and are given up: what only they have is lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub give_up: Vec<u16>,
    /// The labels of drives whose beginning is overwritten are written anew, by the copies at their ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repair_labels: bool,
    /// The pool was destroyed: its drives get their labels back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub destroyed: bool,
}

/// `GET pools/{name}/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The pool.
    #[serde(flatten)]
    pub pool: PoolStatus,
    /// The exports of its volumes.
    pub exports: Vec<Export>,
}

/// `GET pools/{name}/events`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// In order.
    pub events: Vec<LoggedEvent>,
}

/// `GET pools/{name}/history`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Oldest first.
    pub history: Vec<HistoryLine>,
}

/// A command that changed a pool, or an important event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryLine {
    /// When it ended, as milliseconds since 1970.
    pub at_milliseconds: u64,
    /// The number of the user whose process sent the command. None: an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The user's name at that time, where this machine knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The command as the program takes it, or the event's name.
    pub what: String,
    /// The event in words. None: a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// `GET pools/{name}/idle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    /// True if no rebuild or resync is running.
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
    /// Go on even if data is lost.
    #[serde(default)]
    pub force: bool,
    /// `offline`: rebuild the drive's contents onto spares, as `fail` does.
    #[serde(default)]
    pub rebuild: bool,
    /// `add`, `replace` and `online`: report what is on the drive and would be lost, and change nothing.
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
    /// `current`, `filling`, `out`, `waiting`, `leaving`, or `removed`.
    pub state: String,
    /// `remove` of a drive of the layout: what moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<RemovalPlan>,
    /// What is on a new drive, or was before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overwrites: Vec<Overwrite>,
    /// `remove`: what has the drive's name now, with its article, and stays as it is because it is not the spare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
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

/// `POST pools/{name}/volumes/{volume}/bench`. A load that writes overwrites the volume with zeros, or with
/// compressible content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bench {
    /// The load.
    #[serde(flatten)]
    pub load: engine::load::Load,
    /// `POOL/VOLUME`, as a confirmation that what the volume holds is lost. Needed if it holds data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
    /// Write although the volume has clients, or a process has its file or device open.
    #[serde(default)]
    pub force: bool,
    /// Say whether the volume holds data, and run nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// Answer to [`Bench`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Benched {
    /// The load was run.
    Report(engine::load::LoadReport),
    /// The load would be run.
    Planned {
        /// Whether writes destroy data that the volume holds.
        holds_data: bool,
    },
}

/// `POST drives/wipe`: removes labels and signatures, so that the drive counts as empty. `POST drives/restore-label`:
/// gives a drive its label back, which a command has taken or something has overwritten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeLabel {
    /// The drive.
    pub drive: String,
    /// The drive's name again, as a confirmation: what the drive holds now, or what was written over the label, is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
    /// Report what would be lost or would come back, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// Answer to `POST drives/wipe`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WipedDrive {
    /// The drive.
    pub drive: String,
    /// What it holds or held, with the article; none if no known contents were found.
    pub holds: Option<String>,
    /// True if these contents are wiped now.
    pub wiped: bool,
    /// True if the label can be restored until the drive is used again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restorable: bool,
}

/// Answer to `POST drives/restore-label`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredLabel {
    /// The drive.
    pub drive: String,
    /// The pool's name.
    pub pool: String,
    /// The pool's identity.
    pub uuid: String,
    /// The number of the drive.
    pub seat: u16,
    /// What was written over the label and is lost, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// True if the drive has the label again.
    pub restored: bool,
}

/// `PATCH pools/{name}/volumes/{volume}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// Its new size.
    pub size_bytes: u64,
    /// Permit a smaller size: data beyond the new end is lost. `pool` must then name the pool.
    #[serde(default)]
    pub shrink: bool,
    /// The pool's name again, as a confirmation if data is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Shrink it even if it is attached.
    #[serde(default)]
    pub force: bool,
}

/// `DELETE pools/{name}/volumes/{volume}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteVolume {
    /// The pool's name again, as a confirmation: the volume's data is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// `DELETE pools/{name}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestroyPool {
    /// The pool's name again, as a confirmation: the pool's data is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Disconnect clients.
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
    /// Its size for clients.
    pub size_bytes: u64,
    /// What the pool has set aside for it: whole groups.
    #[serde(default)]
    pub reserved_bytes: u64,
    /// The bytes that have been written and not trimmed since. None if that was not asked for, or could not be found
    /// in the time that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated_bytes: Option<u64>,
    /// What is consecutive on one drive.
    #[serde(default)]
    pub chunk_bytes: u64,
    /// The data of a full stripe: a write of so much, aligned, needs no reads.
    #[serde(default)]
    pub stripe_bytes: u64,
    /// Command lines that make a file system that is aligned to chunks and stripes.
    #[serde(default)]
    pub mkfs: Vec<String>,
    /// The device of a virtual machine of qemu that has the volume as a disk, with the sizes by which file systems in the
    /// machine align themselves. `NODE` is the name of its `-blockdev`.
    #[serde(default)]
    pub qemu: String,
    /// Its exports.
    pub exports: Vec<Export>,
}

impl Volume {
    /// Sets [`mkfs`](Self::mkfs), for the volume's block device if it has one, and [`qemu`](Self::qemu).
    #[must_use]
    pub fn with_mkfs(mut self) -> Self {
        let device = { self.exports.iter() }.find_map(|export| {
            let device = export.link.as_ref().or(export.device.as_ref())?;
            Some(device.display().to_string())
        });
        let device = device.unwrap_or_else(|| "DEVICE".to_owned());
        let (chunk, stripe) = (self.chunk_bytes, self.stripe_bytes);
        let chunks = stripe.checked_div(chunk).unwrap_or(0);
        let aligned = chunks > 1 && chunk.is_multiple_of(4096) && stripe.is_multiple_of(chunk);
        let (ext4, xfs, units) = match aligned {
            true => (
                format!(" -E stride={},stripe_width={}", chunk / 4096, stripe / 4096),
                format!(" -d su={}k,sw={chunks}", chunk / 1024),
                format!(",min_io_size={chunk},opt_io_size={stripe}"),
            ),
            // A mirror has no stripes.
            false => (String::new(), String::new(), String::new()),
        };
        self.qemu = format!(
            "virtio-blk-pci,drive=NODE,logical_block_size=4096,physical_block_size=4096{units}"
        );
        self.mkfs = vec![
            format!("mkfs.ext4 -b 4096{ext4} {device}"),
            format!("mkfs.xfs -s size=4096{xfs} {device}"),
        ];
        self
    }
}

/// `POST pools/{name}/volumes/{volume}/attach`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "AttachFields")]
pub struct Attach {
    /// The [kind of export](crate::exports::EXPORTS) and the place; exactly one entry. `nbd` with `unix:PATH` or
    /// `tcp:ADDRESS:PORT`, or `fuse` with the file that the volume appears as, an absolute path. May be empty with
    /// `loop_device`: the daemon then chooses the file.
    #[serde(flatten)]
    pub at: BTreeMap<String, String>,
    /// By FUSE: create a loop device over that file.
    #[serde(default, skip_serializing_if = "is_false")]
    pub loop_device: bool,
    /// Refuse requests that change the volume.
    #[serde(default, skip_serializing_if = "is_false")]
    pub read_only: bool,
    /// Bytes of a logical block, 512 or 4096: of the loop device, or the shortest request that NBD clients may send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u32>,
    /// By NBD: clients must use TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<AttachTls>,
    /// By NBD: clients must use TLS with one of the keys in this file, lines of `NAME:KEY`; an absolute path. Instead
    /// of `tls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_psk: Option<PathBuf>,
    /// By NBD over TCP: serve other machines without TLS.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure: bool,
}

/// The same document when parsed: an unknown field is a kind of export or an error.
#[derive(Deserialize)]
struct AttachFields {
    #[serde(flatten)]
    at: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    loop_device: bool,
    #[serde(default)]
    read_only: bool,
    block_size: Option<u32>,
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
            block_size: fields.block_size,
            tls: fields.tls,
            tls_psk: fields.tls_psk,
            insecure: fields.insecure,
        })
    }
}

/// Files of a server's TLS, in PEM; absolute paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachTls {
    /// The server's certificate and the intermediate certificates up to its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificate authorities: a client must present a certificate of one of them. Without this, any client that
    /// uses TLS is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_authority: Option<PathBuf>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(value: &bool) -> bool {
    !value
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_one(value: &u32) -> bool {
    *value == 1
}

/// A volume that is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    /// The pool.
    pub pool: String,
    /// The volume.
    pub volume: String,
    /// `unix:PATH`, `tcp:ADDRESS:PORT` with the port that was assigned, or `fuse:FILE`.
    pub address: String,
    /// The URI for NBD clients, or the file's path.
    pub uri: String,
    /// The loop device over the file, or the device of the kernel's NBD client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<PathBuf>,
    /// The device's stable name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<PathBuf>,
    /// True if requests that change the volume are refused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub read_only: bool,
    /// Requests are aligned to so many bytes: a logical block of the device, or 1 where clients may send anything.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub block_bytes: u32,
    /// Connected clients. For a file: how often it is open. With a loop device: whether the device is in use.
    pub clients: usize,
}

/// Answer to attaching and detaching.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exports {
    /// The exports that began or ended.
    pub exports: Vec<Export>,
}

/// `POST pools/{name}/export` and `POST pools/{name}/volumes/{volume}/detach`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClosePool {
    /// Disconnect clients.
    #[serde(default)]
    pub force: bool,
}

/// An empty answer: the request succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}
