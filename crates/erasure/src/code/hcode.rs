//! H-Code (Wu, Wan, He, Cao, Xie, "H-Code: A Hybrid MDS Array Code to Optimize Partial Stripe
//! Writes in RAID-6", IPDPS 2011): p + 1 columns, p − 1 rows, p prime.
//!
//! A dedicated column P of row parities, as in RDP. The other parities Q are on a diagonal through
//! the data columns, so that column 0 has data only and the next p − 1 have one parity each:
//!
//! ```text
//!   p = 5   0  1  2  3  4  P
//!     0     D  Q  D  D  D  P
//!     1     D  D  Q  D  D  P       P[i] = Σ of row i's data
//!     2     D  D  D  Q  D  P       Q[i] = Σ_j D[p−2−i+j][j], j ≠ i + 1, rows mod p
//!     3     D  D  D  D  Q  P
//! ```
//!
//! The last element of one row and the first of the next are in one anti-diagonal parity, so that a
//! short write across rows changes one Q. No parity is a member of an equation.

use crate::code::{Family, Parameter, data_elements, prime, vertical};
use crate::element::Element;
use crate::equations::{Code, CodeError, Equation};

pub(super) const FAMILY: Family = Family {
    name: "hcode",
    about: "H-Code: row parity, and diagonal parity among the data",
    parameter: Parameter::Prime,
    in_schemes: true,
    by_parameter: code,
    in_zfs_order: None,
    by_columns: |columns| vertical("hcode", columns, 1, 3).and_then(code),
};

fn code(p: u16) -> Result<Code, CodeError> {
    prime("hcode", p, 3)?;
    let horizontal = (0..p - 1).map(|i| {
        let columns = (0..p).filter(move |&j| j != i + 1);
        let members = columns.map(move |j| Element::new(i, j));
        Equation::xor(Element::new(i, p), "horizontal", members)
    });
    let anti_diagonal = (0..p - 1).map(|i| {
        let columns = (0..p).filter(move |&j| j != i + 1);
        let members = columns.map(move |j| Element::new((p - 2 - i + j) % p, j));
        Equation::xor(Element::new(i, i + 1), "anti-diagonal", members)
    });
    let equations: Vec<_> = horizontal.chain(anti_diagonal).collect();
    let data = data_elements(p - 1, p + 1, &equations);
    Code::proven("hcode", p, p - 1, p + 1, data, equations, 2)
}
