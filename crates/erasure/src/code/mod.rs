//! The codes, one file of equations each, and their names.
//!
//! A new code is a file here, its `mod` line and its line in [`FAMILIES`] (`docs/howto/add-a-code.md`).

mod bitmatrix;
mod dcode;
mod evenodd;
/// The example of `docs/howto/add-a-code.md`, which is compiled and tested here.
#[cfg(test)]
#[path = "../../../../docs/howto/weighted.rs"]
mod example;
mod hcode;
mod hdp;
mod pcode;
mod pq;
mod rdp;
mod simple;
mod xcode;

pub use self::simple::copies;
use crate::element::Element;
use crate::equations::{Code, CodeError, Equation};

/// Order of the coefficients of Q and R: that of md or of ZFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Order {
    /// The first data column has coefficient 1.
    #[default]
    Md,
    /// The last data column has coefficient 1.
    Zfs,
}

/// A family of codes: the interface to the rest of the program.
pub struct Family {
    /// Its name in commands, schemes and labels.
    pub name: &'static str,
    /// A description, for lists.
    pub about: &'static str,
    /// The meaning of the number in `NAME:P`.
    pub parameter: Parameter,
    /// True if schemes of two parities accept the name as a word: `raid6:rdp`.
    pub in_schemes: bool,
    by_parameter: fn(u16) -> Result<Code, CodeError>,
    /// The same with ZFS's order of coefficients, if that differs.
    in_zfs_order: Option<fn(u16) -> Result<Code, CodeError>>,
    /// From the width of a stripe.
    by_columns: fn(u16) -> Result<Code, CodeError>,
}

/// The number that identifies a family's member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// Columns of a stripe.
    Columns,
    /// Data columns of a stripe.
    Data,
    /// A prime; composite numbers are refused.
    Prime,
}

/// Every code. Add a line for a new one.
pub const FAMILIES: &[Family] = &[
    simple::NONE,
    simple::MIRROR,
    simple::PARITY,
    pq::PQ,
    pq::PQR,
    dcode::FAMILY,
    xcode::FAMILY,
    rdp::FAMILY,
    evenodd::FAMILY,
    hcode::FAMILY,
    hdp::FAMILY,
    pcode::FAMILY,
    bitmatrix::LIBERATION,
    bitmatrix::BLAUMROTH,
    bitmatrix::BLAUMROTH_RING,
    bitmatrix::CAUCHY,
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
/// by columns of zeros; vertical codes exist in some widths only.
///
/// # Errors
///
/// [`CodeError`] when there is no such code; for a vertical code the error names the nearest
/// widths.
pub fn by_columns(name: &str, columns: u16) -> Result<Code, CodeError> {
    (family(name)?.by_columns)(columns)
}

/// The code `NAME:PARAMETER` of `ravelin code show`: the parameter is a prime for the array codes,
/// the number of data columns for `parity`, `pq`, `pqr` and `cauchy`, of columns for `none` and
/// `mirror`.
///
/// # Errors
///
/// [`CodeError`] when there is no such code, for example for a composite number.
pub fn by_parameter(name: &str, parameter: u16) -> Result<Code, CodeError> {
    (family(name)?.by_parameter)(parameter)
}

/// [`by_parameter`] with a given order of coefficients; some codes have two orders.
///
/// # Errors
///
/// As [`by_parameter`], and [`CodeError::NoOrder`] for the ZFS order of codes with one order only.
pub fn by_parameter_in(name: &str, parameter: u16, order: Order) -> Result<Code, CodeError> {
    let family = family(name)?;
    let make = match order {
        Order::Md => Some(family.by_parameter),
        Order::Zfs => family.in_zfs_order,
    };
    make.ok_or_else(|| CodeError::NoOrder {
        name: name.to_owned(),
    })?(parameter)
}

/// "pq and pqr": the codes that have two orders of coefficients.
pub(crate) fn with_two_orders() -> String {
    let two = FAMILIES
        .iter()
        .filter(|family| family.in_zfs_order.is_some());
    two.map(|family| family.name)
        .collect::<Vec<_>>()
        .join(" and ")
}

/// Largest width of the codes that have no limit of their own.
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

/// The data columns besides `parities` parity columns: at least one.
fn data_columns(name: &str, columns: u16, parities: u16) -> Result<u16, CodeError> {
    column_count(name, columns, parities + 1, u16::MAX)?;
    Ok(columns - parities)
}

/// The largest prime of an array code: a stripe of 128 × 128 elements. Above this, searches over
/// equations take seconds, and elements would be very small parts of a chunk.
const PRIME_MAX: u16 = 127;

/// Checks the parameter of an array code.
fn prime(name: &str, p: u16, least: u16) -> Result<(), CodeError> {
    parameter(name, p, least, PRIME_MAX)?;
    let factor = smallest_factor(p);
    if factor != p {
        return Err(CodeError::NotPrime {
            name: name.to_owned(),
            parameter: p,
            factor,
        });
    }
    Ok(())
}

/// The least odd prime from `least` on, for horizontal codes.
fn prime_from(least: u16) -> u16 {
    let mut primes = (least.max(3)..).filter(|&n| is_prime(n));
    primes.next().expect("there is a prime below 2^16")
}

/// The prime of a vertical code of `columns` = p + `more` columns.
fn vertical(name: &str, columns: u16, more: i16, least: u16) -> Result<u16, CodeError> {
    let fits = |c: u16| {
        let p = c.checked_add_signed(-more)?;
        (p >= least && p <= PRIME_MAX && is_prime(p)).then_some(p)
    };
    if let Some(p) = fits(columns) {
        return Ok(p);
    }
    let most = PRIME_MAX.saturating_add_signed(more);
    let Some(above) = (columns..=most).find(|&c| fits(c).is_some()) else {
        return Err(CodeError::TooLarge {
            name: name.to_owned(),
            asked: columns,
            most,
        });
    };
    Err(CodeError::NoSuchWidth {
        name: name.to_owned(),
        columns,
        below: (0..columns).rev().find(|&c| fits(c).is_some()),
        above,
    })
}

/// The first `rows` rows of the first `columns` columns, row-major.
fn block(rows: u16, columns: u16) -> Vec<Element> {
    let row = |r| (0..columns).map(move |c| Element::new(r, c));
    (0..rows).flat_map(row).collect()
}

/// The elements that no equation defines, row-major.
fn data_elements(rows: u16, columns: u16, equations: &[Equation]) -> Vec<Element> {
    let mut data = block(rows, columns);
    data.retain(|&e| equations.iter().all(|equation| equation.parity != e));
    data
}

/// Row parities over `k` data columns, in column k.
fn parity_rows(rows: u16, k: u16, kind: &'static str) -> Vec<Equation> {
    let row = |r| (0..k).map(move |c| Element::new(r, c));
    let parity = |r| Equation::xor(Element::new(r, k), kind, row(r));
    (0..rows).map(parity).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_a_name_of_its_own_and_a_line_for_lists() {
        let mut names = NAMES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FAMILIES.len());
        assert!(FAMILIES.iter().all(|family| !family.about.is_empty()));
    }

    #[test]
    fn the_example_of_the_how_to_page_is_a_code() {
        let code = (example::FAMILY.by_columns)(5).expect("four columns of data");
        assert_eq!((code.columns(), code.tolerance()), (5, 1));
        assert_eq!(code.name(), example::FAMILY.name);
    }
}
