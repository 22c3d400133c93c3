//! Redundancy that volumes lack, and how many more drives may fail.

use plan::SubStripePlans;

use super::{Pool, is_recoverable};

impl Pool {
    /// Columns of volumes that no drive has.
    #[must_use]
    pub fn absent_columns(&self) -> u64 {
        self.cx.placement.absent().count() as u64
    }

    /// Groups of volumes that can be read and cannot lose another column, though their code has redundancy.
    #[must_use]
    pub fn groups_without_redundancy(&self) -> u64 {
        let tolerance = usize::from(self.cx.geometry.code().tolerance());
        if tolerance == 0 {
            return 0;
        }
        let mut plans = SubStripePlans::default();
        let groups = self.cx.placement.lacking();
        let groups = groups.filter(|&group| self.cx.placement.absent_in(group) >= tolerance);
        groups
            .filter(|&group| !self.is_lost(group, &mut plans))
            .count() as u64
    }

    /// Drives that may fail at once from now on, whichever they are, with all data still readable.
    #[must_use]
    pub fn survives_drives(&self) -> u16 {
        let out = || {
            let out = u16::try_from(self.cx.seats_gone().count()).unwrap_or(u16::MAX);
            out.saturating_sub(self.cx.geometry.layout().spare_drives())
        };
        let lost = match self.cx.placement.groups().is_empty() {
            true => out(),
            false => {
                let groups = self.cx.placement.lacking();
                let most = groups.map(|group| self.cx.placement.absent_in(group)).max();
                u16::try_from(most.unwrap_or(0)).unwrap_or(u16::MAX)
            }
        };
        self.cx.geometry.code().tolerance().saturating_sub(lost)
    }

    /// Groups of volumes whose data cannot be read as a whole any more.
    #[must_use]
    pub fn lost_groups(&self) -> u64 {
        let mut plans = SubStripePlans::default();
        let groups = self.cx.placement.lacking();
        groups
            .filter(|&group| self.is_lost(group, &mut plans))
            .count() as u64
    }

    /// Whether the group's data cannot be read as a whole any more.
    pub(super) fn is_lost(&self, group: u64, plans: &mut SubStripePlans) -> bool {
        let tolerance = usize::from(self.cx.geometry.code().tolerance());
        let columns = usize::from(self.cx.geometry.layout().columns());
        let readable = self.cx.placement.readable(group, &[]);
        // Mirrors can lose many columns of a group, so the count alone does not mean a loss.
        columns - readable.len() > tolerance
            && !is_recoverable(&self.cx.geometry, plans, group, &readable)
    }
}
