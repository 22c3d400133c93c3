//! Invariants of every layout, checked cell by cell and chunk by chunk.

use std::collections::BTreeMap;

use block::Seat;
use layout::{Cell, Geometry, Layout, Place, Role, Scheme};

/// The geometry of a scheme string.
pub(crate) fn geometry(scheme: &str, rows: u64) -> Geometry {
    let parsed: Scheme = scheme
        .parse()
        .unwrap_or_else(|error| panic!("{scheme}: {error}"));
    Geometry::new(&parsed, None, rows).unwrap_or_else(|error| panic!("{scheme}: {error}"))
}

/// Cells: `cell` and `spare` against `role`, over `rows` rows.
pub(crate) fn cells_are_a_bijection(geometry: &Geometry, rows: u64) {
    assert_eq!(geometry.layout.drives(), geometry.drives);
    bijection(&geometry.scheme.to_string(), geometry.layout.as_ref(), rows);
}

/// The same for a layout without a scheme.
pub(crate) fn bijection(name: &str, layout: &dyn Layout, rows: u64) {
    let drives = layout.drives();
    let far = layout.columns() > drives;
    let mut seen = BTreeMap::new();
    for group in 0..layout.groups(rows) {
        let mut seats = Vec::new();
        for column in 0..layout.columns() {
            let cell = layout.cell(group, column);
            assert!(cell.row < rows, "{name}: group {group} leaves the drive");
            assert!(cell.seat.0 < drives, "{name}: {cell:?}");
            assert_eq!(layout.role(cell), Role::Column { group, column }, "{name}");
            assert!(
                seen.insert(cell, (group, column)).is_none(),
                "{name}: {cell:?} twice"
            );
            seats.push(cell.seat);
        }
        seats.sort();
        seats.dedup();
        assert!(
            far || seats.len() == usize::from(layout.columns()),
            "{name}: group {group} meets a drive twice"
        );
    }
    for row in 0..rows {
        for index in 0..layout.spares() {
            let cell = Cell {
                seat: layout.spare(row, index),
                row,
            };
            assert_eq!(layout.role(cell), Role::Spare { index }, "{name}");
            assert!(
                seen.insert(cell, (u64::MAX, index)).is_none(),
                "{name}: {cell:?} twice"
            );
        }
    }
    // And nothing else: every other cell is unused or belongs to a group that the rows cut off.
    for row in 0..rows {
        for seat in (0..drives).map(Seat) {
            let cell = Cell { seat, row };
            match layout.role(cell) {
                Role::Column { group, .. } if group < layout.groups(rows) => {
                    assert!(seen.contains_key(&cell), "{name}: {cell:?}");
                }
                Role::Spare { .. } => assert!(seen.contains_key(&cell), "{name}: {cell:?}"),
                Role::Column { .. } | Role::Unused => {
                    assert!(!seen.contains_key(&cell), "{name}: {cell:?}");
                }
            }
        }
    }
}

/// Chunks: `place` against `unplace` in a few groups of `slots` slots.
pub(crate) fn chunks_are_a_bijection(geometry: &Geometry, groups: u64, slots: u64) {
    let name = &geometry.scheme;
    let layout = geometry.layout.as_ref();
    let stripes = layout.stripes_per_group(slots);
    for group in 0..groups {
        let first = group * stripes;
        let mut seen = BTreeMap::new();
        for index in 0..stripes {
            let mut seats = Vec::new();
            for unit in 0..geometry.code.columns {
                let place = layout.place(first + index, index, unit);
                assert!(place.column < layout.columns(), "{name}: {place:?}");
                assert!(place.slot < slots, "{name}: {place:?}");
                assert_eq!(
                    layout.unplace(first, place),
                    Some((index, unit)),
                    "{name} {place:?}"
                );
                let key = (place.column, place.slot);
                assert!(
                    seen.insert(key, (index, unit)).is_none(),
                    "{name}: {place:?} twice"
                );
                seats.push(layout.cell(group, place.column).seat);
            }
            seats.sort();
            seats.dedup();
            assert_eq!(
                seats.len(),
                usize::from(geometry.code.columns),
                "{name}: stripe {index} meets a drive twice, so losing it loses two units"
            );
        }
        // Whole periods fill the group; less than one period of slots may stay empty.
        let places = u64::from(layout.columns()) * slots;
        let used = stripes * u64::from(geometry.code.columns);
        let period = u64::from(layout.columns()) * u64::from(geometry.code.columns);
        assert!(
            used <= places && places - used < period,
            "{name}: {used} of {places}"
        );
        for column in 0..layout.columns() {
            for slot in 0..slots {
                if let Some((index, unit)) = layout.unplace(first, Place { column, slot })
                    && index < stripes
                {
                    assert_eq!(seen.get(&(column, slot)), Some(&(index, unit)), "{name}");
                }
            }
        }
    }
}

/// A lost column gets a spare on a live drive outside its group; a spare that is in use is not given
/// again.
pub(crate) fn spare_is_outside_the_group(geometry: &Geometry, rows: u64) {
    let name = &geometry.scheme;
    let layout = geometry.layout.as_ref();
    for group in 0..layout.groups(rows) {
        let cells: Vec<Cell> = (0..layout.columns())
            .map(|c| layout.cell(group, c))
            .collect();
        for column in 0..layout.columns() {
            let lost = cells[usize::from(column)].seat;
            let mut taken: Vec<Cell> = Vec::new();
            for _ in 0..geometry.spares {
                let spare = layout.spare_for(group, column, &|seat| seat == lost, &|cell| {
                    taken.contains(&cell)
                });
                let Some(spare) = spare else { break };
                assert!(
                    cells.iter().all(|cell| cell.seat != spare.seat),
                    "{name}: group {group} column {column} would double up on {spare:?}"
                );
                assert!(
                    !matches!(layout.role(spare), Role::Column { group, .. }
                        if group < layout.groups(rows)),
                    "{name}: {spare:?} is not free"
                );
                taken.push(spare);
            }
            assert!(
                geometry.spares == 0 || !taken.is_empty(),
                "{name}: no spare"
            );
        }
    }
}
