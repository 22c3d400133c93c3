//! Redundancy that volumes lack, and how many more drives may fail: questions about the places of columns.

use format::GroupId;
use plan::SubStripePlans;

use super::context::Context;
use super::is_recoverable;

impl Context {
    /// Groups of volumes that can be read and cannot lose another column, though their code has redundancy.
    pub(crate) fn groups_without_redundancy(&self) -> u64 {
        let tolerance = usize::from(self.geometry.code().tolerance());
        if tolerance == 0 {
            return 0;
        }
        let mut plans = SubStripePlans::default();
        let groups = self.placement.lacking();
        let groups = groups.filter(|&group| self.placement.absent_in(group) >= tolerance);
        groups
            .filter(|&group| !self.is_lost(group, &mut plans))
            .count() as u64
    }

    /// Drives that may fail at once from now on, whichever they are, with all data still readable.
    pub(crate) fn survives_drives(&self) -> u16 {
        let lost = if self.placement.groups().is_empty() {
            let out = u16::try_from(self.seats_gone().count()).unwrap_or(u16::MAX);
            out.saturating_sub(self.geometry.layout().spare_drives())
        } else {
            let groups = self.placement.lacking();
            let most = groups.map(|group| self.placement.absent_in(group)).max();
            u16::try_from(most.unwrap_or(0)).unwrap_or(u16::MAX)
        };
        self.geometry.code().tolerance().saturating_sub(lost)
    }

    /// Groups of volumes whose data cannot be read as a whole any more.
    pub(crate) fn lost_groups(&self) -> u64 {
        let mut plans = SubStripePlans::default();
        let groups = self.placement.lacking();
        groups
            .filter(|&group| self.is_lost(group, &mut plans))
            .count() as u64
    }

    /// Whether the group's data cannot be read as a whole any more.
    pub(crate) fn is_lost(&self, group: GroupId, plans: &mut SubStripePlans) -> bool {
        let tolerance = usize::from(self.geometry.code().tolerance());
        let columns = usize::from(self.geometry.layout().columns());
        let readable = self.placement.readable(group, &[]);
        // Mirrors can lose many columns of a group, so the count alone does not mean a loss.
        columns - readable.len() > tolerance
            && !is_recoverable(&self.geometry, plans, group, &readable)
    }
}

#[cfg(test)]
mod tests {
    use block::Seat;

    use super::*;
    use crate::OutReason;
    use crate::fixture::{context, is_out};

    /// What is left after each of these drives has gone out: drives that may fail, groups without redundancy, and lost
    /// groups.
    fn after_each(cx: &mut Context, seats: &[u16]) -> Vec<(u16, u64, u64)> {
        let after = seats.iter().map(|&seat| {
            is_out(cx, Seat(seat), OutReason::Hung);
            let without = cx.groups_without_redundancy();
            (cx.survives_drives(), without, cx.lost_groups())
        });
        after.collect()
    }

    #[test]
    fn each_drive_that_is_out_takes_one_from_the_tolerance_until_data_is_lost() {
        let mut cx = context("raid6", 6, 3);
        assert_eq!(cx.survives_drives(), 2);
        let after = after_each(&mut cx, &[4, 1, 0]);
        assert_eq!(after, [(1, 0, 0), (0, 3, 0), (0, 0, 3)]);
        assert!(cx.is_lost(GroupId(2), &mut SubStripePlans::default()));
    }

    #[test]
    fn without_volumes_drives_count_and_nothing_is_lost() {
        let mut cx = context("raid6", 6, 0);
        let after = after_each(&mut cx, &[4, 1, 0]);
        assert_eq!(after, [(1, 0, 0), (0, 0, 0), (0, 0, 0)]);
    }

    #[test]
    fn a_code_without_redundancy_does_not_lack_it() {
        let mut cx = context("raid0", 4, 2);
        assert_eq!(
            (cx.survives_drives(), cx.groups_without_redundancy()),
            (0, 0)
        );
        assert_eq!(after_each(&mut cx, &[2]), [(0, 0, 2)]);
    }
}
