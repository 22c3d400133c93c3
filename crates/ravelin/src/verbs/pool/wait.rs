//! `ravelin pool wait`.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use control::Client;
use control::api::{Kind, Problem, Quiet, Status};
use control::client::path;
use engine::status::{Health, RebuildStatus};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::{ask, status};
use crate::verbs::common::{Context, Failure, size, time};
use crate::verbs::complete;

/// How often the bar moves.
const LOOK: Duration = Duration::from_millis(200);

/// How often a line is printed where there is no bar.
const LINE: Duration = Duration::from_secs(10);

/// Long work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Work {
    Rebuild,
    Scrub,
    Expand,
}

/// Wait for long work to end.
#[derive(Debug, Args)]
pub(crate) struct WaitArguments {
    /// The pool.
    #[arg(add = complete::pools())]
    name: String,
    /// For one kind of work only; for all of it if not given.
    #[arg(long = "for", value_name = "WORK")]
    work: Option<Work>,
}

impl WaitArguments {
    pub(super) fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let mut last = ask(client, &self.name)?;
        // Pools have no expansion under way that the daemon could tell of.
        if self.work != Some(Work::Expand) {
            let mut progress = Progress::new();
            while !rests(client, &last)? {
                progress.show(&last)?;
                std::thread::sleep(LOOK);
                last = ask(client, &self.name)?;
            }
            progress.end();
            last = ask(client, &self.name)?;
        }
        if last.pool.health == Health::Unusable {
            return Err(Failure::Refused {
                problem: Box::new(Problem {
                    what: format!("pool `{}` has nothing under way", self.name),
                    why: "but some of its data cannot be read".to_owned(),
                    hint: format!("`ravelin pool status {}`", self.name),
                    kind: Kind::Failed,
                    span: None,
                }),
                usage: false,
            });
        }
        let fields = json!({
            "name": self.name,
            "health": last.pool.health,
            "rebuild": last.pool.rebuild,
        });
        context.print("pool wait", &fields, |out| {
            let health = status::word(last.pool.health);
            writeln!(out, "pool `{}` has nothing under way: {health}", self.name)
        })
    }
}

/// Whether nothing is filled or computed anew.
fn rests(client: &Client, status: &Status) -> Result<bool, Failure> {
    let pool = &status.pool;
    let rebuilds = pool.rebuild.as_ref().is_some_and(|rebuild| rebuild.running);
    if rebuilds || pool.resync_groups > 0 {
        return Ok(false);
    }
    let at = path(&["pools", &pool.name, "quiet"]);
    let Quiet { quiet } = client.get(&format!("{at}?seconds=1"))?;
    Ok(quiet)
}

/// A bar on a terminal, else a line now and then; on stderr.
struct Progress {
    bar: Option<ProgressBar>,
    last_line: Instant,
}

impl Progress {
    fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{prefix} [{wide_bar}] {percent} %  {msg}")
                .expect("the template is right")
                .progress_chars("##.");
            ProgressBar::new(0).with_style(style).with_prefix("rebuild")
        });
        Self {
            bar,
            last_line: Instant::now(),
        }
    }

    fn show(&mut self, status: &Status) -> io::Result<()> {
        let pool = &status.pool;
        let running = pool.rebuild.as_ref().filter(|rebuild| rebuild.running);
        let text = match running {
            Some(rebuild) => rate(rebuild),
            None if pool.resync_groups > 0 => {
                format!("parity of {} groups to compute anew", pool.resync_groups)
            }
            None => "beginning or ending".to_owned(),
        };
        if let Some(bar) = &self.bar {
            if let Some(rebuild) = running {
                bar.set_length(rebuild.total_bytes);
                bar.set_position(rebuild.done_bytes);
            }
            bar.set_message(text);
        } else if self.last_line.elapsed() >= LINE {
            self.last_line = Instant::now();
            let done = running.map_or_else(String::new, |rebuild| {
                format!(
                    "{} of {}, ",
                    size(rebuild.done_bytes),
                    size(rebuild.total_bytes)
                )
            });
            writeln!(io::stderr(), "pool `{}`: {done}{text}", pool.name)?;
        }
        Ok(())
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate for display"
)]
fn rate(rebuild: &RebuildStatus) -> String {
    let rate = size(rebuild.bytes_per_second as u64);
    match rebuild.eta_seconds {
        Some(left) => format!("{rate}/s, {} to go", time(left)),
        None => "rate not known yet".to_owned(),
    }
}
