//! Anchors and batch headers of the journal. See the body.
#![no_main]

#[allow(dead_code, reason = "each target uses one of the bodies")]
#[path = "../bodies/format.rs"]
mod format;

libfuzzer_sys::fuzz_target!(|data: &[u8]| format::journal(data));
