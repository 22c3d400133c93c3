//! More drives than the code survives are gone together, and come back: a shelf, a bus adapter.

use block::Seat;
use rand::RngExt;
use rand::seq::SliceRandom;

use super::Maker;
use crate::schedule::{Back, Event, Leave, SETTINGS, Seats};
use crate::world::CutSpec;

impl Maker {
    /// Ends the schedule with drives that are gone for a while. Before, all hurt drives are replaced: what they had may
    /// be lost, and these drives lose nothing.
    pub(super) fn blink(&mut self) {
        self.mend();
        for _ in 0..self.rng.random_range(1..16) {
            let request = self.request();
            self.events.push(request);
        }
        let of = SETTINGS[self.setting];
        let mut seats: Vec<Seat> = (0..of.drives).map(Seat).collect();
        seats.shuffle(&mut self.rng);
        seats.truncate(self.rng.random_range(of.tolerance + 1..=seats.len()));
        let most = [8, 60, 600][self.rng.random_range(0..3)];
        let back = match self.rng.random_range(0..4) {
            0 | 1 => Back::Open,
            2 => Back::Killed,
            _ => Back::Cut(CutSpec::Seed(self.rng.random())),
        };
        if back != Back::Open {
            self.other_names();
        }
        self.events.push(Event::Blink {
            seats: Seats::of(seats),
            leave: match self.rng.random_bool(0.5) {
                true => Leave::Gone,
                false => Leave::Fails,
            },
            steps: self.rng.random_range(0..most),
            back,
        });
        for _ in 0..self.rng.random_range(1..16) {
            let request = self.request();
            self.events.push(request);
        }
    }
}
