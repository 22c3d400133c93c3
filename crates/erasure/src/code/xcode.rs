//! X-Code (Xu and Bruck, "X-Code: MDS Array Codes with Optimal Encoding", IEEE Trans. Information
//! Theory 45(1), 1999): n columns, n prime, parities along both diagonals in the last two rows.
//!
//! Digits name the parity that an element is in, by its column, for n = 5:
//!
//! ```text
//!        diagonal                    anti-diagonal
//!        0  1  2  3  4               0  1  2  3  4
//!   0    3  4  0  1  2          0    2  3  4  0  1
//!   1    2  3  4  0  1          1    3  4  0  1  2
//!   2    1  2  3  4  0          2    4  0  1  2  3
//!   3    0  1  2  3  4          4    0  1  2  3  4
//! ```
//!
//! P[n−2][i] = Σ_j D[j][i+j+2] and P[n−1][i] = Σ_j D[j][i−j−2], columns mod n.
//!
//! An equation has no two elements in one column. Two lost columns at distance δ leave chains that
//! step by δ along one diagonal and back along the other. The chains visit every lost element if
//! and only if δ generates the integers mod n, which holds for every δ when n is prime.

use crate::code::{Family, Parameter, block, prime, vertical};
use crate::element::Element;
use crate::equations::{Code, CodeError, Equation};

pub(super) const FAMILY: Family = Family {
    name: "xcode",
    about: "X-Code: parity along both diagonals",
    parameter: Parameter::Prime,
    in_schemes: true,
    by_parameter: code,
    in_zfs_order: None,
    by_columns: |columns| vertical("xcode", columns, 0, 5).and_then(code),
};

pub(super) fn code(n: u16) -> Result<Code, CodeError> {
    prime("xcode", n, 5)?;
    let diagonal = (0..n).map(|i| {
        let members = (0..n - 2).map(|j| Element::new(j, (i + j + 2) % n));
        Equation::xor(Element::new(n - 2, i), "diagonal", members)
    });
    let anti_diagonal = (0..n).map(|i| {
        let members = (0..n - 2).map(|j| Element::new(j, (i + 2 * n - j - 2) % n));
        Equation::xor(Element::new(n - 1, i), "anti-diagonal", members)
    });
    let equations = diagonal.chain(anti_diagonal).collect();
    Code::proven("xcode", n, n, n, block(n - 2, n), equations, 2)
}
