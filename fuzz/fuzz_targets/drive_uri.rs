//! Names of drives. See the body.
#![no_main]

#[path = "../bodies/uri.rs"]
mod uri;

libfuzzer_sys::fuzz_target!(|data: &[u8]| uri::drive_uri(data));
