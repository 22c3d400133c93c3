//! The crate's tests from outside, one program.

mod crossing;
mod filling;
mod growing;
mod initializing;
mod opening;
mod support;
