//! The crate's tests from outside, one program.

mod balance;
mod bloated;
mod classic;
mod common;
mod crush;
mod declustered;
mod equivalence;
mod fuzz_bodies;
mod pddl;
mod pool;
mod properties;
mod schemes;
mod versions;
