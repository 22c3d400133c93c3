//! The drives of a running pool, as far as one drive is told from another: identities, not names.

use array::format::Generation;
use array::pool::{Pool, SeatState};
use uuid::Uuid;

use super::Seats;
use crate::drive::Identity;

/// A drive that a running pool lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The number by which users know the drive.
    pub number: u16,
    /// The identity in its label.
    pub drive: Uuid,
    /// Its name when it was last found.
    pub path: String,
    /// Whether its cells count.
    pub state: SeatState,
    /// Whether the drive is a spare that waits for any seat.
    pub is_free: bool,
    /// Whether the pool has the drive open. A drive that is out may still be open.
    pub is_open: bool,
    /// Whether the drive went out because it was gone: it has not failed.
    pub has_vanished: bool,
    /// The file or device that the pool has open; `None` if none is, or for memory.
    pub device: Option<Identity>,
}

impl Member {
    /// The generation since which the drive is out.
    #[must_use]
    pub const fn out_since(&self) -> Option<Generation> {
        match self.state {
            SeatState::Out { since, .. } => Some(since),
            SeatState::Current | SeatState::Filling | SeatState::Waiting => None,
        }
    }
}

/// The drives of a pool, in the order of their seats. Spares that were removed are not listed.
pub(super) fn members(pool: &Pool, seats: &Seats) -> Vec<Member> {
    let facts = pool.facts();
    let listed = facts.seats().filter(|(seat, of)| !of.is_removed(*seat));
    let member = |(seat, of): (block::Seat, &array::pool::SeatFacts)| {
        let open = seats.drive(seat);
        Member {
            number: facts.number(seat),
            drive: of.drive,
            path: of.path.clone(),
            state: of.state,
            is_free: of.is_free(),
            is_open: open.is_some(),
            has_vanished: pool.has_vanished(of.drive),
            device: open.and_then(|drive| drive.identity),
        }
    };
    listed.map(member).collect()
}
