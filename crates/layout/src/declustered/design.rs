//! Parity declustering from block designs (Holland and Gibson, ASPLOS 1992).
//!
//! A block design is a list of b tuples of k out of v drives. Every drive is in r tuples and every
//! pair of drives is in λ tuples. Each tuple is a group:
//!
//! ```text
//!   (7, 3, 1): tuples {0,1,3} {1,2,4} {2,3,5} {3,4,6} {4,5,0} {5,6,1} {6,0,2}
//!
//!            drive 0  1  2  3  4  5  6
//!   row 0          0  0  1  0  1  2  3        which tuple uses the drive's first cell,
//!   row 1          4  1  2  2  3  4  5        second,
//!   row 2          6  5  6  3  4  5  6        third
//! ```
//!
//! When a drive fails every other drive shares exactly λ tuples with it, so the rebuild reads are
//! perfectly even. Rows are filled drive by drive: a group's cells are at different heights. Parity
//! moves one tuple position on in each of k copies of the design, the *full table*: k·r rows with r
//! parity cells per drive.
//!
//! *Spares.* A design has none. Here a design on n − s drives moves on through the n seats, one
//! seat per full table, and the s seats that it leaves out are spare for those rows. Over n full
//! tables every seat is spare equally often. For one spare every pair of drives is in use together
//! equally often, so balance stays perfect.
//!
//! *Which designs.* Difference sets; for a prime v = g·k + 1 the cosets of the order-k subgroup
//! (λ = k − 1), with 0 added for k + 1 (λ = k + 1); the same in GF(2^w); all k-subsets where they
//! are few. For most composite sizes no design of practical size exists: (34, 5) needs at least
//! 561 tuples, (36, 11) 252, (60, 10) 354. That is why PDDL searches bases instead.

use std::sync::Arc;

use block::Seat;

use super::{Domains, Kind, Made, Parity};
use crate::classic::small;
use crate::developed::{Development, Shape, declustered_place, declustered_unplace};
use crate::divide::Divisor;
use crate::geometry::{Ask, Field, GeometryError};
use crate::{Cell, Layout, Place, Role, pddl};

/// Most subsets in a complete design, which is used where no better design is known.
const COMPLETE_MAX: u64 = 5000;

/// Difference sets: (v, members, developed by xor).
const DIFFERENCE_SETS: [(u16, &[u16], bool); 6] = [
    (7, &[0, 1, 3], false),
    (11, &[1, 3, 4, 5, 9], false),
    (13, &[0, 1, 3, 9], false),
    (16, &[0, 1, 2, 4, 8, 15], true),
    (21, &[3, 6, 7, 12, 14], false),
    (31, &[1, 5, 11, 24, 25, 27], false),
];

/// A block design: tuples of `tuple_size` out of `drives` drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Design {
    drives: u16,
    tuple_size: u16,
    tuples: Vec<u16>,
}

impl Design {
    /// The smallest design known to this program for `drives` and `tuple_size`.
    #[must_use]
    pub fn find(drives: u16, tuple_size: u16) -> Option<Self> {
        let (v, k) = (drives, tuple_size);
        if k < 2 || k > v {
            return None;
        }
        let make = |tuples| Self {
            drives,
            tuple_size,
            tuples,
        };
        for (size, set, xor) in DIFFERENCE_SETS {
            if size == v && set.len() == usize::from(k) {
                let development = if xor {
                    Development::Xor
                } else {
                    Development::Modulo
                };
                return Some(make(develop(v, development, set)));
            }
        }
        let complete = choose(v, k).filter(|&tuples| tuples <= COMPLETE_MAX);
        let cosets = cosets(v, k).or_else(|| {
            let mut blocks = cosets(v, k - 1)?;
            for block in &mut blocks.1 {
                block.insert(0, 0);
            }
            Some(blocks)
        });
        match (cosets, complete) {
            (Some((_, blocks)), Some(complete))
                if complete <= (blocks.len() * usize::from(v)) as u64 =>
            {
                Some(make(subsets(v, k)))
            }
            (Some((development, blocks)), _) => {
                let tuples = blocks
                    .iter()
                    .flat_map(|block| develop(v, development, block));
                Some(make(tuples.collect()))
            }
            (None, Some(_)) => Some(make(subsets(v, k))),
            (None, None) => None,
        }
    }

    /// v.
    #[must_use]
    pub const fn drives(&self) -> u16 {
        self.drives
    }

    /// k.
    #[must_use]
    pub const fn tuple_size(&self) -> u16 {
        self.tuple_size
    }

    /// The tuples.
    pub fn tuples(&self) -> impl ExactSizeIterator<Item = &[u16]> {
        self.tuples.chunks(self.tuple_size.into())
    }

    /// (r, λ), if every drive is in r tuples and every pair in λ tuples.
    #[must_use]
    pub fn balance(&self) -> Option<(u32, u32)> {
        let v = usize::from(self.drives);
        let mut pairs = vec![0_u32; v * v];
        for tuple in self.tuples() {
            for &a in tuple {
                for &b in tuple {
                    pairs[usize::from(a) * v + usize::from(b)] += 1;
                }
            }
        }
        let r = pairs[0];
        let lambda = *pairs.get(1).unwrap_or(&0);
        let even =
            (0..v).all(|a| (0..v).all(|b| pairs[a * v + b] == if a == b { r } else { lambda }));
        even.then_some((r, lambda))
    }
}

/// The layout of a design, with its spares moving through the seats.
#[derive(Clone, Debug)]
pub struct Declustered {
    shape: Shape,
    design: Design,
    /// (drive, row within one copy of the design) of each (tuple, position).
    cells: Vec<(u16, u32)>,
    /// Tuple position of each (copy mod k, column).
    positions: Vec<u16>,
    /// (tuple, position) of each (drive, row within one copy).
    takers: Vec<(u32, u16)>,
    /// Rows that the tuples up to each one take.
    ends: Vec<u32>,
    /// r.
    copy_rows: u64,
    by_tuples: Divisor,
    by_width: Divisor,
    by_drives: Divisor,
    by_table_rows: Divisor,
}

/// The layout's name and fields in scheme strings.
pub(super) static KIND: Kind = Kind {
    name: "design",
    parity: Parity::Digit,
    domains: Domains::Checked,
    is_pool: false,
    offered: &["design1"],
    examples: &[
        "design2:1d:7c",
        "design1:4d:17c",
        "design1:5d:31c",
        "design2:3d:21c",
        "design1:4d:18c:1s",
        "design2:4d:31c",
        "design1:1d:100c",
        "design1:9d:61c",
        "design2:8d:61c",
    ],
    make,
};

fn make(_: &Ask<'_>, shape: Shape) -> Made {
    if let Some(layout) = layout(shape) {
        return Ok(Arc::new(layout));
    }
    let v = shape.drives - shape.spares;
    let known = |v: u16| Design::find(v, shape.width).is_some();
    let near = (1..v).find_map(|away| [v - away, v + away].into_iter().find(|&v| known(v)));
    Err(GeometryError::Impossible {
        field: Field::Drives,
        why: format!(
            "no block design of practical size is known for {v} drives in tuples of {}",
            shape.width
        ),
        nearest: match near {
            Some(v) => format!("{}c", v + shape.spares),
            None => format!("pddl{}", shape.parity),
        },
    })
}

/// The layout of `shape` from the smallest known design on n − s drives.
#[must_use]
pub fn layout(shape: Shape) -> Option<Declustered> {
    let design = Design::find(shape.drives - shape.spares, shape.width)?;
    let v = usize::from(design.drives);
    let mut used = vec![0_u32; v];
    let mut heights = Vec::with_capacity(design.tuples.len());
    for &drive in &design.tuples {
        heights.push(used[usize::from(drive)]);
        used[usize::from(drive)] += 1;
    }
    let rows = used[0];
    let ends = heights
        .chunks(shape.width.into())
        .scan(0, |highest, heights| {
            *highest = heights
                .iter()
                .fold(*highest, |highest, &height| highest.max(height + 1));
            Some(*highest)
        });
    let ends = ends.collect();
    let mut takers = vec![(0, 0); v * rows as usize];
    for (tuple, members) in (0_u32..).zip(design.tuples()) {
        for (position, &drive) in (0_u16..).zip(members) {
            let at = tuple as usize * members.len() + usize::from(position);
            takers[usize::from(drive) * rows as usize + heights[at] as usize] = (tuple, position);
        }
    }
    let tuples = design.tuples().len() as u64;
    let width = shape.width;
    let position = |copy| (0..width).map(move |column| position(shape, copy, column));
    Some(Declustered {
        shape,
        cells: design.tuples.iter().copied().zip(heights).collect(),
        positions: (0..width.into()).flat_map(position).collect(),
        takers,
        ends,
        copy_rows: rows.into(),
        by_tuples: Divisor::new(tuples),
        by_width: Divisor::new(shape.width.into()),
        by_drives: Divisor::new(shape.drives.into()),
        by_table_rows: Divisor::new(u64::from(rows) * u64::from(shape.width)),
        design,
    })
}

impl Declustered {
    /// The layout's design.
    #[must_use]
    pub const fn design(&self) -> &Design {
        &self.design
    }

    fn column(&self, copy: u64, position: u16) -> u16 {
        let Shape { width, parity, .. } = self.shape;
        let first = parity_position(self.shape, copy);
        let after = (position + width - first) % width;
        if after < parity {
            return after;
        }
        let wrapped = (first + parity).saturating_sub(width);
        let before = if position > first {
            parity - wrapped
        } else {
            0
        };
        parity + position - wrapped - before
    }

    /// How far the design has moved on through the seats at full table `table`.
    fn turn(&self, table: u64) -> u16 {
        if self.shape.spares == 0 {
            0
        } else {
            small(self.by_drives.div_rem(table).1)
        }
    }
}

/// Tuple position of the first parity in copy `copy` of the design: k − 1 − (copy mod k).
fn parity_position(shape: Shape, copy: u64) -> u16 {
    shape.width - 1 - small(copy % u64::from(shape.width))
}

/// Tuple position of a group's column. Parities are next to each other from `parity_position` on,
/// modulo k; data takes the other positions in order.
fn position(shape: Shape, copy: u64, column: u16) -> u16 {
    let Shape { width, parity, .. } = shape;
    let first = parity_position(shape, copy);
    if column < parity {
        return (first + column) % width;
    }
    let data = column - parity;
    let wrapped = (first + parity).saturating_sub(width);
    let position = data + wrapped;
    if position >= first {
        position + parity - wrapped
    } else {
        position
    }
}

impl Layout for Declustered {
    fn drives(&self) -> u16 {
        self.shape.drives
    }

    fn columns(&self) -> u16 {
        self.shape.width
    }

    fn spares(&self) -> u16 {
        self.shape.spares
    }

    /// Groups do not end in the order of their numbers. Of a copy that is cut off, only the groups
    /// before the first one that does not fit count.
    fn groups(&self, rows: u64) -> u64 {
        let rest = rows % self.copy_rows;
        let partial = self.ends.partition_point(|&end| u64::from(end) <= rest);
        rows / self.copy_rows * self.by_tuples.get() + partial as u64
    }

    fn cell(&self, group: u64, column: u16) -> Cell {
        let (copy, tuple) = self.by_tuples.div_rem(group);
        let (table, turned) = self.by_width.div_rem(copy);
        let width = usize::from(self.shape.width);
        let position = self.positions[usize::from(small(turned)) * width + usize::from(column)];
        let (drive, height) = self.cells[usize::from(small(tuple)) * width + usize::from(position)];
        let turn = self.turn(table);
        let seat = Development::Modulo.moved(self.shape.drives, drive, turn);
        Cell {
            seat: Seat(seat),
            row: copy * self.copy_rows + u64::from(height),
        }
    }

    fn role(&self, cell: Cell) -> Role {
        let turn = self.turn(self.by_table_rows.div_rem(cell.row).0);
        let drive = Development::Modulo.moved_back(self.shape.drives, cell.seat.0, turn);
        if drive >= self.design.drives {
            return Role::Spare {
                index: drive - self.design.drives,
            };
        }
        let copy = cell.row / self.copy_rows;
        let row = cell.row % self.copy_rows;
        let at = u64::from(drive) * self.copy_rows + row;
        let (tuple, position) = self.takers[usize::try_from(at).expect("a table's index")];
        Role::Column {
            group: copy * self.by_tuples.get() + u64::from(tuple),
            column: self.column(copy, position),
        }
    }

    fn spare(&self, row: u64, index: u16) -> Seat {
        let turn = self.turn(self.by_table_rows.div_rem(row).0);
        let drive = self.design.drives + index;
        Seat(Development::Modulo.moved(self.shape.drives, drive, turn))
    }

    fn pattern_rows(&self) -> u64 {
        let tables = if self.shape.spares == 0 {
            1
        } else {
            self.shape.drives
        };
        self.by_table_rows.get() * u64::from(tables)
    }

    fn step(&self) -> (u64, u64) {
        (self.copy_rows, self.by_tuples.get())
    }

    fn place(&self, _stripe: u64, index: u64, unit: u16) -> Place {
        declustered_place(self.shape.width, self.shape.parity, index, unit)
    }

    fn unplace(&self, _first: u64, place: Place) -> Option<(u64, u16)> {
        Some(declustered_unplace(
            self.shape.width,
            self.shape.parity,
            place,
        ))
    }
}

/// Every shift of `block`.
fn develop(v: u16, development: Development, block: &[u16]) -> Vec<u16> {
    (0..v)
        .flat_map(|shift| {
            block
                .iter()
                .map(move |&drive| development.moved(v, drive, shift))
        })
        .collect()
}

/// The cosets of the order-k subgroup of the field with v = g·k + 1 elements, as base blocks.
fn cosets(v: u16, k: u16) -> Option<(Development, Vec<Vec<u16>>)> {
    if k < 2 || v <= k || !(v - 1).is_multiple_of(k) {
        return None;
    }
    let (development, powers) = pddl::powers(v)?;
    let g = (v - 1) / k;
    let block = |j: u16| (0..k).map(|u| powers[usize::from(j + g * u)]).collect();
    Some((development, (0..g).map(block).collect()))
}

/// v over k, where that fits.
fn choose(v: u16, k: u16) -> Option<u64> {
    let k = k.min(v - k);
    (0..u64::from(k)).try_fold(1_u64, |product, i| {
        product
            .checked_mul(u64::from(v) - i)
            .map(|product| product / (i + 1))
    })
}

/// All k-subsets in lexical order, one after the other.
fn subsets(v: u16, k: u16) -> Vec<u16> {
    let mut subset: Vec<u16> = (0..k).collect();
    let mut all = Vec::new();
    loop {
        all.extend_from_slice(&subset);
        let Some(i) = (0..k).rev().find(|&i| subset[usize::from(i)] < v - k + i) else {
            return all;
        };
        let next = subset[usize::from(i)] + 1;
        for j in i..k {
            subset[usize::from(j)] = next + (j - i);
        }
    }
}
