//! Drives that are out and may still carry out operations that began before. If such a drive returned before they end, old
//! blocks could overwrite new ones.
//!
//! Inputs: a drive goes out, a lane has no operation on it any more, drives change seats. Output: whether the drive of a
//! seat may return.

use std::collections::BTreeMap;

use block::Seat;
use format::seeded::{self, SeededFault};

use super::context::writes::Writes;

/// Operations on drives that are out.
#[derive(Clone, Debug, Default)]
pub(super) struct Draining {
    /// Lanes that have yet to report that they have no operation in flight, by the seat in which the drive was then.
    lanes: BTreeMap<Seat, u32>,
    /// Drives that have changed seats since they went out: (present seat, seat by which the lanes and their operations
    /// name the drive).
    moved: Vec<(Seat, Seat)>,
}

impl Draining {
    /// The drive of a seat is out, and so many lanes get to know.
    pub(super) fn begins(&mut self, seat: Seat, lanes: u16) {
        *self.lanes.entry(seat).or_default() += u32::from(lanes);
    }

    /// A lane has no operation in flight any more on a drive that is out.
    pub(super) fn drained(&mut self, seat: Seat) {
        if let Some(left) = self.lanes.get_mut(&seat) {
            *left -= 1;
            if *left == 0 {
                self.lanes.remove(&seat);
            }
        }
    }

    /// Whether a drive that is out may still carry out earlier operations.
    pub(super) fn is_draining(&self, writes: &Writes, seat: Seat) -> bool {
        let mut moved = self.moved.iter().filter(|(now, _)| *now == seat);
        !seeded::is(SeededFault::FillDuringInstall)
            && (self.drains(writes, seat) || moved.any(|&(_, then)| self.drains(writes, then)))
    }

    /// Whether operations are in flight on a drive that was in the seat when they began, and went out there.
    fn drains(&self, writes: &Writes, seat: Seat) -> bool {
        writes.is_forgotten(seat) || self.lanes.contains_key(&seat)
    }

    /// How much is in flight, for an error. Lanes report that they have operations in flight, not how many.
    pub(super) fn operations(&self, seat: Seat) -> u64 {
        u64::from(self.lanes.get(&seat).copied().unwrap_or(1))
    }

    /// The drives in two seats have changed places. One that is out may still carry out operations.
    pub(super) fn exchange(&mut self, writes: &Writes, a: Seat, b: Seat) {
        for (now, _) in &mut self.moved {
            *now = match *now {
                now if now == a => b,
                now if now == b => a,
                now => now,
            };
        }
        for (then, now) in [(a, b), (b, a)] {
            if self.drains(writes, then) {
                self.moved.push((now, then));
            }
        }
    }

    /// The drive that is out in seat `then` has changed places with the drive in seat `now`, which is in use from now
    /// on.
    pub(super) fn moves(&mut self, writes: &Writes, then: Seat, now: Seat) {
        let before = std::mem::take(&mut self.moved);
        let still = before
            .into_iter()
            .filter(|&(_, then)| self.is_draining(writes, then));
        self.moved = still.collect();
        self.moved.push((now, then));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations on the drive of seat 2, which has gone out in a pool of two lanes.
    fn draining() -> Draining {
        let mut draining = Draining::default();
        draining.begins(Seat(2), 2);
        draining
    }

    fn is_draining(draining: &Draining, seat: u16) -> bool {
        draining.is_draining(&Writes::default(), Seat(seat))
    }

    #[test]
    fn a_drive_may_return_when_all_lanes_have_ended_their_operations() {
        let mut draining = draining();
        assert_eq!(draining.operations(Seat(2)), 2);
        draining.drained(Seat(2));
        assert!(is_draining(&draining, 2) && !is_draining(&draining, 3));
        draining.drained(Seat(2));
        assert!(!is_draining(&draining, 2));
    }

    #[test]
    fn a_drive_that_goes_out_twice_is_waited_for_twice() {
        let mut draining = draining();
        draining.begins(Seat(2), 2);
        for left in (0..4).rev() {
            draining.drained(Seat(2));
            assert_eq!(is_draining(&draining, 2), left > 0);
        }
    }

    #[test]
    fn a_late_report_of_a_lane_changes_nothing() {
        let mut draining = Draining::default();
        draining.drained(Seat(2));
        assert!(!is_draining(&draining, 2));
    }

    #[test]
    fn operations_of_the_pool_itself_count_too() {
        let mut writes = Writes::default();
        let label = crate::context::writes::PoolWrite::Label { seat: Seat(4) };
        writes.begin(block::Instant::ZERO, label, 0, vec![0; 4096]);
        writes.forget(Seat(4));
        let draining = Draining::default();
        assert!(draining.is_draining(&writes, Seat(4)));
        assert_eq!(draining.operations(Seat(4)), 1);
    }

    #[test]
    fn a_drive_is_waited_for_in_the_seat_that_it_has_now() {
        let mut draining = draining();
        // A spare of seat 6 takes the seat.
        draining.moves(&Writes::default(), Seat(2), Seat(6));
        assert!(is_draining(&draining, 6));
        draining.drained(Seat(2));
        draining.drained(Seat(2));
        assert!(!is_draining(&draining, 6));
    }

    #[test]
    fn drives_that_change_places_take_their_operations_along() {
        let writes = Writes::default();
        let mut draining = draining();
        draining.exchange(&writes, Seat(2), Seat(5));
        assert!(is_draining(&draining, 5));
        draining.exchange(&writes, Seat(5), Seat(7));
        assert!(is_draining(&draining, 7) && !is_draining(&draining, 5));
    }
}
