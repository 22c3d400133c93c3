//! The crate's tests from outside, one program.

mod crossing;
mod filling;
mod initializing;
mod opening;
mod support;
