//! Seats whose drive is in use by the facts while the lanes have not processed that yet: lanes would skip writes to it.

use std::collections::BTreeMap;

use block::Seat;

/// Counted: a drive can join, go out and join again meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Joining(BTreeMap<Seat, u32>);

impl Joining {
    /// Whether the lanes have yet to get the command that brings in the seat's drive.
    pub(super) fn contains(&self, seat: Seat) -> bool {
        self.0.contains_key(&seat)
    }

    /// The facts, not yet durable, bring in the seat's drive.
    pub(super) fn begins(&mut self, seat: Seat) {
        *self.0.entry(seat).or_default() += 1;
    }

    /// The lanes get the command. At opening they also get it for drives that had joined before.
    pub(super) fn ends(&mut self, seat: Seat) {
        if let Some(count) = self.0.get_mut(&seat) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&seat);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_has_joined_when_lanes_have_heard_it_as_often_as_it_began() {
        let mut joining = Joining::default();
        let seat = Seat(2);
        joining.ends(seat);
        joining.begins(seat);
        joining.begins(seat);
        joining.ends(seat);
        assert!(joining.contains(seat));
        joining.ends(seat);
        assert!(!joining.contains(seat));
    }
}
