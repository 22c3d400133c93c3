//! A small generator for searches and random layouts. Existing pools with `random…` schemes depend on it: it must not
//! change.

use block::SplitMix64;

/// The generator's state.
#[derive(Clone, Debug)]
pub(crate) struct Rng(SplitMix64);

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// 64 random bits.
    #[inline]
    pub(crate) const fn bits(&mut self) -> u64 {
        self.0.draw()
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
