//! `doctor` knows volumes of Ravelin and drives of its pools.

use super::MIB;
use crate::support::bench::Bench;

#[test]
fn a_drive_with_a_label_is_listed_with_its_pool_and_seat() {
    let bench = Bench::new("doctor-member");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    // A copied tree of a machine: a drive of the pool, and one that is none.
    for (disk, content) in [("sda", "d1"), ("sdb", "")] {
        let sys = bench.path(&format!("tree/sys/block/{disk}"));
        std::fs::create_dir_all(&sys).unwrap();
        std::fs::create_dir_all(bench.path("tree/dev")).unwrap();
        std::fs::write(sys.join("size"), "81920\n").unwrap();
        let device = bench.path(&format!("tree/dev/{disk}"));
        match content {
            "" => std::fs::write(device, vec![0; 1 << 20]).unwrap(),
            drive => drop(std::fs::copy(bench.path(drive), device).unwrap()),
        }
    }
    let said = bench.run(&["doctor", "--sysroot", "tree"]);
    let line = said.stdout.lines().find(|line| line.contains("/dev/sda"));
    let line = line.unwrap_or_default();
    assert!(
        line.contains("the drive of seat 1 of Ravelin's pool `tank`"),
        "{}",
        said.stdout
    );
    let json = bench.run(&["doctor", "--sysroot", "tree", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let ours = |index: usize| document["layers"][index]["ravelin"].clone();
    assert_eq!(ours(0), serde_json::json!({ "pool": "tank", "seat": 1 }));
    assert!(ours(1).is_null());
}

#[test]
fn a_loop_device_over_our_file_is_listed_as_the_volume() {
    let bench = Bench::new("doctor-volume");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "8M"]);
    let served = bench.run(&["volume", "attach", "tank/v", "--loop", "--json"]);
    if served.code != 0 {
        return eprintln!("skipped: it needs root, FUSE and loop devices");
    }
    let served: serde_json::Value = serde_json::from_str(&served.stdout).unwrap();
    let device = served["device"].as_str().unwrap();
    // Without a device it is listed, too, though it holds nothing yet.
    for words in [&["doctor", device][..], &["doctor"]] {
        let said = bench.run(words);
        let mut lines = said.stdout.lines();
        let line = lines.find(|line| line.starts_with(&format!("{device} ")));
        let line = line.unwrap_or_else(|| panic!("no {device} in:\n{}", said.stdout));
        assert!(line.contains("Ravelin's volume `tank/v`"), "{line}");
    }
    bench.ok(&["volume", "detach", "tank/v"]);
}
