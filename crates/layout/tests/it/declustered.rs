//! dRAID's maps, block designs, random permutations: vectors and invariants.

use layout::declustered::KINDS;
use layout::design::Design;
use layout::{Cell, Role, draid};
use sha2::Digest;

use crate::common::{
    cells_are_a_bijection, chunks_are_a_bijection, geometry, spare_is_outside_the_group,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn draid_maps_are_those_of_openzfs() {
    let file: serde_json::Value =
        serde_json::from_str(include_str!("../vectors/draid_maps.json")).unwrap();
    let maps = file["maps"].as_array().unwrap();
    assert_eq!(maps.len(), 5);
    for case in maps {
        let children = u16::try_from(case["children"].as_u64().unwrap()).unwrap();
        let map = draid::map(children).unwrap();
        assert_eq!(
            hex(&sha2::Sha256::digest(&map)),
            case["sha256"],
            "{children}"
        );
        let sums = draid::fletcher4(&map).map(|sum| format!("0x{sum:016x}"));
        assert_eq!(serde_json::json!(sums), case["fletcher4"], "{children}");
        let seed = format!("0x{:016x}", draid::seed(children).unwrap());
        assert_eq!(seed, case["seed"], "{children}");
        let width = usize::from(children);
        if let Some(row) = case.get("row0") {
            assert_eq!(serde_json::json!(map[..width]), *row);
            assert_eq!(
                serde_json::json!(map[map.len() - width..]),
                case["row_last"]
            );
        }
    }
}

/// First eight bytes of the SHA-256 of further maps.
const MORE_MAPS: [(u16, &str); 6] = [
    (34, "ef651e9e058cfa96"),
    (36, "055ba55a00b11d55"),
    (60, "2c77c3585ca58e08"),
    (90, "6f5dc5e853b1b63a"),
    (106, "782c21e879db267f"),
    (255, "1dfd9955f97bad6e"),
];

#[test]
fn larger_draid_maps_have_their_digests() {
    for (children, digest) in MORE_MAPS {
        let map = draid::map(children).unwrap();
        assert_eq!(hex(&sha2::Sha256::digest(&map)[..8]), digest, "{children}");
    }
}

#[test]
fn draid_addresses_follow_the_published_formulas() {
    // The formulas of vdev_draid.c spelled out, against the engine's tables.
    for (scheme, d, p, c, s) in [
        ("draid1:2d:7c:1s", 2_u64, 1_u64, 7_u64, 1_u64),
        ("draid2:3d:14c:2s", 3, 2, 14, 2),
        ("draid1:4d:17c:2s", 4, 1, 17, 2),
        ("draid3:8d:36c:3s", 8, 3, 36, 3),
    ] {
        let geometry = geometry(scheme, 1);
        let map = draid::map(u16::try_from(c).unwrap()).unwrap();
        let (gw, nd) = (d + p, c - s);
        let ng = (1..).find(|g| g * gw % nd == 0).unwrap();
        let rows = gw * ng / nd;
        let perms = map.len() as u64 / c;
        let groups = ng * (3 * c + 2);
        for group in (0..groups).chain((perms * c - 1) * ng..(perms * c + 1) * ng) {
            let slice = group / ng;
            let start = (group % ng) * gw;
            for column in 0..gw {
                let q = (start % nd) + column;
                let row = slice * rows + start / nd + q / nd;
                let perm = (slice % (perms * c)) / c;
                let base = map[usize::try_from(perm * c + q % nd).unwrap()];
                let drive = (u64::from(base) + slice % c) % c;
                let cell = geometry.layout.cell(group, u16::try_from(column).unwrap());
                assert_eq!(
                    (u64::from(cell.seat.0), cell.row),
                    (drive, row),
                    "{scheme} {group}"
                );
            }
            for spare in 0..s {
                let perm = (slice % (perms * c)) / c;
                let base = map[usize::try_from(perm * c + c - 1 - spare).unwrap()];
                let drive = (u64::from(base) + slice % c) % c;
                let seat = geometry
                    .layout
                    .spare(slice * rows, u16::try_from(spare).unwrap());
                assert_eq!(u64::from(seat.0), drive);
            }
        }
    }
}

#[test]
fn draid_addresses_are_pinned_by_the_published_first_row() {
    // Row 0 of the map for 7 children is 5 0 6 1 4 3 2.
    let geometry = geometry("draid1:2d:7c:1s", 1);
    let drives: Vec<u16> = (0..2)
        .flat_map(|group| (0..3).map(move |column| (group, column)))
        .map(|(group, column)| geometry.layout.cell(group, column).seat.0)
        .collect();
    assert_eq!(drives, [5, 0, 6, 1, 4, 3]);
    assert_eq!(geometry.layout.spare(0, 0).0, 2);
    // Group 2 is slice 1: the same permutation, one drive on.
    assert_eq!(geometry.layout.cell(2, 0).seat.0, 6);
}

/// Every declustered scheme of `name` on up to twelve drives.
fn small_schemes(name: &str) -> Vec<String> {
    let mut schemes = Vec::new();
    for drives in 2..=12_u16 {
        for spares in 0..=3.min(drives - 2) {
            for parity in 1..=3 {
                for data in 1..=9 {
                    if data + parity <= drives - spares {
                        schemes.push(format!("{name}{parity}:{data}d:{drives}c:{spares}s"));
                    }
                }
            }
        }
    }
    schemes
}

/// Bases of PDDL are searched, and designs exist for some sizes: both have tests of their own.
#[test]
fn layouts_of_every_size_are_bijections_on_up_to_twelve_drives() {
    let kinds = KINDS.iter().filter(|kind| !kind.is_pool);
    for kind in kinds.filter(|kind| !["pddl", "design"].contains(&kind.name)) {
        for scheme in small_schemes(kind.name) {
            let geometry = geometry(&scheme, 1);
            let rows = geometry.layout.pattern_rows().min(97);
            cells_are_a_bijection(&geometry, rows);
            chunks_are_a_bijection(&geometry, 2, 3);
            spare_is_outside_the_group(&geometry, rows.min(40));
        }
    }
}

#[test]
fn designs_are_bijections_on_up_to_twelve_drives() {
    let mut found = 0;
    for scheme in small_schemes("design") {
        let parsed: layout::Scheme = scheme.parse().unwrap();
        let Ok(geometry) = layout::Geometry::new(&parsed, None, 1) else {
            continue;
        };
        found += 1;
        // Full tables and then some, but not 12 turns of a table of 924 tuples.
        cells_are_a_bijection(&geometry, geometry.layout.pattern_rows().min(500));
        chunks_are_a_bijection(&geometry, 2, 3);
        spare_is_outside_the_group(&geometry, 60);
    }
    assert!(
        found > 300,
        "all subsets are designs, so small sizes always have one: {found}"
    );
}

#[test]
fn larger_declustered_layouts_are_bijections() {
    let kinds = KINDS.iter().filter(|kind| !kind.is_pool);
    for scheme in kinds.flat_map(|kind| kind.examples) {
        let geometry = geometry(scheme, 1);
        cells_are_a_bijection(&geometry, geometry.layout.pattern_rows().min(700));
        chunks_are_a_bijection(&geometry, 2, 5);
        spare_is_outside_the_group(&geometry, 30);
    }
}

#[test]
fn every_design_is_balanced() {
    let listed = [
        (7, 3),
        (11, 5),
        (13, 4),
        (16, 6),
        (21, 5),
        (31, 6),
        (17, 5),
        (61, 10),
        (64, 9),
    ];
    for (v, k) in listed {
        assert!(Design::find(v, k).is_some(), "({v}, {k})");
    }
    let mut found = 0;
    for v in 2..=64 {
        for k in 2..=v.min(12) {
            if let Some(design) = Design::find(v, k) {
                let (r, lambda) = design.balance().unwrap_or_else(|| panic!("({v}, {k})"));
                let tuples = u32::try_from(design.tuples().len()).unwrap();
                assert_eq!(tuples * u32::from(k), u32::from(v) * r);
                assert_eq!(lambda * (u32::from(v) - 1), r * (u32::from(k) - 1));
                found += 1;
            }
        }
    }
    assert!(found > 150, "{found}");
    // (17, 5, 5) has 68 tuples: cosets of the fourth powers with 0.
    assert_eq!(Design::find(17, 5).unwrap().tuples().len(), 68);
    assert!(Design::find(34, 5).is_none() && Design::find(60, 10).is_none());
}

/// Holland and Gibson's criteria "distributed reconstruction" and "distributed parity".
#[test]
fn designs_spread_parity_and_reconstruction_evenly() {
    for scheme in [
        "design1:2d:7c",
        "design1:4d:17c",
        "design2:3d:21c",
        "design1:2d:8c:1s",
    ] {
        let geometry = geometry(scheme, 1);
        let layout = geometry.layout.as_ref();
        let rows = layout.pattern_rows();
        let n = usize::from(geometry.drives);
        let mut parity = vec![0_u32; n];
        let mut together = vec![0_u32; n * n];
        for group in 0..layout.groups(rows) {
            let seats: Vec<usize> = (0..layout.columns())
                .map(|c| layout.cell(group, c).seat.index())
                .collect();
            for &seat in &seats[..usize::from(geometry.parity)] {
                parity[seat] += 1;
            }
            for &a in &seats {
                for &b in &seats {
                    together[a * n + b] += 1;
                }
            }
        }
        assert!(
            parity.iter().all(|&count| count == parity[0]),
            "{scheme}: {parity:?}"
        );
        for a in 0..n {
            for b in (0..n).filter(|&b| b != a) {
                assert_eq!(
                    together[a * n + b],
                    together[1],
                    "{scheme}: drives {a} and {b}"
                );
            }
        }
    }
}

#[test]
fn spares_of_a_design_visit_every_drive() {
    let geometry = geometry("design1:2d:9c:2s", 1);
    let layout = geometry.layout.as_ref();
    let mut spares = [0; 9];
    for row in 0..layout.pattern_rows() {
        for seat in (0..9).map(block::Seat) {
            if let Role::Spare { .. } = layout.role(Cell { seat, row }) {
                spares[seat.index()] += 1;
            }
        }
    }
    assert!(
        spares.iter().all(|&count| count == spares[0] && count > 0),
        "{spares:?}"
    );
}
