//! PDDL: what makes a base permutation good, and the exact ones.
//!
//! Let drive f fail. In a row whose base group holds f at position a, the drive at position b of the same group is
//! read, and B\[b\] − B\[a\] is its distance from f. Over n rows the drive f + δ is read once for every ordered pair of
//! positions within a group with difference δ. So a base spreads a rebuild evenly if and only if every non-zero δ
//! occurs equally often, k − 1 times for one spare (*satisfactory* in Schwarz, Steinberg and Burkhard, HPCA 1999,
//! section 3).
//!
//! For n = g·k + 1 prime, take a primitive root w. The powers of w^g are a subgroup of order k; let
//! it and its cosets be the groups and 0 the spare:
//!
//! ```text
//!   n = 7, k = 3, w = 3:   { 1, 2, 4 }   { 3, 6, 5 }   spare 0
//! ```
//!
//! Differences within a subgroup make up whole cosets, and multiplying by the representatives of
//! all cosets covers every non-zero number k − 1 times. Bose's construction works in any field;
//! in GF(2^w) differences and development are xor.
//!
//! Where n is neither, or s is not 1, [`crate::search`] searches for several bases that are jointly
//! good.

use std::sync::Arc;

use super::{Domains, Kind, Made, Parity};
use crate::developed::{Developed, Development, Shape};
use crate::geometry::{Ask, Field, GeometryError};
use crate::search::{self, DomainsError};

/// The layout's name and fields in scheme strings.
pub(super) static KIND: Kind = Kind {
    name: "pddl",
    parity: Parity::Digit,
    domains: Domains::Spread,
    is_pool: false,
    offered: &["pddl1", "pddl2", "pddl3"],
    examples: &["pddl2:4d:13c:1s", "pddl1:4d:17c:1s", "pddl2:8d:22c:2s"],
    make,
};

fn make(ask: &Ask<'_>, shape: Shape) -> Made {
    if let Some(stored) = ask.stored {
        return stored_bases(ask, shape, stored);
    }
    let domains = ask.scheme.domains;
    if domains.is_none()
        && let Some(layout) = exact(shape)
    {
        return Ok(Arc::new(layout));
    }
    let layout = search::search(shape, domains).map_err(|error| domains_error(ask, &error))?;
    Ok(Arc::new(layout))
}

fn domains_error(ask: &Ask<'_>, error: &DomainsError) -> GeometryError {
    let domains = ask.scheme.domains.unwrap_or(1);
    let nearest = match error {
        DomainsError::Uneven { drives, .. } => {
            let divisor = (domains..=*drives).find(|&f| drives.is_multiple_of(f));
            format!("{}f", divisor.unwrap_or(*drives))
        }
        DomainsError::NotFound { .. } => format!("{}f", domains.saturating_mul(2)),
    };
    GeometryError::Impossible {
        field: Field::Domains,
        why: error.to_string(),
        nearest,
    }
}

fn stored_bases(ask: &Ask<'_>, shape: Shape, stored: &[u8]) -> Made {
    if let Some(domains) = ask.scheme.domains
        && !shape.drives.is_multiple_of(domains)
    {
        let drives = shape.drives;
        return Err(domains_error(
            ask,
            &DomainsError::Uneven { drives, domains },
        ));
    }
    let layout = search::restore(shape, ask.scheme.domains, stored);
    let layout = layout.map_err(|error| GeometryError::Stored {
        why: error.to_string(),
    })?;
    Ok(Arc::new(layout))
}

/// The exact layout for `shape`, if Bose's construction gives one: one spare, n a prime or a power
/// of two, and k a divisor of n − 1.
#[must_use]
pub fn exact(shape: Shape) -> Option<Developed> {
    let Shape {
        drives,
        width,
        spares,
        ..
    } = shape;
    if spares != 1 || width < 2 || drives <= width || !(drives - 1).is_multiple_of(width) {
        return None;
    }
    let (development, powers) = powers(drives)?;
    let groups = (drives - 1) / width;
    let mut base = Vec::with_capacity(drives.into());
    for j in 0..groups {
        for u in 0..width {
            base.push(powers[usize::from(j + groups * u)]);
        }
    }
    base.push(0);
    Some(Developed::new(shape, development, &base))
}

/// Whether every non-zero difference occurs equally often within the groups of every base
/// together: the rebuild reads of a full pattern are perfectly even.
#[must_use]
pub fn is_satisfactory(layout: &Developed) -> bool {
    let shape = layout.shape();
    if shape.slice().1 != 1 {
        return false;
    }
    let n = usize::from(shape.drives);
    let mut counts = vec![0_u32; n];
    for base in layout.bases().chunks(n) {
        let used = usize::from(shape.drives - shape.spares);
        for group in base[..used].chunks(shape.width.into()) {
            for &a in group {
                for &b in group {
                    let difference = layout.development().moved_back(shape.drives, b, a);
                    counts[usize::from(difference)] += 1;
                }
            }
        }
    }
    counts[1..].iter().all(|&count| count == counts[1])
}

/// The powers of a primitive element of the field with n elements, n a prime or a power of two, and
/// how differences are developed in it.
pub(crate) fn powers(n: u16) -> Option<(Development, Vec<u16>)> {
    if is_prime(n) {
        Some((Development::Modulo, powers_mod_prime(n)))
    } else if n.is_power_of_two() {
        Some((Development::Xor, powers_in_field(n)?))
    } else {
        None
    }
}

pub(crate) fn is_prime(n: u16) -> bool {
    n >= 2
        && (2..n)
            .take_while(|d| u32::from(*d).pow(2) <= n.into())
            .all(|d| !n.is_multiple_of(d))
}

/// w^0, w^1, … mod p for the least primitive root w.
fn powers_mod_prime(p: u16) -> Vec<u16> {
    (1..p)
        .map(|w| {
            cycle(p - 1, |x| {
                crate::classic::small(u64::from(x) * u64::from(w) % u64::from(p))
            })
        })
        .find(|powers| powers.len() == usize::from(p - 1))
        .expect("every prime has a primitive root")
}

/// w^0, w^1, … in GF(n), n a power of two up to 2^15, w = x modulo the least primitive polynomial.
fn powers_in_field(n: u16) -> Option<Vec<u16>> {
    if n < 4 {
        return None;
    }
    let degree = n.trailing_zeros();
    (1..n).step_by(2).find_map(|low| {
        let polynomial = 1_u32 << degree | u32::from(low);
        let powers = cycle(n - 1, |x| {
            let doubled = u32::from(x) << 1;
            let reduced = if doubled >> degree == 1 {
                doubled ^ polynomial
            } else {
                doubled
            };
            crate::classic::small(reduced.into())
        });
        (powers.len() == usize::from(n - 1)).then_some(powers)
    })
}

/// 1, f(1), f(f(1)), … until the sequence returns to 1, at most `limit` members.
fn cycle(limit: u16, f: impl Fn(u16) -> u16) -> Vec<u16> {
    let mut powers = vec![1];
    loop {
        let next = f(powers[powers.len() - 1]);
        if next == 1 || powers.len() > usize::from(limit) {
            return powers;
        }
        powers.push(next);
    }
}
