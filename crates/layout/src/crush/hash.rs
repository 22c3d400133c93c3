//! Robert Jenkins' 32-bit mix as Ceph uses it (`rjenkins1`).

const SEED: u32 = 1_315_423_911;
const X: u32 = 231_232;
const Y: u32 = 1232;

#[inline(always)]
const fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 13);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 8);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 13);
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 12);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 16);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 5);
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 3);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 10);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 15);
    (a, b, c)
}

/// `hash3(a, b, c)` for each b, in place. A loop without branches, which the compiler turns into
/// vectors.
pub(super) fn hash3_each(a: u32, bs: &mut [u32], c: u32) {
    for b in bs {
        *b = hash3(a, *b, c);
    }
}

/// Hash of two numbers.
#[must_use]
pub const fn hash2(a: u32, b: u32) -> u32 {
    let h = SEED ^ a ^ b;
    let (a, b, h) = mix(a, b, h);
    let (_, _, h) = mix(X, a, h);
    mix(b, Y, h).2
}

/// Hash of three numbers.
#[inline(always)]
#[must_use]
pub const fn hash3(a: u32, b: u32, c: u32) -> u32 {
    let h = SEED ^ a ^ b ^ c;
    let (a, b, h) = mix(a, b, h);
    let (c, x, h) = mix(c, X, h);
    let (y, _, h) = mix(Y, a, h);
    let (_, _, h) = mix(b, x, h);
    mix(y, c, h).2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_hash_as_single_numbers_do() {
        for (a, c) in [(0, 0), (7, 3), (u32::MAX, 1 << 31), (123_456_789, 51)] {
            let bs: Vec<u32> = (0..37).map(|i: u32| i.wrapping_mul(0x9e37_79b9)).collect();
            let mut hashes = bs.clone();
            hash3_each(a, &mut hashes, c);
            assert!(bs.iter().zip(&hashes).all(|(&b, &h)| h == hash3(a, b, c)));
        }
    }

    #[test]
    fn hashes_are_those_of_ceph() {
        assert_eq!(hash2(0, 0), 430_787_817);
        assert_eq!(hash2(1, 2), 3_079_532_188);
        assert_eq!(hash2(123_456, 7), 1_187_448_628);
        assert_eq!(hash2(u32::MAX, 1 << 31), 1_847_078_430);
        assert_eq!(hash3(0, 0, 0), 2_050_749_362);
        assert_eq!(hash3(1, 2, 3), 1_935_332_395);
        assert_eq!(hash3(1023, 59, 9), 2_247_111_407);
        assert_eq!(hash3(1023, u32::MAX, 4), 1_026_030_752);
    }
}
