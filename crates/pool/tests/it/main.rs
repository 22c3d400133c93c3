//! The crate's tests from outside, one program.

mod crossing;
mod initializing;
mod opening;
mod support;
