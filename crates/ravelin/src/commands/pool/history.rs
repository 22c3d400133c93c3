//! `ravelin pool history`.

use std::time::{Duration, UNIX_EPOCH};

use control::Client;
use control::api::{History, HistoryLine};
use control::client::path;
use serde_json::json;

use crate::commands::common::{Context, Failure, utc};

pub(super) fn run(context: &Context, client: &Client, name: &str) -> Result<(), Failure> {
    let History { history } = client.get(&path(&["pools", name, "history"]))?;
    let fields = json!({ "name": name, "history": history });
    context.print("pool history", &fields, |out| {
        if history.is_empty() {
            return writeln!(out, "nothing is recorded");
        }
        let by: Vec<String> = history.iter().map(by).collect();
        let width = by.iter().map(|by| by.chars().count()).max().unwrap_or(0);
        for (line, by) in history.iter().zip(by) {
            let at = UNIX_EPOCH + Duration::from_millis(line.at_milliseconds);
            let what = line.text.as_ref().unwrap_or(&line.what);
            writeln!(out, "{}  {by:width$}  {what}", utc(at))?;
        }
        Ok(())
    })
}

/// The user of a command; none of an event.
fn by(line: &HistoryLine) -> String {
    match (&line.user, line.uid) {
        (Some(user), _) => user.clone(),
        (None, Some(uid)) => uid.to_string(),
        (None, None) => "-".to_owned(),
    }
}
