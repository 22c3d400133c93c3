//! Division by a number that is known when a layout is made.
//!
//! `locate` is a handful of divisions, and a 64-bit division costs more than everything else in it.
//! For numbers below 2^32 (16 MiB cells: 64 PiB of one drive) one multiplication is enough:
//! floor(x/d) = floor(x·ceil(2^64/d) / 2^64) for x, d < 2^32 (Lemire, Kaser, Kurz, "Faster
//! remainder by direct computation", 2019, theorem 1).

/// A divisor with its reciprocal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    divisor: u64,
    /// ceil(2^64 / divisor), 0 where that does not fit (divisor 1) or does not help.
    reciprocal: u64,
}

impl Divisor {
    /// # Panics
    /// When `divisor` is 0.
    pub(crate) const fn new(divisor: u64) -> Self {
        assert!(divisor != 0, "division by zero");
        let reciprocal = if divisor == 1 || divisor > u32::MAX as u64 {
            0
        } else {
            u64::MAX / divisor + 1
        };
        Self {
            divisor,
            reciprocal,
        }
    }

    pub(crate) const fn get(self) -> u64 {
        self.divisor
    }

    /// Quotient and remainder.
    #[inline]
    pub(crate) const fn div_rem(self, x: u64) -> (u64, u64) {
        if x <= u32::MAX as u64 && self.reciprocal != 0 {
            let quotient = ((x as u128 * self.reciprocal as u128) >> 64) as u64;
            (quotient, x - quotient * self.divisor)
        } else {
            (x / self.divisor, x % self.divisor)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reciprocals_divide_exactly() {
        let xs = [
            0,
            1,
            2,
            59,
            60,
            61,
            65535,
            65536,
            1 << 31,
            u64::from(u32::MAX) - 1,
        ];
        let xs = xs
            .into_iter()
            .chain([u32::MAX.into(), 1 << 32, 1 << 40, u64::MAX]);
        for x in xs {
            for d in (1..700).chain([65535, 1 << 20, u32::MAX.into(), 1 << 32, 1 << 50]) {
                assert_eq!(Divisor::new(d).div_rem(x), (x / d, x % d), "{x} / {d}");
            }
        }
    }
}
