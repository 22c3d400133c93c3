//! Moves: an overwrite of a whole stripe goes to a free stripe of its group.
//!
//! ```text
//!   planned where it is ─► planned where it goes ─► in place (direct.rs) ─► logged: the checksums, the new entry of the map,
//!        │                      │                                            and that its old stripe holds nothing
//!        └─ none is free:       └─ it cannot go there: logged, content       │
//!           it waits               and all, where it is                      ▼
//!             ▲                                                    the old stripe is vacated
//!             └─ the old stripe is free ◄── its record is flushed, and all that was planned before has ended ──┘
//! ```
//!
//! So nothing is read, and nothing is written twice. The columns of the group keep their places: only the stripe within
//! them changes.
//!
//! Invariants:
//! - The operation has the locks of both stripes from before it is planned for the free one until its record is
//!   complete.
//! - The entries of a free stripe are *unwritten*, so the bytes in it do not count before the record does.
//! - A vacated stripe is not written before its record is flushed: a power cut could lose the record, and the stripe
//!   would count again.
//! - Nor is it written before all operations that were planned earlier have ended. A read takes no lock, and the
//!   checksum of the new content would let the read return that content. A checkpoint may also have a block on its way
//!   there.
//! - An operation that waits for a free stripe, or for a lock, counts as ended: nothing of its earlier plan is in
//!   flight.

use std::ops::Range;

use block::BLOCK_BYTES;
use format::seeded::{self, SeededFault};
use format::{DataStripe, Descriptor, GroupId, StripeId};
use plan::Geometry;

use super::Operations;
use crate::context::Context;
use crate::ids::OpId;
use crate::maps::StripeMaps;
use crate::op::{Destination, Forms, Lock, Op, Owner, Phase, Task};

/// Bytes of the descriptors of a stripe that moves at most: they must be in one batch, whose header has four blocks.
const MOVE_BYTES_MAX: usize = 10 << 10;

/// Where the data of an operation is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Located {
    /// In the stripes for which the operation is planned.
    Here,
    /// In other stripes: the operation is planned for these from now on. It had locked the stripes in `locked`.
    Elsewhere { locked: Option<Range<StripeId>> },
    /// No longer in one run of stripes: each stripe becomes an operation of its own.
    Split,
    /// In other stripes; the operation is a second read, so its reader goes on without it.
    LeftReader,
    /// Unknown: no column's map has the place.
    Unfindable,
}

/// True if the place of an operation's data is known, or the operation has no data. Otherwise the map of its group must
/// be in memory.
pub(crate) fn is_located(cx: &Context, maps: &StripeMaps, op: &Op) -> bool {
    !cx.geometry.has_maps() || op.data.is_none() || op.location.version == Some(maps.version())
}

/// True if an operation is planned by the forms of its stripes. Recovery has the forms from the log.
pub(crate) fn depends_on_forms(op: &Op) -> bool {
    let blanks = matches!((&op.task, op.owner), (Task::Zero, Owner::Job(_)));
    let formless = matches!(op.task, Task::Relog(_) | Task::Discard(_));
    op.owner != Owner::Recovery && !blanks && !formless
}

/// The forms of an operation's stripes. A stripe that is written whole to a free one takes the form of parity.
pub(crate) fn forms(cx: &Context, maps: &StripeMaps, op: &Op) -> Forms {
    if op.moves_from().is_some() {
        return Forms::PARITY;
    }
    let stripes = StripeId::each(op.stripes.clone());
    // All data of a stripe whose place is not known is lost, whatever its form was.
    let form = |stripe| maps.form(cx, op.group, stripe).unwrap_or_default();
    stripes.map(form).collect()
}

/// Finds the stripes that hold the data of a client's operation.
pub(crate) fn locate(cx: &Context, maps: &StripeMaps, op: &mut Op) -> Located {
    let data = op.data.expect("it is of the group's data");
    let count = StripeId::count(&op.stripes);
    let Some(first) = maps.stripe_holding(cx, op.group, data) else {
        return Located::Unfindable;
    };
    let holding = |index| maps.stripe_holding(cx, op.group, data.plus(index));
    if !(1..count).all(|index| holding(index) == Some(first.plus(index))) {
        return Located::Split;
    }
    let located = op.location.version.replace(maps.version()).is_some();
    let follows = op.stripes.start == first || seeded::is(SeededFault::MovedNotFollowed);
    if op.moves_from() == Some(first) || located && follows {
        return Located::Here;
    }
    if matches!(op.owner, Owner::Hedge(_)) {
        return Located::LeftReader;
    }
    let locked = std::mem::replace(&mut op.lock, Lock::None) == Lock::Own;
    let before = std::mem::replace(&mut op.stripes, first..first.plus(count));
    op.found.bad.clear();
    op.detour.avoid.clear();
    op.found.unknown.clear();
    op.location.forms = forms(cx, maps, op);
    Located::Elsewhere {
        locked: locked.then_some(before),
    }
}

/// One operation for each stripe, in place of an operation that zeroes stripes of the data that are no longer one run.
pub(crate) fn split(op: &Op) -> impl ExactSizeIterator<Item = Op> + use<> {
    debug_assert!(matches!(op.task, Task::Zero), "others are of one stripe");
    let data = op.data_stripes().expect("it is of the group's data");
    let (owner, group, service) = (op.owner, op.group, op.service);
    let count = usize::try_from(DataStripe::count(&data)).expect("few stripes");
    (0..count).map(move |index| {
        let data = data.start.plus(index as u64);
        let mut part = Op::of_data(owner, group, data..data.next(), Task::Zero);
        part.service = service;
        part
    })
}

/// True if an operation overwrites a whole stripe, and the data may go to another stripe.
pub(super) fn may_move(cx: &Context, op: &Op) -> bool {
    let Task::Write(prepared) = &op.task else {
        return false;
    };
    let sources = prepared.sources.iter();
    let bytes: u64 = sources.map(|source| source.slice.length).sum();
    let columns = || cx.view().columns(&cx.geometry, op.group);
    op.data.is_some()
        && op.location.destination == Destination::Open
        && bytes == cx.geometry.stripe_data_bytes()
        && move_bytes(&cx.geometry) <= MOVE_BYTES_MAX
        && columns()
            .iter()
            .all(|column| column.source.is_some() && column.target.is_none())
}

/// Bytes of the descriptors of a stripe that moves.
fn move_bytes(geometry: &Geometry) -> usize {
    let per_chunk = geometry.chunk_bytes() / BLOCK_BYTES;
    let per_chunk = usize::try_from(per_chunk).expect("a chunk fits into memory");
    geometry.code().elements() * Descriptor::bytes_of_direct(per_chunk)
}

impl Operations {
    /// Plans an operation again for a free stripe. It has the lock of that stripe beside its own.
    pub(crate) fn move_to(&mut self, id: OpId, to: StripeId) {
        self.lock_free(id, to);
        let op = &mut self[id];
        let from = op.stripes.start;
        op.location.destination = Destination::Free { from };
        op.stripes = to..to.next();
        self.run(id);
    }

    /// Makes an operation wait for a free stripe.
    pub(crate) fn wait_for_stripe(&mut self, cx: &mut Context, id: OpId) {
        let op = &mut self[id];
        cx.epochs.leave(&mut op.epoch);
        op.phase = Phase::Waiting;
    }

    /// An operation does not move after all. Nothing of it is in flight. Returns its group and the free stripe that it
    /// does not use.
    pub(crate) fn cancel_move(&mut self, id: OpId) -> (GroupId, StripeId) {
        let op = &mut self[id];
        let from = op.moves_from().expect("it was to move");
        let to = op.stripes.start;
        op.stripes = from..from.next();
        op.location.destination = Destination::Home;
        (op.group, to)
    }

    /// These operations wait for free stripes no longer: they go through the journal.
    pub(crate) fn stay(&mut self, ops: Vec<OpId>) {
        for id in ops {
            self[id].location.destination = Destination::Home;
            self.run(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use format::{Column, Entry, HeldIn, MetaPage, Sequence};
    use plan::action::{BufferId, Slice};
    use plan::{RequestId, ScratchId, Source};

    use super::*;
    use crate::maps::MapEntries;
    use crate::op::Prepared;
    use crate::overlay::Overlay;
    use crate::pages::PageCache;

    /// A small lane with free stripes, the map of its first group, and a client's operation on stripe 1 of the data.
    struct Lab {
        cx: Context,
        maps: StripeMaps,
        op: Op,
    }

    impl Lab {
        fn new(task: Task, data: Range<DataStripe>) -> Self {
            let change = |regions: &mut plan::Regions| regions.free_stripes = 2;
            let cx = Context::of_test_with("raid6", 6, 256 << 10, change);
            let mut pages = PageCache::new(64);
            let mut maps = StripeMaps::default();
            for name in maps.pages_lacking(&cx, &pages, GroupId(0)) {
                pages.put(name, MetaPage::filled(Entry::UNWRITTEN, 1));
            }
            let entries = MapEntries {
                overlay: &Overlay::default(),
                pages: &pages,
                sequence: Sequence(100),
            };
            assert_eq!(maps.load(&cx, entries, GroupId(0)), Ok(Vec::new()));
            let op = Op::of_data(Owner::Request(RequestId(1)), GroupId(0), data, task);
            Self { cx, maps, op }
        }

        fn read() -> Self {
            Self::new(Task::Read(Vec::new()), DataStripe::range(1..2))
        }

        /// A write of so many bytes.
        fn write(length: u64) -> Self {
            let slice = Slice {
                buffer: BufferId::Scratch(ScratchId(1)),
                offset: 0,
                length,
            };
            let source = Source {
                slot: 0,
                low: 0,
                slice,
            };
            Self::new(
                Task::Write(Prepared::of(vec![source])),
                DataStripe::range(1..2),
            )
        }

        fn whole() -> Self {
            let lab = Self::read();
            Self::write(lab.cx.geometry.stripe_data_bytes())
        }

        /// Data moves to a free stripe. Returns that stripe.
        fn data_moves(&mut self, data: DataStripe) -> StripeId {
            let from = data.own_place();
            let free = self.maps.take_free((GroupId(0), from), false, |_| true);
            let crate::maps::Taken::Stripe(to) = free else {
                panic!("two are free");
            };
            self.maps.moved(
                &mut self.cx,
                (GroupId(0), data),
                HeldIn::parity(to),
                Sequence(9),
            );
            to
        }

        fn locate(&mut self) -> Located {
            locate(&self.cx, &self.maps, &mut self.op)
        }

        fn is_located(&self) -> bool {
            is_located(&self.cx, &self.maps, &self.op)
        }
    }

    #[test]
    fn data_is_looked_for_once_until_a_map_changes() {
        let mut lab = Lab::read();
        assert!(!lab.is_located());
        assert_eq!(lab.locate(), Located::Elsewhere { locked: None });
        assert!(lab.is_located());
        lab.data_moves(DataStripe(5));
        assert!(!lab.is_located());
        assert_eq!(lab.locate(), Located::Here, "other data has moved");
    }

    #[test]
    fn what_is_of_no_data_or_of_a_pool_without_free_stripes_is_where_it_is() {
        let mut lab = Lab::read();
        lab.op.data = None;
        assert!(lab.is_located());
        let cx = Context::of_test("raid6", 6);
        lab.op.data = Some(DataStripe(1));
        assert!(is_located(&cx, &lab.maps, &lab.op));
    }

    #[test]
    fn an_operation_follows_its_data_and_gives_up_its_lock() {
        let mut lab = Lab::read();
        lab.locate();
        lab.op.lock = Lock::Own;
        lab.op.found.bad.insert((Column(1), 4));
        let to = lab.data_moves(DataStripe(1));
        let locked = Some(StripeId::range(1..2));
        assert_eq!(lab.locate(), Located::Elsewhere { locked });
        assert_eq!(lab.op.stripes, to..to.next());
        assert_eq!(lab.op.lock, Lock::None);
        assert!(lab.op.found.bad.is_empty(), "it was bad where it was");
    }

    #[test]
    fn a_second_read_does_not_follow() {
        let mut lab = Lab::read();
        lab.locate();
        lab.op.owner = Owner::Hedge(OpId(1));
        lab.data_moves(DataStripe(1));
        assert_eq!(lab.locate(), Located::LeftReader);
    }

    #[test]
    fn a_write_to_a_free_stripe_is_where_it_is_planned() {
        let mut lab = Lab::whole();
        lab.locate();
        lab.op.location.destination = Destination::Free { from: StripeId(1) };
        lab.op.stripes = StripeId::range(7..8);
        lab.data_moves(DataStripe(5));
        assert_eq!(lab.locate(), Located::Here);
        assert_eq!(lab.op.stripes, StripeId::range(7..8));
    }

    #[test]
    fn a_run_of_which_a_stripe_has_moved_becomes_an_operation_for_each() {
        let mut lab = Lab::new(Task::Zero, DataStripe::range(1..4));
        assert_eq!(lab.locate(), Located::Elsewhere { locked: None });
        lab.data_moves(DataStripe(2));
        assert_eq!(lab.locate(), Located::Split);
        let parts: Vec<Op> = split(&lab.op).collect();
        let stripes: Vec<_> = parts.iter().map(|part| part.stripes.clone()).collect();
        assert_eq!(stripes, [1..2, 2..3, 3..4].map(StripeId::range));
        let whole = |part: &Op| part.owner == lab.op.owner && part.location.version.is_none();
        assert!(parts.iter().all(whole));
        assert_eq!(parts[1].data, Some(DataStripe(2)));
    }

    #[test]
    fn whole_stripes_of_clients_may_move_and_parts_may_not() {
        let lab = Lab::whole();
        assert!(may_move(&lab.cx, &lab.op));
        assert!(!may_move(&lab.cx, &Lab::write(BLOCK_BYTES).op));
        assert!(!may_move(&lab.cx, &Lab::read().op));
    }

    #[test]
    fn what_stays_moves_or_is_of_no_data_does_not_move() {
        let mut lab = Lab::whole();
        for destination in [Destination::Home, Destination::Free { from: StripeId(1) }] {
            lab.op.location.destination = destination;
            assert!(!may_move(&lab.cx, &lab.op));
        }
        lab.op.location.destination = Destination::Open;
        lab.op.data = None;
        assert!(!may_move(&lab.cx, &lab.op));
    }

    #[test]
    fn nothing_moves_while_a_column_is_away() {
        let mut lab = Lab::whole();
        lab.cx.change_view(|view, _| view.seat_out(block::Seat(2)));
        assert!(!may_move(&lab.cx, &lab.op));
    }

    #[test]
    fn a_move_has_both_locks_and_is_planned_again_where_it_was_if_it_is_cancelled() {
        let Lab { mut cx, op, .. } = Lab::whole();
        let mut ops = Operations::default();
        let id = ops.begin(&mut cx, op);
        ops.lock(&mut cx, id);
        assert_eq!(ops.next(), Some(id));
        ops.move_to(id, StripeId(7));
        assert_eq!(ops.next(), Some(id));
        assert!(
            ops.has_locked(id, GroupId(0), StripeId::range(1..2))
                && ops.has_locked(id, GroupId(0), StripeId::range(7..8))
        );
        assert_eq!(
            (ops[id].moves_from(), ops[id].stripes.start),
            (Some(StripeId(1)), StripeId(7))
        );
        assert_eq!(ops.cancel_move(id), (GroupId(0), StripeId(7)));
        assert_eq!(ops[id].location.destination, Destination::Home);
        assert_eq!(ops[id].stripes, StripeId::range(1..2));
    }

    #[test]
    fn what_waits_for_a_free_stripe_counts_as_ended_and_may_be_sent_home() {
        let Lab { mut cx, op, .. } = Lab::whole();
        let mut ops = Operations::default();
        let id = ops.begin(&mut cx, op);
        cx.epochs.enter(&mut ops[id].epoch);
        let planned = cx.epochs.close();
        ops.wait_for_stripe(&mut cx, id);
        assert!(cx.epochs.has_drained(planned));
        assert_eq!(ops[id].phase, Phase::Waiting);
        ops.stay(vec![id]);
        assert_eq!(ops.next(), Some(id));
        assert_eq!(ops[id].location.destination, Destination::Home);
    }
}
