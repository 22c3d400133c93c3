//! Invariants of a pool between any two events. The simulator checks them after each of its steps.
//!
//! | part | invariant |
//! | --- | --- |
//! | cells | the place of a column is on a drive that is in, and in the drive's table; the cell is taken for it |
//! | cells | a taken cell is a place, was one, or is being filled, by the placement and by the queue of fills |
//! | cells | no two columns of a group are on one drive, except columns whose homes are on one drive |
//! | cells | lanes have each column of a written group where the pool has it (when neither waits for the other) |
//! | volumes | their groups exist, and no group belongs to two volumes |
//! | volumes | runs of groups that were never written are in order and apart |
//! | labels | no generation is skipped: the one being written is the newest one, or the one before it |
//! | labels | actions wait in order of generations, none of which is later than the newest |
//! | labels | only drives of the pool that are not out get a label |

use format::{Column, GroupId};
use layout::Cell;

use super::fill::kind;
use super::{Pool, SeatState};

impl Pool {
    /// Checks the invariants. `all`: also those that are counted over all columns that are not at home.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn check(&mut self, all: bool) {
        self.cx.placement.check_reports(&self.cx.facts);
        self.cx.placement.check_moves(self.fills.targets());
        if all {
            self.cx
                .placement
                .check(|seat| self.replacements.is_promoted(seat), kind::MOVES);
        }
        self.check_volumes();
        self.elastic.check();
        self.cx.labels.check();
        self.rooms.check();
        for seat in self.cx.labels.drives() {
            let state = self.cx.facts.seats[seat.index()].state;
            // Until the lanes switch to it, a successor is listed under its previous seat.
            let out = matches!(state, SeatState::Out { .. })
                && self.replacements.promoted_to(seat).is_none();
            assert!(!out, "drive {seat} gets labels, and is {state:?}");
        }
    }

    /// Checks that each column of a written group is where its lane has it. For moments at which the pool and the lanes
    /// have processed all messages of each other.
    ///
    /// # Panics
    /// When the pool and a lane disagree.
    pub fn check_places(&self, of_lane: impl Fn(GroupId, Column) -> Option<Cell>) {
        for group in self.cx.facts.allocated_groups() {
            for column in self.cx.geometry.columns() {
                let here = self.cx.placement.place((group, column));
                let there = of_lane(group, column);
                assert_eq!(
                    here, there,
                    "column {column} of group {group}: the pool and the lane have it in different cells"
                );
            }
        }
    }

    fn check_volumes(&self) {
        let volumes = self.cx.facts.volumes.iter();
        let mut used: Vec<(u64, u64)> = volumes.flat_map(|volume| volume.extents.clone()).collect();
        used.sort_unstable();
        let end = |&(first, count): &(u64, u64)| first + count;
        assert!(
            used.last()
                .is_none_or(|last| end(last) <= self.cx.geometry.groups())
        );
        for pair in used.windows(2) {
            assert!(
                end(&pair[0]) <= pair[1].0,
                "two volumes have a group: {pair:?}"
            );
        }
        for pair in self.cx.facts.uninitialized.windows(2) {
            assert!(end(&pair[0]) < pair[1].0, "runs are apart: {pair:?}");
        }
    }
}
