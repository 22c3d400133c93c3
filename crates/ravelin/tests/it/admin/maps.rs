//! Slots: how they are named, found and remembered, and the map that shows them.

use std::path::Path;

use serde_json::{Value, json};

use super::{MIB, status};
use crate::support::bench::Bench;

/// Four drives in two enclosures, and a spare.
fn pool(test: &str) -> Bench {
    let bench = Bench::new(test);
    bench.drives("d", 8, 40 * MIB);
    let drives = ["d0@left#0", "d1@left#1", "d2@right#0", "d3@right#7"].map(str::to_owned);
    let made = bench.create("tank", "raid10", &drives, &["spare", "d4@right#1"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    bench
}

/// Seat, domain and slot of each drive.
fn places(status: &Value) -> Vec<(u64, Value, Value)> {
    let seats = status["seats"].as_array().unwrap().iter();
    seats
        .map(|seat| {
            let number = seat["seat"].as_u64().unwrap();
            (number, seat["domain"].clone(), seat["slot"].clone())
        })
        .collect()
}

fn place(status: &Value, seat: u64) -> (Value, Value) {
    let mut all = places(status).into_iter();
    let (_, domain, slot) = all.find(|&(number, ..)| number == seat).unwrap();
    (domain, slot)
}

#[test]
fn slots_are_kept_in_the_labels_and_stay_with_drives_that_are_missing() {
    let mut bench = pool("slots");
    // Seats are dealt to the domains in turn.
    let expected = [
        (0, json!("left"), json!(0)),
        (1, json!("right"), json!(0)),
        (2, json!("left"), json!(1)),
        (3, json!("right"), json!(7)),
        (4, json!("right"), json!(1)),
    ];
    assert_eq!(places(&status(&bench)), expected);
    let map = bench.json(&["pool", "status", "tank", "--map"]);
    assert_eq!(map["seats"], status(&bench)["seats"]);
    // The names of drives do not have slots in them: earlier versions could not read these.
    let path = status(&bench)["seats"][0]["path"].clone();
    assert!(path.as_str().unwrap().ends_with("/d0@left"), "{path}");
    bench.terminate();
    std::fs::rename(bench.path("d3"), bench.path("away")).unwrap();
    bench.start_with(&["--wait-drives", "0"]);
    assert_eq!(places(&status(&bench)), expected);
    let text = bench.ok(&["pool", "status", "tank", "--map"]);
    let missing = text.lines().position(|line| line.contains("7: seat 3"));
    let state = text.lines().nth(missing.unwrap() + 2).unwrap();
    assert!(state.contains("OUT missing"), "{text}");
    // The drive is back, under another name.
    bench.ok(&["drive", "online", "tank", "3"]);
    assert_eq!(places(&status(&bench)), expected);
    bench.ok(&["pool", "export", "tank"]);
    let here = bench.directory.to_str().unwrap();
    bench.ok(&["pool", "import", "tank", "--dir", here]);
    assert_eq!(places(&status(&bench)), expected);
}

#[test]
fn a_replacement_takes_the_slot_of_a_drive_that_is_out_and_a_spare_brings_its_own() {
    let bench = pool("slot-replaced");
    let offline = bench.run(&["drive", "offline", "tank", "0"]);
    assert_eq!(offline.code, 0, "{}", offline.stderr);
    bench.ok(&["drive", "replace", "tank", "0", "d5@left#0"]);
    assert_eq!(place(&status(&bench), 0), (json!("left"), json!(0)));
    bench.ok(&["pool", "wait", "tank"]);
    // A drive without a name for its place takes the domain of the seat, and its slot is not known.
    bench.ok(&["drive", "replace", "tank", "2", "d6"]);
    bench.ok(&["pool", "wait", "tank"]);
    assert_eq!(place(&status(&bench), 2), (json!("left"), Value::Null));
    bench.ok(&["drive", "add", "tank", "d7@left#1"]);
    let places = places(&status(&bench));
    assert!(
        places.iter().any(|(seat, domain, slot)| {
            *seat > 4 && (domain, slot) == (&json!("left"), &json!(1))
        }),
        "{places:?}"
    );
}

#[test]
fn wrong_slots_are_refused_and_nothing_changes() {
    let bench = Bench::new("slots-refused");
    bench.drives("d", 8, 40 * MIB);
    let create = |drives: [&str; 2], more: &[&str], parts: &[&str]| {
        let made = bench.create("tank", "raid1", &drives.map(str::to_owned), more);
        made.refused(2, parts);
        assert_eq!(bench.json(&["pool", "list"])["pools"], json!([]));
        for name in ["d0", "d1"] {
            let bytes = std::fs::read(bench.path(name)).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 0), "{name}");
        }
    };
    create(
        ["d0@left#1", "d1@left#1"],
        &[],
        &[
            "slot 1 of `left`",
            "d0@left#1",
            "d1@left#1",
            "try: ",
            "its own slot",
        ],
    );
    create(
        ["d0@left#1", "d1@right#1"],
        &["spare", "d2@left#1"],
        &["slot 1 of `left`", "d2@left#1"],
    );
    create(
        ["d0@left#1", "d1@left#x"],
        &[],
        &["`#x` is not the number of a slot", "d1@left#3"],
    );
    create(
        ["d0@left#1", "d1#2"],
        &[],
        &[
            "`#2` is a slot, and the enclosure is not named",
            "d1@ENCLOSURE#2",
        ],
    );

    let drives = ["d0@left#0", "d1@right#0"].map(str::to_owned);
    assert_eq!(bench.create("tank", "raid1", &drives, &[]).code, 0);
    let before = status(&bench);
    let add = |name: &str, code: i32, parts: &[&str]| {
        bench
            .run(&["drive", "add", "tank", name])
            .refused(code, parts);
    };
    add(
        "d2@left#0",
        1,
        &[
            "slot 0 of `left` has the drive of seat 0",
            "try: ",
            "status tank --map",
        ],
    );
    add("d2@left#-1", 2, &["`#-1` is not the number of a slot"]);
    add("d2#1", 2, &["the enclosure is not named"]);
    let replace = |seat: &str, new: &str, parts: &[&str]| {
        let line = ["drive", "replace", "tank", seat, new];
        bench.run(&line).refused(1, parts);
    };
    // A working drive stays in its slot until the new one has everything.
    replace(
        "0",
        "d2@left#0",
        &["slot 0 of `left` has the drive of seat 0"],
    );
    replace(
        "0",
        "d2@right#0",
        &["slot 0 of `right` has the drive of seat 1"],
    );
    let after = status(&bench);
    assert_eq!(after["seats"][0]["drive"], before["seats"][0]["drive"]);
    assert_eq!(after["generation"], before["generation"]);
    assert_eq!(after["seats"].as_array().unwrap().len(), 2);
    bench.ok(&["drive", "offline", "tank", "0"]);
    add(
        "d2@left#0",
        1,
        &["slot 0 of `left`", "`ravelin drive replace tank 0 NEW`"],
    );
    bench
        .run(&["drive", "wipe", "d2@left#0"])
        .refused(2, &["failure domain"]);
}

/// A drive in a slot of an enclosure, as the kernel shows it.
fn put(root: &Path, enclosure: &str, slot: u32, drive: &Path) {
    let own = root.join(drive.strip_prefix("/").unwrap());
    std::fs::create_dir_all(own.parent().unwrap()).unwrap();
    std::fs::write(&own, "").unwrap();
    let name = drive.file_name().unwrap();
    std::fs::create_dir_all(root.join("sys/class/block").join(name)).unwrap();
    let at = root.join(format!("sys/class/enclosure/{enclosure}"));
    let own = at.join(format!("Slot {slot:02}"));
    std::fs::create_dir_all(own.join("device/block").join(name)).unwrap();
    std::fs::write(own.join("slot"), format!("{slot}\n")).unwrap();
    std::fs::write(at.join("id"), format!("0x50{}\n", &enclosure[..1])).unwrap();
}

#[test]
fn slots_that_are_not_named_are_those_of_the_machines_enclosures() {
    let mut bench = Bench::without_daemon("slots-found");
    let drives = bench.drives("d", 6, 40 * MIB);
    let root = bench.path("machine");
    let at = |name: &str| bench.path(name);
    put(&root, "1:0:8:0", 4, &at("d0"));
    put(&root, "1:0:8:0", 5, &at("d1"));
    put(&root, "2:0:8:0", 4, &at("d2"));
    put(&root, "2:0:8:0", 9, &at("d4"));
    let sysroot = root.to_str().unwrap().to_owned();
    let daemon = ["--sysroot", sysroot.as_str(), "--wait-drives", "0"];
    bench.start_with(&daemon);
    // No names are given: the seats are not dealt to domains, and a drive may be in no enclosure.
    let made = bench.create("tank", "raid5", &drives[..4], &[]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    bench.ok(&["drive", "add", "tank", "d4"]);
    let enclosures = |status: &Value| -> Vec<(Value, Value)> {
        let seats = status["seats"].as_array().unwrap().iter();
        seats
            .map(|seat| (seat["enclosure"].clone(), seat["slot"].clone()))
            .collect()
    };
    let mut expected = vec![
        (json!("0x501"), json!(4)),
        (json!("0x501"), json!(5)),
        (json!("0x502"), json!(4)),
        (Value::Null, Value::Null),
        (json!("0x502"), json!(9)),
    ];
    let found = status(&bench);
    assert_eq!(enclosures(&found), expected);
    assert!(places(&found).iter().all(|(_, domain, _)| domain.is_null()));
    let map = bench.ok(&["pool", "status", "tank", "--map"]);
    for part in [
        "\nenclosure 0x501: 2 drives\n",
        "\nenclosure 0x502: 2 drives\n",
        "| 9: seat 4  |",
        "\nin no known enclosure: a drive\n",
    ] {
        assert!(map.contains(part), "no `{part}` in\n{map}");
    }
    // A drive that is moved while the pool is closed is where it is found; one that is gone was where it was last.
    bench.terminate();
    std::fs::remove_dir_all(root.join("sys/class/enclosure/1:0:8:0/Slot 04")).unwrap();
    put(&root, "2:0:8:0", 0, &bench.path("d0"));
    std::fs::remove_dir_all(root.join("sys/class/enclosure/1:0:8:0/Slot 05")).unwrap();
    std::fs::rename(bench.path("d1"), bench.path("gone-for-now")).unwrap();
    std::fs::create_dir(bench.path("elsewhere")).unwrap();
    std::fs::rename(bench.path("gone-for-now"), bench.path("elsewhere/d1")).unwrap();
    bench.start_with(&daemon);
    expected[0] = (json!("0x502"), json!(0));
    assert_eq!(enclosures(&status(&bench)), expected);
    // `drive list` knows the pool's slots where it does not see the enclosure.
    let listed = bench.json(&["drive", "list", "tank"]);
    assert_eq!(listed["drives"][0]["slot"], "0x502/0");
    assert_eq!(listed["drives"][3]["slot"], Value::Null);
}
