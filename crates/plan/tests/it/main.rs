//! The crate's tests from outside, one program.

mod plans;
