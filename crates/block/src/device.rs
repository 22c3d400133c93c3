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
    /// Make everything that was acknowledged before durable. The range is ignored.
    Flush,
    /// The range is no longer needed; it reads as zeros afterwards.
    Trim,
    /// The range is no longer needed; what it reads as afterwards is not said. A device that cannot give space back
    /// leaves everything as it is.
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
    /// Bytes that cross between memory and the device. The other kinds only name a range, or not even that.
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
    /// The submitter's own name for it.
    pub token: u64,
}

/// How an operation on a device ended. A fault is input to the caller's logic, not an `Err`.
pub type Outcome = Result<(), Fault>;

/// What went wrong below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// This range cannot be read or written (EIO); other ranges may be well.
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

/// What a device is and accepts.
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
    /// Whether `Trim` and `Discard` free space (they are accepted in any case). Drives may find out late that they
    /// do not.
    pub trims: bool,
}

/// A run of bytes that all read as stored data, or all as zeros that need no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Number of bytes, at least 1.
    pub length: u64,
    /// Whether the run is unwritten or trimmed: it occupies nothing and reads as zeros.
    pub hole: bool,
}

/// Whether a change that was asked of a device may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// It may begin now.
    Granted,
    /// Not now: the device keeps the request and asks again.
    Pending,
    /// It must not begin any more: the request ends with [`Fault::Shutdown`].
    Revoked,
}

/// Where a device reports that a request has ended. `token` is the submitter's own.
pub trait Completed: Send + Sync {
    /// Called exactly once per submitted request, from any thread, and never from inside
    /// `submit`. By then the device holds no clone of the request's memory.
    fn completed(&self, token: u64, outcome: Outcome);

    /// Whether a write, trim or write of zeros that was submitted with this may begin. Drives whose
    /// operating system does the I/O ask each time right before they hand one over, however long the request
    /// has waited in their queues. Does not wait itself.
    fn permission(&self) -> Permission {
        Permission::Granted
    }

    /// As [`Completed::completed`] for each of `outcomes`. A device that has several at hand calls
    /// this, so that the submitter's thread is woken once, and not before all of them are there.
    fn completed_all(&self, outcomes: &[(u64, Outcome)]) {
        for &(token, outcome) in outcomes {
            self.completed(token, outcome);
        }
    }

    /// As [`Completed::completed`] for a read that went well, but its bytes are in `bytes`: a drive
    /// that has not answered may still write into the memory that came with the request, which is
    /// to be dropped. Volumes do this, drives never; who does not expect it is told of an error.
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

    /// Starts `request`. `memory` has `request.length` bytes for reads and writes and is empty
    /// otherwise. A drive takes memory that is joined of several ranges, each of whole blocks, too
    /// ([`Memory::joined`]); a volume is given plain memory only. Every submitted request is completed exactly once through `to`, also when the
    /// device fails or is shut down.
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

    /// Many requests from now on will have their bytes in `region`: a device whose I/O the kernel does
    /// can make it known there once, instead of with every request. What it makes of it is its own
    /// matter; it keeps the region no longer than its buffers live, or not much longer.
    fn lend(&self, _region: &Region) {}

    /// What the range holds: extents in order, the first one beginning at `offset`, together at most `length` bytes
    /// (fewer when finding out more would take long). A hole may be called data; what was written is never called a
    /// hole. May wait for I/O, so that event loops use [`find_extents`](Self::find_extents). A device that does not
    /// know says "data".
    fn extents(&self, _offset: u64, length: u64) -> Vec<Extent> {
        vec![Extent {
            length,
            hole: false,
        }]
    }

    /// The same without waiting: the answer is given when it is known, from any thread, also before this returns.
    fn find_extents(&self, offset: u64, length: u64, answer: ExtentsAnswer) {
        answer.give(self.extents(offset, length));
    }
}

/// What [`ExtentsAnswer`] calls.
type GiveExtents = Box<dyn FnOnce(Vec<Extent>) + Send>;

/// Who has asked what a range holds. Dropped unanswered, the answer has no extents: nothing is known.
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
