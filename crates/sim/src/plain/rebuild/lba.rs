//! In order of address, a window of steps in flight.
//!
//! The oldest begun cell that has steps left goes on; the next cell begins when no begun cell has steps left. So a
//! window of 256 steps of 1 MiB over cells of 16 MiB covers some sixteen groups, and only their drives are busy. This
//! keeps a declustered rebuild below its bound (`reference/layouts.md`, 7.2).

use array::format::{Column, GroupId};

use super::{Choose, Next, Rebuild};

#[derive(Clone, Copy, Debug)]
pub(super) struct Lba {
    pub(super) window: usize,
}

impl Choose for Lba {
    fn next(&self, rebuild: &Rebuild, _queued: &dyn Fn(GroupId, Column) -> usize) -> Option<Next> {
        if rebuild.in_flight >= self.window.max(1) {
            return None;
        }
        let mut begun = rebuild.begun.iter();
        match begun.find(|(_, begun)| rebuild.has_steps(begun)) {
            Some((&key, _)) => Some(Next::Step(key)),
            None => (!rebuild.lost.is_empty()).then_some(Next::Begin(0)),
        }
    }
}
