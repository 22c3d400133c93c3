//! The crate's tests from outside, one program.

mod crossing;
mod fuzz_bodies;
mod initializing;
mod labels;
mod opening;
mod plans;
mod support;
