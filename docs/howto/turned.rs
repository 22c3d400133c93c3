//! Turned rows: every row is the one below it, each drive one further on.
//!
//! ```text
//!   n = 5, groups of 2, 1 spare        seat    0     1     2     3     4
//!   base: 0 1 2 3 4                    row 0   g0.0  g0.1  g1.0  g1.1  S
//!   row x: (base + x) mod 5            row 1   S     g2.0  g2.1  g3.0  g3.1
//!                                      row 2   g5.1  S     g4.0  g4.1  g5.0
//! ```
//!
//! Data, parity and spare space are uniform after n rows. Groups always join neighbours, so a rebuild reads from the
//! 2·(d + p) − 2 nearest drives alone: the layout shows what a good base permutation is for (`pddl.rs`).

use std::sync::Arc;

use super::{Domains, Kind, Parity};
use crate::developed::{Developed, Development, Shape};

/// What scheme strings know of it.
pub(super) static KIND: Kind = Kind {
    name: "turned",
    parity: Parity::Digit,
    domains: Domains::Checked,
    is_pool: false,
    offered: &["turned2"],
    examples: &["turned2:4d:14c:2s", "turned1:3d:60c:1s"],
    make: |_, shape| Ok(Arc::new(layout(shape))),
};

/// The identity, developed.
fn layout(shape: Shape) -> Developed {
    let base: Vec<u16> = (0..shape.drives).collect();
    Developed::new(shape, Development::Modulo, &base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;

    #[test]
    fn groups_join_neighbours_and_move_on_with_the_row() {
        let layout = layout(Shape {
            drives: 5,
            width: 2,
            parity: 1,
            spares: 1,
        });
        let seats = |group| [0, 1].map(|column| layout.cell(group, column).seat.0);
        assert_eq!([seats(0), seats(2), seats(4)], [[0, 1], [1, 2], [2, 3]]);
        assert_eq!([0, 1, 2].map(|row| layout.spare(row, 0).0), [4, 0, 1]);
    }
}
