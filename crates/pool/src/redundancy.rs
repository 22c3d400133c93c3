//! Redundancy that volumes lack, and how many more drives may fail.

use block::Seat;
use plan::SubStripePlans;

use super::{Pool, SeatState, is_recoverable};

impl Pool {
    /// Columns of a group that no drive has.
    pub(super) fn absent_in(&self, group: u64) -> usize {
        let columns = 0..self.geometry.layout().columns();
        columns
            .filter(|&column| self.source(group, column).is_none())
            .count()
    }

    /// Columns of volumes that no drive has.
    #[must_use]
    pub fn absent_columns(&self) -> u64 {
        let groups = self.facts.allocated_groups();
        groups.map(|group| self.absent_in(group) as u64).sum()
    }

    /// Groups of volumes that can be read and cannot lose another column, though their code has redundancy.
    #[must_use]
    pub fn groups_without_redundancy(&self) -> u64 {
        let tolerance = usize::from(self.geometry.code().tolerance());
        if tolerance == 0 {
            return 0;
        }
        let mut plans = SubStripePlans::default();
        let groups = self.facts.allocated_groups();
        let groups = groups.filter(|&group| self.absent_in(group) >= tolerance);
        groups
            .filter(|&group| !self.is_lost(group, &mut plans))
            .count() as u64
    }

    /// Drives that may fail at once from now on, whichever they are, with all data still readable.
    #[must_use]
    pub fn survives_drives(&self) -> u16 {
        let absent = |group| u16::try_from(self.absent_in(group)).unwrap_or(u16::MAX);
        let out = || {
            let out =
                |seat: &Seat| matches!(self.facts.seats[seat.index()].state, SeatState::Out { .. });
            let out = self.layout_seats().filter(out).count();
            let out = u16::try_from(out).unwrap_or(u16::MAX);
            out.saturating_sub(self.geometry.layout().spares())
        };
        let lost = self.facts.allocated_groups().map(absent).max();
        let lost = lost.unwrap_or_else(out);
        self.geometry.code().tolerance().saturating_sub(lost)
    }

    /// Groups of volumes whose data cannot be read as a whole any more.
    #[must_use]
    pub fn lost_groups(&self) -> u64 {
        let mut plans = SubStripePlans::default();
        let groups = self.facts.allocated_groups();
        groups
            .filter(|&group| self.is_lost(group, &mut plans))
            .count() as u64
    }

    /// Whether the group's data cannot be read as a whole any more.
    pub(super) fn is_lost(&self, group: u64, plans: &mut SubStripePlans) -> bool {
        let tolerance = usize::from(self.geometry.code().tolerance());
        let columns = usize::from(self.geometry.layout().columns());
        let readable = self.readable_columns(group, &[]);
        // Mirrors can lose many columns of a group, so the count alone does not mean a loss.
        columns - readable.len() > tolerance
            && !is_recoverable(&self.geometry, plans, group, &readable)
    }
}
