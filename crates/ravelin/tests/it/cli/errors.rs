//! Errors of users. Each one gets one clear message and exit code 1 or 2, and changes nothing.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::support::bench::{Bench, bytes};

const MIB: u64 = 1 << 20;

fn is_zero(bench: &Bench, drives: &[String]) -> bool {
    let all = drives.iter().map(|drive| bytes(&bench.path(drive)));
    all.flatten().all(|byte| byte == 0)
}

#[test]
fn without_a_daemon_every_verb_says_how_to_start_one() {
    let bench = Bench::without_daemon("none");
    for verb in [
        &["pool", "list"][..],
        &["pool", "status"],
        &["volume", "list"],
        &["drive", "fail", "tank", "0"],
        &["pool", "create", "tank", "raid5", "a", "b", "c"],
    ] {
        bench.run(verb).refused(
            1,
            &[
                "no daemon answers at",
                "socket",
                "start one with `ravelin daemon`",
            ],
        );
    }
    let ran = bench.run(&["pool", "list", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(document["kind"], "error");
    assert_eq!(document["error"]["try"], "start one with `ravelin daemon`");
    assert_eq!(document["error"]["kind"], "no_daemon");
    // Syntax errors are reported first.
    bench
        .run(&["pool", "create", "tank", "raid5:4z", "a"])
        .refused(2, &["  raid5:4z\n        ^^\n"]);
    bench
        .run(&["pool", "create", "tank", "raid5", "a", "-o", "journal=some"])
        .refused(2, &["there is no such choice"]);
    assert_eq!(bench.run(&["pool", "status", "--check"]).code, 4);
}

#[test]
fn a_scheme_that_cannot_be_is_pointed_at() {
    let bench = Bench::new("scheme");
    let drives = bench.drives("d", 4, 96 * MIB);
    let create = |scheme: &str| bench.create("tank", scheme, &drives, &[]);
    create("raid5:9q").refused(
        2,
        &["`9q` is not a field", "  raid5:9q\n        ^^\n", "try: "],
    );
    create("riad5").refused(
        2,
        &[
            "`riad5` is not a layout",
            "  riad5\n  ^^^^^\n",
            "try: `raid5`",
        ],
    );
    // The scheme is valid, but too wide for these drives: the message shows the arithmetic.
    create("pddl2:8d:1s").refused(
        2,
        &[
            "8 data and 2 parity columns take 10",
            "less 1 spares are 3",
            "^^",
        ],
    );
    create("raid6:7c").refused(
        2,
        &[
            "the scheme says 7 and 4 were given",
            "  raid6:7c\n        ^^\n",
        ],
    );
    bench
        .create("tank", "raid6", &drives[..2], &[])
        .refused(2, &["drives (c): 2 are too few", "try: "]);
    bench
        .create("tank", "raid5", &drives, &["-o", "chunk=5K"])
        .refused(2, &["5120", "power of two"]);
    bench
        .create("tank", "raid5", &drives, &["-o", "colour=red"])
        .refused(2, &["there is no option `colour`"]);
    bench
        .create("../x", "raid5", &drives, &[])
        .refused(2, &["`../x` is not a pool name"]);
    bench
        .create("tank", "raid5", &[&drives[..], &drives[..1]].concat(), &[])
        .refused(2, &["d0 is named twice"]);
    assert!(is_zero(&bench, &drives));
    assert_eq!(
        bench.json(&["pool", "list"])["pools"],
        serde_json::json!([])
    );
}

#[test]
fn drives_too_small_or_absent_are_named_with_the_arithmetic() {
    let bench = Bench::new("small");
    let mut drives = bench.drives("d", 3, 96 * MIB);
    let small = bench.drives("small", 1, 3 * MIB);
    drives.extend(small);
    bench.create("tank", "raid5", &drives, &[]).refused(
        2,
        &[
            "small0: 3 MiB is too small",
            "labels, journal",
            "use drives of ",
        ],
    );
    drives[3] = "absent".to_owned();
    bench
        .create("tank", "raid5", &drives, &[])
        .refused(1, &["absent: there is no such file"]);
    assert!(is_zero(&bench, &drives[..3]));
}

#[test]
fn drives_that_hold_something_are_named_and_taken_only_by_force() {
    let bench = Bench::new("occupied");
    let drives = bench.drives("d", 5, 96 * MIB);
    let old = bench.drives("old", 3, 96 * MIB);
    assert_eq!(bench.create("old", "raid5", &old, &[]).code, 0);
    let taken = [&drives[..3], &old[1..2]].concat();
    bench
        .create("tank", "raid5", &taken, &["--force", "--yes"])
        .refused(1, &["old1 is in use", "seat 1 of pool `old`"]);
    bench.ok(&["pool", "export", "old"]);
    let before = bytes(&bench.path("old1"));
    bench.create("tank", "raid5", &taken, &[]).refused(
        1,
        &["old1 holds seat 1 of the Ravelin pool `old`", "--force"],
    );
    let mut taken = taken;
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-L", "photos"])
        .arg(bench.path("d4"))
        .status();
    if made.is_ok_and(|status| status.success()) {
        let photos = bytes(&bench.path("d4"));
        taken.push("d4".to_owned());
        bench
            .create("tank", "raid5", &[&drives[..3], &drives[4..]].concat(), &[])
            .refused(
                1,
                &["d4 holds an ext4 file system (label photos)", "--force"],
            );
        assert!(bytes(&bench.path("d4")) == photos);
    } else {
        writeln!(
            std::io::stderr(),
            "skipped: ext4, for there is no mkfs.ext4"
        )
        .unwrap();
    }
    // `--force` alone still asks, and the test has no terminal.
    bench.create("tank", "raid5", &taken, &["--force"]).refused(
        2,
        &[
            "lost for good",
            "old1  seat 1 of the Ravelin pool `old`",
            "--yes",
        ],
    );
    assert!(bytes(&bench.path("old1")) == before);
    assert!(is_zero(&bench, &drives[..4]));
    let forced = bench.create("tank", "raid5", &taken, &["--force", "--yes"]);
    assert_eq!(forced.code, 0, "{}", forced.stderr);
    bench.ok(&["drive", "offline", "tank", "0"]);
    bench
        .run(&["drive", "replace", "tank", "0", "old2"])
        .refused(1, &["old2 holds seat 2 of the Ravelin pool `old`"]);
    bench.ok(&["drive", "replace", "tank", "0", "old2", "--force", "--yes"]);
}

#[test]
fn a_pool_with_half_of_its_drives_missing_is_not_opened() {
    let bench = Bench::new("half");
    let drives = bench.drives("d", 4, 96 * MIB);
    assert_eq!(bench.create("tank", "raid6", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
    bench.ok(&["pool", "export", "tank"]);
    std::fs::create_dir(bench.path("away")).unwrap();
    for name in ["d1", "d3"] {
        std::fs::rename(bench.path(name), bench.path("away").join(name)).unwrap();
    }
    let before = bytes(&bench.path("d0"));
    bench
        .run(&["pool", "import", "--dir", ".", "tank"])
        .refused(
            1,
            &["only 2 of 4 drives are there", "d1", "d3", "--degraded"],
        );
    assert!(bytes(&bench.path("d0")) == before);
    bench
        .run(&["pool", "import", "--dir", ".", "tnak"])
        .refused(1, &["no pool `tnak` was found"]);
    let opened = bench.json(&["pool", "import", "--dir", ".", "--dir", "away", "tank"]);
    assert_eq!(opened["health"], "healthy");
    bench.ok(&["pool", "export", "tank"]);
    let opened = bench.json(&["pool", "import", "--dir", ".", "tank", "--degraded"]);
    assert_eq!(opened["health"], "degraded");
    let text = bench.ok(&["pool", "status"]);
    assert!(
        text.contains("seat 1 (missing), seat 3 (missing)"),
        "{text}"
    );
}

#[test]
fn two_halves_that_went_on_without_each_other_are_not_put_together() {
    let bench = Bench::new("halves");
    let drives = bench.drives("d", 4, 96 * MIB);
    assert_eq!(bench.create("tank", "raid6", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
    bench.ok(&["pool", "export", "tank"]);
    // Each half of `raid6` has all data, and is opened while the other half is away.
    for (half, other) in [(["d0", "d2"], ["d1", "d3"]), (["d1", "d3"], ["d0", "d2"])] {
        std::fs::create_dir_all(bench.path("away")).unwrap();
        for name in other {
            std::fs::rename(bench.path(name), bench.path("away").join(name)).unwrap();
        }
        let opened = bench.json(&["pool", "import", "--dir", ".", "tank", "--degraded"]);
        assert_eq!(opened["health"], "degraded", "{half:?}");
        bench.ok(&[
            "volume",
            "create",
            &format!("tank/{}", half[0]),
            "--size",
            "4M",
        ]);
        bench.ok(&["pool", "export", "tank"]);
        for name in other {
            std::fs::rename(bench.path("away").join(name), bench.path(name)).unwrap();
        }
    }
    let contents = || drives.iter().map(|drive| bytes(&bench.path(drive)));
    let before: Vec<_> = contents().collect();
    for more in [&[][..], &["--degraded"]] {
        let import = [&["pool", "import", "--dir", ".", "tank"], more].concat();
        let parts = [
            "each went on without the other",
            "decide which half to keep",
        ];
        bench.run(&import).refused(1, &parts);
    }
    assert!(contents().eq(before), "nothing was changed");
}

#[test]
fn a_socket_that_is_taken_is_named() {
    let bench = Bench::new("busy");
    bench
        .run(&["daemon"])
        .refused(1, &["socket is in use: another daemon answers there"]);
    std::fs::write(bench.path("file"), b"precious").unwrap();
    bench
        .run(&["daemon", "--socket", "file"])
        .refused(1, &["file exists and is not a socket"]);
    assert_eq!(bytes(&bench.path("file")), b"precious");
    bench.ok(&["pool", "list"]);

    let drives = bench.drives("d", 3, 96 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
    let attach = |address: &str| bench.run(&["volume", "attach", "tank/v", "--nbd", address]);
    attach("unix:socket").refused(1, &["socket is in use: another server answers"]);
    attach("unix:file").refused(1, &["file exists and is not a socket"]);
    attach("udp:1").refused(2, &["`udp:1` is not an address"]);
    assert_eq!(attach("unix:nbd").code, 0);
    attach("unix:nbd").refused(1, &["`tank/v` is already served at unix:"]);
    bench.ok(&["pool", "list"]);
}

#[test]
fn names_and_sizes_that_are_not_there_are_said() {
    let bench = Bench::new("names");
    let drives = bench.drives("d", 4, 96 * MIB);
    assert_eq!(bench.create("tank", "raid6", &drives, &[]).code, 0);
    bench
        .create("tank", "raid6", &drives, &[])
        .refused(1, &["already a pool `tank`"]);
    let run = |arguments: &[&str]| bench.run(arguments);
    run(&["pool", "status", "tnak"]).refused(1, &["there is no pool `tnak` open here"]);
    run(&["drive", "fail", "tank", "9"]).refused(1, &["no seat 9", "seats 0 to 3"]);
    run(&["drive", "fail", "tank", "d9"]).refused(1, &["no seat of the pool has a drive", "d9"]);
    run(&["drive", "online", "tank", "1"]).refused(1, &["seat 1 has a working drive"]);
    run(&["volume", "create", "tank", "--size", "1M"]).refused(2, &["POOL/VOLUME"]);
    run(&["volume", "create", "tank/v", "--size", "lots"]).refused(2, &["`lots` is not a size"]);
    run(&["volume", "create", "tank/v", "--size", "9T"]).refused(1, &["are wanted", "are free"]);
    run(&["volume", "create", "tank/a b", "--size", "1M"]).refused(2, &["`a b` is not a volume"]);
    run(&["volume", "attach", "tank/w", "--nbd", "unix:x"]).refused(1, &["no volume `w`"]);
    run(&["volume", "create", "tank/v", "--size", "8M"]);
    super::stories::write_all(&bench, 1, 1);
    run(&["drive", "offline", "tank", "0"]);
    run(&["drive", "offline", "tank", "1"]);
    run(&["drive", "fail", "tank", "2"]).refused(1, &["without the drive in seat 2", "try: "]);
    let status = bench.json(&["pool", "status", "tank"]);
    assert_eq!(status["seats"][2]["state"], "current");
    assert_eq!(status["volumes"].as_array().unwrap().len(), 1);
}

#[test]
fn a_full_file_system_below_the_drives_makes_no_pool() {
    let bench = Bench::new("full");
    let full = bench.path("full");
    std::fs::create_dir(&full).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "ravelin-test"])
        .arg(&full)
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        writeln!(
            std::io::stderr(),
            "skipped: mounting a small tmpfs takes root"
        )
        .unwrap();
        return;
    }
    let drives = bench.drives("full/d", 3, 96 * MIB);
    let filler = vec![1; 256 << 10];
    std::fs::write(full.join("filler"), filler).unwrap_err();
    let ran = bench.create("tank", "raid5", &drives, &[]);
    let pools = bench.json(&["pool", "list"]);
    let labels: Vec<bool> = drives
        .iter()
        .map(|drive| {
            bytes(&bench.path(drive))
                .windows(8)
                .any(|window| window == b"RAVELIN\0")
        })
        .collect();
    // A process that another test is just starting keeps this process's files open until its exec.
    let unmounted = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        Command::new("umount")
            .arg(&full)
            .status()
            .unwrap()
            .success()
    });
    ran.refused(1, &["pool `tank` was not created", "full/d", "full"]);
    assert_eq!(pools["pools"], serde_json::json!([]));
    assert_eq!(labels, [false; 3]);
    assert!(unmounted, "the daemon holds no drive any more");
}

/// The API itself, as a client of another author uses it.
#[test]
fn requests_that_make_no_sense_are_answered_in_the_shape_of_errors() {
    let bench = Bench::new("api");
    let ask = |request: &str, body: &[u8]| {
        let mut stream = UnixStream::connect(bench.path("socket")).unwrap();
        let length = body.len();
        let head = format!(
            "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        // A body that is too long is refused before the daemon has read it.
        stream.write_all(body).ok();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status: u16 = head[9..12].parse().unwrap();
        let document: serde_json::Value = serde_json::from_str(body).unwrap();
        (status, document)
    };
    let (status, health) = ask("GET /v1/health", b"");
    assert_eq!(
        (status, &health["ravelin"]),
        (200, &env!("CARGO_PKG_VERSION").into())
    );
    for (request, body, expected) in [
        ("GET /v1/nothing", &b""[..], 404),
        ("PUT /v1/pools", b"", 405),
        ("POST /v1/pools", b"{\"name\":", 400),
        ("POST /v1/pools", b"{}", 400),
        ("POST /v1/pools", b"\xff\xfe", 400),
        ("POST /v1/pools/import", b"{\"name\":\"x\",\"typo\":1}", 400),
        ("POST /v1/pools/x/drives/paint", b"{\"drive\":\"0\"}", 404),
        ("GET /v1/pools/x/status", b"", 404),
        ("GET /v1/pools/%2E%2E/status", b"", 404),
        ("GET /v1/pools/%FF/status", b"", 400),
        ("POST /v1/pools", &[b' '; (1 << 20) + 1], 413),
    ] {
        let (status, document) = ask(request, body);
        assert_eq!(status, expected, "{request}: {document}");
        for key in ["what", "why", "try"] {
            assert!(document["error"][key].is_string(), "{request}: {document}");
        }
    }
    let (status, document) = ask("GET /v1/pools/x/events?after=minus", b"");
    assert_eq!(status, 400, "{document}");
    assert!(document["error"]["why"].is_string(), "{document}");
}

#[test]
fn a_width_that_a_code_has_not_is_refused_with_the_nearest_ones() {
    let bench = Bench::without_daemon("width");
    bench
        .run(&["layout", "show", "raid6:dcode:9c", "--rows", "1"])
        .refused(
            2,
            &["dcode has no stripe of 9 columns", "try: 7 or 11", "^^^^^"],
        );
}
