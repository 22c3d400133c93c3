//! Base permutations by search, where no exact ones exist.
//!
//! What a rebuild costs each survivor depends only on differences within the bases (see
//! [`crate::pddl`]): reads\[δ\] counts pairs of positions that share a group and differ by δ,
//! writes\[z\]\[δ\] counts how far spare z is from the columns. Several bases are developed one
//! after the other and their counts add up, so one base can compensate for an excess of another.
//! The search scores all bases jointly, swaps two entries of one of them, and minimises
//!
//! ```text
//!   4·Σ (reads + writes[0])[δ]²  +  Σ reads[δ]²  +  Σ writes[z][δ]²        over δ ≠ 0 and z
//! ```
//!
//! Sums are fixed, so the least sum of squares is the most even distribution. Swaps that increase
//! the sum a little are accepted up to a threshold that falls to zero (Dueck and Scheuer,
//! "Threshold accepting", 1990): simulated annealing without an exponential, so that everything is
//! integers and the result is the same on every machine. The result is stored with the pool all the
//! same: a later version may search better.
//!
//! *Blocks and units.* Sixteen bases make a single failure even. With two failures a survivor's load depends on how
//! often the *three* drives meet, which counts of pairs do not control; it takes hundreds of bases to average that out.
//! So as many blocks of sixteen are searched as 4 KiB hold. Each block is even on its own, so a pool that is not full
//! is even too. The other bases need no search: multiplying a base by a unit u of Z_n turns its count of δ into that of
//! u·δ. What was even stays even, and the triples change. (Units alone are not enough: every unit maps n/2 to n/2.)
//!
//! *Domains.* Over a grid (f domains of n/f drives) development keeps domains together, so a base
//! in which no group has more than p columns in one domain keeps this property in every row. The
//! initial bases have it, and the search refuses swaps that would violate it.

mod domains;
mod state;
mod stored;
mod units;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::developed::{Developed, Development, Shape};
use crate::rng::Rng;

pub use domains::DomainsError;
use state::State;
pub use stored::StoredError;

/// Bases that are searched jointly.
const BLOCK: usize = 16;

/// Approximate number of bases in a pattern, multiples included.
const MULTIPLES: usize = 256;

/// Most entries of all bases that are searched and stored together. Beyond 256 drives there are
/// fewer bases than a block, since each base has more differences to average over.
const ENTRIES_MAX: usize = 4096;

/// Default limit of a search, in count updates: under half a second on one core of 2020 at 3 GHz.
/// More updates improve nothing that a rebuild would notice.
pub const UPDATES: u64 = 120_000_000;

/// Searched bases for `shape`, deterministic, and searched once in a process. Drives are developed modulo n; with `domains`, a
/// divisor f of n, over a grid of f domains (drive x in domain x mod f) with at most
/// `shape.parity` columns of a group in one domain.
///
/// # Errors
/// When domains cannot be arranged; never without domains.
///
/// # Panics
/// When a group is wider than the drives that are not spares.
pub fn search(shape: Shape, domains: Option<u16>) -> Result<Developed, DomainsError> {
    if let Some(layout) = found().get(&(shape, domains)) {
        return Ok(layout.clone());
    }
    // Other shapes are not kept waiting: the lock is not held during a search.
    let layout = search_within(shape, domains, UPDATES)?;
    found().insert((shape, domains), layout.clone());
    Ok(layout)
}

/// What has been found. A search takes up to half a second, and a process makes few shapes, but many pools of each.
static FOUND: Mutex<Found> = Mutex::new(Found::new());

type Found = BTreeMap<(Shape, Option<u16>), Developed>;

fn found() -> MutexGuard<'static, Found> {
    FOUND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`search`] with another limit, for tests and for longer searches; it always searches.
///
/// # Errors
/// As [`search`].
///
/// # Panics
/// As [`search`].
pub fn search_within(
    shape: Shape,
    domains: Option<u16>,
    updates: u64,
) -> Result<Developed, DomainsError> {
    let mut rng = Rng::new(seed(shape, domains.unwrap_or(1)));
    let development = development(domains);
    let (blocks, in_block) = blocks(shape);
    let mut bases = Vec::new();
    for _ in 0..blocks {
        let start = match domains {
            None => random_start(shape, in_block, &mut rng),
            Some(domains) => domain_start(shape, domains, in_block, &mut rng)?,
        };
        let updates = updates / blocks as u64;
        bases.extend(anneal(shape, development, start, updates, &mut rng));
    }
    Ok(multiplied(shape, development, &bases))
}

/// Restores a layout from its stored bases.
///
/// # Errors
/// When `stored` does not fit the shape.
pub fn restore(
    shape: Shape,
    domains: Option<u16>,
    stored: &[u8],
) -> Result<Developed, StoredError> {
    let bases = stored::decode(shape, stored)?;
    Ok(multiplied(shape, development(domains), &bases))
}

const fn development(domains: Option<u16>) -> Development {
    match domains {
        Some(domains) => Development::Grid { domains },
        None => Development::Modulo,
    }
}

/// The bases multiplied by each unit, unit by unit, 1 first.
fn multiplied(shape: Shape, development: Development, bases: &[u16]) -> Developed {
    let count = bases.len() / usize::from(shape.drives);
    let units = units::units(shape.drives, development, MULTIPLES.div_ceil(count));
    let multiples = |unit: &units::Unit| {
        let unit = *unit;
        bases.iter().map(move |&drive| unit.times(drive))
    };
    let all: Vec<u16> = units.iter().flat_map(multiples).collect();
    Developed::new(shape, development, &all).with_stored(&stored::encode(shape, bases))
}

fn random_start(shape: Shape, count: usize, rng: &mut Rng) -> Vec<u16> {
    let mut bases = Vec::new();
    for _ in 0..count {
        let mut base: Vec<u16> = (0..shape.drives).collect();
        rng.shuffle(&mut base);
        bases.extend(base);
    }
    bases
}

fn domain_start(
    shape: Shape,
    domains: u16,
    count: usize,
    rng: &mut Rng,
) -> Result<Vec<u16>, DomainsError> {
    let pattern = domains::arrange(shape, domains)?;
    let mut bases = Vec::new();
    for _ in 0..count {
        // Places within a domain are assigned at random.
        let all = |domain| (0..shape.drives / domains).map(move |place| domain + domains * place);
        let mut places: Vec<Vec<u16>> = (0..domains).map(|domain| all(domain).collect()).collect();
        for places in &mut places {
            rng.shuffle(places);
        }
        bases.extend(
            pattern
                .iter()
                .filter_map(|&domain| places[usize::from(domain)].pop()),
        );
    }
    Ok(bases)
}

/// How many blocks to search, of how many bases each.
fn blocks(shape: Shape) -> (usize, usize) {
    let most = (ENTRIES_MAX / usize::from(shape.drives)).clamp(1, MULTIPLES);
    let in_block = most.min(BLOCK);
    (most / in_block, in_block)
}

fn seed(shape: Shape, domains: u16) -> u64 {
    [
        shape.drives,
        shape.width,
        shape.parity,
        shape.spares,
        domains,
    ]
    .into_iter()
    .fold(0x5041_5254_4e45_5253, |seed, number| {
        block::mix(seed ^ u64::from(number))
    })
}

fn anneal(
    shape: Shape,
    development: Development,
    start: Vec<u16>,
    updates: u64,
    rng: &mut Rng,
) -> Vec<u16> {
    let n = u32::from(shape.drives);
    let base_count = u32::try_from(start.len()).expect("few entries") / n;
    let mut state = State::new(shape, development, start);
    let propose = |rng: &mut Rng| {
        let base = rng.below(base_count);
        let i = rng.below(n);
        let j = rng.below(n - 1);
        (base, i, if j >= i { j + 1 } else { j })
    };
    // The first threshold is a third of the average change of a swap, estimated from samples.
    let samples = 400_i64;
    let mut sum = 0_i64;
    for _ in 0..samples {
        let (base, i, j) = propose(rng);
        if let Some(change) = state.swap(base, i, j) {
            sum += change.abs();
            state.undo(base, i, j);
        }
    }
    let first = sum / samples / 3;
    while state.updates() < updates && !state.is_perfect() {
        // Falls with the square of what is left, so most of the time goes into small improvements.
        // The product stays below 2^63: changes below 2^43 even for 65,535 drives, left² below
        // 2^20.
        let done = i64::try_from(state.updates() / (updates / 1000).max(1)).unwrap_or(1000);
        let left = (1000 - done).max(0);
        let threshold = first * (left * left) / 1_000_000;
        for _ in 0..64 {
            let (base, i, j) = propose(rng);
            if let Some(change) = state.swap(base, i, j)
                && change > threshold
            {
                state.undo(base, i, j);
            }
        }
    }
    state.into_bases()
}
