//! P+Q and P+Q+R over GF(2^8), polynomial 0x11d, generator 2.
//!
//! ```text
//! D0 D1 D2 D3 P Q R        P = Σ D_i     Q = Σ g_i D_i     R = Σ g_i² D_i
//! ```
//!
//! md (and ISA-L's `pq_gen`) takes g_i = 2^i: the *first* data column has coefficient 1. ZFS
//! evaluates Horner's rule over the columns in order, q = 2q + d and r = 4r + d, so that g_i =
//! 2^(n−1−i) and the *last* data column has coefficient 1. The two orders agree only if the columns
//! of one are reversed.
//!
//! 2^i and 4^i are injective only for i < 255, hence 255 data columns at most.
//! See H. P. Anvin, "The mathematics of RAID-6"; openzfs `module/zfs/vdev_raidz.c`.

use crate::code::{Family, Order, Parameter, data_columns, data_row, parameter};
use crate::element::Element;
use crate::equations::{Code, CodeError, Equation};
use crate::gf;

pub(super) const PQ: Family = Family {
    name: "pq",
    about: "P+Q over GF(2^8) (RAID-6)",
    parameter: Parameter::Data,
    in_schemes: true,
    by_parameter: |data| code(data, 2, Order::Md),
    in_zfs_order: Some(|data| code(data, 2, Order::Zfs)),
    by_columns: |columns| code(data_columns("pq", columns, 2)?, 2, Order::Md),
};

pub(super) const PQR: Family = Family {
    name: "pqr",
    about: "P+Q+R over GF(2^8), three losses",
    parameter: Parameter::Data,
    in_schemes: false,
    by_parameter: |data| code(data, 3, Order::Md),
    in_zfs_order: Some(|data| code(data, 3, Order::Zfs)),
    by_columns: |columns| code(data_columns("pqr", columns, 3)?, 3, Order::Md),
};

/// Most data columns: the order of the generator.
const DATA_MAX: u16 = 255;

/// `parities` is 2 (P+Q) or 3 (P+Q+R).
fn code(data: u16, parities: u16, order: Order) -> Result<Code, CodeError> {
    let name = if parities == 2 { "pq" } else { "pqr" };
    parameter(name, data, 1, DATA_MAX)?;
    let generator = |i: u16| match order {
        Order::Md => i,
        Order::Zfs => data - 1 - i,
    };
    let equation = |(j, kind): (u16, &'static str)| Equation {
        parity: Element::new(0, data + j),
        kind,
        members: (0..data)
            .map(|i| (Element::new(0, i), gf::power_of_two(j * generator(i))))
            .collect(),
    };
    let kinds = ["P", "Q", "R"];
    let equations = (0..parities).zip(kinds).map(equation).collect();
    Code::proven(
        name,
        data,
        1,
        data + parities,
        data_row(data),
        equations,
        parities,
    )
}
