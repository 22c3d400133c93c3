//! D-Code (Fu and Shu, "D-Code: An Efficient RAID-6 Code to Optimize I/O Loads and Read
//! Performance", IPDPS 2015): n columns, n prime, parities spread over the last two rows.
//!
//! For n = 7, digits name the horizontal parity that an element is in, letters the deployment one
//! (the paper's Fig. 2):
//!
//! ```text
//!        0  1  2  3  4  5  6              0  1  2  3  4  5  6
//!   0    0  0  0  0  0  1  1         0    A  B  C  D  E  G  A
//!   1    1  1  1  2  2  2  2         1    B  C  D  F  G  A  B
//!   2    2  3  3  3  3  3  4         2    C  E  F  G  A  B  D
//!   3    4  4  4  4  5  5  5         3    E  F  G  A  C  D  E
//!   4    5  5  6  6  6  6  6         4    F  G  B  C  D  E  F
//!   5    6  2  5  1  4  0  3         6    G  D  A  E  B  F  C
//! ```
//!
//! *Horizontal*: the data elements in row-major order, cut into groups of n − 2. Consecutive data
//! share a parity, so short writes change few parities, and degraded reads find most of the
//! elements that they need among those that they read anyway. Group k's last element is in column
//! ⟨−2(k+1)⟩, its parity one to the right. *Deployment*: the same along a walk whose next element
//! is the one below left, or from column 0 the row's last; group k's parity is in column ⟨2(k+1)⟩.
//!
//! The closed forms are equations (1) and (2), which the paper's text garbles; its (6) and (7) give
//! the readable form: reduce the inner column mod n *before* subtracting j, then mod n − 2.
//!
//! Why it decodes: it is X-Code with the elements of each column permuted, (i, j) moving to
//! (⟨(n−3)/2 · (j − i)⟩ mod n−2, j) (Theorem 1), and permuting inside a column changes no erasure of
//! columns. So it survives two columns exactly when n is prime (Theorem 2).
//!
//! Costs: 2 − 2/(n − 2) XORs per data element, n − 3 per lost element, 2 parities per write.

use crate::code::{Family, Parameter, block, prime, vertical};
use crate::element::Element;
use crate::equations::{Code, CodeError, Equation};

pub(super) const FAMILY: Family = Family {
    name: "dcode",
    about: "D-Code: short writes and degraded reads touch few elements",
    parameter: Parameter::Prime,
    in_schemes: true,
    by_parameter: code,
    in_zfs_order: None,
    by_columns: |columns| vertical("dcode", columns, 0, 5).and_then(code),
};

fn code(n: u16) -> Result<Code, CodeError> {
    prime("dcode", n, 5)?;
    let half = i32::from(n - 3) / 2;
    let modulus = i32::from(n);
    // The element in `column` at position j of a group, by the closed forms.
    let member = |column: i32, j: i32| {
        let row = (half * (column - j)).rem_euclid(modulus - 2);
        element(row, column)
    };
    let horizontal = (0..modulus).map(|i| {
        // Equation (1), as (6).
        let members = (0..modulus - 2).map(|j| member((i + j + 2).rem_euclid(modulus), j));
        Equation::xor(element(modulus - 2, i), "horizontal", members)
    });
    let deployment = (0..modulus).map(|i| {
        // Equation (2), as (7).
        let members = (0..modulus - 2).map(|j| member((i - j - 2).rem_euclid(modulus), j));
        Equation::xor(element(modulus - 1, i), "deployment", members)
    });
    let equations = horizontal.chain(deployment).collect();
    Code::proven("dcode", n, n, n, block(n - 2, n), equations, 2)
}

fn element(row: i32, column: i32) -> Element {
    let small = |x: i32| u16::try_from(x).expect("reduced by a modulus");
    Element::new(small(row), small(column))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The paper's procedure (section III.A): number the elements along the two walks, cut the
    /// numbers into groups of n − 2, and find each group's parity.
    fn procedure(n: u16) -> BTreeSet<(Element, Vec<Element>)> {
        let mut groups = BTreeSet::new();
        let mut horizontal = Element::new(0, 0);
        let mut deployment = Element::new(0, 0);
        for k in 0..n {
            let mut row_major = Vec::new();
            let mut walk = Vec::new();
            for _ in 0..n - 2 {
                row_major.push(horizontal);
                walk.push(deployment);
                let Element { row, column } = horizontal;
                horizontal = match column {
                    c if c == n - 1 => Element::new(row + 1, 0),
                    c => Element::new(row, c + 1),
                };
                let Element { row, column } = deployment;
                deployment = match column {
                    0 => Element::new(row, n - 1),
                    c => Element::new((row + 1) % (n - 2), c - 1),
                };
            }
            let last = row_major.last().expect("n - 2 elements").column;
            row_major.sort_unstable();
            walk.sort_unstable();
            groups.insert((Element::new(n - 2, (last + 1) % n), row_major));
            groups.insert((Element::new(n - 1, 2 * (k + 1) % n), walk));
        }
        groups
    }

    #[test]
    fn the_closed_forms_give_what_the_papers_procedure_gives() {
        for n in [5, 7, 11, 13, 17, 19, 23] {
            let code = code(n).expect("prime");
            let listed = code.equations().iter().map(|equation| {
                let members = equation.members.iter().map(|&(member, _)| member);
                (equation.parity, members.collect())
            });
            assert_eq!(listed.collect::<BTreeSet<_>>(), procedure(n), "n = {n}");
        }
    }

    #[test]
    fn it_is_x_code_with_the_elements_of_each_column_permuted() {
        for n in [5, 7, 11, 13] {
            let moved = |e: Element| match e.row {
                row if row >= n - 2 => e,
                row => element(
                    (i32::from(n - 3) / 2 * (i32::from(e.column) - i32::from(row)))
                        .rem_euclid(i32::from(n) - 2),
                    i32::from(e.column),
                ),
            };
            let (x, d) = (
                crate::code::xcode::code(n).expect("prime"),
                code(n).expect("prime"),
            );
            for (x, d) in x.equations().iter().zip(d.equations()) {
                let mut members: Vec<_> = x.members.iter().map(|&(m, c)| (moved(m), c)).collect();
                members.sort_unstable();
                assert_eq!((x.parity, &members), (d.parity, &d.members));
            }
        }
    }
}
