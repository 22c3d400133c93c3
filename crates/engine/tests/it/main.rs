//! The crate's tests from outside, one program.

mod earlier_life;
mod formats;
mod fuzz_bodies;
mod hangs;
mod pool;
