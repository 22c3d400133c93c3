//! Which layouts cannot be distinguished by timing.
//!
//! A black-box observer sees which chunks wait for each other: those on one drive. It does not see
//! the names of drives, nor which of two parities is P. So two layouts look the same to the
//! observer if some renaming of drives preserves, for every chunk of the volume,
//!
//! - by *reads*: the set of drives that hold the chunk,
//! - with *writes*: that set, and the set of drives that hold the parity of its stripe.
//!
//! A layout is determined, up to renaming, by what each drive holds: the set of (chunk, role) over
//! one period. Two layouts are equivalent exactly if their drives' sets are the same, in any order.
//! No search over renamings is needed.
//!
//! ```text
//!   raid5:p0   P D0 D1 D2        drive: { } { 0 } { 1 } { 2 }   the same as of pn, shifted
//!   raid5:pn   D0 D1 D2 P
//! ```
//!
//! Shear (USENIX ATC 2004) can answer only with such a class. The data of `raid5:ls` runs like that
//! of RAID-0; only writes distinguish the two.

use crate::{Geometry, Scheme};

/// What the observer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// Reads only.
    Reads,
    /// Reads and writes.
    Writes,
}

impl Signature {
    /// The same without the drives that timing does not show:
    ///
    /// - A drive of which `probe` shows nothing: a dedicated parity drive, by reads.
    /// - A second drive with parity of the same chunks and nothing else: RAID-6 with two dedicated parity drives has
    ///   it, RAID-4 has not. Each operation on one of the two starts at the same moment and takes as long as the
    ///   operation on the other, so no request ever waits for one of them alone. The only difference is a controller's
    ///   choice between read-modify-write and reconstruct-write, where it counts the chunks to be read. That is a
    ///   policy, unknown to the observer, and no property of the layout.
    ///
    /// Drives that hold the same *data* are copies. Reads are spread over copies, so these drives count.
    #[must_use]
    pub fn visible(mut self) -> Self {
        self.drives.retain(|chunks| !chunks.is_empty());
        // Sorted, so that equal drives are neighbours.
        self.drives
            .dedup_by(|next, last| *next == *last && next.iter().all(|&(_, is_parity)| is_parity));
        self
    }

    /// As [`Self::visible`], where small writes are reconstruct-writes: in stripes so narrow that reconstruct-write
    /// reads no more than read-modify-write. Each write then accesses every drive of its stripe once. A parity-only
    /// drive is never busier than the others, so it does not show. Where parity rotates over other drives, these drives
    /// show the same stripes without it.
    #[must_use]
    pub fn visible_by_reconstruction(self) -> Self {
        let mut visible = self.visible();
        let rotates = |chunks: &Vec<(u64, bool)>| {
            chunks.iter().any(|&(_, is_parity)| is_parity)
                && chunks.iter().any(|&(_, is_parity)| !is_parity)
        };
        if visible.drives.iter().any(rotates) {
            let parity_only =
                |chunks: &Vec<(u64, bool)>| chunks.iter().all(|&(_, is_parity)| is_parity);
            visible.drives.retain(|chunks| !parity_only(chunks));
        }
        visible
    }
}

/// What timings show of a layout. Layouts with equal signatures cannot be distinguished.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signature {
    /// Chunks after which the observation repeats.
    pub period: u64,
    /// For each drive the (chunk, is parity) it holds, drives in sorted order.
    drives: Vec<Vec<(u64, bool)>>,
}

/// Every classic scheme on `drives` drives: the candidates for Shear's answers.
#[must_use]
pub fn classic_schemes(drives: u16) -> Vec<Scheme> {
    use crate::scheme::{Family, Raid5Form, Raid6Form, Raid10Form};
    let mut schemes = vec![
        Scheme::of(Family::Raid0, 0),
        Scheme::of(Family::Zigzag, 0),
        Scheme::of(Family::Raid1, 0),
        Scheme::of(Family::Chained, 0),
    ];
    let mirrors = Raid10Form::ALL.map(|form| Scheme::of(Family::Raid10(form), 0));
    schemes.extend(mirrors);
    schemes.extend(Raid5Form::ALL.map(|form| Scheme::of(Family::Raid5(form), 1)));
    schemes.extend(Raid6Form::ALL.map(|form| Scheme::of(Family::Raid6(form), 2)));
    schemes.push(Scheme::of(Family::Raid7, 3));
    schemes
        .into_iter()
        .map(|scheme| scheme.on(drives))
        .collect()
}

/// Drives that a probe of each chunk of one rotation shows: (seat, is parity), sorted.
fn seen(geometry: &Geometry, probe: Probe) -> Vec<Vec<(u16, bool)>> {
    let layout = geometry.layout.as_ref();
    // Far copies lie in other cells: one cell of the height of the rotation.
    let slots = layout.rotation_slots();
    let stripes = layout.stripes_per_group(slots);
    let mirror = geometry.code.name == "mirror";
    let mut chunks = Vec::new();
    for stripe in 0..stripes {
        let seat = |unit| {
            layout
                .cell(0, layout.place(stripe, stripe, unit).column)
                .seat
                .0
        };
        for chunk in 0..geometry.data {
            let mut drives: Vec<(u16, bool)> = if mirror {
                (0..geometry.code.columns)
                    .map(|unit| (seat(unit), false))
                    .collect()
            } else {
                vec![(seat(chunk), false)]
            };
            if probe == Probe::Writes && !mirror {
                drives
                    .extend((geometry.data..geometry.code.columns).map(|unit| (seat(unit), true)));
            }
            drives.sort_unstable();
            chunks.push(drives);
        }
    }
    chunks
}

/// The least period of a sequence that repeats after its end.
fn least_period<T: PartialEq>(sequence: &[T]) -> usize {
    let length = sequence.len();
    (1..=length)
        .filter(|period| length.is_multiple_of(*period))
        .find(|&period| (period..length).all(|at| sequence[at] == sequence[at - period]))
        .unwrap_or(length)
}

/// What `probe` shows of a classic geometry; with islands, of the first one.
#[must_use]
pub fn signature(geometry: &Geometry, probe: Probe) -> Signature {
    let chunks = seen(geometry, probe);
    let period = least_period(&chunks);
    let mut drives = vec![Vec::new(); geometry.drives.into()];
    for (at, chunk) in (0..).zip(&chunks[..period]) {
        for &(seat, parity) in chunk {
            drives[usize::from(seat)].push((at, parity));
        }
    }
    drives.sort();
    Signature {
        period: period as u64,
        drives,
    }
}

/// The drives that `probe` shows of each chunk of one period, as (seat, is parity), sorted.
#[must_use]
pub fn holders(geometry: &Geometry, probe: Probe) -> Vec<Vec<(u16, bool)>> {
    let mut chunks = seen(geometry, probe);
    chunks.truncate(least_period(&chunks));
    chunks
}

/// Shear's pattern size in chunks: the least P with drives(c) = drives(c + P) for all c.
#[must_use]
pub fn pattern_chunks(geometry: &Geometry) -> u64 {
    signature(geometry, Probe::Reads).period
}

/// Groups `geometries` into classes that `probe` cannot distinguish, by index, in order.
#[must_use]
pub fn classes(geometries: &[Geometry], probe: Probe) -> Vec<Vec<usize>> {
    let mut classes: Vec<(Signature, Vec<usize>)> = Vec::new();
    for (index, geometry) in geometries.iter().enumerate() {
        let signature = signature(geometry, probe);
        match classes.iter_mut().find(|(known, _)| *known == signature) {
            Some((_, members)) => members.push(index),
            None => classes.push((signature, vec![index])),
        }
    }
    classes.into_iter().map(|(_, members)| members).collect()
}
