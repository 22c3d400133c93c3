//! Routes for room: writes that wait for room, and the pool's questions and grants.

use block::{BLOCK_BYTES, Fault, RequestKind, Seat};
use format::Sequence;
use plan::action::Event;
use plan::{GroupRequest, RequestId};

use crate::Lane;
use crate::room::{Needs, Next, needs_of_write, needs_of_zeros};

impl Lane {
    /// A request that changes blocks is about to begin. True if it waits for room.
    pub(crate) fn waits_for_room(&mut self, id: RequestId, request: &GroupRequest) -> bool {
        if !self.room.is_on() || request.request.length == 0 {
            return false;
        }
        match request.request.kind {
            RequestKind::Write => {
                let needs = needs_of_write(&self.cx, &self.ios, request);
                !self.room.admit(&mut self.cx, id, *request, needs)
            }
            RequestKind::Trim | RequestKind::Discard | RequestKind::WriteZeroes => {
                let needs = needs_of_zeros(&self.cx, &self.ios, request);
                self.room.count(&self.cx, id, *request, needs);
                false
            }
            RequestKind::Read | RequestKind::Flush => false,
        }
    }

    /// The pool asks about room. `pressed`: writes wait for it, in some lane.
    pub(crate) fn report_room(&mut self, round: u64, pressed: bool) {
        let trimmed = self.overlay.any_zeroed();
        let frees = trimmed || self.discards.may_free();
        let report = self.room.report(&self.cx, (round, pressed), frees);
        self.cx.events.push_back(Event::Room(Box::new(report)));
        if pressed && (self.room.needs_checkpoint() || trimmed || self.discards.awaits_checkpoint())
        {
            self.checkpoints.want();
        }
    }

    /// The pool grants room. `last`: there is no more, and none will be freed.
    pub(crate) fn room_granted(&mut self, limits: &[Option<u64>], last: bool) {
        if !self.room.is_on() {
            let logged = self.still_to_be_put_in_place();
            self.room.begin(&logged);
        }
        self.room.granted(limits);
        if !last {
            self.room.try_again();
        }
        self.begin_waiting(last);
        self.room.ask_again(&mut self.cx);
    }

    /// Writes that have waited long enough for room end.
    pub(crate) fn give_up_waiting(&mut self) {
        if { self.room.gives_up_at() }.is_some_and(|at| at <= self.cx.now) {
            self.begin_waiting(false);
        }
    }

    fn begin_waiting(&mut self, last: bool) {
        while let Some(next) = self.room.next(self.cx.now, last) {
            match next {
                Next::Begin(id, request) => self.begin_with_room(id, request),
                Next::NoSpace(id) => self.reply(id, Err(Fault::Full)),
            }
        }
    }

    /// The bytes that are logged and have a place, on each drive.
    pub(crate) fn still_to_be_put_in_place(&self) -> Needs {
        let mut needs = std::collections::BTreeMap::<Seat, u64>::new();
        for (name, logged) in self.overlay.up_to(Sequence(u64::MAX)) {
            if logged.bytes.memory().is_none() || self.cx.geometry.is_of_map(name) {
                continue;
            }
            let place = { self.cx.view() }.column(&self.cx.geometry, name.group, name.column);
            for cell in place.cells() {
                *needs.entry(cell.seat).or_default() += BLOCK_BYTES;
            }
        }
        needs.into_iter().collect()
    }
}
