//! Rebuilds the cells of a failed drive, step by step, onto spare cells or a fresh drive.
//!
//! ```text
//!   lost cells ──► begun cells ──► steps: lock the stripes, read survivors, compute, write ──► cell done: reads find it
//!              which cell next           which columns are read
//! ```
//!
//! Foreground writes to a cell whose rebuild has begun go to its target too, as in the pool.
//!
//! Which cell is next is a policy ([`CellOrder`]); how many columns a step reads is another ([`ReadColumns`]):
//!
//! - `lba`: the cells from the first row on. The next cell begins when all steps of the last one have been submitted; a
//!   window of steps is in flight. With all survivors read this is dRAID's sequential resilver.
//! - `least-queued`: a number of cells at the same time, each with a number of steps in flight. Of the next cells in
//!   order, the one begins whose drives have the least queued. With only the needed columns read this is our own
//!   rebuild queue.

mod lba;
mod least_queued;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::ops::Range;

use array::format::{Column, Form, GroupId, StripeId};
use array::plan::{AllOnDrive, Scratch, Stripe, plan_fill};
use array::view::ColumnState;
use array::{IoKind, ScratchId};
use block::{BLOCK_BYTES, Instant, Outcome, Seat};
use layout::Cell;

use self::lba::Lba;
use self::least_queued::LeastQueued;
use super::operation::DriveIo;
use super::{PlainArray, Timer};
use crate::model::transfer_ns;

/// Which cell is rebuilt next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellOrder {
    /// From the first row on.
    Lba {
        /// Steps in flight.
        window: usize,
    },
    /// The cell whose drives have the least queued.
    LeastQueued {
        /// Cells at the same time.
        cells: usize,
        /// Steps in flight of each cell.
        steps: usize,
    },
}

/// Which columns of a group a step reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadColumns {
    /// All that are left, as dRAID.
    All,
    /// As many as the code needs, without those whose drives have the most to do.
    Needed,
}

/// How a drive is rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebuildOptions {
    /// Which cell is next.
    pub order: CellOrder,
    /// Bytes of a column per step, rounded down to whole stripes, at least one.
    pub step_bytes: u64,
    /// Which columns are read.
    pub read: ReadColumns,
    /// Maximum rate of all writes to targets, in bytes per second; 0 is no limit.
    pub bytes_per_second_max: u64,
}

impl RebuildOptions {
    /// As dRAID: in order of address, a window of 1 MiB steps, all survivors read.
    #[must_use]
    pub const fn draid(window: usize) -> Self {
        Self {
            order: CellOrder::Lba { window },
            step_bytes: 1 << 20,
            read: ReadColumns::All,
            bytes_per_second_max: 0,
        }
    }

    /// As our own queue: whole cells whose drives have the least queued, only the needed columns read.
    #[must_use]
    pub const fn ours(cells: usize) -> Self {
        Self {
            order: CellOrder::LeastQueued { cells, steps: 2 },
            step_bytes: 4 << 20,
            read: ReadColumns::Needed,
            bytes_per_second_max: 0,
        }
    }
}

/// A cell that is being rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begun {
    group: GroupId,
    column: Column,
    target: Cell,
    next_stripe: StripeId,
    in_flight: usize,
}

/// What the rebuild does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Takes a step of a cell that has begun.
    Step(usize),
    /// Begins the lost cell at this place in the queue.
    Begin(usize),
}

/// A policy: which cell is next.
trait Choose: Debug {
    fn next(&self, rebuild: &Rebuild, queued: &dyn Fn(GroupId, Column) -> usize) -> Option<Next>;
}

impl CellOrder {
    fn next(self, rebuild: &Rebuild, queued: &dyn Fn(GroupId, Column) -> usize) -> Option<Next> {
        match self {
            Self::Lba { window } => Lba { window }.next(rebuild, queued),
            Self::LeastQueued { cells, steps } => {
                LeastQueued { cells, steps }.next(rebuild, queued)
            }
        }
    }
}

/// A rebuild, under way or ended.
#[derive(Clone, Debug)]
pub struct Rebuild {
    options: RebuildOptions,
    stripes_per_group: u64,
    step_stripes: u64,
    /// Groups and columns that are lost and whose rebuild has not begun.
    lost: VecDeque<(GroupId, Column)>,
    begun: BTreeMap<usize, Begun>,
    next_key: usize,
    in_flight: usize,
    /// Spare cells that are in use.
    taken: BTreeSet<Cell>,
    /// Bytes that each seat was asked to read, to balance the reads.
    asked: Vec<u64>,
    /// Limit of the rate: no step begins before this time.
    next_step_at: u64,
    cells: u64,
    unrecoverable: u64,
    written_bytes: u64,
    read_bytes: u64,
    began: Instant,
    ended: Option<Instant>,
}

impl Rebuild {
    /// When it began.
    #[must_use]
    pub const fn began(&self) -> Instant {
        self.began
    }

    /// When the last cell was done; `None` while it is under way.
    #[must_use]
    pub const fn ended(&self) -> Option<Instant> {
        self.ended
    }

    /// Cells that have been restored.
    #[must_use]
    pub const fn cells(&self) -> u64 {
        self.cells
    }

    /// Cells of groups that lost more than the code survives, and those for which no spare cell was left.
    #[must_use]
    pub const fn unrecoverable(&self) -> u64 {
        self.unrecoverable
    }

    /// Bytes written to targets.
    #[must_use]
    pub const fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Bytes read from survivors.
    #[must_use]
    pub const fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Bytes per second written, up to `now` or the end of the rebuild.
    #[must_use]
    pub fn bytes_per_second(&self, now: Instant) -> u64 {
        let taken = self
            .ended
            .unwrap_or(now)
            .since(self.began)
            .as_nanos()
            .max(1);
        let rate = u128::from(self.written_bytes) * 1_000_000_000 / taken;
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    fn has_steps(&self, begun: &Begun) -> bool {
        begun.next_stripe < StripeId(self.stripes_per_group)
    }
}

impl PlainArray {
    /// Begins to rebuild all lost cells of seats that are out or have fresh drives.
    ///
    /// # Panics
    /// When a rebuild is under way.
    pub fn begin_rebuild(&mut self, now: Instant, options: RebuildOptions) {
        let under_way = self.rebuild.as_ref().is_some_and(|old| old.ended.is_none());
        assert!(!under_way, "one rebuild at a time");
        self.begin(now);
        let geometry = &self.geometry;
        // The bytes of a stripe in each column.
        let slot_bytes = geometry.chunk_bytes() * u64::from(geometry.code().rows());
        let taken = match self.rebuild.take() {
            Some(old) => old.taken,
            None => BTreeSet::new(),
        };
        let mut rebuild = Rebuild {
            options,
            stripes_per_group: geometry.stripes_per_group(),
            step_stripes: (options.step_bytes / slot_bytes).max(1),
            lost: VecDeque::new(),
            begun: BTreeMap::new(),
            next_key: 0,
            in_flight: 0,
            taken,
            asked: vec![0; usize::from(self.seats())],
            next_step_at: self.now,
            cells: 0,
            unrecoverable: 0,
            written_bytes: 0,
            read_bytes: 0,
            began: now,
            ended: None,
        };
        rebuild.lost = (0..self.seats())
            .flat_map(|seat| self.lost_cells(Seat(seat)))
            .collect();
        self.rebuild = Some(rebuild);
        self.order_lost();
        self.step_rebuild();
    }

    /// Columns whose home is on a seat and that cannot be read anywhere.
    pub(super) fn lost_cells(&self, seat: Seat) -> Vec<(GroupId, Column)> {
        if !self.view.is_out(seat) && self.whole {
            return Vec::new();
        }
        (0..self.geometry.rows())
            .filter_map(|row| self.geometry.column_at(Cell { seat, row }))
            .filter(|&(group, _)| group.0 < self.used_groups)
            .filter(|&(group, column)| !self.view.column(&self.geometry, group, column).readable())
            .collect()
    }

    /// Groups with the least redundancy first, then in order of address.
    fn order_lost(&mut self) {
        let Some(rebuild) = &self.rebuild else {
            return;
        };
        let mut lost: Vec<(GroupId, Column)> = rebuild.lost.iter().copied().collect();
        lost.sort_unstable();
        lost.dedup();
        let mut missing = BTreeMap::<GroupId, usize>::new();
        for &(group, _) in &lost {
            *missing.entry(group).or_default() += 1;
        }
        lost.sort_by_key(|&(group, column)| (std::cmp::Reverse(missing[&group]), group, column));
        if let Some(rebuild) = &mut self.rebuild {
            rebuild.lost = lost.into();
        }
    }

    /// A drive has failed, perhaps during a rebuild. The cells that were rebuilt onto it get another target, and the
    /// cells on it are lost too.
    pub(super) fn rebuild_lost_seat(&mut self, seat: Seat) {
        let more = self.lost_cells(seat);
        let Some(rebuild) = &mut self.rebuild else {
            return;
        };
        if rebuild.ended.is_some() {
            return;
        }
        let there = |begun: &Begun| begun.target.seat == seat;
        for begun in rebuild.begun.values_mut().filter(|begun| there(begun)) {
            // The steps in flight end and find no cell. The cell begins again with another target.
            rebuild.lost.push_back((begun.group, begun.column));
        }
        rebuild.begun.retain(|_, begun| !there(begun));
        rebuild.lost.extend(more);
        self.order_lost();
        self.step_rebuild();
    }

    /// Submits as many steps as the policy allows in flight.
    pub(super) fn step_rebuild(&mut self) {
        loop {
            let Some(rebuild) = &self.rebuild else {
                return;
            };
            if rebuild.ended.is_some() {
                return;
            }
            if rebuild.lost.is_empty() && rebuild.begun.is_empty() && rebuild.in_flight == 0 {
                self.end_rebuild();
                return;
            }
            if rebuild.next_step_at > self.now {
                let at = rebuild.next_step_at;
                self.set_timer(at, Timer::Rebuild);
                return;
            }
            let queued = |group, column| self.queued_for(group, column);
            match rebuild.options.order.next(rebuild, &queued) {
                None => return,
                Some(Next::Begin(index)) => self.begin_cell(index),
                Some(Next::Step(key)) => self.begin_step(key),
            }
        }
    }

    /// Operations queued at the busiest drive of those from which a lost column is rebuilt.
    fn queued_for(&self, group: GroupId, column: Column) -> usize {
        let geometry = &self.geometry;
        let others = geometry.columns().filter(|&other| other != column);
        let seats = others.map(|other| geometry.home(group, other).seat);
        seats.map(|seat| self.queued(seat)).max().unwrap_or(0)
    }

    fn begin_cell(&mut self, index: usize) {
        let rebuild = self.rebuild.as_mut().expect("one is under way");
        let (group, column) = rebuild.lost.remove(index).expect("the policy's choice");
        let layout = self.geometry.layout();
        let home = self.geometry.home(group, column);
        let out = |seat| self.view.is_out(seat);
        let taken = |cell: Cell| rebuild.taken.contains(&cell);
        let target = if out(home.seat) {
            layout.spare_for(group.0, column.0, &out, &taken)
        } else {
            Some(home)
        };
        let Some(target) = target else {
            rebuild.unrecoverable += 1;
            return;
        };
        rebuild.taken.insert(target);
        let key = rebuild.next_key;
        rebuild.next_key += 1;
        let begun = Begun {
            group,
            column,
            target,
            next_stripe: StripeId(0),
            in_flight: 0,
        };
        rebuild.begun.insert(key, begun);
        self.view.begin_fill(&self.geometry, group, column, target);
    }

    fn begin_step(&mut self, key: usize) {
        let rebuild = self.rebuild.as_mut().expect("one is under way");
        let begun = rebuild.begun.get_mut(&key).expect("the policy's choice");
        let first = begun.next_stripe;
        let next = { first.plus(rebuild.step_stripes) }.min(StripeId(rebuild.stripes_per_group));
        begun.next_stripe = next;
        begun.in_flight += 1;
        rebuild.in_flight += 1;
        let group = begun.group;
        let rows = u64::from(self.geometry.code().rows());
        let bytes = StripeId::count(&(first..next)) * rows * self.geometry.chunk_bytes();
        let rate = rebuild.options.bytes_per_second_max;
        if rate > 0 {
            rebuild.next_step_at = rebuild.next_step_at.max(self.now) + transfer_ns(bytes, rate);
        }
        self.lock_rebuild_step((key, bytes), group, first..next);
    }

    /// The reads and writes of a step, and how many bytes are computed; `None` if the step cannot be done.
    pub(super) fn plan_rebuild_step(
        &mut self,
        key: usize,
        group: GroupId,
        stripes: Range<StripeId>,
    ) -> Option<(Vec<DriveIo>, Vec<DriveIo>, u64)> {
        let columns = self.columns(group);
        let rebuild = self.rebuild.as_ref()?;
        let Some(&Begun { column, target, .. }) = rebuild.begun.get(&key) else {
            // The target has failed: nothing to do.
            return Some((Vec::new(), Vec::new(), 0));
        };
        let all = rebuild.options.read == ReadColumns::All;
        let geometry = &self.geometry;
        let avoid = if all {
            Vec::new()
        } else {
            self.columns_to_spare(&columns, column)
        };
        let at = Stripe {
            geometry,
            group,
            stripe: stripes.start,
            columns: &columns,
            form: Form::Parity,
            blocks: &AllOnDrive,
        };
        let scratch = Scratch(ScratchId(0));
        let plan = plan_fill(
            &mut self.plans,
            at,
            stripes.clone(),
            (column, target),
            &avoid,
            scratch,
        )
        .ok()?;
        let writes: Vec<DriveIo> = plan.writes.iter().map(DriveIo::from).collect();
        let reads: Vec<DriveIo> = if all {
            // Every other column that can be read, over the range that is written.
            let low = writes.iter().map(|io| io.offset).min()?;
            let high = writes.iter().map(|io| io.offset + io.length).max()?;
            let base = geometry.block_offset(target, 0);
            let others = geometry.columns().zip(&columns);
            let others = others.filter(|&(other, _)| other != column);
            others
                .filter_map(|(_, column)| column.source)
                .map(|cell| DriveIo {
                    seat: cell.seat,
                    kind: IoKind::Read,
                    offset: geometry.block_offset(cell, (low - base) / BLOCK_BYTES),
                    length: high - low,
                })
                .collect()
        } else {
            plan.reads.iter().map(DriveIo::from).collect()
        };
        let terms = plan.steps.iter();
        let compute = terms
            .map(|step| step.terms.len() as u64 * step.target.length)
            .sum();
        let rebuild = self.rebuild.as_mut()?;
        for io in &reads {
            rebuild.asked[io.seat.index()] += io.length;
            rebuild.read_bytes += io.length;
        }
        Some((reads, writes, compute))
    }

    /// Columns beyond those that the code needs: of the readable ones, those whose drives have the most queued and, on
    /// a tie, have read the most so far.
    fn columns_to_spare(&self, columns: &[ColumnState], lost: Column) -> Vec<Column> {
        let Some(rebuild) = &self.rebuild else {
            return Vec::new();
        };
        let code = self.geometry.code();
        let needed = usize::from(code.columns() - code.tolerance());
        let mut readable: Vec<(usize, u64, Column)> = { self.geometry.columns() }
            .zip(columns)
            .filter(|&(column, _)| column != lost)
            .filter_map(|(column, place)| place.source.map(|cell| (column, cell.seat)))
            .map(|(column, seat)| (self.queued(seat), rebuild.asked[seat.index()], column))
            .collect();
        readable.sort_unstable();
        let spared = readable.into_iter().skip(needed);
        spared.map(|(_, _, column)| column).collect()
    }

    /// A step has ended.
    pub(super) fn rebuild_step_ended(&mut self, key: usize, bytes: u64, outcome: Outcome) {
        let Some(rebuild) = &mut self.rebuild else {
            return;
        };
        rebuild.in_flight -= 1;
        if let Some(begun) = rebuild.begun.get_mut(&key) {
            begun.in_flight -= 1;
            if outcome.is_ok() {
                rebuild.written_bytes += bytes;
            } else {
                // The rest of the cell cannot be restored either.
                begun.next_stripe = StripeId(rebuild.stripes_per_group);
                rebuild.unrecoverable += 1;
            }
            let begun = *begun;
            if !rebuild.has_steps(&begun) && begun.in_flight == 0 {
                rebuild.begun.remove(&key);
                if outcome.is_ok() {
                    rebuild.cells += 1;
                    self.view.settle(begun.group, begun.column, begun.target);
                }
            }
        }
        self.step_rebuild();
    }

    fn end_rebuild(&mut self) {
        let now = Instant(self.now);
        if let Some(rebuild) = &mut self.rebuild {
            rebuild.ended = Some(now);
        }
    }
}
