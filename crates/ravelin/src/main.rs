//! The binary: arguments, wiring, printing.

mod commands;
mod demo;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::CompleteEnv;

use commands::common::{Context, Failure, end};

/// A lane allocates and frees some twenty small objects per request.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Below the help of the program itself.
const AFTER_HELP: &str = "Topics:\n  ravelin help drives  the names that a drive can have";

/// User-space software RAID.
#[derive(Debug, Parser)]
#[command(name = "ravelin", version, after_help = AFTER_HELP)]
struct Arguments {
    /// One JSON document on stdout.
    #[arg(long, global = true)]
    json: bool,
    /// The daemon's socket.
    #[arg(long, global = true, value_name = "PATH", env = "RAVELIN_SOCKET")]
    socket: Option<PathBuf>,
    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon in the foreground.
    #[command(after_long_help = commands::examples::DAEMON)]
    Daemon(commands::daemon::DaemonArguments),
    /// Create, monitor and remove pools.
    #[command(subcommand)]
    Pool(commands::pool::PoolCommand),
    /// Take drives of a pool out, bring them in, replace and wipe them.
    #[command(subcommand)]
    Drive(commands::drive::DriveCommand),
    /// Create volumes and serve them.
    #[command(subcommand)]
    Volume(commands::volume::VolumeCommand),
    /// Compare schemes for drives: capacity, failures survived, rebuild time, small writes.
    #[command(after_long_help = commands::examples::ADVISE)]
    Advise(commands::advise::AdviseArguments),
    /// Show everything at a glance: pools, their health, volumes and work under way.
    #[command(after_long_help = commands::examples::GLANCE)]
    Status(commands::pool::GlanceArguments),
    /// Run a load against a volume, inside the daemon.
    #[command(after_long_help = commands::examples::BENCH)]
    Bench(commands::bench::BenchArguments),
    /// Look at erasure codes: list them, show one, put them to the test, measure them.
    #[command(subcommand)]
    Code(commands::code::CodeCommand),
    /// Look at placement: show it, weigh it, find a cell.
    #[command(subcommand)]
    Layout(commands::layout::LayoutCommand),
    #[cfg(feature = "studies")]
    /// Check alignment, claims and arrays of this machine; read-only.
    #[command(after_long_help = commands::examples::DOCTOR)]
    Doctor(commands::doctor::DoctorArguments),
    #[cfg(feature = "studies")]
    /// Find out how a volume is striped, by the times of its reads.
    #[command(after_long_help = commands::examples::SHEAR)]
    Shear(commands::shear::ShearArguments),
    #[cfg(feature = "studies")]
    /// Run the logic in virtual time: loads on modelled drives; swarms of faults, every cut, replays.
    #[command(subcommand)]
    Sim(commands::sim::SimCommand),
    #[cfg(feature = "studies")]
    /// Reproduce the papers' tables and figures: ours beside theirs, and why they differ.
    #[command(subcommand)]
    Lab(commands::lab::LabCommand),
    /// See it work: thirteen drives, a file system, a drive pulled, the rebuild.
    #[command(after_long_help = commands::examples::DEMO)]
    Demo(demo::DemoCommand),
    /// Print what completes these commands in a shell.
    #[command(after_long_help = commands::examples::COMPLETIONS)]
    Completions(commands::pages::CompletionsArguments),
    /// Print the manual page, or write the pages of all commands.
    #[command(after_long_help = commands::examples::MAN)]
    Man(commands::pages::ManArguments),
}

fn main() -> ExitCode {
    // If a shell asks for completion candidates, this prints them and exits.
    CompleteEnv::with_factory(Arguments::command)
        .var(commands::complete::VARIABLE)
        .complete();
    if let Some(text) = commands::topics::asked(std::env::args_os().skip(1)) {
        let context = Context {
            json: false,
            socket: None,
        };
        let printed = io::stdout().lock().write_all(text.as_bytes());
        return end(&context, printed.map_err(Failure::from));
    }
    let Arguments { json, socket, verb } = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return commands::usage::end(&error),
    };
    let context = Context { json, socket };
    match verb {
        Command::Daemon(arguments) => end(&context, arguments.run(&context)),
        Command::Pool(command) => end(&context, command.run(&context)),
        Command::Drive(command) => end(&context, command.run(&context)),
        Command::Volume(command) => end(&context, command.run(&context)),
        Command::Status(arguments) => end(&context, arguments.run(&context)),
        Command::Advise(arguments) => end(&context, arguments.run(&context)),
        Command::Bench(arguments) => end(&context, arguments.run(&context)),
        Command::Code(command) => end(&context, command.run(json)),
        Command::Layout(command) => end(&context, command.run(json)),
        #[cfg(feature = "studies")]
        Command::Doctor(arguments) => end(&context, arguments.run(&context)),
        #[cfg(feature = "studies")]
        Command::Shear(arguments) => end(&context, arguments.run(&context)),
        #[cfg(feature = "studies")]
        Command::Sim(command) => end(&context, command.run(&context)),
        #[cfg(feature = "studies")]
        Command::Lab(command) => end(&context, command.run(&context)),
        Command::Demo(command) => end(&context, command.run(json)),
        Command::Completions(arguments) => end(&context, arguments.run()),
        Command::Man(arguments) => end(&context, arguments.run(Arguments::command())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that a command has examples if it must have any, and that each example parses.
    fn check(command: &clap::Command, path: &[String], seen: &mut usize) {
        let inside: Vec<&clap::Command> = command.get_subcommands().collect();
        for child in inside {
            let path = [path, &[child.get_name().to_owned()]].concat();
            check(child, &path, seen);
        }
        let text = command.get_after_long_help().map(ToString::to_string);
        let text = text.unwrap_or_default();
        let examples: Vec<&str> = { text.lines() }
            .map(str::trim)
            .filter(|line| line.starts_with("ravelin "))
            .collect();
        let runs = !path.is_empty() && !command.has_subcommands();
        assert!(
            !runs || path.contains(&"help".to_owned()) || !examples.is_empty(),
            "{path:?} has no example"
        );
        for example in examples {
            *seen += 1;
            let words: Vec<&str> = example.split(' ').collect();
            let verb = words[1..].iter().zip(path);
            assert!(
                verb.clone().count() == path.len() && verb.into_iter().all(|(a, b)| a == b),
                "{example}"
            );
            if let Err(error) = Arguments::try_parse_from(words) {
                panic!("{example}: {error}");
            }
        }
    }

    /// Every command of ours that the page names, as it is typed there.
    #[test]
    fn the_page_for_those_who_come_from_elsewhere_names_commands_that_there_are() {
        let page = include_str!("../../../docs/coming-from.md");
        let rows = page.lines().filter(|line| line.starts_with('|'));
        let mut seen = 0;
        for row in rows {
            let ours = row.split('|').nth(2).unwrap_or_default();
            for command in ours.split('`').filter(|part| part.starts_with("ravelin ")) {
                seen += 1;
                if let Err(error) = Arguments::try_parse_from(command.split(' ')) {
                    panic!("{command}: {error}");
                }
            }
        }
        assert!(seen > 35, "{seen}");
    }

    #[test]
    fn every_command_has_examples_that_are_well_written() {
        let mut seen = 0;
        check(&Arguments::command(), &[], &mut seen);
        assert!(seen > 65, "{seen}");
    }
}
