//! `ravelin pool scrub`.

use std::io::{self, Write};
use std::time::Duration;

use control::Client;
use control::api::{Done, ScrubPool};
use control::client::path;
use engine::status::ScrubStatus;
use serde_json::json;

use super::ask;
use crate::commands::common::{Context, Ended, Failure, size, time};

/// How often the progress of a scrub is queried.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How often to scrub, in days.
pub(super) fn every(word: &str) -> Result<u32, String> {
    match word {
        "off" => Ok(0),
        "week" | "weekly" => Ok(7),
        "month" | "monthly" => Ok(30),
        days => match days.parse() {
            Ok(days @ 1..=3650) => Ok(days),
            _ => Err("say week, month, a number of days from 1 to 3650, or off".to_owned()),
        },
    }
}

pub(super) fn run(
    context: &Context,
    client: &Client,
    name: &str,
    request: ScrubPool,
    wait: bool,
) -> Result<Ended, Failure> {
    let Done {} = client.send("POST", &path(&["pools", name, "scrub"]), &request)?;
    let mut status = ask(client, name)?;
    while wait
        && status
            .pool
            .scrub
            .as_ref()
            .is_some_and(|scrub| scrub.running)
    {
        std::thread::sleep(POLL_INTERVAL);
        status = ask(client, name)?;
    }
    let every_days = status.pool.scrub_every_days;
    let scrub = status.pool.scrub;
    let planned = request.every_days.is_some();
    let lost = status.pool.lost;
    // A scrub that could not repair all that it found has failed.
    let failed = scrub
        .as_ref()
        .is_some_and(|scrub| scrub.lost_blocks > 0 || scrub.failed_groups > 0);
    let code = u8::from(wait && (failed || lost.bytes > 0));
    context.print(
        "pool scrub",
        &json!({ "name": name, "scrub": scrub, "every_days": every_days, "lost": lost }),
        |out| match &scrub {
            _ if planned && every_days == 0 => {
                writeln!(out, "pool `{name}`: scrubbed only by `ravelin pool scrub`")
            }
            _ if planned => writeln!(out, "pool `{name}`: scrubbed every {every_days} days"),
            Some(scrub) => writeln!(out, "pool `{name}`: {}", line(scrub)),
            None => writeln!(out, "pool `{name}`: nothing to scrub"),
        },
    )?;
    Ok(Ended(code))
}

/// A scrub in a line.
pub(super) fn line(scrub: &ScrubStatus) -> String {
    let mut found = match (scrub.bad_blocks, scrub.repaired_blocks) {
        (0, 0) if scrub.failed_groups > 0 => "nothing wrong in what could be read".to_owned(),
        (0, 0) => "nothing wrong".to_owned(),
        (bad, repaired) if repaired >= bad => format!("{bad} bad blocks, all repaired"),
        (bad, 0) => format!("{bad} bad blocks, none repaired"),
        (bad, repaired) => format!("{bad} bad blocks, {repaired} repaired"),
    };
    if scrub.lost_blocks > 0 {
        let lost = size(scrub.lost_blocks * 4096);
        found =
            format!("{found}; {lost} of data CANNOT BE REPAIRED (`ravelin pool status` names it)");
    }
    if scrub.failed_groups > 0 {
        let (failed, total) = (scrub.failed_groups, scrub.groups_total);
        found = format!(
            "{found}; {failed} of {total} groups COULD NOT BE CHECKED as a whole (`ravelin pool status` shows the drives)"
        );
    }
    let read = size(scrub.read_bytes);
    let seconds = time(scrub.seconds);
    if scrub.running {
        let (done, total) = (scrub.groups_done, scrub.groups_total);
        format!("{done} of {total} groups, {read} read in {seconds}: {found}")
    } else {
        format!("{read} read in {seconds}: {found}")
    }
}

/// The line of `pool status`: the last scrub, and how often scrubs are planned.
pub(super) fn write(
    out: &mut dyn Write,
    scrub: Option<&ScrubStatus>,
    every_days: u32,
) -> io::Result<()> {
    let planned = match every_days {
        0 => String::new(),
        1 => "one every day".to_owned(),
        days => format!("one every {days} days"),
    };
    match (scrub, planned.as_str()) {
        (None, "") => Ok(()),
        (None, planned) => writeln!(out, "  scrub: none yet; {planned}"),
        (Some(scrub), "") => writeln!(out, "  scrub: {}", line(scrub)),
        (Some(scrub), planned) => writeln!(out, "  scrub: {}; {planned}", line(scrub)),
    }
}
