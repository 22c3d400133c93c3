//! Space that holds nothing goes back to the drives.
//!
//! ```text
//!   trim ─► record ─► checkpoint: entries unwritten, tail past it ─► candidates ─┐
//!   volume deleted ─► labels ─► Freed ───────────────────────────► candidates ─┤
//!                                                                              ▼
//!                   locks of a run of stripes ─► look again ─► discard ─► (end): the next run
//!                                                    └─ not to be told now ─► after the next checkpoint
//! ```
//!
//! What is discarded may read as anything afterwards (`docs/design/discards.md` goes through all who look). A discard that
//! fails, or that the power takes, does no harm: how it ends does not matter, and nobody waits for it but who wants the
//! stripes' locks. A drive that takes none is known after one.
//!
//! Invariants:
//! - A lane has one run under way. Its discards are bulk operations, so that drives do short ones of clients first.
//! - The run's stripes are locked from before the look until all discards have ended: no write passes one, and none is on its
//!   way to the journal or to its place.
//! - Nothing is discarded that the ring still describes: the last checkpoint has moved the tail past all that it
//!   covered, and of what was logged since the overlay has nothing there. A record of blocks in place that is not known
//!   to be flushed would fail recovery's comparison, and end the log before later ones of other stripes.
//! - Of stripes of volumes every entry says *unwritten*, and the pages that say so are on the drives.
//! - Free stripes are left as they are, but in a group that holds nothing (`free.rs`).
//! - A pool that is being closed hears of its checkpoint when no discard is under way: one that came later would hit what
//!   the next holder has written.

mod free;
mod ring;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use block::{BLOCK_BYTES, Fault, Outcome, Seat};
use layout::Cell;

use self::ring::RingSpace;
use super::ids::OpId;
use super::jobs::stripes_in;
use super::op::{Op, Owner, Phase, Task};
use super::{Lane, Purpose};
use crate::action::{Event, Io, IoKind};
use crate::format::{BlockName, ENTRIES_PER_META_PAGE, PageName};
use crate::runs::{self, Runs};
use crate::seeded::{self, Bug};

/// Bytes of one cell that one operation discards: whoever writes there waits until drives have done so.
const STEP_BYTES: u64 = 32 << 20;

/// Runs that a lane remembers, of stripes and of groups: 64 KiB each at most. What is beyond is forgotten.
const RUNS_MAX: usize = 4096;

/// Why an operation discards its stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Discarded {
    /// They were made unwritten.
    Stripes,
    /// Their group is of no volume any more.
    Group,
}

/// What may be discarded.
#[derive(Clone, Debug, Default)]
struct Candidates {
    /// Runs of stripes by group.
    stripes: BTreeMap<u64, Runs>,
    /// How many runs these are.
    stripe_runs: usize,
    /// Runs of groups of no volume; also of other lanes.
    groups: Runs,
}

impl Candidates {
    fn add_stripes(&mut self, group: u64, stripes: &Range<u64>) {
        if self.stripe_runs >= RUNS_MAX {
            return;
        }
        let runs = self.stripes.entry(group).or_default();
        let before = runs.len();
        runs::insert(runs, stripes);
        self.stripe_runs = self.stripe_runs + runs.len() - before;
    }

    fn has_stripes_of(&self, group: u64) -> bool {
        self.stripes.contains_key(&group)
    }

    fn add_groups(&mut self, groups: &Range<u64>) {
        if self.groups.len() < RUNS_MAX {
            runs::insert(&mut self.groups, groups);
        }
    }

    /// The groups begin a new life, or have ended one.
    fn forget(&mut self, groups: &Range<u64>) {
        runs::remove(&mut self.groups, groups);
        for (_, runs) in self.stripes.extract_if(groups.clone(), |_, _| true) {
            self.stripe_runs -= runs.len();
        }
    }

    /// Takes over all of another one.
    fn append(&mut self, other: Self) {
        for (group, runs) in other.stripes {
            for (first, count) in runs {
                self.add_stripes(group, &(first..first + count));
            }
        }
        for (first, count) in other.groups {
            self.add_groups(&(first..first + count));
        }
    }

    /// Takes the first run of at most so many stripes.
    fn next_stripes(&mut self, most: u64) -> Option<(u64, Range<u64>)> {
        let (&group, runs) = self.stripes.first_key_value()?;
        let &(first, count) = runs.first()?;
        let stripes = first..first + count.min(most);
        let runs = self.stripes.get_mut(&group)?;
        let before = runs.len();
        runs::remove(runs, &stripes);
        self.stripe_runs = self.stripe_runs + runs.len() - before;
        if runs.is_empty() {
            self.stripes.remove(&group);
        }
        Some((group, stripes))
    }

    /// Takes the first group that `is_here`.
    fn next_group(&mut self, is_here: impl Fn(u64) -> bool) -> Option<u64> {
        while let Some(&(first, count)) = self.groups.first() {
            let mut groups = first..first + count;
            let found = groups.find(|&group| is_here(group));
            runs::remove(&mut self.groups, &(first..groups.start));
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

/// The run under way.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    group: u64,
    /// The group has begun a new life since: nothing more is asked, and nothing of it stays a candidate.
    forgotten: bool,
    /// It has asked a drive.
    asked: bool,
    /// One did not say that it takes no discards.
    taken: bool,
}

/// What a lane may discard, and what it is discarding.
#[derive(Clone, Debug, Default)]
pub(super) struct Discards {
    /// Stripes that the checkpoint under way has made unwritten.
    unwritten: Vec<(u64, u64)>,
    ready: Candidates,
    /// Those of which a look after the next checkpoint may tell more.
    later: Candidates,
    under_way: Option<UnderWay>,
    ring: RingSpace,
    /// The pool may be about to close: nothing more is begun.
    paused: bool,
    /// How often the pool is to be told of a checkpoint once nothing is under way.
    untold: usize,
}

impl Discards {
    /// A checkpoint has set the entries of a stripe.
    pub(super) fn made_unwritten(&mut self, stripe: (u64, u64)) {
        self.unwritten.push(stripe);
    }

    /// These groups begin a new life.
    pub(super) fn forget(&mut self, groups: Range<u64>) {
        self.ready.forget(&groups);
        self.later.forget(&groups);
        self.unwritten.retain(|(group, _)| !groups.contains(group));
        if let Some(run) = &mut self.under_way {
            run.forgotten |= groups.contains(&run.group);
        }
    }

    /// Nothing more is begun before clients ask again.
    pub(super) const fn pause(&mut self) {
        self.paused = true;
    }

    /// Clients ask: the pool is not being closed.
    pub(super) const fn resume(&mut self) {
        self.paused = false;
    }
}

/// What a look at stripes shows.
enum Found {
    /// These chunks hold nothing that counts, by column.
    Nothing(BTreeMap<u16, Runs>),
    /// Pages must be read first.
    Missing(BTreeSet<PageName>),
    /// It can be told when a checkpoint has ended.
    Later,
}

impl Lane {
    /// Groups have been taken from volumes.
    pub(super) fn groups_freed(&mut self, runs: &[(u64, u64)]) {
        if self.cx.geometry.store().is_none() || self.cx.trusted {
            return;
        }
        for &(first, count) in runs {
            let groups = first..first + count;
            self.discards.forget(groups.clone());
            self.discards.ready.add_groups(&groups);
        }
        self.discards.resume();
        self.begin_discard();
    }

    /// A checkpoint has ended. `whole`: it has kept nothing back, and all that it has changed is durable.
    pub(super) fn checkpoint_has_ended(&mut self, whole: bool) {
        let mut unwritten = std::mem::take(&mut self.discards.unwritten);
        if !whole || self.cx.trusted {
            return;
        }
        unwritten.retain(|&(group, stripe)| !self.maps.is_known_free(group, stripe));
        let follows = |a: &(u64, u64), b: &(u64, u64)| (a.0, a.1 + 1) == *b;
        for run in unwritten.chunk_by(follows) {
            let (group, first) = run[0];
            let stripes = first..first + run.len() as u64;
            self.discards.ready.add_stripes(group, &stripes);
        }
        let later = std::mem::take(&mut self.discards.later);
        self.discards.ready.append(later);
        self.begin_discard();
        self.begin_ring_discard();
    }

    /// The bug of that name: an operation has ended, perhaps a trim.
    pub(super) fn discard_early(&mut self, op: &Op) {
        if matches!((op.owner, &op.task), (Owner::Request(_), Task::Zero)) {
            self.discards.ready.add_stripes(op.group, &op.stripes);
            self.begin_discard();
        }
    }

    /// The pool is told of a checkpoint that it has asked for.
    pub(super) fn tell_checkpointed(&mut self) {
        if self.discards.under_way.is_some() || self.discards.ring.is_under_way() {
            self.discards.untold += 1;
        } else {
            let lane = self.cx.lane;
            self.cx.events.push_back(Event::Checkpointed { lane });
        }
    }

    /// Something that was under way has ended.
    fn tell_untold(&mut self) {
        for _ in 0..std::mem::take(&mut self.discards.untold) {
            self.tell_checkpointed();
        }
    }

    /// Begins with the next run, if none is under way.
    fn begin_discard(&mut self) {
        let waits = self.discards.under_way.is_some() || self.discards.paused;
        if waits || self.recovery.is_some() || !self.may_be_past_ring() {
            return;
        }
        let most = stripes_in(&self.cx.geometry, STEP_BYTES);
        let ready = &mut self.discards.ready;
        let (group, stripes, what) = if let Some((group, stripes)) = ready.next_stripes(most) {
            (group, stripes, Discarded::Stripes)
        } else {
            let (geometry, lane) = (&self.cx.geometry, self.cx.lane);
            let Some(group) = ready.next_group(|group| geometry.lane_of(group) == lane) else {
                return;
            };
            (group, 0..geometry.stripes_per_group(), Discarded::Group)
        };
        self.discards.under_way = Some(UnderWay {
            group,
            forgotten: false,
            asked: false,
            taken: false,
        });
        self.start(Op::new(Owner::Lane, group, stripes, Task::Discard(what)));
    }

    /// Whether the ring has nothing of before the last checkpoint: without that nothing can be discarded.
    fn may_be_past_ring(&self) -> bool {
        self.ring_is_checkpointed()
            || seeded::is(Bug::DiscardDescribed)
            || seeded::is(Bug::DiscardUnflushed)
    }

    /// The stripes are locked.
    pub(super) fn discard(&mut self, id: OpId, what: Discarded) {
        let op = &self.ops[&id];
        let (group, stripes) = (op.group, op.stripes.clone());
        let run = self.discards.under_way;
        if run.is_some_and(|run| run.forgotten) {
            self.end_discard(id);
            return;
        }
        let found = match what {
            _ if !self.may_be_past_ring() => Found::Later,
            Discarded::Stripes => match self.load_map(group) {
                Ok(()) => self.look_at_stripes(group, stripes.clone()),
                Err(missing) => Found::Missing(missing),
            },
            Discarded::Group => self.look_at_group(group),
        };
        match found {
            Found::Nothing(chunks) => {
                self.add_free_stripes(group, stripes);
                self.discard_chunks(id, &chunks);
            }
            Found::Missing(names) => {
                self.ops.get_mut(id).expect("it was begun").phase = Phase::Fetching;
                self.fetch_pages(id, names);
            }
            Found::Later => {
                match what {
                    Discarded::Stripes => self.discards.later.add_stripes(group, &stripes),
                    Discarded::Group => self.discards.later.add_groups(&(group..group + 1)),
                }
                self.end_discard(id);
            }
        }
    }

    /// Which of these stripes still hold nothing. Others have been written since: a trim makes them candidates again.
    fn look_at_stripes(&self, group: u64, stripes: Range<u64>) -> Found {
        let mut empty: BTreeMap<u16, Runs> = BTreeMap::new();
        let mut missing = BTreeSet::new();
        let early = seeded::is(Bug::DiscardUnflushed);
        let has_free = self.cx.geometry.free_stripes() > 0;
        let leaves_free = has_free && !self.group_holds_nothing(group);
        for stripe in stripes {
            if self.overlay.is_zeroed(group, stripe) != early {
                continue;
            }
            if leaves_free && self.maps.is_known_free(group, stripe) {
                continue;
            }
            let elements = 0..self.cx.geometry.code().elements();
            let places: Vec<(u16, u64)> = elements
                .map(|slot| self.cx.geometry.place(group, stripe, slot))
                .collect();
            let blocks = places
                .iter()
                .map(|&(column, chunk)| self.blocks_of_chunk(group, column, chunk));
            if blocks
                .clone()
                .any(|(first, count)| self.overlay.holds(first, count))
            {
                continue;
            }
            let mut unwritten = true;
            for (first, count) in blocks.filter(|_| !early) {
                for name in pages_of(first, count) {
                    if !self.pages.contains(name) {
                        missing.insert(name);
                    } else if !self.pages.is_clean(name) || self.checkpoints.writes(name) {
                        return Found::Later;
                    }
                }
                unwritten &= self.pages.are_unwritten(first, count);
            }
            if unwritten {
                for (column, chunk) in places {
                    let runs = empty.entry(column).or_default();
                    runs::insert(runs, &(chunk..chunk + 1));
                }
            }
        }
        match missing.is_empty() {
            true => Found::Nothing(empty),
            false => Found::Missing(missing),
        }
    }

    /// Whether the journal has nothing of a group of no volume. Its entries do not count any more.
    fn look_at_group(&self, group: u64) -> Found {
        let chunks = self.cx.geometry.cell_bytes() / self.cx.geometry.chunk_bytes();
        let columns = 0..self.cx.geometry.layout().columns();
        let logged = self.overlay.has_zeroed(group)
            || self.checkpoints.writes_of(group)
            || columns.clone().any(|column| {
                let (first, count) = self.entries_of_cell(group, column);
                self.overlay.holds(first, count)
            });
        // Whoever fills or scrubs it reads what its entries say.
        if self.jobs.has(group) || (logged && !seeded::is(Bug::DiscardDescribed)) {
            return Found::Later;
        }
        let whole = |column| (column, vec![(0, chunks)]);
        Found::Nothing(columns.map(whole).collect())
    }

    /// The blocks of a column's cell, and behind them the entries of its map.
    fn entries_of_cell(&self, group: u64, column: u16) -> (BlockName, u32) {
        let pages = u32::try_from(self.cx.geometry.pages_per_cell()).expect("few pages");
        let block = 0;
        let first = BlockName {
            group,
            column,
            block,
        };
        (first, pages * ENTRIES_PER_META_PAGE)
    }

    fn blocks_of_chunk(&self, group: u64, column: u16, chunk: u64) -> (BlockName, u32) {
        let per_chunk = self.cx.geometry.chunk_bytes() / BLOCK_BYTES;
        let number = |blocks| u32::try_from(blocks).expect("cells have fewer than 2^32 blocks");
        let first = BlockName {
            group,
            column,
            block: number(chunk * per_chunk),
        };
        (first, number(per_chunk))
    }

    /// The cell of a column, if the column is at home, only there, and on a drive that is quick enough.
    fn cell_at_home(&self, group: u64, column: u16) -> Option<Cell> {
        let home = self.cx.geometry.layout().cell(group, column);
        let state = self.cx.view().column(&self.cx.geometry, group, column);
        let alone = state.source == Some(home) && state.target.is_none();
        let swift = !self.cx.view().is_out(home.seat) && !self.ios.is_suspect(home.seat);
        (alone && swift && !self.ios.twins().has_successor(home.seat)).then_some(home)
    }

    fn discard_chunks(&mut self, id: OpId, chunks: &BTreeMap<u16, Runs>) {
        let group = self.ops[&id].group;
        let mut ranges: Vec<(Seat, u64, u64)> = Vec::new();
        for (&column, runs) in chunks {
            let Some(cell) = self.cell_at_home(group, column) else {
                continue;
            };
            ranges.extend(runs.iter().map(|&(first, count)| {
                let offset = self.cx.geometry.drive_offset(cell, first);
                (cell.seat, offset, count * self.cx.geometry.chunk_bytes())
            }));
        }
        if ranges.is_empty() {
            self.end_discard(id);
            return;
        }
        let op = self.ops.get_mut(id).expect("it was begun");
        op.phase = Phase::Writing;
        op.in_flight = ranges.len() as u64;
        let service = op.service;
        let under_way = self.discards.under_way.as_mut();
        under_way.expect("its run is under way").asked = true;
        for (seat, offset, length) in ranges {
            self.ios
                .submit(&mut self.cx, Purpose::Discard { op: id }, |id| Io {
                    id,
                    seat,
                    kind: IoKind::Discard,
                    offset,
                    length,
                    slice: None,
                    service,
                });
        }
    }

    /// A drive has discarded a range, or has not.
    pub(super) fn discarded(&mut self, id: OpId, outcome: Outcome) {
        let under_way = self.discards.under_way.as_mut();
        under_way.expect("its run is under way").taken |= outcome != Err(Fault::Invalid);
        let op = self.ops.get_mut(id).expect("its discards are in flight");
        op.in_flight -= 1;
        if op.in_flight == 0 {
            self.end_discard(id);
        }
    }

    fn end_discard(&mut self, id: OpId) {
        let run = self.discards.under_way.take();
        self.end(id, Ok(()));
        if run.is_some_and(|run| run.asked && !run.taken) {
            // None of the drives takes discards: what else there is would be asked in vain.
            self.discards.ready = Candidates::default();
            self.discards.later = Candidates::default();
        }
        self.tell_untold();
        self.begin_discard();
    }
}

/// The pages of `count` blocks from `first` on.
fn pages_of(first: BlockName, count: u32) -> impl Iterator<Item = PageName> {
    let end = first.block + count;
    let pages = first.block / ENTRIES_PER_META_PAGE..end.div_ceil(ENTRIES_PER_META_PAGE);
    pages.map(move |page| {
        let block = page * ENTRIES_PER_META_PAGE;
        BlockName { block, ..first }.page()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_are_taken_by_runs_of_one_group_and_no_longer_than_a_step() {
        let mut candidates = Candidates::default();
        candidates.add_stripes(5, &(10..14));
        candidates.add_stripes(5, &(14..20));
        candidates.add_stripes(3, &(7..8));
        candidates.add_stripes(5, &(40..41));
        assert_eq!(candidates.stripe_runs, 3);
        let mut taken = Vec::new();
        while let Some(run) = candidates.next_stripes(8) {
            taken.push(run);
        }
        assert_eq!(taken, [(3, 7..8), (5, 10..18), (5, 18..20), (5, 40..41)]);
        assert_eq!(candidates.stripe_runs, 0);
    }

    #[test]
    fn groups_of_other_lanes_are_passed_over() {
        let mut candidates = Candidates::default();
        candidates.add_groups(&(2..5));
        candidates.add_groups(&(7..8));
        candidates.add_groups(&(20..30));
        let mut next = || candidates.next_group(|group| group % 4 == 1);
        let taken: Vec<Option<u64>> = (0..4).map(|_| next()).collect();
        assert_eq!(taken, [Some(21), Some(25), Some(29), None]);
    }

    #[test]
    fn a_group_that_begins_a_new_life_is_not_discarded_for_the_old_one() {
        let mut discards = Discards::default();
        for candidates in [&mut discards.ready, &mut discards.later] {
            candidates.add_groups(&(0..10));
            candidates.add_stripes(4, &(0..8));
            candidates.add_stripes(9, &(0..8));
        }
        discards.made_unwritten((4, 9));
        // One that waits for its locks must not become a candidate again.
        discards.under_way = Some(UnderWay {
            group: 4,
            forgotten: false,
            asked: false,
            taken: false,
        });
        discards.forget(0..3);
        assert!(!discards.under_way.unwrap().forgotten);
        discards.forget(3..5);
        assert!(discards.under_way.unwrap().forgotten);
        assert_eq!(discards.ready.groups, [(5, 5)]);
        assert_eq!(discards.later.next_stripes(9), Some((9, 0..8)));
        assert_eq!(discards.ready.stripe_runs, 1);
        assert!(discards.unwritten.is_empty());
    }

    #[test]
    fn what_is_too_much_to_remember_is_forgotten() {
        let mut candidates = Candidates::default();
        for run in 0..2 * RUNS_MAX as u64 {
            candidates.add_stripes(run % 7, &(2 * run..2 * run + 1));
            candidates.add_groups(&(2 * run..2 * run + 1));
        }
        assert_eq!(candidates.stripe_runs, RUNS_MAX);
        assert_eq!(candidates.groups.len(), RUNS_MAX);
    }
}
