//! `ravelin pool scrub`.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::Client;
use control::api::{Done, ScrubPool};
use control::client::path;
use engine::status::{PoolStatus, ScrubStatus};
use serde_json::json;

use super::{ask, status};
use crate::commands::common::{Context, Ended, Failure, size, time, utc};

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
    let mut asked = ask(client, name)?;
    while wait && asked.pool.scrub.as_ref().is_some_and(|scrub| scrub.running) {
        std::thread::sleep(POLL_INTERVAL);
        asked = ask(client, name)?;
    }
    let every_days = asked.pool.scrub_every_days;
    let scrub = asked.pool.scrub;
    let planned = request.every_days.is_some();
    let lost = asked.pool.lost;
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
    let (done, total) = (scrub.groups_done, scrub.groups_total);
    if scrub.running {
        let rate = scrub.eta_seconds.map_or_else(
            || "rate not known yet".to_owned(),
            |left| {
                let rate = rate(scrub.bytes_per_second);
                format!("{rate}, ETA {}", time(left))
            },
        );
        let bar = status::bar(share(scrub));
        format!("{bar}, {done} of {total} groups, {read} read, {rate}: {found}")
    } else if scrub.paused {
        let percent = share(scrub) * 100.0;
        format!("paused at {percent:.1} %, {done} of {total} groups, {read} read: {found}")
    } else {
        format!("{read} read in {}: {found}", time(scrub.seconds))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share for display")]
fn share(scrub: &ScrubStatus) -> f64 {
    scrub.groups_done as f64 / scrub.groups_total.max(1) as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate for display"
)]
fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", size(bytes_per_second as u64))
}

/// The lines of `pool status`: the scrub under way, the last one, and the next one that is planned.
pub(super) fn write(out: &mut dyn Write, pool: &PoolStatus) -> io::Result<()> {
    let ended = |scrub: &ScrubStatus| match scrub.ended_at_milliseconds {
        Some(at) => format!("ended {}, {}", date(at), line(scrub)),
        None => line(scrub),
    };
    let last = pool.last_scrub.as_ref();
    let under_way = |scrub: &&ScrubStatus| scrub.running || scrub.paused;
    match (pool.scrub.as_ref().filter(under_way), last) {
        (Some(scrub), last) => {
            let resume = match scrub.paused {
                true if pool.steering.paused => {
                    format!("; `ravelin pool rebuild {} --resume` continues", pool.name)
                }
                true => format!("; `ravelin pool scrub {} --resume` continues", pool.name),
                false => String::new(),
            };
            writeln!(out, "  scrub: {}{resume}", line(scrub))?;
            if let Some(last) = last {
                writeln!(out, "   last: {}", ended(last))?;
            }
        }
        (None, Some(last)) => writeln!(out, "  scrub: {}", ended(last))?,
        (None, None) if pool.scrub_every_days > 0 => writeln!(out, "  scrub: none yet")?,
        (None, None) => {}
    }
    let every = match pool.scrub_every_days {
        1 => "every day".to_owned(),
        days => format!("every {days} days"),
    };
    match pool.next_scrub_at_milliseconds {
        Some(at) if at <= now() => writeln!(out, "   next: within minutes, then {every}"),
        Some(at) => writeln!(out, "   next: {}, then {every}", date(at)),
        None => Ok(()),
    }
}

fn date(milliseconds: u64) -> String {
    utc(UNIX_EPOCH + Duration::from_millis(milliseconds))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_shows_how_far_how_fast_and_how_long_or_that_it_is_paused() {
        let mut scrub = ScrubStatus {
            running: true,
            groups_done: 3,
            groups_total: 8,
            read_bytes: 3 << 20,
            bad_blocks: 0,
            repaired_blocks: 0,
            lost_blocks: 0,
            failed_groups: 0,
            seconds: 3.0,
            paused: false,
            bytes_per_second: f64::from(1 << 20),
            eta_seconds: Some(5.0),
            ended_at_milliseconds: None,
        };
        assert_eq!(
            line(&scrub),
            "[#########...............] 37.5 %, 3 of 8 groups, 3 MiB read, 1 MiB/s, ETA 5.0 s: nothing wrong"
        );
        (scrub.running, scrub.paused) = (false, true);
        assert_eq!(
            line(&scrub),
            "paused at 37.5 %, 3 of 8 groups, 3 MiB read: nothing wrong"
        );
        scrub.paused = false;
        assert_eq!(line(&scrub), "3 MiB read in 3.0 s: nothing wrong");
    }
}
