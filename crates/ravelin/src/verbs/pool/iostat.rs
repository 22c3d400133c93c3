//! `ravelin pool iostat`: what the drives do.

use std::io;
use std::time::{Duration, Instant};

use clap::Args;
use control::Client;
use engine::status::{DriveTraffic, SeatStatus};
use serde_json::{Value, json};

use super::{ask, names, table};
use crate::verbs::common::{Context, Failure, size};
use crate::verbs::complete;

/// Print what the drives do.
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

/// A drive's traffic in a report.
struct Line {
    pool: String,
    seat: SeatStatus,
    done: DriveTraffic,
}

impl IostatArguments {
    pub(super) fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let since_open = lines(client, self.name.as_deref())?;
        let Some(interval) = self.interval else {
            return print(context, &since_open, None);
        };
        let (mut before, mut at) = (since_open, Instant::now());
        let mut left = self.count;
        while left != Some(0) {
            left = left.map(|left| left - 1);
            std::thread::sleep(Duration::from_secs(interval.into()));
            let mut now = lines(client, self.name.as_deref())?;
            let seconds = at.elapsed().as_secs_f64();
            at = Instant::now();
            let total: Vec<DriveTraffic> = now.iter().map(|line| line.done).collect();
            for line in &mut now {
                let earlier = before.iter().find(|earlier| {
                    earlier.pool == line.pool && earlier.seat.drive == line.seat.drive
                });
                if let Some(earlier) = earlier {
                    line.done = less(line.done, earlier.done);
                }
            }
            print(context, &now, Some(seconds))?;
            for (line, total) in now.iter_mut().zip(total) {
                line.done = total;
            }
            before = now;
        }
        Ok(())
    }
}

fn lines(client: &Client, name: Option<&str>) -> Result<Vec<Line>, Failure> {
    let mut lines = Vec::new();
    for name in names(client, name.map(str::to_owned))? {
        let status = ask(client, &name)?;
        lines.extend(status.pool.seats.into_iter().map(|seat| Line {
            pool: name.clone(),
            done: seat.traffic,
            seat,
        }));
    }
    Ok(lines)
}

/// Counters begin anew when a drive is opened anew; then what they say is what was done since.
fn less(now: DriveTraffic, before: DriveTraffic) -> DriveTraffic {
    let less = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
    DriveTraffic {
        reads: less(now.reads, before.reads),
        read_bytes: less(now.read_bytes, before.read_bytes),
        writes: less(now.writes, before.writes),
        write_bytes: less(now.write_bytes, before.write_bytes),
        errors: less(now.errors, before.errors),
    }
}

fn print(context: &Context, lines: &[Line], seconds: Option<f64>) -> Result<(), Failure> {
    let drives: Vec<Value> = lines
        .iter()
        .map(|line| {
            json!({
                "pool": line.pool, "seat": line.seat.seat, "path": line.seat.path,
                "state": line.seat.state, "reads": line.done.reads,
                "read_bytes": line.done.read_bytes, "writes": line.done.writes,
                "write_bytes": line.done.write_bytes, "errors": line.done.errors,
            })
        })
        .collect();
    let fields = json!({ "seconds": seconds, "drives": drives });
    context.print("pool iostat", &fields, |out| write(out, lines, seconds))
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates for display"
)]
fn write(out: &mut dyn io::Write, lines: &[Line], seconds: Option<f64>) -> io::Result<()> {
    let rate =
        |count: u64| seconds.map_or(count, |seconds| (count as f64 / seconds).round() as u64);
    let mut lines_out = match seconds {
        None => table(&[
            "POOL", "SEAT", "DRIVE", "READS", "READ", "WRITES", "WRITTEN", "ERRORS",
        ]),
        Some(_) => table(&[
            "POOL",
            "SEAT",
            "DRIVE",
            "READS/s",
            "READ/s",
            "WRITES/s",
            "WRITTEN/s",
            "ERRORS",
        ]),
    };
    for line in lines {
        lines_out.add_row(vec![
            line.pool.clone(),
            line.seat.seat.to_string(),
            line.seat.path.clone(),
            rate(line.done.reads).to_string(),
            size(rate(line.done.read_bytes)),
            rate(line.done.writes).to_string(),
            size(rate(line.done.write_bytes)),
            line.done.errors.to_string(),
        ]);
    }
    writeln!(out, "{lines_out}")
}
