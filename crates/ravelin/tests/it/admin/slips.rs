//! What a slip of the hand gets for an answer, and small faults of output.

use std::process::{Command, Stdio};

use super::MIB;
use crate::support::bench::Bench;
use crate::support::tools::installed;

fn pool(test: &str) -> Bench {
    let bench = Bench::new(test);
    let drives = bench.drives("drive", 4, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives[..3], &[]).code, 0);
    bench.ok(&["volume", "create", "tank/home", "--size", "8M"]);
    bench
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// A stranger's typing errors: verbs, options, words of schemes, and names of pools, volumes, drives and studies. Each
/// message has the word that was meant.
#[test]
fn twenty_typos_each_get_the_word_that_was_meant() {
    let bench = pool("typos");
    for (typed, meant) in [
        ("pol list", "'pool'"),
        ("pool statsu", "'status'"),
        ("pool craete x raid5 drive3", "'create'"),
        ("volume attahc tank/home --nbd unix:x", "'attach'"),
        ("drive replcae tank 0 drive3", "'replace'"),
        ("pool status --chekc", "'--check'"),
        ("pool status --check=strickt", "'strict'"),
        ("pool import --degradd tank", "'--degraded'"),
        ("volume create tank/x --sise 1G", "'--size'"),
        ("bench tank/home --iodept 4", "'--iodepth'"),
        ("pool create x riad6 drive3", "try: `raid6`"),
        ("pool create x pdll2:3d:1s drive3", "try: `pddl"),
        ("pool create x raid10:nera drive3", "try: `near`"),
        ("pool create x raid6:dcdoe drive3", "try: `dcode`"),
        ("pool create x raid5 -o chunck=64K drive3", "try: `chunk=`"),
        ("pool status tnak", "there is `tank`"),
        ("pool export tanc", "there is `tank`"),
        ("volume delete tank/hmoe --yes", "there is `tank/home`"),
        ("volume attach tank/hom --nbd unix:x", "there is `home`"),
        ("drive fail tank dirve1", "drive1`;"),
        ("drive offline tank drvie2", "drive2`;"),
        ("lab run dcode-featuers", "there is `dcode-features`"),
        ("code show dcdoe:7", "dcode"),
    ] {
        let ran = bench.run(&words(typed));
        assert!(ran.code > 0, "{typed}: {}", ran.stdout);
        assert!(
            ran.stderr.contains(meant),
            "{typed}: no {meant} in\n{}",
            ran.stderr
        );
    }
    // One letter off from three drives: a guess would name a drive that is in use.
    let guessed = bench.run(&["drive", "fail", "tank", "drive9"]);
    assert!(!guessed.stderr.contains("there is"), "{}", guessed.stderr);
    let status = bench.json(&["pool", "status", "tank"]);
    assert_eq!(status["health"], "healthy");
}

/// Regression: a command line that could not be read printed no document.
#[test]
fn a_usage_error_with_json_is_json() {
    let bench = Bench::without_daemon("usage-json");
    for (typed, hint) in [
        ("pool statsu --json", "`status`"),
        ("--json pool status --chekc", "`--check`"),
        ("volume create tank/x --json", "--help"),
    ] {
        let ran = bench.run(&words(typed));
        ran.refused(2, &["error: "]);
        let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(document["kind"], "error", "{document}");
        assert_eq!(document["error"]["kind"], "usage", "{document}");
        let hinted = document["error"]["try"].as_str().unwrap();
        assert!(hinted.contains(hint), "{document}");
    }
    let ran = bench.run(&["pool", "statsu"]);
    assert_eq!((ran.code, &*ran.stdout), (2, ""));
    let help = bench.run(&["pool", "--help", "--json"]);
    assert!(help.stdout.contains("Usage:"), "{}", help.stdout);
}

/// `kind` is the command as it is typed, but for three that programs know with a point: docs/daemon.md.
#[test]
fn documents_are_named_as_their_commands_are_typed() {
    let bench = pool("kinds");
    let pairs = ["pool", "drive", "volume", "code", "layout", "lab"];
    for typed in [
        "status",
        "pool list",
        "pool status",
        "pool events tank",
        "pool iostat",
        "volume list",
        "advise drive0 drive1",
        "code list",
        "code show dcode:5",
        "layout show raid5:3c",
        "layout balance raid5:3c",
        "lab list",
        "bench tank/home --time 1",
        "volume resize tank/home --size 12M",
        "drive offline tank 1",
        "drive online tank 1",
    ] {
        let typed = words(typed);
        let ran = bench.run(&[&typed[..], &["--json"]].concat());
        assert_eq!(ran.code, 0, "{typed:?}: {}", ran.stderr);
        let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let count = if pairs.contains(&typed[0]) { 2 } else { 1 };
        assert_eq!(document["kind"], typed[..count].join(" "));
    }
}

/// Regression: `pool status --check | true` exited with 0 whatever the pool's health.
#[test]
fn a_check_that_is_not_read_keeps_its_exit_code() {
    let bench = pool("unread");
    bench.ok(&["drive", "offline", "tank", "1"]);
    for (arguments, code) in [
        (&["pool", "status", "--check"][..], 1),
        (&["pool", "status", "--check", "tank"], 1),
        (&["pool", "status", "--check", "--json"], 1),
        (&["pool", "status", "--check", "attic"], 4),
        (&["pool", "status"], 0),
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ravelin"))
            .args(arguments)
            .env("RAVELIN_SOCKET", bench.path("socket"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

/// Regression: a locale without the sign got ×, and a terminal without colours got their codes.
#[test]
fn a_plain_terminal_gets_plain_text() {
    let bench = Bench::new("plain");
    bench.drives("d", 3, 40 * MIB);
    let create = "ravelin pool create -n tank raid5 d0 d1 d2";
    for (locale, is_plain) in [("C", true), ("POSIX", true), ("C.UTF-8", false)] {
        let text = bench.shell(&format!("LC_ALL={locale} {create}")).stdout;
        assert_eq!(text.is_ascii(), is_plain, "{locale}: {text}");
        let sign = if is_plain {
            "3 drives x "
        } else {
            "3 drives × "
        };
        assert!(text.contains(sign), "{locale}: {text}");
    }
    if !installed("script") {
        return;
    }
    for (terminal, has_colours) in [("dumb", false), ("xterm", true)] {
        let line = format!(
            "unset NO_COLOR; TERM={terminal} script -qec 'ravelin code show dcode:5' /dev/null </dev/null"
        );
        let text = bench.shell(&line).stdout;
        assert_eq!(text.contains("\x1b["), has_colours, "{terminal}: {text}");
    }
}

/// Regression: these were accepted, or answered as if there were nothing to do.
#[test]
fn places_that_are_not_there_are_errors() {
    let bench = pool("nowhere");
    for import in [
        "pool import -d /nonexistent",
        "pool import -d /nonexistent tank",
    ] {
        let ran = bench.run(&words(import));
        ran.refused(1, &["there is no /nonexistent", "--dir"]);
    }
    bench.ok(&["pool", "import", "-d", "."]);
    let spare = words("pool create x raid5 drive3 drive0 drive1 spare");
    bench
        .run(&spare)
        .refused(2, &["`spare` has no drives behind it"]);
    let hooks = words("daemon --hooks /nonexistent --socket other");
    let hooks = bench.run(&hooks);
    hooks.refused(2, &["--hooks /nonexistent", "make the directory"]);
    bench
        .run(&words("bench tank/home --iodepth 100000"))
        .refused(2, &["100000", "1..=4096"]);
}

/// Regression: these spoke of groups, gave advice that could not be followed, or named one of two.
#[test]
fn messages_are_about_what_the_reader_has() {
    let bench = pool("messages");
    let create = words("volume create tank/large --size 10G");
    let ran = bench.run(&create);
    ran.refused(1, &["10 GiB are wanted, and ", " MiB are free"]);
    assert!(!ran.stderr.contains("groups"), "{}", ran.stderr);

    let ran = bench.run(&words("pool create x raid6 drive3 drive4 -n"));
    ran.refused(1, &["truncate -s 10G FILE"]);
    bench.drives("large", 2, 700 * MIB);
    let ran = bench.run(&words("pool create x raid6 large0 large1 -n"));
    ran.refused(2, &["name one more drive"]);
    assert!(!ran.stderr.contains("3c"), "{}", ran.stderr);

    // The plan's sums agree to the last digit.
    for size in [701, 977, 1203] {
        bench.drives("odd", 3, size * MIB);
        let plan = bench.ok(&words("pool create x raid5 odd0 odd1 odd2 -n"));
        let between = |from: &str, to: &str| {
            let part = plan
                .split_once(from)
                .and_then(|(_, rest)| rest.split_once(to));
            part.map(|(part, _)| part.trim().to_owned()).unwrap()
        };
        let sums = [
            between("user data: ", " usable of"),
            between("space:", " usable,"),
        ];
        assert_eq!(sums[0], sums[1], "{plan}");
    }

    // Clients of the kernel know a volume's size from when they connected.
    bench.ok(&words("volume attach tank/home --nbd unix:nbd"));
    let ran = bench.run(&words("volume resize tank/home --size +4M"));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("keep the size of 8 MiB"),
        "{}",
        ran.stderr
    );
    let ran = bench.run(&words("volume resize tank/home --size 12M"));
    assert_eq!(ran.stderr, "");
}
