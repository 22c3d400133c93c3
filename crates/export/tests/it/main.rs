//! The crate's tests from outside, one program. `nbd_hostile` is a program of its own: its tests measure the memory of
//! their process.

mod fuse;
mod nbd_client;
mod nbd_fuzz_bodies;
mod nbd_interop;
mod nbd_tls;
#[path = "../support/mod.rs"]
mod support;
