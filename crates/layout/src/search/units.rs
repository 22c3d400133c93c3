//! Multiplication by units: more bases without more search. Stored layouts depend on the order of
//! units: it must not change.

use crate::classic::small;
use crate::developed::Development;
use crate::mirror::gcd;

/// A factor that maps the drives onto themselves and differences onto differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    drives: u16,
    /// Domains of a grid; 1 where there are none.
    domains: u16,
    /// Factor of the domain and of the place within it.
    factors: (u16, u16),
}

impl Unit {
    pub(super) fn times(self, drive: u16) -> u16 {
        let times = |x: u16, by: u16, n: u16| small(u64::from(x) * u64::from(by) % u64::from(n));
        let domain = times(drive % self.domains, self.factors.0, self.domains);
        let places = self.drives / self.domains;
        domain + self.domains * times(drive / self.domains, self.factors.1, places)
    }
}

/// At most `most` units and at least one; the first is 1.
pub(super) fn units(drives: u16, development: Development, most: usize) -> Vec<Unit> {
    let domains = match development {
        Development::Grid { domains } => domains,
        Development::Modulo | Development::Xor | Development::Still => 1,
    };
    let prime_to = |n: u16| (1..=n).filter(move |&u| gcd(u.into(), n.into()) == 1);
    prime_to(domains)
        .flat_map(|a| prime_to(drives / domains).map(move |b| (a, b)))
        .take(most.max(1))
        .map(|factors| Unit {
            drives,
            domains,
            factors,
        })
        .collect()
}
