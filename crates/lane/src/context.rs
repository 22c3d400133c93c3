//! The context that all state machines of a lane share: the state that they may read, and the queues for their
//! requests.
//!
//! A machine is given `&mut Context` with each input. It reads the geometry, the view and the time, and changes none of
//! them. Its requests go out as actions, computations or events, in the order in which the machine makes them.

use std::collections::VecDeque;
use std::sync::Arc;

use block::{BLOCK_BYTES, Instant, Seat};
use format::{GroupId, RING_HEAD_BYTES};
use plan::action::{Action, Compute, ComputeId, Event};
use plan::view::View;
use plan::{Geometry, ScratchId};

use super::epochs::Epochs;
use super::ids::OpId;
use super::purpose::Computing;
use super::sequence_map::SequenceMap;

/// Passed to every state machine of a lane.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) geometry: Arc<Geometry>,
    /// The lane's number.
    pub(super) lane: u16,
    view: View,
    /// The number of changes of the view so far.
    view_changes: u64,
    /// The time of the input that is being handled.
    pub(super) now: Instant,
    /// The drive that leaves the pool: no batch is written to it.
    pub(super) leaving: Option<Seat>,
    /// Drives store no content: see [`Lane::trust_content`](super::Lane::trust_content).
    pub(super) trusted: bool,
    pub(super) epochs: Epochs,
    pub(super) actions: VecDeque<Action>,
    pub(super) events: VecDeque<Event>,
    pub(super) computes: SequenceMap<ComputeId, Computing>,
    /// The last number that was given out. Operations, jobs, I/O, computations and memory share one counter.
    last_number: u64,
}

impl Context {
    /// The context of a lane in which every column is current at home.
    pub(super) fn new(geometry: Arc<Geometry>, lane: u16) -> Self {
        Self {
            geometry,
            lane,
            view: View::default(),
            view_changes: 0,
            now: Instant::ZERO,
            leaving: None,
            trusted: false,
            epochs: Epochs::default(),
            actions: VecDeque::new(),
            events: VecDeque::new(),
            computes: SequenceMap::default(),
            last_number: 0,
        }
    }

    /// Where the groups' columns are.
    pub(super) const fn view(&self) -> &View {
        &self.view
    }

    /// For `Lane` alone: only the pool's commands change the view.
    pub(super) fn change_view<T>(&mut self, change: impl FnOnce(&mut View, &Geometry) -> T) -> T {
        self.view_changes += 1;
        change(&mut self.view, &self.geometry)
    }

    /// For `Lane` alone: only the pool's command changes the geometry. Sizes and lanes are as before: homes change, and
    /// there are more drives, or more or fewer groups.
    pub(super) fn change_geometry(&mut self, geometry: Arc<Geometry>) {
        let shape = |of: &Geometry| {
            let sizes = (of.cell_bytes(), of.chunk_bytes(), of.data_offset());
            (
                sizes,
                of.lanes(),
                of.group_data_bytes(),
                of.regions().copied(),
            )
        };
        assert_eq!(
            shape(&self.geometry),
            shape(&geometry),
            "groups stay as they are"
        );
        self.view.forget_groups(GroupId(geometry.groups()));
        self.view.forget_vacated(&self.geometry, &geometry);
        self.view_changes += 1;
        self.geometry = geometry;
    }

    /// The number of changes of the view so far: what depends on the view alone is the same while this is the same.
    pub(super) const fn view_changes(&self) -> u64 {
        self.view_changes
    }

    /// True if the lane has a group.
    pub(super) fn has_group(&self, group: GroupId) -> bool {
        group.0 < self.geometry.groups() && self.geometry.lane_of(group) == self.lane
    }

    /// Seats whose drives are in use, in order.
    pub(super) fn live_seats(&self) -> Vec<Seat> {
        (0..self.geometry.layout().drives())
            .map(Seat)
            .filter(|&seat| !self.view.is_out(seat))
            .collect()
    }

    /// The same without the drive that leaves: batches are written to these.
    pub(super) fn journal_seats(&self) -> Vec<Seat> {
        let mut seats = self.live_seats();
        seats.retain(|&seat| self.leaving != Some(seat));
        seats
    }

    /// First byte on each drive of a block of the lane's ring.
    pub(super) fn ring_offset(&self, position: u64) -> u64 {
        let regions = self.geometry.regions().expect("a log needs a journal");
        regions.journal_offset
            + u64::from(self.lane) * regions.ring_bytes
            + RING_HEAD_BYTES
            + position * BLOCK_BYTES
    }

    pub(super) const fn fresh(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(super) const fn fresh_op(&mut self) -> OpId {
        OpId(self.fresh())
    }

    pub(super) const fn fresh_scratch(&mut self) -> ScratchId {
        ScratchId(self.fresh())
    }

    /// Requests a computation.
    pub(super) fn push_compute(&mut self, computing: Computing, work: Compute) {
        let id = ComputeId(self.fresh());
        self.computes.insert(id, computing);
        self.actions
            .push_back(Action::Compute(Compute { id, ..work }));
    }
}

#[cfg(test)]
impl Context {
    /// Lane 0 of a small pool with a journal, for tests of single state machines.
    pub(super) fn of_test(scheme: &str, drives: u16) -> Self {
        Self::of_test_with(scheme, drives, 256 << 10, |_| {})
    }

    /// The same with another cell size, and other features of its regions.
    pub(super) fn of_test_with(
        scheme: &str,
        drives: u16,
        cell_bytes: u64,
        change: impl FnOnce(&mut plan::Regions),
    ) -> Self {
        let scheme: layout::Scheme = scheme.parse().expect("a scheme");
        let shape = layout::Geometry::new(&scheme, Some(drives), 64).expect("a layout");
        let code = erasure::by_columns(&shape.code.name, shape.code.columns).expect("a code");
        let geometry = Geometry::new(
            Arc::new(code),
            shape.layout,
            16 << 10,
            cell_bytes,
            64,
            1 << 20,
            1,
        );
        let mut regions = plan::Regions {
            pool: uuid::Uuid::nil(),
            journal_offset: 1 << 30,
            ring_bytes: 1 << 20,
            metadata_offset: 2 << 30,
            page_copies: None,
            direct_writes: false,
            derived_parity: false,
            free_stripes: 0,
        };
        change(&mut regions);
        let geometry = geometry.expect("a geometry").with_regions(regions);
        Self::new(Arc::new(geometry), 0)
    }

    /// The actions since the last call.
    pub(super) fn take_actions(&mut self) -> Vec<Action> {
        self.actions.drain(..).collect()
    }

    /// The events since the last call.
    pub(super) fn take_events(&mut self) -> Vec<Event> {
        self.events.drain(..).collect()
    }
}
