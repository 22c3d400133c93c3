//! What the machines of a pool share: the shape, the time, the facts, the places of columns, and the ways out.
//!
//! A machine is given `&mut Context` with each input. The facts and the places are common to all: a machine that changes
//! the facts commits them ([`Context::commit`]), and what follows from them once they are durable comes back to `Pool`,
//! which routes it. Actions go out in the order in which the machines make them.
//!
//! | file | what |
//! | --- | --- |
//! | `labels.rs` | the facts on their way to the drives, a generation at a time |
//! | `writes.rs` | the pool's own writes in flight |

pub(crate) mod labels;
pub(crate) mod writes;

use std::collections::VecDeque;
use std::sync::Arc;

use block::{Instant, Seat};
use format::{Generation, GroupId, PoolFacts, SeatState};
use plan::action::Command;
use plan::{Geometry, SubStripePlans};

use self::labels::Labels;
use self::writes::{PoolWrite, Writes};
use super::placement::{PageWrite, Placement};
use super::{PoolAction, PoolError, Report, Ticket};

/// Passed to every machine of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) geometry: Arc<Geometry>,
    /// The time of the input that is being handled.
    pub(crate) now: Instant,
    pub(crate) facts: PoolFacts,
    /// The facts on their way to the drives.
    pub(crate) labels: Labels,
    pub(crate) placement: Placement,
    /// The pool's own writes.
    pub(crate) writes: Writes,
    pub(crate) plans: SubStripePlans,
    /// All lanes have read their journals.
    pub(crate) recovered: bool,
    /// The pool is being closed: nothing begins any more.
    pub(crate) closing: Option<Ticket>,
    pub(super) actions: VecDeque<PoolAction>,
}

impl Context {
    /// The context of a pool with these facts. No drive has a label yet.
    pub(super) fn new(geometry: Geometry, facts: PoolFacts, generation: Generation) -> Self {
        let drives = facts.seats();
        let drives = drives.filter(|(_, facts)| !matches!(facts.state, SeatState::Out { .. }));
        let labels = Labels::new(generation, drives.map(|(seat, _)| seat));
        let geometry = Arc::new(geometry);
        Self {
            placement: Placement::new(&geometry, &facts, labels.drives()),
            geometry,
            now: Instant::ZERO,
            facts,
            labels,
            writes: Writes::default(),
            plans: SubStripePlans::default(),
            recovered: false,
            closing: None,
            actions: VecDeque::new(),
        }
    }
}

/// The ways out.
impl Context {
    pub(crate) fn act(&mut self, action: PoolAction) {
        self.actions.push_back(action);
    }

    pub(crate) fn report(&mut self, report: Report) {
        self.act(PoolAction::Report(report));
    }

    pub(crate) fn done(&mut self, ticket: Ticket, outcome: Result<(), PoolError>) {
        self.act(PoolAction::Done(ticket, outcome));
    }

    /// To the lane of a group.
    pub(crate) fn tell_lane(&mut self, group: GroupId, command: Command) {
        let lane = self.geometry.lane_of(group);
        self.act(PoolAction::Lane(lane, command));
    }

    pub(crate) fn tell_lanes(&mut self, command: &Command) {
        for lane in 0..self.geometry.lanes() {
            self.act(PoolAction::Lane(lane, command.clone()));
        }
    }

    pub(crate) fn write_durably(&mut self, what: PoolWrite, offset: u64, bytes: Vec<u8>) {
        let action = self.writes.begin(self.now, what, offset, bytes);
        self.act(action);
    }

    pub(crate) fn write_cell_page(&mut self, page: Option<PageWrite>) {
        let Some(page) = page else {
            return;
        };
        let PageWrite {
            seat,
            first_row,
            offset,
            bytes,
        } = page;
        let offset = self.facts.cell_table_offset + offset;
        self.write_durably(PoolWrite::CellPage { seat, first_row }, offset, bytes);
    }

    /// The seat's drive is out: do not wait for the pool's writes to it.
    pub(crate) fn forget_writes(&mut self, seat: Seat) {
        self.writes.forget(seat);
        self.labels.forget(seat);
    }
}

/// Questions about the facts, and what follows a change of them.
impl Context {
    /// The state of a seat's drive by the facts.
    pub(crate) fn state(&self, seat: Seat) -> SeatState {
        self.facts.seats[seat.index()].state
    }

    /// Seats of the layout, without waiting spares and vacant seats.
    pub(crate) fn layout_seats(&self) -> impl Iterator<Item = Seat> + use<> {
        let vacant = self.geometry.layout().vacant().to_vec();
        let seats = (0..self.geometry.layout().drives()).map(Seat);
        seats.filter(move |seat| !vacant.contains(seat))
    }

    /// The layout's seats whose drives are out.
    pub(crate) fn seats_gone(&self) -> impl Iterator<Item = Seat> + '_ {
        let out = |seat: &Seat| matches!(self.state(*seat), SeatState::Out { .. });
        // A drive that was removed is not missed.
        let removed = |seat: &Seat| self.facts.seats[seat.index()].is_removed(*seat);
        self.layout_seats()
            .filter(out)
            .filter(move |seat| !removed(seat))
    }

    /// The facts say something else about seats: their columns are elsewhere.
    pub(crate) fn seats_changed(&mut self) {
        self.placement.seats_are(&self.facts);
    }

    /// The facts say something else about which groups have content.
    pub(crate) fn groups_changed(&mut self) {
        self.placement.groups_are(&self.facts);
    }
}
