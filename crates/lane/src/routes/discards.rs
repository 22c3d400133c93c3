//! Routes for discards: a run of stripes is discarded by an operation that has their locks.

use crate::Lane;
use crate::discard::{Begun, KnownSpace, RingUse, Run};
use crate::entries::Entries;
use crate::ids::OpId;
use crate::op::{Discarded, Op, Owner, Phase, Task};

impl Lane {
    /// Begins to discard the next run, if none is under way.
    pub(crate) fn begin_discard(&mut self) {
        if self.recovery.is_some() {
            return;
        }
        let past_ring = self.ring_is_checkpointed();
        if let Some(run) = self.discards.next(&self.cx, past_ring) {
            let task = Task::Discard(run.what);
            self.start(Op::new(Owner::Background, run.group, run.stripes, task));
        }
    }

    /// The stripes of a run are locked.
    pub(crate) fn discard(&mut self, id: OpId, what: Discarded) {
        let op = &self.ops[id];
        let run = Run {
            group: op.group,
            stripes: op.stripes.clone(),
            what,
        };
        let past_ring = self.ring_is_checkpointed();
        if self.discards.needs_map(&run, past_ring)
            && let Err(missing) = self.load_map(run.group)
        {
            self.fetch_pages(id, missing);
            return;
        }
        let known = KnownSpace {
            entries: Entries {
                overlay: &self.overlay,
                pages: &self.pages,
            },
            maps: &self.maps,
            checkpoint: self.checkpoints.pages(self.log.anchor()),
            has_job: self.jobs.has(run.group),
        };
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        match { &mut self.discards }.begin(cx, ios, &known, (id, &run), past_ring) {
            Begun::Asked => {
                self.ops[id].phase = Phase::Discarding;
            }
            Begun::Missing(names) => {
                self.fetch_pages(id, names);
            }
            Begun::Nothing => self.end_discard(id),
        }
    }

    pub(crate) fn end_discard(&mut self, id: OpId) {
        self.end(id, Ok(()));
        self.discards.end(&mut self.cx);
        self.room.freed(&mut self.cx);
        self.begin_discard();
    }

    /// A checkpoint has ended. `whole`: it has held nothing back, and all its changes are durable.
    pub(crate) fn discard_after_checkpoint(&mut self, whole: bool) {
        if !{ &mut self.discards }.checkpoint_ended(&self.cx, &self.maps, whole) {
            return;
        }
        self.begin_discard();
        let ring = self.log.ring();
        let unused = ring.is_empty() && self.log.is_idle() && !self.log.has_gaps();
        let ring = RingUse {
            blocks: ring.blocks(),
            taken: ring.taken(),
            unused: unused && self.checkpoints.is_quiet(self.cx.now),
        };
        { &mut self.discards }.begin_ring(&mut self.cx, &mut self.ios, ring);
    }
}
