//! `ravelin lab list | run`: reproduces the papers. Threads, signals and progress are here; the studies are in `lab`.

mod progress;
mod show;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block::Hint;
use clap::{Args, Subcommand};
use control::api::{Kind, Problem};
use lab::output::{Folder, OutputError};
use lab::{Monitor, Options, Report};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::common::{Context, Ended, Failure, document, stdout};
use super::complete;
use super::examples;
use progress::watch;

/// Written into every document and page.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Reproduce the papers' tables and figures.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// List the studies.
    #[command(after_long_help = examples::LAB_LIST)]
    List,
    /// Run studies and compare their numbers with the papers'.
    #[command(after_long_help = examples::LAB_RUN)]
    Run(RunArguments),
}

/// Run studies and compare their numbers with the papers'.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Studies, as `lab list` names them, or `all`.
    #[arg(required = true, value_name = "STUDY", add = complete::studies())]
    studies: Vec<String>,
    /// Run at the papers' sizes; minutes instead of seconds.
    #[arg(long)]
    full: bool,
    /// Write JSON, CSV, Vega-Lite, SVG and a page per paper into this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The seed of all chance in the studies.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Threads; as many as there are cores if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
}

impl From<OutputError> for Failure {
    fn from(error: OutputError) -> Self {
        Self::usage(
            format!("results cannot be written to {}", error.path.display()),
            error.error.to_string(),
            error.hint().unwrap_or_default(),
        )
    }
}

impl LabCommand {
    pub(crate) fn run(self, context: &Context) -> Result<Ended, Failure> {
        match self {
            Self::List => list(context).map(Ended::from),
            Self::Run(arguments) => arguments.run(context),
        }
    }
}

fn list(context: &Context) -> Result<(), Failure> {
    let about = || lab::STUDIES.iter().map(|study| study.about());
    let studies: Vec<Value> = about()
        .map(|about| {
            json!({
                "study": about.id,
                "paper": about.paper.id,
                "title": about.title,
                "question": about.question,
            })
        })
        .collect();
    context.print("lab list", &json!({ "studies": studies }), |out| {
        show::list(out, about())
    })
}

impl RunArguments {
    fn run(&self, context: &Context) -> Result<Ended, Failure> {
        let studies = lab::select(&self.studies).map_err(|error| {
            Failure::usage(
                format!("there is no study '{}'", error.name),
                "the lab knows only what `ravelin lab list` names",
                error.hint().unwrap_or_default(),
            )
        })?;
        let folder = match &self.out {
            Some(path) => Some(Folder::open(path, VERSION)?),
            None => None,
        };
        let cores = || std::thread::available_parallelism().map_or(1, Into::into);
        let options = Options {
            seed: self.seed,
            full: self.full,
            jobs: self.jobs.map_or_else(cores, usize::from),
        };
        let monitor = Arc::new(Monitor::new(&studies));
        let stopped = stop_on_signal(&monitor)?;
        let reports = watch(&monitor, || {
            lab::run(&studies, &options, &monitor, |report| match &folder {
                Some(folder) => folder.put(report),
                None => Ok(()),
            })
        })?;
        let pages = match &folder {
            Some(folder) => folder.put_pages(&reports)?,
            None => Vec::new(),
        };
        let stopped = stopped.load(Ordering::Relaxed);
        if reports.is_empty() {
            return Err(Failure::Refused {
                problem: Box::new(Problem {
                    what: "nothing was measured".to_owned(),
                    why: "the run was stopped before a study was done".to_owned(),
                    hint: "run it again".to_owned(),
                    kind: Kind::Failed,
                    span: None,
                }),
                usage: false,
            });
        }
        if context.json {
            writeln!(io::stdout(), "{}", self.document(&reports))?;
        } else {
            show::reports(&mut stdout(), &reports, &pages)?;
        }
        if stopped {
            let done = reports.len();
            let all = studies.len();
            writeln!(
                io::stderr(),
                "stopped: {done} of {all} studies are done, and kept"
            )?;
        }
        Ok(Ended(u8::from(stopped)))
    }

    /// One study's document, or all of them in one.
    fn document(&self, reports: &[Report]) -> Value {
        match reports {
            [report] if self.studies.len() == 1 && self.studies[0] == report.about.id => {
                lab::output::document(report, VERSION)
            }
            _ => {
                let fields = json!({ "studies": reports, "seed": self.seed, "full": self.full });
                document("lab run", fields)
            }
        }
    }
}

/// The first SIGINT or SIGTERM stops the run and keeps the results so far; the second ends the process. The returned
/// flag is set after the first one.
fn stop_on_signal(monitor: &Arc<Monitor>) -> io::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    let stopped = Arc::new(AtomicBool::new(false));
    let (monitor, flag) = (Arc::clone(monitor), Arc::clone(&stopped));
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut next = || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = interrupt.recv() => 2,
                        _ = terminate.recv() => 15,
                    }
                })
            };
            next();
            flag.store(true, Ordering::Relaxed);
            monitor.stop();
            std::process::exit(128 + next());
        })?;
    Ok(stopped)
}
