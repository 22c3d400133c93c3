//! The queue of cells to fill: rebuild onto spare cells, onto replacements, and copy-back.
//!
//! Order: groups that have lost most first; among the first few hundred of those, the one whose
//! drives have the least to do. With whole cells as units this keeps nearly all drives busy at
//! once, where going by address keeps busy only those of a few groups. Of the columns that could
//! be read, only as many as the code needs are, those on the drives that have moved least so far.
//! Source: rebuild model of the layouts reference, section 7.2.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use block::{Fault, Instant, Seat};
use layout::Cell;

use super::cells::CellTable;
use super::{Effect, Pool, Progress, Report, SeatState, is_recoverable};
use crate::action::Command;
use crate::format::CellEntry;
use crate::lane::FILL_STEP_BYTES;
use crate::plan::BandPlans;
use crate::seeded::{self, Bug};

/// Cells among which the next one is chosen. Past a few hundred nothing is gained.
const LOOK_AHEAD: usize = 256;
/// Fills that one drive takes part in at a time: enough to keep its queue from running dry, though a fill has
/// either reads or a write in flight. In the simulator 13 drives (4+2, first come first served, 200 MB/s) reach 0.96 of
/// the bound with 8 and 0.98 with 10; with 12 small reads wait so long that drives are suspected. Disks that seek reach a
/// little more with 11 than with 10, since each has more steps to be turned to. While clients ask it is fewer (`lane/pace.rs`).
const FILLS_PER_DRIVE: u64 = 11;
/// Memory of the steps of all fills. On 34 disks of 7,200 rpm (4+1) a rebuild takes 5.7 s with 420 MiB, 4.9 s with
/// 640 MiB, 4.8 s with 760 MiB.
const FILL_BYTES: u64 = 768 << 20;
/// Fills that copy at a time, however wide the code and however small the cells are.
const FILLS: RangeInclusive<u64> = 2..=48;

/// Why a cell is filled; what is listed first goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// The column is absent; the more columns its group has lost, the sooner.
    Rebuild { lost: Reverse<usize> },
    /// The column is on spare space and its home is there again.
    CopyBack,
    /// The column's drive is being replaced.
    Replace,
}

#[derive(Clone, Debug)]
struct InFlight {
    target: Cell,
    sources: Vec<Seat>,
    /// Bytes of the column that are at the target.
    stepped_bytes: u64,
    /// The target has its blocks and waits for its pages: the fill is not counted in `busy` any more.
    copied: bool,
    /// The target's drive has gone out. The lane may not know it yet and say that the cell is filled, when another
    /// drive sits in the seat already.
    in_vain: bool,
}

/// Cells to fill and being filled.
#[derive(Clone, Debug, Default)]
pub(super) struct Fills {
    waiting: BTreeMap<Class, BTreeSet<(u64, u16)>>,
    in_flight: BTreeMap<(u64, u16), InFlight>,
    /// Filled, its record being written.
    recording: BTreeMap<(u64, u16), Cell>,
    /// Settled in a new cell; the old one is free once the lane has no operation on it.
    draining: BTreeMap<(u64, u16), Cell>,
    /// Settled; the lane has not yet said that every operation knows the new cell.
    settling: BTreeSet<(u64, u16)>,
    /// Columns that could not be filled; not tried again before membership changes.
    unrecoverable: BTreeSet<(u64, u16)>,
    /// Seats whose drive takes part by the facts, of which the lanes have not heard: what they
    /// were to write there they would skip. Counted: a drive can come, go and come again meanwhile.
    joining: BTreeMap<Seat, u32>,
    busy: BTreeMap<Seat, u64>,
    progress: Progress,
    /// The lanes say whether their clients ask for something.
    watches_clients: bool,
    /// Those whose clients do.
    asking: BTreeSet<u16>,
    /// Nothing new is filled, for the pool is being closed.
    stopped: bool,
    /// Nothing new is filled, for an administrator said so.
    paused: bool,
}

impl Fills {
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
            && self.in_flight.is_empty()
            && self.recording.is_empty()
            && self.settling.is_empty()
    }

    /// Whether a lane fills a cell of the group.
    pub(super) fn is_filling(&self, group: u64) -> bool {
        let columns = (group, 0)..=(group, u16::MAX);
        self.in_flight.range(columns.clone()).next().is_some()
            || self.recording.range(columns).next().is_some()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len() + self.recording.len() + self.settling.len()
    }

    /// Fills whose drives have something to do for them.
    fn copying(&self) -> u64 {
        self.in_flight.values().filter(|fill| !fill.copied).count() as u64
    }

    /// Bytes that are at their targets, of cells that do not count as filled yet.
    fn stepped_bytes(&self, cell_bytes: u64) -> u64 {
        let copying = self.in_flight.values().map(|fill| fill.stepped_bytes);
        copying.sum::<u64>() + self.recording.len() as u64 * cell_bytes
    }

    fn is_under_way(&self, key: (u64, u16)) -> bool {
        self.in_flight.contains_key(&key)
            || self.recording.contains_key(&key)
            || self.settling.contains(&key)
    }

    fn busy(&self, seat: Seat) -> u64 {
        self.busy.get(&seat).copied().unwrap_or(0)
    }

    fn moved(&self, seat: Seat) -> u64 {
        self.progress
            .seats
            .get(&seat)
            .map_or(0, |traffic| traffic.read_bytes + traffic.write_bytes)
    }
}

impl Pool {
    /// The rebuild under way, or the last one.
    #[must_use]
    pub const fn progress(&self) -> &Progress {
        &self.fills.progress
    }

    /// Bytes that the rebuild under way has gone past: of cells that are filled, and of those that are being filled.
    #[must_use]
    pub fn rebuilt_bytes(&self) -> u64 {
        let cell_bytes = self.geometry.cell_bytes();
        let Progress {
            cells_done,
            cells_total,
            ..
        } = self.fills.progress;
        let stepped = self.fills.stepped_bytes(cell_bytes);
        (cells_done * cell_bytes + stepped).min(cells_total * cell_bytes)
    }

    /// Looks at all groups anew: membership or volumes have changed.
    pub(super) fn requeue_fills(&mut self) {
        let was_idle = self.fills.is_idle();
        self.fills.waiting.clear();
        self.fills.unrecoverable.clear();
        self.replacements_again();
        if self.fills.stopped {
            // Nobody would ever begin them, and the pool would never be quiet again.
            return;
        }
        let groups: Vec<u64> = self.facts.allocated_groups().collect();
        let mut waiting = 0;
        for group in groups {
            let columns = self.geometry.layout().columns();
            let absent: Vec<u16> = (0..columns)
                .filter(|&column| self.source(group, column).is_none())
                .collect();
            let lost = Reverse(absent.len());
            for column in 0..columns {
                let class = if absent.contains(&column) {
                    Class::Rebuild { lost }
                } else if self.is_away(group, column) {
                    Class::CopyBack
                } else if self.successor_cell(group, column).is_some() {
                    Class::Replace
                } else {
                    continue;
                };
                if !self.fills.is_under_way((group, column)) && self.target(group, column).is_some()
                {
                    self.fills
                        .waiting
                        .entry(class)
                        .or_default()
                        .insert((group, column));
                    waiting += 1;
                }
            }
        }
        if waiting == 0 {
            // Of a rebuild under way nothing is left that could be done: its drive went out again.
            if self.fills.progress.cells_total > 0 {
                self.fills_ended();
            }
            return;
        }
        if was_idle {
            self.fills.progress = Progress {
                began: self.now,
                cell_bytes: self.geometry.cell_bytes(),
                cells_total: waiting,
                ..Progress::default()
            };
            self.report(Report::RebuildBegins { cells: waiting });
        } else {
            let progress = &mut self.fills.progress;
            let under_way = self.fills.in_flight.len() + self.fills.recording.len();
            progress.cells_total = progress.cells_done + under_way as u64 + waiting;
        }
    }

    /// Whether a column is elsewhere although its home could take it.
    pub(super) fn is_away(&self, group: u64, column: u16) -> bool {
        let home = self.geometry.layout().cell(group, column);
        self.facts.seats[home.seat.index()].state.takes_part()
            && self.source(group, column).is_some_and(|cell| cell != home)
    }

    /// Where a column should be filled: its home if a drive is there, else a free spare cell of
    /// the home's row. Nowhere while the home's drive is joining; the queue is made anew after that.
    fn target(&self, group: u64, column: u16) -> Option<Cell> {
        let layout = self.geometry.layout();
        let home = layout.cell(group, column);
        let successor = self.successor_cell(group, column);
        if successor.is_some() && !self.is_away(group, column) {
            return successor;
        }
        if self.facts.seats[home.seat.index()].state.takes_part() {
            let joined = !self.fills.joining.contains_key(&home.seat);
            return (joined || seeded::is(Bug::FillBeforeJoined)).then_some(home);
        }
        // Its drive comes back: what it holds is not rebuilt meanwhile.
        if self.is_away_for_a_while(home.seat) {
            return None;
        }
        // Never two columns of a group on one drive.
        let neighbours: Vec<Seat> = (0..layout.columns())
            .filter(|&other| other != column)
            .flat_map(|other| {
                let home = layout.cell(group, other).seat;
                [Some(home), self.source(group, other).map(|at| at.seat)]
            })
            .flatten()
            .collect();
        let out = |seat: Seat| {
            !self.facts.seats[seat.index()].state.takes_part()
                || self.fills.joining.contains_key(&seat)
                || neighbours.contains(&seat)
        };
        layout.spare_for(group, column, &out, &|cell| self.taken.contains_key(&cell))
    }

    /// While something is filled or scrubbed the lanes say whether their clients ask: all make way for those of any.
    pub(super) fn watch_clients(&mut self) {
        let fills = !self.fills.in_flight.is_empty() || !self.fills.waiting.is_empty();
        let works = fills || self.is_scrubbing();
        if std::mem::replace(&mut self.fills.watches_clients, works) != works {
            self.fills.asking.clear();
            self.tell_lanes(&Command::ReportClients(works));
        }
    }

    /// A lane's clients have begun to ask, or have asked for nothing for a while.
    pub(super) fn clients_ask(&mut self, lane: u16, ask: bool) {
        if !self.fills.watches_clients {
            // It was said before the lane knew that nobody wants to hear it.
            return;
        }
        let asked = !self.fills.asking.is_empty();
        match ask {
            true => self.fills.asking.insert(lane),
            false => self.fills.asking.remove(&lane),
        };
        let asks = !self.fills.asking.is_empty();
        if asks != asked {
            self.tell_lanes(&Command::MakeWay(asks));
        }
    }

    /// Starts as many fills as the drives can take.
    pub(super) fn pump_fills(&mut self) {
        // Before the first fill: it may have to make way.
        self.watch_clients();
        self.begin_fills();
        self.watch_clients();
    }

    fn begin_fills(&mut self) {
        // Before the lanes have read their journals, what is in place is not yet the truth.
        if self.fills.stopped || self.fills.paused || !self.recovered {
            return;
        }
        let most = self.fills_max();
        // As many again may wait for a checkpoint: the pages of these are in memory.
        while self.fills.copying() < most
            && (self.fills.in_flight.len() as u64) < 2 * most
            && let Some((class, key)) = self.choose_fill()
        {
            self.remove_waiting(class, key);
            self.start_fill(key);
        }
    }

    /// Fills that copy at a time.
    fn fills_max(&self) -> u64 {
        let columns = self.geometry.layout().columns();
        let needed = columns.saturating_sub(self.geometry.code().tolerance());
        let step = FILL_STEP_BYTES.min(self.geometry.cell_bytes());
        let affordable = FILL_BYTES / (step * u64::from(needed + 1));
        affordable.clamp(*FILLS.start(), *FILLS.end())
    }

    fn remove_waiting(&mut self, class: Class, key: (u64, u16)) {
        if let Some(keys) = self.fills.waiting.get_mut(&class) {
            keys.remove(&key);
            if keys.is_empty() {
                self.fills.waiting.remove(&class);
            }
        }
    }

    /// The waiting cell whose drives are least busy, most urgent class first.
    fn choose_fill(&self) -> Option<(Class, (u64, u16))> {
        self.fills.waiting.iter().find_map(|(&class, keys)| {
            keys.iter()
                .take(LOOK_AHEAD)
                .filter_map(|&key| {
                    let Some(target) = self.target(key.0, key.1) else {
                        // Another column took the spare cell; `start_fill` drops it.
                        return Some(((0, 0), key));
                    };
                    let seats = self.fill_sources(key.0, key.1).0;
                    let seats = || seats.iter().chain([&target.seat]);
                    let busiest = seats().map(|&seat| self.fills.busy(seat)).max()?;
                    let moved = seats().map(|&seat| self.fills.moved(seat)).max()?;
                    (busiest < FILLS_PER_DRIVE).then_some(((busiest, moved), key))
                })
                .min()
                .map(|(_, key)| (class, key))
        })
    }

    /// The drives that a fill should read, and the columns that it should spare.
    fn fill_sources(&self, group: u64, column: u16) -> (Vec<Seat>, Vec<u16>) {
        if let Some(cell) = self.source(group, column) {
            return (vec![cell.seat], Vec::new());
        }
        let layout = self.geometry.layout();
        let mut readable: Vec<(u64, u64, u16, Seat)> = (0..layout.columns())
            .filter_map(|other| {
                let seat = self.source(group, other)?.seat;
                Some((self.fills.busy(seat), self.fills.moved(seat), other, seat))
            })
            .collect();
        readable.sort_unstable_by_key(|&(busy, moved, other, _)| (moved, busy, other));
        let code = self.geometry.code();
        // A code of several rows recovers a column from fewer elements when it may read a little of
        // every other column (hybrid recovery), so none is spared.
        let needed = if code.rows() > 1 {
            readable.len()
        } else {
            usize::from(layout.columns().saturating_sub(code.tolerance())).max(1)
        };
        let spared = readable.split_off(needed.min(readable.len()));
        (
            readable.into_iter().map(|(.., seat)| seat).collect(),
            spared.into_iter().map(|(_, _, other, _)| other).collect(),
        )
    }

    fn start_fill(&mut self, (group, column): (u64, u16)) {
        let Some(target) = self.target(group, column) else {
            return;
        };
        self.moves_on((group, column), target);
        let (sources, avoid) = self.fill_sources(group, column);
        let holds = self.held_before(group, column, target);
        // Of what a drive has already it is not known before how much is left to move.
        let cell_bytes = match holds {
            Some(_) => 0,
            None => self.geometry.cell_bytes(),
        };
        for &seat in &sources {
            *self.fills.busy.entry(seat).or_default() += 1;
            self.fills
                .progress
                .seats
                .entry(seat)
                .or_default()
                .read_bytes += cell_bytes;
        }
        *self.fills.busy.entry(target.seat).or_default() += 1;
        self.fills
            .progress
            .seats
            .entry(target.seat)
            .or_default()
            .write_bytes += cell_bytes;
        self.taken.insert(target, (group, column));
        self.fills.in_flight.insert(
            (group, column),
            InFlight {
                target,
                sources,
                stepped_bytes: 0,
                copied: false,
                in_vain: false,
            },
        );
        self.tell_lane(
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
        if let Some(fill) = self.fills.in_flight.get_mut(&(group, column)) {
            fill.stepped_bytes = (fill.stepped_bytes + bytes).min(self.geometry.cell_bytes());
        }
    }

    /// A fill's target has its blocks: its drives are free for other fills.
    pub(super) fn fill_copied(&mut self, group: u64, column: u16) {
        let Some(fill) = self.fills.in_flight.get_mut(&(group, column)) else {
            return;
        };
        if std::mem::replace(&mut fill.copied, true) {
            return;
        }
        for seat in fill.sources.iter().chain([&fill.target.seat]) {
            if let Some(busy) = self.fills.busy.get_mut(seat) {
                *busy -= 1;
            }
        }
    }

    fn fill_off_drives(&mut self, key: (u64, u16)) -> Option<InFlight> {
        self.fill_copied(key.0, key.1);
        self.fills.in_flight.remove(&key)
    }

    /// A lane has filled a cell: record it before anything depends on it.
    pub(super) fn filled(&mut self, group: u64, column: u16, target: Cell, copied_bytes: u64) {
        let Some(fill) = self.fill_off_drives((group, column)) else {
            return;
        };
        if fill.in_vain {
            self.fill_over(group, column, target);
            return;
        }
        self.fills.progress.copied_bytes += copied_bytes;
        if self.replacements.contains_key(&target.seat) {
            self.successor_has((group, column), target);
            self.fills.progress.cells_done += 1;
            self.fills_ended();
            return;
        }
        if self.held_before(group, column, target).is_some() {
            self.fills
                .progress
                .caught_up(&fill.sources, target.seat, copied_bytes);
            self.note_return(target.seat, copied_bytes);
        }
        self.record_fill((group, column), target);
    }

    fn record_fill(&mut self, (group, column): (u64, u16), target: Cell) {
        self.fills.recording.insert((group, column), target);
        let generation = self.next_cell_generation;
        self.next_cell_generation += 1;
        let entry = CellEntry {
            group,
            column,
            generation,
        };
        let effect = Effect::Settle {
            group,
            column,
            cell: target,
            generation,
        };
        self.write_entry(target, Some(entry), vec![effect]);
    }

    /// Columns are in their home cells on a drive that is back: recorded as if they had been filled.
    pub(super) fn readmit(&mut self, seat: Seat, columns: Vec<(u64, u16)>) {
        if self.facts.seats[seat.index()].state != SeatState::Filling {
            return;
        }
        for (group, column) in columns {
            let key = (group, column);
            let home = self.geometry.layout().cell(group, column);
            let known = self.facts.allocated_groups().any(|other| other == group);
            if !known
                || self.source(group, column).is_some()
                || self.fills.is_under_way(key)
                || self.taken.contains_key(&home)
            {
                continue;
            }
            self.taken.insert(home, key);
            self.fills.progress.cells_total += 1;
            self.note_return(seat, 0);
            self.record_fill(key, home);
        }
    }

    /// The record is durable: the cell is the column's place from now on.
    pub(super) fn settle(&mut self, group: u64, column: u16, cell: Cell, generation: u32) {
        let key = (group, column);
        self.fills.recording.remove(&key);
        if let Some((old, _)) = self.places.insert(key, (cell, generation)) {
            self.fills.draining.insert(key, old);
        }
        self.fills.settling.insert(key);
        self.fills.progress.cells_done += 1;
        self.tell_lane(
            group,
            Command::Settle {
                group,
                column,
                cell,
            },
        );
        self.fills_ended();
    }

    /// No operation knows the old cell any more: it is free. Where membership changed meanwhile,
    /// the column may have to move on: home, if it was filled into spare space when its drive came
    /// back.
    pub(super) fn settled(&mut self, group: u64, column: u16) {
        let key = (group, column);
        self.fills.settling.remove(&key);
        if let Some(old) = self.fills.draining.remove(&(group, column)) {
            self.taken.remove(&old);
            if self.tables.contains_key(&old.seat) {
                self.write_entry(old, None, vec![Effect::Cleared]);
            }
        }
        // With this column others of the group may be reconstructed that could not be.
        let others = self.fills.unrecoverable.iter().copied();
        let others: Vec<(u64, u16)> = others.filter(|other| other.0 == group).collect();
        for key in others.into_iter().chain([key]) {
            self.fills.unrecoverable.remove(&key);
            if self.wait_again(key) {
                self.fills.progress.cells_total += 1;
            }
        }
        self.fills_ended();
    }

    /// The record could not be written: the column stays where it was, or absent.
    pub(super) fn fill_unrecorded(&mut self, group: u64, column: u16) {
        if let Some(target) = self.fills.recording.remove(&(group, column)) {
            self.taken.remove(&target);
            self.tell_lane(group, Command::Abandon { group, column });
        }
    }

    pub(super) fn fill_failed(&mut self, group: u64, column: u16, target: Cell, fault: Fault) {
        if self.fill_off_drives((group, column)).is_none() {
            return;
        }
        if fault == Fault::Lost || fault == Fault::Medium {
            self.fills.unrecoverable.insert((group, column));
            self.fills.progress.cells_lost += 1;
            self.report(Report::CellLost {
                group,
                column,
                cells: 1,
                fault,
            });
        }
        self.fill_over(group, column, target);
    }

    /// A fill came to nothing; its target is free, and it waits again if there is hope.
    fn fill_over(&mut self, group: u64, column: u16, target: Cell) {
        self.taken.remove(&target);
        self.wait_again((group, column));
        self.fills_ended();
    }

    /// Queues a column that is not under way, if it is not where it should be and there is hope;
    /// whether it was queued.
    fn wait_again(&mut self, key: (u64, u16)) -> bool {
        let (group, column) = key;
        let absent = self.source(group, column).is_none();
        let away = self.is_away(group, column);
        if self.fills.stopped
            || self.fills.unrecoverable.contains(&key)
            || !(absent || away || self.successor_cell(group, column).is_some())
            || self.target(group, column).is_none()
            || !self.facts.allocated_groups().any(|other| other == group)
        {
            return false;
        }
        let class = if absent {
            let lost = (0..self.geometry.layout().columns())
                .filter(|&other| self.source(group, other).is_none())
                .count();
            Class::Rebuild {
                lost: Reverse(lost),
            }
        } else if away {
            Class::CopyBack
        } else {
            Class::Replace
        };
        self.fills.waiting.entry(class).or_default().insert(key)
    }

    fn fills_ended(&mut self) {
        if self.fills.is_idle() && self.fills.progress.ended.is_none() {
            self.fills.progress.ended = Some(self.now);
            let cells = self.fills.progress.cells_done;
            self.report(Report::RebuildEnds { cells });
            self.mend_wounded();
        }
    }

    /// Seats whose every allocated column is at home become current.
    pub(super) fn complete_seats(&mut self) {
        // What is being made blank belongs to volumes soon, and may have a column to fill.
        let makes_blank = !self.initialization.is_idle() || !self.new_volumes.is_empty();
        if !self.fills.waiting.is_empty() || self.closing.is_some() || makes_blank {
            return;
        }
        let filling: Vec<Seat> = self
            .facts
            .seats()
            .filter(|(_, facts)| facts.state == SeatState::Filling)
            .map(|(seat, _)| seat)
            .collect();
        for seat in filling {
            let away = self.facts.allocated_groups().any(|group| {
                (0..self.geometry.layout().columns()).any(|column| {
                    let home = self.geometry.layout().cell(group, column);
                    home.seat == seat
                        && (self.source(group, column) != Some(home)
                            || self.fills.draining.contains_key(&(group, column)))
                })
            });
            let clearing = self.tables.values().any(CellTable::is_writing);
            if away || clearing {
                continue;
            }
            self.facts.seats[seat.index()].state = SeatState::Current;
            self.facts.seats[seat.index()].holds = None;
            let caught_up = self.return_ends(seat);
            let geometry = std::sync::Arc::clone(&self.geometry);
            self.places.retain(|&(group, column), &mut (cell, _)| {
                let home = geometry.layout().cell(group, column);
                home.seat != seat || cell != home
            });
            self.taken.retain(|cell, _| {
                cell.seat != seat
                    || !matches!(geometry.layout().role(*cell), layout::Role::Column { .. })
            });
            let mut effects = vec![Effect::Lanes(Command::SeatCurrent(seat))];
            effects.extend(caught_up.map(Effect::Report));
            effects.push(Effect::Report(Report::SeatComplete { seat }));
            // Spare cells that its columns had are free for others, and what could not be
            // reconstructed before perhaps can be.
            effects.push(Effect::Requeue);
            self.commit(effects);
        }
    }

    /// Holds the rebuild (cells under way are finished) or lets it go on. A rebuild that is held
    /// before its first cell counts as begun when it is let go.
    pub fn pause_fills(&mut self, now: Instant, paused: bool) {
        self.now = now;
        let untouched = self.fills.progress.cells_done == 0 && self.fills.in_flight() == 0;
        if self.fills.paused && !paused && untouched {
            self.fills.progress.began = now;
        }
        self.fills.paused = paused;
        self.advance();
    }

    /// Whether no cell waits to be filled or is being filled.
    pub(super) fn none_is_filled(&self) -> bool {
        self.fills.waiting.is_empty() && self.fills.in_flight.is_empty()
    }

    /// What was being filled on a drive comes to nothing, whatever a lane says of it yet.
    pub(super) fn fills_in_vain(&mut self, seat: Seat) {
        for fill in self.fills.in_flight.values_mut() {
            fill.in_vain |= fill.target.seat == seat;
        }
    }

    /// Whether nothing new is filled, for the pool is being closed or has been.
    pub(super) const fn fills_are_stopped(&self) -> bool {
        self.fills.stopped
    }

    /// Nothing new is filled, and what is under way is given up.
    pub(super) fn stop_fills(&mut self) {
        self.fills.stopped = true;
        self.fills.waiting.clear();
        let keys: Vec<(u64, u16)> = self.fills.in_flight.keys().copied().collect();
        for (group, column) in keys {
            self.tell_lane(group, Command::Abandon { group, column });
        }
    }

    /// The facts, not yet durable, say that the seat's drive takes part.
    pub(super) fn seat_joins(&mut self, seat: Seat) {
        *self.fills.joining.entry(seat).or_default() += 1;
    }

    /// Whether the lanes have yet to hear that the seat's drive takes part.
    pub(super) fn joins(&self, seat: Seat) -> bool {
        self.fills.joining.contains_key(&seat)
    }

    /// The lanes hear that the seat's drive takes part.
    pub(super) fn seat_joined(&mut self, seat: Seat) {
        // At opening the lanes hear of drives that had joined before.
        if let Some(count) = self.fills.joining.get_mut(&seat) {
            *count -= 1;
            if *count == 0 {
                self.fills.joining.remove(&seat);
            }
        }
    }

    /// A drive is out: what was being filled there fails by itself; what was recorded there is gone.
    pub(super) fn fills_lost_seat(&mut self, seat: Seat) {
        self.places.retain(|_, &mut (cell, _)| cell.seat != seat);
        self.taken.retain(|cell, _| cell.seat != seat);
        self.fills.draining.retain(|_, cell| cell.seat != seat);
        for fill in self.fills.in_flight.values_mut() {
            fill.in_vain |= fill.target.seat == seat;
        }
    }

    /// Columns of volumes that are nowhere.
    #[must_use]
    pub fn absent_columns(&self) -> u64 {
        let columns = self.geometry.layout().columns();
        self.facts
            .allocated_groups()
            .map(|group| {
                let absent = (0..columns).filter(|&column| self.source(group, column).is_none());
                absent.count() as u64
            })
            .sum()
    }

    /// Drives that may fail at once from now on, whichever they are, so that everything can be read still.
    #[must_use]
    pub fn survives_drives(&self) -> u16 {
        let columns = self.geometry.layout().columns();
        let absent = |group| {
            let absent = (0..columns).filter(|&column| self.source(group, column).is_none());
            u16::try_from(absent.count()).unwrap_or(u16::MAX)
        };
        let out = || {
            let out =
                |seat: &Seat| matches!(self.facts.seats[seat.index()].state, SeatState::Out { .. });
            let out = self.layout_seats().filter(out).count();
            let out = u16::try_from(out).unwrap_or(u16::MAX);
            out.saturating_sub(self.geometry.layout().spares())
        };
        let lost = self.facts.allocated_groups().map(absent).max();
        let lost = lost.unwrap_or_else(out);
        self.geometry.code().tolerance().saturating_sub(lost)
    }

    /// Groups of volumes whose data cannot be read as a whole any more.
    #[must_use]
    pub fn lost_groups(&self) -> u64 {
        let mut plans = BandPlans::default();
        let groups = self.facts.allocated_groups();
        groups
            .filter(|&group| self.is_lost(group, &mut plans))
            .count() as u64
    }

    /// Whether the group's data cannot be read as a whole any more.
    pub(super) fn is_lost(&self, group: u64, plans: &mut BandPlans) -> bool {
        let tolerance = usize::from(self.geometry.code().tolerance());
        let columns = usize::from(self.geometry.layout().columns());
        let readable = self.readable_columns(group, &[]);
        // Mirrors can lose many columns of a group, so the count alone condemns nobody.
        columns - readable.len() > tolerance
            && !is_recoverable(&self.geometry, plans, group, &readable)
    }

    /// When the rebuild began and ended, for reports.
    #[must_use]
    pub const fn rebuild_times(&self) -> (Instant, Option<Instant>) {
        (self.fills.progress.began, self.fills.progress.ended)
    }
}
