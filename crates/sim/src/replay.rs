//! Runs a lane from a recording.
//!
//! The engine can record the inputs of a lane with their times, and its outputs. A lane is deterministic, so a fresh
//! lane that gets the same inputs returns the same outputs, byte for byte. The simulator completes the operations in
//! the recorded order on its own drives, and arrives at the same actions and the same bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use array::record::{Input, Output, Record, feed};
use array::{Action, Geometry, Io, IoId, IoKind, Joined, Lane, Origin, RequestId, Slice};
use block::{BLOCK_BYTES, Outcome, RequestKind, Seat};

use crate::buffer::Buffer;
use crate::content::Block;
use crate::drive::{Admitted, Drive};
use crate::scratch::{Scratch, offsets};

/// Feeds the recorded inputs to a fresh lane.
///
/// # Errors
/// The index of the first step whose outputs differ, and the outputs of the fresh lane.
pub fn replay(
    geometry: Arc<Geometry>,
    lane: u16,
    records: &[Record],
) -> Result<(), (usize, Vec<Output>)> {
    let mut lane = Lane::new(geometry, lane);
    for (index, record) in records.iter().enumerate() {
        let outputs = feed(&mut lane, record.at, &record.input);
        if outputs != record.outputs {
            return Err((index, outputs));
        }
    }
    Ok(())
}

/// Runs the recorded requests on simulated drives, completing operations in the recorded order. The bytes come from the
/// simulator's drives. Returns the bytes of every read, by request.
///
/// # Errors
/// The index of the first step whose outputs differ from the recording's.
pub fn replay_on_drives(
    geometry: Arc<Geometry>,
    lane: u16,
    records: &[Record],
    drives: &mut BTreeMap<Seat, Drive>,
) -> Result<BTreeMap<RequestId, Vec<u8>>, usize> {
    let mut lane = Lane::new(geometry, lane);
    let mut scratch = Scratch::default();
    let mut written = 0;
    let mut ios = BTreeMap::new();
    let mut computes = BTreeMap::new();
    let mut kinds = BTreeMap::new();
    let mut reads = BTreeMap::new();
    for (index, record) in records.iter().enumerate() {
        match &record.input {
            Input::Request(id, request, bytes) => {
                let mut buffer = bytes.clone();
                if request.request.kind == RequestKind::Read {
                    let bytes = request.buffer_offset + request.request.length;
                    buffer = vec![0; usize::try_from(bytes).expect("fits into memory")];
                }
                kinds.insert(*id, request.request.kind);
                scratch.lend(*id, Buffer::Bytes(buffer));
            }
            Input::Completion(id, outcome) => {
                let io: Asked = ios.remove(id).ok_or(index)?;
                if let (Some(drive), Ok(())) = (drives.get_mut(&io.seat), outcome) {
                    let admitted = drive.admit(io.kind, io.offset);
                    perform(drive, &io, admitted, &mut written, &mut scratch).map_err(|_| index)?;
                }
            }
            Input::Computed(id, computed) => {
                let compute: array::Compute = computes.remove(id).ok_or(index)?;
                if scratch.compute(&compute) != *computed {
                    return Err(index);
                }
            }
            Input::Command(_) | Input::Timeout => {}
        }
        let outputs = feed(&mut lane, record.at, &record.input);
        if outputs != record.outputs {
            return Err(index);
        }
        for output in outputs {
            let Output::Action(action) = output else {
                continue;
            };
            if scratch.carry_out(&action) {
                continue;
            }
            match action {
                Action::Io(io) => {
                    ios.insert(io.id, Asked::from(io));
                }
                Action::Joined(io) => {
                    ios.insert(io.id, Asked::from(io));
                }
                Action::Compute(compute) => {
                    computes.insert(compute.id, compute);
                }
                Action::Reply(reply) => {
                    scratch.bring_home(&reply.elsewhere);
                    let Some(Buffer::Bytes(bytes)) = scratch.take_back(reply.request) else {
                        return Err(index);
                    };
                    if kinds.get(&reply.request) == Some(&RequestKind::Read) {
                        reads.insert(reply.request, bytes);
                    }
                }
                Action::Allocate(..) | Action::Release(_) => unreachable!("memory is done"),
            }
        }
    }
    Ok(reads)
}

/// An operation that a lane submits to a drive, joined or not.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) id: IoId,
    pub(crate) seat: Seat,
    pub(crate) kind: IoKind,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) slices: Slices,
    pub(crate) origin: Origin,
}

/// Where the bytes of an operation come from or go to, in order.
#[derive(Clone, Debug)]
pub(crate) enum Slices {
    /// One place, or none: this needs no allocation.
    One(Option<Slice>),
    Many(Box<[Slice]>),
}

impl Slices {
    pub(crate) fn all(&self) -> &[Slice] {
        match self {
            Self::One(slice) => slice.as_slice(),
            Self::Many(slices) => slices,
        }
    }
}

impl From<Io> for Asked {
    fn from(io: Io) -> Self {
        Self {
            id: io.id,
            seat: io.seat,
            kind: io.kind,
            offset: io.offset,
            length: io.length,
            slices: Slices::One(io.slice),
            origin: io.service.origin,
        }
    }
}

impl From<Joined> for Asked {
    fn from(joined: Joined) -> Self {
        let Joined {
            id,
            seat,
            kind,
            offset,
            length,
            slices,
            service,
        } = joined;
        let bytes: u64 = slices.iter().map(|slice| slice.length).sum();
        assert_eq!(bytes, length, "slices and range are of one length");
        Self {
            id,
            seat,
            kind,
            offset,
            length,
            slices: Slices::Many(slices),
            origin: service.origin,
        }
    }
}

/// Carries out one operation on a drive. `written` counts the writes of all drives.
///
/// A late operation may belong to a request that was answered without it. The memory is the client's again: a read puts
/// nothing there. A write from such memory is not carried out; its drive has left the pool.
pub(crate) fn perform(
    drive: &mut Drive,
    io: &Asked,
    admitted: Admitted,
    written: &mut u64,
    scratch: &mut Scratch,
) -> Outcome {
    let range = (io.offset, io.length);
    let slices = io.slices.all();
    match io.kind {
        IoKind::Read if scratch.keeps_nothing() => {
            drive.read_blocks(range, admitted.effect, |_, _| {})
        }
        IoKind::Write if scratch.keeps_nothing() => {
            *written += 1;
            drive.write_blocks(range, admitted.effect, *written, std::iter::empty())
        }
        IoKind::Read => {
            let mut places = slices
                .iter()
                .flat_map(|&slice| offsets(slice).map(move |offset| (slice, offset)));
            drive.read_blocks(range, admitted.effect, |_, block| {
                let (slice, offset) = places.next().expect("slices and range are of one length");
                if scratch.has(slice) {
                    scratch.buffer_mut(slice.buffer).set_block(offset, block);
                }
            })
        }
        IoKind::Write => {
            if !slices.iter().all(|&slice| scratch.has(slice)) {
                return Ok(());
            }
            *written += 1;
            let blocks = slices.iter().flat_map(|&slice| scratch.blocks(slice));
            drive.write_blocks(range, admitted.effect, *written, blocks)
        }
        IoKind::WriteZeroes => {
            *written += 1;
            let zeros = (0..io.length / BLOCK_BYTES).map(|_| Block::ZERO);
            drive.write_blocks(range, admitted.effect, *written, zeros)
        }
        IoKind::Discard => {
            *written += 1;
            drive.discard_blocks(range, admitted.effect, *written)
        }
        IoKind::Flush => drive.flush_to(admitted.mark, admitted.effect),
    }
}
