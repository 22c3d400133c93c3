//! `ravelin completions` and `ravelin man`: what shells and `man` want to know.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use super::common::Failure;

/// Print what completes these commands in a shell.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell.
    shell: Shell,
}

impl CompletionsArguments {
    /// Prints the script for `command`.
    pub(crate) fn run(self, mut command: Command) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "ravelin", &mut script);
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
        if let Some(dir) = self.dir {
            std::fs::create_dir_all(&dir)?;
            return Ok(clap_mangen::generate_to(command, &dir)?);
        }
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        Ok(io::stdout().lock().write_all(&page)?)
    }
}
