//! `ravelin pool events`.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use control::Client;
use control::api::Events;
use control::client::path;
use engine::status::LoggedEvent;
use serde_json::{Value, json};

use crate::commands::common::{Context, Failure, document};
use crate::commands::complete;

/// The interval between requests for new lines.
const FOLLOW: Duration = Duration::from_millis(250);

/// Print a pool's log.
#[derive(Debug, Args)]
pub(crate) struct EventsArguments {
    /// The pool.
    #[arg(add = complete::pools())]
    name: String,
    /// Go on printing lines as they come; with --json an object a line.
    #[arg(short = 'f', long)]
    follow: bool,
    /// Only lines after this number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
}

impl EventsArguments {
    pub(super) fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let mut after = self.after;
        let at = path(&["pools", &self.name, "events"]);
        loop {
            let Events { events } = client.get(&format!("{at}?after={after}"))?;
            if !self.follow {
                let fields: Vec<Value> = events.iter().map(fields).collect();
                let fields = json!({ "name": self.name, "events": fields });
                return context.print("pool events", &fields, |out| {
                    events.iter().try_for_each(|event| line(out, event))
                });
            }
            let mut out = io::stdout().lock();
            for event in &events {
                if context.json {
                    let mut fields = fields(event);
                    fields["name"] = json!(self.name);
                    writeln!(out, "{}", document("pool event", fields))?;
                } else {
                    line(&mut out, event)?;
                }
                after = event.number;
            }
            out.flush()?;
            drop(out);
            std::thread::sleep(FOLLOW);
        }
    }
}

/// An event for JSON: the time as milliseconds since 1970.
pub(super) fn fields(event: &LoggedEvent) -> Value {
    let since = event.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "number": event.number,
        "at_milliseconds": u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        "event": event.event,
        "severity": event.severity,
        "seat": event.seat,
        "path": event.path,
        "text": event.text,
    })
}

/// An event as a line.
pub(super) fn line(out: &mut dyn Write, event: &LoggedEvent) -> io::Result<()> {
    writeln!(
        out,
        "{:>5}  {}  {}",
        event.number,
        utc(event.at),
        event.text
    )
}

/// `2026-08-01 12:34:56Z`. Days to dates by the era of 400 years that begins in March
/// (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`).
fn utc(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_as_the_calendar_has_them() {
        // From `date -u -d @N`.
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399, "2000-02-28 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (951_868_800, "2000-03-01 00:00:00Z"),
            (1_735_689_599, "2024-12-31 23:59:59Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
