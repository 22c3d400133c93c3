//! What monitoring learns from the exit code of `pool status --check`.

use super::MIB;
use crate::support::bench::Bench;

/// The exit codes of `pool status` without a check, with today's meaning in both spellings, and with the strict one.
fn codes(bench: &Bench) -> [i32; 4] {
    ["--json", "--check", "--check=redundancy", "--check=strict"]
        .map(|check| bench.run(&["pool", "status", check, "tank"]).code)
}

/// Regression: after a drive had died and the last spare had taken its place, `--check` was 0, and monitoring kept quiet
/// until the next drive died. Scripts with `--check` alone go on as they were.
#[test]
fn a_strict_check_fails_while_a_drive_is_out_or_no_spare_is_left() {
    let bench = Bench::new("strict");
    let drives = bench.drives("d", 5, 40 * MIB);
    let made = bench.create("tank", "raid5", &drives[..3], &["spare", "d3"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    bench.ok(&["volume", "create", "tank/v", "--size", "8M"]);
    assert_eq!(codes(&bench), [0, 0, 0, 0]);

    bench.ok(&["drive", "fail", "tank", "1"]);
    bench.ok(&["pool", "wait", "tank"]);
    assert_eq!(codes(&bench), [0, 0, 0, 1]);
    // The pool's name may stand behind the option, as scripts have it.
    assert_eq!(bench.run(&["pool", "status", "tank", "--check"]).code, 0);
    assert_eq!(bench.run(&["pool", "status", "--check=strict"]).code, 1);

    // The new drive is the next spare.
    bench.ok(&["drive", "replace", "tank", "1", "d4"]);
    bench.ok(&["pool", "wait", "tank"]);
    assert_eq!(codes(&bench), [0, 0, 0, 0]);
    // Without it no drive is out, and the next failure finds no spare.
    bench.ok(&["drive", "remove", "tank", "d4"]);
    assert_eq!(codes(&bench), [0, 0, 0, 1]);
    let text = bench.ok(&["pool", "status", "tank"]);
    let protection = "protect: any one drive may fail; no spare is left";
    assert!(text.contains(protection), "{text}");

    // A strict check forgives nothing that others find.
    bench.ok(&["drive", "offline", "tank", "0"]);
    assert_eq!(codes(&bench), [0, 1, 1, 1]);
    bench
        .run(&["pool", "status", "--check=loose"])
        .refused(2, &["loose", "redundancy, strict"]);
    assert_eq!(
        bench.run(&["pool", "status", "--check=strict", "x"]).code,
        4
    );
}

/// A pool that never had a spare would never pass otherwise.
#[test]
fn a_strict_check_misses_no_spare_where_there_was_none() {
    let bench = Bench::new("spareless");
    let drives = bench.drives("d", 6, 40 * MIB);
    assert_eq!(bench.create("tank", "raid1", &drives[..2], &[]).code, 0);
    assert_eq!(codes(&bench), [0, 0, 0, 0]);
    bench.ok(&["pool", "destroy", "tank", "--yes"]);

    // Distributed spare space has taken up the drive's data: redundancy is complete, and the drive is out.
    let made = bench.create("tank", "pddl1:3d:1s", &drives, &["--force", "--yes"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert_eq!(codes(&bench), [0, 0, 0, 0]);
    bench.ok(&["drive", "fail", "tank", "2"]);
    bench.ok(&["pool", "wait", "tank"]);
    assert_eq!(codes(&bench), [0, 0, 0, 1]);
}
