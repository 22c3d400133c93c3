//! Copies of elastic stripes: on different drives, in places of their own, and spread.

use std::collections::{BTreeMap, BTreeSet};

use block::Seat;
use layout::bloated::Planes;
use layout::{Geometry, Scheme};

const SCHEMES: [&str; 8] = [
    "raid5:3c",
    "raid5:4c",
    "raid5:la:7c",
    "raid6:4c",
    "raid6:6c",
    "raid6:shear:5c",
    "pddl1:4d:11c:1s",
    "draid2:3d:11c:1s",
];

fn geometry(scheme: &str) -> Geometry {
    let parsed: Scheme = scheme.parse().expect(scheme);
    Geometry::new(&parsed, None, 96).expect(scheme)
}

#[test]
fn copies_never_share_a_drive_or_a_place() {
    for scheme in SCHEMES {
        let geometry = geometry(scheme);
        let layout = geometry.layout.as_ref();
        let planes = Planes::new(layout, geometry.code.columns, geometry.parity);
        assert_eq!(planes.planes(), geometry.parity + 1);
        let mut taken = BTreeSet::new();
        for stripe in 0..layout.stripes_per_group(24) {
            for unit in 0..geometry.data {
                let mut seats = BTreeSet::new();
                for copy in 0..planes.planes() {
                    let place = planes.copy_place(stripe, stripe, unit, copy);
                    let free = taken.insert((copy, place.column, place.slot));
                    assert!(
                        free && place.slot < 24,
                        "{scheme}: a place twice, or outside"
                    );
                    assert!(seats.insert(layout.cell(0, place.column).seat), "{scheme}");
                }
                let own = layout.place(stripe, stripe, unit);
                assert_eq!(
                    planes.copy_place(stripe, stripe, unit, 0),
                    own,
                    "{scheme}: data stays"
                );
            }
            for unit in geometry.data..geometry.code.columns {
                let place = layout.place(stripe, stripe, unit);
                assert!(
                    !taken.contains(&(0, place.column, place.slot)),
                    "{scheme}: parity's place"
                );
            }
        }
    }
}

/// The work of reading a lost drive's data elsewhere is the same for each drive that is left, within 5 %.
#[test]
fn the_copies_of_a_drive_are_spread_evenly_over_all_others() {
    for scheme in [
        "raid5:3c", "raid5:4c", "raid5:5c", "raid5:7c", "raid6:6c", "raid6:8c",
    ] {
        let geometry = geometry(scheme);
        let layout = geometry.layout.as_ref();
        let planes = Planes::new(layout, geometry.code.columns, geometry.parity);
        for lost in (0..geometry.drives).map(Seat) {
            let mut work: BTreeMap<Seat, u64> = BTreeMap::new();
            for stripe in 0..layout.stripes_per_group(1 << 12) {
                for unit in 0..geometry.data {
                    let seat = |copy| {
                        let place = planes.copy_place(stripe, stripe, unit, copy);
                        layout.cell(0, place.column).seat
                    };
                    if seat(0) == lost {
                        *work.entry(seat(1)).or_default() += 1;
                    }
                }
            }
            assert_eq!(
                work.len(),
                usize::from(geometry.drives) - 1,
                "{scheme} {lost:?}"
            );
            let (least, most) = (work.values().min(), work.values().max());
            let (least, most) = (*least.unwrap(), *most.unwrap());
            assert!(most * 100 <= least * 105, "{scheme} {lost:?}: {work:?}");
        }
    }
}
