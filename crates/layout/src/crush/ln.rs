//! Ceph's fixed-point logarithm, its tables' irregularities included.
//!
//! `crush_ln(u)` is 2^44·log2(u + 1). The argument is normalised to x in \[2^15, 2^16\]; its upper
//! byte selects RH ≈ 1/x and LH ≈ log2 of it, the rest after multiplication by RH selects LL. The
//! tables were once computed in floating point and contain errors: LH's last entry is not 2^48,
//! most of LL is 0x147700000 too high, and some entries are off by numbers without a rule. Error up
//! to 4.4e-5, ten thousand adjacent ties, and one place where it decreases; compatible placement
//! needs all of these.

use std::sync::LazyLock;

/// Reciprocals ceil(2^55 / (128 + k)), and floor(2^48·log2(1 + k/128)).
struct Tables {
    rh: [u64; 129],
    lh: [u64; 129],
    ll: [u64; 256],
}

static TABLES: LazyLock<Tables> = LazyLock::new(tables);

/// Excess of most entries of LL.
const LL_EXCESS: u64 = 0x1_4770_0000;

/// Entries of LL that are exact.
const LL_RIGHT: [usize; 21] = [
    0, 1, 203, 216, 222, 233, 237, 238, 239, 243, 244, 245, 246, 248, 249, 250, 251, 252, 253, 254,
    255,
];

/// Entries of LL with another excess.
const LL_ODD: [(usize, u64); 23] = [
    (56, 5_349_423_536),
    (127, 978_272_901),
    (134, 3_588_789_669),
    (181, 4_007_963_589),
    (184, 5_423_282_367),
    (188, 2_201_924_427),
    (193, 3_829_329_171),
    (198, 2_511_158_322),
    (199, 2_670_353_280),
    (200, 3_807_665_765),
    (207, 5_045_407_031),
    (210, 4_635_559_696),
    (212, 3_670_382_108),
    (225, 3_209_098_745),
    (227, 1_514_328_394),
    (228, 2_662_093_655),
    (229, 561_838_844),
    (231, 3_537_203_772),
    (235, 4_861_921_003),
    (236, 5_281_046_906),
    (240, 2_650_193_885),
    (241, 4_203_558_265),
    (247, 362_109_528),
];

/// 2^44·log2(u + 1), `u` below 65,536 (higher bits are ignored).
#[must_use]
pub fn crush_ln(u: u32) -> u64 {
    ln(&TABLES, u)
}

/// The straws' numerator for every hash: crush_ln(u) − 2^48, never positive.
pub(super) static STRAWS: LazyLock<Box<[i64; 65536]>> = LazyLock::new(|| {
    let straws: Vec<i64> = (0..65536)
        .map(|u| ln(&TABLES, u).cast_signed() - (1 << 48))
        .collect();
    straws.try_into().expect("65,536 of them")
});

fn ln(tables: &Tables, u: u32) -> u64 {
    let mut x = u64::from(u & 0xffff) + 1;
    let mut exponent = 15;
    if x < 1 << 15 {
        let shift = x.leading_zeros() - 48;
        x <<= shift;
        exponent -= u64::from(shift);
    }
    let k = (x >> 8) as usize - 128;
    let i = (x.wrapping_mul(tables.rh[k]) >> 48) as usize & 255;
    (exponent << 44) + ((tables.lh[k] + tables.ll[i]) >> 4)
}

fn tables() -> Tables {
    let mut lh = [0; 129];
    let mut rh = [0; 129];
    for (k, wide) in (0..129).zip(128_u64..) {
        rh[k] = (1_u64 << 55).div_ceil(wide);
        lh[k] = log2_48(wide, 7);
    }
    lh[128] = 0xffff_0000_0000;
    let mut ll = [0; 256];
    for (k, wide) in (0..256).zip(1_u64 << 15..) {
        ll[k] = log2_48(wide, 15) + LL_EXCESS;
    }
    for k in LL_RIGHT {
        ll[k] -= LL_EXCESS;
    }
    for (k, excess) in LL_ODD {
        ll[k] = ll[k] - LL_EXCESS + excess;
    }
    Tables { rh, lh, ll }
}

/// floor(2^48·log2(x / 2^shift)) for x in 2^shift ..= 2^(shift+1), bit by bit: squaring a number
/// doubles its logarithm. 62 bits of mantissa leave the result's error far below one unit.
fn log2_48(x: u64, shift: u32) -> u64 {
    let mut mantissa = u128::from(x) << (62 - shift);
    if mantissa >> 63 == 1 {
        return 1 << 48;
    }
    let mut log = 0;
    for _ in 0..48 {
        mantissa = (mantissa * mantissa) >> 62;
        log <<= 1;
        if mantissa >> 63 == 1 {
            log |= 1;
            mantissa >>= 1;
        }
    }
    log
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    fn digest(words: impl Iterator<Item = u64>) -> String {
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let digest = Sha256::digest(&bytes);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn straws_fall_at_one_place_only() {
        let falls: Vec<usize> = (0..65535).filter(|&u| STRAWS[u] > STRAWS[u + 1]).collect();
        assert_eq!(falls, [65534]);
    }

    #[test]
    fn tables_are_those_of_ceph_to_the_last_bit() {
        let pairs = (0..129).flat_map(|k| [TABLES.rh[k], TABLES.lh[k]]);
        assert_eq!(
            digest(pairs),
            "304b097c8de73930d785af5802b1f6b4e9827a69175038f910f6120565e8364c"
        );
        assert_eq!(
            digest(TABLES.ll.into_iter()),
            "56fecbea65b1d35d0d20f0327d783a870652a56356e9a5326b6ab16d6c31b6ca"
        );
        assert_eq!(
            digest(STRAWS.iter().map(|straw| straw.cast_unsigned())),
            "c63bf688a6f74ec3f71e51c2af1a4dbae38b12944d502181ba6bb44dc0aa2196"
        );
    }
}
