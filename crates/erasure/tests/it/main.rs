//! The crate's tests from outside, one program.

mod columns;
mod common;
mod fuzz;
mod miri;
mod recovery;
mod streams;
mod vectors;
mod verify;
