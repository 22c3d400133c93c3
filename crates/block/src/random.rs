//! `SplitMix64` (Steele, Lea, Flood, OOPSLA 2014): a small generator with a seed, and its mixer.
//!
//! Integers only, so the numbers are the same on every machine. Layouts of existing pools, checksums of pages and traces of
//! simulations depend on them: neither may change.

/// The generator's state.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator whose numbers depend on the seed alone.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    #[inline]
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`, which is not 0. The bias of at most `end`/2^64 does not matter here.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// Random bytes: they do not compress.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = (0..count.div_ceil(8)).flat_map(|_| self.draw().to_le_bytes());
        words.take(count).collect()
    }
}

/// A bijection that spreads every bit: each bit of the input changes half of the output.
#[inline]
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the authors' program for the seed 1234567.
    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        let mut generator = SplitMix64::new(1_234_567);
        let first = [(); 3].map(|()| generator.draw());
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(first, published);
    }
}
