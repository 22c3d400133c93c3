//! What holds of a pool between any two events: the simulator asks after each of its steps.
//!
//! | part | what holds |
//! | --- | --- |
//! | cells | a column is in a cell of a seat that there is, and no other column has that cell |
//! | cells | no two columns of a group are on one drive |
//! | volumes | their groups exist, and no two volumes have one |
//! | volumes | runs of groups that were never written are in order and apart, and each is of a volume |
//! | labels | no generation is left out: what is being written is the newest one, or the one before it |
//! | labels | what waits for a generation is in order of generations, none of which is later than the newest |
//! | labels | only drives that take part are asked to take one |

use std::collections::BTreeSet;

use block::Seat;

use super::{Pool, SeatState};

impl Pool {
    /// Checks what holds between events.
    ///
    /// # Panics
    /// When something does not hold.
    pub fn check(&self) {
        self.check_cells();
        self.check_volumes();
        self.labels.check(self.generation);
        for seat in self.labels.asked() {
            assert!(self.drives.contains_key(&seat), "drive {seat} takes part");
        }
        for &seat in self.drives.keys() {
            let state = self.facts.seats.get(seat.index()).map(|facts| facts.state);
            assert!(
                state.is_some_and(|state| !matches!(state, SeatState::Out { .. })),
                "drive {seat} takes part, and is {state:?}"
            );
        }
    }

    fn check_cells(&self) {
        let mut group_of_seats = None;
        let mut seats: BTreeSet<Seat> = BTreeSet::new();
        for (&(group, column), &(cell, _)) in &self.places {
            assert!(
                cell.seat.index() < self.facts.seats.len(),
                "{cell:?} exists"
            );
            if group_of_seats != Some(group) {
                group_of_seats = Some(group);
                seats.clear();
            }
            assert!(
                seats.insert(cell.seat),
                "drive {} has two columns of group {group}, one of them {column}",
                cell.seat
            );
        }
    }

    fn check_volumes(&self) {
        let volumes = self.facts.volumes.iter();
        let mut used: Vec<(u64, u64)> = volumes.flat_map(|volume| volume.extents.clone()).collect();
        used.sort_unstable();
        let end = |&(first, count): &(u64, u64)| first + count;
        assert!(
            used.last()
                .is_none_or(|last| end(last) <= self.geometry.groups())
        );
        for pair in used.windows(2) {
            assert!(
                end(&pair[0]) <= pair[1].0,
                "two volumes have a group: {pair:?}"
            );
        }
        for pair in self.facts.uninitialized.windows(2) {
            assert!(end(&pair[0]) < pair[1].0, "runs are apart: {pair:?}");
        }
    }
}
