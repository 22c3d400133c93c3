//! Drives that take a seat, fresh or returning, and faults that hit them before they are filled.

use block::Seat;
use rand::RngExt;

use super::Maker;
use crate::schedule::{Event, Scope};

/// Maximum number of faults in a schedule that hit drives that have just taken their seats: each costs a recovery or a
/// rebuild.
pub(super) const MISHAPS: u32 = 1;

impl Maker {
    /// Sometimes fails and replaces all hurt drives at once. Drives whose replacement is incomplete when the power is
    /// cut are replaced one by one afterwards.
    pub(super) fn at_once(&mut self) {
        if self.scope == Scope::Orderly || self.rng.random_range(0..4) > 0 {
            return;
        }
        for seat in self.hurt.clone() {
            self.events.push(Event::Fail(seat));
        }
        for seat in self.hurt.clone() {
            self.away.retain(|&other| other != seat);
            self.soon(4);
            self.events.push(Event::Insert(seat));
        }
        if self.mishaps > 0 && self.rng.random_range(0..2) == 0 {
            self.mishaps -= 1;
            self.soon(60);
            self.power();
        }
    }

    /// A drive takes its seat; sometimes a fault follows before the drive has been filled.
    pub(super) fn joins(&mut self, event: Event, seat: Seat) {
        self.events.push(event);
        if self.scope == Scope::Orderly || !self.hurt.contains(&seat) {
            return;
        }
        // Sometimes the other hurt drives are replaced at the same time.
        if self.hurt.len() > 1 && self.rng.random_range(0..2) == 0 {
            let others: Vec<Seat> = self.hurt.iter().copied().filter(|&at| at != seat).collect();
            for other in others {
                self.soon(4);
                self.events.push(Event::Insert(other));
            }
        }
        if self.mishaps == 0 {
            return;
        }
        match self.rng.random_range(0..8) {
            0..2 => {
                self.mishaps -= 1;
                self.soon(60);
                self.power();
            }
            2 => {
                self.mishaps -= 1;
                self.soon(60);
                self.events.push(Event::Fail(seat));
            }
            _ => {}
        }
    }

    /// Sometimes an administrator fails a drive that does not answer in time, perhaps with operations in flight, and
    /// plugs it in again later.
    pub(super) fn is_taken_out_late(&mut self, seat: Seat) {
        if self.scope == Scope::Orderly || self.rng.random_range(0..2) == 0 {
            return;
        }
        for _ in 0..self.rng.random_range(1..6) {
            let request = self.request();
            self.events.push(request);
        }
        self.soon(60);
        self.events.push(Event::Fail(seat));
        self.away.push(seat);
    }

    fn soon(&mut self, most: u32) {
        let steps = self.rng.random_range(0..most);
        self.events.push(Event::Steps(steps));
    }

    /// A drive returns, with or without a loss of power, half of the time from another place.
    pub(super) fn back(&mut self, seat: Seat) -> Event {
        if self.places.random_bool(0.5) {
            self.events.push(Event::Moves(seat));
        }
        let lost = (self.rng.random_range(0..2) == 0).then(|| self.rng.random());
        Event::Return { seat, lost }
    }
}
