//! `ravelin pool rebuild`: the priority, the rate and the pause of a pool's rebuild and scrub.

use std::io::{self, Write};

use array::priority::PRIORITIES;
use block::ByteSize;
use clap::Args;
use clap::builder::PossibleValuesParser;
use control::Client;
use control::api::{Done, SteerPool};
use control::client::path;
use engine::status::{PoolStatus, SteerStatus, WorkStatus};
use serde_json::json;

use super::{ask, status};
use crate::commands::common::{Context, Failure, count, size, time};
use crate::commands::complete;

/// `pool rebuild`.
#[derive(Debug, Args)]
pub(crate) struct RebuildArguments {
    /// The pool.
    #[arg(add = complete::pools())]
    name: String,
    /// How much of the drives' time it may take while clients ask. Groups without redundancy go at `high` in any case.
    #[arg(long, value_parser = names())]
    priority: Option<String>,
    /// The most bytes that the pool moves in a second, whether clients ask or not.
    #[arg(long, value_name = "SIZE|off", value_parser = rate)]
    rate: Option<u64>,
    /// Hold rebuild, copy-back, replacement and scrub, also over restarts of the daemon.
    #[arg(long, conflicts_with = "resume")]
    pause: bool,
    /// Let them go on.
    #[arg(long)]
    resume: bool,
}

fn names() -> PossibleValuesParser {
    PRIORITIES.iter().map(|priority| priority.name()).into()
}

/// A rate in bytes per second; 0: none.
fn rate(word: &str) -> Result<u64, String> {
    if word == "off" {
        return Ok(0);
    }
    match word.strip_suffix("/s").unwrap_or(word).parse() {
        Ok(ByteSize(0)) => Err("say `off` for no bound, or `--pause` to stop".to_owned()),
        Ok(ByteSize(bytes)) => Ok(bytes),
        Err(_) => Err("say bytes per second, such as 100M, or off".to_owned()),
    }
}

impl RebuildArguments {
    pub(super) fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let request = SteerPool {
            priority: self.priority,
            rate_bytes: self.rate,
            pause: (self.pause || self.resume).then_some(self.pause),
        };
        if request != SteerPool::default() {
            let at = path(&["pools", &self.name, "rebuild"]);
            let Done {} = client.send("POST", &at, &request)?;
        }
        let pool = ask(client, &self.name)?.pool;
        let steering = &pool.steering;
        let fields = json!({
            "name": self.name,
            "priority": steering.priority,
            "rate_bytes": steering.rate_bytes,
            "paused": steering.paused,
            "groups_without_redundancy": steering.groups_without_redundancy,
            "work": pool.work,
        });
        context.print("pool rebuild", &fields, |out| write(out, &pool))
    }
}

fn write(out: &mut dyn Write, pool: &PoolStatus) -> io::Result<()> {
    let name = &pool.name;
    writeln!(out, "pool `{name}`: {}", settings(pool))?;
    for work in &pool.work {
        writeln!(out, "  {}", line(work))?;
    }
    if pool.steering.paused {
        if let Some(left) = left_waiting(pool) {
            writeln!(out, "  {left}")?;
        }
        writeln!(out, "  `ravelin pool rebuild {name} --resume` continues")?;
    }
    Ok(())
}

/// The fills under way.
pub(super) fn fills(pool: &PoolStatus) -> Option<&WorkStatus> {
    pool.work.iter().find(|work| work.is_fill())
}

/// The lines of `pool status`: the limits of what goes on, and what an administrator has set, if that is unusual.
pub(super) fn write_steering(out: &mut dyn Write, pool: &PoolStatus) -> io::Result<()> {
    if let Some(work) = fills(pool).filter(|work| !work.paused) {
        writeln!(out, "         {}", outlook(work))?;
    }
    let steering = &pool.steering;
    let standard = SteerStatus {
        groups_without_redundancy: steering.groups_without_redundancy,
        ..SteerStatus::default()
    };
    if *steering != standard {
        writeln!(out, "steered: {}", settings(pool))?;
    }
    Ok(())
}

/// Work in a line.
fn line(work: &WorkStatus) -> String {
    let kind = work.kind.replace('_', "-");
    let (done, total) = (size(work.done_bytes), size(work.total_bytes));
    if work.paused {
        return format!("{kind}: paused at {done} of {total}");
    }
    let bar = status::bar(share(work));
    let rate = size(whole(work.bytes_per_second));
    let outlook = outlook(work);
    format!("{kind}: {bar}, {done} of {total}, {rate}/s; {outlook}")
}

/// When work ends, which drive is the limit, and what was verified.
fn outlook(work: &WorkStatus) -> String {
    let mut parts = Vec::new();
    parts.push(match work.eta_seconds {
        Some([least, _, most]) => format!("ends in {} to {}", time(least), time(most)),
        None => "no end in sight yet".to_owned(),
    });
    if let Some(seat) = work.bottleneck_seat {
        parts.push(format!("seat {seat} has the most left"));
    }
    let read = size(work.read_bytes);
    match work.verified_bytes {
        _ if work.kind == "elastic" => {}
        verified if verified >= work.read_bytes => {
            parts.push(format!("{read} read, all verified"));
        }
        verified => parts.push(format!("{read} read, {} verified", size(verified))),
    }
    if work.repaired_blocks > 0 {
        parts.push(count(
            whole_usize(work.repaired_blocks),
            "a block repaired",
            "blocks repaired",
        ));
    }
    parts.push(format!("priority {}", work.priority));
    parts.join("; ")
}

fn whole_usize(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "a share for display")]
fn share(work: &WorkStatus) -> f64 {
    work.done_bytes as f64 / work.total_bytes.max(1) as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate for display"
)]
const fn whole(rate: f64) -> u64 {
    rate as u64
}

/// What is set, in words.
fn settings(pool: &PoolStatus) -> String {
    let steering = &pool.steering;
    let rate = match steering.rate_bytes {
        Some(rate) => format!("at most {}/s", size(rate)),
        None => "no bound of the rate".to_owned(),
    };
    let paused = match steering.paused {
        true => "paused; ",
        false => "",
    };
    format!("{paused}priority {}, {rate}", steering.priority)
}

/// How many groups have no redundancy, with their verb.
pub(super) fn groups_have(pool: &PoolStatus) -> String {
    match pool.steering.groups_without_redundancy {
        1 => "a group has".to_owned(),
        groups => format!("{groups} groups have"),
    }
}

/// What a pause leaves waiting that should not wait.
pub(super) fn left_waiting(pool: &PoolStatus) -> Option<String> {
    let waits = match pool.steering.groups_without_redundancy {
        0 => return None,
        1 => "a group without redundancy waits".to_owned(),
        groups => format!("{groups} groups without redundancy wait"),
    };
    Some(format!("{waits}, too: another failure loses their data"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_size_or_off() {
        assert_eq!(rate("off"), Ok(0));
        assert_eq!(rate("2M"), Ok(2 << 20));
        assert_eq!(rate("2M/s"), Ok(2 << 20));
        assert!(rate("0").is_err() && rate("fast").is_err());
    }
}
