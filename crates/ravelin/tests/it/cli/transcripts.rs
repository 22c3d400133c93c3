//! What administrators read: a pool in each of its states, as transcripts.
//!
//! `(the same)` stands for the output of the command before. Whatever differs from run to run (paths, identities,
//! times, amounts of I/O) is redacted, and events of a briefly slow host are left out. `INSTA_UPDATE=always cargo test
//! -p ravelin --test program cli::transcripts` writes them anew; review the changes.

use std::fmt::Write;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use array::format::{HOLDER_OFFSET, Holder, newest_label};
use serde_json::Value;

use super::{MIB, connect};
use crate::support::bench::{Bench, bytes};
use crate::support::redact::{BUSY_HOST, redacted_line, redacted_table};

const BLOCK: u64 = 4096;
/// A pool `tank` of three drives, and its commands with their output.
struct Session {
    bench: Bench,
    transcript: String,
    /// What the last command printed.
    last: String,
}

impl Session {
    /// A pool with a written volume, imported again.
    fn new(test: &str) -> Self {
        let session = Self::closed(test);
        session.bench.ok(&["pool", "import", "--dir", ".", "tank"]);
        session
    }

    /// A pool with a written volume, closed.
    fn closed(test: &str) -> Self {
        let bench = Bench::new(&format!("shown-{test}"));
        let drives = bench.drives("d", 3, 32 * MIB);
        assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
        bench.ok(&["volume", "create", "tank/v", "--size", "8M"]);
        let export = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
        let mut client = connect(export["uri"].as_str().unwrap());
        let data: Vec<u8> = (0..8 * MIB).map(|at| (at / BLOCK % 251) as u8).collect();
        client.write(0, &data, false).unwrap();
        client.flush().unwrap();
        client.disconnect().unwrap();
        bench.ok(&["volume", "detach", "tank/v"]);
        bench.ok(&["pool", "export", "tank"]);
        Self {
            bench,
            transcript: String::new(),
            last: String::new(),
        }
    }

    /// Overwrites eight blocks of the drive's second chunk.
    fn spoil(&self, drive: &str) {
        let held = bytes(&self.bench.path(drive));
        let slot = |at: usize| &held[at..at + (504 << 10)];
        let (_, label) = newest_label([slot(4 << 10), slot(512 << 10)]).unwrap();
        let path = self.bench.path(drive);
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        let noise = [0xa5; 8 * 4096];
        let offset = label.facts.data_offset + label.facts.chunk_bytes;
        file.write_all_at(&noise, offset).unwrap();
    }

    fn import(&self) {
        self.bench.ok(&["pool", "import", "--dir", ".", "tank"]);
    }

    /// A client reads the whole volume.
    fn read(&self) {
        let export = self
            .bench
            .json(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
        let mut client = connect(export["uri"].as_str().unwrap());
        client.read(0, 8 << 20).unwrap();
        client.disconnect().unwrap();
        self.bench.ok(&["volume", "detach", "tank/v"]);
    }

    fn title(&mut self, title: &str) {
        writeln!(self.transcript, "# {title}\n").unwrap();
    }

    /// Runs a command and notes its output.
    fn types(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let ran = self.bench.run(&words);
        let mut stdout = match words.contains(&"--json") {
            true => self.json(&ran.stdout),
            false => self.redacted(&ran.stdout),
        };
        if stdout == self.last && !stdout.is_empty() {
            stdout = "(the same)\n".to_owned();
        } else {
            self.last.clone_from(&stdout);
        }
        let out = &mut self.transcript;
        writeln!(out, "$ ravelin {line}").unwrap();
        out.push_str(&stdout);
        let stderr = self.redacted(&ran.stderr);
        for line in stderr.lines() {
            writeln!(self.transcript, "stderr: {line}").unwrap();
        }
        writeln!(self.transcript, "[exit {}]\n", ran.code).unwrap();
    }

    fn shows_status(&mut self) {
        self.types("pool status tank");
        self.types("pool status tank --check");
    }

    /// The usual commands for a first look.
    fn looks(&mut self) {
        self.shows_status();
        self.types("status");
        self.types("status -x");
        self.types("pool events tank");
        self.types("pool status tank --json");
        self.types("pool events tank --json");
    }

    fn json(&self, document: &str) -> String {
        let mut document: Value = serde_json::from_str(document).unwrap();
        self.redact(&mut document, "");
        format!("{document:#}\n")
    }

    fn redact(&self, value: &mut Value, name: &str) {
        let varies = [
            "generation",
            "seconds",
            "at_milliseconds",
            "ended_at_milliseconds",
            "bytes_per_second",
            "reads",
            "writes",
            "read_bytes",
            "write_bytes",
        ];
        match value {
            Value::Object(fields) => {
                // The version is not compared.
                fields.remove("ravelin");
                for (name, value) in fields {
                    self.redact(value, name);
                }
            }
            Value::Array(values) if name == "events" => {
                let busy =
                    |event: &Value| BUSY_HOST.iter().any(|(kind, _)| event["event"] == *kind);
                values.retain(|event| !busy(event));
                for (number, event) in (1..).zip(values) {
                    event["number"] = Value::from(number);
                    self.redact(event, "");
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.redact(value, name)),
            Value::String(text) => *text = self.redacted(text),
            Value::Bool(slow) if name == "slow" => *slow = false,
            Value::Number(_) if varies.contains(&name) => *value = "N".into(),
            Value::Number(_) | Value::Bool(_) | Value::Null => {}
        }
    }

    fn redacted(&self, text: &str) -> String {
        let directory = self.bench.directory.display().to_string();
        let text = text.replace(&directory, "/drives");
        let text = text.replace(", slow", "");
        let mut lines = Vec::new();
        let busy = |line: &&str| BUSY_HOST.iter().any(|(_, says)| line.contains(says));
        let mut rest = text.lines().filter(|line| !busy(line)).peekable();
        let mut number = 0;
        while let Some(line) = rest.next() {
            if line.starts_with(" SEAT ") || line.starts_with(" VOLUME ") {
                let mut table = vec![line];
                while let Some(row) = rest.next_if(|row| !row.is_empty()) {
                    table.push(row);
                }
                lines.extend(redacted_table(&table, &["READ", "WRITTEN"]));
            } else {
                let mut line = redacted_line(line);
                // Events are numbered without those that are left out.
                if let Some((_, text)) = line.split_once("  TIME  ") {
                    number += 1;
                    line = format!("{number:>5}  TIME  {text}");
                }
                lines.push(line);
            }
        }
        if text.ends_with('\n') {
            lines.push(String::new());
        }
        lines.join("\n")
    }

    #[track_caller]
    fn is_as_reviewed(&self, name: &str) {
        insta::assert_snapshot!(name, self.transcript);
    }
}

#[test]
fn the_status_of_a_healthy_pool_is_as_reviewed() {
    let mut session = Session::new("healthy");
    session.shows_status();
    session.types("pool scrub tank --wait");
    session.looks();
    session.is_as_reviewed("healthy");
}

#[test]
fn the_status_of_a_degraded_pool_is_as_reviewed() {
    let mut session = Session::new("degraded");
    session.types("drive fail tank 1");
    session.shows_status();
    session.types("pool scrub tank --wait");
    session.looks();
    session.is_as_reviewed("degraded");
}

#[test]
fn the_status_of_a_drive_with_checksum_errors_is_as_reviewed() {
    let mut session = Session::closed("checksums");
    session.spoil("d2");
    session.import();
    session.title("A client has read everything.");
    session.read();
    session.looks();
    session.types("pool scrub tank --wait");
    session.is_as_reviewed("checksum_errors");
}

#[test]
fn the_status_after_damage_was_repaired_is_as_reviewed() {
    let mut session = Session::closed("repaired");
    session.spoil("d2");
    session.import();
    session.types("pool scrub tank --wait");
    session.looks();
    session.is_as_reviewed("repaired");
}

#[test]
fn the_status_of_damage_that_was_not_repaired_is_as_reviewed() {
    let mut session = Session::closed("damaged");
    session.spoil("d1");
    session.spoil("d2");
    session.import();
    session.types("pool scrub tank --wait");
    session.types("pool scrub tank --wait --json");
    session.looks();
    session.title("After a restart of the daemon.");
    assert_eq!(session.bench.terminate(), Some(0));
    session.bench.start();
    session.shows_status();
    session.types("pool events tank");
    session.title("Another drive goes offline.");
    session.types("drive offline tank 0");
    session.shows_status();
    session.is_as_reviewed("damaged");
}

#[test]
fn the_status_of_an_unusable_pool_is_as_reviewed() {
    let mut session = Session::closed("unusable");
    for drive in ["d1", "d2"] {
        std::fs::remove_file(session.bench.path(drive)).unwrap();
    }
    session.types("pool import --dir . tank");
    session.types("pool import --dir . tank --degraded");
    session.shows_status();
    session.types("pool scrub tank --wait");
    session.looks();
    session.is_as_reviewed("unusable");
}

#[test]
fn a_pool_that_was_taken_over() {
    let mut session = Session::new("taken");
    for drive in ["d0", "d1", "d2"] {
        let held = bytes(&session.bench.path(drive));
        let slot = |at: usize| &held[at..at + (504 << 10)];
        let (_, label) = newest_label([slot(4 << 10), slot(512 << 10)]).unwrap();
        let reservation = Holder {
            pool: label.facts.uuid,
            opening: label.drive,
            boot: label.drive,
            heartbeat: 1,
            period_ms: 10_000,
            number: Some(label.generation.plus(100)),
        };
        let path = session.bench.path(drive);
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&reservation.encode(), HOLDER_OFFSET)
            .unwrap();
    }
    let until = Instant::now() + Duration::from_secs(20);
    while session.bench.json(&["pool", "status", "tank"])["health"] != "unusable" {
        assert!(Instant::now() < until, "the reservation is seen");
        std::thread::sleep(Duration::from_millis(50));
    }
    session.looks();
    session.types("pool scrub tank --wait");
    session.types("drive offline tank 1");
    session.types("pool export tank");
    session.types("pool status --check");
    session.is_as_reviewed("taken_over");
}
