//! A small generator for searches and random layouts: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
//! Integers only, so the numbers are the same on every machine. Existing pools with `random…`
//! schemes depend on the generator: it must not change.

/// The generator's state.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    #[inline]
    pub(crate) const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`; the bias of at most `bound`/2^32 does not matter here.
    #[inline]
    pub(crate) const fn below(&mut self, bound: u32) -> u32 {
        let high = self.bits() >> 32;
        ((high * bound as u64) >> 32) as u32
    }

    /// Shuffles in place (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let bound = u32::try_from(last + 1).expect("lists are shorter than 2^32");
            items.swap(last, self.below(bound) as usize);
        }
    }
}

/// SplitMix64's output function: a good 64-bit mixer.
#[inline]
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
