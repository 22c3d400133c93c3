//! `ravelin pool iostat`: what drives and volumes do, how long that takes, and what waits.

use std::io;
use std::time::{Duration, Instant};

use clap::Args;
use control::Client;
use control::client::path;
use engine::traffic::{DriveLine, Operations, PoolTraffic, Purposes, Traffic, VolumeLine};
use serde_json::{Value, json};

use super::status::used_space;
use super::{names, table};
use crate::commands::common::{Context, Failure, size};
use crate::commands::complete;

/// Print what drives and volumes do: operations, bytes, what waits (QUEUE), and how long reads and writes take, on
/// average and 99 of 100 at most; of drives that know it, how much of their physical space is used. Then what the
/// drives of a pool are asked together, by purpose. Discards are also writes of zeros.
#[derive(Debug, Args)]
pub(crate) struct IostatArguments {
    /// One pool only.
    #[arg(add = complete::pools())]
    name: Option<String>,
    /// Report again after so many seconds, what was done between. Without it, what was done since
    /// the pool was opened.
    #[arg(value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    interval: Option<u32>,
    /// How many reports; without end if not given.
    #[arg(value_name = "COUNT")]
    count: Option<u32>,
}

/// The pools' names and their traffic.
type Report = Vec<(String, PoolTraffic)>;

impl IostatArguments {
    pub(super) fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let since_open = report(client, self.name.as_deref())?;
        let Some(interval) = self.interval else {
            return print(context, &since_open, None);
        };
        let (mut before, mut at) = (since_open, Instant::now());
        let mut left = self.count;
        while left != Some(0) {
            left = left.map(|left| left - 1);
            std::thread::sleep(Duration::from_secs(interval.into()));
            let now = report(client, self.name.as_deref())?;
            let seconds = at.elapsed().as_secs_f64();
            at = Instant::now();
            let done =
                { now.iter() }.map(|(name, pool)| (name.clone(), since(&before, name, pool)));
            print(context, &done.collect(), Some(seconds))?;
            before = now;
        }
        Ok(())
    }
}

fn report(client: &Client, name: Option<&str>) -> Result<Report, Failure> {
    let mut report = Report::new();
    for name in names(client, name.map(str::to_owned))? {
        let traffic = client.get(&path(&["pools", &name, "traffic"]))?;
        report.push((name, traffic));
    }
    Ok(report)
}

/// What was done in a pool since `before`.
fn since(before: &Report, name: &str, now: &PoolTraffic) -> PoolTraffic {
    let earlier = before.iter().find(|(other, _)| other == name);
    let Some((_, earlier)) = earlier else {
        return now.clone();
    };
    let mut done = now.clone();
    for line in &mut done.drives {
        let was = { earlier.drives.iter() }.find(|was| was.drive == line.drive);
        if let Some(was) = was {
            line.traffic = line.traffic.since(&was.traffic);
            line.purposes = line.purposes.since(&was.purposes);
        }
    }
    for line in &mut done.volumes {
        let was = { earlier.volumes.iter() }.find(|was| was.name == line.name);
        if let Some(was) = was {
            line.traffic = line.traffic.since(&was.traffic);
        }
    }
    done
}

fn print(context: &Context, report: &Report, seconds: Option<f64>) -> Result<(), Failure> {
    let mut drives = Vec::new();
    let mut volumes = Vec::new();
    let mut purposes = Vec::new();
    for (pool, traffic) in report {
        for DriveLine {
            seat,
            path,
            state,
            physical_bytes,
            used_bytes,
            traffic,
            purposes,
            ..
        } in &traffic.drives
        {
            let mut which = json!({ "pool": pool, "seat": seat, "path": path, "state": state, "purposes": purposes });
            if let (Some(physical), Some(used)) = (physical_bytes, used_bytes) {
                let space = json!({ "physical_bytes": physical, "used_bytes": used });
                which = extended(which, space);
            }
            drives.push(fields(which, traffic));
        }
        purposes.push(together(traffic).named().map(|(purpose, operations)| {
            let which = json!({ "pool": pool, "purpose": purpose });
            extended(which, json!(operations))
        }));
        for VolumeLine { name, traffic } in &traffic.volumes {
            volumes.push(fields(json!({ "pool": pool, "volume": name }), traffic));
        }
    }
    let document = json!({
        "seconds": seconds, "drives": drives, "volumes": volumes, "purposes": purposes.concat(),
    });
    context.print("pool iostat", &document, |out| write(out, report, seconds))
}

/// The operations of all drives of a pool together.
fn together(traffic: &PoolTraffic) -> Purposes {
    let mut all = Purposes::default();
    for line in &traffic.drives {
        all.add(&line.purposes);
    }
    all
}

/// The fields that identify a line, and its numbers.
fn fields(which: Value, traffic: &Traffic) -> Value {
    let numbers = json!({
        "reads": traffic.reads, "read_bytes": traffic.read_bytes,
        "writes": traffic.writes, "write_bytes": traffic.write_bytes,
        "flushes": traffic.flushes,
        "discards": traffic.discards, "discard_bytes": traffic.discard_bytes,
        "errors": traffic.errors, "queue": traffic.queue,
        "latency_mean_nanoseconds": traffic.mean_nanoseconds(),
        "latency_99_nanoseconds": traffic.most_nanoseconds(),
    });
    extended(which, numbers)
}

fn extended(mut which: Value, numbers: Value) -> Value {
    if let (Value::Object(which), Value::Object(numbers)) = (&mut which, numbers) {
        which.extend(numbers);
    }
    which
}

fn write(out: &mut dyn io::Write, report: &Report, seconds: Option<f64>) -> io::Result<()> {
    let heads = ["READS", "READ", "WRITES", "WRITTEN", "FLUSHES", "DISCARDED"];
    let heads = heads.map(|head| match seconds {
        None => head.to_owned(),
        Some(_) => format!("{head}/s"),
    });
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let numbers = [&*heads, &["QUEUE", "MEAN", "99 %", "ERRORS"]].concat();
    let all = || report.iter().flat_map(|(_, traffic)| &traffic.drives);
    let any_known = all().any(|line| line.physical_bytes.is_some());
    let used: &[&str] = if any_known { &["USED"] } else { &[] };
    let mut drives = table(&[&["POOL", "SEAT", "DRIVE"], used, &*numbers].concat());
    let mut volumes = table(&[&["POOL", "VOLUME"], &*numbers].concat());
    let mut purposes = table(&[&["POOL", "PURPOSE"], &*heads].concat());
    for (pool, traffic) in report {
        for line in &traffic.drives {
            let mut which = vec![pool.clone(), line.seat.to_string(), line.path.clone()];
            which.extend(any_known.then(|| used_space(line.physical_bytes, line.used_bytes)));
            drives.add_row([which, cells(&line.traffic, seconds)].concat());
        }
        for line in &traffic.volumes {
            let which = vec![pool.clone(), line.name.clone()];
            volumes.add_row([which, cells(&line.traffic, seconds)].concat());
        }
        for (purpose, asked) in together(traffic).named() {
            let which = vec![pool.clone(), purpose.to_owned()];
            purposes.add_row([which, operations(asked, seconds)].concat());
        }
    }
    writeln!(out, "{drives}")?;
    if !volumes.is_empty() {
        writeln!(out, "\n{volumes}")?;
    }
    if !purposes.is_empty() {
        writeln!(out, "\n{purposes}")?;
    }
    Ok(())
}

fn cells(traffic: &Traffic, seconds: Option<f64>) -> Vec<String> {
    let counted = Operations {
        reads: traffic.reads,
        read_bytes: traffic.read_bytes,
        writes: traffic.writes,
        write_bytes: traffic.write_bytes,
        flushes: traffic.flushes,
        discards: traffic.discards,
        discard_bytes: traffic.discard_bytes,
    };
    let waits = vec![
        traffic.queue.to_string(),
        latency(traffic.mean_nanoseconds()),
        latency(traffic.most_nanoseconds()),
        traffic.errors.to_string(),
    ];
    [operations(&counted, seconds), waits].concat()
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates for display"
)]
fn operations(counted: &Operations, seconds: Option<f64>) -> Vec<String> {
    let rate =
        |count: u64| seconds.map_or(count, |seconds| (count as f64 / seconds).round() as u64);
    vec![
        rate(counted.reads).to_string(),
        size(rate(counted.read_bytes)),
        rate(counted.writes).to_string(),
        size(rate(counted.write_bytes)),
        rate(counted.flushes).to_string(),
        size(rate(counted.discard_bytes)),
    ]
}

/// A latency in the unit in which it has one to three digits before the point.
#[expect(clippy::cast_precision_loss, reason = "for display")]
fn latency(nanoseconds: Option<u64>) -> String {
    match nanoseconds {
        None => "-".to_owned(),
        Some(short @ ..1_000_000) => format!("{:.0} us", short as f64 / 1e3),
        Some(medium @ ..1_000_000_000) => format!("{:.1} ms", medium as f64 / 1e6),
        Some(long) => format!("{:.1} s", long as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_print_in_a_unit_that_fits() {
        for (nanoseconds, text) in [
            (None, "-"),
            (Some(400), "0 us"),
            (Some(81_920), "82 us"),
            (Some(1_310_720), "1.3 ms"),
            (Some(2_000_000_000), "2.0 s"),
        ] {
            assert_eq!(latency(nanoseconds), text);
        }
    }
}
