//! `ravelin completions` and `ravelin man`: output for shells and for `man`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_complete::env::Shells;
use clap_mangen::Man;

use super::common::Failure;
use super::complete::VARIABLE;
use super::topics::drives;

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
            let related = below(&command);
            return Ok(io::stdout().lock().write_all(&page(command, &related)?)?);
        };
        std::fs::create_dir_all(&dir)?;
        // Each command with the pages that its own names.
        let related = below(&command);
        let mut left = vec![(command, related)];
        while let Some((command, related)) = left.pop() {
            let (own, pages) = (name(&command), below(&command));
            for child in command.get_subcommands() {
                let others = pages.iter().filter(|&page| *page != name(child));
                let mut related = vec!["ravelin".to_owned()];
                related.extend((own != "ravelin").then(|| own.clone()));
                related.extend(others.cloned());
                if child.has_subcommands() {
                    related.splice(1.., below(child));
                }
                left.push((child.clone(), related));
            }
            let name = Man::new(command.clone()).get_filename();
            std::fs::write(dir.join(name), page(command, &related)?)?;
        }
        Ok(())
    }
}

/// The name of a command's page: `ravelin-pool-create`.
fn name(command: &Command) -> String {
    let name = command.get_display_name().unwrap_or(command.get_name());
    name.replace(' ', "-")
}

/// The pages of a command's own commands, without those that the help hides.
fn below(command: &Command) -> Vec<String> {
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
    shown.map(name).collect()
}

/// The manual page of a command. What stands below the options of its help gets sections of their own.
fn page(command: Command, related: &[String]) -> io::Result<Vec<u8>> {
    let below = command.get_after_long_help().map(ToString::to_string);
    let (has_options, has_commands) = (
        command.get_arguments().next().is_some(),
        command.has_subcommands(),
    );
    let name = name(&command);
    let checks = command.get_arguments().any(|one| one.get_id() == "check");
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
    page.extend(listed("EXIT STATUS", &exit_status(&name, checks)).bytes());
    page.extend(listed("ENVIRONMENT", &environment(&name)).bytes());
    page.extend(listed("FILES", &files(&name)).bytes());
    page.extend(sections(&below.unwrap_or_default()).bytes());
    if name == "ravelin" {
        page.extend(sections(&drives()).bytes());
    }
    page.extend(see_also(related).bytes());
    Ok(page)
}

/// Names and what they are, for a section.
type Listed = Vec<(&'static str, &'static str)>;

fn exit_status(page: &str, checks: bool) -> Listed {
    let mut codes = vec![
        ("0", "It is done."),
        (
            "1",
            "It failed. Standard error, or with --json standard output, says what failed, why, and what to try.",
        ),
        (
            "2",
            "The command is wrong as it was typed; nothing was done.",
        ),
    ];
    match page {
        "ravelin-doctor" => codes[1].1 = "Something was found, or it failed.",
        "ravelin-daemon" => codes[0].1 = "It was ended by a signal, and has closed all pools.",
        _ => {}
    }
    if checks {
        codes.push((
            "others",
            "With --check, the state of the pools; see that option.",
        ));
    }
    codes
}

/// Whether a command asks the daemon.
fn asks_daemon(page: &str) -> bool {
    let of = |verb: &str| page == verb || page.starts_with(&format!("{verb}-"));
    let asks = [
        "ravelin-pool",
        "ravelin-drive",
        "ravelin-volume",
        "ravelin-status",
        "ravelin-bench",
    ];
    page == "ravelin" || page != "ravelin-drive-identify" && asks.into_iter().any(of)
}

fn environment(page: &str) -> Listed {
    let mut variables = Vec::new();
    if asks_daemon(page) || page == "ravelin-daemon" {
        variables.push((
            "RAVELIN_SOCKET",
            "The daemon's socket, unless --socket names one.",
        ));
        variables.push((
            "XDG_RUNTIME_DIR",
            "Where the socket is for a user who is not root.",
        ));
    }
    if page == "ravelin-daemon" {
        variables.extend([
            (
                "STATE_DIRECTORY",
                "What the daemon remembers, unless --state names a directory; set by systemd.",
            ),
            (
                "NOTIFY_SOCKET, WATCHDOG_USEC",
                "Readiness and heartbeat; set by systemd.",
            ),
        ]);
    }
    variables.push(("NO_COLOR", "No colours, also on a terminal."));
    variables
}

fn files(page: &str) -> Listed {
    let mut files = Vec::new();
    if asks_daemon(page) || page == "ravelin-daemon" {
        files.extend([
            (
                "/run/ravelin/ravelin.sock",
                "The daemon's socket, for root.",
            ),
            (
                "$XDG_RUNTIME_DIR/ravelin.sock, /tmp/ravelin-UID.sock",
                "The same for other users.",
            ),
        ]);
    }
    if [
        "ravelin",
        "ravelin-daemon",
        "ravelin-volume",
        "ravelin-volume-attach",
    ]
    .contains(&page)
    {
        files.push((
            "/dev/ravelin/POOL/VOLUME",
            "A link to the block device of a volume.",
        ));
    }
    if ["ravelin", "ravelin-daemon"].contains(&page) {
        files.extend([
            (
                "/var/lib/ravelin, ~/.local/state/ravelin",
                "What the daemon remembers: open pools, exports, events, who changed what.",
            ),
            (
                "/etc/ravelin/hooks.d",
                "Programs that the installed unit runs for events (--hooks).",
            ),
            ("/usr/share/doc/ravelin", "The documents."),
        ]);
    }
    files
}

/// A section with a paragraph for each name; nothing if there are none.
fn listed(title: &str, all: &[(&str, &str)]) -> String {
    let mut roff = String::new();
    for (name, what) in all {
        roff += &format!(".TP\n\\fB{}\\fR\n{}\n", escaped(name), escaped(what));
    }
    match roff.is_empty() {
        true => roff,
        false => format!(".SH \"{title}\"\n{roff}"),
    }
}

fn see_also(related: &[String]) -> String {
    let pages = related
        .iter()
        .map(|page| format!("\\fB{}\\fR(1)", escaped(page)));
    let pages: Vec<String> = pages.collect();
    format!(".fi\n.SH \"SEE ALSO\"\n{}\n", pages.join(", "))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// A line at the left margin is the heading of a section; the lines below are printed as they are.
fn sections(text: &str) -> String {
    let mut roff = String::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let escaped = escaped(line);
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
