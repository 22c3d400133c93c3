//! RDP, row-diagonal parity (Corbett, English, Goel, Grcanac, Kleiman, Leong, Sankar, "Row-Diagonal
//! Parity for Double Disk Failure Correction", FAST 2004): p − 1 rows, p prime.
//!
//! Digits are diagonals for p = 5; column P holds row parities and is part of the diagonals:
//!
//! ```text
//!        0  1  2  3  P  Q
//!   0    0  1  2  3  ·  0        · is diagonal p−1, which is not stored
//!   1    1  2  3  ·  0  1
//!   2    2  3  ·  0  1  2
//!   3    3  ·  0  1  2  3
//! ```
//!
//! Each column lacks one diagonal, and each lacks a different one. So after two losses two
//! diagonals have a single unknown; each starts a chain that alternates between rows and diagonals
//! and ends at the diagonal that is not stored. Encoding takes 2 − 2/(p − 1) XORs per data element,
//! the least possible, since diagonals use the row parities as they are.
//!
//! With k < p − 1 data columns the missing ones are zeros on the right, and are left out.

use crate::code::{Family, Parameter, block, data_columns, parity_rows, prime, prime_from};
use crate::element::Element;
use crate::equations::{Code, CodeError, Equation};

pub(super) const FAMILY: Family = Family {
    name: "rdp",
    about: "row-diagonal parity",
    parameter: Parameter::Prime,
    in_schemes: true,
    by_parameter: |p| code(p, p.saturating_sub(1)),
    in_zfs_order: None,
    by_columns: |columns| {
        let k = data_columns("rdp", columns, 2)?;
        code(prime_from(k + 1), k)
    },
};

/// `k <= p - 1` data columns.
fn code(p: u16, k: u16) -> Result<Code, CodeError> {
    prime("rdp", p, 3)?;
    let mut equations = parity_rows(p - 1, k, "horizontal");
    for i in 0..p - 1 {
        // Column p − 1 of the full code is the row parity, here column k.
        let columns = (0..k).chain([p - 1]);
        let diagonal = columns.map(|j| ((i + p - j) % p, if j == p - 1 { k } else { j }));
        let members = diagonal.filter(|&(row, _)| row != p - 1);
        let members = members.map(|(row, column)| Element::new(row, column));
        equations.push(Equation::xor(Element::new(i, k + 1), "diagonal", members));
    }
    Code::proven("rdp", p, p - 1, k + 2, block(p - 1, k), equations, 2)
}
