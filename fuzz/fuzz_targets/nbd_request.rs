//! Requests of the transmission phase. See the body.
#![no_main]

#[path = "../bodies/nbd.rs"]
mod nbd;

libfuzzer_sys::fuzz_target!(|data: &[u8]| nbd::request(data));
