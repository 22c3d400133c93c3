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
    let source = |path: &PathBuf| {
        let shown = path.strip_prefix(folder).expect("below it").display();
        let source = std::fs::read_to_string(path).expect("UTF-8");
        (format!("{prefix}{shown}"), names_in(&source))
    };
    found.iter().map(source).collect()
}

#[test]
fn the_list_of_seeded_faults_is_that_of_the_code() {
    let mut code = sources(&root().join("crates/array/src"), "");
    code.retain(|(path, _)| path != "seeded.rs");
    code.extend(sources(&root().join("crates/sim/src"), "sim/"));
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
