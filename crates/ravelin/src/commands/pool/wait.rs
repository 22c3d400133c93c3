//! `ravelin pool wait`.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use control::Client;
use control::api::{Idle, Kind, Problem, Status};
use control::client::path;
use engine::status::{Health, PoolStatus, RebuildStatus};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::{ask, status};
use crate::commands::common::{Context, Failure, size, time};
use crate::commands::complete;

/// How often the bar moves.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How often a line is printed where there is no bar.
const LINE: Duration = Duration::from_secs(10);

/// Long work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Work {
    Rebuild,
    Scrub,
    Expand,
    Remove,
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
        let mut progress = Progress::new();
        while !self.rests(client, &last)? {
            progress.show(&last, self.work)?;
            std::thread::sleep(POLL_INTERVAL);
            last = ask(client, &self.name)?;
        }
        progress.end();
        last = ask(client, &self.name)?;
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

    /// Whether the awaited work has ended.
    fn rests(&self, client: &Client, status: &Status) -> Result<bool, Failure> {
        let pool = &status.pool;
        match self.work {
            Some(Work::Scrub) => return Ok(!scrubs(pool)),
            Some(Work::Expand) => return Ok(!pool.expanding),
            Some(Work::Remove) => return Ok(!removes(pool)),
            Some(Work::Rebuild) if rebuilds(pool) => return Ok(false),
            Some(Work::Rebuild) if pool.expanding || removes(pool) => return Ok(true),
            // While a drive is being replaced, no rebuild is reported between two cells: check the seats.
            Some(Work::Rebuild) if scrubs(pool) => {
                return Ok(pool.seats.iter().all(|seat| seat.replaced_by.is_none()));
            }
            _ => {}
        }
        if rebuilds(pool)
            || pool.expanding
            || removes(pool)
            || scrubs(pool)
            || pool.resync_groups > 0
        {
            return Ok(false);
        }
        let at = path(&["pools", &pool.name, "idle"]);
        let Idle { idle } = client.get(&format!("{at}?seconds=1"))?;
        Ok(idle)
    }
}

/// Also between two tries.
fn rebuilds(pool: &PoolStatus) -> bool {
    let rebuild = pool.rebuild.filter(|rebuild| rebuild.word() == "rebuild");
    rebuild.is_some_and(|rebuild| rebuild.running || rebuild.tries_again)
}

fn removes(pool: &PoolStatus) -> bool {
    pool.seats.iter().any(|seat| seat.leaves)
}

fn scrubs(pool: &PoolStatus) -> bool {
    pool.scrub.as_ref().is_some_and(|scrub| scrub.running)
}

/// The progress of work that takes long.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    what: &'static str,
    done: u64,
    total: u64,
    text: String,
}

impl Step {
    /// The part of the awaited work that is under way.
    fn of(pool: &PoolStatus, work: Option<Work>) -> Option<Self> {
        let rebuild = { pool.rebuild.as_ref() }.filter(|rebuild| rebuild.running);
        let scrub = { pool.scrub.as_ref() }.filter(|scrub| scrub.running);
        let waited_for = |rebuild: &&RebuildStatus| match work {
            None => true,
            Some(Work::Rebuild) => rebuild.word() == "rebuild",
            Some(Work::Expand) => rebuild.expands,
            Some(Work::Remove) => rebuild.removes,
            Some(Work::Scrub) => false,
        };
        if let Some(rebuild) = rebuild.filter(waited_for) {
            return Some(Self {
                what: rebuild.word(),
                done: rebuild.done_bytes,
                total: rebuild.total_bytes,
                text: format!(
                    "{} of {}, {}",
                    size(rebuild.done_bytes),
                    size(rebuild.total_bytes),
                    match pool.steering.paused {
                        true => format!("paused (`ravelin pool rebuild {} --resume`)", pool.name),
                        false => rate(pool, rebuild),
                    }
                ),
            });
        }
        if let Some(scrub) = scrub.filter(|_| matches!(work, None | Some(Work::Scrub))) {
            let (done, total) = (scrub.groups_done, scrub.groups_total);
            let read = size(scrub.read_bytes);
            return Some(Self {
                what: "scrub",
                done,
                total,
                text: format!("{done} of {total} groups, {read} read"),
            });
        }
        None
    }
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
            ProgressBar::new(0).with_style(style)
        });
        Self {
            bar,
            last_line: Instant::now(),
        }
    }

    fn show(&mut self, status: &Status, work: Option<Work>) -> io::Result<()> {
        let pool = &status.pool;
        let step = Step::of(pool, work);
        let text = match &step {
            Some(step) => step.text.clone(),
            None if pool.resync_groups > 0 => {
                format!("parity of {} groups to compute anew", pool.resync_groups)
            }
            None if rebuilds(pool) => "what could not be rebuilt is tried again".to_owned(),
            None => "beginning or ending".to_owned(),
        };
        let what = step.as_ref().map_or("", |step| step.what);
        if let Some(bar) = &self.bar {
            if let Some(step) = &step {
                bar.set_length(step.total);
                bar.set_position(step.done);
            }
            bar.set_prefix(what);
            bar.set_message(text);
        } else if self.last_line.elapsed() >= LINE {
            self.last_line = Instant::now();
            let what = step.map_or_else(String::new, |step| format!("{}: ", step.what));
            writeln!(io::stderr(), "pool `{}`: {what}{text}", pool.name)?;
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
fn rate(pool: &PoolStatus, rebuild: &RebuildStatus) -> String {
    let work = super::rebuild::fills(pool);
    let rate = work.map_or(rebuild.bytes_per_second, |work| work.bytes_per_second);
    let rate = size(rate as u64);
    match rebuild.eta_seconds {
        Some(left) => format!("{rate}/s, {} to go", time(left)),
        None => "rate not known yet".to_owned(),
    }
}
