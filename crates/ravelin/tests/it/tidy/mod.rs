//! Retired words do not return: not in names of files, identifiers, help, events or JSON. The state machines of a
//! lane do not name the lane, and the list of seeded faults in the documents is that of the code.
//!
//! `tidy/words.rs` has the words, and the standard word for each. Reviewers check comments and sentences. A place is a
//! file's name, an identifier (once for each file), a name in a string (a key of JSON, or an event), or a page of help.

mod seeded;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use words::RETIRED;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files below a folder, those of tests and builds included, in order.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("a folder of the project");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !matches!(&*name, "target" | "corpus" | "artifacts") {
            files(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}

/// An identifier's words: `leaveJob_id` is leave, job, id.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in name.chars() {
        let begins = letter.is_ascii_uppercase() && !before.is_ascii_uppercase();
        if !letter.is_ascii_alphabetic() || begins {
            words.push(String::new());
        }
        if letter.is_ascii_alphabetic() {
            words
                .last_mut()
                .expect("one at least")
                .push(letter.to_ascii_lowercase());
        }
        before = letter;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Names in a source file: identifiers, and strings that are one word, as keys and events are. Comments and other
/// strings are left out.
fn names_in(source: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names = BTreeSet::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            raw.find("\"#").map_or(rest.len(), |end| end + 5)
        } else if first == '"' {
            let (text, length) = string(rest);
            if text.chars().all(is_name) {
                names.insert(text.to_owned());
            }
            length
        } else if is_name(first) {
            let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            names.insert(rest[..end].to_owned());
            end
        } else if rest.starts_with("'\"'") {
            3
        } else {
            first.len_utf8()
        };
        rest = &rest[length.min(rest.len())..];
    }
    names
}

/// A string literal at the beginning of `rest`: its contents, and its length with quotes.
fn string(rest: &str) -> (&str, usize) {
    let mut escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return (&rest[1..at], at + 1),
            _ => {}
        }
    }
    (&rest[1..], rest.len())
}

/// Places that still have a retired word, by word.
fn places() -> BTreeMap<&'static str, Vec<String>> {
    let root = root();
    let mut found = Vec::new();
    for folder in ["crates", "fuzz", "bench", "docs", "packaging"] {
        files(&root.join(folder), &mut found);
    }
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for path in found {
        let shown = path
            .strip_prefix(&root)
            .unwrap_or(&path)
            .display()
            .to_string();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        note(&words_of(&stem), &shown, &mut places);
        if shown.contains("ravelin/tests/it/tidy") || shown.ends_with("tests/it/docs/words.rs") {
            continue;
        }
        if path.extension().is_some_and(|kind| kind == "rs") {
            let source = std::fs::read_to_string(&path).expect("UTF-8");
            for name in names_in(&source) {
                note(&words_of(&name), &format!("{shown}: {name}"), &mut places);
            }
        } else if shown.contains("snapshots/it__help__") {
            let page = std::fs::read_to_string(&path).expect("UTF-8");
            // The first lines of a snapshot name the test that wrote it.
            let page = page.split("---").skip(2).collect::<String>();
            note(&words_of(&page), &shown, &mut places);
        }
    }
    places
}

fn note(words: &[String], place: &str, places: &mut BTreeMap<&'static str, Vec<String>>) {
    for retired in RETIRED {
        let said: Vec<&str> = retired.said.split(' ').collect();
        if words.windows(said.len()).any(|run| run == said) {
            places
                .entry(retired.said)
                .or_default()
                .push(place.to_owned());
        }
    }
}

/// Files of the lane, beside those of `routes/`, that name `Lane`. Every other file in the folder is a state machine or
/// a part of one: it has its own state, and gets the context and typed inputs. Do not add files here. Files of
/// `routes/` pass inputs to the lane, or from one machine to the next, and decide nothing.
const OF_LANE: &[&str] = &[
    // Reads all machines of a lane, and changes none.
    "check.rs",
    "lib.rs",
    // Gives a lane its inputs, from outside.
    "record.rs",
];

/// The part of a file before its tests.
fn without_tests(source: &str) -> &str {
    source.split("#[cfg(test)]").next().unwrap_or(source)
}

#[test]
fn machines_of_the_lane_do_not_name_it() {
    let folder = root().join("crates/lane/src");
    let mut found = Vec::new();
    files(&folder, &mut found);
    let mut of_lane = Vec::new();
    for path in found {
        let shown = path.strip_prefix(&folder).unwrap_or(&path);
        let source = std::fs::read_to_string(&path).expect("UTF-8");
        let names = names_in(without_tests(&source));
        let lane = names.contains("Lane");
        if lane && !shown.starts_with("routes") {
            of_lane.push(shown.display().to_string());
        }
        let apart = ["context.rs", "lab.rs", "tests.rs"];
        let apart = apart.iter().any(|file| shown.ends_with(file));
        let changes = names.contains("change_view") && !apart;
        assert!(
            lane || !changes,
            "machines read the view and do not change it: {}",
            shown.display()
        );
    }
    of_lane.sort();
    let known: BTreeSet<&str> = OF_LANE.iter().copied().collect();
    let new: Vec<&String> = of_lane
        .iter()
        .filter(|file| !known.contains(file.as_str()))
        .collect();
    assert!(
        new.is_empty(),
        "machines must not know the lane, and these files name `Lane`: {new:?}"
    );
    let cut: Vec<&&str> = { OF_LANE.iter() }
        .filter(|file| !of_lane.iter().any(|other| other == *file))
        .collect();
    assert!(
        cut.is_empty(),
        "cut by now, to be struck from OF_LANE: {cut:?}"
    );
}

/// The files of the pool that name `Pool`: its routes, and the thin methods at the end of a machine's file. Do not add files
/// here: a machine has its own state, and gets the context and typed inputs.
const OF_POOL: &[&str] = &[
    "care.rs",
    "catchup.rs",
    "cells.rs",
    "check.rs",
    "create.rs",
    "elastic/mod.rs",
    "fill/routes.rs",
    "full.rs",
    "generations.rs",
    "grow/mod.rs",
    "leave.rs",
    "lib.rs",
    "members.rs",
    "open.rs",
    "recovery.rs",
    "usage.rs",
    "volumes.rs",
    "work.rs",
];

#[test]
fn machines_of_the_pool_do_not_name_it() {
    let folder = root().join("crates/pool/src");
    let mut found = Vec::new();
    files(&folder, &mut found);
    let mut of_pool: Vec<String> = { found.iter() }
        .filter(|path| {
            let source = std::fs::read_to_string(path).expect("UTF-8");
            let source = source.split("#[cfg(test)]\nmod tests").next();
            names_in(source.unwrap_or_default()).contains("Pool")
        })
        .map(|path| {
            path.strip_prefix(&folder)
                .unwrap_or(path)
                .display()
                .to_string()
        })
        // Compiled for tests alone.
        .filter(|file| file != "fixture.rs" && !file.contains("tests"))
        .collect();
    of_pool.sort();
    assert_eq!(of_pool, OF_POOL, "files that name `Pool`");
}

#[test]
fn retired_words_do_not_come_back() {
    let mut wrong = String::new();
    for (word, places) in places() {
        let instead = RETIRED.iter().find(|retired| retired.said == word);
        let instead = instead.expect("it is of the list").instead;
        let shown = places.join("\n    ");
        let _ = writeln!(wrong, "`{word}` is retired, say `{instead}`:\n    {shown}");
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn names_are_taken_apart_and_comments_left_out() {
    assert_eq!(words_of("pump_Chores2Left"), ["pump", "chores", "left"]);
    assert_eq!(words_of("NBDExport"), ["nbdexport"]);
    let source = r#"
        /// Chores in a comment.
        fn step(haggle: &str) -> &'static str { // and here
            let quote = '"';
            log("host_stall"); log("what \" chores say"); "plain" }
    "#;
    let names = names_in(source);
    assert!(names.contains("haggle") && names.contains("host_stall"));
    assert!(
        !names.iter().any(|name| name.contains("hores")),
        "{names:?}"
    );
}

#[test]
fn every_retired_word_is_lower_case_and_listed_once() {
    let mut said: Vec<&str> = RETIRED.iter().map(|retired| retired.said).collect();
    said.sort_unstable();
    said.dedup();
    assert_eq!(said.len(), RETIRED.len());
    for retired in RETIRED {
        let words = retired.said.split(' ').all(|word| words_of(word) == [word]);
        assert!(words && !retired.instead.is_empty(), "{}", retired.said);
    }
}

/// `make test` names the test programs of the libraries, and `make verify` the long ones; one that they do not name would never
/// run.
#[test]
fn make_test_or_make_verify_runs_every_test_program() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).expect("readable");
    let named: BTreeSet<&str> = ["LIBRARY_TESTS = ", "WAITING_TESTS = ", "LONG_TESTS = "]
        .into_iter()
        .flat_map(|list| {
            let names = makefile.lines().find_map(|line| line.strip_prefix(list));
            names.expect("the list").split(' ')
        })
        .collect();
    let mut there = BTreeSet::new();
    for crates in std::fs::read_dir(root().join("crates")).expect("the crates") {
        let folder = crates.expect("readable").path();
        if folder.ends_with("ravelin") {
            continue;
        }
        let Ok(programs) = std::fs::read_dir(folder.join("tests")) else {
            continue;
        };
        for program in programs {
            let path = program.expect("readable").path();
            if path.extension().is_some_and(|is| is == "rs") || path.join("main.rs").exists() {
                there.insert(path.file_stem().expect("a name").to_owned());
            }
        }
    }
    let there: BTreeSet<&str> = there.iter().filter_map(|name| name.to_str()).collect();
    assert_eq!(named, there);
}
