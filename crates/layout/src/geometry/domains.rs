//! Failure domains of named drives: which order of the drives survives the most domain failures.
//!
//! A classic level puts the columns of a stripe on neighbouring seats:
//!
//! ```text
//!   raid10 on  A A B B          dealt out:  A B A B
//!              D D' E E'                    D D' E E'
//!   the loss of A takes D and its copy      every copy is in the other domain
//! ```
//!
//! So seats are filled with one drive of each domain in turn, if that survives more failed domains than
//! the given order. Layouts with the field `f` are also tried with it: seat x is then in domain x mod f.

use super::{Geometry, GeometryError};
use crate::declustered::Domains;
use crate::scheme::{Family, Scheme};

/// Most stripes that are checked: more than any classic rotation's period on a few hundred drives.
const STRIPES_MAX: u64 = 1 << 16;

/// The assignment of drives to seats, and how many domain failures it survives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The scheme, with the field `f` set where that helps.
    pub scheme: Scheme,
    /// By seat: index of the given drive in this seat.
    pub order: Vec<usize>,
    /// How many domains may fail at once, whichever domains they are.
    pub survived: u16,
}

impl Placed {
    /// True if drives have another order than they were given.
    #[must_use]
    pub fn is_dealt(&self) -> bool {
        !self.order.is_sorted()
    }
}

/// Assigns drives to seats. `domains` has the domain of each drive, numbered from 0. Drives have
/// `rows` cells.
///
/// # Errors
/// When the scheme has no layout on this number of drives.
pub fn place(scheme: &Scheme, domains: &[u16], rows: u64) -> Result<Placed, GeometryError> {
    let drives = u16::try_from(domains.len()).unwrap_or(u16::MAX);
    let given: Vec<usize> = (0..domains.len()).collect();
    let dealt = deal(domains);
    let count = count_of(domains);
    let mut tries = vec![(scheme.clone(), given), (scheme.clone(), dealt.clone())];
    let even = count > 0 && domains.len().is_multiple_of(count);
    if even && scheme.domains.is_none() && takes_domains(scheme.family) {
        let mut with = scheme.clone();
        with.domains = u16::try_from(count).ok();
        tries.push((with, dealt));
    }
    let mut best: Option<Placed> = None;
    let mut failed = None;
    for (scheme, order) in tries {
        let geometry = match Geometry::new(&scheme, Some(drives), rows) {
            Ok(geometry) => geometry,
            Err(error) => {
                failed.get_or_insert(error);
                continue;
            }
        };
        let of: Vec<u16> = order.iter().map(|&drive| domains[drive]).collect();
        let survived = geometry.domains_survived(&of, rows);
        if best.as_ref().is_none_or(|best| survived > best.survived) {
            best = Some(Placed {
                scheme,
                order,
                survived,
            });
        }
    }
    match (best, failed) {
        (Some(best), _) => Ok(best),
        (None, Some(error)) => Err(error),
        (None, None) => unreachable!("each try gives one or the other"),
    }
}

const fn takes_domains(family: Family) -> bool {
    family.is_mirror()
        || matches!(family, Family::Raid5(_) | Family::Raid6(_) | Family::Raid7)
        || matches!(family, Family::Declustered(kind) if matches!(kind.domains, Domains::Spread))
}

fn count_of(domains: &[u16]) -> usize {
    domains
        .iter()
        .max()
        .map_or(0, |&last| usize::from(last) + 1)
}

/// One drive of each domain in turn.
fn deal(domains: &[u16]) -> Vec<usize> {
    let mut of: Vec<Vec<usize>> = vec![Vec::new(); count_of(domains)];
    for (drive, &domain) in domains.iter().enumerate() {
        of[usize::from(domain)].push(drive);
    }
    let turns = of.iter().map(Vec::len).max().unwrap_or(0);
    (0..turns)
        .flat_map(|turn| {
            of.iter()
                .filter_map(move |drives| drives.get(turn).copied())
        })
        .collect()
}

impl Geometry {
    /// How many domains may fail at once, whichever domains they are, with all data still readable. `domains` has the
    /// domain of each seat's drive.
    #[must_use]
    pub fn domains_survived(&self, domains: &[u16], rows: u64) -> u16 {
        let layout = self.layout.as_ref();
        let mut survived = count_of(domains).saturating_sub(1);
        let slots = 4 * u64::from(self.drives) * u64::from(self.code.columns);
        let rows = layout.pattern_rows().min(rows.max(1));
        let mut held = vec![0; count_of(domains)];
        let mut left = STRIPES_MAX;
        for group in 0..layout.groups(rows).max(1) {
            let stripes = match self.scheme.family.is_declustered() {
                true => 1,
                false => layout.stripes_per_group(slots).min(slots),
            };
            for index in 0..stripes {
                held.fill(0_u16);
                for unit in 0..self.code.columns {
                    let place = layout.place(group * stripes + index, index, unit);
                    let seat = layout.cell(group, place.column).seat;
                    held[usize::from(domains[seat.index()])] += 1;
                }
                survived = survived.min(most_that_fit(&mut held, self.parity));
            }
            left = left.saturating_sub(stripes);
            if left == 0 || survived == 0 {
                break;
            }
        }
        u16::try_from(survived).unwrap_or(u16::MAX)
    }
}

/// How many of the fullest domains together hold at most `parity` columns.
fn most_that_fit(held: &mut [u16], parity: u16) -> usize {
    held.sort_unstable_by(|a, b| b.cmp(a));
    let mut left = parity;
    { held.iter() }
        .take_while(|&&columns| match left.checked_sub(columns) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(scheme: &str, domains: &[u16]) -> Placed {
        place(&scheme.parse().unwrap(), domains, 64).unwrap()
    }

    #[test]
    fn copies_go_into_different_domains() {
        for scheme in ["raid10", "raid10:far", "raid10:offset", "chained"] {
            let found = placed(scheme, &[0, 0, 1, 1]);
            assert_eq!(found.survived, 1, "{scheme}");
            assert_eq!(found.order, [0, 2, 1, 3], "{scheme}");
        }
        // An order that already survives a domain stays.
        let found = placed("raid10", &[0, 1, 0, 1]);
        assert_eq!((found.survived, found.is_dealt()), (1, false));
        let found = placed("raid10:3r", &[0, 0, 1, 1, 2, 2]);
        assert_eq!((found.survived, found.order), (2, vec![0, 2, 4, 1, 3, 5]));
    }

    #[test]
    fn islands_have_a_drive_of_each_enclosure() {
        let six = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5];
        let found = placed("raid6:4d", &six);
        assert_eq!((found.survived, found.is_dealt()), (2, true));
        // Three drives of a wide group in each of two enclosures: the loss of either enclosure is
        // fatal.
        let found = placed("raid6", &[0, 0, 0, 1, 1, 1]);
        assert_eq!((found.survived, found.is_dealt()), (0, false));
        let found = placed("raid6", &[0, 0, 1, 1, 2, 2]);
        assert_eq!(found.survived, 1);
    }

    #[test]
    fn declustered_layouts_are_told_of_the_domains() {
        // Three drives in each domain: without the field `f` some stripe has all three drives of
        // one.
        let domains: Vec<u16> = (0..12).map(|drive| drive / 3).collect();
        let found = placed("pddl2:4d", &domains);
        assert_eq!(found.scheme.domains, Some(4));
        assert!(found.survived >= 1, "{found:?}");
        let found = placed("ddp:4d", &domains);
        assert!(found.survived >= 1, "{found:?}");
    }

    #[test]
    fn domains_that_hold_too_much_are_counted_as_they_are() {
        assert_eq!(placed("raid0", &[0, 1]).survived, 0);
        assert_eq!(placed("raid5", &[0, 1, 2]).survived, 1);
        assert_eq!(placed("raid1:3r", &[0, 1, 2]).survived, 2);
        assert_eq!(placed("raid10", &[0, 0, 0, 1]).survived, 0);
    }
}
