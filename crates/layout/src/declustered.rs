//! Declustered layouts, a file each: groups are spread over more drives than they have columns.
//!
//! The rest of the crate uses such a layout only through its [`Kind`]: its name in scheme strings, its fields, and how
//! it is made. Scheme strings, errors and completion read the names from [`KINDS`]. A new layout is a file here, its
//! `mod` line and its line in [`KINDS`] (`docs/howto/add-a-layout.md`).

pub mod design;
pub mod draid;
/// The example of `docs/howto/add-a-layout.md`, which is compiled and tested here.
#[cfg(test)]
#[path = "../../../docs/howto/turned.rs"]
mod example;
pub mod pddl;
pub mod pool;
mod random;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::developed::Shape;
use crate::geometry::{Ask, GeometryError};
use crate::{Layout, Scheme};

/// Every declustered layout. Add a line for a new one.
pub static KINDS: &[&Kind] = &[
    &pddl::KIND,
    &draid::KIND,
    &random::KIND,
    &design::KIND,
    &pool::DDP,
    &pool::CRUSH,
];

/// A layout, or why the scheme has none.
pub(crate) type Made = Result<Arc<dyn Layout>, GeometryError>;

/// A kind of declustered layout.
pub struct Kind {
    /// Its name in scheme strings, without a digit for parity. Pools' labels depend on it.
    pub name: &'static str,
    /// How a scheme gives the parity.
    pub parity: Parity,
    /// How the layout treats failure domains.
    pub domains: Domains,
    /// Whether the placement is a stored table that grows with the pool.
    pub is_pool: bool,
    /// Names shown in lists of schemes.
    pub offered: &'static [&'static str],
    /// Schemes that tests make and check cell by cell. The first is small: the simulator fails its drives.
    pub examples: &'static [&'static str],
    /// Makes the layout of a shape that fits the drives.
    pub(crate) make: fn(&Ask<'_>, Shape) -> Made,
}

/// How a scheme gives the number of columns of a group that may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parity {
    /// By a digit after the name, always: `pddl2`.
    Digit,
    /// By a digit after the name, with a default: `draid` is `draid1`.
    DigitOr(u16),
    /// By the field `p`, with a default: `ddp` is `ddp:2p`.
    FieldOr(u16),
}

/// How a layout treats failure domains, the field `f`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domains {
    /// No group has more columns in a domain than may be lost; drives in named domains are assigned to seats
    /// accordingly.
    Spread,
    /// The field is accepted; a layout that is not even over the domains is an error.
    Checked,
    /// The field is refused, for this reason.
    Refused(&'static str),
}

impl Kind {
    /// The kind with this name (without a digit).
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        KINDS.iter().copied().find(|kind| kind.name == name)
    }

    /// The name with its parity, as schemes begin with it: `pddl2`, but `ddp`.
    #[must_use]
    pub fn named(&self, parity: u16) -> String {
        match self.parity {
            Parity::Digit | Parity::DigitOr(_) => format!("{}{parity}", self.name),
            Parity::FieldOr(_) => self.name.to_owned(),
        }
    }

    /// The parity, if the scheme gives it by a field and it is not the default.
    pub(crate) fn parity_field(&self, scheme: &Scheme) -> Option<u16> {
        match self.parity {
            Parity::Digit | Parity::DigitOr(_) => None,
            Parity::FieldOr(default) => (scheme.parity != default).then_some(scheme.parity),
        }
    }

    /// Letters of the fields that the kind takes.
    pub(crate) const fn letters(&self) -> &'static str {
        match self.domains {
            Domains::Spread | Domains::Checked => "d p c s f x",
            Domains::Refused(_) => "d p c s x",
        }
    }
}

// Names are unique: the test of [`KINDS`] checks this.
impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Kind {}

impl Hash for Kind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::{Family, names};

    #[test]
    fn names_are_unique_and_every_kind_is_found_by_its_name() {
        for kind in KINDS {
            assert_eq!(
                Kind::by_name(kind.name).map(|found| found.name),
                Some(kind.name)
            );
            assert_eq!(
                names().filter(|&name| name == kind.offered[0]).count(),
                1,
                "{kind:?}"
            );
        }
        let mut unique: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), KINDS.len());
    }

    #[test]
    fn the_example_of_the_how_to_page_makes_a_layout() {
        let example = &example::KIND;
        let scheme = Scheme::of(Family::Declustered(example), 2);
        let geometry = crate::Geometry::new(&scheme.on(14), None, 64).expect("a layout");
        assert_eq!((geometry.drives, geometry.data), (14, 8));
    }

    #[test]
    fn what_is_offered_and_the_examples_are_schemes_of_the_kind() {
        for kind in KINDS {
            assert!(!kind.examples.is_empty(), "{kind:?}");
            for text in kind.offered.iter().chain(kind.examples) {
                let scheme: Scheme = text.parse().expect(text);
                assert_eq!(scheme.family, Family::Declustered(kind), "{text}");
                assert_eq!(scheme.to_string(), *text);
            }
        }
    }
}
