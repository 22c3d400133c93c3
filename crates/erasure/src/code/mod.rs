//! The codes, one file of equations each, and their names.
//!
//! Adding one is a file here and a line in [`FAMILIES`].

mod pq;
mod simple;

use crate::element::Element;
use crate::equations::{Code, CodeError};

/// Whose order of Q's and R's coefficients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Order {
    /// The first data column has coefficient 1.
    #[default]
    Md,
    /// The last data column has coefficient 1.
    Zfs,
}

/// How a family of codes makes its members.
struct Family {
    name: &'static str,
    /// From its parameter (a prime, or a number of data columns).
    by_parameter: fn(u16) -> Result<Code, CodeError>,
    /// From the width of a stripe.
    by_columns: fn(u16) -> Result<Code, CodeError>,
}

/// Every code: the line to add for a new one.
const FAMILIES: &[Family] = &[
    Family {
        name: "none",
        by_parameter: simple::none,
        by_columns: simple::none,
    },
    Family {
        name: "mirror",
        by_parameter: simple::mirror,
        by_columns: simple::mirror,
    },
    Family {
        name: "parity",
        by_parameter: simple::parity,
        by_columns: |columns| simple::parity(data_columns("parity", columns, 1)?),
    },
    Family {
        name: "pq",
        by_parameter: |data| pq::code(data, 2, Order::Md),
        by_columns: |columns| pq::code(data_columns("pq", columns, 2)?, 2, Order::Md),
    },
    Family {
        name: "pqr",
        by_parameter: |data| pq::code(data, 3, Order::Md),
        by_columns: |columns| pq::code(data_columns("pqr", columns, 3)?, 3, Order::Md),
    },
];

/// The names of all codes.
pub const NAMES: [&str; FAMILIES.len()] = {
    let mut names = [""; FAMILIES.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = FAMILIES[i].name;
        i += 1;
    }
    names
};

fn family(name: &str) -> Result<&'static Family, CodeError> {
    let found = FAMILIES.iter().find(|family| family.name == name);
    found.ok_or_else(|| CodeError::Unknown {
        name: name.to_owned(),
    })
}

/// The code `name` for stripes of `columns` columns.
///
/// Horizontal codes take the least prime (or word size) that fits and are shortened from the right
/// by columns of zeros; vertical ones exist in some widths only.
///
/// # Errors
///
/// [`CodeError`] when there is no such code; for a vertical one it names the nearest widths.
pub fn by_columns(name: &str, columns: u16) -> Result<Code, CodeError> {
    (family(name)?.by_columns)(columns)
}

/// The code that `ravelin code show NAME:PARAMETER` names: a prime for the array codes, a number
/// of data columns for `parity`, `pq`, `pqr` and `cauchy`, of columns for `none` and `mirror`.
///
/// # Errors
///
/// [`CodeError`] when there is no such code, composite numbers among others.
pub fn by_parameter(name: &str, parameter: u16) -> Result<Code, CodeError> {
    (family(name)?.by_parameter)(parameter)
}

/// [`by_parameter`], with the order of coefficients for `pq` and `pqr`.
///
/// # Errors
///
/// As there, and [`CodeError::NoOrder`] for the ZFS order of other codes.
pub fn by_parameter_in(name: &str, parameter: u16, order: Order) -> Result<Code, CodeError> {
    match (name, order) {
        ("pq", _) => pq::code(parameter, 2, order),
        ("pqr", _) => pq::code(parameter, 3, order),
        (_, Order::Md) => by_parameter(name, parameter),
        (_, Order::Zfs) => {
            family(name)?;
            Err(CodeError::NoOrder {
                name: name.to_owned(),
            })
        }
    }
}

/// Widths of the codes that have no limit of their own.
const COLUMNS_MAX: u16 = 1024;

fn parameter(name: &str, parameter: u16, least: u16, most: u16) -> Result<(), CodeError> {
    if parameter < least {
        return Err(CodeError::TooSmall {
            name: name.to_owned(),
            parameter,
            least,
        });
    }
    if parameter > most {
        return Err(CodeError::TooLarge {
            name: name.to_owned(),
            asked: parameter,
            most,
        });
    }
    Ok(())
}

fn column_count(name: &str, columns: u16, least: u16, most: u16) -> Result<(), CodeError> {
    if columns < least {
        return Err(CodeError::TooNarrow {
            name: name.to_owned(),
            columns,
            least,
        });
    }
    if columns > most {
        return Err(CodeError::TooLarge {
            name: name.to_owned(),
            asked: columns,
            most,
        });
    }
    Ok(())
}

/// What `parities` parity columns leave for data: at least one column.
fn data_columns(name: &str, columns: u16, parities: u16) -> Result<u16, CodeError> {
    column_count(name, columns, parities + 1, u16::MAX)?;
    Ok(columns - parities)
}

/// Row 0 of `columns` columns.
fn data_row(columns: u16) -> Vec<Element> {
    (0..columns).map(|c| Element::new(0, c)).collect()
}

/// The smallest factor above 1: the number itself when it is prime.
fn smallest_factor(n: u16) -> u16 {
    let factor = (2..=n).take_while(|&d| u32::from(d) * u32::from(d) <= u32::from(n));
    factor
        .into_iter()
        .find(|&d| n.is_multiple_of(d))
        .unwrap_or(n)
}

fn is_prime(n: u16) -> bool {
    n >= 2 && smallest_factor(n) == n
}

/// "7 or 11": the primes around a composite number.
pub(crate) fn nearest_primes(n: u16) -> String {
    let above = (n..=u16::MAX).find(|&p| is_prime(p));
    let below = (2..n).rev().find(|&p| is_prime(p));
    let both = below.into_iter().chain(above);
    both.map(|p| p.to_string()).collect::<Vec<_>>().join(" or ")
}
