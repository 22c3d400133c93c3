//! The crate's tests from outside, one program.

mod balance;
mod classic;
mod common;
mod declustered;
mod pddl;
mod schemes;
