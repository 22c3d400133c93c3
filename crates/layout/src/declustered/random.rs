//! Random permutations: every row has its own, independent of the others.
//!
//! The third placement of the dRAID paper, and the reference for development. The look-up costs as
//! much, and neither spare space nor rebuild load is exactly uniform: over 512 rows spare cells per
//! drive are off by 30 to 45 %, rebuild load by 20 to 35 %.

use std::sync::Arc;

use super::{Domains, Kind, Parity};
use crate::developed::{Developed, Development, Shape};
use crate::rng::Rng;

pub(super) static KIND: Kind = Kind {
    name: "random",
    parity: Parity::Digit,
    domains: Domains::Checked,
    is_pool: false,
    offered: &["random2"],
    examples: &[
        "random2:4d:14c:2s",
        "random2:8d:24c:2s",
        "random2:8d:60c:3s",
        "random1:4d:300c:4s",
    ],
    make: |_, shape| Ok(Arc::new(layout(shape))),
};

/// Permutations before they repeat.
const PERMUTATIONS: usize = 512;

/// Seed of the permutations; existing arrays depend on it.
const SEED: u64 = 0x5241_5645_4c49_4e21;

/// The random layout of `shape`; the same on every machine.
///
/// # Panics
/// When a group is wider than the drives that are not spares.
fn layout(shape: Shape) -> Developed {
    let mut rng = Rng::new(SEED ^ u64::from(shape.drives));
    let mut bases = Vec::with_capacity(PERMUTATIONS * usize::from(shape.drives));
    for _ in 0..PERMUTATIONS {
        let mut row: Vec<u16> = (0..shape.drives).collect();
        rng.shuffle(&mut row);
        bases.extend(row);
    }
    Developed::new(shape, Development::Still, &bases)
}
