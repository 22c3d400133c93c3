//! Whole cells, first the one whose drives have the least queued.

use array::format::{Column, GroupId};

use super::{Choose, Next, Rebuild};

/// The best of so many lost cells, in order, begins. A guess as in the pool's own queue: enough to find drives that are
/// idle, few enough to stay near the order.
const LOOK_AHEAD: usize = 64;

#[derive(Clone, Copy, Debug)]
pub(super) struct LeastQueued {
    pub(super) cells: usize,
    pub(super) steps: usize,
}

impl Choose for LeastQueued {
    fn next(&self, rebuild: &Rebuild, queued: &dyn Fn(GroupId, Column) -> usize) -> Option<Next> {
        let steps = self.steps.max(1);
        let mut begun = rebuild.begun.iter();
        let ready = begun.find(|(_, begun)| rebuild.has_steps(begun) && begun.in_flight < steps);
        if let Some((&key, _)) = ready {
            return Some(Next::Step(key));
        }
        if rebuild.begun.len() >= self.cells.max(1) {
            return None;
        }
        let candidates = rebuild.lost.iter().take(LOOK_AHEAD).enumerate();
        let best =
            candidates.min_by_key(|&(index, &(group, column))| (queued(group, column), index));
        best.map(|(index, _)| Next::Begin(index))
    }
}
