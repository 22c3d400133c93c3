//! What must hold when faults have stopped.

use array::pool::{SeatFacts, SeatState};
use block::{Seat, mix};

use super::blink::TRIES;
use super::{Checked, Run, VOLUME, Violation};
use crate::content::SECTOR;
use crate::schedule::{Event, SETTINGS};

/// Requests in flight when the whole volume is read back, and bytes of each.
const READ_BACK: (usize, u64) = (8, 64 << 10);

impl Run {
    /// A scrub finds all damage that has not been read yet. A second scrub must find nothing.
    pub(super) fn scrub_until_clean(&mut self) -> Checked {
        for last in [false, true] {
            self.say(|| "scrub".to_owned());
            self.world().begin_scrub();
            self.settle()?;
            let progress = self.world().pool().scrub_progress();
            let (bad, failed) = (progress.bad, progress.failed);
            if last && (bad > 0 || failed > 0) {
                let what = format!("a second scrub finds {bad} bad blocks, {failed} groups failed");
                return Err(Violation::new("I5", what));
            }
        }
        Ok(())
    }

    /// Checks that none of these seats is out, except the lost ones.
    pub(crate) fn takes_part(&mut self, seats: &[Seat], lost: &[Seat]) -> Checked {
        let facts = self.world().pool().facts();
        let out = |seat: &&Seat| matches!(facts.seats[seat.index()].state, SeatState::Out { .. });
        match seats.iter().filter(|seat| !lost.contains(seat)).find(out) {
            Some(seat) => {
                let what = format!("seat {seat} is out though nothing happened to its drive");
                Err(Violation::new("I5", what))
            }
            None => Ok(()),
        }
    }

    /// Brings back all drives that are out, or puts fresh ones into their seats, and waits until every seat is complete.
    pub(crate) fn all_come_back(&mut self) -> Checked {
        let seats = self.world().pool().facts().seats.len();
        for index in 0..seats {
            let seat = Seat(u16::try_from(index).expect("seats are 16 bits"));
            if self.is_out(seat) {
                self.bring_back(seat, None)?;
            }
        }
        self.settle()?;
        self.has_left()?;
        self.is_complete()
    }

    /// A drive that is leaving has left by now, unless the others have no room: then it stays.
    fn has_left(&mut self) -> Checked {
        let Some(seat) = self.world().pool().leaving() else {
            return Ok(());
        };
        if !self.world().pool().leaving_lacks_room() {
            return Err(Violation::new("I5", format!("drive {seat} does not leave")));
        }
        self.world().begin_keep(seat).ok();
        self.settle()?;
        let facts = &self.world().pool().facts().seats[seat.index()];
        if matches!(facts.state, SeatState::Out { .. }) {
            self.hand_in(seat)?;
        }
        self.settle()
    }

    /// Checks that every seat of the layout has a drive with all its content.
    fn is_complete(&mut self) -> Checked {
        let world = self.world();
        let facts = world.pool().facts();
        let drives = usize::from(world.pool().geometry().layout().drives());
        let mut seats = facts.seats().take(drives);
        let complete = |(seat, facts): &(Seat, &SeatFacts)| {
            facts.state == SeatState::Current || facts.is_removed(*seat)
        };
        match seats.find(|seat| !complete(seat)) {
            Some((seat, _)) => Err(Violation::new("I5", format!("seat {seat} is not complete"))),
            None => Ok(()),
        }
    }

    /// Stops faults, waits until all work has ended, and provides every seat with a good drive.
    pub(crate) fn quiesce(&mut self) -> Checked {
        let world = self.world();
        for drive in world.drives_mut() {
            drive.stop_faults();
            drive.recover();
        }
        world.release();
        self.room(0)?;
        self.settle()?;
        let seats = SETTINGS.len().max(self.world().pool().facts().seats.len());
        for seat in 0..seats {
            let seat = Seat(u16::try_from(seat).expect("seats are 16 bits"));
            let world = self.world();
            if seat.index() >= world.pool().facts().seats.len() {
                break;
            }
            let facts = &world.pool().facts().seats[seat.index()];
            let state = facts.state;
            if facts.is_removed(seat) {
                continue;
            }
            let bad = world
                .drive_in(seat)
                .is_none_or(|drive| drive.is_gone() || drive.is_broken() || drive.has_bad_blocks());
            if bad || matches!(state, SeatState::Out { .. }) {
                self.hand_in(seat)?;
            }
        }
        self.settle()?;
        self.has_left()?;
        self.is_complete()?;
        self.no_lane_is_stalled()
    }

    /// All drives work: within seconds no lane says that they refuse something.
    fn no_lane_is_stalled(&mut self) -> Checked {
        let until = self.world().now() + TRIES;
        while self.world().is_stalled() && self.world().now() < until && self.step()? {}
        match self.world().is_stalled() {
            true => Err(Violation::new("I4", "a lane waits for drives that work")),
            false => Ok(()),
        }
    }

    /// Reads the whole volume.
    pub(crate) fn read_back(&mut self) -> Checked {
        let (depth, bytes) = READ_BACK;
        let size = (self.ledger.sectors() * SECTOR) as u64;
        let mut offset = 0;
        while offset < size {
            let length = bytes.min(size - offset);
            self.room(depth - 1)?;
            self.check_holes(offset, length)?;
            self.ask(Event::Read { offset, length });
            // The client's requests are counted without these.
            self.requests -= 1;
            offset += length;
        }
        self.room(0)?;
        self.settle()
    }

    /// Ranges that lanes report as holes read as zeros, now and as long as no client writes there.
    pub(super) fn check_holes(&mut self, offset: u64, length: u64) -> Checked {
        for (offset, length) in self.world().holes(VOLUME, (offset, length)) {
            let low = usize::try_from(offset).expect("volumes are small") / SECTOR;
            let sectors = usize::try_from(length).expect("volumes are small") / SECTOR;
            let begun = self.ledger.read_begins();
            let zeros = self.ledger.read_ends(begun, low, &vec![0; sectors]);
            zeros.map_err(|illegal| Violation::new("I1", format!("a hole: {illegal}")))?;
        }
        Ok(())
    }

    /// Pulls as many drives as the geometry survives; all data must still be readable.
    pub(crate) fn lose_and_read_back(&mut self) -> Checked {
        let (drives, tolerance) = (
            SETTINGS[self.setting].drives,
            SETTINGS[self.setting].tolerance,
        );
        for number in 0..tolerance {
            // Neighbouring seats, beginning with any.
            let first = usize::try_from(mix(self.seed) % u64::from(drives)).expect("few drives");
            let seat = (first + number) % usize::from(drives);
            let seat = Seat(u16::try_from(seat).expect("seats are 16 bits"));
            if let Some(drive) = self.world().drive_in(seat) {
                drive.pull();
            }
        }
        self.say(|| "everything again, with drives lost".to_owned());
        self.read_back()
    }
}
