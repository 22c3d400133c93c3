//! Filling cells: rebuild onto spare cells, onto replacements, and copy-back.
//!
//! | file | what |
//! | --- | --- |
//! | `queue.rs` | cells that wait, are filled, recorded and settled |
//! | `order/` | which waiting cell is next: policies |
//! | `sources.rs` | which drives are read for a column |

pub(super) mod order;
mod queue;
mod sources;

use std::cmp::Reverse;
use std::ops::RangeInclusive;

use block::{Fault, Instant, Seat};
use layout::Cell;
use plan::action::{Command, FILL_STEP_BYTES};

use self::order::{FillChoice, FillOrder};
pub(super) use self::queue::Fills;
use self::queue::{Class, FILLS_PER_DRIVE, Limits};
use super::placement::{Key, Record, Why};
use super::{OnDurable, Pool, Progress, Report, SeatState};

/// Memory of the steps of all fills. On 34 disks of 7,200 rpm (4+1) a rebuild takes 5.7 s with 420 MiB, 4.9 s with
/// 640 MiB, 4.8 s with 760 MiB. More drives get more.
const FILL_BYTES: RangeInclusive<u64> = 768 << 20..=2 << 30;
/// The same for each drive that takes part.
const FILL_BYTES_OF_DRIVE: u64 = 32 << 20;
/// Fills that copy at a time, however wide the code and however small the cells are.
const FILLS: RangeInclusive<u64> = 2..=128;

impl Pool {
    /// The rebuild under way, or the last one.
    #[must_use]
    pub const fn progress(&self) -> &Progress {
        &self.fills.progress
    }

    /// Bytes that the rebuild under way has covered: of cells that are filled, and of those that are being filled.
    #[must_use]
    pub fn rebuilt_bytes(&self) -> u64 {
        let cell_bytes = self.cx.geometry.plane_bytes();
        let Progress {
            cells_done,
            cells_total,
            ..
        } = self.fills.progress;
        let stepped = self.fills.stepped_bytes(cell_bytes);
        (cells_done * cell_bytes + stepped).min(cells_total * cell_bytes)
    }

    /// Queues all columns again that should move: membership or volumes have changed.
    pub(super) fn requeue_fills(&mut self) {
        let was_idle = self.fills.is_idle();
        self.fills.rescan();
        self.cx.placement.forget_leaving_plan();
        self.leaving.may_have_room();
        self.queue_fills(was_idle);
    }

    /// Queues columns that should move and do not wait yet.
    pub(super) fn queue_fills(&mut self, was_idle: bool) {
        self.replacements_again();
        if self.fills.stopped {
            // These fills would never begin, and the pool would never be idle again.
            return;
        }
        let mut waiting = 0;
        for (why, key) in self.cx.placement.away() {
            let class = self.fill_class(why, key.0);
            if !self.fills.is_under_way(key)
                && self.cx.placement.target_for(key, why).is_some()
                && self.fills.wait(class, key)
            {
                waiting += 1;
            }
        }
        if waiting == 0 {
            // The rebuild under way has nothing left that could be done: its drive went out again.
            if self.fills.progress.cells_total > 0 {
                self.fills_ended();
            }
            return;
        }
        let cell_bytes = self.cx.geometry.plane_bytes();
        self.fills.count(self.cx.now, was_idle, waiting, cell_bytes);
        self.fills_are_as_urgent_as_groups();
        // Its reports are those of the growth, or of the removal.
        let expands = self.cx.facts.grows && self.fills.why() == Some(Why::CopyBack);
        let removes = self.fills.why() == Some(Why::Leave);
        self.fills.progress.expands = expands;
        self.fills.progress.removes = removes;
        // Records of columns that a returned drive still has may be under way already, and no rebuild has begun.
        let unannounced = !self.fills.announced && self.fills.progress.ended.is_none();
        if (was_idle || unannounced) && !expands && !removes {
            self.fills.announced = true;
            self.cx.report(Report::RebuildBegins { cells: waiting });
        }
    }

    /// During a fill or scrub the lanes report whether their clients send requests: all lanes make way for clients of
    /// any.
    pub(super) fn watch_clients(&mut self) {
        let works = !self.fills.none_is_filled() || self.is_scrubbing();
        if self.clients.watch(works) {
            self.cx.tell_lanes(&Command::ReportClients(works));
        }
    }

    /// A lane's clients have begun to send requests, or have sent none for a while.
    pub(super) fn clients_ask(&mut self, lane: u16, ask: bool) {
        if let Some(asks) = self.clients.ask(lane, ask) {
            self.cx.tell_lanes(&Command::MakeWay(asks));
        }
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

    /// Starts as many fills as the drives can take.
    pub(super) fn pump_fills(&mut self) {
        // Before the first fill: it may have to make way.
        self.watch_clients();
        self.begin_fills();
        self.watch_clients();
    }

    fn begin_fills(&mut self) {
        // Before the lanes have read their journals, blocks in place may be older than logged ones.
        if self.fills.stopped
            || self.fills.paused
            || self.cx.facts.steer.paused
            || !self.cx.recovered
        {
            return;
        }
        if self.fills.is_exhausted() {
            return;
        }
        let limits = Limits {
            copying: self.fills_max(),
            // As many bytes of a drive in flight, whatever the length of a step.
            per_drive: FILLS_PER_DRIVE * FILL_STEP_BYTES / self.cx.geometry.fill_step_bytes(),
        };
        while let Some((class, key)) = self.fills.next(limits, |key| self.fill_choice(key)) {
            self.fills.choose(class, key);
            self.start_fill(class, key);
        }
        self.fills.none_begins();
        for ((group, column), yields) in self.fills.yield_drives() {
            let command = Command::Yield {
                group,
                column,
                yields,
            };
            self.cx.tell_lane(group, command);
        }
    }

    /// Membership has changed: groups whose columns are being filled may have lost others.
    fn fills_are_as_urgent_as_groups(&mut self) {
        for group in self.fills.groups_filled() {
            let is_absent = |&key: &Key| self.cx.placement.place(key).is_none();
            let filled = self.fills.filled_in(group).into_iter();
            let filled: Vec<Key> = filled.filter(is_absent).collect();
            let lost = self.cx.placement.absent_in(group);
            for (before, key) in filled.into_iter().enumerate() {
                let urgency = if self.fills.equal { 1 } else { lost - before };
                self.fills.set_urgency(key, urgency);
            }
        }
    }

    /// A column of the group is filled from now on, or is not any more: others of the group are less urgent, or more.
    fn classify_again(&mut self, group: u64) {
        for column in self.cx.placement.columns() {
            let key = (group, column);
            if !self.fills.is_under_way(key)
                && let Some(why) = self.cx.placement.why(key)
            {
                let class = self.fill_class(why, group);
                self.fills.wait_as(class, key);
            }
        }
    }

    /// Fills that copy at a time.
    fn fills_max(&self) -> u64 {
        let columns = self.cx.geometry.layout().columns();
        let needed = columns.saturating_sub(self.cx.geometry.code().tolerance());
        let step = { self.cx.geometry.fill_step_bytes() }.min(self.cx.geometry.plane_bytes());
        let memory = FILL_BYTES_OF_DRIVE * self.cx.geometry.drives_in_rebuild();
        let memory = memory.clamp(*FILL_BYTES.start(), *FILL_BYTES.end());
        let affordable = memory / (step * u64::from(needed + 1));
        affordable.clamp(*FILLS.start(), *FILLS.end())
    }

    /// The drives that filling a column would use. None if its spare cell has been taken for another one: `start_fill`
    /// drops it.
    fn fill_choice(&self, (group, column): Key) -> FillChoice {
        let seats = self.cx.placement.target((group, column)).map(|target| {
            let mut seats = self.fill_sources((group, column)).0;
            seats.push(target.seat);
            seats
        });
        FillChoice {
            group,
            column,
            seats: seats.unwrap_or_default(),
        }
    }

    fn start_fill(&mut self, class: Class, key: Key) {
        let Some(target) = self.cx.placement.target(key) else {
            return;
        };
        let (sources, avoid) = self.fill_sources(key);
        let holds = self.cx.placement.held_before(key, target);
        // If the drive has part of the column already, it is not known yet how much is left to move.
        let cell_bytes = match holds {
            Some(_) => 0,
            None => self.cx.geometry.plane_bytes(),
        };
        self.cx.placement.claim(key, target);
        self.fills.begin((class, key), target, sources, cell_bytes);
        let (group, column) = key;
        self.classify_again(group);
        self.cx.tell_lane(
            group,
            Command::Fill {
                group,
                column,
                target,
                avoid,
                holds,
            },
        );
    }

    /// A fill has taken a step.
    pub(super) fn fill_stepped(&mut self, group: u64, column: u16, bytes: u64) {
        let cell_bytes = self.cx.geometry.plane_bytes();
        let lane = self.cx.geometry.lane_of(group);
        self.fills
            .stepped((self.cx.now, lane), (group, column), bytes, cell_bytes);
    }

    /// A step of a fill has read and verified so much.
    pub(super) fn fill_verified(&mut self, read_bytes: u64, blocks: u64) {
        let progress = &mut self.fills.progress;
        progress.read_bytes += read_bytes;
        progress.verified_bytes += blocks * block::BLOCK_BYTES;
    }

    /// A fill's target has its blocks: its drives are free for other fills.
    pub(super) fn fill_copied(&mut self, group: u64, column: u16) {
        self.fills.copied((group, column));
    }

    /// A lane has filled a cell: record it before anything depends on it.
    pub(super) fn filled(&mut self, group: u64, column: u16, target: Cell, copied_bytes: u64) {
        let Some(fill) = self.fills.end((group, column)) else {
            return;
        };
        let key = (group, column);
        if fill.superseded {
            self.fill_over(group, column, target);
            return;
        }
        self.fills.progress.copied_bytes += copied_bytes;
        if self.replacements.contains_key(&target.seat) {
            self.successor_has(key, target);
            self.fills.progress.cells_done += 1;
            // Its home may have come back meanwhile, or a drive is to leave that was not.
            if self.wait_again(key) {
                self.fills.progress.cells_total += 1;
            }
            self.fills_ended();
            return;
        }
        if self.cx.placement.held_before(key, target).is_some() {
            self.fills
                .progress
                .caught_up(&fill.sources, target.seat, copied_bytes);
            self.cx.placement.note_return(target.seat, copied_bytes);
        }
        self.record_fill(key, target, true);
    }

    fn record_fill(&mut self, key: Key, target: Cell, moves: bool) {
        self.fills.record(key, target, moves);
        let page = self.cx.placement.record(key, target);
        self.cx.write_cell_page(page);
    }

    /// Records a column at home that is there, or whose group has no content.
    pub(super) fn record_unmoved_at_home(&mut self, key: Key) {
        let home = self.cx.placement.home(key);
        self.cx.placement.claim(key, home);
        self.record_fill(key, home, false);
    }

    /// Records a column as if it had been filled at home.
    pub(super) fn record_at_home(&mut self, key: Key) {
        let home = self.cx.placement.home(key);
        self.cx.placement.claim(key, home);
        self.fills.progress.cells_total += 1;
        self.record_fill(key, home, true);
    }

    /// Columns are intact in their home cells on a drive that is back: record them as if they had been filled.
    pub(super) fn readmit(&mut self, seat: Seat, columns: Vec<Key>) {
        if self.cx.facts.seats[seat.index()].state != SeatState::Filling {
            return;
        }
        for key in columns {
            let placement = &self.cx.placement;
            if !placement.groups().has(key.0)
                || placement.place(key).is_some()
                || self.fills.is_under_way(key)
                || placement.is_taken(placement.home(key))
            {
                continue;
            }
            self.cx.placement.note_return(seat, 0);
            self.record_at_home(key);
        }
    }

    /// A group is to be made blank: columns that were left behind in spare space are recorded as if they had been filled
    /// at home. Returns whether there is none.
    pub(crate) fn bring_home(&mut self, group: u64) -> bool {
        let columns = self.cx.placement.columns().map(|column| (group, column));
        let behind = columns.filter(|&key| self.cx.placement.is_left_behind(key));
        let behind: Vec<Key> = behind.collect();
        for &key in &behind {
            if self.fills.is_under_way(key) {
                continue;
            }
            if self.fills.is_idle() {
                // Nothing is copied, so this is no rebuild that could end.
                self.fills.progress.ended.get_or_insert(self.cx.now);
            }
            self.record_at_home(key);
        }
        behind.is_empty()
    }

    /// A group has been made blank: no column of it was left behind.
    pub(crate) fn check_blank(&self, group: u64) {
        for column in self.cx.placement.columns() {
            debug_assert!(
                !self.cx.placement.is_left_behind((group, column)),
                "column {column} of group {group} is made blank in spare space, and its home drive is complete"
            );
        }
    }

    /// The record is durable: the cell is the column's place from now on.
    pub(super) fn settle(&mut self, record: Record) {
        self.cx.placement.settle(record);
        self.fills.recorded(record.key);
        self.stalls.filled();
        let (cell, (group, column)) = (record.cell, record.key);
        self.cx.tell_lane(
            group,
            Command::Settle {
                group,
                column,
                cell,
            },
        );
        self.fills_ended();
    }

    /// No operation uses the old cell any more, so that cell is free. If membership changed meanwhile, the column may
    /// have to move again: home, if it was filled into spare space when its drive returned.
    pub(super) fn settled(&mut self, group: u64, column: u16) {
        let key = (group, column);
        self.fills.settled(key);
        let page = self.cx.placement.settled(key);
        self.cx.write_cell_page(page);
        self.leaving.may_have_room();
        // With this column, others of the group that could not be reconstructed perhaps can be.
        let others = self.fills.hope_again(group);
        for key in others.into_iter().chain([key]) {
            if self.wait_again(key) {
                self.fills.progress.cells_total += 1;
            }
        }
        self.fills_ended();
    }

    /// The record could not be written: the column stays where it was, or absent.
    pub(super) fn fill_unrecorded(&mut self, record: Record) {
        let (group, column) = record.key;
        if let Some(target) = self.fills.unrecorded(record.key) {
            self.cx.placement.release(record.key, target);
            self.cx.tell_lane(group, Command::Abandon { group, column });
        }
    }

    pub(super) fn fill_failed(&mut self, group: u64, column: u16, target: Cell, fault: Fault) {
        let Some(fill) = self.fills.end((group, column)) else {
            return;
        };
        if fill.outdated {
            // It is tried once more with what is there now.
        } else if fault == Fault::Lost || fault == Fault::Medium {
            self.fills.lost((group, column));
            self.fill_waits_for_drives();
            self.cx.report(Report::CellLost {
                group,
                column,
                cells: 1,
                fault,
            });
        } else if self.stalls.is_stalled() {
            // Drives that stay refuse writes. The cell is filled when they take them again.
            self.fills.lost((group, column));
        }
        self.fill_over(group, column, target);
    }

    /// A fill failed: its target is free, and the column waits again if it can be filled.
    fn fill_over(&mut self, group: u64, column: u16, target: Cell) {
        self.cx.placement.release((group, column), target);
        self.wait_again((group, column));
        self.classify_again(group);
        self.fills_ended();
    }

    /// Queues a column that is not under way, if it is not where it should be and can be filled; returns whether it was
    /// queued.
    fn wait_again(&mut self, key: Key) -> bool {
        if self.fills.stopped || self.fills.is_unrecoverable(key) {
            return false;
        }
        let Some(why) = self.cx.placement.why(key) else {
            return false;
        };
        self.cx.placement.target_for(key, why).is_some()
            && self.cx.placement.groups().has(key.0)
            && self.fills.wait(self.fill_class(why, key.0), key)
    }

    /// How urgently a column of a group should move that does not move yet.
    fn fill_class(&self, why: Why, group: u64) -> Class {
        let lost = || match self.fills.equal {
            true => 1,
            false => self.lost_in(group),
        };
        match why {
            Why::Rebuild => Class::Rebuild {
                lost: Reverse(lost()),
            },
            Why::Leave => Class::Leave,
            Why::CopyBack => Class::CopyBack,
            Why::Replace => Class::Replace,
        }
    }

    /// Columns of a group that are absent and not being filled: with one that is, a group that has lost two has
    /// redundancy again, and the second is no more urgent than those of groups that have lost one.
    fn lost_in(&self, group: u64) -> usize {
        let keys = self.cx.placement.columns().map(|column| (group, column));
        let lost =
            |&key: &Key| self.cx.placement.place(key).is_none() && !self.fills.is_under_way(key);
        keys.filter(lost).count()
    }

    fn fills_ended(&mut self) {
        if self.fills.is_idle() && self.fills.progress.ended.is_none() {
            self.fills.progress.ended = Some(self.cx.now);
            // Columns that a returned drive still has are only recorded, and no rebuild of them begins.
            if std::mem::take(&mut self.fills.announced) {
                let cells = self.fills.progress.cells_done;
                self.cx.report(Report::RebuildEnds { cells });
            }
            self.repair_unrecovered();
        }
    }

    /// Seats whose every allocated column is at home become current.
    pub(super) fn complete_seats(&mut self) {
        // Groups that are being made blank belong to volumes soon, and may have a column to fill.
        let makes_blank = !self.volumes.is_idle();
        if !self.fills.none_waits() || self.cx.closing.is_some() || makes_blank {
            return;
        }
        let filling: Vec<Seat> = self
            .cx
            .facts
            .seats()
            .filter(|(_, facts)| facts.state == SeatState::Filling)
            .map(|(seat, _)| seat)
            .collect();
        for seat in filling {
            // A drive that joins the layout has no columns before its table counts.
            let layout = self.cx.geometry.layout();
            let joins = seat.0 >= layout.drives() || layout.vacant().contains(&seat);
            let leaves = self.leaving() == Some(seat);
            // A successor that steps in gets its records when it has the seat.
            if joins
                || leaves
                || self.promotions.contains_key(&seat)
                || self.cx.placement.is_any_writing()
                || self.cx.placement.lacks_columns(seat)
            {
                continue;
            }
            self.cx.facts.seats[seat.index()].state = SeatState::Current;
            self.cx.facts.seats[seat.index()].holds = None;
            self.cx.seats_changed();
            let caught_up = self.return_ends(seat);
            self.cx.placement.complete(seat);
            let mut effects = vec![OnDurable::Lanes(Command::SeatCurrent(seat))];
            effects.extend(caught_up.map(OnDurable::Report));
            effects.push(OnDurable::Report(Report::SeatComplete { seat }));
            // With this drive, data that could not be read perhaps can be.
            let without_spare = std::mem::take(&mut self.without_spare);
            effects.extend(without_spare.into_iter().map(OnDurable::SeatSpare));
            // The spare cells of its columns are free for others, and columns that could not be reconstructed before
            // perhaps can be.
            effects.push(OnDurable::Requeue);
            self.cx.commit(effects);
        }
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

    /// Abandons the fills of a group: it waits again for them when they have ended.
    pub(crate) fn let_fills_go(&mut self, group: u64) {
        for (group, column) in self.fills.let_go(group) {
            self.cx.tell_lane(group, Command::Abandon { group, column });
        }
    }

    /// Starts no new fills, and abandons those in flight.
    pub(super) fn stop_fills(&mut self) {
        for (group, column) in self.fills.stop() {
            self.cx.tell_lane(group, Command::Abandon { group, column });
        }
    }

    /// A drive is out: fills onto it fail, and cells that were recorded there are gone.
    pub(super) fn fills_lost_seat(&mut self, seat: Seat) {
        self.cx.placement.lose(seat);
        self.fills.superseded(seat);
    }

    /// When the rebuild began and ended, for reports.
    #[must_use]
    pub const fn rebuild_times(&self) -> (Instant, Option<Instant>) {
        (self.fills.progress.began, self.fills.progress.ended)
    }
}
