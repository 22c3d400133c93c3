//! What lanes and the pool exchange about room on drives that know how much of their physical space they use
//! (`docs/design/room.md`).

use block::{Instant, Seat};

/// A lane's account of one drive, in bytes. All three only grow, but for a limit that the lane has lowered to give back
/// room that it has not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeatRoom {
    /// The lane may charge up to here.
    pub limit: u64,
    /// What writes may have added, all of them together, at ratio 1.
    pub charged: u64,
    /// How much of that needs no count any more: it is in place, or will never be.
    pub settled: u64,
}

impl SeatRoom {
    /// Granted, and not charged.
    #[must_use]
    pub const fn unused(&self) -> u64 {
        self.limit.saturating_sub(self.charged)
    }

    /// Charged, and still to be put in place.
    #[must_use]
    pub const fn unsettled(&self) -> u64 {
        self.charged.saturating_sub(self.settled)
    }
}

/// What a lane answers when the pool asks about room. It gives back what it has not used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoomReport {
    /// Which lane.
    pub lane: u16,
    /// The round in which it was asked.
    pub round: u64,
    /// Its accounts, by seat.
    pub seats: Vec<SeatRoom>,
    /// What the write may add that waits in front; empty: none waits.
    pub needs: Vec<(Seat, u64)>,
    /// When that write began.
    pub since: Instant,
    /// A drive has refused that write although there was room for it.
    pub refused: bool,
    /// Drives are discarding, or will be: space may become free.
    pub frees: bool,
}

impl RoomReport {
    /// True if a write waits.
    #[must_use]
    pub const fn waits(&self) -> bool {
        !self.needs.is_empty() || self.refused
    }
}
