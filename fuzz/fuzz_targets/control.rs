//! Messages to the daemon and from it. See the body.
#![no_main]

#[path = "../bodies/control.rs"]
mod control;

libfuzzer_sys::fuzz_target!(|data: &[u8]| control::message(data));
