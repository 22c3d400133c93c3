//! `ravelin lab` from outside: its output and files, and how it reacts to bad input and ^C.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use testing::Directory;

fn ravelin(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ravelin"));
    command.arg("lab").args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    ravelin(arguments).output().unwrap()
}

/// A folder that does not exist yet, and is removed at the end.
struct Scratch {
    path: PathBuf,
    _parent: Directory,
}

impl Scratch {
    fn new() -> Self {
        let parent = Directory::new();
        Self {
            path: parent.join("out"),
            _parent: parent,
        }
    }

    fn text(&self) -> &str {
        self.path.to_str().unwrap()
    }

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.path).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn one_study_prints_the_document_that_tools_compare_by() {
    let output = run(&["run", "dcode-fig6", "--json", "--jobs", "1"]);
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["kind"], "lab run");
    assert_eq!(document["study"], "dcode-fig6");
    assert_eq!(document["paper"], "dcode");
    assert_eq!(document["seed"], 1);
    assert!(document["model"].as_str().unwrap().contains("busiest disk"));
    let rows = document["rows"].as_array().unwrap();
    for row in rows {
        for key in [
            "id", "name", "ours", "paper", "unit", "ratio", "verdict", "note",
        ] {
            assert!(row.get(key).is_some(), "{key} is missing: {row}");
        }
        let verdict = row["verdict"].as_str().unwrap();
        assert!(
            ["holds", "differs", "not comparable"].contains(&verdict),
            "{row}"
        );
        assert!(verdict == "holds" || row["note"].is_string(), "{row}");
    }
    assert!(rows.iter().any(|row| row["id"] == "fig6.rdp.most"));
}

#[test]
fn results_are_written_for_people_and_programs() {
    let scratch = Scratch::new();
    let output = run(&[
        "run",
        "dcode-fig6",
        "dcode-fig5",
        "--json",
        "--out",
        scratch.text(),
    ]);
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["studies"].as_array().unwrap().len(), 2);
    let mut expected = vec!["dcode.html".to_owned()];
    for study in ["dcode-fig5", "dcode-fig6"] {
        expected
            .extend(["csv", "json", "svg", "vl.json"].map(|ending| format!("{study}.{ending}")));
    }
    expected.sort();
    assert_eq!(scratch.files(), expected);
    let read = |name: &str| std::fs::read_to_string(scratch.path.join(name)).unwrap();
    let alone: Value = serde_json::from_str(&read("dcode-fig6.json")).unwrap();
    assert_eq!(alone["study"], "dcode-fig6");
    assert!(read("dcode-fig6.csv").starts_with("study,id,name,ours,low,high,paper,unit,"));
    let page = read("dcode.html");
    assert!(page.contains("<svg") && page.contains("id=\"dcode-fig5\""));
    // The page runs no script and loads nothing.
    for forbidden in ["<script", "src=", "@import", "<link", "url("] {
        assert!(!page.contains(forbidden), "{forbidden} in the page");
    }
    let vega: Value = serde_json::from_str(&read("dcode-fig6.vl.json")).unwrap();
    assert!(
        vega["vconcat"][0]["data"]["values"]
            .as_array()
            .unwrap()
            .len()
            > 10
    );
}

#[test]
fn bad_input_is_one_sentence_and_nothing_is_written() {
    let scratch = Scratch::new();
    let file = scratch.path.with_extension("file");
    std::fs::write(&file, b"in the way").unwrap();
    let below = file.join("results");
    for (arguments, expected) in [
        (
            vec!["run", "dcode-fig9", "--out", scratch.text()],
            "no study 'dcode-fig9'",
        ),
        (
            vec!["run", "dcode-fig6", "--out", below.to_str().unwrap()],
            "cannot be written",
        ),
        (
            vec!["run", "dcode-fig6", "--jobs", "0", "--out", scratch.text()],
            "'0' for '--jobs",
        ),
        (
            vec!["run", "dcode-fig6", "--seed", "x", "--out", scratch.text()],
            "'x' for '--seed",
        ),
        (vec!["run"], "STUDY"),
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(expected), "{arguments:?}: {told}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(!scratch.path.exists(), "{arguments:?} wrote something");
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn an_interrupt_keeps_the_studies_that_are_done() {
    let scratch = Scratch::new();
    let mut child = ravelin(&["run", "dcode-fig6", "dcode-fig4", "--full", "--jobs", "1"])
        .args(["--out", scratch.text()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    wait_for(&scratch.path.join("dcode-fig6.json"), began);
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let status = child.wait().unwrap();
    let mut told = String::new();
    std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut told).unwrap();
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains("1 of 2 studies"), "{told}");
    let files = scratch.files();
    assert!(files.contains(&"dcode.html".to_owned()), "{files:?}");
    assert!(!files.iter().any(|file| file.contains("fig4")), "{files:?}");
}

fn wait_for(path: &Path, began: Instant) {
    while !path.exists() {
        assert!(
            began.elapsed() < Duration::from_secs(300),
            "{} does not come",
            path.display()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
