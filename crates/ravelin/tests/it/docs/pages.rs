//! Transcripts in the documents: every `console` block runs, and its output is what the page shows.
//!
//! ```text
//! <!-- machine: 5 drives of 100 GiB -->      what follows happens on a new machine: /dev/sdb to /dev/sdf, and a daemon
//! ```console                                 every command ends with 0; of `console error` every command fails;
//!                                            of `console loop` they need root, FUSE and loop devices;
//!                                            of `console tools` they need [`TOOLS`];
//!                                            of `console guest` they run in an emulated guest (`guest/pages.rs`), after
//!                                            the blocks above that need nothing; their output is not compared
//! $ ravelin pool create …                    run by the shell; a line that ends in `\` goes on in the next
//! pool `tank` is created: …                  what is printed, on either stream
//! ...                                        stands for any lines
//! ```
//!
//! Identities, times, generations, amounts of I/O and the width of tables are not compared.
//! `RAVELIN_PAGES=write cargo test -p ravelin --test program docs::pages` writes the actual output into the pages; review the
//! changes.

use std::path::{Path, PathBuf};

use super::stage::Stage;
use crate::support::redact::{BUSY_HOST, redacted_line, redacted_table};
use crate::support::tools::installed;

/// A block of a page: its commands with their output.
struct Block {
    kind: Kind,
    commands: Vec<Typed>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Works,
    Fails,
    NeedsLoop,
    NeedsTools,
    /// With the tools it fails.
    FailsWithTools,
    InGuest,
}

/// What `console tools` needs.
const TOOLS: [&str; 2] = ["nbdinfo", "qemu-img"];

struct Typed {
    command: String,
    /// The lines of the page that show the output.
    printed: std::ops::Range<usize>,
}

/// A part of a page that matters here.
enum Part {
    Machine { drives: usize, drive_bytes: u64 },
    Block(Block),
}

fn parts(lines: &[String]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at].as_str();
        if let Some(machine) = line.strip_prefix("<!-- machine: ") {
            let words: Vec<&str> = machine.split(' ').collect();
            let size: block::ByteSize = format!("{}{}", words[3], words[4]).parse().unwrap();
            parts.push(Part::Machine {
                drives: words[0].parse().unwrap(),
                drive_bytes: size.0,
            });
        } else if let Some(kind) = line.strip_prefix("```console") {
            let kind = match kind {
                "" => Kind::Works,
                " error" => Kind::Fails,
                " loop" => Kind::NeedsLoop,
                " tools" => Kind::NeedsTools,
                " tools error" => Kind::FailsWithTools,
                " guest" => Kind::InGuest,
                _ => panic!("line {}: what is `console{kind}`?", at + 1),
            };
            let end = at + lines[at..].iter().position(|line| line == "```").unwrap();
            let commands = typed(lines, at + 1..end);
            assert!(!commands.is_empty(), "line {}: nothing is typed", at + 1);
            parts.push(Part::Block(Block { kind, commands }));
            at = end;
        }
        at += 1;
    }
    parts
}

/// The commands of a block, with their output.
fn typed(lines: &[String], block: std::ops::Range<usize>) -> Vec<Typed> {
    let mut commands: Vec<Typed> = Vec::new();
    let mut at = block.start;
    while at < block.end {
        if let Some(first) = lines[at].strip_prefix("$ ") {
            let mut command = first.to_owned();
            while command.ends_with('\\') {
                at += 1;
                command.truncate(command.len() - 1);
                command += lines[at].trim_start();
            }
            let printed = at + 1..at + 1;
            commands.push(Typed { command, printed });
        } else {
            let last = commands.last_mut().expect("a block begins with a command");
            last.printed.end = at + 1;
        }
        at += 1;
    }
    commands
}

/// Lines in the form in which they are compared.
fn comparable(lines: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    let mut number = 0;
    let busy = |line: &&String| BUSY_HOST.iter().any(|(_, says)| line.contains(says));
    let mut rest = lines.iter().filter(|line| !busy(line)).peekable();
    while let Some(line) = rest.next() {
        let volumes = line.starts_with(" VOLUME ") && line.contains("ALLOCATED");
        if line.starts_with(" SEAT ") || volumes {
            let mut table = vec![line.as_str()];
            while let Some(row) = rest.next_if(|row| !row.is_empty()) {
                table.push(row);
            }
            all.extend(redacted_table(
                &table,
                &["READ", "WRITTEN", "REBUILD", "ALLOCATED"],
            ));
            continue;
        }
        let mut line = redacted_line(line);
        // How many cells are rebuilt depends on how far groups were initialized ahead of the writes.
        if line.starts_with("rebuild: ")
            && let Some((_, rest)) = line.split_once(" in TIME")
        {
            line = format!("rebuild: SIZE in TIME{rest}");
        }
        // How far a rebuild is.
        for (begins, rest) in [
            ("rebuild: [", "rebuild: PROGRESS"),
            ("rebuild: paused at ", "rebuild: paused at PROGRESS"),
            ("         ends in ", "ends in TIME"),
        ] {
            if line.starts_with(begins) {
                rest.clone_into(&mut line);
            }
        }
        // Events are numbered without those that are left out.
        if let Some((_, text)) = line.split_once("  TIME  ") {
            number += 1;
            line = format!("{number}  TIME  {text}");
        }
        all.push(line);
    }
    for line in &mut all {
        let words: Vec<&str> = line.split_whitespace().map(without_number).collect();
        *line = words.join(" ");
    }
    while all.last().is_some_and(String::is_empty) {
        all.pop();
    }
    all
}

/// The number in `/dev/loop7` differs from machine to machine.
fn without_number(word: &str) -> &str {
    match word.find("/dev/loop") {
        Some(at) => &word[..at + "/dev/loop".len()],
        None => word,
    }
}

/// Whether the output is what the page shows; `...` stands for any lines.
fn agrees(page: &[String], printed: &[String]) -> bool {
    match page.split_first() {
        None => printed.is_empty(),
        Some((any, rest)) if any == "..." => {
            (0..=printed.len()).any(|at| agrees(rest, &printed[at..]))
        }
        Some((line, rest)) => printed.first() == Some(line) && agrees(rest, &printed[1..]),
    }
}

/// The output as a page shows it: tables as narrow as the documents' names make them.
fn as_written(printed: &str) -> Vec<String> {
    let lines = printed.lines().map(|line| {
        // The host may be busy with other tests.
        line.trim_end().replace(", slow", "")
    });
    let mut lines: Vec<String> = lines.collect();
    narrow(&mut lines);
    lines
}

/// Removes the spaces from each column of a table that no row needs.
fn narrow(lines: &mut [String]) {
    let mut at = 0;
    while at < lines.len() {
        let is_head = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            line.starts_with(' ')
                && words.len() > 2
                && words.iter().all(|word| !word.contains(char::is_lowercase))
        };
        if !is_head(&lines[at]) {
            at += 1;
            continue;
        }
        let end = at
            + lines[at..]
                .iter()
                .position(String::is_empty)
                .unwrap_or(lines.len() - at);
        let cells = |line: &String| -> Vec<String> {
            let cells = line
                .split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty());
            cells.map(str::to_owned).collect()
        };
        let rows: Vec<Vec<String>> = lines[at..end]
            .iter()
            .map(cells)
            .take_while(|row| row.len() == cells(&lines[at]).len())
            .collect();
        let width = |column: usize| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
        for (line, row) in lines[at..].iter_mut().zip(&rows) {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}"));
            let text = cells.collect::<Vec<_>>().join("  ");
            *line = format!(" {}", text.trim_end());
        }
        at += rows.len();
    }
}

/// Runs a page; with `write` replaces the page's output by the actual one.
#[track_caller]
fn runs(path: &Path, has_loop: bool) -> usize {
    let write = std::env::var("RAVELIN_PAGES").is_ok_and(|mode| mode == "write");
    let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut written = Vec::new();
    // Without loop devices, output that depends on a file system cannot be compared.
    let compares = has_loop || !text.contains("```console loop");
    let (mut copied, mut machines, mut commands) = (0, 0, 0);
    let mut stage: Option<Stage> = None;
    for part in parts(&lines) {
        let block = match part {
            Part::Machine {
                drives,
                drive_bytes,
            } => {
                machines += 1;
                drop(stage.take());
                stage = Some(Stage::new(
                    &format!("{name}-{machines}"),
                    drives,
                    drive_bytes,
                ));
                continue;
            }
            Part::Block(block) => block,
        };
        commands += block.commands.len();
        if block.kind == Kind::NeedsLoop && !has_loop {
            eprintln!(
                "skipped: {}: it needs root, FUSE and loop devices",
                block.commands[0].command
            );
            continue;
        }
        if block.kind == Kind::InGuest {
            continue;
        }
        let needs_tools = [Kind::NeedsTools, Kind::FailsWithTools].contains(&block.kind);
        if needs_tools && !TOOLS.iter().all(|tool| installed(tool)) {
            continue;
        }
        let stage = stage
            .as_ref()
            .expect("a page says on which machine it runs");
        for Typed { command, printed } in block.commands {
            let ran = stage.run(&command);
            let place = format!("{}:{}", path.display(), printed.start);
            let fails = [Kind::Fails, Kind::FailsWithTools].contains(&block.kind);
            let ended = format!("{place}: {command}: exit {}\n{}", ran.code, ran.stdout);
            assert!(write || (ran.code != 0) == fails, "{ended}");
            if (ran.code != 0) != fails {
                eprintln!("{ended}");
            }
            let said = as_written(&ran.stdout);
            let page = &lines[printed.clone()];
            if write && !page.contains(&"...".to_owned()) {
                written.extend_from_slice(&lines[copied..printed.start]);
                written.extend(said);
                copied = printed.end;
            } else if compares && !write && !agrees(&comparable(page), &comparable(&said)) {
                panic!(
                    "{place}: {command}\nthe page says:\n{}\nit prints:\n{}",
                    page.join("\n"),
                    said.join("\n")
                );
            }
        }
    }
    if write {
        written.extend_from_slice(&lines[copied..]);
        std::fs::write(path, written.join("\n") + "\n").unwrap();
    }
    commands
}

/// The commands of a page that run in a guest, which must all succeed, and the number of its drives.
pub(crate) fn of_guest(name: &str) -> (usize, Vec<String>) {
    let text = std::fs::read_to_string(page(name)).unwrap();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let (mut count, mut all) = (0, Vec::new());
    for part in parts(&lines) {
        match part {
            Part::Machine { drives, .. } => count = drives,
            Part::Block(block) if [Kind::Works, Kind::InGuest].contains(&block.kind) => {
                all.extend(block.commands.into_iter().map(|typed| typed.command));
            }
            Part::Block(_) => {}
        }
    }
    (count, all)
}

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name)
}

#[test]
fn the_readme_says_what_happens() {
    assert!(runs(&page("README.md"), Stage::has_loop_devices()) >= 5);
}

/// The steps of a newcomer in the first hour, written from the documents alone.
#[test]
fn a_newcomers_steps_work() {
    assert!(runs(&page("docs/first-steps.md"), Stage::has_loop_devices()) >= 40);
}

#[test]
fn every_kind_of_pool_is_made_and_shown_as_its_page_says() {
    assert!(runs(&page("docs/pools.md"), false) > 30);
}

#[test]
fn a_pool_over_volumes_is_made_as_its_page_says() {
    assert!(runs(&page("docs/volumes-as-drives.md"), false) >= 18);
}

#[test]
fn a_pool_grows_as_its_page_says() {
    assert!(runs(&page("docs/growing.md"), false) >= 14);
}

#[test]
fn advice_is_as_its_page_says() {
    assert!(runs(&page("docs/choosing.md"), false) >= 6);
}

#[test]
fn drives_that_move_are_found_as_their_page_says() {
    assert!(runs(&page("docs/moving-drives.md"), false) >= 15);
}

#[test]
fn a_rebuild_is_steered_as_its_page_says() {
    assert!(runs(&page("docs/drive-failures.md"), false) >= 15);
}

#[test]
fn every_state_of_a_pool_and_the_map_of_sixty_drives_are_shown_as_their_page_says() {
    assert!(runs(&page("docs/status.md"), false) >= 20);
}

#[test]
fn names_of_other_systems_are_answered_as_their_page_says() {
    assert!(runs(&page("docs/foreign-names.md"), false) >= 40);
}

#[test]
fn volumes_are_served_to_other_machines_as_their_page_says() {
    if installed("openssl") {
        assert!(runs(&page("docs/network.md"), false) >= 8);
    }
}
