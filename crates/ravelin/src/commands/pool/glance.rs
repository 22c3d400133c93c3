//! `ravelin status`: everything at a glance, or only what is wrong.

use clap::Args;
use control::api::{Pools, Status};
use engine::status::{Health, ScrubStatus};
use serde_json::{Value, json};

use super::status::{advice, rebuild_line, word};
use super::{ask, scrub, table, write_failed_restores};
use crate::commands::common::{Context, Failure, size};

/// Show everything at a glance: pools, their health, volumes and work under way.
#[derive(Debug, Args)]
pub(crate) struct GlanceArguments {
    /// Show only what is wrong.
    #[arg(short = 'x', long)]
    problems: bool,
}

impl GlanceArguments {
    /// Asks the daemon for all pools and prints a line for each pool.
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client();
        let Pools {
            pools,
            failed_restores,
        } = client.get("pools")?;
        let mut all: Vec<Status> = Vec::new();
        for pool in pools {
            all.push(ask(&client, &pool.name)?);
        }
        let open = all.len();
        if self.problems {
            // A HEALTHY pool may still have a drive that needs attention.
            all.retain(|status| {
                status.pool.health != Health::Healthy || advice(&status.pool).is_some()
            });
        }
        let mut document = json!({ "pools": all.iter().map(fields).collect::<Vec<_>>() });
        if !failed_restores.is_empty() {
            document["failed_restores"] = json!(failed_restores);
        }
        context.print("status", &document, |out| {
            write_failed_restores(out, &failed_restores)?;
            if open == 0 {
                return writeln!(out, "no pools are open");
            }
            if all.is_empty() {
                return match failed_restores.is_empty() {
                    true => writeln!(out, "all pools are healthy"),
                    false => Ok(()),
                };
            }
            let mut lines = table(&[
                "POOL", "HEALTH", "SIZE", "FREE", "DRIVES", "VOLUMES", "ATTACHED",
            ]);
            for status in &all {
                lines.add_row(row(status));
            }
            writeln!(out, "{lines}")?;
            for status in &all {
                let (pool, name) = (&status.pool, &status.pool.name);
                if let Some(rebuild) = pool.rebuild.as_ref().filter(|rebuild| rebuild.running) {
                    let what = rebuild.word();
                    writeln!(out, "{name}: {what} {}", rebuild_line(pool, rebuild))?;
                }
                let under_way = |scrub: &&ScrubStatus| scrub.running || scrub.paused;
                if let Some(scrub) = pool.scrub.as_ref().filter(under_way) {
                    writeln!(out, "{name}: scrub {}", scrub::line(scrub))?;
                }
                if let Some((wrong, action)) = advice(pool) {
                    writeln!(out, "{name}: {wrong}")?;
                    writeln!(out, "  try: {action}")?;
                }
            }
            Ok(())
        })
    }
}

fn row(status: &Status) -> Vec<String> {
    let pool = &status.pool;
    let out = pool.seats.iter().filter(|seat| seat.state == "out").count();
    vec![
        pool.name.clone(),
        word(pool.health).to_owned(),
        size(pool.capacity_bytes),
        size(pool.free_bytes),
        match out {
            0 => pool.seats.len().to_string(),
            out => format!("{}, {out} out", pool.seats.len()),
        },
        pool.volumes.len().to_string(),
        status.exports.len().to_string(),
    ]
}

fn fields(status: &Status) -> Value {
    let pool = &status.pool;
    let advice = advice(pool);
    json!({
        "name": pool.name,
        "health": pool.health,
        "scheme": pool.scheme,
        "capacity_bytes": pool.capacity_bytes,
        "free_bytes": pool.free_bytes,
        "drives": pool.seats.len(),
        "drives_out": pool.seats.iter().filter(|seat| seat.state == "out").count(),
        "volumes": pool.volumes.len(),
        "exports": status.exports.len(),
        "rebuild": pool.rebuild,
        "work": pool.work,
        "steering": pool.steering,
        "scrub": pool.scrub,
        "last_scrub": pool.last_scrub,
        "next_scrub_at_milliseconds": pool.next_scrub_at_milliseconds,
        "problem": advice.as_ref().map(|(wrong, _)| wrong),
        "action": advice.as_ref().map(|(_, action)| action),
    })
}
