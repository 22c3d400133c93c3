//! A lane driven by a recording.
//!
//! The engine can record what a lane was told, when, and what it answered. The lane is
//! deterministic, so a fresh one that is told the same answers the same, byte for byte; and the
//! simulator, asked to complete operations in the recorded order on its own drives, arrives at the
//! same actions and the same bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use array::record::{Input, Output, Record, feed};
use array::{Action, Array, Geometry, IoKind, RequestId};
use block::{Outcome, RequestKind, Seat};

use crate::drive::Drive;
use crate::scratch::Scratch;

/// Tells a fresh lane what the recorded one was told.
///
/// # Errors
/// The index of the first step whose outputs differ, and the outputs of the fresh lane.
pub fn replay(
    geometry: Arc<Geometry>,
    lane: u16,
    records: &[Record],
) -> Result<(), (usize, Vec<Output>)> {
    let mut lane = Array::new(geometry, lane);
    for (index, record) in records.iter().enumerate() {
        let outputs = feed(&mut lane, record.at, &record.input);
        if outputs != record.outputs {
            return Err((index, outputs));
        }
    }
    Ok(())
}

/// Runs the recorded requests on simulated drives, completing operations in the recorded order.
/// The bytes are the simulator's own: returned are those of every read, by request.
///
/// # Errors
/// The index of the first step whose outputs differ from the recording's.
pub fn replay_on_drives(
    geometry: Arc<Geometry>,
    lane: u16,
    records: &[Record],
    drives: &mut BTreeMap<Seat, Drive>,
) -> Result<BTreeMap<RequestId, Vec<u8>>, usize> {
    let mut lane = Array::new(geometry, lane);
    let mut scratch = Scratch::default();
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
                scratch.lend(*id, buffer);
            }
            Input::Completion(id, outcome) => {
                let io: array::Io = ios.remove(id).ok_or(index)?;
                if let (Some(drive), Ok(())) = (drives.get_mut(&io.seat), outcome) {
                    perform(drive, &io, &mut scratch).map_err(|_| index)?;
                }
            }
            Input::Computed(id, computed) => {
                let compute: array::Compute = computes.remove(id).ok_or(index)?;
                if scratch.compute(&compute) != *computed {
                    return Err(index);
                }
            }
            Input::Command(_) => {}
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
                    ios.insert(io.id, io);
                }
                Action::Compute(compute) => {
                    computes.insert(compute.id, compute);
                }
                Action::Reply(reply) => {
                    let bytes = scratch.take_back(reply.request);
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

/// Carries out one operation on a drive.
pub(crate) fn perform(drive: &mut Drive, io: &array::Io, scratch: &mut Scratch) -> Outcome {
    match (io.kind, io.slice) {
        (IoKind::Read, Some(slice)) => drive.read(io.offset, scratch.bytes_mut(slice)),
        (IoKind::Write, Some(slice)) => drive.write(io.offset, scratch.bytes(slice)),
        (IoKind::WriteZeroes, None) => drive.zero(io.offset, io.length),
        (IoKind::Flush, None) => drive.flush(),
        other => unreachable!("{other:?} does not go together"),
    }
}
