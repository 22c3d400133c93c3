//! Requests, outcomes, and the trait that drives and volumes share.

use std::fmt;
use std::sync::Arc;

use crate::{Memory, Region};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// Fill the memory from the range.
    Read,
    /// Put the memory's bytes into the range.
    Write,
    /// Make durable all that was acknowledged before. The range is ignored.
    Flush,
    /// The range is no longer needed; it reads as zeros afterwards.
    Trim,
    /// The range is no longer needed; its content afterwards is unspecified. A device that cannot free space leaves the
    /// range unchanged.
    Discard,
    /// The range reads as zeros afterwards.
    WriteZeroes,
}

impl RequestKind {
    /// Whether the request changes what later reads return.
    #[must_use]
    pub const fn mutates(self) -> bool {
        matches!(
            self,
            Self::Write | Self::Trim | Self::Discard | Self::WriteZeroes
        )
    }
}

/// One request to a device. Offsets and lengths are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub kind: RequestKind,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; equals the memory's length for reads and writes.
    pub length: u64,
    /// Durable before it is acknowledged (force unit access).
    pub fua: bool,
}

impl Request {
    /// Bytes that move between memory and the device: the length of a read or write, else 0.
    #[must_use]
    pub const fn bytes_moved(&self) -> u64 {
        match self.kind {
            RequestKind::Read | RequestKind::Write => self.length,
            RequestKind::Flush
            | RequestKind::Trim
            | RequestKind::Discard
            | RequestKind::WriteZeroes => 0,
        }
    }
}

/// What [`BlockDevice::submit`] takes, as one value.
#[derive(Debug)]
pub struct Submission {
    /// What to do.
    pub request: Request,
    /// The request's bytes; empty unless it reads or writes.
    pub memory: Memory,
    /// The submitter's own identifier of the request.
    pub token: u64,
}

/// How an operation on a device ended. A fault is input to the caller's logic, not an `Err`.
pub type Outcome = Result<(), Fault>;

/// How an operation on a device failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// This range cannot be read or written (EIO); other ranges may still work.
    #[error("medium error")]
    Medium,
    /// The device is gone and will not answer again (ENODEV, or it was failed by command).
    #[error("device is gone")]
    Gone,
    /// No physical space is left (ENOSPC on a sparse file or a thin drive).
    #[error("no space left below")]
    Full,
    /// The range does not lie inside the device, or is not aligned as its limits demand.
    #[error("request is outside the device or misaligned")]
    Invalid,
    /// The device is being shut down.
    #[error("device is shutting down")]
    Shutdown,
    /// More is lost than the code can reconstruct.
    #[error("data is lost: more failures than the code survives")]
    Lost,
}

/// A device's size, and the requests that it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Requests must be aligned to this; a power of two.
    pub block_bytes_min: u32,
    /// Requests that are aligned to this avoid read-modify-write; a power of two.
    pub block_bytes_preferred: u32,
    /// The longest read or write.
    pub request_bytes_max: u32,
    /// True if `Trim` and `Discard` free space; both are accepted in any case. A drive may detect only later that they
    /// do not.
    pub trims: bool,
}

/// How much of a drive's physical space holds data. Drives that compress, and thin ones, have less physical space than
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Physical capacity in bytes.
    pub physical_bytes: u64,
    /// Physical bytes that are used.
    pub used_bytes: u64,
}

/// A run of bytes that all read as stored data, or all as zeros that need no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Number of bytes, at least 1.
    pub length: u64,
    /// Whether the run is unwritten or trimmed: it occupies nothing and reads as zeros.
    pub hole: bool,
}

/// Whether a device may begin a request that changes data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// It may begin now.
    Granted,
    /// Not now: the device keeps the request and asks again.
    Pending,
    /// The request must not begin any more: it ends with [`Fault::Shutdown`].
    Revoked,
}

/// Where a device reports that a request has ended. `token` is the submitter's own.
pub trait Completed: Send + Sync {
    /// Called exactly once per submitted request, from any thread, and never from inside `submit`. Before the call the
    /// device drops every clone of the request's memory.
    fn completed(&self, token: u64, outcome: Outcome);

    /// Whether a write, trim or write of zeros that was submitted with this may begin. A drive whose operating system
    /// does the I/O asks for each request, right before it hands the request over, however long the request has waited
    /// in the drive's queue. Does not block.
    fn permission(&self) -> Permission {
        Permission::Granted
    }

    /// As [`Completed::completed`] for each of `outcomes`. A device that has several outcomes at hand calls this, so
    /// that the submitter's thread wakes once, when all of them are there.
    fn completed_all(&self, outcomes: &[(u64, Outcome)]) {
        for &(token, outcome) in outcomes {
            self.completed(token, outcome);
        }
    }

    /// As [`Completed::completed`] for a successful read whose bytes are in `bytes` and not in the request's memory. A
    /// drive that has not answered may still write into the request's memory, so the submitter must drop it. Volumes
    /// call this, drives never. The default implementation reports an error.
    fn completed_elsewhere(&self, token: u64, bytes: Memory) {
        drop(bytes);
        self.completed(token, Err(Fault::Medium));
    }
}

/// A drive below or a volume above: fixed-size, random access, asynchronous.
///
/// Requests may complete in any order. A `Flush` covers every request whose completion was
/// reported before the flush was submitted.
pub trait BlockDevice: Send + Sync {
    /// Size, alignment and abilities. May change (a volume can be resized).
    fn limits(&self) -> Limits;

    /// Starts `request`. `memory` has `request.length` bytes for reads and writes and is empty otherwise. A drive also
    /// accepts memory that is joined of several ranges of whole blocks ([`Memory::joined`]); a volume gets plain memory
    /// only. Every submitted request is completed exactly once through `to`, also when the device fails or is shut
    /// down.
    fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>);

    /// Starts all requests of `batch`, in order, and empties it. A device that hands requests to a
    /// thread of its own, or to the kernel, does so once for the batch: a wake costs more than a
    /// small request.
    fn submit_all(&self, batch: &mut Vec<Submission>, to: &Arc<dyn Completed>) {
        for Submission {
            request,
            memory,
            token,
        } in batch.drain(..)
        {
            self.submit(request, memory, token, to);
        }
    }

    /// Announces that many later requests will have their bytes in `region`. A device whose I/O the kernel does can
    /// register the region there once, instead of with every request; other devices ignore the call. The device drops
    /// the region when the last of its buffers is gone, or soon after.
    fn lend(&self, _region: &Region) {}

    /// The use of the device's physical space; `None` if the device does not know it. May read files of the kernel and
    /// wait for I/O, so event loops do not call it.
    fn usage(&self) -> Option<Usage> {
        None
    }

    /// What the range holds: extents in order, the first one beginning at `offset`, together at most `length` bytes
    /// (fewer when finding out more would take long). A hole may be reported as data; written bytes are never reported
    /// as a hole. May wait for I/O, so event loops use [`find_extents`](Self::find_extents). A device without this
    /// information reports data.
    fn extents(&self, _offset: u64, length: u64) -> Vec<Extent> {
        vec![Extent {
            length,
            hole: false,
        }]
    }

    /// The same without waiting: `answer` is called when the extents are known, from any thread, possibly before this
    /// returns.
    fn find_extents(&self, offset: u64, length: u64, answer: ExtentsAnswer) {
        answer.give(self.extents(offset, length));
    }
}

/// What [`ExtentsAnswer`] calls.
type GiveExtents = Box<dyn FnOnce(Vec<Extent>) + Send>;

/// Receives the answer to a query for extents. If it is dropped unanswered, the answer has no extents: nothing is
/// known.
pub struct ExtentsAnswer(Option<GiveExtents>);

impl ExtentsAnswer {
    /// `give` is called once.
    #[must_use]
    pub fn new(give: impl FnOnce(Vec<Extent>) + Send + 'static) -> Self {
        Self(Some(Box::new(give)))
    }

    /// Answers.
    pub fn give(mut self, extents: Vec<Extent>) {
        if let Some(give) = self.0.take() {
            give(extents);
        }
    }
}

impl Drop for ExtentsAnswer {
    fn drop(&mut self) {
        if let Some(give) = self.0.take() {
            give(Vec::new());
        }
    }
}

impl fmt::Debug for ExtentsAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExtentsAnswer").finish_non_exhaustive()
    }
}

/// Appends an extent to others that end where it begins; neighbours of one kind become one.
pub fn push_extent(extents: &mut Vec<Extent>, next: Extent) {
    match extents.last_mut() {
        _ if next.length == 0 => {}
        Some(last) if last.hole == next.hole => last.length += next.length,
        _ => extents.push(next),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn who_asks_for_extents_is_answered_once_also_when_the_question_is_dropped() {
        let (sender, answers) = channel();
        let ask = || {
            let sender = sender.clone();
            ExtentsAnswer::new(move |extents| sender.send(extents).unwrap())
        };
        let hole = Extent {
            length: 7,
            hole: true,
        };
        ask().give(vec![hole]);
        drop(ask());
        drop(sender);
        let answers: Vec<Vec<Extent>> = answers.iter().collect();
        assert_eq!(answers, [vec![hole], vec![]]);
    }

    #[test]
    fn neighbours_of_one_kind_are_one_extent() {
        let mut extents = Vec::new();
        for (length, hole) in [
            (0, true),
            (2, true),
            (3, true),
            (4, false),
            (0, false),
            (5, true),
        ] {
            push_extent(&mut extents, Extent { length, hole });
        }
        let all: Vec<(u64, bool)> = extents.iter().map(|e| (e.length, e.hole)).collect();
        assert_eq!(all, [(5, true), (4, false), (5, true)]);
    }
}
