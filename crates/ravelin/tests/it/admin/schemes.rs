//! What a scheme means: copies, domains, sizes of pieces, and the answer to names of other systems.

use std::os::unix::fs::FileExt;

use super::MIB;
use crate::support::bench::Bench;

/// Regression: `raid1` on three drives kept two copies. A second failure lost data of which an administrator who knows
/// md or zpool expects a copy on the third drive.
#[test]
fn raid1_keeps_a_copy_on_every_drive() {
    let bench = Bench::new("raid1");
    let drives = bench.drives("d", 7, 40 * MIB);
    for (count, more, scheme) in [
        (2, &[][..], "raid1"),
        (3, &[], "raid1:3r"),
        (3, &["spare", "d6"], "raid1:3r"),
        (5, &[], "raid1:5r"),
    ] {
        let made = bench.create("tank", "raid1", &drives[..count], more);
        assert_eq!(made.code, 0, "{}", made.stderr);
        let status = bench.json(&["pool", "status", "tank"]);
        assert_eq!(status["scheme"], scheme);
        assert_eq!(status["survives_drives"], count - 1);
        let said = format!("copies:   {count} of each block");
        assert!(made.stdout.contains(&said), "{}", made.stdout);
        bench.ok(&["volume", "create", "tank/v", "--size", "8M"]);
        let attach = ["volume", "attach", "tank/v", "--nbd", "unix:nbd"];
        let uri = bench.json(&attach)["uri"].as_str().unwrap().to_owned();
        let mut client = export::nbd::Client::connect(&uri.parse().unwrap(), None).unwrap();
        let pattern: Vec<u8> = (1..=241).cycle().take(4 << 20).collect();
        client.write(0, &pattern, false).unwrap();
        client.flush().unwrap();
        for seat in 1..count {
            bench.ok(&["drive", "offline", "tank", &seat.to_string()]);
        }
        assert_eq!(client.read(0, pattern.len()).unwrap(), pattern, "{count}");
        client.disconnect().unwrap();
        bench.ok(&["pool", "destroy", "tank", "--yes"]);
    }
    // A number of copies that the scheme states is kept.
    assert_eq!(bench.create("tank", "raid1:2r", &drives[..4], &[]).code, 0);
    assert_eq!(
        bench.json(&["pool", "status", "tank"])["scheme"],
        "raid1:2r"
    );
}

/// Regression: sixty drives above 8 GiB were refused, because the table of a `ddp` pool did not fit into a label.
#[test]
fn a_ddp_pool_of_sixty_large_drives_has_pieces_whose_table_fits() {
    let bench = Bench::new("sixty");
    let drives = bench.drives("d", 60, 100 << 30);
    let plan = bench.create("tank", "ddp", &drives, &["-n", "--json"]);
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    let plan: serde_json::Value = serde_json::from_str(&plan.stdout).unwrap();
    assert!(plan["capacity_bytes"].as_u64().unwrap() > 40 * (100 << 30));
    // A stated piece size is never changed: if its table does not fit, creation fails.
    bench
        .create("tank", "ddp", &drives, &["-n", "-o", "piece=16M"])
        .refused(2, &["the layout's table takes", "larger pieces"]);
}

/// Regression: `raid50` was answered with "try raid0", `mirror3` with "try draid3", and a forgotten scheme with "try
/// ddp".
#[test]
fn another_systems_name_is_answered_with_the_scheme_that_is_meant() {
    let bench = Bench::new("foreign");
    let drives = bench.drives("d", 12, 40 * MIB);
    for (name, count, scheme) in [
        ("stripe", 4, "raid0"),
        ("mirror3", 3, "raid1:3r"),
        ("raid01", 4, "raid10"),
        ("raid1+0", 4, "raid10"),
        ("raidz", 4, "raid5"),
        ("raidz2", 6, "raid6"),
        ("raidz3", 8, "raid7"),
        ("raid50", 6, "raid5:2d"),
        ("raid50", 12, "raid5:5d"),
        ("raid60", 8, "raid6:2d"),
        ("raid5ee", 6, "pddl1:1s"),
        ("shr2", 6, "raid6"),
        ("riad6", 6, "raid6"),
    ] {
        let drives = &drives[..count];
        let tried = format!("try: `{scheme}`");
        bench
            .create("tank", name, drives, &["-n"])
            .refused(2, &[&format!("`{name}` is not a layout"), &tried]);
        let meant = bench.create("tank", scheme, drives, &["-n"]);
        assert_eq!(meant.code, 0, "{scheme}: {}", meant.stderr);
    }
    let unknown = bench.create("tank", "raid8", &drives, &["-n"]);
    unknown.refused(2, &["`raid8` is not a layout", "names are raid0, raid1"]);
    assert!(!unknown.stderr.contains("try: `"), "{}", unknown.stderr);
    assert_eq!(
        bench.create("tank", "mirror", &drives[..2], &["-n"]).code,
        0
    );
    for forgotten in ["./d11", "d11", "/dev/null"] {
        bench
            .create("tank", forgotten, &drives[..2], &["-n"])
            .refused(
                2,
                &["no scheme was given", "is a drive's name", "ravelin advise"],
            );
    }
}

/// A label of an earlier version names an elastic scheme: status shows the plain scheme that the pool has.
#[test]
fn a_pool_that_was_made_as_elastic_is_shown_as_what_it_is() {
    let bench = Bench::new("label");
    let drives = bench.drives("d", 4, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5:2d:1s", &drives, &[]).code, 0);
    bench.ok(&["pool", "export", "tank"]);
    // In every label: replaces the scheme by one of the same length, and updates the checksum.
    for drive in &drives {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(bench.path(drive))
            .unwrap();
        for offset in array::format::LABEL_OFFSETS {
            let mut slot = vec![0; array::format::LABEL_SLOT_BYTES];
            file.read_exact_at(&mut slot, offset).unwrap();
            let Ok(mut label) = array::format::Label::parse(&slot) else {
                continue;
            };
            assert_eq!(label.facts.scheme, "raid5:2d:1s");
            label.facts.scheme = "elastic5:2d:1s".to_owned();
            file.write_all_at(&label.encode(), offset).unwrap();
        }
    }
    let found = bench.json(&["pool", "import", "--dir", "."]);
    assert_eq!(found["pools"][0]["scheme"], "raid5:2d:1s");
    let opened = bench.json(&["pool", "import", "--dir", ".", "tank"]);
    assert_eq!(opened["scheme"], "raid5:2d:1s");
}
