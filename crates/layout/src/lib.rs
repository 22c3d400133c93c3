//! Placement: where each column of each stripe is, where spare space is, and the inverse.
//!
//! A layout answers at two scales.
//!
//! *Cells.* Every drive is a stack of equal cells; a *row* is the n cells at the same height. A
//! *group* is a set of cells, one per column, and the pool hands out space by the group:
//!
//! ```text
//!            seat 0   seat 1   seat 2   seat 3   seat 4   seat 5   seat 6
//!   row 0   g0.c0    g0.c1    g0.c2    g1.c0    g1.c1    g1.c2    spare 0
//!   row 1   g2.c1    g3.c0    spare 0  g2.c0    g3.c2    g2.c2    g3.c1
//! ```
//!
//! [`Layout::cell`] maps (group, column) to (seat, row), [`Layout::role`] is its inverse, and
//! [`Layout::spare`] gives the row's spare cells. This is where PDDL, dRAID, CRUSH and islands
//! differ.
//!
//! *Chunks.* Inside a group the cells are cut into chunks, and a stripe of the code takes one
//! *slot* (as many consecutive chunks as the code has rows) for each of its units.
//! [`Layout::place`] gives the column and the slot of a stripe's unit. On declustered layouts unit
//! i is in column i; the classic levels rotate here, so that RAID-5 and RAID-10 addresses are the
//! classic ones.
//!
//! Pure functions and stored tables; no I/O, no arithmetic of codes.

pub mod balance;
pub mod bloated;
mod classic;
pub mod crush;
pub mod declustered;
pub mod developed;
mod divide;
pub mod elastic;
pub mod equivalence;
mod geometry;
pub mod grid;
mod mirror;
mod rng;
mod rotated;
pub mod scheme;
pub mod search;
mod striping;
mod traits;
pub mod versions;

pub use declustered::{design, draid, pddl, pool};
pub use geometry::{CodeSpec, Field, Geometry, GeometryError, Placed, place};
pub use scheme::{Expansion, Family, Scheme, SchemeError};
pub use traits::{Cell, Layout, Place, Role};
