//! The difference counts of a set of bases, updated with each swap.

use crate::developed::{Development, Shape};

/// Up to this many drives, differences come from a table.
const TABLE_MAX: u16 = 1024;

/// Weight of the evenness of reads plus writes, relative to that of each alone.
const TOTAL_WEIGHT: i64 = 4;

/// Bases with their difference counts, and the cost of these counts.
pub(super) struct State {
    n: usize,
    used: usize,
    spares: usize,
    parity: u16,
    development: Development,
    bases: Vec<u16>,
    differences: Option<Vec<u16>>,
    /// For each position: the positions that share groups with it, and in how many groups of a
    /// slice.
    neighbours: Vec<Vec<(u16, i32)>>,
    /// For each position: the groups of a slice that it belongs to. Filled only with domains.
    groups_of: Vec<Vec<u16>>,
    /// Positions of each group of a slice. Filled only with domains.
    members: Vec<Vec<u16>>,
    /// Cells that each position has in a slice: R.
    rows: i32,
    total: Vec<i32>,
    reads: Vec<i32>,
    /// `writes[z * n + δ]`.
    writes: Vec<i32>,
    cost: i64,
    least: i64,
    updates: u64,
    before: Before,
}

/// Counts and cost before the last swap.
#[derive(Default)]
struct Before {
    cost: i64,
    counts: Vec<i32>,
}

impl Before {
    fn of(&mut self, cost: i64, counts: [&[i32]; 3]) {
        self.cost = cost;
        self.counts.clear();
        for counts in counts {
            self.counts.extend_from_slice(counts);
        }
    }

    fn restore(&self, counts: [&mut [i32]; 3]) {
        let mut saved = self.counts.as_slice();
        for counts in counts {
            let (these, rest) = saved.split_at(counts.len());
            counts.copy_from_slice(these);
            saved = rest;
        }
    }
}

impl State {
    pub(super) fn new(shape: Shape, development: Development, bases: Vec<u16>) -> Self {
        let n = usize::from(shape.drives);
        let used = usize::from(shape.drives - shape.spares);
        let (groups, rows) = shape.slice();
        let width = usize::from(shape.width);
        let mut shared = vec![0_i32; used * used];
        let mut groups_of = vec![Vec::new(); used];
        let mut members = Vec::new();
        for group in 0..groups {
            let start = usize::from(group) * width;
            let positions: Vec<usize> = (start..start + width).map(|q| q % used).collect();
            for &a in &positions {
                for &b in &positions {
                    if a != b {
                        shared[a * used + b] += 1;
                    }
                }
            }
            if matches!(development, Development::Grid { .. }) {
                for &a in &positions {
                    groups_of[a].push(group);
                }
                members.push(positions.iter().map(|&a| narrow(a)).collect());
            }
        }
        let neighbours = shared
            .chunks(used)
            .map(|row| {
                row.iter()
                    .enumerate()
                    .filter(|&(_, &count)| count > 0)
                    .map(|(position, &count)| (narrow(position), count))
                    .collect()
            })
            .collect();
        let mut state = Self {
            n,
            used,
            spares: n - used,
            parity: shape.parity,
            development,
            differences: (shape.drives <= TABLE_MAX).then(|| {
                let difference = |a, b| development.moved_back(shape.drives, b, a);
                (0..shape.drives)
                    .flat_map(|a| (0..shape.drives).map(move |b| difference(a, b)))
                    .collect()
            }),
            bases,
            neighbours,
            groups_of,
            members,
            rows: rows.into(),
            total: vec![0; n],
            reads: vec![0; n],
            writes: vec![0; (n - used) * n],
            cost: 0,
            least: 0,
            updates: 0,
            before: Before::default(),
        };
        state.count();
        state.least = state.least_cost();
        state
    }

    pub(super) fn into_bases(self) -> Vec<u16> {
        self.bases
    }

    /// Count changes so far: a clock that runs the same on every machine.
    pub(super) const fn updates(&self) -> u64 {
        self.updates
    }

    /// True if every count is as even as whole numbers can be.
    pub(super) const fn is_perfect(&self) -> bool {
        self.cost <= self.least
    }

    /// Swaps two entries of a base and returns the change of the cost. `None` if domains forbid the
    /// swap; nothing is changed then.
    pub(super) fn swap(&mut self, base: u32, i: u32, j: u32) -> Option<i64> {
        let (offset, i, j) = (base as usize * self.n, i as usize, j as usize);
        if !self.domains_allow(offset, i, j) {
            // The clock counts a swap and its undoing: searches have always ended by it.
            self.updates += 2 * self.updates_of(i, j);
            return None;
        }
        self.before
            .of(self.cost, [&self.total, &self.reads, &self.writes]);
        self.exchange(offset, i, j);
        Some(self.cost - self.before.cost)
    }

    /// Takes the last swap back.
    pub(super) fn undo(&mut self, base: u32, i: u32, j: u32) {
        let (offset, i, j) = (base as usize * self.n, i as usize, j as usize);
        self.bases.swap(offset + i, offset + j);
        self.cost = self.before.cost;
        self.before
            .restore([&mut self.total, &mut self.reads, &mut self.writes]);
        self.updates += self.updates_of(i, j);
    }

    /// The count changes of an exchange of positions `i` and `j`.
    fn updates_of(&self, i: usize, j: usize) -> u64 {
        let pairs = |position: usize, other: usize| {
            let of = self.neighbours.get(position).map_or(&[][..], Vec::as_slice);
            of.iter().filter(|&&(c, _)| usize::from(c) != other).count()
        };
        let writes = if i.max(j) >= self.used {
            2 * self.spares * self.used
        } else {
            0
        };
        (4 * (pairs(i, j) + pairs(j, i)) + writes + 1) as u64
    }

    /// True if domains hold after a swap of positions `i` and `j`.
    fn domains_allow(&mut self, offset: usize, i: usize, j: usize) -> bool {
        if !matches!(self.development, Development::Grid { .. }) {
            return true;
        }
        self.bases.swap(offset + i, offset + j);
        let allowed = self.domains_hold(offset, i) && self.domains_hold(offset, j);
        self.bases.swap(offset + i, offset + j);
        allowed
    }

    /// True if the groups of `position` have at most p columns in the domain at `position`.
    fn domains_hold(&self, offset: usize, position: usize) -> bool {
        let Development::Grid { domains } = self.development else {
            return true;
        };
        if position >= self.used {
            return true;
        }
        let domain = self.bases[offset + position] % domains;
        self.groups_of[position].iter().all(|&group| {
            let same = |&&q: &&u16| self.bases[offset + usize::from(q)] % domains == domain;
            self.members[usize::from(group)].iter().filter(same).count() <= self.parity.into()
        })
    }

    fn exchange(&mut self, offset: usize, i: usize, j: usize) {
        let (u, v) = (self.bases[offset + i], self.bases[offset + j]);
        for (position, out, into) in [(i, u, v), (j, v, u)] {
            let other = i + j - position;
            if position < self.used {
                let neighbours = std::mem::take(&mut self.neighbours[position]);
                for &(c, count) in &neighbours {
                    // The swap only reverses the pair (i, j), and reads count both directions.
                    if usize::from(c) == other {
                        continue;
                    }
                    let w = self.bases[offset + usize::from(c)];
                    self.read(out, w, -count);
                    self.read(into, w, count);
                }
                self.neighbours[position] = neighbours;
            }
        }
        self.updates += 1;
        // Writes depend on the set of columns: a swap of two columns does not change them.
        if i >= self.used || j >= self.used {
            self.recount_writes(offset, i, j);
        } else {
            self.bases.swap(offset + i, offset + j);
        }
    }

    /// Swaps two entries and recounts the writes of the base.
    fn recount_writes(&mut self, offset: usize, i: usize, j: usize) {
        self.write_all(offset, -self.rows);
        self.bases.swap(offset + i, offset + j);
        self.write_all(offset, self.rows);
    }

    fn write_all(&mut self, offset: usize, by: i32) {
        for z in 0..self.spares {
            let spare = self.bases[offset + self.n - 1 - z];
            for column in 0..self.used {
                let at = self.difference(self.bases[offset + column], spare);
                self.change_writes(z, at, by);
            }
        }
    }

    fn count(&mut self) {
        for offset in (0..self.bases.len()).step_by(self.n) {
            for a in 0..self.used {
                let neighbours = std::mem::take(&mut self.neighbours[a]);
                for &(c, count) in neighbours.iter().filter(|&&(c, _)| usize::from(c) > a) {
                    let (a, c) = (self.bases[offset + a], self.bases[offset + usize::from(c)]);
                    self.read(a, c, count);
                }
                self.neighbours[a] = neighbours;
            }
            self.write_all(offset, self.rows);
        }
    }

    #[inline]
    fn difference(&self, from: u16, to: u16) -> usize {
        match &self.differences {
            Some(table) => table[usize::from(from) * self.n + usize::from(to)].into(),
            None => self.development.moved_back(narrow(self.n), to, from).into(),
        }
    }

    /// Adds `count` to the number of groups of a slice that hold both drives.
    #[inline]
    fn read(&mut self, a: u16, b: u16, count: i32) {
        for at in [self.difference(a, b), self.difference(b, a)] {
            self.cost += squared_change(&mut self.reads[at], count)
                + TOTAL_WEIGHT * squared_change(&mut self.total[at], count);
            self.updates += 1;
        }
    }

    #[inline]
    fn change_writes(&mut self, z: usize, at: usize, by: i32) {
        self.cost += squared_change(&mut self.writes[z * self.n + at], by);
        if z == 0 {
            self.cost += TOTAL_WEIGHT * squared_change(&mut self.total[at], by);
        }
        self.updates += 1;
    }

    /// The cost if every distribution were as even as whole numbers allow.
    fn least_cost(&self) -> i64 {
        let even = |counts: &[i32], step: i64| {
            let sum: i64 = counts.iter().map(|&count| i64::from(count)).sum();
            let over = i64::try_from(self.n - 1).unwrap_or(1).max(1);
            let units = sum / step;
            let (low, more) = (units / over, units % over);
            step * step * (more * (low + 1) * (low + 1) + (over - more) * low * low)
        };
        let writes: i64 = self
            .writes
            .chunks(self.n)
            .map(|w| even(w, self.rows.into()))
            .sum();
        even(&self.reads, 1) + TOTAL_WEIGHT * even(&self.total, 1) + writes
    }
}

#[inline]
fn squared_change(count: &mut i32, by: i32) -> i64 {
    let change = i64::from(by) * (2 * i64::from(*count) + i64::from(by));
    *count += by;
    change
}

fn narrow(position: usize) -> u16 {
    u16::try_from(position).expect("drives are numbered in 16 bits")
}
