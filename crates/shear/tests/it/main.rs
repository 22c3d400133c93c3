//! The crate's tests from outside, one program.

mod faults;
mod flash;
mod paper;
mod partitions;
mod published;
mod strides;
mod support;
mod sweep;
