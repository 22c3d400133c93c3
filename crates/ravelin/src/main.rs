//! The binary: arguments, wiring, printing.

mod demo;
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
    /// Look at erasure codes: list them, show one, put them to the test, measure them.
    #[command(subcommand)]
    Code(verbs::code::CodeCommand),
    /// Look at placement: show it, weigh it, find a cell.
    #[command(subcommand)]
    Layout(verbs::layout::LayoutCommand),
    /// See it work: thirteen drives, a file system, a drive pulled, the rebuild.
    Demo(demo::DemoCommand),
}

fn main() -> std::process::ExitCode {
    let arguments = Arguments::parse();
    use std::io::Write;
    match arguments.verb {
        Verb::Code(command) => match command.run(arguments.json) {
            Ok(()) => std::process::ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "ravelin: {error}");
                error.exit_code().into()
            }
        },
        Verb::Layout(command) => match command.run(arguments.json) {
            Ok(()) => std::process::ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "ravelin: {error}");
                error.exit_code().into()
            }
        },
        Verb::Demo(command) => match command.run(arguments.json) {
            Ok(()) => std::process::ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "ravelin: {error}");
                1.into()
            }
        },
    }
}
