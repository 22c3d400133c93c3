//! The binary: arguments, wiring, printing.

fn main() {}
