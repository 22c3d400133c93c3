//! CRUSH against crushtool's mappings, and its own invariants.

use layout::crush::{Bucket, Map, MapError, Mode, ONE, Rule};

fn number<T: TryFrom<i64>>(value: &serde_json::Value) -> T {
    T::try_from(value.as_i64().unwrap()).ok().unwrap()
}

fn map_of(case: &serde_json::Value) -> (Map, Rule) {
    let buckets = case["buckets"].as_array().unwrap();
    let built = buckets.iter().map(|bucket| Bucket {
        id: number(&bucket["id"]),
        kind: number(&bucket["type"]),
        items: bucket["items"]
            .as_array()
            .unwrap()
            .iter()
            .zip(bucket["weights"].as_array().unwrap())
            .map(|(item, weight)| (number(item), number(weight)))
            .collect(),
    });
    let map = Map::new(number(&case["devices"]), built.collect()).unwrap();
    let steps = case["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step.as_str().unwrap());
    let bucket = |name: &str| {
        let found = buckets.iter().find(|bucket| bucket["name"] == name)?;
        Some(number(&found["id"]))
    };
    let kind = |name: &str| match name {
        "osd" => Some(0),
        "host" => Some(1),
        "root" => Some(2),
        _ => None,
    };
    (map, Rule::parse(steps, bucket, kind).unwrap())
}

#[test]
fn mappings_are_those_of_crushtool() {
    let file: serde_json::Value =
        serde_json::from_str(include_str!("../vectors/crush_vectors.json")).unwrap();
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 3);
    for case in cases {
        let (map, rule) = map_of(case);
        let positions: usize = number(&case["num_rep"]);
        for (x, expected) in (0..).zip(case["result"].as_array().unwrap()) {
            let placed = map.place(&rule, x, positions, &[]);
            assert_eq!(
                serde_json::json!(placed),
                *expected,
                "{} x = {x}",
                case["name"]
            );
        }
    }
    for pair in file["ln_vectors"].as_array().unwrap() {
        let ln = layout::crush::crush_ln(number(&pair[0])).cast_signed() - (1 << 48);
        assert_eq!(ln, number::<i64>(&pair[1]));
    }
}

#[test]
fn sixty_devices_are_placed_as_published() {
    let map = Map::flat(&[ONE; 60]);
    let rule = Rule::flat(-1, Mode::Indep);
    let place = |x| -> Vec<i32> {
        map.place(&rule, x, 10, &[])
            .into_iter()
            .map(|item| item.unwrap())
            .collect()
    };
    assert_eq!(place(0), [13, 12, 45, 28, 3, 34, 29, 19, 42, 25]);
    assert_eq!(place(1), [51, 24, 52, 37, 17, 54, 34, 4, 20, 44]);
}

/// Four hosts of three devices.
fn tree() -> Map {
    let mut buckets = vec![Bucket {
        id: -1,
        kind: 2,
        items: (2..6).map(|host| (-host, 3 * ONE)).collect(),
    }];
    buckets.extend((0..4).map(|host| {
        Bucket {
            id: -2 - host,
            kind: 1,
            items: (3 * host..3 * host + 3)
                .map(|device| (device, ONE))
                .collect(),
        }
    }));
    Map::new(12, buckets).unwrap()
}

fn leaves(mode: &str) -> Rule {
    let steps = ["take root", "chooseleaf MODE 0 type host", "emit"];
    let steps = steps.map(|step| step.replace("MODE", mode));
    Rule::parse(
        steps.iter().map(String::as_str),
        |_| Some(-1),
        |name| (name == "host").then_some(1),
    )
    .unwrap()
}

#[test]
fn leaves_lie_below_different_hosts_and_out_devices_are_avoided() {
    let map = tree();
    let mut reweights = [ONE; 12];
    reweights[4] = 0;
    reweights[7] = ONE / 2;
    let mut on_seven = 0;
    for mode in ["indep", "firstn"] {
        let rule = leaves(mode);
        for x in 0..2000 {
            let placed: Vec<i32> = map
                .place(&rule, x, 3, &reweights)
                .into_iter()
                .flatten()
                .collect();
            assert_eq!(placed.len(), 3, "{mode} x = {x}");
            let mut hosts: Vec<i32> = placed.iter().map(|device| device / 3).collect();
            hosts.sort_unstable();
            hosts.dedup();
            assert_eq!(hosts.len(), 3, "{mode} x = {x}: {placed:?}");
            assert!(!placed.contains(&4));
            on_seven += usize::from(placed.contains(&7));
        }
    }
    // Half of a third of 3/4 of 4,000 inputs, about; not none and not all.
    assert!((300..900).contains(&on_seven), "{on_seven}");
}

#[test]
fn a_weight_moves_only_what_its_device_gains() {
    let rule = Rule::flat(-1, Mode::Indep);
    let before = Map::flat(&[ONE; 20]);
    let mut weights = [ONE; 20];
    weights[3] = 2 * ONE;
    let after = Map::flat(&weights);
    for x in 0..3000 {
        let (old, new) = (
            before.place(&rule, x, 1, &[]),
            after.place(&rule, x, 1, &[]),
        );
        assert!(
            old == new || new == [Some(3)],
            "x = {x}: {old:?} to {new:?}"
        );
    }
}

#[test]
fn positions_that_cannot_be_filled_stay_empty_or_away() {
    let map = Map::flat(&[ONE, ONE, ONE]);
    let indep = map.place(&Rule::flat(-1, Mode::Indep), 7, 5, &[]);
    assert_eq!(indep.len(), 5);
    assert_eq!(indep.iter().flatten().count(), 3);
    let firstn = map.place(&Rule::flat(-1, Mode::FirstN), 7, 5, &[]);
    assert_eq!(firstn.len(), 3);
    let empty = Map::new(
        3,
        vec![Bucket {
            id: -1,
            kind: 2,
            items: Vec::new(),
        }],
    )
    .unwrap();
    assert_eq!(
        empty.place(&Rule::flat(-1, Mode::Indep), 7, 2, &[]),
        [None, None]
    );
}

#[test]
fn maps_that_are_no_trees_are_refused() {
    let bucket = |id, items: &[i32]| Bucket {
        id,
        kind: 1,
        items: items.iter().map(|&item| (item, ONE)).collect(),
    };
    assert_eq!(
        Map::new(1, vec![bucket(1, &[0])]),
        Err(MapError::Id { id: 1 })
    );
    assert_eq!(
        Map::new(1, vec![bucket(-1, &[0]), bucket(-1, &[])]),
        Err(MapError::Twice { id: -1 })
    );
    let missing = Map::new(1, vec![bucket(-1, &[1])]);
    assert_eq!(
        missing,
        Err(MapError::Child {
            id: -1,
            item: 1,
            devices: 1
        })
    );
    let cycle = Map::new(1, vec![bucket(-1, &[-2]), bucket(-2, &[-1, 0])]);
    assert!(matches!(cycle, Err(MapError::Cycle { .. })));
}
