//! The list of seeded faults in `docs/design/seeded-faults.md` is the list in the code.

use std::path::Path;

use super::{files, root};

/// Name and description of each fault, in order.
fn faults(source: &str) -> Vec<(String, String)> {
    let (_, list) = source.split_once("seeded_faults! {\n").expect("the list");
    let (list, _) = list.split_once("\n}\n").expect("the list's end");
    let mut faults = Vec::new();
    let mut what = Vec::new();
    for line in list.lines().map(str::trim) {
        match line.strip_prefix("///") {
            Some(words) => what.push(words.trim().to_owned()),
            None => {
                let name = line.trim_end_matches(',').to_owned();
                faults.push((name, std::mem::take(&mut what).join(" ")));
            }
        }
    }
    faults
}

/// Files that ask for a fault: below the sources of `array`, or with `sim/` before.
fn places(sources: &[(String, String)], fault: &str) -> String {
    let asked = format!("SeededFault::{fault}");
    let asks = |source: &str| {
        source.match_indices(&asked).any(|(at, _)| {
            let after = source[at + asked.len()..].chars().next();
            !after.is_some_and(char::is_alphanumeric)
        })
    };
    let mut places: Vec<String> = sources
        .iter()
        .filter(|(_, source)| asks(source))
        .map(|(path, _)| format!("`{path}`"))
        .collect();
    places.sort();
    places.join(", ")
}

fn sources(folder: &Path, prefix: &str, into: &mut Vec<(String, String)>) {
    let mut found = Vec::new();
    files(folder, &mut found);
    for path in found {
        let shown = path.strip_prefix(folder).expect("below it").display();
        let source = std::fs::read_to_string(&path).expect("UTF-8");
        into.push((format!("{prefix}{shown}"), source));
    }
}

#[test]
fn the_list_of_seeded_faults_is_that_of_the_code() {
    let mut code = Vec::new();
    sources(&root().join("crates/array/src"), "", &mut code);
    sources(&root().join("crates/sim/src"), "sim/", &mut code);
    let list = code.iter().position(|(path, _)| path == "seeded.rs");
    let (_, list) = code.swap_remove(list.expect("the list"));
    let rows: Vec<String> = faults(&list)
        .iter()
        .map(|(name, what)| format!("| {name} | {what} | {} |", places(&code, name)))
        .collect();
    assert!(rows.len() > 60, "{rows:#?}");

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
