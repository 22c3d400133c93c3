//! `ravelin completions` and `ravelin man`: output for shells and for `man`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_complete::env::Shells;
use clap_mangen::Man;

use super::common::Failure;
use super::complete::VARIABLE;

/// Print what completes these commands in a shell.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell.
    shell: Shell,
}

impl CompletionsArguments {
    /// Prints the script, which asks this program for candidates.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let name = self.shell.to_string();
        let shells = Shells::builtins();
        let shell = shells.completer(&name).expect("every shell has an adapter");
        let mut script = Vec::new();
        shell.write_registration(VARIABLE, "ravelin", "ravelin", "ravelin", &mut script)?;
        Ok(io::stdout().lock().write_all(&script)?)
    }
}

/// Print the manual page, or write the pages of all commands.
#[derive(Debug, Args)]
pub(crate) struct ManArguments {
    /// Write a page for each command into this directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl ManArguments {
    /// Prints or writes the pages of `command`.
    pub(crate) fn run(self, command: Command) -> Result<(), Failure> {
        let mut command = command.disable_help_subcommand(true);
        command.build();
        let Some(dir) = self.dir else {
            return Ok(io::stdout().lock().write_all(&page(command)?)?);
        };
        std::fs::create_dir_all(&dir)?;
        let mut left = vec![command];
        while let Some(command) = left.pop() {
            left.extend(command.get_subcommands().cloned());
            let name = Man::new(command.clone()).get_filename();
            std::fs::write(dir.join(name), page(command)?)?;
        }
        Ok(())
    }
}

/// The manual page of a command. What stands below the options of its help gets sections of their own.
fn page(command: Command) -> io::Result<Vec<u8>> {
    let below = command.get_after_long_help().map(ToString::to_string);
    let (has_options, has_commands) = (
        command.get_arguments().next().is_some(),
        command.has_subcommands(),
    );
    let man = Man::new(command);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if has_options {
        man.render_options_section(&mut page)?;
    }
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    page.extend(sections(&below.unwrap_or_default()).bytes());
    Ok(page)
}

/// A line at the left margin is the heading of a section; the lines below are printed as they are.
fn sections(text: &str) -> String {
    let mut roff = String::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let escaped = line.replace('\\', "\\e").replace('-', "\\-");
        match escaped.strip_prefix("  ") {
            Some(line) => roff += &format!("{line}\n"),
            None => {
                let words = escaped.trim_end_matches(':').split(' ');
                let title: Vec<String> = words.map(heading).collect();
                roff += &format!(".fi\n.SH \"{}\"\n.nf\n", title.join(" "));
            }
        }
    }
    roff
}

/// A word of a heading: in capitals, unless it is an option.
fn heading(word: &str) -> String {
    match word.starts_with('\\') {
        true => word.to_owned(),
        false => word.to_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::sections;

    #[test]
    fn what_stands_below_the_options_is_printed_line_by_line() {
        assert_eq!(
            sections("Keys of -o:\n\nExamples:\n  ravelin pool list\n  ravelin x --json"),
            ".fi\n.SH \"KEYS OF \\-o\"\n.nf\n.fi\n.SH \"EXAMPLES\"\n.nf\nravelin pool list\nravelin x \\-\\-json\n"
        );
    }
}
