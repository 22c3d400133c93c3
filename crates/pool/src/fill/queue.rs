//! Cells that wait to be filled, and their states until they are in place.
//!
//! ```text
//! still ── wait ──► waiting
//! waiting ── begin ──► copying
//! copying ── copied ──► copied
//! copying ── end ──► still
//! copied ── end ──► still
//! still ── record ──► recording
//! recording ── recorded ──► settling
//! recording ── unrecorded ──► still
//! settling ── settled ──► still
//! still ── lost ──► unrecoverable
//! unrecoverable ── hope_again ──► still
//! ```
//!
//! Copying: sources and target have a fill more. Copied: the target has the blocks, and waits for their pages. A fill that has
//! ended is recorded at once, or waits again if it can be filled; else it is unrecoverable. Settling: the lane stops using the
//! old cell.
//!
//! Order: groups that have lost most first, then drives that leave, then copy-back, then replacements; among equals a policy
//! chooses ([`FillOrder`], `order/`).
//!
//! Invariants:
//! - A column is in one state at a time.
//! - `busy` counts a drive once for each fill that copies and reads or writes it.
//! - A fill yields while a more urgent one copies and uses one of its drives: it takes no further step, has no memory,
//!   and does not count for more urgent ones.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use block::{Instant, Seat};
use format::{Column, GroupId};
use layout::Cell;

use super::kind::Kind;
use crate::Progress;
use crate::placement::Key;
use crate::work::Recent;

/// Fills that use one drive at a time, with the longest steps: enough to keep its queue from running dry, though a fill
/// has either reads or a write in flight. In the simulator 13 drives (4+2, first come first served, 200 MB/s) reach 0.96
/// of the bound with 8 and 0.98 with 10; with 12 small reads wait so long that drives become suspect. Disks that seek
/// reach a little more with 11 than with 10, since each has more steps to choose from. While clients send requests it is
/// fewer (`lane/jobs/pace.rs`).
pub(super) const FILLS_PER_DRIVE: u64 = 11;

/// Cells of a class among which the next one is chosen. More than a few hundred gain nothing.
const SCAN_AHEAD: usize = 256;

/// A waiting cell, and the drives that filling it would use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillChoice {
    /// Its group.
    pub group: GroupId,
    /// Its column.
    pub column: Column,
    /// Drives that would be read, and the drive that would be written. Empty if the cell has no place to be filled in
    /// any more: it leaves the queue when it is chosen.
    pub seats: Vec<Seat>,
}

/// The load of the drives: fills under way, and bytes that the rebuild has moved.
#[derive(Clone, Copy, Debug)]
pub struct FillLoads<'a> {
    pub(super) fills: &'a Fills,
    /// Less urgent fills yield to the one that is chosen, and do not count.
    pub(super) urgency: usize,
}

impl FillLoads<'_> {
    /// Fills that read or write a drive now.
    #[must_use]
    pub fn fills(&self, seat: Seat) -> u64 {
        self.fills.busy(seat, self.urgency)
    }

    /// Bytes that this rebuild has read and written on a drive.
    #[must_use]
    pub fn moved_bytes(&self, seat: Seat) -> u64 {
        self.fills.moved(seat)
    }

    /// The most fills that a drive of the cell has now, and the bytes that the cell's drives have moved in all. Most cells
    /// are alike in the first; by the most that one drive has moved they would be nearly so in the second.
    #[must_use]
    pub fn busiest(&self, choice: &FillChoice) -> (u64, u64) {
        let seats = || choice.seats.iter();
        let fills = seats().map(|&seat| self.fills(seat)).max();
        let moved = seats().map(|&seat| self.moved_bytes(seat)).sum();
        (fills.unwrap_or(0), moved)
    }
}

/// A policy: which cell is filled next.
pub trait FillOrder: fmt::Debug + Send + Sync {
    /// The policy's name in simulations.
    fn name(&self) -> &'static str;

    /// The next of the first few hundred waiting cells. They come by address, and their drives have room for one more
    /// fill. `None`: begin none before a fill has ended.
    fn next(
        &self,
        cells: &mut dyn Iterator<Item = FillChoice>,
        drives: FillLoads<'_>,
    ) -> Option<FillChoice>;
}

/// How urgent a move is; smaller ones go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class {
    pub(super) kind: Kind,
    pub(super) urgency: Reverse<usize>,
}

impl Class {
    /// Of a move in a group that has lost so many columns that are not being filled.
    pub(super) fn new(kind: Kind, lost: impl FnOnce() -> usize) -> Self {
        let urgency = if kind.policy().is_urgent() { lost() } else { 0 };
        Self {
            kind,
            urgency: Reverse(urgency),
        }
    }

    /// Which fills yield to which: the columns that its group has lost beside those that are being filled; 0 if the
    /// column is there.
    const fn urgency(self) -> usize {
        self.urgency.0
    }
}

/// How many fills there may be, beside those that yield.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// That copy at a time.
    pub(super) copying: u64,
    /// That use one drive at a time.
    pub(super) per_drive: u64,
}

/// A cell that a lane fills.
#[derive(Clone, Debug)]
pub(super) struct Filling {
    pub(super) kind: Kind,
    target: Cell,
    /// By its class when it began, or when membership last changed.
    urgency: usize,
    /// The lane has the command to take no further step of it.
    yields: bool,
    /// Drives or columns have come back since it began: what it has found lost may be there.
    pub(super) outdated: bool,
    /// Drives that are read.
    pub(super) sources: Vec<Seat>,
    /// Bytes of the column that are at the target.
    stepped_bytes: u64,
    /// The target has its blocks and waits for its pages: the fill is not counted in `busy` any more.
    copied: bool,
    /// The target's drive has gone out. The lane may still report that the cell is filled, when another drive has the
    /// seat already.
    pub(super) superseded: bool,
    /// The lane has the command to abandon it.
    let_go: bool,
}

/// The state of a move whose cell is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    /// Its record is being written.
    Recording {
        target: Cell,
        /// Whether the column moves. One that is recorded where it is counts for no rebuild.
        moves: bool,
    },
    /// The record is durable; the lane has yet to report that every operation uses the new cell.
    Settling,
}

impl Filled {
    /// The new cell, until its record is durable.
    const fn target(self) -> Option<Cell> {
        match self {
            Self::Recording { target, .. } => Some(target),
            Self::Settling => None,
        }
    }

    const fn is_moving(self) -> bool {
        matches!(self, Self::Recording { moves: true, .. })
    }
}

/// Cells to fill and being filled.
#[derive(Clone, Debug)]
pub(crate) struct Fills {
    order: &'static dyn FillOrder,
    waiting: BTreeMap<Class, BTreeSet<Key>>,
    in_flight: BTreeMap<Key, Filling>,
    /// Columns that lanes have filled, until the move is over.
    filled: BTreeMap<Key, Filled>,
    /// Columns that could not be filled; not tried again before membership changes.
    unrecoverable: BTreeSet<Key>,
    /// By drive and urgency.
    busy: BTreeMap<(Seat, usize), u64>,
    pub(crate) progress: Progress,
    /// No new fills: the pool is being closed.
    pub(crate) stopped: bool,
    /// No new fills: an administrator paused them.
    pub(super) paused: bool,
    /// No cell that waits has room on its drives, and nothing that this depends on has changed since.
    exhausted: bool,
    /// All lost columns are equally urgent, however many their groups have lost: only studies want that.
    pub(super) equal: bool,
    /// The beginning of a rebuild was reported, and not its end.
    pub(super) announced: bool,
    /// Nothing is left to fill, and the pool does not know it yet.
    pub(super) has_ended: bool,
    /// Why the last cell was filled.
    last: Option<Kind>,
    /// What was moved of late.
    pub(crate) recent: Recent,
}

impl Fills {
    /// Nothing waits. `order` chooses among the cells that will.
    pub(super) fn new(order: &'static dyn FillOrder) -> Self {
        Self {
            order,
            waiting: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            filled: BTreeMap::new(),
            unrecoverable: BTreeSet::new(),
            busy: BTreeMap::new(),
            progress: Progress::default(),
            stopped: false,
            paused: false,
            exhausted: false,
            equal: false,
            announced: false,
            has_ended: false,
            last: None,
            recent: Recent::default(),
        }
    }
}

/// The state of the cells.
impl Fills {
    pub(crate) fn is_idle(&self) -> bool {
        self.none_waits() && self.in_flight.is_empty() && self.filled.is_empty()
    }

    pub(crate) fn none_waits(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The cells that columns move to, until their records are durable.
    pub(crate) fn targets(&self) -> impl Iterator<Item = (Key, Cell)> + '_ {
        let being_filled = self.in_flight.iter().map(|(&key, fill)| (key, fill.target));
        let filled = self.filled.iter();
        let recording = filled.filter_map(|(&key, filled)| Some((key, filled.target()?)));
        being_filled.chain(recording)
    }

    /// Whether no cell waits and no lane fills one.
    pub(crate) fn none_is_filled(&self) -> bool {
        self.none_waits() && self.in_flight.is_empty()
    }

    /// Whether a lane fills a cell of the group.
    pub(crate) fn is_filling(&self, group: GroupId) -> bool {
        let columns = (group, Column(0))..=(group, Column(u16::MAX));
        let mut filled = self.filled.range(columns.clone());
        self.in_flight.range(columns).next().is_some()
            || filled.any(|(_, filled)| filled.target().is_some())
    }

    /// Cells from the start of their fill to the end of the last operation on the cell that they replace.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len() + self.filled.len()
    }

    /// Why cells are filled: the most urgent reason of those that wait, or that of the last one. `None` if none is.
    pub(crate) fn kind(&self) -> Option<Kind> {
        let waiting = self.waiting.keys().next().map(|class| class.kind);
        let under_way = !self.is_idle();
        { waiting.min(self.last.or(waiting)).or(self.last) }.filter(|_| under_way)
    }

    pub(crate) fn waiting_len(&self) -> usize {
        self.waiting.values().map(BTreeSet::len).sum()
    }

    pub(crate) fn waiting_keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.waiting.values().flatten().copied()
    }

    /// The groups with a column that is being filled, and the bytes of it that are at the target.
    pub(crate) fn stepped_groups(&self) -> impl Iterator<Item = (GroupId, u64)> + '_ {
        let copying = self.in_flight.iter().filter(|(_, fill)| !fill.copied);
        copying.map(|(&(group, _), fill)| (group, fill.stepped_bytes))
    }

    /// Bytes that fills under way have yet to move on each drive.
    pub(crate) fn left_in_flight(&self, cell_bytes: u64) -> BTreeMap<Seat, f64> {
        let mut left: BTreeMap<Seat, f64> = BTreeMap::new();
        for fill in self.in_flight.values().filter(|fill| !fill.copied) {
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let bytes = cell_bytes.saturating_sub(fill.stepped_bytes) as f64;
            for seat in fill.sources.iter().chain([&fill.target.seat]) {
                *left.entry(*seat).or_default() += bytes;
            }
        }
        left
    }

    /// Cells that lanes fill, of those that do not yield to a fill of this urgency.
    fn filling(&self, urgency: usize) -> u64 {
        let fills = self.in_flight.values();
        fills.filter(|fill| fill.urgency >= urgency).count() as u64
    }

    /// The same, of cells that still use their drives.
    fn copying(&self, urgency: usize) -> u64 {
        let fills = self.in_flight.values();
        fills
            .filter(|fill| !fill.copied && fill.urgency >= urgency)
            .count() as u64
    }

    /// Bytes that are at their targets, of cells that do not count as filled yet.
    pub(super) fn stepped_bytes(&self, cell_bytes: u64) -> u64 {
        let copying = self.in_flight.values().map(|fill| fill.stepped_bytes);
        copying.sum::<u64>() + self.recording_moved() * cell_bytes
    }

    /// Columns that have moved and are being recorded.
    fn recording_moved(&self) -> u64 {
        let filled = self.filled.values();
        filled.filter(|filled| filled.is_moving()).count() as u64
    }

    pub(super) fn is_under_way(&self, key: Key) -> bool {
        self.in_flight.contains_key(&key) || self.filled.contains_key(&key)
    }

    pub(super) fn is_unrecoverable(&self, key: Key) -> bool {
        self.unrecoverable.contains(&key)
    }

    /// Fills that read or write a drive, of those that do not yield to a fill of this urgency.
    pub(super) fn busy(&self, seat: Seat, urgency: usize) -> u64 {
        let fills = self.busy.range((seat, urgency)..=(seat, usize::MAX));
        fills.map(|(_, fills)| fills).sum()
    }

    /// Whether a more urgent fill uses a drive of this one.
    fn is_to_yield(&self, fill: &Filling) -> bool {
        let mut seats = fill.sources.iter().chain([&fill.target.seat]);
        seats.any(|&seat| self.busy(seat, fill.urgency + 1) > 0)
    }

    /// Bytes that the rebuild has moved on a drive.
    pub(super) fn moved(&self, seat: Seat) -> u64 {
        self.progress
            .seats
            .get(&seat)
            .map_or(0, |traffic| traffic.read_bytes + traffic.write_bytes)
    }
}

/// The queue.
impl Fills {
    /// Sets the policy.
    pub(super) fn set_order(&mut self, order: &'static dyn FillOrder) {
        self.order = order;
        self.exhausted = false;
    }

    /// [`Fills::next`] has found none.
    pub(super) const fn none_begins(&mut self) {
        self.exhausted = true;
    }

    /// Whether [`Fills::next`] would find none, as nothing has changed since it did: steps, by far the most events, change
    /// nothing that it looks at.
    pub(super) const fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    /// Membership has changed: the queue is built again, and columns that could not be filled may be tried again.
    pub(super) fn rescan(&mut self) {
        self.waiting.clear();
        self.unrecoverable.clear();
        self.exhausted = false;
        for fill in self.in_flight.values_mut() {
            fill.outdated = true;
        }
    }

    /// Empties the queue. Returns the cells that lanes fill.
    pub(super) fn stop(&mut self) -> Vec<Key> {
        self.stopped = true;
        self.waiting.clear();
        self.in_flight.keys().copied().collect()
    }

    /// The fills of a group are not waited for. Returns those that the lane is to abandon.
    pub(super) fn let_go(&mut self, group: GroupId) -> Vec<Key> {
        let columns = (group, Column(0))..=(group, Column(u16::MAX));
        let fills = self.in_flight.range_mut(columns);
        let let_go = fills.filter_map(|(&key, fill)| {
            let before = std::mem::replace(&mut fill.let_go, true);
            (!before).then_some(key)
        });
        let_go.collect()
    }

    /// Queues a column; returns whether it did not wait before.
    pub(super) fn wait(&mut self, class: Class, key: Key) -> bool {
        self.exhausted = false;
        self.waiting.entry(class).or_default().insert(key)
    }

    /// Sets the number of cells that wait, all that there are to fill: a rebuild begins, or the one under way has a new
    /// total.
    pub(super) fn count(&mut self, now: Instant, was_idle: bool, waiting: u64, cell_bytes: u64) {
        // Records that an opening writes keep the queue busy, and no rebuild has begun.
        if was_idle || self.progress.cell_bytes == 0 {
            self.recent.restart();
            self.progress = Progress {
                began: now,
                cell_bytes,
                cells_total: waiting,
                ..Progress::default()
            };
        } else {
            let under_way = self.in_flight.len() as u64 + self.recording_moved();
            self.progress.cells_total = self.progress.cells_done + under_way + waiting;
        }
    }

    /// The cell to fill next: from the most urgent class that has a cell whose drives have room for one more.
    pub(super) fn next(
        &self,
        limits: Limits,
        choice: impl Fn(Key) -> FillChoice,
    ) -> Option<(Class, Key)> {
        self.waiting.iter().find_map(|(&class, keys)| {
            let urgency = class.urgency();
            // As many again may wait for a checkpoint: the pages of these are in memory.
            if self.copying(urgency) >= limits.copying
                || self.filling(urgency) >= 2 * limits.copying
            {
                return None;
            }
            let near = keys.iter().take(SCAN_AHEAD).map(|&key| choice(key));
            // All drives of a cell may have one fill more of this urgency.
            let have_room = |choice: &FillChoice| {
                let mut seats = choice.seats.iter();
                seats.all(|&seat| self.busy(seat, urgency) < limits.per_drive)
            };
            let mut cells = near.filter(have_room);
            let fills = FillLoads {
                fills: self,
                urgency,
            };
            let next = self.order.next(&mut cells, fills)?;
            Some((class, (next.group, next.column)))
        })
    }

    /// A column that waits has another class.
    pub(super) fn wait_as(&mut self, class: Class, key: Key) {
        let waits_as = { self.waiting.iter() }
            .find_map(|(&before, keys)| keys.contains(&key).then_some(before));
        if let Some(before) = waits_as.filter(|&before| before != class) {
            self.take(before, key);
            self.wait(class, key);
        }
    }

    /// A column does not wait any more.
    fn take(&mut self, class: Class, key: Key) {
        self.exhausted = false;
        if let Some(keys) = self.waiting.get_mut(&class) {
            keys.remove(&key);
            if keys.is_empty() {
                self.waiting.remove(&class);
            }
        }
    }
}

/// The states of a fill, in order.
impl Fills {
    /// A column that waited is chosen.
    pub(super) fn choose(&mut self, class: Class, key: Key) {
        self.last = Some(class.kind);
        self.take(class, key);
    }

    /// A lane fills the cell. `bytes` is what each of its drives has to move, as far as known.
    pub(super) fn begin(
        &mut self,
        (class, key): (Class, Key),
        target: Cell,
        sources: Vec<Seat>,
        bytes: u64,
    ) {
        let urgency = class.urgency();
        self.exhausted = false;
        for &seat in sources.iter().chain([&target.seat]) {
            *self.busy.entry((seat, urgency)).or_default() += 1;
        }
        self.progress.caught_up(&sources, target.seat, bytes);
        let filling = Filling {
            kind: class.kind,
            target,
            urgency,
            yields: false,
            outdated: false,
            sources,
            stepped_bytes: 0,
            copied: false,
            superseded: false,
            let_go: false,
        };
        self.in_flight.insert(key, filling);
    }

    /// Another `bytes` bytes are at the target.
    pub(super) fn stepped(
        &mut self,
        (now, lane): (Instant, u16),
        key: Key,
        bytes: u64,
        cell_bytes: u64,
    ) {
        if let Some(fill) = self.in_flight.get_mut(&key) {
            fill.stepped_bytes = (fill.stepped_bytes + bytes).min(cell_bytes);
            let seats = fill.sources.iter().chain([&fill.target.seat]);
            self.recent.stepped(now, lane, seats.copied(), bytes);
        }
    }

    /// The target has its blocks: its drives are free for other fills.
    pub(crate) fn copied(&mut self, key: Key) {
        let Some(fill) = self.in_flight.get_mut(&key) else {
            return;
        };
        if std::mem::replace(&mut fill.copied, true) {
            return;
        }
        let (urgency, seats) = (fill.urgency, seats_of(fill));
        self.leave(urgency, &seats);
    }

    /// A fill of this urgency does not use these drives any more.
    fn leave(&mut self, urgency: usize, seats: &[Seat]) {
        self.exhausted = false;
        for &seat in seats {
            if let Entry::Occupied(mut busy) = self.busy.entry((seat, urgency)) {
                *busy.get_mut() -= 1;
                if *busy.get() == 0 {
                    busy.remove();
                }
            }
        }
    }

    /// The groups of cells that lanes fill.
    pub(super) fn groups_filled(&self) -> BTreeSet<GroupId> {
        self.in_flight.keys().map(|&(group, _)| group).collect()
    }

    /// Columns of the group that lanes fill, the most urgent first.
    pub(super) fn filled_in(&self, group: GroupId) -> Vec<Key> {
        let columns = (group, Column(0))..=(group, Column(u16::MAX));
        let fills = self.in_flight.range(columns);
        let mut fills: Vec<_> = fills
            .map(|(&key, fill)| (Reverse(fill.urgency), key))
            .collect();
        fills.sort_unstable();
        fills.into_iter().map(|(_, key)| key).collect()
    }

    /// Membership has changed: the group of a column that is being filled has lost so many beside others that are.
    pub(super) fn set_urgency(&mut self, key: Key, urgency: usize) {
        let Some(fill) = self.in_flight.get_mut(&key) else {
            return;
        };
        let before = std::mem::replace(&mut fill.urgency, urgency);
        if before == urgency || fill.copied {
            return;
        }
        let seats = seats_of(fill);
        self.leave(before, &seats);
        for seat in seats {
            *self.busy.entry((seat, urgency)).or_default() += 1;
        }
    }

    /// Fills that are to yield from now on, or need not any more.
    pub(super) fn yield_drives(&mut self) -> Vec<(Key, bool)> {
        let copying = || self.in_flight.values().filter(|fill| !fill.copied);
        let first = copying().next();
        let alike = |fill: &Filling| first.is_some_and(|first| fill.urgency == first.urgency);
        if copying().all(|fill| alike(fill) && !fill.yields) {
            return Vec::new();
        }
        let fills = self.in_flight.iter().filter(|(_, fill)| !fill.copied);
        let changes = fills.filter_map(|(&key, fill)| {
            let yields = self.is_to_yield(fill);
            (yields != fill.yields).then_some((key, yields))
        });
        let changes: Vec<_> = changes.collect();
        for (key, yields) in &changes {
            if let Some(fill) = self.in_flight.get_mut(key) {
                fill.yields = *yields;
            }
        }
        changes
    }

    /// The lane has ended the fill, whatever the result.
    pub(super) fn end(&mut self, key: Key) -> Option<Filling> {
        self.copied(key);
        self.exhausted = false;
        self.in_flight.remove(&key)
    }

    /// Blocks were reconstructed and written again.
    pub(crate) fn note_repaired(&mut self, blocks: u64) {
        if !self.is_idle() {
            self.progress.repaired_blocks += blocks;
        }
    }

    /// The cell is filled, and the record of that is being written. A column that does not move is recorded where it is.
    pub(super) fn record(&mut self, key: Key, target: Cell, moves: bool) {
        self.exhausted = false;
        debug_assert!(!self.is_under_way(key), "{key:?} moves already");
        self.filled.insert(key, Filled::Recording { target, moves });
    }

    /// The record could not be written. Returns the cell that the column did not get.
    pub(super) fn unrecorded(&mut self, key: Key) -> Option<Cell> {
        self.exhausted = false;
        let target = self.filled.get(&key)?.target()?;
        self.filled.remove(&key);
        Some(target)
    }

    /// The record is durable.
    pub(super) fn recorded(&mut self, key: Key) {
        self.exhausted = false;
        let before = self.filled.insert(key, Filled::Settling);
        let stays = matches!(before, Some(Filled::Recording { moves: false, .. }));
        self.progress.cells_done += u64::from(!stays);
    }

    /// Every operation of the lane uses the new cell.
    pub(super) fn settled(&mut self, key: Key) {
        self.exhausted = false;
        if self.filled.get(&key) == Some(&Filled::Settling) {
            self.filled.remove(&key);
        }
    }

    /// The column cannot be filled.
    pub(super) fn lost(&mut self, key: Key) {
        self.unrecoverable.insert(key);
        self.progress.cells_lost += 1;
    }

    /// Columns of the group that could not be filled may be tried again. Returns these columns.
    pub(super) fn hope_again(&mut self, group: GroupId) -> Vec<Key> {
        let of_group = (group, Column(0))..=(group, Column(u16::MAX));
        for fill in self.in_flight.range_mut(of_group.clone()) {
            fill.1.outdated = true;
        }
        let keys: Vec<Key> = self.unrecoverable.range(of_group).copied().collect();
        for key in &keys {
            self.unrecoverable.remove(key);
        }
        keys
    }

    /// Fills onto a drive do not count, whatever a lane still reports of them.
    pub(crate) fn superseded(&mut self, seat: Seat) {
        for fill in self.in_flight.values_mut() {
            fill.superseded |= fill.target.seat == seat;
        }
    }
}

/// The drives that a fill uses.
fn seats_of(fill: &Filling) -> Vec<Seat> {
    let seats = fill.sources.iter().copied();
    seats.chain([fill.target.seat]).collect()
}

#[cfg(test)]
mod tests;
