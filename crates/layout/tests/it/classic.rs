//! The classic levels: grids of the literature, bijections, Shear's pattern sizes.

use crate::common::{cells_are_a_bijection, chunks_are_a_bijection, geometry};
use layout::scheme::{Raid5Form, Raid6Form};

/// Scheme of a case of `small_layouts.json`.
fn scheme_of(case: &str) -> String {
    let (name, drives) = case.split_once(":n").expect("cases end in :n<drives>");
    let scheme = match name {
        "raid10-near2" => "raid10:near".to_owned(),
        "raid10-offset2(chained)" => "raid10:offset".to_owned(),
        "raid10-far2" => "raid10:far".to_owned(),
        "pq-shear" => "raid6:shear".to_owned(),
        other => other.replace('-', ":"),
    };
    format!("{scheme}:{drives}c")
}

#[test]
fn grids_are_those_of_the_literature() {
    let text = include_str!("../vectors/small_layouts.json");
    let cases: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).unwrap();
    for (case, expected) in &cases {
        let expected: Vec<&str> = expected
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row.as_str().unwrap())
            .collect();
        let scheme = scheme_of(case);
        let rows = expected.len() as u64;
        let drawn: Vec<String> = layout::grid::grid(&geometry(&scheme, rows), rows)
            .iter()
            .map(|row| row.join(" "))
            .collect();
        assert_eq!(drawn, expected, "{case} as {scheme}");
    }
    assert!(
        cases.len() >= 50,
        "the file holds every form for four and five drives"
    );
}

#[test]
fn chained_is_offset_with_two_copies_and_raid1_is_near() {
    for drives in 2..9 {
        for (alias, form) in [("chained", "raid10:offset"), ("raid1", "raid10:near")] {
            let draw = |name| layout::grid::grid(&geometry(&format!("{name}:{drives}c"), 8), 8);
            assert_eq!(draw(alias), draw(form));
        }
    }
}

/// Every classic scheme that `drives` drives can make.
fn classic_schemes(drives: u16) -> Vec<String> {
    let mut schemes = vec![format!("raid0:{drives}c"), format!("zigzag:{drives}c")];
    for copies in 2..=drives.min(5) {
        for form in ["near", "offset", "far"] {
            schemes.push(format!("raid10:{form}:{copies}r:{drives}c"));
        }
    }
    if drives >= 2 {
        schemes.push(format!("chained:{drives}c"));
        schemes.extend(Raid5Form::ALL.map(|form| format!("raid5:{}:{drives}c", form.word())));
    }
    if drives >= 3 {
        schemes.extend(Raid6Form::ALL.map(|form| format!("raid6:{}:{drives}c", form.word())));
        schemes.push(format!("raid5:{drives}c:1s"));
    }
    if drives >= 4 {
        schemes.push(format!("raid7:{drives}c"));
        schemes.push(format!("raid10:far:{drives}c:1s"));
    }
    for (name, parity) in [("raid5", 1), ("raid6", 2), ("raid7", 3)] {
        for data in 1..drives {
            for spares in 0..3 {
                let width = data + parity;
                if drives > spares + width && (drives - spares).is_multiple_of(width) {
                    schemes.push(format!("{name}:{data}d:{drives}c:{spares}s"));
                }
            }
        }
    }
    schemes
}

#[test]
fn classic_layouts_are_bijections_on_up_to_twelve_drives() {
    for drives in 1..=12 {
        for scheme in classic_schemes(drives) {
            let geometry = geometry(&scheme, 30);
            cells_are_a_bijection(&geometry, 30);
            for slots in [1, 2, 3, 7, 60] {
                chunks_are_a_bijection(&geometry, 2, slots);
            }
            crate::common::spare_is_outside_the_group(&geometry, 30);
        }
    }
}

#[test]
fn classic_layouts_are_bijections_on_sampled_sizes_up_to_255() {
    for drives in [13, 16, 17, 31, 60, 97, 128, 254, 255] {
        for scheme in [
            format!("raid0:{drives}c"),
            format!("zigzag:{drives}c"),
            format!("raid10:near:3r:{drives}c"),
            format!("raid10:offset:3r:{drives}c"),
            format!("raid10:far:3r:{drives}c"),
            format!("raid7:{drives}c"),
        ]
        .into_iter()
        .chain(Raid5Form::ALL.map(|form| format!("raid5:{}:{drives}c", form.word())))
        .chain(Raid6Form::ALL.map(|form| format!("raid6:{}:{drives}c", form.word())))
        {
            let geometry = geometry(&scheme, 9);
            cells_are_a_bijection(&geometry, 9);
            chunks_are_a_bijection(&geometry, 1, 17);
        }
    }
}
