//! `ravelin shear TARGET`: finds out how a RAID volume is striped.

mod advice;
mod file;
mod nbd;
mod out;
mod simulated;
mod target;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use shear::{Belief, Method, Options, Shear, Stop};

use super::common::{Context, Failure};
use target::Target;

/// Find out how a volume is striped, by the times of its reads.
#[derive(Debug, Args)]
pub(crate) struct ShearArguments {
    /// A path, a device, an NBD URI, or `sim:SCHEME?chunk=8K&disk=9lzx&…` for a simulated volume.
    target: String,
    /// Only read: the default on real targets.
    #[arg(long, conflicts_with = "writes")]
    reads_only: bool,
    /// Also write back what is there. Nothing else may write to the target meanwhile. The default on simulated ones.
    #[arg(long)]
    writes: bool,
    /// Stop after so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    max_seconds: Option<u64>,
    /// At most so many requests per second, on average.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_iops: Option<u64>,
    /// At most so many requests.
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    max_ios: u64,
    /// Seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The method: `ours`, or the paper's as `published`, which takes millions of requests.
    #[arg(long, value_enum, default_value_t = MethodName::Ours)]
    method: MethodName,
    /// Write belief.json, curve.csv, pairs.csv and index.html there.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MethodName {
    Ours,
    Published,
}

impl MethodName {
    const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Published => "published",
        }
    }
}

impl From<MethodName> for Method {
    fn from(name: MethodName) -> Self {
        match name {
            MethodName::Ours => Self::Ours,
            // N and R as in the paper's Figure 7; the longest pattern tried is a choice of ours.
            MethodName::Published => Self::Published {
                requests: 500,
                trials: 10,
                step_bytes: 4096,
                pattern_bytes_max: 1 << 20,
            },
        }
    }
}

impl ShearArguments {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let simulated = self.target.starts_with("sim:");
        let writes = self.writes || (simulated && !self.reads_only);
        let mut target = target::open(&self.target, writes)?;
        if writes && !simulated {
            writeln!(
                io::stderr(),
                "ravelin: {} is written to: what was read is put back. A program that writes to it meanwhile loses what it wrote.",
                self.target
            )?;
        }
        let mut shear = Shear::new(Options {
            size_bytes: target.size_bytes(),
            writes,
            ios_max: self.max_ios,
            seed: self.seed,
            method: self.method.into(),
        });
        let seconds = self.drive(&mut shear, target.as_mut())?;
        let belief = shear.belief();
        let advice = advice::of(&belief, &self.target);
        let document = self.document(&shear, &belief, &advice, seconds);
        if let Some(directory) = &self.out {
            out::write(directory, &self.target, &shear, &belief, &document).map_err(|error| {
                Failure::usage(
                    "the results were not written",
                    format!("{}: {error}", directory.display()),
                    "give a directory that can be written with --out",
                )
            })?;
        }
        context.print("shear", &document, |out| {
            out::print(out, &shear, &belief, &advice, seconds)
        })
    }

    /// Carries out bursts to the end or the limit. Returns the seconds that this took.
    fn drive(&self, shear: &mut Shear, target: &mut dyn Target) -> Result<f64, Failure> {
        let start = Instant::now();
        let mut shown = Instant::now();
        while let Some(probe) = shear.next_probe() {
            let spent = target
                .seconds()
                .unwrap_or_else(|| start.elapsed().as_secs_f64());
            #[expect(clippy::cast_precision_loss, reason = "limits")]
            if self.max_seconds.is_some_and(|limit| spent >= limit as f64) {
                shear.stop(Stop::Seconds);
                continue;
            }
            match target.burst(&probe) {
                Ok(sample) => shear.record(sample),
                Err(why) => {
                    // If the volume fails, the earlier results cannot be trusted either.
                    shear.stop(Stop::Failed(why.clone()));
                    while shear.next_probe().is_some() {
                        shear.stop(Stop::Failed(why.clone()));
                    }
                    return Err(target::failure(&self.target, &why));
                }
            }
            self.pace(shear.ios(), start, target);
            if shown.elapsed() > Duration::from_millis(500) && io::stderr().is_terminal() {
                shown = Instant::now();
                progress(shear, start.elapsed(), self.max_seconds)?;
            }
        }
        if io::stderr().is_terminal() {
            write!(io::stderr(), "\r\x1b[K")?;
        }
        Ok(target
            .seconds()
            .unwrap_or_else(|| start.elapsed().as_secs_f64()))
    }

    /// Sleeps so that the rate stays below its limit.
    fn pace(&self, ios: u64, start: Instant, target: &dyn Target) {
        let Some(limit) = self.max_iops.filter(|_| target.seconds().is_none()) else {
            return;
        };
        #[expect(clippy::cast_precision_loss, reason = "counts of requests")]
        let due = Duration::from_secs_f64(ios as f64 / limit as f64);
        if let Some(early) = due.checked_sub(start.elapsed()) {
            std::thread::sleep(early);
        }
    }

    fn document(&self, shear: &Shear, belief: &Belief, advice: &Value, seconds: f64) -> Value {
        let odd: Vec<Value> = belief
            .odd_drives
            .iter()
            .map(|(position, ratio)| json!({ "position": position, "time_ratio": ratio }))
            .collect();
        json!({
            "target": target::absolute(&self.target),
            "family": belief.family,
            "pattern_bytes": belief.pattern_bytes,
            "chunk_bytes": belief.chunk_bytes,
            "stripe_bytes": belief.stripe_bytes,
            "offset_bytes": belief.offset_bytes,
            "drives": belief.drives,
            "copies": belief.copies,
            "data_width": belief.data_width,
            "cell_bytes": belief.cell_bytes,
            "layout": belief.layout,
            "redundancy": belief.redundancy,
            "degraded": belief.degraded,
            "odd_drives": odd,
            "misconfigured": belief.misconfigured,
            "write_ratio": belief.write_ratio,
            "ios": shear.ios(),
            "seconds": seconds,
            "confidence": belief.confidence,
            "reasons": belief.reasons,
            "advice": advice,
            "method": self.method.name(),
            "seed": self.seed,
        })
    }
}

/// One line on the terminal: step, current belief, requests, time.
fn progress(shear: &Shear, elapsed: Duration, limit: Option<u64>) -> io::Result<()> {
    let belief = shear.belief();
    let known = |bytes: Option<u64>| bytes.map_or("?".to_owned(), super::common::size);
    let left = limit.map_or(String::new(), |limit| {
        format!(
            ", {} s left at most",
            limit.saturating_sub(elapsed.as_secs())
        )
    });
    let mut err = io::stderr().lock();
    write!(
        err,
        "\r\x1b[K{}: pattern {}, chunk {}, confidence {:.4}; {} requests in {} s{left}",
        belief.step,
        known(belief.pattern_bytes),
        known(belief.chunk_bytes),
        belief.confidence,
        shear.ios(),
        elapsed.as_secs(),
    )?;
    err.flush()
}
