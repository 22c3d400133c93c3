//! Which layouts Shear can and cannot distinguish.

use layout::Geometry;
use layout::equivalence::{Probe, classes, classic_schemes, pattern_chunks, signature};

use crate::common::geometry;

/// Classes of more than one layout, as `name+name`, without the number of drives.
fn confusable(drives: u16, probe: Probe) -> Vec<String> {
    let schemes = classic_schemes(drives);
    let geometries: Vec<Geometry> = schemes
        .iter()
        .map(|scheme| Geometry::new(scheme, None, 2).unwrap())
        .collect();
    let name = |&index: &usize| {
        let text = schemes[index].to_string();
        text.trim_end_matches(&format!(":{drives}c")).to_owned()
    };
    classes(&geometries, probe)
        .iter()
        .filter(|class| class.len() > 1)
        .map(|class| class.iter().map(name).collect::<Vec<_>>().join(" + "))
        .collect()
}

#[test]
fn shears_pattern_sizes_on_six_drives_of_8_kib_chunks() {
    for (scheme, kib) in [
        ("raid0:6c", 48),
        ("raid5:ls:6c", 48),
        ("raid5:la:6c", 240),
        ("raid5:rs:6c", 240),
        ("raid5:ra:6c", 240),
        ("raid6:shear:6c", 48),
        ("raid1:6c", 24),
        ("chained:6c", 48),
        ("zigzag:6c", 96),
        // And those of section 1.
        ("raid5:pn:6c", 40),
        ("raid10:far:6c", 48),
        ("raid6:ls:6c", 192),
    ] {
        assert_eq!(8 * pattern_chunks(&geometry(scheme, 2)), kib, "{scheme}");
    }
}

#[test]
fn layouts_that_timings_cannot_tell_apart() {
    let writes = [
        "raid1 + raid10",
        "chained + raid10:offset + raid10:far",
        "raid5:p0 + raid5:pn",
        "raid6 + raid6:nc",
        "raid6:ra + raid6:zr",
        "raid6:p0 + raid6:pn + raid6:p06",
    ];
    for drives in [5, 6, 7, 8, 12] {
        assert_eq!(confusable(drives, Probe::Writes), writes, "{drives} drives");
    }
    // Reads alone do not show parity: left-symmetric runs like RAID-0, and `ls6` like data on the other
    // drives.
    let reads = [
        "raid0 + raid5 + raid6:shear",
        "raid1 + raid10",
        "chained + raid10:offset + raid10:far",
        "raid5:p0 + raid5:pn + raid6:ls6",
        "raid6 + raid6:nc",
        "raid6:ra + raid6:zr",
        "raid6:p0 + raid6:pn + raid6:p06",
    ];
    for drives in [5, 6, 8, 12] {
        assert_eq!(confusable(drives, Probe::Reads), reads, "{drives} drives");
    }
}

/// Whether some renaming of drives makes two lists of chunks equal, by trying all renamings.
fn some_renaming_fits(a: &[Vec<u16>], b: &[Vec<u16>], drives: u16) -> bool {
    fn extend(names: &mut Vec<u16>, drives: u16, fits: &dyn Fn(&[u16]) -> bool) -> bool {
        if names.len() == usize::from(drives) {
            return fits(names);
        }
        (0..drives).any(|name| {
            if names.contains(&name) {
                return false;
            }
            names.push(name);
            let found = extend(names, drives, fits);
            names.pop();
            found
        })
    }
    let fits = |names: &[u16]| {
        a.iter().zip(b).all(|(a, b)| {
            let mut renamed: Vec<u16> = a.iter().map(|&drive| names[usize::from(drive)]).collect();
            renamed.sort_unstable();
            renamed == *b
        })
    };
    extend(&mut Vec::new(), drives, &fits)
}

#[test]
fn classes_are_those_that_trying_all_renamings_finds() {
    // Five drives: 120 renamings of each pair. Chunks over a common multiple of all periods.
    let drives = 5;
    let geometries: Vec<Geometry> = classic_schemes(drives)
        .iter()
        .map(|scheme| Geometry::new(scheme, None, 2).unwrap())
        .collect();
    let holders = |geometry: &Geometry| -> Vec<Vec<u16>> {
        let layout = geometry.layout.as_ref();
        let mirror = geometry.code.name == "mirror";
        let data = u64::from(geometry.data);
        (0..120)
            .map(|chunk| {
                let (stripe, unit) = (chunk / data, u16::try_from(chunk % data).unwrap());
                let seat = |unit| {
                    layout
                        .cell(0, layout.place(stripe, stripe, unit).column)
                        .seat
                        .0
                };
                let mut seats: Vec<u16> = if mirror {
                    (0..geometry.code.columns).map(seat).collect()
                } else {
                    vec![seat(unit)]
                };
                seats.sort_unstable();
                seats
            })
            .collect()
    };
    let lists: Vec<_> = geometries.iter().map(holders).collect();
    let found = classes(&geometries, Probe::Reads);
    let class_of = |index| found.iter().position(|class| class.contains(&index));
    for a in 0..lists.len() {
        for b in 0..lists.len() {
            let same = some_renaming_fits(&lists[a], &lists[b], drives);
            assert_eq!(
                same,
                class_of(a) == class_of(b),
                "{} and {}",
                geometries[a].scheme,
                geometries[b].scheme
            );
        }
    }
}

#[test]
fn a_second_dedicated_parity_drive_is_not_seen() {
    let visible = |scheme| signature(&geometry(scheme, 2), Probe::Writes).visible();
    assert_eq!(visible("raid5:p0:6c"), visible("raid6:p06:7c"));
    assert_ne!(
        visible("raid5:6c"),
        visible("raid6:ls6:7c"),
        "one that rotates beside it"
    );
    assert_ne!(visible("raid5:p0:6c"), visible("raid0:5c"));
    let narrow =
        |scheme| signature(&geometry(scheme, 2), Probe::Writes).visible_by_reconstruction();
    assert_eq!(narrow("raid5:4c"), narrow("raid6:ls6:5c"));
    assert_ne!(
        narrow("raid5:p0:4c"),
        narrow("raid0:3c"),
        "no other drive holds parity"
    );
    let exact = |scheme| signature(&geometry(scheme, 2), Probe::Writes);
    assert_ne!(exact("raid5:p0:6c"), exact("raid6:p06:7c"));
}
