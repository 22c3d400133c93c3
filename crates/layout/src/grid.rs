//! A layout as a picture: one string per cell or chunk.
//!
//! Classic levels are drawn chunk by chunk as the literature does: `D7` the volume's chunk 7,
//! `D7'` its copy, `P2 Q2 R2` the parities of stripe 2. Declustered layouts are drawn cell by
//! cell: `D12.3` data cell 3 of group 12, `P12` its first parity, `S0` spare 0 of the row. `-` is a
//! place that is not used.

use crate::{Cell, Geometry, Place, Role};
use block::Seat;

/// `rows` rows of `geometry`, one name per seat. Classic levels: chunk rows. If the layout depends
/// on the height of the drives (`raid10:far`), the geometry must be made for drives of `rows` rows.
/// Declustered layouts: cell rows.
#[must_use]
pub fn grid(geometry: &Geometry, rows: u64) -> Vec<Vec<String>> {
    if geometry.scheme.family.is_declustered() {
        cells(geometry, rows)
    } else {
        chunks(geometry, rows)
    }
}

fn seats(geometry: &Geometry) -> impl Iterator<Item = Seat> {
    (0..geometry.drives).map(Seat)
}

fn cells(geometry: &Geometry, rows: u64) -> Vec<Vec<String>> {
    let name = |role| match role {
        Role::Unused => "-".to_owned(),
        Role::Spare { index } => format!("S{index}"),
        Role::Column { group, column } => {
            let place = Place { column, slot: 0 };
            match geometry.layout.unplace(0, place) {
                Some((_, unit)) if unit < geometry.data => format!("D{group}.{unit}"),
                Some((_, unit)) => format!("{}{group}", parity_name(unit - geometry.data)),
                None => "-".to_owned(),
            }
        }
    };
    (0..rows)
        .map(|row| {
            seats(geometry)
                .map(|seat| name(geometry.layout.role(Cell { seat, row })))
                .collect()
        })
        .collect()
}

fn chunks(geometry: &Geometry, rows: u64) -> Vec<Vec<String>> {
    let layout = geometry.layout.as_ref();
    // One cell as high as the picture, rounded up to whole rotations. A far layout's cells are
    // single chunks, since its copies are in other cells.
    let far = layout.columns() > geometry.drives;
    let slots = if far {
        1
    } else {
        rows.next_multiple_of(layout.rotation_slots())
    };
    let stripes = layout.stripes_per_group(slots);
    let name = |seat, row| {
        let (cell_row, slot) = if far { (row, 0) } else { (0, row) };
        match layout.role(Cell {
            seat,
            row: cell_row,
        }) {
            Role::Unused => "-".to_owned(),
            Role::Spare { index } => format!("S{index}"),
            Role::Column { group, column } => {
                let found = layout.unplace(group * stripes, Place { column, slot });
                unit_name(geometry, group, stripes, found)
            }
        }
    };
    (0..rows)
        .map(|row| seats(geometry).map(|seat| name(seat, row)).collect())
        .collect()
}

fn unit_name(geometry: &Geometry, group: u64, stripes: u64, found: Option<(u64, u16)>) -> String {
    let Some((index, unit)) = found else {
        return "-".to_owned();
    };
    if index >= stripes {
        return "-".to_owned();
    }
    let stripe = group * stripes + index;
    if geometry.code.name == "mirror" {
        return format!("D{stripe}{}", "'".repeat(unit.into()));
    }
    if unit < geometry.data {
        format!("D{}", stripe * u64::from(geometry.data) + u64::from(unit))
    } else {
        format!("{}{stripe}", parity_name(unit - geometry.data))
    }
}

const fn parity_name(index: u16) -> char {
    match index {
        0 => 'P',
        1 => 'Q',
        _ => 'R',
    }
}
