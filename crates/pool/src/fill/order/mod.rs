//! Which of the waiting cells is filled next: a policy, one in each file.
//!
//! Safety comes first and is not a policy: cells of groups that have lost most go before all others, and no drive has
//! more fills than its limit (`queue.rs`). A policy chooses among cells that are equal in this.
//!
//! Adding one is a file here, its `mod` line and its line in [`FILL_ORDERS`] (`docs/howto/add-a-rebuild-policy.md`).

mod address;
mod least_busy;
/// The example of `docs/howto/add-a-rebuild-policy.md`, which is compiled and tested here.
#[cfg(test)]
#[path = "../../../../../docs/howto/least_moved.rs"]
mod least_moved;

pub use super::queue::{FillChoice, FillLoads, FillOrder};

/// All policies. The first one is the default.
pub const FILL_ORDERS: &[&dyn FillOrder] = &[
    &least_busy::LeastBusy,
    &address::Address,
    #[cfg(test)]
    &least_moved::LeastMoved,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use block::Seat;
    use format::{Column, GroupId};
    use layout::Cell;

    use super::*;
    use crate::fill::Fills;
    use crate::fill::kind::Kind;
    use crate::fill::queue::{Class, FILLS_PER_DRIVE, Limits};

    /// Cells of this many groups, each of which reads drives `group` and `group + 1` and writes drive `group + 2`, of ten.
    fn choices(groups: u64) -> Vec<FillChoice> {
        let seat = |at: u64| Seat(u16::try_from(at % 10).unwrap());
        let choice = |group: u64| FillChoice {
            group: GroupId(group),
            column: Column(0),
            seats: (group..group + 3).map(seat).collect(),
        };
        (0..groups).map(choice).collect()
    }

    /// Begins the chosen fills until none is chosen any more: the groups in that order.
    fn all(order: &'static dyn FillOrder, waiting: &[FillChoice]) -> Vec<GroupId> {
        let mut fills = Fills::default();
        fills.set_order(order);
        for choice in waiting {
            fills.wait(
                Class::new(Kind::named("copy_back"), || 0),
                (choice.group, choice.column),
            );
        }
        let of = |key: (GroupId, Column)| waiting[usize::try_from(key.0.0).unwrap()].clone();
        let limits = Limits {
            copying: u64::MAX / 2,
            per_drive: FILLS_PER_DRIVE,
        };
        let mut groups = Vec::new();
        while let Some((class, key)) = fills.next(limits, of) {
            let choice = of(key);
            let (target, sources) = choice.seats.split_last().expect("it has drives");
            fills.choose(class, key);
            let cell = Cell {
                seat: *target,
                row: key.0.0,
            };
            fills.begin((class, key), cell, sources.to_vec(), 1 << 20);
            groups.push(choice.group);
        }
        groups
    }

    #[test]
    fn every_policy_gives_drives_no_more_than_they_may_have_and_leaves_nothing_that_could_go() {
        for order in FILL_ORDERS {
            // Each drive is in three of ten groups.
            let few = all(*order, &choices(30));
            assert_eq!(few.iter().collect::<BTreeSet<_>>().len(), 30, "{order:?}");
            let many = all(*order, &choices(1000));
            let of_drive = |drive: u64| {
                let on = |group: &&GroupId| (0..3).any(|at| (group.0 + at) % 10 == drive);
                many.iter().filter(on).count() as u64
            };
            for drive in 0..10 {
                assert!(of_drive(drive) <= FILLS_PER_DRIVE, "{order:?}");
            }
            assert!(
                many.len() as u64 >= 10 * FILLS_PER_DRIVE / 3 - 9,
                "{order:?}: {many:?}"
            );
        }
    }

    #[test]
    fn every_policy_lets_a_cell_without_a_place_leave_the_queue() {
        let gone = FillChoice {
            group: GroupId(7),
            column: Column(1),
            seats: Vec::new(),
        };
        for order in FILL_ORDERS {
            let fills = Fills::default();
            let loads = FillLoads {
                fills: &fills,
                urgency: 0,
            };
            let next = order.next(&mut [gone.clone()].into_iter(), loads);
            assert_eq!(next, Some(gone.clone()), "{order:?}");
            assert_eq!(order.next(&mut std::iter::empty(), loads), None);
        }
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = FILL_ORDERS.iter().map(|order| order.name()).collect();
        assert_eq!(names.len(), FILL_ORDERS.len());
    }

    #[test]
    fn the_least_busy_order_spreads_the_first_fills_over_all_drives() {
        let groups = all(&least_busy::LeastBusy, &choices(30));
        assert_eq!(
            groups[..3],
            [GroupId(0), GroupId(3), GroupId(6)],
            "no two have a drive in common"
        );
        let groups = all(&address::Address, &choices(30));
        assert_eq!(groups[..3], [GroupId(0), GroupId(1), GroupId(2)]);
    }
}
