//! EVENODD (Blaum, Brady, Bruck, Menon, "EVENODD: An Efficient Scheme for Tolerating Double Disk
//! Failures in RAID Architectures", IEEE Trans. Computers 44(2), 1995): p − 1 rows, p prime.
//!
//! Digits are diagonals for p = 5; the diagonal p − 1, S, has no parity of its own:
//!
//! ```text
//!        0  1  2  3  4  P  Q
//!   0    0  1  2  3  S     0+S
//!   1    1  2  3  S  0     1+S
//!   2    2  3  S  0  1     2+S
//!   3    3  S  0  1  2     3+S
//! ```
//!
//! Diagonals contain data only, so P and Q are independent columns. The price: two lost data
//! columns could leave no diagonal with a single unknown. Adding S to every Q solves this: the sum
//! of all P and all Q elements is S (an even or odd diagonal, hence the name), and with S known the
//! zig-zag is that of RDP. The equations contain S written out; encoding computes it once.

use crate::code::{Family, Parameter, block, data_columns, parity_rows, prime, prime_from};
use crate::element::Element;
use crate::equations::{Code, CodeError, Equation};

pub(super) const FAMILY: Family = Family {
    name: "evenodd",
    about: "EVENODD: independent parity columns",
    parameter: Parameter::Prime,
    in_schemes: true,
    by_parameter: |p| code(p, p),
    in_zfs_order: None,
    by_columns: |columns| {
        let k = data_columns("evenodd", columns, 2)?;
        code(prime_from(k), k)
    },
};

/// `k <= p` data columns.
fn code(p: u16, k: u16) -> Result<Code, CodeError> {
    prime("evenodd", p, 3)?;
    // Element of diagonal `d` in column j; row p − 1 is imaginary and zero.
    let diagonal = |d: u16| {
        let rows = (0..k).map(move |j| Element::new((d + p - j) % p, j));
        rows.filter(move |e| e.row != p - 1)
    };
    let mut equations = parity_rows(p - 1, k, "horizontal");
    for i in 0..p - 1 {
        let members = diagonal(i).chain(diagonal(p - 1));
        equations.push(Equation::xor(Element::new(i, k + 1), "diagonal+S", members));
    }
    Code::proven("evenodd", p, p - 1, k + 2, block(p - 1, k), equations, 2)
}
