//! What is at a drive's name at this moment.
//!
//! A name only says where to look: cables move, a bay gets another disk, a shelf comes up in another order. A command
//! that writes therefore opens the drive anew and reads what the drive holds through the handle that the command
//! writes with afterwards, past the page cache. [`super::permit`] decides by the answer.
//!
//! ```text
//!   name ──► the same device as a drive that is open here ─────────────────► InUse
//!        ──► opened and locked ──► the label of a drive that is open here ─► InUse: a second name of it, or a copy
//!        ──► opened and locked ──► label ──► of a pool that is open here ──► Member, Former
//!                              │         └─► of another pool ──────────────► OtherPool
//!                              └─► no label ──► a known mark ──────────────► Foreign
//!                                           ├─► none, and not zeros ───────► Unmarked
//!                                           └─► none ──────────────────────► Empty
//!        ──► not opened ───────────────────────────────────────────────────► Taken, Missing, NoAnswer
//! ```
//!
//! A look ends after [`ANSWER_WITHIN`]. It runs on a thread of its own, which waits for a drive that hangs as long as
//! the kernel does; the caller does not.

use std::fmt;
use std::time::Duration;

use array::format::{Generation, Label};
use array::pool::SeatState;
use uuid::Uuid;

use super::AssembleError;
use super::drive::{read_label, read_label_copy};
use super::io_error;
use super::probe::answers;
use super::stack::volume_named;
use crate::drive::{self, Content, Drive, DriveUri, Identity, Open, OpenDriveError, OpenVolume};
use crate::run::Member;

/// How long a drive may take to be opened and read.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How long a drive may take to show that it is empty: some 300 reads, and 32 MiB.
const CONTENT_WITHIN: Duration = Duration::from_secs(60);

/// A pool that is open here.
#[derive(Clone, Debug)]
pub struct OpenPool {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: Uuid,
    /// The drives that it lists.
    pub members: Vec<Member>,
    /// Its volumes.
    pub volumes: Vec<OpenVolume>,
    /// Whether volumes can be its drives.
    pub takes_volumes: bool,
}

/// What is at a drive's name.
#[derive(Debug)]
pub enum Occupant {
    /// The very device that a pool has open here.
    InUse {
        /// The pool.
        pool: String,
        /// The pool's identity.
        uuid: Uuid,
        /// The number of the drive.
        number: u16,
        /// The identity of the drive.
        drive: Uuid,
    },
    /// A drive that a pool lists which is open here without the drive.
    Member {
        /// The pool.
        pool: String,
        /// The pool's identity.
        uuid: Uuid,
        /// The number of the drive.
        number: u16,
        /// The identity of the drive.
        drive: Uuid,
        /// Whether the drive is a spare.
        is_spare: bool,
        /// Whether the drive was in use elsewhere since the pool has lost it: it may hold data that the pool has not.
        went_on: bool,
    },
    /// The label is of a pool that is open here, and the pool lists no drive of this identity.
    Former {
        /// The pool.
        pool: String,
        /// The pool's identity.
        uuid: Uuid,
        /// The number that the drive had.
        number: u16,
    },
    /// A drive of a pool that is not open here.
    OtherPool {
        /// The pool.
        pool: String,
        /// The pool's identity.
        uuid: Uuid,
        /// The number of the drive.
        number: u16,
    },
    /// A drive of a pool on which something else has been written since: Ravelin writes no foreign mark.
    Overlaid {
        /// What, with its article.
        what: String,
        /// The pool's identity.
        uuid: Uuid,
        /// Whose label is left, in words.
        label: String,
    },
    /// Something that has a known mark.
    Foreign {
        /// What, with its article.
        what: String,
    },
    /// Data without a known mark.
    Unmarked {
        /// Where a byte is not zero.
        offset: u64,
    },
    /// Nothing that is known.
    Empty,
    /// Another process or the kernel uses the drive.
    Taken(OpenDriveError),
    /// No drive can be opened under the name.
    Missing(OpenDriveError),
    /// The drive does not answer in time, or answers with errors.
    NoAnswer(AssembleError),
}

impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { pool, number, .. } => {
                write!(
                    f,
                    "the drive of seat {number} of pool `{pool}`, which is open here"
                )
            }
            Self::Member {
                pool,
                number,
                is_spare,
                went_on,
                ..
            } => {
                let what = if *is_spare { "spare" } else { "seat" };
                write!(
                    f,
                    "{what} {number} of the Ravelin pool `{pool}`, which is open here without it"
                )?;
                if *went_on {
                    f.write_str("; it was in use elsewhere since")?;
                }
                Ok(())
            }
            Self::Former { pool, number, .. } => write!(
                f,
                "a former seat {number} of the Ravelin pool `{pool}`, which is open here and lists it no more"
            ),
            Self::OtherPool { pool, number, .. } => {
                write!(f, "seat {number} of the Ravelin pool `{pool}`")
            }
            Self::Overlaid { what, label, .. } => {
                write!(f, "{what}, written over {label}")
            }
            Self::Foreign { what } => f.write_str(what),
            Self::Unmarked { offset } => {
                write!(f, "data of no known kind (byte {offset} is not zero)")
            }
            Self::Empty => f.write_str("nothing that is known"),
            Self::Taken(error) | Self::Missing(error) => error.fmt(f),
            Self::NoAnswer(error) => error.fmt(f),
        }
    }
}

/// What a command wants of the drives that it looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To say what it would do.
    Read,
    /// To write to them.
    Write,
}

/// A drive that was looked at.
#[derive(Debug)]
pub struct Examined {
    /// The name, with absolute paths.
    pub uri: DriveUri,
    /// What is there.
    pub occupant: Occupant,
    /// The drive, open and locked, if it could be read and no pool has it open here.
    pub drive: Option<Drive>,
}

/// Looks at the drive of a name. `pools` are all pools that are open here.
#[must_use]
pub fn examine(uri: &DriveUri, pools: &[OpenPool], access: Access) -> Examined {
    let uri = uri.absolute();
    let devices = open_devices(pools);
    let looked = {
        let uri = uri.clone();
        let volume = volume_named(&uri, pools).cloned();
        // A probe and then the look itself. A volume takes no probe, but may wait until the pool below does without a
        // drive that hangs.
        within(2 * ANSWER_WITHIN, move || {
            look(&uri, &devices, volume.as_ref(), access)
        })
    };
    judge(uri, looked, pools)
}

/// Looks at a drive that a pool had open until now, if its name still leads to it. The descriptor stays open from the
/// pool to the command: whoever would take the drive in between, such as udev, does not come in its way.
#[must_use]
pub fn examine_released(drive: Drive, pools: &[OpenPool]) -> Examined {
    let uri = drive.uri.clone();
    let devices = open_devices(pools);
    let looked = {
        let uri = uri.clone();
        let volume = volume_named(&uri, pools).cloned();
        within(2 * ANSWER_WITHIN, move || {
            if uri.spec.volume().is_some() {
                return read(drive);
            }
            let Some(path) = uri.spec.path().filter(|path| answers(path)) else {
                let drive = uri.to_string();
                return Look::Unreadable(AssembleError::NoAnswer { drive });
            };
            match drive::identity(path) == drive.identity {
                true => read(drive),
                false => {
                    // The name leads elsewhere by now.
                    drop(drive);
                    look(&uri, &devices, volume.as_ref(), Access::Write)
                }
            }
        })
    };
    judge(uri, looked, pools)
}

fn judge(uri: DriveUri, looked: Option<Look>, pools: &[OpenPool]) -> Examined {
    let no_answer = || {
        let drive = uri.to_string();
        Look::Unreadable(AssembleError::NoAnswer { drive })
    };
    let (occupant, drive) = match looked.unwrap_or_else(no_answer) {
        Look::Open(device) => (in_use(device, pools), None),
        Look::NotOpened(error) => (not_opened(error), None),
        Look::Unreadable(error) => (Occupant::NoAnswer(error), None),
        Look::Read {
            drive,
            label: Some(label),
            mark,
        } => (overlaid(mark, &label, labelled(&label, pools)), Some(drive)),
        Look::Read {
            drive,
            label: None,
            mark: Some(what),
        } => (Occupant::Foreign { what }, Some(drive)),
        Look::Read {
            drive,
            label: None,
            mark: None,
        } => {
            let looked = {
                let drive = drive.clone();
                within(CONTENT_WITHIN, move || drive::content(&drive))
            };
            let occupant = match looked {
                Some(Ok(Content::Marked(what))) => Occupant::Foreign { what },
                Some(Ok(Content::Unmarked { offset })) => Occupant::Unmarked { offset },
                Some(Ok(Content::Empty)) => Occupant::Empty,
                Some(Err(fault)) => Occupant::NoAnswer(io_error(&drive, "reading", fault)),
                None => Occupant::NoAnswer(AssembleError::NoAnswer {
                    drive: drive.uri.to_string(),
                }),
            };
            (occupant, Some(drive))
        }
    };
    Examined {
        uri,
        occupant,
        drive,
    }
}

/// Reads the label of a drive that is open here already, and says whose it is.
#[must_use]
pub fn examine_open(drive: &Drive, pools: &[OpenPool]) -> Occupant {
    let looked = {
        let drive = drive.clone();
        within(answer_within(&drive), move || read_label(&drive))
    };
    match looked {
        Some(Ok(Some((_, label)))) => labelled(&label, pools),
        Some(Ok(None)) => Occupant::Empty,
        Some(Err(error)) => Occupant::NoAnswer(error),
        None => Occupant::NoAnswer(AssembleError::NoAnswer {
            drive: drive.uri.to_string(),
        }),
    }
}

/// Whether a drive that is open here answers, with the label of this identity.
#[must_use]
pub fn is_still(drive: &Drive, identity: Uuid) -> bool {
    if drive.uri.spec.path().is_some_and(|path| !answers(path)) {
        return false;
    }
    let looked = {
        let drive = drive.clone();
        within(answer_within(&drive), move || read_label(&drive))
    };
    matches!(looked, Some(Ok(Some((_, label)))) if label.drive == identity)
}

/// How long a drive that is open here may take. A volume answers once the pool below does without a drive that hangs:
/// half a second after [`array::DEADLINE`].
fn answer_within(drive: &Drive) -> Duration {
    match drive.uri.spec.volume() {
        Some(_) => 2 * ANSWER_WITHIN,
        None => ANSWER_WITHIN,
    }
}

/// Runs `work` on a thread of its own, and waits for it only so long.
pub(super) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (to, done) = std::sync::mpsc::channel();
    std::thread::Builder::new()
        .name("drive-look".to_owned())
        // The receiver does not wait for a late answer.
        .spawn(move || to.send(work()).ok())
        .ok()?;
    done.recv_timeout(limit).ok()
}

/// What a look at a drive shows, before the pools that are open here are asked.
#[expect(clippy::large_enum_variant, reason = "one at a time")]
enum Look {
    /// The name leads to this device, which is open here.
    Open(Identity),
    NotOpened(OpenDriveError),
    Unreadable(AssembleError),
    Read {
        drive: Drive,
        label: Option<Label>,
        mark: Option<String>,
    },
}

fn look(uri: &DriveUri, open: &[Identity], volume: Option<&OpenVolume>, access: Access) -> Look {
    if uri.spec.path().is_some_and(|path| !answers(path)) {
        let drive = uri.to_string();
        return Look::Unreadable(AssembleError::NoAnswer { drive });
    }
    let device = match volume {
        Some(volume) => Some(Identity::Volume(volume.uuid)),
        None => uri.spec.path().and_then(drive::identity),
    };
    if let Some(device) = device.filter(|device| open.contains(device)) {
        return Look::Open(device);
    }
    let how = Open {
        create_size: None,
        exclusive: true,
        read_only: access == Access::Read,
    };
    match drive::open_over(uri, how, volume) {
        Ok(drive) => read(drive),
        Err(error) => Look::NotOpened(error),
    }
}

/// What is on a drive that is open for this look.
fn read(drive: Drive) -> Look {
    let label = match read_label(&drive) {
        Ok(found) => found.map(|(_, label)| label),
        Err(error) => return Look::Unreadable(error),
    };
    let found = match drive::signatures(&*drive.device) {
        Ok(found) => found,
        Err(fault) => return Look::Unreadable(io_error(&drive, "reading", fault)),
    };
    let mark = { found.iter() }
        // Only a label that is damaged is told of as a mark.
        .find(|mark| label.is_none() || !mark.is_ravelin())
        .map(ToString::to_string);
    if label.is_none()
        && let Some(copy) = read_label_copy(&drive)
    {
        let unknown = || "something without a known mark".to_owned();
        return Look::Read {
            mark: Some(mark.unwrap_or_else(unknown)),
            drive,
            label: Some(copy),
        };
    }
    Look::Read { mark, drive, label }
}

fn open_devices(pools: &[OpenPool]) -> Vec<Identity> {
    let members = open_members(pools);
    members.filter_map(|(_, member)| member.device).collect()
}

fn open_members(pools: &[OpenPool]) -> impl Iterator<Item = (&OpenPool, &Member)> {
    let pools = pools.iter();
    pools.flat_map(|pool| pool.members.iter().map(move |member| (pool, member)))
}

fn in_use(device: Identity, pools: &[OpenPool]) -> Occupant {
    let (pool, member) = open_members(pools)
        .find(|(_, member)| member.device == Some(device))
        .expect("the device is one of theirs");
    Occupant::InUse {
        pool: pool.name.clone(),
        uuid: pool.uuid,
        number: member.number,
        drive: member.drive,
    }
}

fn not_opened(error: OpenDriveError) -> Occupant {
    match error {
        OpenDriveError::InUse { .. }
        | OpenDriveError::Busy { .. }
        | OpenDriveError::Attached { .. } => Occupant::Taken(error),
        _ => Occupant::Missing(error),
    }
}

/// Whose label this is.
fn labelled(label: &Label, pools: &[OpenPool]) -> Occupant {
    let facts = &label.facts;
    let (pool, uuid) = (facts.name.clone(), facts.uuid);
    let had = facts.number(label.seat);
    let Some(open) = pools.iter().find(|pool| pool.uuid == uuid) else {
        let number = had;
        return Occupant::OtherPool { pool, uuid, number };
    };
    let pool = open.name.clone();
    let listed = open.members.iter();
    let Some(member) = { listed }.find(|member| member.drive == label.drive) else {
        let number = had;
        return Occupant::Former { pool, uuid, number };
    };
    let since = member.out_since();
    if member.is_open && since.is_none() {
        // Another name of a drive that is at work, or a copy of it: overwriting either may destroy what is in use.
        return Occupant::InUse {
            pool,
            uuid,
            number: member.number,
            drive: member.drive,
        };
    }
    Occupant::Member {
        pool,
        uuid,
        number: member.number,
        drive: label.drive,
        is_spare: is_spare(label),
        went_on: since.is_some_and(|since| went_on(label, since)),
    }
}

/// A mark beside a label: the drive was used for something else after the pool lost it.
fn overlaid(mark: Option<String>, label: &Label, of: Occupant) -> Occupant {
    match mark {
        None => of,
        Some(what) => Occupant::Overlaid {
            what,
            uuid: label.facts.uuid,
            label: of.to_string(),
        },
    }
}

/// Whether the drive waits as a spare, by its own label.
fn is_spare(label: &Label) -> bool {
    let own = label.facts.seats.get(label.seat.index());
    own.is_some_and(|own| own.state == SeatState::Waiting)
}

/// Whether the drive was in use elsewhere since it is out. A label of that generation or a later one which lists its
/// own drive as out is of the pool's own history: it was on its way when the drive went out.
fn went_on(label: &Label, out_since: Generation) -> bool {
    let own = label.facts.seats.get(label.seat.index());
    let lists_itself_out = own.is_some_and(|own| matches!(own.state, SeatState::Out { .. }));
    label.generation >= out_since && !lists_itself_out
}
