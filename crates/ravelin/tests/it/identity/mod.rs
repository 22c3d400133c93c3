//! A drive is its label, never its name: names are exchanged, moved and used again, and nothing intact is overwritten.

mod overwritten;
mod returns;
mod stage;
mod stories;
mod table;

const MIB: u64 = 1 << 20;
