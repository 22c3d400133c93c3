//! `ravelin pool import`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use control::Client;
use control::api::{FoundPool, FoundPools, Import, Scan, Status};

use super::{status, table};
use crate::commands::common::{Context, Failure};

/// Open a pool, or without a name show which could be opened.
#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// Name or identity of the pool.
    name: Option<String>,
    /// The name that the pool has from now on: for a pool whose name another one has here.
    new_name: Option<String>,
    /// Where to look: directories, files or devices. All block devices if not given.
    #[arg(short = 'd', long = "dir", value_name = "DIR")]
    places: Vec<PathBuf>,
    /// Open it although half of its drives or data are missing.
    #[arg(long)]
    degraded: bool,
    /// Give up drives that are away: what only they have is lost for good.
    #[arg(
        long,
        value_name = "SEAT",
        value_delimiter = ',',
        requires = "degraded"
    )]
    give_up: Vec<u16>,
    /// Write the labels of drives whose beginning was overwritten anew, by the copies at their ends.
    ///
    /// What was written over them goes: the first MiB of these drives.
    #[arg(long)]
    repair_labels: bool,
    /// Bring a destroyed pool back, as long as its drives are not used again; without a name show which could be.
    #[arg(long, conflicts_with = "repair_labels")]
    destroyed: bool,
    /// Do not ask for the pool's name before drives are given up or written to.
    #[arg(long)]
    yes: bool,
}

impl ImportArguments {
    pub(super) fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let places = self.places.iter().map(std::path::absolute);
        let places = places.collect::<Result<Vec<PathBuf>, _>>()?;
        let Some(name) = self.name else {
            return show(context, client, places, self.destroyed);
        };
        if !self.give_up.is_empty() {
            let seats = self.give_up.iter().map(u16::to_string);
            let seats = seats.collect::<Vec<_>>().join(", ");
            let lost = format!("what only the drives of the seats {seats} have, for good");
            context.confirm(&name, &[lost], self.yes)?;
        }
        let is_meant = |pool: &&FoundPool| pool.name == name || pool.uuid == name;
        if self.destroyed {
            let scan = Scan {
                places: places.clone(),
                destroyed: true,
            };
            let found: FoundPools = client.send("POST", "pools/scan", &scan)?;
            for pool in found.pools.iter().filter(is_meant) {
                write_used_again(&mut io::stderr().lock(), pool)?;
            }
        }
        if self.repair_labels {
            let scan = Scan {
                places: places.clone(),
                destroyed: false,
            };
            let found: FoundPools = client.send("POST", "pools/scan", &scan)?;
            let drives = { found.pools.iter() }
                .filter(is_meant)
                .flat_map(|pool| &pool.overwritten);
            let lost: Vec<String> = drives
                .map(|drive| format!("the first MiB of {}", drive.display()))
                .collect();
            if !lost.is_empty() {
                context.confirm(&name, &lost, self.yes)?;
            }
        }
        let request = Import {
            name,
            new_name: self.new_name,
            places,
            degraded: self.degraded,
            give_up: self.give_up,
            repair_labels: self.repair_labels,
            destroyed: self.destroyed,
        };
        let opened: Status = client.send("POST", "pools/import", &request)?;
        context.print("pool import", &status::fields(&opened), |out| {
            let pool = &opened.pool;
            writeln!(
                out,
                "pool `{}` is open: {}",
                pool.name,
                status::word(pool.health)
            )
        })
    }
}

/// The drives of a destroyed pool that nothing brings back.
fn write_used_again(out: &mut dyn Write, pool: &FoundPool) -> io::Result<()> {
    for drive in &pool.used_again {
        writeln!(
            out,
            "{}: {} is used again and does not come back: it holds {}",
            pool.name, drive.drive, drive.holds
        )?;
    }
    Ok(())
}

fn show(
    context: &Context,
    client: &Client,
    places: Vec<PathBuf>,
    destroyed: bool,
) -> Result<(), Failure> {
    let scan = Scan { places, destroyed };
    let found: FoundPools = client.send("POST", "pools/scan", &scan)?;
    context.print("pool import", &found, |out| {
        if found.pools.is_empty() {
            let which = match destroyed {
                true => "no destroyed pools",
                false => "no pools to import",
            };
            return writeln!(
                out,
                "{which} here; name the directories of drives with --dir"
            );
        }
        let mut lines = table(&["NAME", "SCHEME", "DRIVES", "FOUND", "IDENTITY"]);
        for pool in &found.pools {
            lines.add_row(vec![
                pool.name.clone(),
                pool.scheme.clone(),
                pool.drives.to_string(),
                pool.paths.len().to_string(),
                pool.uuid.clone(),
            ]);
        }
        writeln!(out, "{lines}")?;
        for pool in &found.pools {
            write_used_again(out, pool)?;
            let (name, count) = (&pool.name, pool.overwritten.len());
            if count > 0 {
                writeln!(
                    out,
                    "{name}: the beginning of {count} more of its drives is overwritten\n  try: `ravelin pool import --repair-labels {name}`"
                )?;
            }
        }
        Ok(())
    })
}
