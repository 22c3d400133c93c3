//! Opening: the lanes read their journals before anything else happens.

use std::collections::BTreeSet;

use block::Outcome;

use super::{Effect, Pool, PoolError, Report};
use crate::action::Command;

/// Lanes that have not answered yet, and what happens then.
#[derive(Clone, Debug)]
pub(super) struct Recovering {
    lanes: BTreeSet<u16>,
    lost: Option<u16>,
    then: Vec<Effect>,
}

impl Pool {
    pub(super) fn recover_lanes(&mut self, fresh: bool, then: Vec<Effect>) {
        self.recovering = Some(Recovering {
            lanes: (0..self.geometry.lanes()).collect(),
            lost: None,
            then,
        });
        let incarnation = self.generation;
        self.tell_lanes(&Command::Recover { incarnation, fresh });
    }

    pub(super) fn lane_recovered(&mut self, lane: u16, batches: u64, outcome: Outcome) {
        if batches > 0 {
            self.report(Report::Replayed { lane, batches });
        }
        let Some(recovering) = &mut self.recovering else {
            return;
        };
        recovering.lanes.remove(&lane);
        if outcome.is_err() {
            recovering.lost = recovering.lost.or(Some(lane));
        }
        if !recovering.lanes.is_empty() {
            return;
        }
        let Some(Recovering { lost, then, .. }) = self.recovering.take() else {
            return;
        };
        self.recovered = lost.is_none();
        if self.recovered {
            self.tell_lost();
            self.resume_scrub();
        }
        for effect in then {
            match (lost, effect) {
                (None, effect) => self.carry_out(effect),
                (Some(lane), Effect::Done(ticket, _)) => {
                    self.done(ticket, Err(PoolError::JournalLost { lane }));
                }
                (Some(_), _) => {}
            }
        }
    }
}
