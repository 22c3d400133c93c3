//! The list of seeded faults in `docs/design/seeded-faults.md` is the list in the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use array::seeded::SeededFault;

use super::{files, names_in, root};

/// A source file's path, as the table shows it, and the names in it.
type Source = (String, BTreeSet<String>);

fn sources(folder: &Path, prefix: &str) -> Vec<Source> {
    let mut found = Vec::new();
    files(folder, &mut found);
    // Tests leave files of other kinds beside the sources.
    found.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let source = |path: &PathBuf| {
        let shown = path.strip_prefix(folder).expect("below it").display();
        let source = std::fs::read_to_string(path).expect("UTF-8");
        (format!("{prefix}{shown}"), names_in(&source))
    };
    found.iter().map(source).collect()
}

#[test]
fn the_list_of_seeded_faults_is_that_of_the_code() {
    let mut code = Vec::new();
    for room in ["format", "plan", "lane", "pool", "sim"] {
        let folder = root().join("crates").join(room).join("src");
        code.extend(sources(&folder, &format!("{room}/")));
    }
    code.retain(|(path, _)| path != "format/seeded.rs");
    let row = |fault: &SeededFault| {
        let name = format!("{fault:?}");
        let mut places: Vec<String> = code
            .iter()
            .filter(|(_, names)| names.contains(&name))
            .map(|(path, _)| format!("`{path}`"))
            .collect();
        places.sort();
        format!(
            "| {name} | {} | {} |",
            fault.what().trim(),
            places.join(", ")
        )
    };
    let rows: Vec<String> = SeededFault::ALL.iter().map(row).collect();

    let page = root().join("docs/design/seeded-faults.md");
    let page = std::fs::read_to_string(page).expect("UTF-8");
    let (_, table) = page
        .split_once("| fault | wrong line | where |\n")
        .expect("the table");
    let table: Vec<&str> = table
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert_eq!(table, rows, "the table of docs/design/seeded-faults.md");
}

/// `seed_fault` is named where it is defined, where the simulator passes it on, and in tests of the simulator.
#[test]
fn only_tests_seed_faults() {
    let mut named = sources(&root().join("crates"), "");
    named.retain(|(path, names)| path.ends_with(".rs") && names.contains("seed_fault"));
    let places: Vec<&str> = named.iter().map(|(path, _)| path.as_str()).collect();
    let (tests, code): (Vec<&str>, Vec<&str>) = places
        .into_iter()
        .filter(|path| !path.starts_with("ravelin/tests/it/tidy"))
        .partition(|path| path.starts_with("sim/tests/"));
    assert_eq!(code, ["format/src/seeded.rs", "sim/src/lib.rs"]);
    assert!(!tests.is_empty());
}

/// Debug assertions are what seeded faults depend on: no profile of a release turns them on.
#[test]
fn releases_are_built_without_debug_assertions() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("UTF-8");
    let sections: Vec<&str> = manifest.split("\n[").collect();
    let release = |section: &&&str| section.starts_with("profile.release]");
    assert_eq!(sections.iter().filter(release).count(), 1);
    for section in sections {
        if section.contains("debug-assertions") {
            assert!(section.starts_with("profile.dev]"), "{section}");
        }
    }
}
