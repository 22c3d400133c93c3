//! The binary: arguments, wiring, printing.

mod verbs;

use clap::{Parser, Subcommand};

/// User-space software RAID.
#[derive(Debug, Parser)]
#[command(name = "ravelin", version)]
struct Arguments {
    /// One JSON document on stdout.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Look at placement: show it, weigh it, find a cell.
    #[command(subcommand)]
    Layout(verbs::layout::LayoutCommand),
}

fn main() -> std::process::ExitCode {
    let arguments = Arguments::parse();
    let Verb::Layout(command) = arguments.verb;
    match command.run(arguments.json) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "ravelin: {error}");
            error.exit_code().into()
        }
    }
}
