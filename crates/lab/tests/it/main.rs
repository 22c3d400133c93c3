//! The crate's tests from outside, one program.

mod common;
mod dcode;
mod draid;
mod shear;
