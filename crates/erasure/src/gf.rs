//! GF(2^8) with polynomial 0x11d and generator 2: the field of md's and ZFS's P+Q(+R).
//!
//! Only for equations and eliminations; the kernels do bulk multiplication.

/// x^8 + x^4 + x^3 + x^2 + 1, without its leading bit.
const REDUCTION: u8 = 0x1d;

/// `a` times 2.
const fn double(a: u8) -> u8 {
    (a << 1) ^ (REDUCTION * (a >> 7))
}

/// 2^i for i in 0..510, so that a sum of two logarithms needs no reduction.
const EXP: [u8; 510] = {
    let mut table = [0; 510];
    let mut value = 1;
    let mut i = 0;
    while i < 510 {
        table[i] = value;
        value = double(value);
        i += 1;
    }
    table
};

/// Logarithm to base 2; `LOG[0]` is not used.
const LOG: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0u8;
    while i < 255 {
        table[EXP[i as usize] as usize] = i;
        i += 1;
    }
    table
};

/// The product of two field elements.
pub const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[LOG[a as usize] as usize + LOG[b as usize] as usize]
}

/// 1/a.
///
/// # Panics
///
/// Zero has no inverse.
pub const fn invert(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    EXP[255 - LOG[a as usize] as usize]
}

/// 2^exponent.
pub const fn power_of_two(exponent: u16) -> u8 {
    EXP[exponent as usize % 255]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shift and add, straight from the definition.
    fn slow(mut a: u8, mut b: u8) -> u8 {
        let mut product = 0;
        while b != 0 {
            if b & 1 == 1 {
                product ^= a;
            }
            a = double(a);
            b >>= 1;
        }
        product
    }

    #[test]
    fn tables_agree_with_shift_and_add_for_every_pair() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), slow(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn every_nonzero_element_times_its_inverse_is_one() {
        for a in 1..=255 {
            assert_eq!(multiply(a, invert(a)), 1);
        }
    }

    #[test]
    fn two_to_the_eighth_is_0x1d() {
        assert_eq!(power_of_two(8), 0x1d);
        assert_eq!(power_of_two(255), 1);
    }
}
