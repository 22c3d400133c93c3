//! Turns requests into operations: one for each stripe, or one for a run of stripes that are zeroed.

use format::{DataStripe, GroupId, VolumeId};
use plan::action::{BufferId, Slice};
use plan::{Geometry, GroupRequest, Piece, RequestId, Service};

use super::coalesce::Part;
use super::context::Context;
use super::op::{Op, Owner, Prepared, Task};

/// The largest number of stripes that one operation zeroes: it holds all their locks at once.
const ZERO_STRIPES_MAX: u64 = 64;

/// A request of at least this length, or of at least a stripe, is a bulk request: shorter ones may pass it in the log
/// and at drives.
const BULK_BYTES: u64 = 128 << 10;

/// True if a request of so many bytes is a bulk request.
pub(super) fn is_bulk(geometry: &Geometry, bytes: u64) -> bool {
    bytes >= BULK_BYTES.min(geometry.stripe_data_bytes())
}

/// The service class of a request's drive operations.
pub(super) fn service_for(geometry: &Geometry, request: &GroupRequest) -> Service {
    let bulk = is_bulk(geometry, request.request.length);
    Service::of_client(request.volume, bulk)
}

/// The operations of a read, created one after the other: most requests are reads of one stripe.
pub(super) fn read_ops(
    cx: &Context,
    id: RequestId,
    request: &GroupRequest,
) -> impl ExactSizeIterator<Item = Op> + use<> {
    let group = request.group;
    let stripes = cx.geometry.stripes(request).into_iter();
    stripes.map(move |(data, segments)| {
        let pieces = segments.iter().map(|segment| Piece {
            slot: segment.slot,
            low: segment.low,
            slice: Slice {
                buffer: BufferId::Request(id),
                offset: segment.buffer_offset,
                length: segment.high - segment.low,
            },
        });
        let read = Task::Read(pieces.collect());
        Op::of_data(Owner::Request(id), group, data..data.next(), read)
    })
}

/// Operations that write the request's bytes, or zeros where `bytes` is `None`.
pub(super) fn write_ops(
    cx: &mut Context,
    id: RequestId,
    request: &GroupRequest,
    bytes: Option<RequestId>,
) -> Vec<Op> {
    let stripes = cx.geometry.stripes(request).into_iter();
    stripes
        .map(|(data, segments)| {
            let prepared = Prepared::new(&segments, bytes, cx.fresh_scratch());
            Op::of_data(
                Owner::Request(id),
                request.group,
                data..data.next(),
                Task::Write(prepared),
            )
        })
        .collect()
}

/// Whole stripes are zeroed by operations of their own. The remaining bytes at both ends are written as zeros.
pub(super) fn zero_ops(cx: &mut Context, id: RequestId, request: &GroupRequest) -> Vec<Op> {
    let stripe_bytes = cx.geometry.stripe_data_bytes();
    let start = request.request.offset;
    let end = start + request.request.length;
    let first = start.div_ceil(stripe_bytes);
    let last = end / stripe_bytes;
    if first >= last {
        return write_ops(cx, id, request, None);
    }
    let mut ops = Vec::new();
    for (low, high) in [(start, first * stripe_bytes), (last * stripe_bytes, end)] {
        let mut part = *request;
        part.request.offset = low;
        part.request.length = high - low;
        ops.extend(write_ops(cx, id, &part, None));
    }
    let mut stripe = first;
    while stripe < last {
        let next = last.min(stripe + ZERO_STRIPES_MAX);
        let data = DataStripe::range(stripe..next);
        ops.push(Op::of_data(
            Owner::Request(id),
            request.group,
            data,
            Task::Zero,
        ));
        stripe = next;
    }
    ops
}

/// One operation that writes several parts of a stripe.
pub(super) fn write_parts(
    cx: &mut Context,
    volume: VolumeId,
    (group, data): (GroupId, DataStripe),
    parts: Vec<Part>,
) -> Op {
    let first = parts.first().expect("there is one").request;
    let mut bytes = 0;
    let mut sources = Vec::new();
    for part in &parts {
        bytes += part.bytes();
        let name = cx.fresh_scratch();
        let prepared = Prepared::new(&part.segments, Some(part.request), name);
        debug_assert!(prepared.is_staged(), "parts are whole blocks");
        sources.extend(prepared.sources);
    }
    sources.sort_unstable_by_key(|source| (source.slot, source.low));
    let task = Task::Write(Prepared::of(sources));
    let mut op = Op::of_data(Owner::Request(first), group, data..data.next(), task);
    op.service = Service::of_client(volume, is_bulk(&cx.geometry, bytes));
    if parts.len() > 1 {
        op.parts = Some(parts.into());
    }
    op.occupies = true;
    op
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use block::{Request, RequestKind};
    use format::StripeId;

    use super::*;

    const ID: RequestId = RequestId(7);
    const CHUNK: u64 = 16 << 10;
    /// Bytes of a stripe: four data chunks.
    const STRIPE: u64 = 4 * CHUNK;

    /// A lane whose group has 128 stripes.
    fn lane() -> Context {
        Context::of_test_with("raid6", 6, 2 << 20, |_| {})
    }

    fn request(kind: RequestKind, bytes: Range<u64>) -> GroupRequest {
        let request = Request {
            kind,
            offset: bytes.start,
            length: bytes.end - bytes.start,
            fua: false,
        };
        GroupRequest {
            group: GroupId(0),
            request,
            buffer_offset: 0,
            volume: VolumeId(3),
        }
    }

    fn stripes(ops: &[Op]) -> Vec<Range<u64>> {
        ops.iter()
            .map(|op| StripeId::numbers(&op.stripes))
            .collect()
    }

    #[test]
    fn a_read_is_one_operation_for_each_stripe_and_one_piece_for_each_chunk() {
        let bytes = STRIPE - CHUNK..STRIPE + 2 * CHUNK;
        let ops: Vec<Op> = read_ops(&lane(), ID, &request(RequestKind::Read, bytes)).collect();
        assert_eq!(stripes(&ops), [0..1, 1..2]);
        let pieces = |op: &Op| match &op.task {
            Task::Read(pieces) => pieces.clone(),
            other => panic!("{other:?} reads nothing"),
        };
        let offsets: Vec<u64> = { ops.iter().flat_map(pieces) }
            .map(|piece| piece.slice.offset)
            .collect();
        assert_eq!(offsets, [0, CHUNK, 2 * CHUNK], "of the request's memory");
        assert!(ops.iter().all(|op| op.owner == Owner::Request(ID)));
        assert_eq!(ops[1].data, Some(DataStripe(1)), "the data's stripe");
    }

    #[test]
    fn zeroes_are_written_at_both_ends_and_whole_stripes_are_runs() {
        let bytes = CHUNK..66 * STRIPE + CHUNK;
        let request = request(RequestKind::WriteZeroes, bytes);
        let ops = zero_ops(&mut lane(), ID, &request);
        assert_eq!(stripes(&ops), [0..1, 66..67, 1..65, 65..66]);
        let zeroes = |op: &Op| matches!(op.task, Task::Zero);
        assert_eq!(
            ops.iter().map(zeroes).collect::<Vec<_>>(),
            [false, false, true, true]
        );
    }

    #[test]
    fn zeroes_of_less_than_a_stripe_are_written() {
        let request = request(RequestKind::Trim, CHUNK..STRIPE + CHUNK);
        let ops = zero_ops(&mut lane(), ID, &request);
        assert_eq!(stripes(&ops), [0..1, 1..2]);
        assert!(ops.iter().all(|op| matches!(op.task, Task::Write(_))));
    }

    #[test]
    fn a_stripe_or_128_kib_are_much() {
        let cx = lane();
        assert!(!is_bulk(&cx.geometry, STRIPE - 1) && is_bulk(&cx.geometry, STRIPE));
        let wide = Context::of_test_with("raid6", 16, 2 << 20, |_| {});
        assert!(!is_bulk(&wide.geometry, BULK_BYTES - 1) && is_bulk(&wide.geometry, BULK_BYTES));
        let service = service_for(&cx.geometry, &request(RequestKind::Write, 0..STRIPE));
        assert_eq!(service, Service::of_client(VolumeId(3), true));
    }

    #[test]
    fn neighbours_are_one_operation_that_remembers_its_parts() {
        let mut cx = lane();
        let part = |bytes: Range<u64>, id| {
            let request = request(RequestKind::Write, bytes);
            let (_, segments) = cx.geometry.stripes(&request).remove(0);
            Part {
                request: RequestId(id),
                segments,
            }
        };
        let parts = vec![part(CHUNK..2 * CHUNK, 8), part(0..CHUNK, 9)];
        let alone = parts[..1].to_vec();
        let op = write_parts(&mut cx, VolumeId(3), (GroupId(0), DataStripe(0)), parts);
        let Task::Write(prepared) = &op.task else {
            panic!("it writes");
        };
        let slots: Vec<usize> = prepared.sources.iter().map(|source| source.slot).collect();
        assert!(slots.is_sorted() && slots.len() == 2);
        assert_eq!(op.owner, Owner::Request(RequestId(8)));
        assert!(op.occupies && op.parts.is_some_and(|parts| parts.len() == 2));
        let op = write_parts(&mut cx, VolumeId(3), (GroupId(0), DataStripe(0)), alone);
        assert!(op.parts.is_none());
    }
}
