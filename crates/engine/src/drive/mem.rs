//! `mem:1G`: a drive in this process's memory, lost when the process ends. For tests,
//! demonstrations and measurements of everything above the drives.
//!
//! ```text
//! regions: [ 1 GiB: [ 64 KiB | – | 64 KiB | … ] ] [ – ] …      –: never written or trimmed, zeros
//! ```

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use block::{
    BlockDevice, Completed, Extent, Fault, Limits, Memory, Request, RequestKind, Submission,
    push_extent,
};

use super::file::INLINE_BYTES_MAX;
use super::handle::{copy_in, copy_out};
use super::telemetry::Telemetry;
use super::ticket::Ticket;
use super::uri::{DriveKind, DriveSpec, Named, parse_size, size_text};
use super::workers::{Ask, Perform, Performed, Workers, check};
use super::{BackEnd, OpenDriveError, Opened, Opening};

pub(super) static KIND: DriveKind = DriveKind {
    word: "mem",
    names: &["mem:1G"],
    what: "memory of the daemon, lost when the daemon ends",
    options: "only a size, such as mem:1G",
    parse: |text| {
        text.no_options()?;
        let size_bytes = parse_size("mem", text.body)?;
        Ok(DriveSpec::new(MemName { size_bytes }))
    },
};

#[derive(Debug)]
struct MemName {
    size_bytes: u64,
}

impl fmt::Display for MemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mem:{}", size_text(self.size_bytes))
    }
}

impl Named for MemName {
    fn open(&self, _opening: &Opening<'_>) -> Result<Opened, OpenDriveError> {
        let telemetry = Arc::new(Telemetry::new());
        let drive = MemDrive::new(self.size_bytes, &telemetry).map_err(KIND.start_error())?;
        Ok(Opened {
            device: Arc::new(drive),
            identity: None,
            kind: KIND.word,
            direct: false,
            back_end: BackEnd::Memory,
            works_in_caller: false,
            telemetry,
            faults: None,
        })
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.size_bytes)
    }

    fn has_queue(&self) -> bool {
        false
    }
}

/// The unit of allocation: a trim frees only the pieces that it covers.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces of one region, so that an empty drive of many TiB costs little.
const REGION_PIECES: usize = 16 << 10;
/// The longest read or write, like a file's.
const REQUEST_BYTES_MAX: u32 = 64 << 20;
/// Requests that the thread takes at once.
const BATCH: usize = 32;

type Piece = Option<Box<[u8]>>;

/// Sparse bytes: bytes that were never written read as zeros. Callers check that ranges lie inside.
struct Store {
    size_bytes: usize,
    regions: Vec<Vec<Piece>>,
}

impl Store {
    fn new(size_bytes: u64) -> io::Result<Self> {
        let too_large = |_| io::ErrorKind::OutOfMemory;
        let size_bytes = usize::try_from(size_bytes).map_err(too_large)?;
        let regions = size_bytes.div_ceil(PIECE_BYTES * REGION_PIECES);
        let mut table = Vec::new();
        table
            .try_reserve_exact(regions)
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        table.resize_with(regions, Vec::new);
        Ok(Self {
            size_bytes,
            regions: table,
        })
    }

    /// The piece with byte `at`; nothing if its whole region was never written.
    fn piece(&mut self, at: usize) -> Option<&mut Piece> {
        let index = at / PIECE_BYTES;
        self.regions[index / REGION_PIECES].get_mut(index % REGION_PIECES)
    }

    /// The bytes of the piece with byte `at`, which is made if need be.
    fn piece_made(&mut self, at: usize) -> &mut [u8] {
        let index = at / PIECE_BYTES;
        let region = &mut self.regions[index / REGION_PIECES];
        if region.is_empty() {
            region.resize_with(REGION_PIECES, || None);
        }
        let zeros = || vec![0; PIECE_BYTES].into_boxed_slice();
        region[index % REGION_PIECES].get_or_insert_with(zeros)
    }

    fn read(&mut self, memory: &Memory, offset: usize) {
        for (start, at, length) in spans(offset, memory.len()) {
            let part = start..start + length;
            let within = at % PIECE_BYTES;
            match self.piece(at).and_then(|piece| piece.as_deref()) {
                Some(bytes) => copy_in(memory, part, &bytes[within..within + length]),
                None => copy_in(memory, part, &[]),
            }
        }
    }

    fn write(&mut self, memory: &Memory, offset: usize) {
        for (start, at, length) in spans(offset, memory.len()) {
            let within = at % PIECE_BYTES;
            let piece = self.piece_made(at);
            let part = start..start + length;
            copy_out(memory, part, &mut piece[within..within + length]);
        }
    }

    /// Runs of bytes that are in pieces, and holes between them.
    fn extents(&mut self, offset: usize, length: usize) -> Vec<Extent> {
        let mut extents = Vec::new();
        for (_, at, length) in spans(offset, length) {
            let hole = self.piece(at).is_none_or(|piece| piece.is_none());
            let length = length as u64;
            push_extent(&mut extents, Extent { length, hole });
        }
        extents
    }

    fn clear(&mut self, offset: usize, length: usize) {
        let end = offset + length;
        let mut at = offset;
        while at < end {
            let region = at / PIECE_BYTES / REGION_PIECES;
            if self.regions[region].is_empty() {
                // Nothing was ever written in this region: on to the next one.
                at = (region + 1) * REGION_PIECES * PIECE_BYTES;
                continue;
            }
            let within = at % PIECE_BYTES;
            let next = (at - within + PIECE_BYTES).min(end);
            let to_the_end = within + (next - at) == PIECE_BYTES || next == self.size_bytes;
            if let Some(piece) = self.piece(at) {
                if within == 0 && to_the_end {
                    *piece = None;
                } else if let Some(bytes) = piece {
                    bytes[within..within + (next - at)].fill(0);
                }
            }
            at = next;
        }
    }
}

/// Cuts a range at piece ends: (start in the range, address, length).
fn spans(offset: usize, length: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done;
        let piece = (PIECE_BYTES - at % PIECE_BYTES).min(length - done);
        let span = (done, at, piece);
        done += piece;
        (piece > 0).then_some(span)
    })
}

struct Performer {
    limits: Limits,
    store: Mutex<Store>,
}

impl Performer {
    fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Perform for Performer {
    fn perform(&self, request: &Request, memory: &Memory, _may_begin: &Ask<'_>) -> Performed {
        check(&self.limits, request, memory)?;
        // Held for the time of a copy: the drive's one thread and the threads that do inline I/O
        // take turns.
        let mut store = self.lock();
        let address = |bytes: u64| usize::try_from(bytes).map_err(|_| Fault::Invalid);
        match request.kind {
            RequestKind::Read | RequestKind::Write => {
                let mut at = address(request.offset)?;
                for part in memory.parts() {
                    match request.kind {
                        RequestKind::Read => store.read(part, at),
                        _ => store.write(part, at),
                    }
                    at += part.len();
                }
            }
            RequestKind::Flush => {}
            RequestKind::Trim | RequestKind::Discard | RequestKind::WriteZeroes => {
                store.clear(address(request.offset)?, address(request.length)?);
            }
        }
        Ok(())
    }

    /// A flush has nothing to do.
    fn flush_sleeps(&self) -> bool {
        false
    }
}

/// A drive in memory, allocated as it is written, freed as it is trimmed.
struct MemDrive {
    limits: Limits,
    performer: Arc<Performer>,
    workers: Workers,
    telemetry: Arc<Telemetry>,
}

impl MemDrive {
    /// A drive of `size_bytes` zeros, rounded down to whole sectors.
    fn new(size_bytes: u64, telemetry: &Arc<Telemetry>) -> io::Result<Self> {
        let limits = Limits {
            size_bytes: size_bytes & !511,
            block_bytes_min: 512,
            block_bytes_preferred: 4096,
            request_bytes_max: REQUEST_BYTES_MAX,
            trims: true,
        };
        let performer = Arc::new(Performer {
            limits,
            store: Mutex::new(Store::new(limits.size_bytes)?),
        });
        let perform = Arc::clone(&performer) as _;
        Ok(Self {
            limits,
            performer,
            workers: Workers::start("drive-mem", 1, BATCH, INLINE_BYTES_MAX, perform)?,
            telemetry: Arc::clone(telemetry),
        })
    }
}

impl BlockDevice for MemDrive {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn extents(&self, offset: u64, length: u64) -> Vec<Extent> {
        let end = offset.saturating_add(length).min(self.limits.size_bytes);
        let address = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let length = address(end.saturating_sub(offset));
        self.performer.lock().extents(address(offset), length)
    }

    fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
        let ticket = Ticket::new(&self.telemetry, &request, token, to, Instant::now());
        self.workers.submit(request, memory, ticket);
    }

    fn submit_all(&self, batch: &mut Vec<Submission>, to: &Arc<dyn Completed>) {
        let begun = Instant::now();
        for Submission {
            request,
            memory,
            token,
        } in batch.drain(..)
        {
            let ticket = Ticket::new(&self.telemetry, &request, token, to, begun);
            self.workers.submit(request, memory, ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trimming_frees_whole_pieces_and_zeroes_the_rest() {
        let mut store = Store::new(1 << 30).unwrap();
        let ones = Memory::from_bytes(&[1; 4 * PIECE_BYTES]);
        store.write(&ones, 512);
        let held = |store: &Store| store.regions[0].iter().flatten().count();
        assert_eq!(held(&store), 5);
        store.clear(1024, 3 * PIECE_BYTES);
        assert_eq!(held(&store), 3, "pieces 1 and 2 are covered");
        let read = Memory::from_bytes(&[7; 4 * PIECE_BYTES]);
        store.read(&read, 512);
        let mut bytes = read;
        let zeros = 512..512 + 3 * PIECE_BYTES;
        for (index, &byte) in bytes.unique().unwrap().iter().enumerate() {
            assert_eq!(byte, u8::from(!zeros.contains(&index)), "{index}");
        }
    }

    #[test]
    fn an_empty_drive_of_a_pebibyte_costs_a_table_and_trims_at_once() {
        let mut store = Store::new(1 << 50).unwrap();
        store.clear(0, 1 << 50);
        assert!(store.regions.iter().all(Vec::is_empty));
    }
}
