//! More drives than the code survives leave, and come back.

use std::time::Duration;

use array::pool::SeatState;
use block::Seat;

use super::{Checked, Run};
use crate::drive::{DriveFault, Trigger};
use crate::schedule::{Back, Event, Leave, Seats};

/// Time in which pool and lanes try again what drives have refused.
pub(super) const TRIES: Duration = Duration::from_secs(5);

impl Run {
    /// These drives leave, one after the other while the world goes on, and come back as they were. Meanwhile
    /// requests may end with errors. When all are back, everything can be read.
    pub(super) fn blink(
        &mut self,
        (seats, leave): (Seats, Leave),
        steps: u32,
        back: Back,
    ) -> Checked {
        self.blinks = true;
        let mut gone = Vec::new();
        let count = u32::try_from(seats.iter().count()).expect("few drives");
        for seat in seats.iter() {
            let takes_part = !self.is_out(seat);
            let world = self.world();
            let index = world.drive_index(seat);
            if let Some(drive) = world.drive_in(seat).filter(|_| takes_part)
                && !drive.is_gone()
                && !drive.is_broken()
            {
                match leave {
                    Leave::Gone => drive.pull(),
                    Leave::Fails => {
                        let fault = DriveFault::Eio { for_good: true };
                        drive.inject(Trigger::nth(0), fault);
                    }
                }
                gone.extend(index);
            }
            for _ in 0..steps / count {
                self.step()?;
            }
        }
        for _ in 0..steps % count.max(1) {
            self.step()?;
        }
        let cut = match back {
            Back::Open => None,
            Back::Killed => Some(None),
            Back::Cut(spec) => Some(Some(spec)),
        };
        if let Some(cut) = cut {
            let mut drives = self.stop(cut);
            for index in gone {
                drives[index].come_back();
            }
            self.open(drives)?;
        } else {
            for index in gone {
                self.world().drives_mut()[index].come_back();
            }
            self.room(0)?;
            // A request from before may wait with an error for the next try; and what nobody waits for is tried again
            // in the pool's own time.
            self.ask(Event::Flush);
            self.room(0)?;
            let until = self.world().now() + TRIES;
            while self.world().now() < until && self.step()? {}
        }
        self.blinks = false;
        for seat in seats.iter() {
            if self.is_out(seat) {
                self.bring_back(seat, None)?;
            }
        }
        self.settle()?;
        self.read_back()
    }

    pub(super) fn is_out(&mut self, seat: Seat) -> bool {
        let facts = self.world().pool().facts();
        let state = facts.seats.get(seat.index()).map(|facts| facts.state);
        matches!(state, Some(SeatState::Out { .. }))
    }
}
