//! The crate's tests from outside, one program.

mod fuzz_bodies;
mod labels;
