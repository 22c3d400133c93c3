//! A hash of the events in a study: equal traces mean equal runs.

/// FNV-1a over 64-bit words, low byte first. Small, without other state, the same on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trace(pub(crate) u64);

impl Default for Trace {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Trace {
    /// Adds a number.
    pub(crate) fn add(&mut self, word: u64) {
        self.bytes(&word.to_le_bytes());
    }

    /// Adds bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The hash of a name: it selects a separate random stream.
    pub(crate) fn of(name: &str) -> u64 {
        let mut trace = Self::default();
        trace.bytes(name.as_bytes());
        trace.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // Vectors of draft-eastlake-fnv.
        assert_eq!(Trace::of(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(Trace::of("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(Trace::of("foobar"), 0x8594_4171_f739_67e8);
    }
}
