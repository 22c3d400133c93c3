//! Which layouts have the observed map.
//!
//! Candidates are the classic layouts of [`layout::equivalence`] on all numbers of drives whose pattern by reads has as
//! many chunks. A candidate fits if two chunks are on the same drives in it exactly if they were observed to be, and
//! share some drives exactly if they were observed to share some. Names of drives do not matter: either all members of
//! a class of `equivalence` fit, or none.
//!
//! If none fits, one drive may be missing (its chunks are the wild ones), or two seats may be on one spindle (two
//! classes of the layout are one in the map). If that does not fit either, the pattern may be declustered: chunks
//! alternate within cells over `width` drives, and cells move over all drives; or each stripe has its own choice of
//! drives, and all drives have equally many chunks.

use std::collections::{BTreeMap, BTreeSet};

use layout::Geometry;
use layout::equivalence::{Probe, Signature, classic_schemes, holders, signature};

use super::chunk::{Chunks, Relation};
use super::drives::Map;
use crate::belief::{Family, Redundancy};
use crate::desk::Desk;

/// Drives of candidates, at most.
const DRIVES_MAX: u16 = 40;

/// A layout, and its map as reads see it.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// Scheme string without the number of drives.
    name: String,
    /// The number of its drives.
    pub(super) drives: u16,
    /// Drives of each chunk of the pattern.
    sets: Vec<Vec<u16>>,
    /// Data chunks of a stripe: what a full-stripe write fills.
    pub(super) data: u16,
    /// Parity chunks of a stripe; 0 for mirrors.
    pub(super) parity: u16,
    /// Copies of a chunk.
    pub(super) copies: u16,
    /// What writes show of the layout. Candidates with equal signatures are kept or dropped together: they may differ
    /// in the number of drives that hold only parity, and so in the cheaper policy of small writes, which is the
    /// array's own choice.
    visible: Signature,
    /// The seat whose drive is missing.
    missing: Option<u16>,
}

impl Candidate {
    /// Drives that are read from.
    pub(super) fn seats(&self) -> BTreeSet<u16> {
        self.sets.iter().flatten().copied().collect()
    }

    pub(super) const fn redundancy(&self) -> Redundancy {
        match (self.copies, self.parity) {
            (2.., _) => Redundancy::Mirror,
            (_, 0) => Redundancy::None,
            (_, 1) => Redundancy::Parity,
            (_, 2) => Redundancy::DoubleParity,
            _ => Redundancy::Unknown,
        }
    }
}

/// All classic layouts whose pattern by reads has `chunks` chunks.
pub(super) fn candidates(chunks: usize, copies: Option<u16>) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for drives in 2..=DRIVES_MAX {
        for scheme in classic_schemes(drives) {
            let Ok(geometry) = Geometry::new(&scheme, None, 2) else {
                continue;
            };
            let seen = holders(&geometry, Probe::Reads);
            if seen.len() != chunks {
                continue;
            }
            let sets: Vec<Vec<u16>> = seen
                .into_iter()
                .map(|drives| {
                    let seats: BTreeSet<u16> = drives.into_iter().map(|(seat, _)| seat).collect();
                    seats.into_iter().collect()
                })
                .collect();
            let mirrored = geometry.code.name == "mirror";
            let own = match mirrored {
                true => geometry.code.columns,
                false => 1,
            };
            if copies.is_some_and(|copies| copies != own) {
                continue;
            }
            let text = scheme.to_string();
            let name = text.trim_end_matches(&format!(":{drives}c")).to_owned();
            let parity = if mirrored { 0 } else { geometry.parity };
            let data = match parity {
                0 => drives / own,
                _ => geometry.data,
            };
            candidates.push(Candidate {
                name,
                drives,
                sets,
                data,
                parity,
                copies: own,
                visible: signature(&geometry, Probe::Writes).visible(),
                missing: None,
            });
        }
    }
    candidates
}

/// Drives up to which a layout has two chunks in a row on each drive: a test checks all of them.
const HALVES_DRIVES_MAX: usize = 4;

/// The layouts that have a map.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) candidates: Vec<Candidate>,
    /// Chunks by which the volume begins inside the pattern.
    rotation: usize,
    /// Chunks from the volume's first border to that of a stripe, if writes have shown it.
    begin: Option<u16>,
    misconfigured: Vec<(u16, u16)>,
    declustered: Option<Declustered>,
    classes: usize,
}

/// A fixed pattern over more drives than a stripe has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Declustered {
    /// Data chunks of a stripe: the numbers that the map allows.
    widths: Vec<u16>,
    /// Chunks of a cell, the run of chunks of one drive, if stripes that follow each other have the same drives.
    cell_chunks: Option<usize>,
}

/// A departure from a healthy array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Healthy,
    Missing(u16),
    Shared(u16, u16),
}

/// Whether the candidate, with the fault, begun `rotation` chunks later, has this map as far as the map goes.
fn fits(candidate: &Candidate, map: &Map, rotation: usize, fault: Fault) -> bool {
    let count = candidate.sets.len();
    let set = |chunk: usize| -> Vec<u16> {
        let mut set = candidate.sets[(chunk + rotation) % count].clone();
        if let Fault::Shared(kept, gone) = fault {
            for seat in &mut set {
                if *seat == gone {
                    *seat = kept;
                }
            }
            set.sort_unstable();
            set.dedup();
        }
        set
    };
    let mut of_class: BTreeMap<usize, Vec<u16>> = BTreeMap::new();
    for (chunk, class) in map.class.iter().enumerate() {
        let set = set(chunk);
        let missing = matches!(fault, Fault::Missing(seat) if set.contains(&seat));
        match class {
            None if !missing => return false,
            None => {}
            Some(_) if missing => return false,
            Some(class) => match of_class.get(class) {
                Some(known) if *known != set => return false,
                Some(_) => {}
                None => {
                    if of_class.values().any(|known| *known == set) {
                        return false;
                    }
                    of_class.insert(*class, set);
                }
            },
        }
    }
    map.between.iter().all(|(&(a, b), &relation)| {
        let (Some(a), Some(b)) = (of_class.get(&a), of_class.get(&b)) else {
            return true;
        };
        let share = a.iter().any(|seat| b.contains(seat));
        share == (relation == Relation::Overlap)
    })
}

/// The class that the remaining layouts predict for the next chunk.
pub(super) fn predict(map: &Map, chunk: usize) -> Option<usize> {
    let survivor = map
        .candidates
        .iter()
        .find(|candidate| fits(candidate, map, 0, Fault::Healthy))?;
    let set = &survivor.sets[chunk];
    let before = (0..chunk).find(|&earlier| survivor.sets[earlier] == *set)?;
    map.class[before]
}

/// The class of layouts with this map.
pub(super) fn of(map: &Map) -> Result<Found, String> {
    let count = map.class.len();
    let all = &map.candidates;
    let found = |candidates: Vec<Candidate>| Found {
        candidates,
        classes: map.classes(),
        ..Found::default()
    };
    if map.wild.is_empty() {
        if let Some(found) = healthy(map) {
            return Ok(found);
        }
        if let Some(found) = shared(all, map).filter(|_| map.single) {
            return Ok(found);
        }
        if let Some(declustered) = declustered(map) {
            return Ok(Found {
                declustered: Some(declustered),
                ..found(Vec::new())
            });
        }
    } else {
        // Names of seats differ between members: each candidate has its own seat that may be missing. A chunk that is
        // complete on one other drive is not spread over the others.
        let on = |one: &Candidate, seat: u16| {
            one.parity > 0 && one.data > 1 && fits(one, map, 0, Fault::Missing(seat))
        };
        let missing = all.iter().flat_map(|one| {
            let seats = (0..one.drives).filter(|&seat| on(one, seat));
            seats.map(|seat| Candidate {
                missing: Some(seat),
                ..one.clone()
            })
        });
        let fit: Vec<Candidate> = missing.collect();
        if !fit.is_empty() {
            return Ok(found(fit));
        }
    }
    Err(format!(
        "a pattern of {count} chunks on {} groups of drives is none of the known layouts",
        map.classes()
    ))
}

/// The classic layouts with this map, none of whose drives is missing or shared.
fn healthy(map: &Map) -> Option<Found> {
    (0..map.class.len()).find_map(|rotation| {
        let all = map.candidates.iter();
        let fit = all.filter(|one| fits(one, map, rotation, Fault::Healthy));
        let candidates: Vec<Candidate> = fit.cloned().collect();
        (!candidates.is_empty()).then(|| Found {
            candidates,
            rotation,
            classes: map.classes(),
            ..Found::default()
        })
    })
}

/// The layouts of chunks of half the size with this map, and these chunks.
///
/// Right-symmetric parity on few drives puts two chunks in a row on each, and so does zig-zag on two. By reads this is
/// striping with chunks of twice the size that begins at the second half of a chunk.
///
/// ```text
///   raid5:rs:3c    P 0 1    2 P 3    4 5 P      chunks on drives  1 2 2 0 0 1
/// ```
pub(super) fn halves(map: &Map, chunks: &Chunks, copies: Option<u16>) -> Option<(Found, Chunks)> {
    let bytes = chunks.bytes / 2;
    if map.classes() > HALVES_DRIVES_MAX
        || !map.wild.is_empty()
        || !bytes.is_multiple_of(super::bench::BLOCK)
    {
        return None;
    }
    let mut class: Vec<Option<usize>> = map.class.iter().flat_map(|&one| [one, one]).collect();
    if chunks.phase >= bytes {
        class.rotate_right(1);
    }
    let first = |one| class.iter().position(|&class| class == Some(one));
    let halves = Map {
        representative: (0..map.classes()).filter_map(first).collect(),
        candidates: candidates(class.len(), copies),
        between: map.between.clone(),
        single: map.single,
        wild: Vec::new(),
        class,
    };
    let chunks = Chunks {
        bytes,
        phase: chunks.phase % bytes,
    };
    healthy(&halves).map(|found| (found, chunks))
}

/// Two seats on one spindle. Names may differ between members of a class, so all members must have the same pair.
fn shared(all: &[Candidate], map: &Map) -> Option<Found> {
    let mut found: Option<Found> = None;
    // Copies share drives in any case: seats of one spindle are not searched for among them.
    for candidate in all.iter().filter(|one| one.copies == 1) {
        for kept in 0..candidate.drives {
            for gone in kept + 1..candidate.drives {
                if !fits(candidate, map, 0, Fault::Shared(kept, gone)) {
                    continue;
                }
                let known = found.get_or_insert_with(|| Found {
                    misconfigured: vec![(kept, gone)],
                    classes: map.classes(),
                    ..Found::default()
                });
                if known.misconfigured == [(kept, gone)] {
                    known.candidates.push(candidate.clone());
                }
            }
        }
    }
    found
}

/// A pattern of stripes, each with its own choice of drives.
///
/// If neighbouring stripes have the same drives, chunks alternate in groups: class(i) = class(i + width) inside a
/// group. If volumes go round over groups, no two neighbours have the same drives: then all drives have equally many
/// chunks, and the chunks of a stripe are on different drives. The latter is also true of several stripes of a row
/// together.
fn declustered(map: &Map) -> Option<Declustered> {
    let class: Vec<usize> = map.class.iter().copied().collect::<Option<_>>()?;
    let distinct = |stripe: &[usize]| {
        let set: BTreeSet<usize> = stripe.iter().copied().collect();
        set.len() == stripe.len()
    };
    let narrow = |width: usize| u16::try_from(width).unwrap_or(u16::MAX);
    let widths = 2..map.classes();
    for width in widths.clone() {
        let breaks: Vec<usize> = (width..class.len())
            .filter(|&at| class[at] != class[at - width])
            .collect();
        // Only a group's first `width` chunks may differ from the chunks `width` before them.
        let group = breaks
            .iter()
            .fold(class.len(), |group, &at| gcd(group, at / width * width));
        if group >= 2 * width
            && group < class.len()
            && class.chunks(group).all(|group| {
                distinct(&group[..width])
                    && (width..group.len()).all(|at| group[at] == group[at - width])
            })
        {
            return Some(Declustered {
                widths: vec![narrow(width)],
                cell_chunks: Some(group / width),
            });
        }
    }
    if !map.single {
        return None;
    }
    let each = class.len() / map.classes().max(1);
    let chunks_of = |one: usize| class.iter().filter(|&&class| class == one).count();
    let even = each > 1 && (0..map.classes()).all(|class| chunks_of(class) == each);
    let fits =
        |width: &usize| class.len().is_multiple_of(*width) && class.chunks(*width).all(distinct);
    let widths: Vec<u16> = widths.filter(fits).map(narrow).collect();
    (even && !widths.is_empty()).then_some(Declustered {
        widths,
        cell_chunks: None,
    })
}

const fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Found {
    /// How the candidates protect data, each once.
    pub(super) fn redundancies(&self) -> Vec<Redundancy> {
        let mut all: Vec<Redundancy> = Vec::new();
        for candidate in &self.candidates {
            if !all.contains(&candidate.redundancy()) {
                all.push(candidate.redundancy());
            }
        }
        all
    }

    /// The seat of a class that has one drive, in the numbering of the first candidate; if declustered, the class's
    /// number.
    pub(super) fn seat(&self, map: &Map, class: usize) -> Option<u16> {
        let Some(candidate) = self.candidates.first() else {
            return u16::try_from(class).ok();
        };
        let chunk = map.representative[class] + self.rotation;
        candidate.sets[chunk % candidate.sets.len()]
            .first()
            .copied()
    }

    /// The drives that reads see, if their number is the same for all candidates.
    fn drives(&self) -> Option<u16> {
        if self.declustered.is_some() {
            return u16::try_from(self.classes).ok();
        }
        let mut counts: Vec<usize> = self
            .candidates
            .iter()
            .map(|one| one.seats().len())
            .collect();
        counts.dedup();
        match counts[..] {
            [count] => u16::try_from(count).ok(),
            _ => None,
        }
    }

    /// The widths, in data chunks, ascending, of a declustered array whose stripes may have several widths; else none.
    pub(super) fn open_widths(&self) -> &[u16] {
        match &self.declustered {
            Some(declustered) if declustered.widths.len() > 1 => &declustered.widths,
            _ => &[],
        }
    }

    /// Sets the width of a declustered array's stripes.
    pub(super) fn choose_width(&mut self, width: u16) {
        if let Some(declustered) = &mut self.declustered {
            declustered.widths = vec![width];
        }
    }

    /// Chunks from the volume's first border to that of a stripe of `data` data chunks: the volume may begin inside a
    /// stripe.
    pub(super) fn begin(&self, data: u16) -> u16 {
        self.begin.unwrap_or_else(|| {
            let data = data.max(1);
            let rotation = self.rotation % usize::from(data);
            (data - u16::try_from(rotation).unwrap_or(0)) % data
        })
    }

    /// Records that stripes begin `begin` chunks behind the volume's first border.
    pub(super) const fn begins(&mut self, begin: u16) {
        self.begin = Some(begin);
    }

    /// Keeps candidates, and those that cannot be distinguished from a kept one.
    pub(super) fn retain(&mut self, keep: impl Fn(&Candidate) -> bool) {
        let kept: BTreeSet<Signature> = self
            .candidates
            .iter()
            .filter(|one| keep(one))
            .map(|one| one.visible.clone())
            .collect();
        self.candidates.retain(|one| kept.contains(&one.visible));
    }

    /// Writes the result to the belief.
    pub(super) fn tell(&self, desk: &Desk, chunks: &Chunks) {
        let drives = self.drives();
        // If all remaining layouts have one number of drives, that number is the answer. It includes parity drives that
        // are never read.
        let full: BTreeSet<u16> = self.candidates.iter().map(|one| one.drives).collect();
        let drives = match (full.len(), &self.declustered) {
            (1, None) => full.first().copied(),
            _ => drives,
        };
        let name = |candidate: &Candidate| match Some(candidate.drives) == drives {
            true => candidate.name.clone(),
            false => format!("{}:{}c", candidate.name, candidate.drives),
        };
        let redundancies = self.redundancies();
        let data: BTreeSet<u16> = self.candidates.iter().map(|one| one.data).collect();
        desk.believe(|belief| {
            belief.family = match &self.declustered {
                Some(_) => Family::Declustered,
                None => Family::Classic,
            };
            belief.drives = drives;
            belief.layout = self.candidates.iter().map(name).collect();
            belief.redundancy = match redundancies[..] {
                [one] => one,
                _ => Redundancy::Unknown,
            };
            let missing = self.candidates.first().and_then(|one| one.missing);
            belief.degraded = missing.into_iter().collect();
            belief.misconfigured.clone_from(&self.misconfigured);
            let inside = match data.len() {
                1 => data.first().map_or(0, |&data| self.begin(data)),
                _ => 0,
            };
            belief.offset_bytes = chunks.later(inside).phase;
            belief.stripe_bytes = match data.len() {
                1 => data.first().map(|&data| u64::from(data) * chunks.bytes),
                _ => None,
            };
            if let Some(declustered) = &self.declustered {
                belief.data_width = match declustered.widths[..] {
                    [width] => Some(width),
                    _ => None,
                };
                let bytes = |chunks_of_it: usize| chunks_of_it as u64 * chunks.bytes;
                belief.cell_bytes = declustered.cell_chunks.map(bytes);
                belief.stripe_bytes = belief.data_width.map(|width| bytes(width.into()));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(class: &[usize]) -> Map {
        let classes = class.iter().max().map_or(0, |most| most + 1);
        let first = |one| class.iter().position(|&class| class == one).unwrap();
        Map {
            class: class.iter().copied().map(Some).collect(),
            representative: (0..classes).map(first).collect(),
            single: true,
            ..Map::default()
        }
    }

    #[test]
    fn two_chunks_in_a_row_on_each_drive_are_zigzag_on_two_and_right_symmetric_parity_on_three_and_four()
     {
        let mut found = BTreeSet::new();
        for drives in 2..=DRIVES_MAX {
            for scheme in classic_schemes(drives) {
                let Ok(geometry) = Geometry::new(&scheme, None, 2) else {
                    continue;
                };
                let sets = holders(&geometry, Probe::Reads);
                let pairs = |begin: usize| {
                    let at = |index: usize| &sets[(begin + index) % sets.len()];
                    (0..sets.len()).step_by(2).all(|one| at(one) == at(one + 1))
                };
                if sets.len() > 2 && sets.len().is_multiple_of(2) && (pairs(0) || pairs(1)) {
                    found.insert(scheme.to_string());
                }
            }
        }
        let found: Vec<String> = found.into_iter().collect();
        assert_eq!(
            found,
            ["raid5:rs:3c", "raid6:rs6:4c", "raid6:rs:4c", "zigzag:2c"]
        );
    }

    #[test]
    fn stripes_on_drives_of_their_own_choice_are_declustered() {
        // `pddl1:2d:7c:1s` where volumes go round over groups: two stripes of a row, and rows that move by one drive.
        let class: Vec<usize> = (0..7)
            .flat_map(|row| [0, 1, 2, 3].map(|at| (at + row) % 7))
            .collect();
        let found = declustered(&map(&class)).unwrap();
        assert_eq!(found.widths, [2, 4]);
        assert_eq!(found.cell_chunks, None);
        // A drive has more chunks than the others: the map is not that of such an array.
        let mut uneven = class;
        uneven[27] = 0;
        assert_eq!(declustered(&map(&uneven)), None);
    }

    #[test]
    fn chunks_that_alternate_inside_cells_are_declustered() {
        let class: Vec<usize> = (0..7)
            .flat_map(|row| [0, 1, 0, 1].map(|at| (at + row) % 7))
            .collect();
        let found = declustered(&map(&class)).unwrap();
        assert_eq!((&found.widths[..], found.cell_chunks), (&[2][..], Some(2)));
    }
}
