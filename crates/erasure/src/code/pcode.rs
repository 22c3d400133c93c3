//! P-Code (Jin, Jiang, Feng, Tian, "P-Code: A New RAID-6 Code with Optimal Properties", ICS 2009):
//! p − 1 columns, (p − 1)/2 rows, p prime.
//!
//! Row 0 holds the parities, P_1 … P_{p−1}. Each data element is a pair {a, b} and is a member of
//! exactly P_a and P_b; it lies in column a + b mod p, and pairs with a + b = 0 do not exist:
//!
//! ```text
//!   p = 7     1      2      3      4      5      6
//!     0      P1     P2     P3     P4     P5     P6
//!     1     {2,6}  {3,6}  {1,2}  {1,3}  {1,4}  {1,5}
//!     2     {3,5}  {4,5}  {4,6}  {5,6}  {2,3}  {2,4}
//! ```
//!
//! A column c lacks the labels c and c/2, so that losing two columns leaves equations with a
//! single unknown to start from. A write changes exactly two parities, and encoding is optimal.

use crate::code::{Family, Parameter, data_elements, prime, vertical};
use crate::element::Element;
use crate::equations::{Code, CodeError, Equation};

pub(super) const FAMILY: Family = Family {
    name: "pcode",
    about: "P-Code: every data element in exactly two sums",
    parameter: Parameter::Prime,
    in_schemes: true,
    by_parameter: code,
    in_zfs_order: None,
    by_columns: |columns| vertical("pcode", columns, -1, 5).and_then(code),
};

fn code(p: u16) -> Result<Code, CodeError> {
    prime("pcode", p, 5)?;
    let mut members: Vec<Vec<Element>> = vec![Vec::new(); usize::from(p)];
    let mut height = vec![0; usize::from(p)];
    for a in 1..p {
        for b in a + 1..p {
            let sum = (a + b) % p;
            if sum != 0 {
                height[usize::from(sum)] += 1;
                let element = Element::new(height[usize::from(sum)], sum - 1);
                members[usize::from(a)].push(element);
                members[usize::from(b)].push(element);
            }
        }
    }
    let labels = members.into_iter().skip(1).zip(0..);
    let equations: Vec<_> = labels
        .map(|(members, column)| Equation::xor(Element::new(0, column), "vertical", members))
        .collect();
    let rows = (p - 1) / 2;
    let data = data_elements(rows, p - 1, &equations);
    Code::proven("pcode", p, rows, p - 1, data, equations, 2)
}
