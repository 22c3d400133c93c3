//! Moves of columns: rebuild, copy-back, replacement, and the way out of a drive that leaves. A lane fills the cell to which
//! a column moves.
//!
//! | file | what |
//! | --- | --- |
//! | `kind/` | why columns move, and where they go: a file for each kind |
//! | `queue.rs` | the life of a move: it waits, its cell is filled, recorded and settled |
//! | `order/` | which waiting cell is next: policies |
//! | `sources.rs` | which drives are read for a column |
//! | `routes.rs` | what the pool passes on |
//!
//! Inputs: a change of membership or volumes ([`Fills::requeue`]), what lanes report of cells, records that are durable or
//! not. Outputs: commands to lanes, entries of cell tables, reports; and to the pool: a cell that a successor has got, and
//! that nothing is left to fill ([`Fills::take_end`]).

pub(super) mod kind;
pub(super) mod order;
mod queue;
mod routes;
mod sources;

use std::ops::RangeInclusive;

use block::{Fault, Seat};
use format::{GroupId, SeatState};
use layout::Cell;
use plan::action::{Command, FILL_STEP_BYTES};

use self::kind::{Kind, MoveEnd, PartOf};
use self::order::{FILL_ORDERS, FillChoice};
pub(super) use self::queue::Fills;
use self::queue::{Class, FILLS_PER_DRIVE, Limits};
use super::context::Context;
use super::placement::{Key, Record};
use super::{Progress, Report};

/// Memory of the steps of all fills. On 34 disks of 7,200 rpm (4+1) a rebuild takes 5.7 s with 420 MiB, 4.9 s with
/// 640 MiB, 4.8 s with 760 MiB. More drives get more.
const FILL_BYTES: RangeInclusive<u64> = 768 << 20..=2 << 30;
/// The same for each drive that takes part.
const FILL_BYTES_OF_DRIVE: u64 = 32 << 20;
/// Fills that copy at a time, however wide the code and however small the cells are.
const FILLS: RangeInclusive<u64> = 2..=128;

/// What becomes of a fill that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterFill {
    /// Nothing more, or the cell is being recorded.
    Done,
    /// A successor has the column in this cell.
    OnSuccessor(Key, Cell),
}

impl Default for Fills {
    fn default() -> Self {
        Self::new(FILL_ORDERS[0])
    }
}

/// What membership says.
impl Fills {
    /// Queues all columns again that should move: membership or volumes have changed.
    pub(super) fn requeue(&mut self, cx: &mut Context) {
        let was_idle = self.is_idle();
        self.rescan();
        self.queue(cx, was_idle);
    }

    /// Queues columns that should move and do not wait yet.
    pub(super) fn queue(&mut self, cx: &mut Context, was_idle: bool) {
        if self.stopped {
            // These fills would never begin, and the pool would never be idle again.
            return;
        }
        let mut waiting = 0;
        for (kind, key) in kind::away(&cx.placement) {
            let class = self.class(cx, kind, key.0);
            if !self.is_under_way(key)
                && kind.policy().target(&cx.placement, key).is_some()
                && self.wait(class, key)
            {
                waiting += 1;
            }
        }
        if waiting == 0 {
            // The rebuild under way has nothing left that could be done: its drive went out again.
            if self.progress.cells_total > 0 {
                self.may_have_ended(cx);
            }
            return;
        }
        self.count(cx.now, was_idle, waiting, cx.geometry.plane_bytes());
        self.are_as_urgent_as_groups(cx);
        // Its reports are those of the growth, or of the removal.
        let part_of = { self.kind() }.map(|kind| kind.policy().part_of(&cx.facts));
        let expands = part_of == Some(PartOf::Growth);
        let removes = part_of == Some(PartOf::Removal);
        self.progress.expands = expands;
        self.progress.removes = removes;
        // Records of columns that a returned drive still has may be under way already, and no rebuild has begun.
        let unannounced = !self.announced && self.progress.ended.is_none();
        if (was_idle || unannounced) && !expands && !removes {
            self.announced = true;
            cx.report(Report::RebuildBegins { cells: waiting });
        }
    }

    /// Groups whose columns are being filled may have lost others.
    fn are_as_urgent_as_groups(&mut self, cx: &Context) {
        for group in self.groups_filled() {
            let is_absent = |&key: &Key| cx.placement.place(key).is_none();
            let filled = self.filled_in(group).into_iter();
            let filled: Vec<Key> = filled.filter(is_absent).collect();
            let lost = cx.placement.absent_in(group);
            for (before, key) in filled.into_iter().enumerate() {
                let urgency = if self.equal { 1 } else { lost - before };
                self.set_urgency(key, urgency);
            }
        }
    }

    /// A drive is out: fills onto it fail, and cells that were recorded there are gone.
    pub(super) fn lose_seat(&mut self, cx: &mut Context, seat: Seat) {
        cx.placement.lose(seat);
        self.superseded(seat);
    }

    /// Starts no new fills, and abandons those in flight.
    pub(super) fn abandon_all(&mut self, cx: &mut Context) {
        for key in self.stop() {
            abandon(cx, key);
        }
    }

    /// Abandons the fills of a group: it waits again for them when they have ended.
    pub(super) fn abandon_in(&mut self, cx: &mut Context, group: GroupId) {
        for key in self.let_go(group) {
            abandon(cx, key);
        }
    }

    /// Columns are intact in their home cells on a drive that is back: records them as if they had been filled.
    pub(super) fn readmit(&mut self, cx: &mut Context, seat: Seat, columns: Vec<Key>) {
        if cx.state(seat) != SeatState::Filling {
            return;
        }
        for key in columns {
            let placement = &cx.placement;
            if !placement.groups().has(key.0)
                || placement.place(key).is_some()
                || self.is_under_way(key)
                || placement.is_taken(placement.home(key))
            {
                continue;
            }
            cx.placement.note_return(seat, 0);
            self.record_at_home(cx, key);
        }
    }

    /// A group is to be made blank: columns that were left behind in spare space are recorded as if they had been filled
    /// at home. Returns whether there is none.
    pub(super) fn bring_home(&mut self, cx: &mut Context, group: GroupId) -> bool {
        let columns = cx.placement.columns().map(|column| (group, column));
        let behind = columns.filter(|&key| cx.placement.is_left_behind(key));
        let behind: Vec<Key> = behind.collect();
        for &key in &behind {
            if self.is_under_way(key) {
                continue;
            }
            if self.is_idle() {
                // Nothing is copied, so this is no rebuild that could end.
                self.progress.ended.get_or_insert(cx.now);
            }
            self.record_at_home(cx, key);
        }
        behind.is_empty()
    }
}

/// What begins.
impl Fills {
    /// Starts as many fills as the drives can take.
    pub(super) fn pump(&mut self, cx: &mut Context) {
        // Before the lanes have read their journals, blocks in place may be older than logged ones.
        let waits = self.paused || cx.facts.steer.paused || !cx.recovered;
        if self.stopped || waits || self.is_exhausted() {
            return;
        }
        let limits = Limits {
            copying: copying_max(cx),
            // As many bytes of a drive in flight, whatever the length of a step.
            per_drive: FILLS_PER_DRIVE * FILL_STEP_BYTES / cx.geometry.fill_step_bytes(),
        };
        while let Some((class, key)) = self.next(limits, |key| self.choice(cx, key)) {
            self.choose(class, key);
            self.start(cx, class, key);
        }
        self.none_begins();
        for ((group, column), yields) in self.yield_drives() {
            let command = Command::Yield {
                group,
                column,
                yields,
            };
            cx.tell_lane(group, command);
        }
    }

    /// The drives that filling a column would use. None if its spare cell has been taken for another one: `start`
    /// drops it.
    fn choice(&self, cx: &Context, key: Key) -> FillChoice {
        let seats = kind::target(&cx.placement, key).map(|target| {
            let mut seats = self.sources(cx, key).0;
            seats.push(target.seat);
            seats
        });
        let (group, column) = key;
        FillChoice {
            group,
            column,
            seats: seats.unwrap_or_default(),
        }
    }

    fn start(&mut self, cx: &mut Context, class: Class, key: Key) {
        // It may be due for another reason by now.
        let Some(kind) = Kind::of(&cx.placement, key) else {
            return;
        };
        let Some(target) = kind.policy().target(&cx.placement, key) else {
            return;
        };
        let class = Class { kind, ..class };
        let (sources, avoid) = self.sources(cx, key);
        let holds = cx.placement.held_before(key, target);
        // If the drive has part of the column already, it is not known yet how much is left to move.
        let cell_bytes = match holds {
            Some(_) => 0,
            None => cx.geometry.plane_bytes(),
        };
        cx.placement.claim(key, target);
        self.begin((class, key), target, sources, cell_bytes);
        let (group, column) = key;
        self.classify_again(cx, group);
        cx.tell_lane(
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

    /// A column of the group is filled from now on, or is not any more: others of the group are less urgent, or more.
    fn classify_again(&mut self, cx: &Context, group: GroupId) {
        for column in cx.placement.columns() {
            let key = (group, column);
            if !self.is_under_way(key)
                && let Some(kind) = Kind::of(&cx.placement, key)
            {
                let class = self.class(cx, kind, group);
                self.wait_as(class, key);
            }
        }
    }

    /// Queues a column that is not under way, if it is not where it should be and can be filled; returns whether it was
    /// queued.
    fn wait_again(&mut self, cx: &Context, key: Key) -> bool {
        if self.stopped || self.is_unrecoverable(key) {
            return false;
        }
        let Some(kind) = Kind::of(&cx.placement, key) else {
            return false;
        };
        kind.policy().target(&cx.placement, key).is_some()
            && cx.placement.groups().has(key.0)
            && self.wait(self.class(cx, kind, key.0), key)
    }

    /// How urgently a column of a group should move that does not move yet. With one that is being filled, a group that has
    /// lost two has redundancy again, and the second is no more urgent than those of groups that have lost one.
    fn class(&self, cx: &Context, kind: Kind, group: GroupId) -> Class {
        let is_lost = |&key: &Key| cx.placement.place(key).is_none() && !self.is_under_way(key);
        Class::new(kind, || {
            if self.equal {
                return 1;
            }
            let keys = cx.placement.columns().map(|column| (group, column));
            keys.filter(is_lost).count()
        })
    }
}

/// What lanes report.
impl Fills {
    /// A fill has taken a step.
    pub(super) fn lane_stepped(&mut self, cx: &Context, key: Key, bytes: u64) {
        let lane = cx.geometry.lane_of(key.0);
        self.stepped((cx.now, lane), key, bytes, cx.geometry.plane_bytes());
    }

    /// A step of a fill has read and verified so much.
    pub(super) fn lane_verified(&mut self, read_bytes: u64, blocks: u64) {
        self.progress.read_bytes += read_bytes;
        self.progress.verified_bytes += blocks * block::BLOCK_BYTES;
    }

    /// A lane has filled a cell: it is recorded before anything depends on it.
    pub(super) fn lane_filled(
        &mut self,
        cx: &mut Context,
        key: Key,
        target: Cell,
        copied_bytes: u64,
    ) -> AfterFill {
        let Some(fill) = self.end(key) else {
            return AfterFill::Done;
        };
        if fill.superseded {
            self.over(cx, key, target);
            return AfterFill::Done;
        }
        self.progress.copied_bytes += copied_bytes;
        if fill.kind.policy().end() == MoveEnd::OnSuccessor {
            return AfterFill::OnSuccessor(key, target);
        }
        if cx.placement.held_before(key, target).is_some() {
            self.progress
                .caught_up(&fill.sources, target.seat, copied_bytes);
            cx.placement.note_return(target.seat, copied_bytes);
        }
        self.write_record(cx, key, target, true);
        AfterFill::Done
    }

    /// A successor has the column: the move is over.
    pub(super) fn is_on_successor(&mut self, cx: &mut Context, key: Key) {
        self.progress.cells_done += 1;
        // Its home may have come back meanwhile, or a drive is to leave that was not.
        if self.wait_again(cx, key) {
            self.progress.cells_total += 1;
        }
        self.may_have_ended(cx);
    }

    /// A lane could not fill a cell. `stalled`: drives that stay refuse writes. Returns whether the cell is lost for now.
    pub(super) fn lane_failed(
        &mut self,
        cx: &mut Context,
        key: Key,
        target: Cell,
        fault: Fault,
        stalled: bool,
    ) -> bool {
        let Some(fill) = self.end(key) else {
            return false;
        };
        let is_lost = matches!(fault, Fault::Lost | Fault::Medium);
        // If it is outdated, it is tried once more with what is there now.
        let is_lost = is_lost && !fill.outdated;
        if is_lost {
            self.lost(key);
            let (group, column) = key;
            cx.report(Report::CellLost {
                group,
                column,
                cells: 1,
                fault,
            });
        } else if stalled && !fill.outdated {
            // The cell is filled when the drives take writes again.
            self.lost(key);
        }
        self.over(cx, key, target);
        is_lost
    }

    /// A fill failed: its target is free, and the column waits again if it can be filled.
    fn over(&mut self, cx: &mut Context, key: Key, target: Cell) {
        cx.placement.release(key, target);
        self.wait_again(cx, key);
        self.classify_again(cx, key.0);
        self.may_have_ended(cx);
    }

    /// No operation uses the old cell any more, so that cell is free. If membership changed meanwhile, the column may
    /// have to move again: home, if it was filled into spare space when its drive returned.
    pub(super) fn lane_settled(&mut self, cx: &mut Context, key: Key) {
        self.settled(key);
        let page = cx.placement.settled(key);
        cx.write_cell_page(page);
        // With this column, others of the group that could not be reconstructed perhaps can be.
        let others = self.hope_again(key.0);
        for key in others.into_iter().chain([key]) {
            if self.wait_again(cx, key) {
                self.progress.cells_total += 1;
            }
        }
        self.may_have_ended(cx);
    }
}

/// Records.
impl Fills {
    fn write_record(&mut self, cx: &mut Context, key: Key, target: Cell, moves: bool) {
        self.record(key, target, moves);
        let page = cx.placement.record(key, target);
        cx.write_cell_page(page);
    }

    /// Records a column at home that is there, or whose group has no content.
    pub(super) fn record_unmoved_at_home(&mut self, cx: &mut Context, key: Key) {
        let home = cx.placement.home(key);
        cx.placement.claim(key, home);
        self.write_record(cx, key, home, false);
    }

    /// Records a column as if it had been filled at home.
    fn record_at_home(&mut self, cx: &mut Context, key: Key) {
        let home = cx.placement.home(key);
        cx.placement.claim(key, home);
        self.progress.cells_total += 1;
        self.write_record(cx, key, home, true);
    }

    /// A record is durable: the cell is the column's place from now on.
    pub(super) fn settle(&mut self, cx: &mut Context, record: Record) {
        cx.placement.settle(record);
        self.recorded(record.key);
        let (cell, (group, column)) = (record.cell, record.key);
        cx.tell_lane(
            group,
            Command::Settle {
                group,
                column,
                cell,
            },
        );
        self.may_have_ended(cx);
    }

    /// A record could not be written: the column stays where it was, or absent.
    pub(super) fn not_recorded(&mut self, cx: &mut Context, record: Record) {
        if let Some(target) = self.unrecorded(record.key) {
            cx.placement.release(record.key, target);
            abandon(cx, record.key);
        }
    }

    fn may_have_ended(&mut self, cx: &mut Context) {
        if self.is_idle() && self.progress.ended.is_none() {
            self.progress.ended = Some(cx.now);
            // Columns that a returned drive still has are only recorded, and no rebuild of them begins.
            if std::mem::take(&mut self.announced) {
                let cells = self.progress.cells_done;
                cx.report(Report::RebuildEnds { cells });
            }
            self.has_ended = true;
        }
    }

    /// Whether nothing is left to fill since the last call.
    pub(super) const fn take_end(&mut self) -> bool {
        std::mem::replace(&mut self.has_ended, false)
    }

    /// Bytes that the rebuild under way has covered: of cells that are filled, and of those that are being filled.
    pub(super) fn rebuilt_bytes(&self, cell_bytes: u64) -> u64 {
        let Progress {
            cells_done,
            cells_total,
            ..
        } = self.progress;
        let stepped = self.stepped_bytes(cell_bytes);
        (cells_done * cell_bytes + stepped).min(cells_total * cell_bytes)
    }
}

fn abandon(cx: &mut Context, (group, column): Key) {
    cx.tell_lane(group, Command::Abandon { group, column });
}

/// Fills that copy at a time.
fn copying_max(cx: &Context) -> u64 {
    let columns = cx.geometry.layout().columns();
    let needed = columns.saturating_sub(cx.geometry.code().tolerance());
    let step = { cx.geometry.fill_step_bytes() }.min(cx.geometry.plane_bytes());
    let memory = FILL_BYTES_OF_DRIVE * cx.geometry.drives_in_rebuild();
    let memory = memory.clamp(*FILL_BYTES.start(), *FILL_BYTES.end());
    let affordable = memory / (step * u64::from(needed + 1));
    affordable.clamp(*FILLS.start(), *FILLS.end())
}
