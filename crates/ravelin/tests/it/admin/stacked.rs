//! Pools over volumes of other pools: data, failures and restarts pass through, and nothing pulls a pool from under
//! another one.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use testing::eventually;

use super::MIB;
use crate::support::bench::Bench;
use crate::support::writer::{self, Target, Writer};

/// Longer than a pool below takes to do without a drive that hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What the writer writes to.
const REGION: usize = 8 << 20;

/// Drives of a pool below, one of which fails in this way while the file exists.
fn one_fails(bench: &Bench, pool: &str, how: &str) -> (Vec<String>, PathBuf) {
    let mut drives = bench.drives(pool, 4, 160 * MIB);
    let file = bench.path(&format!("fails-{pool}"));
    let while_there = format!("fail={how}&times=all&on=any&while={}", file.display());
    drives[3] = format!("faulty:{}?{while_there}", drives[3]);
    (drives, file)
}

/// Pools `left` and `right` with a volume `v` each, and `top` over both with a volume `x`; what makes a drive of `left`
/// hang, and one of `right` return errors.
fn stack(bench: &Bench) -> [PathBuf; 2] {
    let failing = [("left", "hang"), ("right", "eio")].map(|(pool, how)| {
        let (drives, file) = one_fails(bench, pool, how);
        let created = bench.create(pool, "raid5", &drives, &[]);
        assert_eq!(created.code, 0, "{}", created.stderr);
        bench.ok(&["volume", "create", &format!("{pool}/v"), "--size", "128M"]);
        file
    });
    let created = bench.create("top", "raid0", &volumes(), &[]);
    assert_eq!(created.code, 0, "{}", created.stderr);
    bench.ok(&["volume", "create", "top/x", "--size", "64M"]);
    failing
}

fn volumes() -> Vec<String> {
    ["volume:left/v", "volume:right/v"]
        .map(str::to_owned)
        .into()
}

fn attach(bench: &Bench, volume: &str) -> String {
    let socket = format!("unix:{}", volume.replace('/', "-"));
    let served = bench.json(&["volume", "attach", volume, "--nbd", &socket]);
    served["uri"].as_str().unwrap().to_owned()
}

fn health(bench: &Bench, pool: &str) -> String {
    let status = bench.json(&["pool", "status", pool]);
    status["health"].as_str().unwrap().to_owned()
}

/// The drives of `top`: none has failed, and none was suspected to.
#[track_caller]
fn top_is_whole(bench: &Bench) {
    let status = bench.json(&["pool", "status", "top"]);
    assert_eq!(status["health"], "healthy", "{status}");
    let seats = status["seats"].as_array().unwrap();
    for (seat, path) in seats.iter().zip(volumes()) {
        assert_eq!(
            (&seat["state"], &seat["path"]),
            (&"current".into(), &path.into())
        );
        let errors = |key: &str| seat[key].as_u64().unwrap_or(0);
        assert_eq!(errors("errors") + errors("bad_blocks"), 0, "{seat}");
    }
}

#[track_caller]
fn verifies(uri: &str, log: &std::path::Path) {
    let mut client = writer::connect(uri, TIMEOUT);
    writer::verify(&client.read(0, REGION).unwrap(), log);
    client.disconnect().unwrap();
}

/// The drive of `left` that hangs delays the heartbeat and the writes of `top` for longer than `top` waits for a drive:
/// `top` must wait for the verdict of `left` all the same.
#[test]
fn a_stripe_over_two_pools_goes_on_while_a_drive_of_each_fails_and_after_a_kill() {
    let mut bench = Bench::new("stack");
    let failing = stack(&bench);
    let uri = attach(&bench, "top/x");
    let log = bench.path("log");
    let mut client = Writer::start(Target::Nbd(&uri), 0, REGION as u64, &log);
    client.has_flushed(TIMEOUT);
    for (pool, file) in ["left", "right"].into_iter().zip(&failing) {
        std::fs::write(file, "").unwrap();
        eventually("the pool does without the drive", || {
            health(&bench, pool) != "healthy"
        });
        client.has_flushed(TIMEOUT);
    }
    top_is_whole(&bench);
    for _ in 0..3 {
        client.has_flushed(TIMEOUT);
        bench.kill();
        // The next daemon would look at the drive for 20 s, and clients wait no longer. The drive stays out.
        std::fs::remove_file(&failing[0]).ok();
        bench.start();
        client.has_flushed(TIMEOUT);
        top_is_whole(&bench);
    }
    std::fs::remove_file(&failing[1]).unwrap();
    client.stop(TIMEOUT);
    verifies(&uri, &log);
    for pool in ["left", "right"] {
        bench.ok(&["drive", "online", pool, "3"]);
        bench.ok(&["pool", "wait", pool, "--for", "rebuild"]);
        assert_eq!(health(&bench, pool), "healthy");
    }
    for pool in ["top", "left", "right"] {
        let scrubbed = bench.json(&["pool", "scrub", pool, "--wait"]);
        assert_eq!(scrubbed["scrub"]["bad_blocks"], 0, "{pool}: {scrubbed}");
    }
    // A stop closes the pool above first, so that nothing is found in journals.
    assert_eq!(bench.terminate(), Some(0));
    assert!(!bench.log().contains("was not closed"), "{}", bench.log());
    bench.start();
    verifies(&uri, &log);
}

/// All that a refused command must leave as it was: pools with their drives, volumes with their exports, and what the
/// next start restores.
fn state(bench: &Bench) -> (Vec<Value>, Vec<Value>, String) {
    let listed = |what: &str, keys: &[&str]| -> Vec<Value> {
        let list = bench.json(&[what, "list"]);
        let all = list[format!("{what}s")].as_array().unwrap().iter();
        { all.flat_map(|one| keys.iter().map(|key| one[key].clone())) }.collect()
    };
    let saved = std::fs::read_to_string(bench.path("socket.state/exports.json"));
    (
        listed("pool", &["name", "uuid", "drives", "volumes"]),
        listed("volume", &["pool", "name", "uuid", "size_bytes"]),
        saved.unwrap(),
    )
}

#[test]
fn what_would_pull_a_pool_from_under_another_is_refused_also_with_force() {
    let bench = Bench::new("under");
    stack(&bench);
    let before = state(&bench);
    let refused = |words: &[&str], parts: &[&str]| bench.run(words).refused(1, parts);
    for pool in ["left", "right"] {
        let above = ["pool `top` stands on it", "`ravelin pool export top` first"];
        for command in [
            &["pool", "export", pool][..],
            &["pool", "export", pool, "--force"],
            &["pool", "destroy", pool, "--yes"],
            &["pool", "destroy", pool, "--yes", "--force"],
        ] {
            refused(command, &above);
        }
        let volume = format!("{pool}/v");
        let seat = usize::from(pool == "right");
        let seat = format!("it is the drive of seat {seat} of pool `top`");
        let above = [&*seat, "`ravelin pool export top` first"];
        for command in [
            &["volume", "attach", &volume, "--nbd", "unix:v"][..],
            &["volume", "delete", &volume, "--yes"],
            &["volume", "rename", &volume, "w"],
            &["volume", "resize", &volume, "--size", "64M", "--yes"],
            &[
                "volume", "resize", &volume, "--size", "64M", "--yes", "--force",
            ],
            &[
                "bench", &volume, "--rw", "write", "--time", "1", "--yes", "--force",
            ],
        ] {
            refused(command, &above);
        }
    }
    assert_eq!(state(&bench), before);
    bench.ok(&["volume", "resize", "left/v", "--size", "+8M"]);
    top_is_whole(&bench);
    // In order all of it works.
    for pool in ["top", "left", "right"] {
        bench.ok(&["pool", "export", pool]);
    }
}

#[test]
fn a_volume_that_cannot_be_a_drive_is_refused_with_one_message_and_nothing_changes() {
    let bench = Bench::new("cannot");
    stack(&bench);
    bench.ok(&["volume", "create", "left/free", "--size", "32M"]);
    bench.ok(&["volume", "create", "left/busy", "--size", "32M"]);
    bench.ok(&["volume", "create", "left/small", "--size", "1M"]);
    bench.ok(&["volume", "create", "top/y", "--size", "32M"]);
    attach(&bench, "left/busy");
    // Only `top` takes volumes, and `over` stands on it.
    let over = bench.create(
        "over",
        "raid0",
        &["volume:top/y".to_owned(), "mem:32M".to_owned()],
        &[],
    );
    assert_eq!(over.code, 0, "{}", over.stderr);
    bench.ok(&["volume", "create", "over/z", "--size", "8M"]);
    let before = state(&bench);
    let create = |scheme: &str, drives: &[&str], code: i32, parts: &[&str]| {
        let drives: Vec<String> = drives.iter().map(|&drive| drive.to_owned()).collect();
        let ran = bench.create("new", scheme, &drives, &["--force", "--yes"]);
        ran.refused(code, parts);
        assert_eq!(ran.stderr.lines().count(), 2, "{}", ran.stderr);
    };
    let free = "volume:left/free";
    create(
        "raid1",
        &[free, "mem:32M"],
        2,
        &["only raid0 takes volumes"],
    );
    create(
        "raid5",
        &["mem:32M", "mem:32M", "slow:volume:left/free?iops=9"],
        2,
        &["only raid0"],
    );
    create(
        "raid0",
        &[free, "volume:left/busy"],
        1,
        &[
            "volume:left/busy: it is attached to unix:",
            "`ravelin volume detach left/busy` first",
        ],
    );
    create(
        "raid0",
        &[free, "volume:left/v"],
        1,
        &["in use: it has seat 0 of pool `top`"],
    );
    create(
        "raid0",
        &[free, "volume:left/none"],
        1,
        &["no pool that is open here has this volume"],
    );
    create(
        "raid0",
        &[free, "volume:none/v"],
        1,
        &["`ravelin pool import` opens their pool"],
    );
    create("raid0", &[free, free], 2, &["is named twice"]);
    create(
        "raid0",
        &[free, "volume:left/small"],
        2,
        &["volume:left/small"],
    );
    create(
        "raid0",
        &[free, "volume:left"],
        2,
        &["names no volume of a pool", "volume:POOL/NAME"],
    );
    for (pool, drive, parts) in [
        (
            "top",
            "volume:top/x",
            ["circle of pools: top -> top", "does not stand on `top`"],
        ),
        (
            "top",
            "volume:over/z",
            [
                "circle of pools: top -> over -> top",
                "does not stand on `top`",
            ],
        ),
        (
            "left",
            free,
            ["only raid0 takes volumes", "create a raid0 pool"],
        ),
    ] {
        for command in [
            &["drive", "add", pool, drive][..],
            &["drive", "replace", pool, "0", drive],
        ] {
            let ran = bench.run(&[command, &["--yes", "--force"]].concat());
            assert_ne!(ran.code, 0, "{command:?}");
            ran.refused(ran.code, &parts);
        }
    }
    assert_eq!(state(&bench), before);
    top_is_whole(&bench);
}

/// Bytes that the files occupy on their file system.
fn used_bytes(bench: &Bench) -> u64 {
    let files = ["left", "right"].into_iter();
    let files = files.flat_map(|pool| (0..4).map(move |number| format!("{pool}{number}")));
    let blocks = files.map(|file| std::fs::metadata(bench.path(&file)).unwrap().blocks());
    blocks.sum::<u64>() * 512
}

#[test]
fn discards_reach_the_drives_below_and_a_volume_takes_the_seat_of_another() {
    let bench = Bench::new("through");
    stack(&bench);
    let uri = attach(&bench, "top/x");
    let mut client = writer::connect(&uri, TIMEOUT);
    let empty = used_bytes(&bench);
    for at in 0..48 {
        client.write(at * MIB, &[7; 1 << 20], false).unwrap();
    }
    client.flush().unwrap();
    let full = used_bytes(&bench);
    assert!(
        full > empty + 48 * MIB,
        "{empty} bytes before, {full} after"
    );
    // While it is written to, half of it moves to another volume.
    bench.ok(&["volume", "create", "right/other", "--size", "128M"]);
    bench.ok(&[
        "drive",
        "replace",
        "top",
        "0",
        "volume:right/other",
        "--yes",
    ]);
    bench.ok(&["pool", "wait", "top", "--for", "rebuild"]);
    let is_there = |at: u64| client.read(at * MIB, 1 << 20).unwrap() == [7; 1 << 20];
    assert!({ 0..48 }.all(is_there));
    bench.ok(&["volume", "delete", "left/v", "--yes"]);
    bench
        .run(&["volume", "delete", "right/other", "--yes"])
        .refused(1, &["of pool `top`"]);
    client.trim(0, 48 << 20).unwrap();
    client.flush().unwrap();
    eventually("the space comes back", || {
        used_bytes(&bench) < empty + 24 * MIB
    });
    client.disconnect().unwrap();
}

#[test]
fn a_pool_over_volumes_waits_for_the_pools_below_and_is_imported_by_hand() {
    let mut bench = Bench::new("waits");
    stack(&bench);
    let uri = attach(&bench, "top/x");
    let mut client = writer::connect(&uri, TIMEOUT);
    client.write(0, &[7; 1 << 20], true).unwrap();
    drop(client);
    bench.kill();
    // The shelf of `left` is switched on late.
    let place = bench.directory.clone();
    let shelf = |from: &str, to: &str| {
        for number in 0..4 {
            let [from, to] = [from, to].map(|name| place.join(format!("{name}{number}")));
            std::fs::rename(from, to).unwrap();
        }
    };
    shelf("left", "off");
    bench.start_and_ask(&["--wait-drives", "60"]);
    assert_eq!(health(&bench, "right"), "healthy");
    let attached = bench.run(&["volume", "attach", "right/v", "--nbd", "unix:v"]);
    attached.refused(1, &["it is a drive of pool `top`, which is not open yet"]);
    let destroyed = bench.run(&["pool", "destroy", "right", "--yes"]);
    destroyed.refused(1, &["pool `top` stands on it, and is not open yet"]);
    let listed = bench.run(&["pool", "list", "--json"]).stdout;
    assert!(listed.contains("a pool below waits for drives"), "{listed}");
    shelf("off", "left");
    bench.wait_until_it_answers();
    let reads = |bench: &Bench| {
        let mut client = writer::connect(&uri, TIMEOUT);
        assert_eq!(client.read(0, 1 << 20).unwrap(), [7; 1 << 20]);
        client.disconnect().unwrap();
        top_is_whole(bench);
    };
    reads(&bench);

    for pool in ["top", "left", "right"] {
        bench.ok(&["pool", "export", pool]);
    }
    bench
        .run(&["pool", "import", "top"])
        .refused(1, &["no pool `top` was found"]);
    let directory = bench.path("").display().to_string();
    for pool in ["left", "right"] {
        bench.ok(&["pool", "import", pool, "--dir", &directory]);
    }
    let found = bench.json(&["pool", "import"]);
    let paths = found["pools"]
        .as_array()
        .unwrap()
        .iter()
        .find(|pool| pool["name"] == "top");
    assert_eq!(
        paths.unwrap()["paths"],
        serde_json::json!(volumes()),
        "{found}"
    );
    bench.ok(&["pool", "import", "top"]);
    assert_eq!(attach(&bench, "top/x"), uri);
    reads(&bench);
    // Until the volumes are used again.
    bench.ok(&["pool", "destroy", "top", "--yes"]);
    bench.ok(&["pool", "import", "top", "--destroyed"]);
    assert_eq!(attach(&bench, "top/x"), uri);
    reads(&bench);
}
