//! The server's handshake and the client's parsers. See the body.
#![no_main]

#[path = "../bodies/nbd.rs"]
mod nbd;

libfuzzer_sys::fuzz_target!(|data: &[u8]| nbd::handshake(data));
