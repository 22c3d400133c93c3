//! Hashing for names that this process makes up itself.
//!
//! The standard library's hash withstands keys chosen to collide, and costs more than the rest of
//! a look-up. The names of requests, buffers and operations are counters of our own.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map from names that nobody outside chooses.
pub(super) type NameMap<K, V> = HashMap<K, V, BuildHasherDefault<NameHasher>>;

/// Multiply and rotate, a word at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NameHasher(u64);

/// 2^64 / φ, odd: neighbours end far apart, in the high bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(SPREAD);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        // The table takes its bucket from the low bits.
        self.0.rotate_left(26)
    }
}
