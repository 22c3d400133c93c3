//! `ravelin pool events`.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use control::Client;
use control::api::Events;
use control::client::path;
use engine::status::LoggedEvent;
use serde_json::{Value, json};

use crate::commands::common::{Context, Failure, document, utc};
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
