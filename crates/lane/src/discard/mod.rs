//! Discards: space that holds nothing is given back to the drives.
//!
//! ```text
//!   trim ─► record ─► checkpoint: entries unwritten, tail past it ─► candidates ─┐
//!   volume deleted ─► labels ─► Freed ───────────────────────────► candidates ─┤
//!                                                                              ▼
//!                   locks of a run of stripes ─► check again ─► discard ─► (end): the next run
//!                                                    └─ not known now ──────► after the next checkpoint
//! ```
//!
//! A discarded range may read as anything afterwards (`docs/design/discards.md` goes through all readers). A discard
//! that fails, or that a power cut takes, does no harm: its outcome does not matter, and only operations that need the
//! stripes' locks wait for it. If no drive of a run supports discards, the lane drops its candidates.
//!
//! Invariants:
//! - A lane has one run under way. Its discards are bulk operations, so that drives do short operations of clients
//!   first.
//! - The run's stripes are locked from before the check until all discards have ended: no write passes a discard, and
//!   no block of the stripes is on its way to the journal or to its place.
//! - No space is discarded that the ring still describes: the last checkpoint has moved the tail past all that it
//!   covered, and the overlay has no later block there. Otherwise a record of blocks in place that is not known to be
//!   flushed would fail recovery's comparison, and end the log before later records of other stripes.
//! - Every entry of a discarded stripe of a volume is *unwritten*, and the pages with these entries are on the drives.
//! - Free stripes are not discarded, except in a group that holds nothing (`free.rs`).
//! - While a pool is being closed, its checkpoint is reported only when no discard is under way: a later discard would
//!   destroy what the next opening has written.

mod candidates;
mod free;
mod known;
mod ring;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use block::{Fault, Outcome, Seat};
use format::runs::Runs;
use format::seeded::{self, SeededFault};
use format::{Column, Form, GroupId, PageName, StripeId};
use layout::Cell;
use plan::action::{Event, Io, IoKind, Origin, Service};

use self::candidates::Candidates;
use self::known::Found;
pub(super) use self::known::KnownSpace;
use self::ring::RingSpace;
pub(super) use self::ring::RingUse;
use super::context::Context;
use super::ids::OpId;
use super::io::IoTable;
use super::jobs::stripes_in;
use super::maps::StripeMaps;
use super::op::Discarded;
use super::purpose::Purpose;

/// Bytes of one cell that one operation discards. Writes to these stripes wait until the drives have ended the discard.
const STEP_BYTES: u64 = 32 << 20;

/// A stripe that a checkpoint has made unwritten, or what only one of its forms keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Emptied {
    pub(crate) only: Option<Form>,
    pub(crate) group: GroupId,
    pub(crate) stripe: StripeId,
}

/// Stripes of a group that are discarded together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) group: GroupId,
    pub(super) stripes: Range<StripeId>,
    pub(super) what: Discarded,
}

/// The next state of a run whose stripes are locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// Drives are discarding it: [`Discards::discarded`] returns true when all have answered.
    Asked,
    /// These pages must be read first.
    Missing(BTreeSet<PageName>),
    /// There is nothing to discard.
    Nothing,
}

/// The run under way.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    group: GroupId,
    /// The group has been forgotten since: no more discards are submitted, and none of its stripes stays a candidate.
    forgotten: bool,
    /// Discards that drives have not answered.
    in_flight: usize,
    /// A discard has been submitted.
    asked: bool,
    /// At least one answer was not that the drive takes no discards.
    taken: bool,
}

/// What a lane may discard, and the run under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Discards {
    /// Stripes that the checkpoint under way has made unwritten.
    unwritten: Vec<Emptied>,
    ready: Candidates,
    /// Candidates that are checked again after the next checkpoint.
    later: Candidates,
    under_way: Option<UnderWay>,
    ring: RingSpace,
    /// The pool may be about to close: no discard begins.
    paused: bool,
    /// Checkpoints to be reported to the pool once no discard is under way.
    unreported: usize,
}

impl Discards {
    /// Groups no longer belong to a volume.
    pub(super) fn groups_freed(&mut self, cx: &Context, runs: &[(u64, u64)]) {
        if cx.geometry.regions().is_none() || cx.trusted {
            return;
        }
        for &(first, count) in runs {
            let groups = GroupId::range(first..first + count);
            self.forget(groups.clone());
            self.ready.add_groups(&groups);
        }
        self.resume();
    }

    /// A checkpoint has set entries of stripes to *unwritten*.
    pub(super) fn made_unwritten(&mut self, stripes: impl IntoIterator<Item = Emptied>) {
        self.unwritten.extend(stripes);
    }

    /// Drops the candidates of these groups: the groups are being reused, or have just been freed.
    pub(super) fn forget(&mut self, groups: Range<GroupId>) {
        self.ready.forget(&groups);
        self.later.forget(&groups);
        self.unwritten
            .retain(|emptied| !groups.contains(&emptied.group));
        if let Some(run) = &mut self.under_way {
            run.forgotten |= groups.contains(&run.group);
        }
    }

    /// No discard begins until a client sends a request.
    pub(super) const fn pause(&mut self) {
        self.paused = true;
    }

    /// A client has sent a request: the pool is not being closed.
    pub(super) const fn resume(&mut self) {
        self.paused = false;
    }

    /// A checkpoint has ended. `whole`: it has held no block back, and all its changes are durable. True if something
    /// may be discarded now.
    pub(super) fn checkpoint_ended(
        &mut self,
        cx: &Context,
        maps: &StripeMaps,
        whole: bool,
    ) -> bool {
        let mut unwritten = std::mem::take(&mut self.unwritten);
        if !whole || cx.trusted {
            return false;
        }
        // Free stripes are written again soon; but not as copies.
        unwritten.retain(|emptied| {
            let free = maps.is_known_free(emptied.group, emptied.stripe);
            emptied.only == Some(Form::Copies) || !free
        });
        let follows = |a: &Emptied, b: &Emptied| {
            let stripe = a.stripe.next();
            Emptied { stripe, ..*a } == *b
        };
        for run in unwritten.chunk_by(follows) {
            let Emptied {
                only,
                group,
                stripe: first,
            } = run[0];
            let stripes = first..first.plus(run.len() as u64);
            self.ready.add_stripes(group, only, &stripes);
        }
        let later = std::mem::take(&mut self.later);
        self.ready.append(later);
        true
    }

    /// The seeded fault [`SeededFault::DiscardUnflushed`]: a trim has ended.
    pub(super) fn trimmed(&mut self, group: GroupId, stripes: &Range<StripeId>) {
        self.ready.add_stripes(group, None, stripes);
    }

    /// Reports a checkpoint that the pool has requested, now or when no discard is under way any more.
    pub(super) fn report_checkpointed(&mut self, cx: &mut Context) {
        if self.under_way.is_some() || self.ring.is_under_way() {
            self.unreported += 1;
        } else {
            let lane = cx.lane;
            cx.events.push_back(Event::Checkpointed { lane });
        }
    }

    /// A discard that was under way has ended.
    fn report_delayed(&mut self, cx: &mut Context) {
        for _ in 0..std::mem::take(&mut self.unreported) {
            self.report_checkpointed(cx);
        }
    }

    /// True if drives are discarding, or may be asked to.
    pub(super) fn may_free(&self) -> bool {
        self.under_way.is_some() || self.awaits_checkpoint()
    }

    /// True if something may be discarded after the next checkpoint.
    pub(super) fn awaits_checkpoint(&self) -> bool {
        !self.unwritten.is_empty() || !self.ready.is_empty() || !self.later.is_empty()
    }

    /// The run that is discarded next, if none is under way. It is under way from now on. `past_ring`: the ring holds
    /// no batch that a checkpoint has covered.
    pub(super) fn next(&mut self, cx: &Context, past_ring: bool) -> Option<Run> {
        if self.under_way.is_some() || self.paused || !may_discard(past_ring) {
            return None;
        }
        let most = stripes_in(&cx.geometry, STEP_BYTES);
        let run = if let Some((group, only, stripes)) = self.ready.next_stripes(most) {
            let what = only.map_or(Discarded::Stripes, Discarded::Form);
            Run {
                group,
                stripes,
                what,
            }
        } else {
            let is_here = |group| cx.geometry.lane_of(group) == cx.lane;
            let group = self.ready.next_group(is_here)?;
            let stripes = StripeId::range(0..cx.geometry.stripes_per_group());
            let what = Discarded::Group;
            Run {
                group,
                stripes,
                what,
            }
        };
        self.under_way = Some(UnderWay {
            group: run.group,
            forgotten: false,
            in_flight: 0,
            asked: false,
            taken: false,
        });
        Some(run)
    }

    /// True if [`begin`](Self::begin) needs the map of a run's group.
    pub(super) fn needs_map(&self, run: &Run, past_ring: bool) -> bool {
        let needs = !self.is_forgotten() && may_discard(past_ring);
        needs && run.what != Discarded::Group
    }

    /// True if the group of the run under way has been forgotten since.
    fn is_forgotten(&self) -> bool {
        self.under_way.is_some_and(|run| run.forgotten)
    }

    /// The stripes of a run are locked: asks drives to discard those that still hold nothing.
    pub(super) fn begin(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        known: &KnownSpace<'_>,
        (op, run): (OpId, &Run),
        past_ring: bool,
    ) -> Begun {
        if self.is_forgotten() {
            return Begun::Nothing;
        }
        let group = run.group;
        let found = match run.what {
            _ if !may_discard(past_ring) => Found::Later,
            Discarded::Stripes => known.at_stripes(cx, group, run.stripes.clone()),
            Discarded::Form(form) => known.at_form(cx, group, run.stripes.clone(), form),
            Discarded::Group => known.at_group(cx, group),
        };
        match found {
            Found::Nothing(chunks) => {
                if !self.ready.has_stripes_of(group) {
                    for stripe in known.free_stripes_beside(cx, group, run.stripes.clone()) {
                        self.ready
                            .add_stripes(group, None, &(stripe..stripe.next()));
                    }
                }
                self.ask(cx, ios, op, group, &chunks)
            }
            Found::Missing(names) => Begun::Missing(names),
            Found::Later => {
                match run.what {
                    Discarded::Stripes => self.later.add_stripes(group, None, &run.stripes),
                    Discarded::Form(form) => {
                        self.later.add_stripes(group, Some(form), &run.stripes);
                    }
                    Discarded::Group => self.later.add_groups(&(group..group.next())),
                }
                Begun::Nothing
            }
        }
    }

    fn ask(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        op: OpId,
        group: GroupId,
        chunks: &BTreeMap<Column, Runs>,
    ) -> Begun {
        let mut ranges: Vec<(Seat, u64, u64)> = Vec::new();
        for (&column, runs) in chunks {
            let Some(cell) = cell_at_home(cx, ios, group, column) else {
                continue;
            };
            ranges.extend(runs.iter().map(|&(first, count)| {
                let offset = cx.geometry.drive_offset(cell, first);
                (cell.seat, offset, count * cx.geometry.chunk_bytes())
            }));
        }
        if ranges.is_empty() {
            return Begun::Nothing;
        }
        let run = self.under_way.as_mut().expect("its run is under way");
        run.asked = true;
        run.in_flight = ranges.len();
        for (seat, offset, length) in ranges {
            ios.submit(cx, Purpose::Discard { op }, |id| Io {
                id,
                seat,
                kind: IoKind::Discard,
                offset,
                length,
                slice: None,
                service: Service::bulk(Origin::Checkpoint),
            });
        }
        Begun::Asked
    }

    /// A drive has answered a discard. True if this was the last answer for the run.
    pub(super) fn discarded(&mut self, outcome: Outcome) -> bool {
        let run = self.under_way.as_mut().expect("its run is under way");
        run.taken |= outcome != Err(Fault::Invalid);
        run.in_flight -= 1;
        run.in_flight == 0
    }

    /// The run under way has ended, and its stripes are no longer locked.
    pub(super) fn end(&mut self, cx: &mut Context) {
        let run = self.under_way.take();
        if run.is_some_and(|run| run.asked && !run.taken) {
            // None of the drives takes discards: the other candidates would fail too.
            self.ready = Candidates::default();
            self.later = Candidates::default();
        }
        self.report_delayed(cx);
    }
}

/// True if anything may be discarded: not while the ring still holds a batch that the last checkpoint has covered.
fn may_discard(past_ring: bool) -> bool {
    past_ring
        || seeded::is(SeededFault::DiscardDescribed)
        || seeded::is(SeededFault::DiscardUnflushed)
}

/// The home cell of a column, if the column is there and nowhere else. `None` if its drive is out, suspect, or has a
/// successor.
fn cell_at_home(cx: &Context, ios: &IoTable, group: GroupId, column: Column) -> Option<Cell> {
    let home = cx.geometry.home(group, column);
    let state = cx.view().column(&cx.geometry, group, column);
    let alone = state.source == Some(home) && state.target.is_none();
    let swift = !cx.view().is_out(home.seat) && !ios.is_suspect(home.seat);
    (alone && swift && !ios.twins().has_successor(home.seat)).then_some(home)
}

#[cfg(test)]
mod tests;
