//! Look-up tables of the vector kernels.

use crate::gf::multiply;

/// For each coefficient the 8×8 bit matrix of its multiplication, in the format of
/// `vgf2p8affineqb`: result bit i is the parity of byte 7 − i of the matrix and the operand.
pub(super) static AFFINE: [u64; 256] = {
    let mut table = [0; 256];
    let mut c = 0;
    while c < 256 {
        let mut matrix = 0u64;
        let mut j = 0;
        while j < 8 {
            let product = multiply(low(c), 1 << j);
            let mut i = 0;
            while i < 8 {
                if product >> i & 1 == 1 {
                    matrix |= 1 << (8 * (7 - i) + j);
                }
                i += 1;
            }
            j += 1;
        }
        table[c] = matrix;
        c += 1;
    }
    table
};

/// For each coefficient its products with the 16 low nibbles, then with the 16 high ones.
#[repr(align(32))]
pub(super) struct Nibbles(pub(super) [[u8; 32]; 256]);

pub(super) static NIBBLES: Nibbles = Nibbles({
    let mut table = [[0; 32]; 256];
    let mut c = 0;
    while c < 256 {
        let mut n = 0;
        while n < 16 {
            table[c][n] = multiply(low(c), low(n));
            table[c][16 + n] = multiply(low(c), low(n) << 4);
            n += 1;
        }
        c += 1;
    }
    table
});

#[expect(clippy::cast_possible_truncation, reason = "callers count to 255")]
const fn low(n: usize) -> u8 {
    n as u8
}
