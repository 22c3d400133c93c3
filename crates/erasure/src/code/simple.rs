//! Codes of one row: nothing, mirrors, single parity.
//!
//! ```text
//! none      D0 D1 D2          every column has its own data, no loss is survived
//! mirror    D0 D0 D0          n columns hold the same element
//! parity    D0 D1 D2 P        P = D0 + D1 + D2 (RAID-5)
//! ```

use crate::code::{Family, Parameter, column_count, data_columns, data_row};
use crate::element::Element;
use crate::equations::{Code, CodeError, Equation};

pub(super) const NONE: Family = Family {
    name: "none",
    about: "data alone",
    parameter: Parameter::Columns,
    in_schemes: false,
    by_parameter: none,
    in_zfs_order: None,
    by_columns: none,
};

pub(super) const MIRROR: Family = Family {
    name: "mirror",
    about: "copies of one element",
    parameter: Parameter::Columns,
    in_schemes: false,
    by_parameter: mirror,
    in_zfs_order: None,
    by_columns: mirror,
};

pub(super) const PARITY: Family = Family {
    name: "parity",
    about: "single parity (RAID-5)",
    parameter: Parameter::Data,
    in_schemes: false,
    by_parameter: parity,
    in_zfs_order: None,
    by_columns: |columns| parity(data_columns("parity", columns, 1)?),
};

/// `columns` columns of data.
fn none(columns: u16) -> Result<Code, CodeError> {
    column_count("none", columns, 1, super::COLUMNS_MAX)?;
    Code::proven(
        "none",
        columns,
        1,
        columns,
        data_row(columns),
        Vec::new(),
        0,
    )
}

/// One data element, copied to all columns.
fn mirror(columns: u16) -> Result<Code, CodeError> {
    column_count("mirror", columns, 1, super::COLUMNS_MAX)?;
    let original = Element::new(0, 0);
    let copy = |c| Equation::xor(Element::new(0, c), "copy", [original]);
    let equations = (1..columns).map(copy).collect();
    Code::proven(
        "mirror",
        columns,
        1,
        columns,
        vec![original],
        equations,
        columns - 1,
    )
}

/// `data` columns and their sum.
fn parity(data: u16) -> Result<Code, CodeError> {
    super::parameter("parity", data, 1, super::COLUMNS_MAX - 1)?;
    let p = Equation::xor(Element::new(0, data), "P", data_row(data));
    Code::proven("parity", data, 1, data + 1, data_row(data), vec![p], 1)
}
