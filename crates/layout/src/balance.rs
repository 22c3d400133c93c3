//! How evenly a layout spreads space and rebuild work.
//!
//! Everything is counted, nothing is estimated. For a set of failed drives, each of their cells is
//! looked up: the survivors of its group are read, and the layout gives the spare cell to write.
//! The report gives max/mean over the surviving drives: 1.00 is perfect, and a rebuild that is
//! bound by drives takes that many times as long as a perfect one.
//!
//! ```text
//!   drive f lost ──► its cells ──► their groups ──► survivors: +1 read each
//!                         └──────► spare         ──► its drive: +1 write
//! ```
//!
//! Reads count all survivors of a group, as dRAID's resilver does. An array that reads only d of
//! them can even out the rest; the report is the pessimistic case. Stripes that lost more units
//! than the code can restore are neither read nor written. All failures happen at the same time.

use block::Seat;

use crate::rng::Rng;
use crate::{Cell, Geometry, Place, Role};

/// What to count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// Drives that fail at the same time.
    pub failures: u16,
    /// Share of the groups that are in use, from the first, in percent.
    pub fill_percent: f64,
    /// Height of the drives in cells; `None` is a whole pattern.
    pub rows: Option<u64>,
    /// Most failure sets to count; if there are more, a fixed sample is counted instead.
    pub sets_max: usize,
}

impl Default for Question {
    fn default() -> Self {
        Self {
            failures: 1,
            fill_percent: 100.0,
            rows: None,
            sets_max: 256,
        }
    }
}

/// max/mean over drives; `None` where there is nothing to spread.
pub type Ratio = Option<f64>;

/// How evenly each kind of space is spread over the drives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uniformity {
    /// Data units.
    pub data: Ratio,
    /// Parity units (further copies of mirrors are data).
    pub parity: Ratio,
    /// Spare cells.
    pub spare: Ratio,
}

/// How evenly a rebuild is spread over the survivors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Units read.
    pub reads: Ratio,
    /// Units written.
    pub writes: Ratio,
    /// Both.
    pub total: Ratio,
}

/// The result of [`report`].
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Space.
    pub uniformity: Uniformity,
    /// Rebuild: mean over failure sets.
    pub rebuild: Load,
    /// Rebuild: the failure set whose total is worst.
    pub worst: Load,
    /// The failure set of `worst`.
    pub worst_set: Vec<Seat>,
    /// How many failure sets were counted.
    pub sets: usize,
    /// True if these sets represent all sets (all of them, or all up to symmetry); false for a
    /// sample.
    pub exhaustive: bool,
    /// Of the stripes that a second failed drive holds, the share that lost a unit on the first
    /// too: (mean, largest) over pairs. With one parity these are lost, with more they are critical.
    pub critical_share: (f64, f64),
    /// Units moved by the busiest survivor, per unit that a failed drive held; mean over sets. A
    /// rebuild bound by drives takes this many times as long as reading the failed drive's share
    /// once.
    pub busiest: f64,
}

impl Report {
    /// Seconds that a rebuild takes if nothing but the drives' `bytes_per_second` limits it and
    /// each failed drive held `drive_bytes`.
    #[must_use]
    pub fn rebuild_seconds(&self, drive_bytes: f64, bytes_per_second: f64) -> f64 {
        drive_bytes * self.busiest / bytes_per_second
    }

    /// How many times faster than writing the failed drive's share into one spare drive, which is
    /// the bound of an island.
    #[must_use]
    pub fn speedup(&self) -> f64 {
        if self.busiest > 0.0 {
            1.0 / self.busiest
        } else {
            0.0
        }
    }
}

/// Counts `question` on `geometry`.
#[must_use]
pub fn report(geometry: &Geometry, question: &Question) -> Report {
    let counter = Counter::new(geometry, question);
    let (sets, exhaustive) = counter.failure_sets(question);
    let mut sums = [(0.0, 0_u32); 3];
    let mut worst = (f64::MIN, Load::default(), Vec::new());
    let mut busiest = 0.0;
    for set in &sets {
        let work = counter.fail(set);
        let load = work.load(set);
        for (sum, ratio) in sums.iter_mut().zip([load.reads, load.writes, load.total]) {
            if let Some(ratio) = ratio {
                sum.0 += ratio;
                sum.1 += 1;
            }
        }
        busiest += work.busiest(set);
        if load.total.unwrap_or(0.0) > worst.0 {
            worst = (load.total.unwrap_or(0.0), load, set.clone());
        }
    }
    let mean = |(sum, count): (f64, u32)| (count > 0).then(|| sum / f64::from(count));
    Report {
        uniformity: counter.uniformity(),
        rebuild: Load {
            reads: mean(sums[0]),
            writes: mean(sums[1]),
            total: mean(sums[2]),
        },
        worst: worst.1,
        worst_set: worst.2,
        critical_share: counter.critical_share(),
        busiest: busiest / to_f64(sets.len().max(1) as u64),
        sets: sets.len(),
        exhaustive,
    }
}

/// The rebuild work of one failure set, by drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Units read from each drive.
    pub reads: Vec<u64>,
    /// Units written to each drive.
    pub writes: Vec<u64>,
    /// Lost units that can be reconstructed.
    pub rebuilt: u64,
    /// Lost units of stripes that lost more units than the code can restore.
    pub lost: u64,
    /// Units for which no spare cell was left; they wait for a replacement drive.
    pub homeless: u64,
}

impl Work {
    fn load(&self, failed: &[Seat]) -> Load {
        let total: Vec<u64> = self
            .reads
            .iter()
            .zip(&self.writes)
            .map(|(r, w)| r + w)
            .collect();
        Load {
            reads: ratio(&self.reads, failed),
            writes: ratio(&self.writes, failed),
            total: ratio(&total, failed),
        }
    }

    fn busiest(&self, failed: &[Seat]) -> f64 {
        let most = self
            .reads
            .iter()
            .zip(&self.writes)
            .map(|(r, w)| r + w)
            .max()
            .unwrap_or(0);
        let held = (self.rebuilt + self.lost).max(1);
        to_f64(most) * to_f64(failed.len() as u64) / to_f64(held)
    }
}

/// The rebuild work when `failed` fail, over the first `groups` groups on drives of `rows` cells.
#[must_use]
pub fn work(geometry: &Geometry, rows: u64, groups: u64, failed: &[Seat]) -> Work {
    Counter::of(geometry, rows, groups).fail(failed)
}

/// Most entries of the table of stripe members; above this the members are looked up each time.
const TABLE_MAX: u64 = 1 << 26;

/// Slots after which a classic level's rotation repeats; 1 on declustered layouts, where all chunks
/// of a cell are alike.
fn slots(geometry: &Geometry) -> u64 {
    geometry.layout.rotation_slots()
}

struct Counter<'a> {
    geometry: &'a Geometry,
    rows: u64,
    groups: u64,
    slots: u64,
    /// Stripes of a group.
    stripes: u64,
    /// The seat of every unit of every stripe; empty if that is more than `TABLE_MAX` entries.
    table: Vec<Seat>,
}

impl<'a> Counter<'a> {
    fn new(geometry: &'a Geometry, question: &Question) -> Self {
        let layout = geometry.layout.as_ref();
        let rows = question.rows.unwrap_or_else(|| layout.pattern_rows());
        let all = layout.groups(rows);
        let share = (to_f64(all) * question.fill_percent.clamp(0.0, 100.0) / 100.0).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count"
        )]
        let groups = (share as u64).min(all);
        Self::of(geometry, rows, groups)
    }

    fn of(geometry: &'a Geometry, rows: u64, groups: u64) -> Self {
        let slots = slots(geometry);
        let mut counter = Self {
            geometry,
            rows,
            groups,
            slots,
            stripes: geometry.layout.stripes_per_group(slots),
            table: Vec::new(),
        };
        let stripes = groups * counter.stripes;
        if stripes * u64::from(geometry.code.columns) <= TABLE_MAX {
            let mut members = Vec::new();
            let mut table = Vec::new();
            for stripe in 0..stripes {
                counter.look_up(stripe, &mut members);
                table.extend_from_slice(&members);
            }
            counter.table = table;
        }
        counter
    }

    /// The seats of a stripe's units, stripes numbered over all groups.
    fn members<'b>(&'b self, stripe: u64, buffer: &'b mut Vec<Seat>) -> &'b [Seat] {
        if self.table.is_empty() {
            self.look_up(stripe, buffer);
            buffer
        } else {
            let width = usize::from(self.geometry.code.columns);
            let first = usize::try_from(stripe).expect("a table's index") * width;
            &self.table[first..first + width]
        }
    }

    fn look_up(&self, stripe: u64, members: &mut Vec<Seat>) {
        let layout = self.geometry.layout.as_ref();
        let (group, index) = (stripe / self.stripes, stripe % self.stripes);
        members.clear();
        members.extend((0..self.geometry.code.columns).map(|unit| {
            let place = layout.place(stripe, index, unit);
            layout.cell(group, place.column).seat
        }));
    }

    /// The failure sets to count, and whether they represent all sets.
    fn failure_sets(&self, question: &Question) -> (Vec<Vec<Seat>>, bool) {
        let n = self.geometry.drives;
        let failures = question.failures.min(n);
        // Where all drives are alike, the sets that contain drive 0 represent all sets.
        let layout = self.geometry.layout.as_ref();
        let whole = self.rows.is_multiple_of(layout.pattern_rows())
            && self.groups == layout.groups(self.rows);
        let fixed = u16::from(layout.is_symmetric() && whole && failures > 0);
        let mut sets = Vec::new();
        if combinations(n - fixed, failures - fixed) <= question.sets_max as u64 {
            let mut set: Vec<u16> = (0..failures).collect();
            loop {
                sets.push(set.iter().copied().map(Seat).collect());
                let next = (usize::from(fixed)..set.len())
                    .rev()
                    .find(|&i| usize::from(set[i]) + set.len() < usize::from(n) + i);
                let Some(i) = next else { break };
                set[i] += 1;
                for j in i + 1..set.len() {
                    set[j] = set[j - 1] + 1;
                }
            }
            return (sets, true);
        }
        let mut rng = Rng::new(0x6261_6c61_6e63_6521);
        while sets.len() < question.sets_max {
            let mut set: Vec<Seat> = (0..fixed).map(Seat).collect();
            while set.len() < usize::from(failures) {
                let seat = Seat(crate::classic::small(rng.below(n.into()).into()));
                if !set.contains(&seat) {
                    set.push(seat);
                }
            }
            set.sort();
            sets.push(set);
        }
        (sets, false)
    }

    fn fail(&self, failed: &[Seat]) -> Work {
        let geometry = self.geometry;
        let layout = geometry.layout.as_ref();
        let n = usize::from(geometry.drives);
        let mut work = Work {
            reads: vec![0; n],
            writes: vec![0; n],
            rebuilt: 0,
            lost: 0,
            homeless: 0,
        };
        let mut is_failed = vec![false; n];
        for seat in failed {
            is_failed[seat.index()] = true;
        }
        let mut taken = Taken::new(n, self.rows);
        let stripes = self.stripes;
        let mirror = geometry.code.name == "mirror";
        let mut buffer = Vec::new();
        for row in 0..self.rows {
            for &seat in failed {
                let Role::Column { group, column } = layout.role(Cell { seat, row }) else {
                    continue;
                };
                if group >= self.groups {
                    continue;
                }
                let mut recoverable = false;
                for slot in 0..self.slots {
                    let found = layout.unplace(group * stripes, Place { column, slot });
                    let Some((index, unit)) = found.filter(|&(index, _)| index < stripes) else {
                        continue;
                    };
                    let members = self.members(group * stripes + index, &mut buffer);
                    let lost = members
                        .iter()
                        .filter(|seat| is_failed[seat.index()])
                        .count();
                    if lost > usize::from(geometry.parity) {
                        work.lost += 1;
                        continue;
                    }
                    recoverable = true;
                    work.rebuilt += 1;
                    if mirror {
                        // The next copy in the ring of copies; two lost copies may read the same
                        // source.
                        let start = usize::from(unit);
                        let source = (1..members.len())
                            .map(|step| members[(start + step) % members.len()])
                            .find(|seat| !is_failed[seat.index()]);
                        if let Some(source) = source {
                            work.reads[source.index()] += 1;
                        }
                        continue;
                    }
                    // A stripe with several lost units is read once, for the first of them.
                    let first = members.iter().position(|seat| is_failed[seat.index()]);
                    if first == Some(usize::from(unit)) {
                        for member in members.iter().filter(|seat| !is_failed[seat.index()]) {
                            work.reads[member.index()] += 1;
                        }
                    }
                }
                if !recoverable {
                    continue;
                }
                let spare =
                    layout.spare_for(group, column, &|seat| is_failed[seat.index()], &|cell| {
                        taken.contains(cell)
                    });
                match spare {
                    Some(cell) => {
                        taken.insert(cell);
                        work.writes[cell.seat.index()] += self.slots;
                    }
                    None => work.homeless += self.slots,
                }
            }
        }
        work
    }

    fn uniformity(&self) -> Uniformity {
        let geometry = self.geometry;
        let layout = geometry.layout.as_ref();
        let n = usize::from(geometry.drives);
        let mut data = vec![0_u64; n];
        let mut parity = data.clone();
        let mut spare = data.clone();
        let stripes = self.stripes;
        let data_units = if geometry.code.name == "mirror" {
            geometry.code.columns
        } else {
            geometry.data
        };
        let mut rows_used = 0;
        for group in 0..self.groups {
            for index in 0..stripes {
                for unit in 0..geometry.code.columns {
                    let place = layout.place(group * stripes + index, index, unit);
                    let cell = layout.cell(group, place.column);
                    rows_used = rows_used.max(cell.row + 1);
                    let kind = if unit < data_units {
                        &mut data
                    } else {
                        &mut parity
                    };
                    kind[cell.seat.index()] += 1;
                }
            }
        }
        for row in 0..rows_used {
            for index in 0..layout.spares() {
                spare[layout.spare(row, index).index()] += 1;
            }
        }
        Uniformity {
            data: ratio(&data, &[]),
            parity: ratio(&parity, &[]),
            spare: ratio(&spare, &[]),
        }
    }

    fn critical_share(&self) -> (f64, f64) {
        let geometry = self.geometry;
        let n = usize::from(geometry.drives);
        let mut shared = vec![0_u32; n * n];
        let mut buffer = Vec::new();
        for stripe in 0..self.groups * self.stripes {
            let members = self.members(stripe, &mut buffer);
            for a in members {
                for b in members {
                    shared[a.index() * n + b.index()] += 1;
                }
            }
        }
        let (mut sum, mut most, mut pairs) = (0.0, 0.0_f64, 0_u64);
        for a in 0..n {
            for b in (0..n).filter(|&b| b != a) {
                let held = shared[b * n + b];
                if held > 0 {
                    let share = f64::from(shared[a * n + b]) / f64::from(held);
                    sum += share;
                    most = most.max(share);
                    pairs += 1;
                }
            }
        }
        (sum / to_f64(pairs.max(1)), most)
    }
}

/// Spare cells that are in use.
struct Taken {
    rows: u64,
    bits: Vec<u64>,
}

impl Taken {
    fn new(drives: usize, rows: u64) -> Self {
        let words = (drives as u64 * rows).div_ceil(64);
        Self {
            rows,
            bits: vec![0; usize::try_from(words).expect("a pattern fits memory")],
        }
    }

    fn at(&self, cell: Cell) -> (usize, u64) {
        let bit = u64::from(cell.seat.0) * self.rows + cell.row;
        (
            usize::try_from(bit / 64).expect("in range"),
            1 << (bit % 64),
        )
    }

    fn contains(&self, cell: Cell) -> bool {
        let (word, mask) = self.at(cell);
        self.bits[word] & mask != 0
    }

    fn insert(&mut self, cell: Cell) {
        let (word, mask) = self.at(cell);
        self.bits[word] |= mask;
    }
}

/// max/mean over the drives that are not in `failed`.
fn ratio(counts: &[u64], failed: &[Seat]) -> Ratio {
    let alive = |index: &usize| !failed.iter().any(|seat| seat.index() == *index);
    let (mut sum, mut most, mut drives) = (0, 0, 0);
    for index in (0..counts.len()).filter(alive) {
        sum += counts[index];
        most = most.max(counts[index]);
        drives += 1;
    }
    (sum > 0).then(|| to_f64(most) * to_f64(drives) / to_f64(sum))
}

/// n over k, saturating.
fn combinations(n: u16, k: u16) -> u64 {
    (0..u64::from(k)).fold(1_u64, |product, i| {
        product.saturating_mul(u64::from(n).saturating_sub(i)) / (i + 1)
    })
}

/// Counts here stay far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
const fn to_f64(count: u64) -> f64 {
    count as f64
}
