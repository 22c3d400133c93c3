//! Routes for direct writes, which go in place before they are logged: gathered by turn, written, and then logged by
//! their checksums or with their content.

use std::collections::BTreeMap;

use format::Form;
use format::seeded::{self, SeededFault};
use plan::Transfer;

use crate::Lane;
use crate::direct::{self};
use crate::flush::Waiter;
use crate::ids::OpId;
use crate::op::{Direct, Phase, Task};
use crate::room::Needs;

impl Lane {
    /// A planned write goes in place before it is logged.
    pub(crate) fn begin_direct(&mut self, id: OpId) {
        let turn = self.direct.begin();
        let op = &mut self.ops[id];
        op.direct = Some(Box::new(Direct {
            sums: Vec::new(),
            failed: false,
            turn,
            charged: Vec::new(),
        }));
    }

    /// A conversion goes in place when all that it has read is right. It is charged with what the new form needs. There
    /// may be no room for copies: then nothing is converted. Parity frees more than it adds, so there is room for it
    /// beyond the upper line.
    pub(crate) fn begin_conversion(&mut self, id: OpId) -> bool {
        let op = &mut self.ops[id];
        let Task::Convert(convert) = &mut op.task else {
            return true;
        };
        let mut charged = BTreeMap::new();
        for write in op.plan.iter().flat_map(|plan| &plan.writes) {
            *charged.entry(write.seat).or_default() += write.length;
        }
        let mut charged: Needs = charged.into_iter().collect();
        if convert.to == Some(Form::Parity) {
            self.room.take_beyond(&charged);
        } else if !self.room.take(&mut self.cx, &charged) {
            convert.lacks_room();
            self.end(id, Ok(()));
            return false;
        }
        if !self.room.is_on() {
            charged.clear();
        }
        self.begin_direct(id);
        let direct = self.ops[id].direct.as_mut().expect("just begun");
        direct.charged = charged;
        true
    }

    /// A direct write is computed: with the last stripe of a turn, all stripes of the turn are written.
    pub(crate) fn gather_direct(&mut self, id: OpId, sums: &[u32]) {
        let op = &mut self.ops[id];
        op.phase = Phase::Gathering;
        let direct = op.direct.as_mut().expect("it goes in place");
        direct.sums = sums.to_vec();
        let turn = direct.turn;
        for id in self.direct.computed(turn, id) {
            self.write_direct(id);
        }
    }

    fn write_direct(&mut self, id: OpId) {
        let op = &self.ops[id];
        let writes = &op.plan.as_ref().expect("it was planned").writes;
        let writes: Vec<Transfer> = writes.clone();
        let converts = matches!(op.task, Task::Convert(_));
        if converts && seeded::is(SeededFault::FormBeforeContent) {
            self.direct_written(id);
            return;
        }
        if writes.iter().any(|write| self.cx.view().is_out(write.seat)) {
            self.log_content(id);
            return;
        }
        let op = &mut self.ops[id];
        op.begin_writes(writes.len() as u64);
        for &transfer in &writes {
            self.push_transfer(id, transfer);
        }
    }

    /// A drive has failed a write of an operation.
    pub(crate) fn direct_failed(&mut self, id: OpId) {
        let op = &mut self.ops[id];
        if let Some(direct) = &mut op.direct {
            direct.failed = true;
        }
    }

    /// All direct writes of an operation have ended, and the pool has decided about drives that refused one.
    pub(crate) fn direct_written(&mut self, id: OpId) {
        let op = &mut self.ops[id];
        // None of the blocks in place counts. The journal takes them, whatever fault a drive has returned.
        op.fault = None;
        if op.direct.as_ref().is_some_and(|direct| direct.failed) {
            self.log_content(id);
        } else {
            let direct = self.end_direct(id);
            let units = direct::units(&self.cx, (id, &self.ops[id]), &direct.sums);
            self.log_units(id, units);
        }
    }

    fn end_direct(&mut self, id: OpId) -> Box<Direct> {
        self.direct.end();
        let op = &mut self.ops[id];
        let direct = op.direct.take().expect("it went in place");
        self.room.took(&direct.charged);
        direct
    }

    /// The operation goes through the journal after all.
    fn log_content(&mut self, id: OpId) {
        let direct = self.end_direct(id);
        if self.ops[id].moves_from().is_some() {
            self.cancel_move(id);
            return;
        }
        if let Task::Convert(convert) = &mut self.ops[id].task {
            convert.give_up();
            self.end(id, Ok(()));
            return;
        }
        self.log_writes(id, &direct.sums);
    }

    /// Begins a flush if recovery would have to compare too much.
    pub(crate) fn flush_direct(&mut self) {
        let lanes = self.cx.geometry.lanes();
        if self.direct.ask_flush(self.log.completed(), lanes) {
            self.begin_flush(Waiter::Log);
        }
    }
}
