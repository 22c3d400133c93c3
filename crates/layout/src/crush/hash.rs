//! Robert Jenkins' 32-bit mix as Ceph uses it (`rjenkins1`).

const SEED: u32 = 1_315_423_911;
const X: u32 = 231_232;
const Y: u32 = 1232;

#[inline]
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

/// How many hashes [`hash3_lanes`] computes side by side.
pub(super) const LANES: usize = 8;

type Lanes = [u32; LANES];

/// One line of `mix` for all lanes; a loop of fixed length that the compiler turns into vectors.
#[inline(always)]
fn line(a: &mut Lanes, b: &Lanes, c: &Lanes, shifted: impl Fn(u32) -> u32) {
    for lane in 0..LANES {
        a[lane] = a[lane].wrapping_sub(b[lane]).wrapping_sub(c[lane]) ^ shifted(c[lane]);
    }
}

#[inline(always)]
fn mix_lanes(a: &mut Lanes, b: &mut Lanes, c: &mut Lanes) {
    line(a, b, c, |c| c >> 13);
    line(b, c, a, |a| a << 8);
    line(c, a, b, |b| b >> 13);
    line(a, b, c, |c| c >> 12);
    line(b, c, a, |a| a << 16);
    line(c, a, b, |b| b >> 5);
    line(a, b, c, |c| c >> 3);
    line(b, c, a, |a| a << 10);
    line(c, a, b, |b| b >> 15);
}

/// `hash3(a, b[i], c)` for all lanes at once.
pub(super) fn hash3_lanes(a: u32, b: &Lanes, c: u32) -> Lanes {
    let mut h = b.map(|b| SEED ^ a ^ b ^ c);
    let (mut a, mut b, mut c) = ([a; LANES], *b, [c; LANES]);
    let (mut x, mut y) = ([X; LANES], [Y; LANES]);
    mix_lanes(&mut a, &mut b, &mut h);
    mix_lanes(&mut c, &mut x, &mut h);
    mix_lanes(&mut y, &mut a, &mut h);
    mix_lanes(&mut b, &mut x, &mut h);
    mix_lanes(&mut y, &mut c, &mut h);
    h
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
#[inline]
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
    fn lanes_hash_as_single_numbers_do() {
        for (a, c) in [(0, 0), (7, 3), (u32::MAX, 1 << 31), (123_456_789, 51)] {
            let b = [0, 1, 59, 60, 0xffff_ffff, 0x8000_0000, 12345, 65536];
            assert_eq!(hash3_lanes(a, &b, c), b.map(|b| hash3(a, b, c)));
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
