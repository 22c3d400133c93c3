//! What the pool passes on to the machine of moves, and from it.

use block::{Fault, Instant};
use format::GroupId;
use layout::Cell;
use plan::action::Command;

use super::AfterFill;
use super::order::FillOrder;
use crate::placement::{Key, Record};
use crate::{Pool, Progress};

impl Pool {
    /// The rebuild under way, or the last one.
    #[must_use]
    pub const fn progress(&self) -> &Progress {
        &self.fills.progress
    }

    /// Bytes that the rebuild under way has covered: of cells that are filled, and of those that are being filled.
    #[must_use]
    pub fn rebuilt_bytes(&self) -> u64 {
        self.fills.rebuilt_bytes(self.cx.geometry.plane_bytes())
    }

    /// When the rebuild began and ended, for reports.
    #[must_use]
    pub const fn rebuild_times(&self) -> (Instant, Option<Instant>) {
        (self.fills.progress.began, self.fills.progress.ended)
    }

    /// Sets the policy that chooses which waiting cell is filled next.
    pub fn order_fills(&mut self, order: &'static dyn FillOrder) {
        self.fills.set_order(order);
    }

    /// Fills groups that have lost several columns no sooner than others, so that a study can show what that order is
    /// worth. Call this before a drive fails.
    pub const fn fill_groups_alike(&mut self) {
        self.fills.equal = true;
    }

    /// Pauses the rebuild (cells under way are finished), or resumes it. A rebuild that is paused before its first cell
    /// counts as begun when it is resumed.
    pub fn pause_fills(&mut self, now: Instant, paused: bool) {
        self.cx.now = now;
        let untouched = self.fills.progress.cells_done == 0 && self.fills.in_flight() == 0;
        if self.fills.paused && !paused && untouched {
            self.fills.progress.began = now;
        }
        self.fills.paused = paused;
        self.advance();
    }

    /// Queues all columns again that should move: membership or volumes have changed.
    pub(crate) fn requeue_fills(&mut self) {
        self.cx.placement.forget_leaving_plan();
        self.leaving.may_have_room();
        self.replacements.try_again();
        self.fills.requeue(&mut self.cx);
        self.fills_may_have_ended();
    }

    /// Queues columns of a drive that leaves, whose cells are planned.
    pub(crate) fn queue_fills(&mut self) {
        self.replacements.try_again();
        self.fills.queue(&mut self.cx, true);
        self.fills_may_have_ended();
    }

    /// With cells that have been filled, blocks that could not be reconstructed perhaps can be.
    fn fills_may_have_ended(&mut self) {
        if self.fills.take_end() {
            self.repair_unrecovered();
        }
    }

    /// During a fill or scrub the lanes report whether their clients send requests: all lanes make way for clients of
    /// any.
    fn watch_clients(&mut self) {
        let works = !self.fills.none_is_filled() || self.is_scrubbing();
        if self.clients.watch(works) {
            self.cx.tell_lanes(&Command::ReportClients(works));
        }
    }

    /// A lane's clients have begun to send requests, or have sent none for a while.
    pub(crate) fn clients_ask(&mut self, lane: u16, ask: bool) {
        if let Some(asks) = self.clients.ask(lane, ask) {
            self.cx.tell_lanes(&Command::MakeWay(asks));
        }
    }

    pub(crate) fn pump_fills(&mut self) {
        // Before the first fill: it may have to make way.
        self.watch_clients();
        self.fills.pump(&mut self.cx);
        self.watch_clients();
    }

    pub(crate) fn filled(&mut self, key: Key, target: Cell, copied_bytes: u64) {
        match (self.fills).lane_filled(&mut self.cx, key, target, copied_bytes) {
            AfterFill::Done => {}
            AfterFill::OnSuccessor(key, target) => {
                (self.replacements).successor_has(&mut self.cx, key, target);
                self.fills.is_on_successor(&mut self.cx, key);
            }
        }
        self.fills_may_have_ended();
    }

    pub(crate) fn fill_failed(&mut self, key: Key, target: Cell, fault: Fault) {
        let stalled = self.stalls.is_stalled();
        if (self.fills).lane_failed(&mut self.cx, key, target, fault, stalled) {
            self.stalls.fill_failed(self.cx.now);
        }
        self.fills_may_have_ended();
    }

    pub(crate) fn settled(&mut self, key: Key) {
        self.leaving.may_have_room();
        self.fills.lane_settled(&mut self.cx, key);
        self.fills_may_have_ended();
    }

    pub(crate) fn settle(&mut self, record: Record) {
        self.stalls.filled();
        self.fills.settle(&mut self.cx, record);
        self.fills_may_have_ended();
    }

    /// A group has been made blank: no column of it was left behind.
    pub(crate) fn check_blank(&self, group: GroupId) {
        for column in self.cx.placement.columns() {
            debug_assert!(
                !self.cx.placement.is_left_behind((group, column)),
                "column {column} of group {group} is made blank in spare space, and its home drive is complete"
            );
        }
    }
}
