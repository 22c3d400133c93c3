//! Elastic schemes at `pool create`: plans, and what is refused with the arithmetic and the nearest thing that works.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::MIB;
use crate::support::bench::{Bench, Ran};
use crate::support::writer;

const PHYSICAL: u64 = 256 * MIB;
/// Longer than anything takes here.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Drives that compress and expose `exposed` of 1 GiB.
fn compressing(bench: &Bench, prefix: &str, count: usize, exposed: &str) -> Vec<String> {
    let files = bench.drives(prefix, count, 1 << 30);
    let drives = files.iter();
    { drives.map(|file| format!("compress:{file}?physical=256M&exposed={exposed}")) }.collect()
}

/// Nothing was ever written to the sparse file.
fn is_untouched(bench: &Bench, file: &str) -> bool {
    std::fs::metadata(bench.path(file)).unwrap().blocks() == 0
}

fn plan(bench: &Bench, scheme: &str, drives: &[String], more: &[&str]) -> Value {
    let ran = bench.create("tank", scheme, drives, &[more, &["-n", "--json"]].concat());
    assert_eq!(ran.code, 0, "{scheme}: {}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn a_plan_shows_the_capacity_at_three_ratios() {
    let bench = Bench::new("ratios");
    let drives = compressing(&bench, "d", 4, "922M");
    let planned = plan(&bench, "elastic5:1.8x", &drives, &[]);
    assert_eq!(planned["scheme"], "elastic5:1.8x");
    // Data and parity have the capacity of a raid5 on drives of 1.8 times the physical space.
    let of_plane = bench.drives("p", 4, PHYSICAL * 18 / 10);
    let plain = plan(&bench, "raid5", &of_plane, &[]);
    let (of_planes, of_plain) = (&planned["capacity_bytes"], &plain["capacity_bytes"]);
    let [of_planes, of_plain] = [of_planes, of_plain].map(|bytes| bytes.as_f64().unwrap());
    // Journal and labels are of the drive, whatever the number of its planes.
    assert!(
        (0.97..1.1).contains(&(of_planes / of_plain)),
        "{planned} {plain}"
    );
    let capacity = planned["capacity_bytes"].as_f64().unwrap();

    // Regression: the planes of copies counted as parity, and nothing was left for metadata.
    let part = |key: &str| planned["plan"][key].as_u64().unwrap();
    let parts = ["usable", "parity", "spare", "metadata", "wasted"];
    let sum: u64 = parts.iter().map(|of| part(&format!("{of}_bytes"))).sum();
    assert_eq!(sum, part("raw_bytes"), "{planned}");
    assert!(part("metadata_bytes") > 4 << 20, "{planned}");
    assert!((2.9..3.1).contains(&(capacity / part("parity_bytes") as f64)));

    let elastic = &planned["plan"]["elastic"];
    assert_eq!(elastic["expansion"], 1.8);
    assert_eq!(elastic["physical_bytes"], 4 * PHYSICAL);
    assert_eq!(elastic["exposed_bytes"], 4 * 922 * MIB);
    let at = |index: usize, key: &str| elastic["capacities"][index][key].as_f64().unwrap();
    let net = (4 * PHYSICAL) as f64 - elastic["reserve_bytes"].as_f64().unwrap();
    assert!(net < 0.95 * (4 * PHYSICAL) as f64 && net > 0.8 * (4 * PHYSICAL) as f64);
    // Three quarters are data; nothing is left for copies.
    assert_eq!((at(0, "ratio"), at(0, "coverage")), (1.0, 0.0));
    assert!((at(0, "capacity_bytes") / (net * 0.75) - 1.0).abs() < 0.001);
    assert_eq!((at(1, "ratio"), at(1, "coverage")), (1.8, 0.0));
    assert!(at(1, "capacity_bytes") <= capacity && at(1, "capacity_bytes") > 0.9 * capacity);
    // 2.7 if labels, journal and checksums took nothing.
    assert!((2.65..2.95).contains(&at(2, "ratio")), "{elastic}");
    assert!(at(2, "coverage") > 0.999 && at(2, "capacity_bytes") > 0.999 * capacity);

    let text = bench.create("tank", "elastic5:1.8x", &drives, &["-n"]);
    assert_eq!(text.code, 0, "{}", text.stderr);
    for part in [
        "as elastic5:1.8x, nothing written",
        "drives expose 3.60 GiB and store 1 GiB",
        "   1 to 1, ",
        " 1.8 to 1, ",
        "as parity",
        "all as copies",
    ] {
        assert!(text.stdout.contains(part), "no {part} in {}", text.stdout);
    }
    // With an expansion of 1 there are two.
    let text = bench.create("tank", "elastic5:1x", &drives, &["-n"]);
    let count = text.stdout.matches(" to 1, ").count();
    assert_eq!(count, 2, "{}{}", text.stdout, text.stderr);
}

/// Without an expansion the drives decide; with options the scheme is the same.
#[test]
fn the_expansion_is_what_the_drives_expose_unless_it_is_given() {
    let bench = Bench::new("expansion");
    let drives = compressing(&bench, "d", 9, "768M");
    for (scheme, count, more, expected) in [
        ("elastic5", 4, &[][..], "elastic5:1.5x"),
        ("raid5:elastic", 4, &[], "elastic5:1.5x"),
        ("raid5:la", 4, &["-o", "elastic=on"], "elastic5:la:1.5x"),
        ("raid5", 4, &["-o", "expansion=1.2"], "elastic5:1.2x"),
        (
            "raid5",
            4,
            &["-o", "expansion=1.2x", "-o", "elastic=on"],
            "elastic5:1.2x",
        ),
        ("elastic6", 6, &[], "elastic6:1x"),
        ("pddl1:elastic:2d", 7, &[], "pddl1:2d:1.5x"),
        ("pddl2:elastic:4d:1s", 7, &[], "pddl2:4d:1s:1x"),
        ("ddp:elastic:4d:1p", 9, &[], "ddp:4d:1p:1.5x"),
        ("elastic5:3d:8c", 8, &[], "elastic5:3d:8c:1.5x"),
    ] {
        let planned = plan(&bench, scheme, &drives[..count], more);
        assert_eq!(planned["scheme"], expected, "{scheme}");
        let coverage = &planned["plan"]["elastic"]["capacities"][2]["coverage"];
        assert!(coverage.as_f64().unwrap() > 0.999, "{scheme}: {planned}");
    }
    assert_eq!(
        plan(&bench, "raid5", &drives[..4], &["-o", "elastic=off"])["scheme"],
        "raid5"
    );
}

#[test]
fn what_cannot_be_elastic_is_refused_with_the_arithmetic_and_what_works() {
    let bench = Bench::new("refused");
    let plain = bench.drives("f", 5, 512 * MIB);
    let drives = compressing(&bench, "d", 8, "800M");
    let create = |scheme: &str, drives: &[String], more: &[&str]| -> Ran {
        bench.create("tank", scheme, drives, &[more, &["-n"]].concat())
    };
    // Drives that do not know their use.
    create("elastic5", &plain, &[]).refused(
        2,
        &[
            "f0 does not know how much",
            "?physical=SIZE`",
            "mem_limit",
            "`raid5`",
        ],
    );
    let mixed = [&drives[..3], &plain[..1]].concat();
    create("elastic6:1x", &mixed, &[]).refused(2, &["f0 does not know", "`raid6`"]);
    create(
        "elastic5",
        &[&drives[..3], &["spare".to_owned()], &plain[..1]].concat(),
        &[],
    )
    .refused(2, &["f0 does not know"]);
    // Less than (p + 1) times the expansion, with the largest that works.
    create("elastic5:1.8x", &drives[..4], &[]).refused(
        2,
        &[
            "exposes 800 MiB and stores 256 MiB physically",
            "2 planes of 1.8 times that are 921.6 MiB",
            "try: `elastic5:1.562x`",
            "expose 922 MiB or more",
        ],
    );
    let planned = create("elastic5:1.562x", &drives[..4], &[]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    create("elastic6:1.8x:6c", &drives[..6], &[]).refused(
        2,
        &[
            "3 planes of 1.8 times that are 1.35 GiB",
            "`elastic6:6c:1.041x`",
        ],
    );
    let narrow = compressing(&bench, "n", 4, "500M");
    create("elastic5", &narrow, &[]).refused(
        2,
        &[
            "2 planes of 1 times that are 512 MiB",
            "try: let each drive expose 512 MiB or more",
        ],
    );
    // Ratios that differ, and sizes that differ with one ratio.
    let mut unequal = drives[..4].to_vec();
    unequal[2] = unequal[2].replace("256M", "200M");
    create("elastic5:1x", &unequal, &[]).refused(
        2,
        &[
            "3.12 times its physical space",
            "d2",
            "4.00 times",
            "same multiple",
        ],
    );
    unequal[2] = unequal[2].replace("800M", "625M");
    let planned = create("elastic5:1x", &unequal, &[]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    // Expansions that are none.
    create("elastic5:0.9x", &drives[..4], &[]).refused(2, &["takes 1 to 16", "`1x`"]);
    create("raid5", &drives[..4], &["-o", "expansion=0.9"]).refused(2, &["takes 1 to 16", "`1x`"]);
    create("raid5", &drives[..4], &["-o", "expansion=much"]).refused(2, &["is not a ratio", "1.8"]);
    create("raid5", &drives[..4], &["-o", "elastic=maybe"]).refused(2, &["on or off"]);
    create(
        "raid5",
        &drives[..4],
        &["-o", "elastic=off", "-o", "expansion=2"],
    )
    .refused(2, &["leave one of them out"]);
    // Array codes, three parities, mirrors.
    create(
        "raid6",
        &drives[..7],
        &["-o", "elastic=on", "-o", "code=rdp"],
    )
    .refused(2, &["has several rows", "`elastic6`"]);
    create("raid7", &drives[..5], &["-o", "elastic=on"])
        .refused(2, &["one parity or two", "`elastic6`"]);
    create("raid10", &drives[..4], &["-o", "elastic=on"])
        .refused(2, &["always copies", "`elastic5`"]);
    create("raid0", &drives[..4], &["-o", "expansion=1.5"])
        .refused(2, &["no parity", "`elastic5:1.5x`"]);
    // Without a journal.
    create(
        "elastic5:1x",
        &drives[..4],
        &["-o", "journal=intent", "-o", "checksum=off"],
    )
    .refused(
        2,
        &[
            "through the journal",
            "leave out -o journal=intent",
            "`raid5`",
        ],
    );
    // Stripes of a group, and the record of one.
    create(
        "elastic5:1x",
        &drives[..4],
        &["-o", "chunk=4K", "-o", "cell=32M"],
    )
    .refused(
        2,
        &[
            "cells of 32 MiB with chunks of 4 KiB make 8192 stripes",
            "4096 at most",
            "-o chunk=8K",
        ],
    );
    let planned = create(
        "elastic5:1x",
        &drives[..4],
        &["-o", "chunk=8K", "-o", "cell=32M"],
    );
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    create(
        "elastic6:1x",
        &drives[..8],
        &["-o", "chunk=512K", "-o", "cell=16M"],
    )
    .refused(
        2,
        &[
            "12 copies of 512 KiB, whose checksums take 6480 bytes",
            "-o chunk=256K",
        ],
    );
    let planned = create(
        "elastic6:1x",
        &drives[..8],
        &["-o", "chunk=256K", "-o", "cell=16M"],
    );
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    for file in ["f0", "d0", "n0"] {
        assert!(is_untouched(&bench, file), "{file}");
    }
}

/// Regression: drives of some tebibytes have cells of which 64 KiB make too many stripes, and the chunk that was named
/// instead had no room in the record of a stripe.
#[test]
fn chunks_follow_the_cells_of_large_drives_and_a_chunk_that_is_named_works() {
    let bench = Bench::new("large");
    let large = |count: usize, exposed: u64, physical: u64| -> Vec<String> {
        let files = bench.drives(&format!("l{exposed}-"), count, exposed << 40);
        { files.iter() }
            .map(|file| format!("compress:{file}?physical={physical}T"))
            .collect()
    };
    let drives = large(13, 8, 4);
    let planned = plan(&bench, "ddp:elastic:4d:1p", &drives, &[]);
    let arithmetic = planned["arithmetic"].as_str().unwrap();
    assert!(arithmetic.contains("rows of 4 GiB"), "{planned}");
    // 4,096 of 2 GiB are chunks of 512 KiB. With eight data columns and two parities such a chunk has no room.
    let wide = large(13, 8, 2);
    bench
        .create(
            "tank",
            "ddp:elastic:4d:1p",
            &drives,
            &["-n", "-o", "chunk=256K"],
        )
        .refused(2, &["8192 stripes", "-o chunk=512K"]);
    bench
        .create("tank", "ddp:elastic:1x", &wide, &["-n"])
        .refused(2, &["narrower stripes"]);
    bench
        .create("tank", "ddp:elastic:1x", &wide, &["-n", "-o", "chunk=1M"])
        .refused(2, &["16 copies of 1 MiB", "narrower stripes"]);
}

#[test]
fn stripes_become_copies_and_parity_again_as_the_share_says() {
    let bench = Bench::new("shares");
    let drives = compressing(&bench, "d", 4, "768M");
    let created = bench.create("tank", "elastic5", &drives, &[]);
    assert_eq!(created.code, 0, "{}", created.stderr);
    bench.ok(&["volume", "create", "tank/v", "--size", "24M"]);
    let export = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    let uri = export["uri"].as_str().unwrap().to_owned();
    let mut client = writer::connect(&uri, TIMEOUT);
    let bytes: Vec<u8> = (0..8 * MIB)
        .map(|at| u8::try_from(at / 4096 % 251).unwrap())
        .collect();
    client.write(0, &bytes, false).unwrap();
    client.flush().unwrap();
    for (share, expected) in [("auto", 1.0), ("25", 0.25), ("0", 0.0), ("100%", 1.0)] {
        let set = bench.json(&["pool", "elastic", "tank", share]);
        assert_eq!(
            set["elastic"]["target_percent"].is_null(),
            share == "auto",
            "{set}"
        );
        let deadline = Instant::now() + TIMEOUT;
        let near = |status: &Value| {
            let coverage = status["elastic"]["coverage"].as_f64();
            let written = status["elastic"]["written_stripes"].as_u64();
            written > Some(30)
                && coverage.is_some_and(|coverage| (coverage - expected).abs() < 0.03)
        };
        loop {
            let status = bench.json(&["pool", "status", "tank"]);
            if near(&status) {
                break;
            }
            assert!(Instant::now() < deadline, "{share}: {}", status["elastic"]);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(client.read(0, bytes.len()).unwrap() == bytes, "{share}");
    }
    client.disconnect().unwrap();
    let text = bench.ok(&["pool", "elastic", "tank"]);
    assert!(text.contains("of the stripes are copies"), "{text}");
    let scrubbed = bench.json(&["pool", "scrub", "tank", "--wait"]);
    assert_eq!(scrubbed["scrub"]["bad_blocks"], 0, "{scrubbed}");
}

#[test]
fn a_pool_whose_stripes_have_one_form_has_no_share() {
    let bench = Bench::new("plain");
    let drives = bench.drives("d", 4, 64 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    let refused = bench.run(&["pool", "elastic", "tank", "50"]);
    refused.refused(1, &["the pool is not elastic", "elastic5"]);
    bench
        .run(&["pool", "elastic", "tank", "101"])
        .refused(2, &["say auto, or a percentage"]);
    let status = bench.json(&["pool", "status", "tank"]);
    assert!(status["elastic"].is_null(), "{status}");
}

/// Regression: only `pool create` asked for drives that compress alike. A spare that did not know its use came in, and
/// nothing limited what was written to it.
#[test]
fn drives_that_join_are_asked_for_what_those_at_creation_are() {
    let bench = Bench::new("join");
    let drives = compressing(&bench, "d", 6, "768M");
    let created = bench.create("tank", "elastic5:1.5x", &drives[..4], &[]);
    assert_eq!(created.code, 0, "{}", created.stderr);
    let plain = bench.drives("f", 1, 1 << 30).remove(0);
    let other = |exposed, physical| {
        compressing(&bench, "o", 1, exposed)[0].replace("physical=256M", physical)
    };
    let narrow = other("768M", "physical=300M");
    let unequal = other("1G", "physical=256M");
    let away = &drives[2];
    for offline in [false, true] {
        // A working drive is replaced with its data in use, one that is away is filled anew: both are checked.
        if offline {
            bench.ok(&["drive", "offline", "tank", away]);
        }
        for command in [
            &["drive", "add", "tank"][..],
            &["drive", "replace", "tank", away],
        ] {
            let refused = |drive: &str, parts: &[&str]| {
                let words = [command, &[drive, "--yes"]].concat();
                bench.run(&words).refused(1, parts);
            };
            let physical = ["f0 does not know how much", "f0?physical=SIZE`, or a zram"];
            refused(&plain, &physical);
            refused(
                &narrow,
                &[
                    "exposes 768 MiB and stores 300 MiB physically",
                    "2 planes of 1.5 times that are 900 MiB",
                    "try: let each drive expose 900 MiB or more",
                ],
            );
            refused(
                &unequal,
                &["exposes 3.00 times", "4.00 times", "same multiple"],
            );
        }
    }
    let status = bench.json(&["pool", "status", "tank"]);
    assert_eq!(status["seats"].as_array().unwrap().len(), 4, "{status}");
    assert!(is_untouched(&bench, "f0") && is_untouched(&bench, "o0"));
    bench.ok(&["drive", "replace", "tank", away, &drives[4], "--yes"]);
    bench.ok(&["drive", "add", "tank", &drives[5], "--yes"]);
    bench.ok(&["pool", "wait", "tank", "--for", "rebuild"]);
    let status = bench.json(&["pool", "status", "tank"]);
    assert_eq!(status["health"], "healthy", "{status}");
}
