//! The domain of each position of a row.

use crate::developed::Shape;

/// Why no arrangement of domains was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DomainsError {
    /// The drives do not fill the domains evenly.
    #[error("{drives} drives do not make {domains} equal domains")]
    Uneven {
        /// n.
        drives: u16,
        /// f.
        domains: u16,
    },
    /// Every attempt left a group with too many columns in one domain.
    #[error(
        "no arrangement puts at most {parity} of {width} columns into each of {domains} domains"
    )]
    NotFound {
        /// f.
        domains: u16,
        /// d + p.
        width: u16,
        /// p.
        parity: u16,
    },
}

/// A domain for each position: n/f positions per domain, and no group with more than p in one
/// domain.
///
/// Spares take the domains in turn. Each column takes the domain with most places left, among the
/// domains with fewer than p of the last d + p − 1 positions. Groups continue from the end of the
/// row at its beginning, so the complete row is checked and repaired by swaps; if that fails, the
/// spares start at the next domain.
pub(super) fn arrange(shape: Shape, domains: u16) -> Result<Vec<u16>, DomainsError> {
    let Shape {
        drives,
        width,
        parity,
        spares,
    } = shape;
    if !drives.is_multiple_of(domains) {
        return Err(DomainsError::Uneven { drives, domains });
    }
    let used = usize::from(drives - spares);
    let f = usize::from(domains);
    for first_spare in 0..domains {
        let mut left = vec![drives / domains; f];
        let spare_domains: Vec<u16> = (0..spares).map(|z| (first_spare + z) % domains).collect();
        for &domain in &spare_domains {
            left[usize::from(domain)] -= 1;
        }
        if let Some(mut columns) = columns(used, width, parity, left) {
            columns.extend(spare_domains.iter().rev());
            return Ok(columns);
        }
    }
    Err(DomainsError::NotFound {
        domains,
        width,
        parity,
    })
}

/// Domains of the column positions: chosen greedily, then repaired by swaps.
fn columns(used: usize, width: u16, parity: u16, mut left: Vec<u16>) -> Option<Vec<u16>> {
    let f = left.len();
    let width = usize::from(width);
    let mut row: Vec<u16> = Vec::with_capacity(used);
    for q in 0..used {
        let recent = &row[q.saturating_sub(width - 1)..];
        let held = |domain: usize| recent.iter().filter(|&&d| usize::from(d) == domain).count();
        let last = |domain: usize| row.iter().rposition(|&d| usize::from(d) == domain);
        let best = (0..f)
            .filter(|&domain| left[domain] > 0)
            .min_by_key(|&domain| {
                let over = held(domain) >= parity.into();
                (
                    over,
                    u16::MAX - left[domain],
                    last(domain).map_or(0, |at| at + 1),
                )
            })?;
        left[best] -= 1;
        row.push(u16::try_from(best).ok()?);
    }
    // All start positions of groups. Groups continue from the end of the row at its beginning.
    let groups: Vec<usize> = {
        let mut starts: Vec<usize> = (0..used).map(|g| g * width % used).collect();
        starts.sort_unstable();
        starts.dedup();
        starts
    };
    let excess = |row: &[u16]| -> usize {
        groups
            .iter()
            .map(|&start| {
                let mut held = vec![0_u16; f];
                for q in start..start + width {
                    held[usize::from(row[q % used])] += 1;
                }
                held.iter()
                    .map(|&held| usize::from(held.saturating_sub(parity)))
                    .sum::<usize>()
            })
            .sum()
    };
    let mut worst = excess(&row);
    while worst > 0 {
        let mut improved = false;
        'pairs: for i in 0..used {
            for j in i + 1..used {
                if row[i] == row[j] {
                    continue;
                }
                row.swap(i, j);
                let now = excess(&row);
                if now < worst {
                    worst = now;
                    improved = true;
                    break 'pairs;
                }
                row.swap(i, j);
            }
        }
        if !improved {
            return None;
        }
    }
    Some(row)
}
