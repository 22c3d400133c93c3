//! A drive is its label, never its name: names are exchanged, moved and used again, and nothing intact is overwritten.

#[path = "cli/bench.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod bench;
#[path = "identity/stage.rs"]
mod stage;
#[path = "identity/stories.rs"]
mod stories;
#[path = "identity/table.rs"]
mod table;

const MIB: u64 = 1 << 20;
