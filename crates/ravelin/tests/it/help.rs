//! The whole output of `--help`, so that a review sees each change of it.

use std::process::Command;

fn said(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ravelin"))
        .args(arguments)
        // The text must not depend on the environment of the test.
        .env_remove("RAVELIN_SOCKET")
        .env("COLUMNS", "100")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_texts_are_as_reviewed() {
    for verb in [
        &[][..],
        &["demo"],
        &["daemon"],
        &["pool"],
        &["pool", "create"],
        &["pool", "status"],
        &["pool", "import"],
        &["pool", "wait"],
        &["bench"],
        &["doctor"],
        &["drive"],
        &["drive", "replace"],
        &["volume"],
        &["volume", "attach"],
        &["shear"],
        &["sim"],
        &["sim", "run"],
        &["sim", "swarm"],
        &["sim", "faults"],
        &["sim", "replay"],
        &["lab"],
        &["lab", "run"],
    ] {
        let text = said(&[verb, &["--help"]].concat());
        let name = std::iter::once("ravelin").chain(verb.iter().copied());
        insta::assert_snapshot!(name.collect::<Vec<_>>().join("_"), text);
    }
}

#[test]
fn completions_ask_the_program_and_manual_pages_name_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = said(&["completions", shell]);
        assert!(script.contains("RAVELIN_COMPLETE"), "{shell}");
    }
    let page = said(&["man"]);
    assert!(page.starts_with(".ie") && page.contains("pool"), "{page}");
    let dir = testing::Directory::new();
    said(&["man", "--dir", dir.to_str().unwrap()]);
    assert!(dir.join("ravelin-pool-create.1").exists());
}
