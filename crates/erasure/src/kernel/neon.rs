//! NEON, by nibble tables: `tbl` looks up sixteen bytes at a time.

use std::arch::aarch64::*;

use super::tables::NIBBLES;
use super::vector::{self, Vector};
use super::{Coefficient, Job, Kernel};

static NEON: Kernel = Kernel {
    name: "neon",
    combine: neon,
};

/// The kernels that this CPU can run.
pub(super) fn available() -> Vec<&'static Kernel> {
    if std::arch::is_aarch64_feature_detected!("neon") {
        vec![&NEON]
    } else {
        Vec::new()
    }
}

/// # Safety
///
/// As for `Kernel::combine`, and the CPU has NEON.
#[target_feature(enable = "neon")]
unsafe fn neon(job: &Job<'_>) {
    // SAFETY: passed on; the feature is enabled here.
    unsafe { vector::combine::<Nibble128, 4, 4, 4, 0>(job) };
}

#[derive(Clone, Copy)]
struct Nibble128(uint8x16_t);

impl Vector for Nibble128 {
    const BYTES: usize = 16;
    type Multiplier = (uint8x16_t, uint8x16_t);

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the CPU has NEON (trait).
        Self(unsafe { vdupq_n_u8(0) })
    }

    #[inline(always)]
    unsafe fn load(pointer: *const u8) -> Self {
        // SAFETY: 16 bytes are there (trait); the load needs no alignment.
        Self(unsafe { vld1q_u8(pointer) })
    }

    #[inline(always)]
    unsafe fn store(self, pointer: *mut u8) {
        // SAFETY: 16 bytes can be written there (trait); the store needs no alignment.
        unsafe { vst1q_u8(pointer, self.0) };
    }

    #[inline(always)]
    unsafe fn stream(self, pointer: *mut u8) {
        // SAFETY: as for `store`. There is no intrinsic for stnp.
        unsafe { self.store(pointer) };
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the CPU has NEON (trait).
        Self(unsafe { veorq_u8(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn multiplier(coefficient: &Coefficient) -> Self::Multiplier {
        let table = NIBBLES.0[usize::from(coefficient.value)].as_ptr();
        // SAFETY: a row of the table is two halves of 16 bytes; the CPU has NEON (trait).
        unsafe { (vld1q_u8(table), vld1q_u8(table.add(16))) }
    }

    #[inline(always)]
    unsafe fn multiply(self, (low, high): Self::Multiplier) -> Self {
        // SAFETY: the CPU has NEON (trait).
        unsafe {
            let a = vandq_u8(self.0, vdupq_n_u8(0x0f));
            let b = vshrq_n_u8::<4>(self.0);
            Self(veorq_u8(vqtbl1q_u8(low, a), vqtbl1q_u8(high, b)))
        }
    }
}
