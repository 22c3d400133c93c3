//! The crate's tests from outside, one program. `make test` runs it beside the programs of other crates, for it mostly waits.

mod earlier_life;
mod formats;
mod fuzz_bodies;
mod hangs;
mod pool;
