//! The daemon's log as systemd's journal takes it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use super::MIB;
use crate::support::bench::Bench;

/// A file that stands for the journal: what `JOURNAL_STREAM` is for it.
fn stream(bench: &Bench, name: &str) -> String {
    let found = File::create(bench.path(name)).unwrap().metadata().unwrap();
    format!("{}:{}", found.dev(), found.ino())
}

/// Takes a drive out, which is a warning; returns the log's lines.
fn log_of_a_drive_that_goes_out(bench: &Bench) -> Vec<String> {
    bench.wait_until_it_answers();
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["drive", "offline", "tank", "1"]);
    bench.log().lines().map(str::to_owned).collect()
}

/// Regression: all lines in the journal had the same priority, and two times.
#[test]
fn a_line_in_the_journal_has_its_priority_and_no_time_of_its_own() {
    let mut bench = Bench::without_daemon("journal");
    let journal = stream(&bench, "daemon.log");
    bench.launch(&[("JOURNAL_STREAM", &journal)]);
    let lines = log_of_a_drive_that_goes_out(&bench);
    let with = |begin: &str, words: &str| {
        let mut lines = lines.iter();
        lines.any(|line| line.starts_with(begin) && line.contains(words))
    };
    assert!(with("<6>answers at ", ""), "{lines:?}");
    assert!(with("<6>", "created pool=\"tank\""), "{lines:?}");
    assert!(with("<4>seat 1", "the drive is out"), "{lines:?}");
    let is_prefixed = |line: &String| {
        let text = line.strip_prefix('<').and_then(|rest| rest.split_once('>'));
        text.is_some_and(|(priority, text)| {
            ["3", "4", "6"].contains(&priority) && !text.starts_with("20")
        })
    };
    assert!(lines.iter().all(is_prefixed), "{lines:?}");

    // A daemon that does not start is an error.
    let stream = stream(&bench, "second.log");
    let mut second = Command::new(env!("CARGO_BIN_EXE_ravelin"));
    let log = File::options().append(true).open(bench.path("second.log"));
    let ended = second
        .arg("daemon")
        .env("RAVELIN_SOCKET", bench.path("socket"))
        .env("JOURNAL_STREAM", stream)
        .stderr(log.unwrap())
        .status();
    assert!(!ended.unwrap().success());
    let said = std::fs::read_to_string(bench.path("second.log")).unwrap();
    assert!(said.starts_with("<3>ravelin: "), "{said}");
    assert!(said.lines().all(|line| line.starts_with("<3>")), "{said}");
}

/// A program that a service starts has `JOURNAL_STREAM`, too, also if its messages go elsewhere.
#[test]
fn a_log_that_goes_elsewhere_has_times_and_no_priorities() {
    let mut bench = Bench::without_daemon("no-journal");
    let elsewhere = stream(&bench, "elsewhere");
    bench.launch(&[("JOURNAL_STREAM", &elsewhere)]);
    let lines = log_of_a_drive_that_goes_out(&bench);
    let is_dated = |line: &String| line.starts_with("20") && !line.contains('<');
    assert!(lines.iter().all(is_dated), "{lines:?}");
    assert!(
        lines.iter().any(|line| line.contains(" WARN ")),
        "{lines:?}"
    );
}
