//! `ravelin pool expand`.

use std::io::{self, Write};

use clap::Args;
use control::Client;
use control::api::{ExpandPool, ExpandedPool};
use control::client::path;

use crate::commands::common::{Context, Failure, Moves, absolute};
use crate::commands::complete;

/// Take more drives into the layout of a pool.
#[derive(Debug, Args)]
pub(crate) struct ExpandArguments {
    /// The pool.
    #[arg(add = complete::pools())]
    name: String,
    /// Fresh drives, or numbers of spares that wait; DRIVE@DOMAIN#SLOT names enclosure and bay.
    #[arg(required = true, value_name = "DRIVE-or-SEAT", add = complete::drives())]
    drives: Vec<String>,
    /// Show what would move, how long that takes and the capacity, and change nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Use drives that hold something, too: what that is is shown, and lost once the pool's name is typed.
    #[arg(short = 'f', long)]
    force: bool,
    /// With --force: do not ask for the pool's name.
    #[arg(long)]
    yes: bool,
}

impl ExpandArguments {
    pub(super) fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let at = path(&["pools", &self.name, "expand"]);
        let named = |drive: &String| match drive.parse::<u16>() {
            // A number is a spare, not the name of a file.
            Ok(number) => number.to_string(),
            Err(_) => absolute(drive),
        };
        let mut request = ExpandPool {
            drives: self.drives.iter().map(named).collect(),
            force: self.force,
            dry_run: self.dry_run,
        };
        let mut overwrites = Vec::new();
        if request.force && !self.dry_run {
            request.dry_run = true;
            let plan: ExpandedPool = client.send("POST", &at, &request)?;
            request.dry_run = false;
            let lost = lost(&plan);
            context.confirm(&self.name, &lost, self.yes || lost.is_empty())?;
            overwrites = plan.overwrites;
        }
        let mut expanded: ExpandedPool = client.send("POST", &at, &request)?;
        if expanded.expanded {
            expanded.overwrites = overwrites;
        }
        context.print("pool expand", &expanded, |out| write(out, &expanded))
    }
}

fn write(out: &mut dyn Write, expanded: &ExpandedPool) -> io::Result<()> {
    let ExpandedPool { name, plan, .. } = expanded;
    let (before, drives) = (plan.drives_before, plan.drives);
    match expanded.expanded {
        true => writeln!(
            out,
            "pool `{name}` has {drives} drives in its layout, {before} before"
        )?,
        false => writeln!(
            out,
            "pool `{name}` as {} on {drives} drives, {before} before, nothing written:",
            plan.scheme
        )?,
    }
    let moves = Moves {
        pieces: plan.pieces,
        bytes: plan.moved_bytes,
        seconds: plan.seconds,
        bound: &plan.bound,
        drive_bytes_per_second: plan.drive_bytes_per_second,
        capacity_bytes_before: plan.capacity_bytes_before,
        capacity_bytes: plan.capacity_bytes,
    };
    moves.write(out)?;
    match expanded.expanded {
        true => writeln!(
            out,
            "`ravelin pool wait {name} --for expand` waits for the end"
        ),
        false => lost(expanded)
            .iter()
            .try_for_each(|line| writeln!(out, "{line}")),
    }
}

fn lost(plan: &ExpandedPool) -> Vec<String> {
    let overwrites = plan.overwrites.iter();
    let lost = |over: &control::api::Overwrite| {
        format!(
            "This loses what {} holds for good: {}.",
            over.drive, over.holds
        )
    };
    overwrites.map(lost).collect()
}
