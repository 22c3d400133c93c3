//! `volume:POOL/NAME`: a volume of a pool that is open here, as a drive of another pool.
//!
//! ```text
//!   lane of the pool above ── submit ─► VolumeDrive ── write: the request's own memory ─► volume ─► lanes of the pool below
//!                                           │     └─── read: a bounce buffer ───────────►
//!                                           ◄── copied out of it, then completed ────────
//! ```
//!
//! A volume and a drive differ in three ways, which are reconciled here:
//!
//! - A volume takes plain memory. Joined memory of a write is gathered first.
//! - A volume may answer a read while a late drive can still write to the read's memory
//!   ([`Completed::completed_elsewhere`]). A drive that has answered leaves the memory alone, so reads have a buffer of
//!   their own: a copy per read.
//! - A volume reports [`Fault::Lost`] for ranges that the pool below cannot reconstruct. For the pool above that is a
//!   medium error of these ranges; a pool below that was closed is a drive that is gone.
//!
//! A volume does not ask whether a change may begin ([`Completed::permission`]): the lease of the pool below fences all
//! that is written through it, also by the pool above.
//!
//! The drive does not keep the pool below open: that one closes on command, and every request ends with
//! [`Fault::Gone`] from then on. The daemon closes pools above first.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use block::{
    BlockDevice, Completed, Extent, ExtentsAnswer, Fault, Limits, Memory, Outcome, Request,
    RequestKind, Usage,
};
use uuid::Uuid;

use super::handle::{gather, scatter};
use super::telemetry::Telemetry;
use super::ticket::Ticket;
use super::uri::{DriveKind, DriveSpec, Identity, Named, ParseDriveUriError};
use super::{BackEnd, OpenDriveError, Opened, Opening};

pub(super) static KIND: DriveKind = DriveKind {
    word: "volume",
    names: &["volume:tank/stripe"],
    what: "a volume of a pool that is open here; raid0 pools take them",
    options: "only POOL/NAME, such as volume:tank/stripe",
    parse: |text| {
        text.no_options()?;
        let whole = |part: &str| !part.is_empty() && !part.contains('/');
        match text.body.split_once('/') {
            Some((pool, volume)) if whole(pool) && whole(volume) => {
                Ok(DriveSpec::new(VolumeName {
                    pool: pool.to_owned(),
                    volume: volume.to_owned(),
                }))
            }
            _ => Err(ParseDriveUriError::Refused {
                reason: format!("`volume:{}` names no volume of a pool", text.body),
                hint: "write volume:POOL/NAME, such as volume:tank/stripe",
            }),
        }
    },
};

#[derive(Debug)]
pub(super) struct VolumeName {
    pub(super) pool: String,
    pub(super) volume: String,
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume:{}/{}", self.pool, self.volume)
    }
}

impl Named for VolumeName {
    fn open(&self, opening: &Opening<'_>) -> Result<Opened, OpenDriveError> {
        let name = format!("{}/{}", self.pool, self.volume);
        let Some(volume) = opening.volume else {
            return Err(OpenDriveError::NoVolume { name });
        };
        if let Some(address) = volume.attached.clone() {
            return Err(OpenDriveError::Attached { name, address });
        }
        let telemetry = Arc::new(Telemetry::new());
        Ok(Opened {
            device: Arc::new(VolumeDrive::new(&volume.device, &telemetry)),
            identity: Some(Identity::Volume(volume.uuid)),
            kind: KIND.word,
            direct: true,
            back_end: BackEnd::Pool,
            works_in_caller: false,
            telemetry,
            faults: None,
        })
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Err(io::Error::other(
            "the size of a volume is known to the daemon; `ravelin volume list` shows it",
        ))
    }

    fn volume(&self) -> Option<(&str, &str)> {
        Some((&self.pool, &self.volume))
    }
}

/// A volume of a pool that is open here, as far as a pool above needs it.
#[derive(Clone)]
pub struct OpenVolume {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: Uuid,
    /// The volume itself.
    pub device: Arc<dyn BlockDevice>,
    /// Where it is served to clients, if it is: then it is no drive.
    pub attached: Option<String>,
}

impl fmt::Debug for OpenVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenVolume({}, {})", self.name, self.uuid)
    }
}

/// A volume that is used as a drive.
struct VolumeDrive {
    volume: Arc<dyn BlockDevice>,
    telemetry: Arc<Telemetry>,
}

impl VolumeDrive {
    fn new(volume: &Arc<dyn BlockDevice>, telemetry: &Arc<Telemetry>) -> Self {
        Self {
            volume: Arc::clone(volume),
            telemetry: Arc::clone(telemetry),
        }
    }
}

/// A request that the volume has.
struct Waiting(Mutex<Option<(Ticket, Option<Read>)>>);

/// The memory of a read: where the volume puts the bytes, and where the submitter wants them.
struct Read {
    bounce: Memory,
    memory: Memory,
}

impl Waiting {
    fn take(&self) -> Option<(Ticket, Option<Read>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Completed for Waiting {
    fn completed(&self, _token: u64, outcome: Outcome) {
        let Some((ticket, read)) = self.take() else {
            return;
        };
        if let (Ok(()), Some(Read { bounce, memory })) = (outcome, read) {
            // The volume has dropped its clones before this call.
            scatter(&bounce, &memory);
        }
        ticket.complete(outcome.map_err(seen_from_above));
    }

    fn completed_elsewhere(&self, _token: u64, bytes: Memory) {
        let Some((ticket, read)) = self.take() else {
            return;
        };
        if let Some(Read { memory, .. }) = read {
            scatter(&bytes, &memory);
        }
        ticket.complete(Ok(()));
    }
}

/// What a fault of a volume is for the pool whose drive the volume is.
const fn seen_from_above(fault: Fault) -> Fault {
    match fault {
        Fault::Lost => Fault::Medium,
        Fault::Shutdown => Fault::Gone,
        Fault::Medium | Fault::Gone | Fault::Full | Fault::Invalid => fault,
    }
}

impl BlockDevice for VolumeDrive {
    fn limits(&self) -> Limits {
        self.volume.limits()
    }

    fn usage(&self) -> Option<Usage> {
        self.volume.usage()
    }

    fn extents(&self, offset: u64, length: u64) -> Vec<Extent> {
        self.volume.extents(offset, length)
    }

    fn find_extents(&self, offset: u64, length: u64, answer: ExtentsAnswer) {
        self.volume.find_extents(offset, length, answer);
    }

    fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
        let ticket = Ticket::new(&self.telemetry, &request, token, to, Instant::now());
        let (memory, read) = match request.kind {
            RequestKind::Read => {
                let bounce = Memory::zeroed(memory.len());
                (bounce.clone(), Some(Read { bounce, memory }))
            }
            RequestKind::Write if memory.parts().len() > 1 => (gather(&memory), None),
            _ => (memory, None),
        };
        let waiting: Arc<dyn Completed> = Arc::new(Waiting(Mutex::new(Some((ticket, read)))));
        self.volume.submit(request, memory, 0, &waiting);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::drive::sync;

    /// What the stand-in for a volume does with a request.
    type Answer = fn(&Request, Memory, &dyn Completed);

    /// A volume of 1 MiB that answers from another thread, and shows the memory that it was given.
    struct Stand {
        answer: Answer,
        seen: Mutex<std::sync::mpsc::Sender<(Request, Vec<u8>, usize)>>,
    }

    impl BlockDevice for Stand {
        fn limits(&self) -> Limits {
            Limits {
                size_bytes: 1 << 20,
                block_bytes_min: 1,
                block_bytes_preferred: 65_536,
                request_bytes_max: 1 << 20,
                trims: true,
            }
        }

        fn extents(&self, _offset: u64, length: u64) -> Vec<Extent> {
            vec![Extent { length, hole: true }]
        }

        fn submit(&self, request: Request, memory: Memory, _token: u64, to: &Arc<dyn Completed>) {
            let bytes = match request.kind {
                RequestKind::Write => whole(&gather(&memory)),
                _ => Vec::new(),
            };
            let seen = (request, bytes, memory.parts().len());
            self.seen.lock().unwrap().send(seen).unwrap();
            let (answer, to) = (self.answer, Arc::clone(to));
            std::thread::spawn(move || answer(&request, memory, &*to));
        }
    }

    fn whole(memory: &Memory) -> Vec<u8> {
        let mut copy = gather(memory);
        copy.unique().map(<[u8]>::to_vec).unwrap_or_default()
    }

    fn drive(answer: Answer) -> (VolumeDrive, Receiver<(Request, Vec<u8>, usize)>) {
        let (to, seen) = channel();
        let stand: Arc<dyn BlockDevice> = Arc::new(Stand {
            answer,
            seen: Mutex::new(to),
        });
        let drive = VolumeDrive::new(&stand, &Arc::new(Telemetry::new()));
        (drive, seen)
    }

    fn joined() -> Memory {
        let parts = [1_u8, 2, 3].map(|byte| Memory::from_bytes(&[byte; 4096]));
        Memory::joined(parts.to_vec())
    }

    fn request(kind: RequestKind) -> Request {
        Request {
            kind,
            offset: 8192,
            length: 3 * 4096,
            fua: kind == RequestKind::Write,
        }
    }

    const PARTS: [[u8; 4096]; 3] = [[1; 4096], [2; 4096], [3; 4096]];

    #[test]
    fn joined_memory_of_a_write_reaches_the_volume_in_one_piece_and_in_order() {
        let (drive, seen) = drive(|_, memory, to| {
            drop(memory);
            to.completed(0, Ok(()));
        });
        let write = request(RequestKind::Write);
        assert_eq!(sync::run(&drive, write, joined()), Ok(()));
        assert_eq!(seen.recv().unwrap(), (write, PARTS.concat(), 1));
    }

    /// A late drive below may write to the memory of a read that has been answered.
    #[test]
    fn a_read_that_is_answered_elsewhere_is_a_plain_read_and_its_memory_is_not_written_afterwards()
    {
        let (drive, _seen) = drive(|_, memory, to| {
            to.completed_elsewhere(0, Memory::from_bytes(&PARTS.concat()));
            // The late drive's bytes, after the answer.
            scatter(&Memory::from_bytes(&[9; 3 * 4096]), &memory);
            std::mem::forget(memory);
        });
        let mut memory = Memory::zeroed(3 * 4096);
        let (read, submitted) = (request(RequestKind::Read), memory.slice(0..3 * 4096));
        assert_eq!(sync::run(&drive, read, submitted), Ok(()));
        assert_eq!(
            memory.unique().unwrap(),
            PARTS.concat(),
            "nothing else has it"
        );
    }

    #[test]
    fn a_read_puts_the_bytes_into_each_part_of_joined_memory() {
        let (drive, seen) = drive(|_, memory, to| {
            scatter(&Memory::from_bytes(&PARTS.concat()), &memory);
            drop(memory);
            to.completed(0, Ok(()));
        });
        let parts = [9_u8; 3].map(|byte| Memory::from_bytes(&[byte; 4096]));
        let memory = Memory::joined(parts.to_vec());
        let read = request(RequestKind::Read);
        assert_eq!(sync::run(&drive, read, memory.clone()), Ok(()));
        assert_eq!(seen.recv().unwrap().2, 1, "the volume got plain memory");
        assert_eq!(whole(&memory), PARTS.concat());
    }

    #[test]
    fn faults_limits_and_holes_pass_through_as_those_of_a_drive() {
        for (below, above) in [
            (Fault::Lost, Fault::Medium),
            (Fault::Shutdown, Fault::Gone),
            (Fault::Medium, Fault::Medium),
            (Fault::Full, Fault::Full),
            (Fault::Gone, Fault::Gone),
            (Fault::Invalid, Fault::Invalid),
        ] {
            assert_eq!(seen_from_above(below), above);
        }
        let (drive, seen) = drive(|_, _, to| to.completed(0, Err(Fault::Lost)));
        let trim = request(RequestKind::Trim);
        assert_eq!(sync::run(&drive, trim, Memory::empty()), Err(Fault::Medium));
        assert_eq!(seen.recv().unwrap().0, trim);
        assert_eq!(drive.limits().block_bytes_preferred, 65_536);
        assert!(drive.extents(0, 4096)[0].hole);
        assert_eq!(drive.telemetry.snapshot().errors_medium, 1);
    }
}
