//! `ravelin pool elastic`.

use std::io::{self, Write};
use std::time::Duration;

use control::Client;
use control::api::{Done, SetElastic};
use control::client::path;
use engine::status::{ElasticStatus, PoolStatus};
use serde_json::json;

use super::ask;
use crate::commands::common::{Context, Failure, size};

/// How often the progress of conversions is queried.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How many stripes should be copies: a percentage, or as many as there is space for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share(Option<u8>);

pub(super) fn share(word: &str) -> Result<Share, String> {
    if word == "auto" {
        return Ok(Share(None));
    }
    let number = word.strip_suffix('%').unwrap_or(word);
    match number.parse() {
        Ok(percent @ 0..=100) => Ok(Share(Some(percent))),
        _ => Err("say auto, or a percentage of the stripes from 0 to 100".to_owned()),
    }
}

pub(super) fn run(
    context: &Context,
    client: &Client,
    name: &str,
    share: Option<Share>,
    wait: bool,
) -> Result<(), Failure> {
    if let Some(Share(percent)) = share {
        let at = path(&["pools", name, "elastic"]);
        let Done {} = client.send("POST", &at, &SetElastic { percent })?;
    }
    let mut elastic = ask(client, name)?.pool.elastic;
    while wait && elastic.as_ref().is_some_and(|elastic| !elastic.at_rest) {
        std::thread::sleep(POLL_INTERVAL);
        elastic = ask(client, name)?.pool.elastic;
    }
    context.print(
        "pool elastic",
        &json!({ "name": name, "elastic": elastic }),
        |out| match &elastic {
            Some(elastic) => writeln!(out, "pool `{name}`: {}", line(elastic)),
            None => writeln!(out, "pool `{name}`: its stripes are never kept as copies"),
        },
    )?;
    Ok(())
}

/// The forms of the stripes in a line.
fn line(elastic: &ElasticStatus) -> String {
    let wanted = match elastic.target_percent {
        Some(percent) => format!("{percent} %"),
        None => "as many as there is space for".to_owned(),
    };
    let covered = match elastic.coverage {
        Some(share) => format!("{:.1} % of the stripes are copies", share * 100.0),
        None => "stripes are being counted".to_owned(),
    };
    let written = size(elastic.written_stripes * elastic.stripe_bytes);
    format!(
        "{covered} ({written} written; wanted: {wanted}); {}",
        elastic.reason
    )
}

/// The line of `pool status`.
pub(super) fn write(out: &mut dyn Write, pool: &PoolStatus) -> io::Result<()> {
    match &pool.elastic {
        Some(elastic) => writeln!(out, "elastic: {}", line(elastic)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage_or_auto() {
        assert_eq!(share("auto"), Ok(Share(None)));
        assert_eq!(share("0"), Ok(Share(Some(0))));
        assert_eq!(share("75%"), Ok(Share(Some(75))));
        for wrong in ["101", "-1", "half", "", "7.5"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_line_has_coverage_aim_and_reason() {
        let elastic = ElasticStatus {
            target_percent: Some(50),
            coverage: Some(0.25),
            written_stripes: 16,
            copy_stripes: 4,
            stripe_bytes: 64 << 10,
            converted_stripes: 4,
            at_rest: false,
            converting_to: Some("copies".to_owned()),
            reason: "stripes become copies: all drives have space".to_owned(),
        };
        assert_eq!(
            line(&elastic),
            "25.0 % of the stripes are copies (1 MiB written; wanted: 50 %); stripes become copies: all drives have space"
        );
    }
}
