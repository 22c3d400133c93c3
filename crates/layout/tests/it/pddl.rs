//! PDDL with exact bases: bijection, uniformity, perfectly even rebuilds.

use crate::common::{cells_are_a_bijection, chunks_are_a_bijection, geometry};
use layout::Role;
use layout::developed::Shape;

const EXACT: [(u16, u16); 20] = [
    (7, 2),
    (7, 3),
    (7, 6),
    (11, 5),
    (11, 10),
    (13, 4),
    (17, 4),
    (17, 8),
    (17, 16),
    (31, 5),
    (31, 10),
    (61, 5),
    (61, 10),
    (8, 7),
    (16, 3),
    (16, 5),
    (16, 15),
    (64, 7),
    (64, 9),
    (64, 21),
];

#[test]
fn boses_construction_is_satisfactory() {
    for (drives, width) in EXACT {
        let shape = Shape {
            drives,
            width,
            parity: 1,
            spares: 1,
        };
        let layout = layout::pddl::exact(shape).expect("a prime or a power of two");
        assert!(
            layout::pddl::is_satisfactory(&layout),
            "n = {drives}, k = {width}"
        );
    }
    let composite = Shape {
        drives: 21,
        width: 5,
        parity: 1,
        spares: 1,
    };
    assert!(layout::pddl::exact(composite).is_none());
}

#[test]
fn exact_layouts_are_bijections_over_their_pattern() {
    for (drives, width) in EXACT {
        for parity in 1..width.min(4) {
            let data = width - parity;
            let geometry = geometry(&format!("pddl{parity}:{data}d:{drives}c:1s"), 1);
            let rows = geometry.layout.pattern_rows();
            assert_eq!(rows, u64::from(drives));
            cells_are_a_bijection(&geometry, rows + 3);
            chunks_are_a_bijection(&geometry, 2, 3);
            crate::common::spare_is_outside_the_group(&geometry, rows);
        }
    }
}

#[test]
fn parity_comes_first_among_columns_and_last_among_units() {
    let geometry = geometry("pddl2:3d:11c:1s", 1);
    let columns: Vec<u16> = (0..5)
        .map(|unit| geometry.layout.place(9, 4, unit).column)
        .collect();
    assert_eq!(columns, [2, 3, 4, 0, 1]);
    assert_eq!(geometry.code.columns, 5);
}

#[test]
fn every_drive_holds_as_much_data_parity_and_spare_as_every_other() {
    for (drives, width) in EXACT {
        let geometry = geometry(&format!("pddl1:{}d:{drives}c:1s", width - 1), 1);
        let layout = geometry.layout.as_ref();
        for seat in (0..drives).map(block::Seat) {
            let mut counts = vec![0; usize::from(width) + 1];
            for row in 0..layout.pattern_rows() {
                match layout.role(layout::Cell { seat, row }) {
                    Role::Column { column, .. } => counts[usize::from(column)] += 1,
                    Role::Spare { .. } => counts[usize::from(width)] += 1,
                    Role::Unused => panic!("no cell is wasted"),
                }
            }
            let groups = usize::from((drives - 1) / width);
            assert_eq!(counts.pop(), Some(1), "one spare cell in n rows");
            assert!(counts.iter().all(|&count| count == groups));
        }
    }
}
