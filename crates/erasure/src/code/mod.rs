//! The codes, one file of equations each, and their names.
//!
//! Adding one is a file here and a line in [`FAMILIES`].

mod bitmatrix;
mod dcode;
mod evenodd;
mod hcode;
mod hdp;
mod pcode;
mod pq;
mod rdp;
mod simple;
mod xcode;

use crate::element::Element;
use crate::equations::{Code, CodeError, Equation};

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
    Family {
        name: "dcode",
        by_parameter: dcode::code,
        by_columns: |columns| vertical("dcode", columns, 0, 5).and_then(dcode::code),
    },
    Family {
        name: "xcode",
        by_parameter: xcode::code,
        by_columns: |columns| vertical("xcode", columns, 0, 5).and_then(xcode::code),
    },
    Family {
        name: "rdp",
        by_parameter: |p| rdp::code(p, p.saturating_sub(1)),
        by_columns: |columns| {
            let k = data_columns("rdp", columns, 2)?;
            rdp::code(prime_from(k + 1), k)
        },
    },
    Family {
        name: "evenodd",
        by_parameter: |p| evenodd::code(p, p),
        by_columns: |columns| {
            let k = data_columns("evenodd", columns, 2)?;
            evenodd::code(prime_from(k), k)
        },
    },
    Family {
        name: "hcode",
        by_parameter: hcode::code,
        by_columns: |columns| vertical("hcode", columns, 1, 3).and_then(hcode::code),
    },
    Family {
        name: "hdp",
        by_parameter: hdp::code,
        by_columns: |columns| vertical("hdp", columns, -1, 5).and_then(hdp::code),
    },
    Family {
        name: "pcode",
        by_parameter: pcode::code,
        by_columns: |columns| vertical("pcode", columns, -1, 5).and_then(pcode::code),
    },
    Family {
        name: "liberation",
        by_parameter: |p| bitmatrix::liberation(p, p),
        by_columns: |columns| {
            let k = data_columns("liberation", columns, 2)?;
            bitmatrix::liberation(prime_from(k), k)
        },
    },
    Family {
        name: "blaumroth",
        by_parameter: |p| bitmatrix::blaum_roth(p, p.saturating_sub(1)),
        by_columns: |columns| {
            let k = data_columns("blaumroth", columns, 2)?;
            bitmatrix::blaum_roth(prime_from(k + 1), k)
        },
    },
    Family {
        name: "blaumroth-ring",
        by_parameter: |p| bitmatrix::blaum_roth_ring(p, p),
        by_columns: |columns| {
            let k = data_columns("blaumroth-ring", columns, 2)?;
            bitmatrix::blaum_roth_ring(prime_from(k), k)
        },
    },
    Family {
        name: "cauchy",
        by_parameter: bitmatrix::cauchy,
        by_columns: |columns| bitmatrix::cauchy(data_columns("cauchy", columns, 2)?),
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

/// The largest prime of an array code: a stripe of 128 × 128 elements. Searches over equations
/// take seconds from here on, and chunks would be cut into slivers.
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

/// What no equation defines, row-major.
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
