//! AVX2 by nibble tables, AVX2 and AVX-512 with GFNI.

use std::arch::x86_64::*;

use super::tables::NIBBLES;
use super::vector::{self, Vector};
use super::{Coefficient, Job, Kernel};

static AVX2: Kernel = Kernel {
    name: "avx2",
    combine: avx2,
};

static AVX2_GFNI: Kernel = Kernel {
    name: "avx2-gfni",
    combine: avx2_gfni,
};

static AVX512_GFNI: Kernel = Kernel {
    name: "avx512-gfni",
    combine: avx512_gfni,
};

/// The same for CPUs that process 512 bits in two halves.
static AVX512_GFNI_HALVES: Kernel = Kernel {
    name: "avx512-gfni",
    combine: avx512_gfni_halves,
};

/// The kernels that this CPU can run, slowest first.
pub(super) fn available() -> Vec<&'static Kernel> {
    let mut kernels = Vec::new();
    if is_x86_feature_detected!("avx2") {
        kernels.push(&AVX2);
        if is_x86_feature_detected!("gfni") {
            kernels.push(&AVX2_GFNI);
            if is_x86_feature_detected!("avx512f") {
                kernels.push(if halves() {
                    &AVX512_GFNI_HALVES
                } else {
                    &AVX512_GFNI
                });
            }
        }
    }
    kernels
}

/// True if the CPU processes 512 bits in two halves: of all CPUs with GFNI only Zen 4 does (family
/// 19h, of which no other has AVX-512).
fn halves() -> bool {
    let amd = __cpuid(0).ebx == u32::from_le_bytes(*b"Auth");
    let version = __cpuid(1).eax;
    let family = (version >> 8 & 0xf) + (version >> 20 & 0xff);
    amd && family == 0x19
}

/// # Safety
///
/// As for `Kernel::combine`, and the CPU has AVX2.
#[target_feature(enable = "avx2")]
unsafe fn avx2(job: &Job<'_>) {
    // SAFETY: passed on; the features are enabled here.
    unsafe { vector::combine::<Nibble256, 2, 2, 2, 0>(job) };
}

/// # Safety
///
/// As for `Kernel::combine`, and the CPU has AVX2 and GFNI.
#[target_feature(enable = "avx2,gfni")]
unsafe fn avx2_gfni(job: &Job<'_>) {
    // SAFETY: passed on; the features are enabled here.
    unsafe { vector::combine::<Affine256, 4, 4, 2, 4>(job) };
}

/// # Safety
///
/// As for `Kernel::combine`, and the CPU has AVX-512F and GFNI.
#[target_feature(enable = "avx512f,gfni")]
unsafe fn avx512_gfni(job: &Job<'_>) {
    // SAFETY: passed on; the features are enabled here.
    unsafe { vector::combine::<Affine512, 8, 4, 4, 0>(job) };
}

/// # Safety
///
/// As for `Kernel::combine`, and the CPU has AVX-512F and GFNI.
#[target_feature(enable = "avx512f,gfni")]
unsafe fn avx512_gfni_halves(job: &Job<'_>) {
    // SAFETY: passed on; the features are enabled here.
    unsafe { vector::combine::<Affine512, 8, 4, 4, 6>(job) };
}

#[derive(Clone, Copy)]
struct Nibble256(__m256i);

#[derive(Clone, Copy)]
struct Affine256(__m256i);

#[derive(Clone, Copy)]
struct Affine512(__m512i);

/// The common part of the two 256-bit kernels.
macro_rules! common_256 {
    () => {
        const BYTES: usize = 32;

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the CPU has AVX2 (trait).
            Self(unsafe { _mm256_setzero_si256() })
        }

        #[inline(always)]
        unsafe fn load(pointer: *const u8) -> Self {
            // SAFETY: 32 bytes are there (trait); the load needs no alignment.
            Self(unsafe { _mm256_loadu_si256(pointer.cast()) })
        }

        #[inline(always)]
        unsafe fn store(self, pointer: *mut u8) {
            // SAFETY: 32 bytes can be written there (trait); the store needs no alignment.
            unsafe { _mm256_storeu_si256(pointer.cast(), self.0) };
        }

        #[inline(always)]
        unsafe fn stream(self, pointer: *mut u8) {
            // SAFETY: 32 bytes can be written there, and it is aligned to 32 (trait).
            unsafe { _mm256_stream_si256(pointer.cast(), self.0) };
        }

        #[inline(always)]
        unsafe fn xor(self, other: Self) -> Self {
            // SAFETY: the CPU has AVX2 (trait).
            Self(unsafe { _mm256_xor_si256(self.0, other.0) })
        }
    };
}

impl Vector for Nibble256 {
    common_256!();
    type Multiplier = (__m256i, __m256i);

    #[inline(always)]
    unsafe fn multiplier(coefficient: &Coefficient) -> Self::Multiplier {
        let table = NIBBLES.0[usize::from(coefficient.value)]
            .as_ptr()
            .cast::<__m128i>();
        // SAFETY: a row of the table is two halves of 16 bytes; the CPU has AVX2 (trait).
        unsafe {
            (
                _mm256_broadcastsi128_si256(_mm_loadu_si128(table)),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(table.add(1))),
            )
        }
    }

    #[inline(always)]
    unsafe fn multiply(self, (low, high): Self::Multiplier) -> Self {
        // SAFETY: the CPU has AVX2 (trait).
        unsafe {
            let mask = _mm256_set1_epi8(0x0f);
            let a = _mm256_and_si256(self.0, mask);
            let b = _mm256_and_si256(_mm256_srli_epi64::<4>(self.0), mask);
            Self(_mm256_xor_si256(
                _mm256_shuffle_epi8(low, a),
                _mm256_shuffle_epi8(high, b),
            ))
        }
    }
}

impl Vector for Affine256 {
    common_256!();
    type Multiplier = __m256i;

    #[inline(always)]
    unsafe fn multiplier(coefficient: &Coefficient) -> __m256i {
        // SAFETY: the CPU has AVX2 (trait).
        unsafe { _mm256_set1_epi64x(coefficient.affine.cast_signed()) }
    }

    #[inline(always)]
    unsafe fn multiply(self, by: __m256i) -> Self {
        // SAFETY: the CPU has AVX2 and GFNI (trait).
        Self(unsafe { _mm256_gf2p8affine_epi64_epi8::<0>(self.0, by) })
    }
}

impl Vector for Affine512 {
    const BYTES: usize = 64;
    type Multiplier = __m512i;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the CPU has AVX-512F (trait).
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn load(pointer: *const u8) -> Self {
        // SAFETY: 64 bytes are there (trait); the load needs no alignment.
        Self(unsafe { _mm512_loadu_si512(pointer.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, pointer: *mut u8) {
        // SAFETY: 64 bytes can be written there (trait); the store needs no alignment.
        unsafe { _mm512_storeu_si512(pointer.cast(), self.0) };
    }

    #[inline(always)]
    unsafe fn stream(self, pointer: *mut u8) {
        // SAFETY: 64 bytes can be written there, and it is aligned to 64 (trait).
        unsafe { _mm512_stream_si512(pointer.cast(), self.0) };
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX-512F (trait).
        Self(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn xor3(self, b: Self, c: Self) -> Self {
        // SAFETY: the CPU has AVX-512F (trait). 0x96 is the truth table of a ^ b ^ c.
        Self(unsafe { _mm512_ternarylogic_epi64::<0x96>(self.0, b.0, c.0) })
    }

    #[inline(always)]
    unsafe fn multiplier(coefficient: &Coefficient) -> __m512i {
        // SAFETY: the CPU has AVX-512F (trait).
        unsafe { _mm512_set1_epi64(coefficient.affine.cast_signed()) }
    }

    #[inline(always)]
    unsafe fn multiply(self, by: __m512i) -> Self {
        // SAFETY: the CPU has AVX-512F and GFNI (trait).
        Self(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self.0, by) })
    }
}
