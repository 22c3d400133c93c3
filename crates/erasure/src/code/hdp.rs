//! HDP (Wu, He, Wu, Wan, Liu, Cao, Xie, "HDP Code: A Horizontal-Diagonal Parity Code to Optimize
//! I/O Load Balancing in RAID-6", DSN 2011): p − 1 columns and rows, p prime.
//!
//! Both diagonals of the square are parities, one of each kind in every row and column, so that
//! writes load all drives alike:
//!
//! ```text
//!   p = 5   0  1  2  3
//!     0     H  D  D  A        H[i] = Σ of row i's other elements, the parity A among them
//!     1     D  H  A  D        A[i] = Σ_j D[2i+j+2][j], rows mod p, imaginary row and itself
//!     2     D  A  H  D               skipped; at (i, p−2−i)
//!     3     A  D  D  H
//! ```
//!
//! The anti-diagonal parities contain data only and come first. The horizontal parities contain
//! them, so a write changes three parities: its A, its row's H, and the H of A's row. Encoding
//! takes 2 − 1/(p − 3) XORs per data element.

use crate::code::{Family, Parameter, data_elements, prime, vertical};
use crate::element::Element;
use crate::equations::{Code, CodeError, Equation};

pub(super) const FAMILY: Family = Family {
    name: "hdp",
    about: "HDP: both parities spread evenly",
    parameter: Parameter::Prime,
    in_schemes: true,
    by_parameter: code,
    in_zfs_order: None,
    by_columns: |columns| vertical("hdp", columns, -1, 5).and_then(code),
};

fn code(p: u16) -> Result<Code, CodeError> {
    prime("hdp", p, 5)?;
    let anti_diagonal = (0..p - 1).map(|i| {
        let elements = (0..p - 1).map(move |j| Element::new((2 * i + j + 2) % p, j));
        let members = elements.filter(move |e| e.column != p - 2 - i && e.row != p - 1);
        Equation::xor(Element::new(i, p - 2 - i), "anti-diagonal", members)
    });
    let horizontal = (0..p - 1).map(|i| {
        let columns = (0..p - 1).filter(move |&j| j != i);
        let members = columns.map(move |j| Element::new(i, j));
        Equation::xor(Element::new(i, i), "horizontal-diagonal", members)
    });
    let equations: Vec<_> = anti_diagonal.chain(horizontal).collect();
    let data = data_elements(p - 1, p - 1, &equations);
    Code::proven("hdp", p, p - 1, p - 1, data, equations, 2)
}
