//! Drive return: drives that were out or absent take their seats again.

use std::collections::{BTreeMap, BTreeSet};

use array::format;
use array::pool::{NewDrive, PoolError, Proof, Ticket};
use block::Seat;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::power::by_chance;
use super::queue::WorldEvent;
use super::{World, random_uuid, seat_at};
use crate::drive::{Drive, Survival};

impl World {
    /// Reads a drive's proof of what it holds: its label and the heads of its journal.
    #[must_use]
    pub fn proof(drive: &mut Drive) -> Option<Proof> {
        let slots = format::LABEL_OFFSETS
            .map(|offset| drive.read_used(offset, format::LABEL_SLOT_BYTES as u64));
        let [Ok(first), Ok(second)] = slots else {
            return None;
        };
        let (_, label) = format::newest_label([&first, &second]).ok()?;
        let heads: Result<Vec<Vec<u8>>, _> = Proof::places(&label)
            .into_iter()
            .map(|(offset, length)| {
                let mut bytes = vec![0; usize::try_from(length).expect("two blocks")];
                drive.read(offset, &mut bytes).map(|()| bytes)
            })
            .collect();
        Some(Proof::new(label, &heads.ok()?))
    }

    /// Plugs in a drive again that is out. With `lost` it had lost power: this seed decides which of its un-flushed
    /// writes survive.
    pub fn plug_in(&mut self, seat: Seat, lost: Option<u64>) {
        let mut chance = lost.map(ChaCha8Rng::seed_from_u64);
        let mut survival = chance
            .as_mut()
            .map(|chance| |sectors: u32| by_chance(chance, sectors));
        let survival = survival
            .as_mut()
            .map(|survival| survival as &mut dyn FnMut(u32) -> Survival);
        self.drive(seat).plug_in(survival);
    }

    /// Deletes a volume.
    ///
    /// # Errors
    /// As [`array::pool::Pool::delete_volume`].
    pub fn delete_volume(&mut self, name: &str) -> Result<(), PoolError> {
        self.command(|pool, now, ticket| pool.delete_volume(now, name, ticket))
    }

    /// Moves the drive that left a seat to the place of the drive that left the other seat, and the other way round; or
    /// to a new place, with an empty drive where it was. The pool no longer has a handle of either. Returns the two
    /// places whose drives were exchanged.
    ///
    /// # Panics
    /// When no drive sits there.
    pub(crate) fn move_elsewhere(&mut self, seat: Seat, other: Option<Seat>) -> (usize, usize) {
        let from = self.drive_index_of(seat);
        let to = other.map(|other| self.drive_index_of(other));
        let to = to.unwrap_or_else(|| {
            self.drives.push(self.drives[from].another());
            self.drives.len() - 1
        });
        self.drives.swap(from, to);
        for seat in [Some(seat), other].into_iter().flatten() {
            seat_at(&mut self.seats, seat, None);
        }
        (from, to)
    }

    /// Checks that no two drives have one identity, and that no two seats do.
    ///
    /// # Panics
    /// When that is not so.
    pub(crate) fn check_identities(&mut self) {
        let mut labels = format::LabelReader::default();
        let mut known = BTreeMap::new();
        for (index, drive) in self.drives.iter_mut().enumerate() {
            let slots = format::LABEL_OFFSETS
                .map(|offset| drive.read_used(offset, format::LABEL_SLOT_BYTES as u64));
            if let [Ok(first), Ok(second)] = slots
                && let Ok((_, label)) = labels.newest([&first, &second])
                && let Some(other) = known.insert(label.drive, index)
            {
                panic!("drives {other} and {index} both are {}", label.drive);
            }
        }
        let seats = self.pool.facts().seats();
        let identities: BTreeSet<_> = seats.map(|(_, facts)| facts.drive).collect();
        let seats = self.pool.facts().seats.len();
        assert_eq!(identities.len(), seats, "two seats have one drive");
    }

    /// Seats the drive that left a seat and was absent when the pool was opened. Returns false if there is no such
    /// drive.
    pub fn find_absent(&mut self, seat: Seat) -> bool {
        let wanted = self.pool.facts().seats[seat.index()].drive;
        let seated = |index: &usize| self.seats.contains(&Some(*index));
        let found = (0..self.drives.len()).find(|index| {
            let mut drive = self.drives[*index].clone();
            drive.plug_in(None);
            !seated(index) && Self::proof(&mut drive).is_some_and(|is| is.drive() == wanted)
        });
        let Some(index) = found else {
            return false;
        };
        self.attach(seat, index);
        true
    }

    /// Puts a drive that is new here into a seat.
    pub(super) fn attach_fresh(&mut self, seat: Seat, drive: Drive) {
        let index = self.drives.len();
        self.drives.push(drive);
        self.attach(seat, index);
    }

    /// Each lane gets the drive before any command that makes it use the drive.
    fn attach(&mut self, seat: Seat, index: usize) {
        seat_at(&mut self.seats, seat, Some(index));
        for lane in 0..self.pool.geometry().lanes() {
            let seated = WorldEvent::Seated(lane, seat, index);
            self.push(self.now + super::HAND_OVER, seated);
        }
    }

    /// Scrubs the pool: compares all blocks with their checksums. Returns when the scrub has ended.
    ///
    /// # Errors
    /// As [`array::pool::Pool::scrub`].
    pub fn scrub(&mut self) -> Result<(), PoolError> {
        self.command(array::pool::Pool::scrub)
    }

    /// Brings back the drive that sits in a seat and is out. Returns when the change is durable.
    ///
    /// # Errors
    /// As [`array::pool::Pool::return_drive`].
    pub fn return_drive(&mut self, seat: Seat) -> Result<(), PoolError> {
        while self.pool.is_draining(seat) && self.step() {}
        self.begin_return_drive(seat, None);
        let ticket = Ticket(self.next_ticket - 1);
        self.await_ticket(ticket)
    }

    /// The same without waiting, with the drive `instead` in the seat if there is one. Returns true if the pool
    /// accepted the command.
    pub fn begin_return_drive(&mut self, seat: Seat, instead: Option<Drive>) -> bool {
        if let Some(drive) = instead {
            let index = self.drives.len();
            self.drives.push(drive);
            self.attach(seat, index);
        }
        let uuid = random_uuid(&mut self.rng);
        let drive = self.drive(seat);
        let size_bytes = drive.size_bytes();
        let proof = Self::proof(drive);
        let ticket = self.ticket();
        let facts = NewDrive::new(uuid, "sim:back".to_owned(), size_bytes);
        let proof = proof.as_ref();
        let started = self.pool.return_drive(self.now, seat, facts, proof, ticket);
        let agreed = started.is_ok();
        if agreed {
            self.returning.insert(seat, ticket);
        } else {
            self.tickets.insert(ticket, Some(started));
        }
        self.poll_pool();
        agreed
    }

    /// Whether a drive returns to the seat, and the pool has not seated it yet: its journal is being overwritten.
    pub(crate) fn is_returning(&self, seat: Seat) -> bool {
        let ticket = self.returning.get(&seat);
        ticket.is_some_and(|&ticket| !self.has_ended(ticket))
    }
}
