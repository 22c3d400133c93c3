//! Invariants of every layout: the small exhaustively, the large by sampling.

use block::Seat;
use layout::balance::work;
use layout::declustered::KINDS;
use layout::developed::Shape;
use layout::{Cell, Geometry, Layout, Role, Scheme, pddl, search};
use proptest::prelude::*;

use crate::common::{bijection, chunks_are_a_bijection};

fn long() -> bool {
    std::env::var_os("RAVELIN_LONG").is_some_and(|value| value == "1")
}

/// Search effort that is enough for a valid layout; its quality does not matter here.
const LITTLE: u64 = 20_000;

#[test]
fn searched_layouts_are_bijections_on_up_to_twelve_drives() {
    for drives in 2..=12 {
        for spares in 0..=3.min(drives - 2) {
            for width in 2..=drives - spares {
                let shape = Shape {
                    drives,
                    width,
                    parity: 1,
                    spares,
                };
                let layout = pddl::exact(shape)
                    .unwrap_or_else(|| search::search_within(shape, None, LITTLE).unwrap());
                let rows = if long() { layout.pattern_rows() } else { 60 };
                bijection(&format!("{shape:?}"), &layout, rows);
            }
        }
    }
}

#[test]
fn domains_hold_wherever_they_can_on_up_to_sixteen_drives() {
    let mut made = 0;
    for drives in 2..=16_u16 {
        for domains in (2..=drives).filter(|f| drives.is_multiple_of(*f)) {
            for spares in 0..=2.min(drives - 2) {
                for parity in 1..=3 {
                    for width in parity + 1..=drives - spares {
                        if width.div_ceil(parity) > domains {
                            continue;
                        }
                        let shape = Shape {
                            drives,
                            width,
                            parity,
                            spares,
                        };
                        let Ok(layout) = search::search_within(shape, Some(domains), LITTLE) else {
                            continue;
                        };
                        made += 1;
                        bijection(&format!("{shape:?} {domains}"), &layout, 30);
                        for group in 0..layout.groups(30) {
                            let mut held = vec![0; domains.into()];
                            for column in 0..width {
                                let seat = layout.cell(group, column).seat;
                                held[usize::from(seat.0 % domains)] += 1;
                            }
                            assert!(held.iter().all(|&held| held <= parity), "{shape:?}");
                        }
                    }
                }
            }
        }
    }
    assert!(made > 300, "{made}");
}

/// Any scheme that needs no search, on 2 to 255 drives.
fn schemes() -> impl Strategy<Value = Scheme> {
    let classic = [
        "raid0",
        "zigzag",
        "raid1",
        "raid10",
        "raid10:offset",
        "raid10:far",
        "chained",
        "raid5",
        "raid5:ra",
        "raid6:zr",
        "raid6:nc",
        "raid6:ls6",
        "raid6:shear",
        "raid7",
    ];
    // PDDL's bases are searched unless the number of drives is a prime: seconds for each.
    let declustered = KINDS.iter().filter(|kind| kind.name != "pddl");
    let declustered = declustered.flat_map(|kind| (1..=3).map(|parity| kind.named(parity)));
    let names: Vec<String> = { classic.map(str::to_owned).into_iter() }
        .chain(declustered)
        .collect();
    let name = prop::sample::select(names);
    (name, 2..=255_u16, 1..=20_u16, 0..=6_u16, any::<bool>()).prop_map(
        |(name, drives, data, spares, islands)| {
            let mut scheme: Scheme = name.parse().expect("a name");
            scheme.drives = Some(drives);
            if scheme.family.is_declustered() || (islands && scheme.parity > 0) {
                scheme.data = Some(data);
            }
            if scheme.parity > 0 {
                scheme.spares = Some(spares);
            }
            scheme
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if long() { 4000 } else { 250 }))]

    #[test]
    fn sampled_layouts_are_bijections_and_survive_what_they_promise(
        scheme in schemes(),
        groups in prop::collection::vec(any::<prop::sample::Index>(), 20),
        rows in 4..40_u64,
        failed in prop::collection::vec(any::<prop::sample::Index>(), 3),
    ) {
        let Ok(geometry) = Geometry::new(&scheme, None, rows) else {
            return Ok(());
        };
        let layout = geometry.layout.as_ref();
        let count = layout.groups(rows);
        prop_assume!(count > 0);
        for group in groups {
            let group = group.index(usize::try_from(count).unwrap()) as u64;
            let mut seats = Vec::new();
            for column in 0..layout.columns() {
                let cell = layout.cell(group, column);
                prop_assert!(cell.row < rows && cell.seat.0 < geometry.drives);
                prop_assert_eq!(layout.role(cell), Role::Column { group, column });
                seats.push(cell.seat);
            }
            let row = layout.cell(group, 0).row;
            for index in 0..layout.spares() {
                let seat = layout.spare(row, index);
                prop_assert_eq!(layout.role(Cell { seat, row }), Role::Spare { index });
                if layout.columns() <= geometry.drives && layout.pattern_rows() < 1 << 40 {
                    let same_row = (0..layout.columns())
                        .filter(|&column| layout.cell(group, column).row == row)
                        .any(|column| layout.cell(group, column).seat == seat);
                    prop_assert!(!same_row, "a spare of the row is no column of it");
                }
            }
            if layout.columns() <= geometry.drives {
                seats.sort();
                seats.dedup();
                prop_assert_eq!(seats.len(), usize::from(layout.columns()));
            }
        }
        chunks_are_a_bijection(&geometry, 1, 6);
        // Any p failures: no data is lost, and no lost cell goes to a drive that its stripe already
        // uses.
        let mut failed: Vec<Seat> = failed
            .iter()
            .take(geometry.parity.into())
            .map(|index| Seat(u16::try_from(index.index(geometry.drives.into())).unwrap()))
            .collect();
        failed.sort();
        failed.dedup();
        let some = count.min(200);
        prop_assert_eq!(work(&geometry, rows, some, &failed).lost, 0);
        for group in 0..some.min(20) {
            for column in 0..layout.columns() {
                let cell = layout.cell(group, column);
                if !failed.contains(&cell.seat) || layout.columns() > geometry.drives {
                    continue;
                }
                let spare = layout.spare_for(
                    group,
                    column,
                    &|seat| failed.contains(&seat),
                    &|_| false,
                );
                if let Some(spare) = spare {
                    let doubled = (0..layout.columns())
                        .any(|other| layout.cell(group, other).seat == spare.seat);
                    prop_assert!(!doubled, "group {} column {}", group, column);
                    let free = !matches!(
                        layout.role(spare),
                        Role::Column { group, .. } if group < count
                    );
                    prop_assert!(free);
                }
            }
        }
    }

    #[test]
    fn sampled_searches_are_bijections(
        drives in 2..=255_u16,
        width in 2..=30_u16,
        spares in 0..=8_u16,
        domains in prop::option::of(2..=12_u16),
    ) {
        prop_assume!(width + spares <= drives);
        let shape = Shape { drives, width, parity: 2.min(width - 1), spares };
        let domains = domains.filter(|f| drives.is_multiple_of(*f) && width.div_ceil(2) <= *f);
        let Ok(layout) = search::search_within(shape, domains, LITTLE) else {
            return Ok(());
        };
        bijection(&format!("{shape:?} {domains:?}"), &layout, 25);
    }
}
