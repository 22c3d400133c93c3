//! Codes of one row: nothing, mirrors, single parity.
//!
//! ```text
//! none      D0 D1 D2          every column has its own data, no loss is survived
//! mirror    D0 D0 D0          n columns hold the same element
//! parity    D0 D1 D2 P        P = D0 + D1 + D2 (RAID-5)
//! copies    D0 D1 D2 D0 D1 D2 each element of a row of data again (elastic RAID's other form)
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

/// A row of `data` elements and `copies` further copies of each: slot `data · c + i` is copy c of element i, so that data
/// has the same slots as in a code of one row with parity. The code does not say which slots share a drive: the layout
/// puts the copies of an element onto different ones (elastic RAID, section 3.1).
///
/// # Errors
/// [`CodeError`] when there is no data, no copy, or too much of either.
pub fn copies(data: u16, copies: u16) -> Result<Code, CodeError> {
    super::parameter("copies", data, 1, super::COLUMNS_MAX)?;
    super::parameter("copies", copies, 1, super::COLUMNS_MAX)?;
    let columns = u32::from(data) * (u32::from(copies) + 1);
    let columns = u16::try_from(columns).unwrap_or(u16::MAX);
    column_count("copies", columns, 1, super::COLUMNS_MAX)?;
    let copy = |c| Equation::xor(Element::new(0, c), "copy", [Element::new(0, c % data)]);
    let equations = (data..columns).map(copy).collect();
    Code::proven(
        "copies",
        copies,
        1,
        columns,
        data_row(data),
        equations,
        copies,
    )
}

/// `data` columns and their sum.
fn parity(data: u16) -> Result<Code, CodeError> {
    super::parameter("parity", data, 1, super::COLUMNS_MAX - 1)?;
    let p = Equation::xor(Element::new(0, data), "P", data_row(data));
    Code::proven("parity", data, 1, data + 1, data_row(data), vec![p], 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ElementSet;

    #[test]
    fn every_element_follows_from_any_of_its_copies() {
        for (data, extra) in [(2, 1), (3, 1), (4, 2), (1, 2)] {
            let code = copies(data, extra).unwrap();
            let elements = code.elements();
            assert_eq!(elements, usize::from(data * (extra + 1)));
            assert_eq!(
                code.data_slots().collect::<Vec<_>>(),
                (0..data.into()).collect::<Vec<_>>()
            );
            for lost in 0..1_u32 << elements {
                let family_left = |i: u16| (0..=extra).any(|c| lost >> (data * c + i) & 1 == 0);
                let set: ElementSet = (0..elements).filter(|slot| lost >> slot & 1 == 1).collect();
                assert_eq!(
                    code.is_recoverable(&set),
                    (0..data).all(family_left),
                    "{lost:b}"
                );
            }
        }
    }

    #[test]
    fn copies_of_nothing_and_no_copies_are_refused() {
        assert!(copies(0, 1).is_err() && copies(3, 0).is_err() && copies(60_000, 60_000).is_err());
    }
}
