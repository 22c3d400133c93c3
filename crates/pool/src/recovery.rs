//! Opening: the lanes read their journals before anything else happens.

use std::collections::BTreeSet;

use block::{Fault, Outcome, Seat};
use plan::action::Command;

use super::{OnDurable, Pool, PoolError, Report};

/// Lanes that have not answered yet, and the actions after that.
#[derive(Clone, Debug)]
pub(super) struct Recovering {
    lanes: BTreeSet<u16>,
    /// The first lane that failed, and why.
    failed: Option<(u16, Fault)>,
    then: Vec<OnDurable>,
}

impl Pool {
    pub(super) fn recover_lanes(&mut self, fresh: bool, then: Vec<OnDurable>) {
        self.recovering = Some(Recovering {
            lanes: (0..self.cx.geometry.lanes()).collect(),
            failed: None,
            then,
        });
        let (sources, others): (Vec<Seat>, Vec<Seat>) =
            { self.cx.seats_gone() }.partition(|seat| self.journal.sources.contains(seat));
        let gone = others.into_iter().filter(|seat| {
            let facts = &self.cx.facts.seats[seat.index()];
            !facts.in_journal || facts.is_given_up()
        });
        let gone = gone.collect();
        self.journal.is_read(&mut self.cx);
        self.rooms.limit_lanes(&mut self.cx);
        self.cx.tell_lanes(&Command::Recover {
            incarnation: self.cx.labels.generation(),
            fresh,
            gone,
            sources,
        });
    }

    pub(super) fn lane_recovered(&mut self, lane: u16, batches: u64, outcome: Outcome) {
        if batches > 0 {
            self.cx.report(Report::Replayed { lane, batches });
        }
        let Some(recovering) = &mut self.recovering else {
            return;
        };
        recovering.lanes.remove(&lane);
        if let Err(fault) = outcome {
            recovering.failed = recovering.failed.or(Some((lane, fault)));
        }
        if !recovering.lanes.is_empty() {
            return;
        }
        let Some(Recovering { failed, then, .. }) = self.recovering.take() else {
            return;
        };
        self.cx.recovered = failed.is_none();
        if self.cx.recovered {
            self.rooms.lanes_are_ready(&mut self.cx);
            self.care_begins();
            self.elastic.count(&self.cx);
        }
        for effect in then {
            match (failed, effect) {
                (None, effect) => self.carry_out(effect),
                (Some((lane, fault)), OnDurable::Done(ticket, _)) => {
                    self.cx.done(ticket, Err(not_recovered(lane, fault)));
                }
                (Some(_), _) => {}
            }
        }
    }
}

/// Why a pool does not open if a lane has not recovered.
const fn not_recovered(lane: u16, fault: Fault) -> PoolError {
    match fault {
        Fault::Lost => PoolError::JournalLost { lane },
        // The whole journal is present, but a drive fails to flush what was read: nothing is lost.
        fault => PoolError::Fault { fault },
    }
}
