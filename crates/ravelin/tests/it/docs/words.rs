//! Links of the documents lead somewhere, and users' pages contain no retired words.

use std::path::{Path, PathBuf};

/// Words that users' texts must not contain; `glossary.md` has the standard words.
const RETIRED: [&str; 8] = [
    "nobody",
    " told ",
    " tells ",
    "by itself",
    "errand",
    "takes part",
    "mended",
    "whoever",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Markdown files of a folder.
fn pages(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let pages: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "md"))
        .collect();
    assert!(!pages.is_empty(), "{folder}");
    pages
}

#[test]
fn links_in_documents_lead_somewhere() {
    let folders = [".", "docs", "docs/design", "docs/history", "docs/decisions"];
    let (mut seen, mut dead) = (0, Vec::new());
    for page in folders.into_iter().flat_map(pages) {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            seen += 1;
            if !page.parent().unwrap().join(target).exists() {
                dead.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
    assert!(seen > 30, "{seen}");
}

#[test]
fn pages_for_users_do_without_retired_words() {
    let internal = ["format.md", "lab.md", "balance.md"];
    let mut found = Vec::new();
    for page in [
        pages("docs"),
        vec![root().join("README.md"), root().join("CHANGELOG.md")],
    ]
    .concat()
    {
        if internal.iter().any(|name| page.ends_with(name)) {
            continue;
        }
        let text = std::fs::read_to_string(&page).unwrap();
        for (number, line) in (1..).zip(text.lines()) {
            let line = format!(" {} ", line.to_lowercase());
            for word in RETIRED.iter().filter(|word| line.contains(**word)) {
                found.push(format!("{}:{number}: `{word}`", page.display()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
