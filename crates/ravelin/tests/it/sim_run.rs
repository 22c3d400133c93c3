//! `ravelin sim run` as transcripts: the examples of `docs/sim-run.md`, and invalid files.
//!
//! `TRYCMD=overwrite cargo test -p ravelin --test program sim_run::` writes the transcripts anew; review the changes.

use std::path::Path;

#[test]
fn examples_and_broken_files_say_what_their_transcripts_say() {
    trycmd::TestCases::new()
        .case("../../docs/sim-run.md")
        .case("tests/sim_run/broken.md");
    // An invalid file leaves no output behind.
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim_run/broken.in");
    for entry in std::fs::read_dir(here).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let ours = Path::new(&name)
            .extension()
            .is_some_and(|kind| kind == "toml" || kind == "csv");
        assert!(ours && !name.starts_with("out"), "{name} was written");
    }
}

/// No transcript, because the order of the two streams is not fixed.
#[test]
fn a_broken_file_is_an_error_in_json_too() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim_run/broken.in");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_ravelin"))
        .args(["sim", "run", "--json", "--csv", "out.csv", "preset.toml"])
        .current_dir(&here)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(error["error"]["kind"], "usage");
    assert_eq!(error["error"]["what"], "preset.toml:4:10");
    assert!(!here.join("out.csv").exists(), "nothing is written");
}

#[test]
fn outputs_are_written_and_the_seed_decides() {
    let dir = testing::Directory::new();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sim-run.in/rebuild.toml");
    let run = |seed: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_ravelin"))
            .args(["sim", "run", "--json", "--seed", seed, "--csv"])
            .arg(dir.join("out.csv"))
            .arg("--svg")
            .arg(dir.join("out.svg"))
            .arg(&file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let first = run("3");
    assert_eq!(first, run("3"), "the same seed, the same run");
    assert_ne!(first["trace"], run("4")["trace"]);
    assert_eq!(first["kind"], "sim run");
    assert_eq!(first["seed"], 3);
    assert!(first["rebuild"]["cells"].as_u64().unwrap() > 0);
    assert_eq!(first["drives"].as_array().unwrap().len(), 17);
    let csv = std::fs::read_to_string(dir.join("out.csv")).unwrap();
    assert_eq!(csv.lines().count(), 61, "a head and 60 intervals of 2 s");
    let svg = std::fs::read_to_string(dir.join("out.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("milliseconds"));
    let names = std::fs::read_dir(&*dir).unwrap().count();
    assert_eq!(names, 2, "nothing else is left");
}
