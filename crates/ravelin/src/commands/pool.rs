//! `ravelin pool create | list | status | destroy | import | export | expand | history | events | iostat | rebuild |
//! scrub | wait`.

mod create;
mod elastic;
mod events;
mod expand;
mod glance;
mod history;
mod import;
mod iostat;
mod lost;
mod map;
mod rebuild;
mod scrub;
mod status;
mod wait;

use std::io::{self, Write};

use clap::Subcommand;
use control::Client;
use control::api::{ClosePool, DestroyPool, Done, FailedRestore, Pools, ScrubPool, Status};
use control::client::path;
use serde_json::json;

use super::common::{Context, Ended, Failure, count, size};
use super::complete;
use super::examples;
pub(crate) use super::table::table;

pub(crate) use create::CreateArguments;
pub(crate) use glance::GlanceArguments;

/// Create, monitor and remove pools.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Create a pool of drives.
    #[command(after_long_help = examples::CREATE)]
    Create(CreateArguments),
    /// List the pools that are open.
    #[command(visible_alias = "ls")]
    #[command(after_long_help = examples::LIST)]
    List,
    /// Show pool health and progress.
    #[command(visible_alias = "detail")]
    #[command(after_long_help = examples::STATUS)]
    Status {
        /// One pool only.
        #[arg(add = complete::pools())]
        name: Option<String>,
        /// Exit with 0 if healthy, 1 degraded, 2 data lost or unusable, 4 cannot tell.
        #[arg(long, value_enum, require_equals = true, num_args = 0..=1)]
        #[arg(default_missing_value = "redundancy")]
        check: Option<status::Check>,
        /// Draw the drives in their enclosures and slots.
        #[arg(long)]
        map: bool,
    },
    /// Destroy a pool and what it holds.
    #[command(after_long_help = examples::DESTROY)]
    Destroy {
        /// The pool.
        #[arg(add = complete::pools())]
        name: String,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        /// Cut off clients that are connected.
        #[arg(long)]
        force: bool,
    },
    /// Open a pool, or without a name show which could be opened.
    #[command(visible_alias = "assemble")]
    #[command(after_long_help = examples::IMPORT)]
    Import(import::ImportArguments),
    /// Close a pool, so that its drives can be taken elsewhere.
    #[command(visible_alias = "stop")]
    #[command(after_long_help = examples::EXPORT)]
    Export {
        /// The pool.
        #[arg(add = complete::pools())]
        name: String,
        /// Cut off clients that are connected.
        #[arg(long)]
        force: bool,
    },
    /// Take more drives into the layout of a pool of pieces (ddp, crush2): the pool gets their space.
    #[command(visible_alias = "grow")]
    #[command(after_long_help = examples::EXPAND)]
    Expand(expand::ExpandArguments),
    /// Read everything, compare it with its checksums, and mend what is wrong.
    #[command(after_long_help = examples::SCRUB)]
    Scrub {
        /// The pool.
        #[arg(add = complete::pools())]
        name: String,
        /// Hold the scrub that is under way.
        #[arg(long, conflicts_with = "resume")]
        pause: bool,
        /// Let it go on.
        #[arg(long)]
        resume: bool,
        /// Return when it has ended: with 0, or with 1 if data is lost.
        #[arg(long, conflicts_with_all = ["pause", "resume"])]
        wait: bool,
        /// Plan one every week, every month, every so many days, or none: begins nothing now.
        #[arg(long, value_name = "week|month|DAYS|off", value_parser = scrub::every)]
        #[arg(conflicts_with_all = ["pause", "resume", "wait"])]
        every: Option<u32>,
    },
    /// Choose how many stripes of an elastic pool are kept as copies, or show how many are.
    #[command(after_long_help = examples::ELASTIC)]
    Elastic {
        /// The pool.
        #[arg(add = complete::pools())]
        name: String,
        /// A percentage of the stripes that are written, or as many as the drives have space for.
        #[arg(value_name = "auto|PERCENT", value_parser = elastic::share)]
        share: Option<elastic::Share>,
        /// Return when no stripe is to be converted any more.
        #[arg(long)]
        wait: bool,
    },
    /// Steer rebuild and scrub: how much they take from clients, how fast they are at most, or a pause.
    #[command(after_long_help = examples::REBUILD)]
    Rebuild(rebuild::RebuildArguments),
    /// Show who changed what in a pool, and its important events.
    #[command(after_long_help = examples::HISTORY)]
    History {
        /// The pool.
        #[arg(add = complete::pools())]
        name: String,
    },
    /// Show a pool's events.
    #[command(after_long_help = examples::EVENTS)]
    Events(events::EventsArguments),
    /// Show what the drives do.
    #[command(after_long_help = examples::IOSTAT)]
    Iostat(iostat::IostatArguments),
    /// Wait for long work to end.
    #[command(after_long_help = examples::WAIT)]
    Wait(wait::WaitArguments),
}

impl PoolCommand {
    /// Sends the request to the daemon and prints the result.
    pub(crate) fn run(self, context: &Context) -> Result<Ended, Failure> {
        let client = context.client();
        match self {
            Self::Create(arguments) => arguments.run(context, &client)?,
            Self::List => list(context, &client)?,
            Self::Status { name, check, map } => {
                return status::run(context, &client, name, check, map);
            }
            Self::Destroy { name, yes, force } => destroy(context, &client, &name, yes, force)?,
            Self::Import(arguments) => arguments.run(context, &client)?,
            Self::Export { name, force } => {
                let at = path(&["pools", &name, "export"]);
                let Done {} = client.send("POST", &at, &ClosePool { force })?;
                context.print("pool export", &json!({ "name": name }), |out| {
                    writeln!(out, "pool `{name}` is closed; its drives are free")
                })?;
            }
            Self::Scrub {
                name,
                pause,
                resume,
                wait,
                every,
            } => {
                let pause = (pause || resume).then_some(pause);
                let request = ScrubPool {
                    pause,
                    every_days: every,
                };
                return scrub::run(context, &client, &name, request, wait);
            }
            Self::Elastic { name, share, wait } => {
                elastic::run(context, &client, &name, share, wait)?;
            }
            Self::Expand(arguments) => arguments.run(context, &client)?,
            Self::Rebuild(arguments) => arguments.run(context, &client)?,
            Self::History { name } => history::run(context, &client, &name)?,
            Self::Events(arguments) => arguments.run(context, &client)?,
            Self::Iostat(arguments) => arguments.run(context, &client)?,
            Self::Wait(arguments) => arguments.run(context, &client)?,
        }
        Ok(Ended(0))
    }
}

/// A pool's status.
fn ask(client: &Client, name: &str) -> Result<Status, Failure> {
    Ok(client.get(&path(&["pools", name, "status"]))?)
}

/// The named pool, or all pools if no name is given.
pub(super) fn names(client: &Client, name: Option<String>) -> Result<Vec<String>, Failure> {
    if let Some(name) = name {
        return Ok(vec![name]);
    }
    let all: Pools = client.get("pools")?;
    Ok(all.pools.into_iter().map(|pool| pool.name).collect())
}

fn list(context: &Context, client: &Client) -> Result<(), Failure> {
    let all: Pools = client.get("pools")?;
    context.print("pool list", &all, |out| {
        write_failed_restores(out, &all.failed_restores)?;
        if all.pools.is_empty() {
            return writeln!(out, "no pools are open");
        }
        let mut lines = table(&[
            "NAME", "SCHEME", "SIZE", "FREE", "DRIVES", "VOLUMES", "HEALTH",
        ]);
        for pool in &all.pools {
            lines.add_row(vec![
                pool.name.clone(),
                pool.scheme.clone(),
                size(pool.capacity_bytes),
                size(pool.free_bytes),
                pool.drives.to_string(),
                pool.volumes.to_string(),
                status::word(pool.health).to_owned(),
            ]);
        }
        writeln!(out, "{lines}")
    })
}

/// Prints the pools that the daemon could not restore at its start.
fn write_failed_restores(out: &mut dyn Write, failed_restores: &[FailedRestore]) -> io::Result<()> {
    for missing in failed_restores {
        let problem = &missing.problem;
        writeln!(out, "{problem}")?;
        writeln!(out, "  try: {}", problem.hint)?;
    }
    Ok(())
}

fn destroy(
    context: &Context,
    client: &Client,
    name: &str,
    yes: bool,
    force: bool,
) -> Result<(), Failure> {
    let status = ask(client, name)?;
    let volumes = &status.pool.volumes;
    let mut lost = vec![format!(
        "This loses pool `{name}` ({} on {}) with {}{}",
        status.pool.scheme,
        count(status.pool.seats.len(), "a drive", "drives"),
        count(volumes.len(), "its volume", "volumes"),
        if volumes.is_empty() { "." } else { ":" }
    )];
    lost.extend(
        volumes
            .iter()
            .map(|volume| format!("  {name}/{}  {}", volume.name, size(volume.size_bytes))),
    );
    context.confirm(name, &lost, yes)?;
    let request = DestroyPool {
        pool: Some(name.to_owned()),
        force,
    };
    let Done {} = client.send("DELETE", &path(&["pools", name]), &request)?;
    context.print("pool destroy", &json!({ "name": name }), |out| {
        writeln!(
            out,
            "pool `{name}` is destroyed; until its drives are used again, `ravelin pool import --destroyed {name}` brings it back"
        )
    })
}
