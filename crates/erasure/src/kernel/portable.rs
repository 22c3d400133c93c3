//! Plain Rust on blocks of eight 64-bit words, which compilers turn into whatever vectors the
//! target has. A product is shift and add on eight bytes at a time.

use super::vector::{self, Vector};
use super::{Coefficient, Job};

#[derive(Clone, Copy)]
struct Words([u64; 8]);

/// Each byte times 2: shift, and reduce where the top bit was set.
#[inline(always)]
fn double(word: u64) -> u64 {
    const TOP: u64 = 0x8080_8080_8080_8080;
    const REDUCTION: u64 = 0x1d;
    let top = word & TOP;
    ((word ^ top) << 1) ^ ((top >> 7) * REDUCTION)
}

impl Vector for Words {
    const BYTES: usize = 64;
    type Multiplier = u8;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0; 8])
    }

    #[inline(always)]
    unsafe fn load(pointer: *const u8) -> Self {
        // SAFETY: 64 bytes are there; any bits are words; the read needs no alignment.
        Self(unsafe { pointer.cast::<[u64; 8]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, pointer: *mut u8) {
        // SAFETY: 64 bytes can be written there; the write needs no alignment.
        unsafe { pointer.cast::<[u64; 8]>().write_unaligned(self.0) };
    }

    #[inline(always)]
    unsafe fn stream(self, pointer: *mut u8) {
        // SAFETY: as for `store`. There is no portable way past the cache.
        unsafe { self.store(pointer) };
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] ^ other.0[i]))
    }

    #[inline(always)]
    unsafe fn multiplier(coefficient: &Coefficient) -> u8 {
        coefficient.value
    }

    #[inline(always)]
    unsafe fn multiply(self, by: u8) -> Self {
        let mut product = [0; 8];
        let mut power = self.0;
        let mut rest = by;
        while rest != 0 {
            if rest & 1 == 1 {
                product = std::array::from_fn(|i| product[i] ^ power[i]);
            }
            power = power.map(double);
            rest >>= 1;
        }
        Self(product)
    }
}

/// # Safety
///
/// As for `Kernel::combine`.
pub(super) unsafe fn combine(job: &Job<'_>) {
    // SAFETY: passed on; no special instructions.
    unsafe { vector::combine::<Words, 1, 1, 1, 0>(job) };
}
