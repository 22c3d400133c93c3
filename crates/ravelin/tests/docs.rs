//! The documents agree with the program: examples of the manual pages, transcripts in `docs/`, and completion in
//! shells.

#[path = "cli/bench.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod bench;
#[path = "docs/manual.rs"]
mod manual;
#[path = "docs/pages.rs"]
mod pages;
#[path = "cli/redact.rs"]
mod redact;
#[path = "docs/shells.rs"]
mod shells;
#[path = "docs/stage.rs"]
mod stage;
#[path = "docs/terminal.rs"]
mod terminal;
#[path = "docs/words.rs"]
mod words;
