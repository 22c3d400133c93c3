//! Map versions: every state between two maps is a layout.

use std::collections::BTreeSet;
use std::sync::Arc;

use layout::versions::{ReplaceError, Versioned};
use layout::{Cell, Layout, Role};

use crate::common::geometry;

fn map(scheme: &str) -> Arc<dyn Layout> {
    geometry(scheme, 1).layout
}

/// Every group is where `cell` says, `role` agrees, and no two share a cell.
fn check(layout: &Versioned, groups: u64, rows: u64) {
    let mut seen = BTreeSet::new();
    for group in 0..groups {
        let mut seats = BTreeSet::new();
        for column in 0..layout.columns() {
            let cell = layout.cell(group, column);
            assert!(cell.row < rows);
            assert!(seen.insert(cell), "{cell:?} twice");
            assert!(seats.insert(cell.seat), "group {group} meets a drive twice");
            assert_eq!(layout.role(cell), Role::Column { group, column });
        }
        let spare = layout.spare_for(
            group,
            0,
            &|seat| seat == layout.cell(group, 0).seat,
            &|_| false,
        );
        if let Some(cell) = spare {
            assert!(matches!(layout.role(cell), Role::Spare { .. }), "{cell:?}");
            assert!(!seats.contains(&cell.seat));
        }
    }
}

#[test]
fn a_map_is_replaced_segment_by_segment_and_every_state_between_is_a_layout() {
    // Expansion, spare resizing, and back down the drive again.
    let rows = 400;
    let mut layout = Versioned::new(map("pddl2:3d:13c:1s"), rows, 40);
    let mut groups = layout.groups(rows);
    assert!(groups > 700, "{groups}");
    check(&layout, groups, rows);
    for next in ["draid2:3d:14c:1s", "draid2:3d:14c:4s", "draid2:3d:15c"] {
        if next.contains("4s") {
            // Fewer columns fit in a row: the replacement may fail for lack of rows.
            let error = layout.replace(map(next)).err();
            if error.is_some() {
                assert!(matches!(error, Some(ReplaceError::Rows { .. })));
                continue;
            }
        } else {
            layout.replace(map(next)).unwrap();
        }
        assert_eq!(layout.replace(map(next)), Err(ReplaceError::UnderWay));
        assert_eq!(layout.grow(), 0, "no growth while segments move");
        let mut steps = 0;
        while let Some(step) = layout.next_step() {
            // The copy goes to unused cells: a crash loses no data.
            for group in step.from.first_group..step.from.first_group + step.from.groups {
                for column in 0..layout.columns() {
                    assert_eq!(
                        layout.cell_in(&step.from, group, column),
                        layout.cell(group, column)
                    );
                    let to = layout.cell_in(&step.to, group, column);
                    assert!(to.row < rows);
                    let inside = to.seat.0 < layout.drives();
                    assert!(
                        inside && matches!(layout.role(to), Role::Unused),
                        "{next}: {to:?}"
                    );
                }
            }
            let others: Vec<Cell> = (0..groups)
                .filter(|group| {
                    !(step.from.first_group..step.from.first_group + step.from.groups)
                        .contains(group)
                })
                .map(|group| layout.cell(group, 0))
                .collect();
            layout.commit(&step);
            check(&layout, groups, rows);
            let moved = (0..groups).filter(|group| {
                !(step.from.first_group..step.from.first_group + step.from.groups).contains(group)
            });
            assert!(
                moved
                    .zip(others)
                    .all(|(group, cell)| layout.cell(group, 0) == cell),
                "a step moves its segment alone"
            );
            steps += 1;
        }
        assert_eq!(steps, layout.segments().len());
        groups += layout.grow();
        check(&layout, groups, rows);
    }
    assert!(
        layout
            .segments()
            .iter()
            .all(|segment| segment.version == 2 || segment.version == 3)
    );
}

#[test]
fn a_map_that_changes_columns_or_does_not_fit_is_refused() {
    let mut layout = Versioned::new(map("pddl2:3d:13c:1s"), 100, 10);
    let columns = ReplaceError::Columns { old: 5, new: 6 };
    assert_eq!(layout.replace(map("pddl2:4d:13c:1s")), Err(columns));
    assert!(matches!(
        layout.replace(map("draid2:3d:7c:1s")),
        Err(ReplaceError::Rows { .. })
    ));
    assert!(layout.next_step().is_none(), "and nothing was begun");
}
