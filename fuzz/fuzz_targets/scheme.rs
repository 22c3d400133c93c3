//! Scheme strings. See the body.
#![no_main]

#[path = "../bodies/scheme.rs"]
mod scheme;

libfuzzer_sys::fuzz_target!(|data: &[u8]| scheme::scheme(data));
