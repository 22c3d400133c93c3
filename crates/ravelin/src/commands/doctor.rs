//! `ravelin doctor`: do the layers of this machine's storage agree, and is an array degraded?

use std::path::PathBuf;

use block::Full;
use clap::Args;
use control::ClientError;
use control::api::Pools;
use doctor::{Belief, Finding, Options, Report, Tree};
use engine::status::Health;

use super::common::{Context, Ended, Failure};

/// Check alignment, claims and arrays of this machine; read-only.
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Only these devices, with what they stand on and what stands on them.
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,
    /// Read a copied tree (its `sys`, `dev`, `proc`, `etc`) instead of this machine.
    #[arg(long, value_name = "DIR")]
    sysroot: Option<PathBuf>,
    /// A result of `ravelin shear --json`, besides those in /var/lib/ravelin/shear.
    #[arg(long, value_name = "[DEVICE=]FILE")]
    shear: Vec<String>,
}

impl DoctorArguments {
    pub(crate) fn run(self, context: &Context) -> Result<Ended, Failure> {
        let beliefs = self.shear.iter().map(|text| belief(text));
        let options = Options {
            devices: self.devices,
            beliefs: beliefs.collect::<Result<_, _>>()?,
        };
        let live = self.sysroot.is_none();
        let root = self.sysroot.unwrap_or_else(|| PathBuf::from("/"));
        if !root.join("sys/block").is_dir() {
            return Err(Failure::usage(
                "nothing was examined",
                format!("{} has no directory sys/block", root.display()),
                "copy it there as docs/doctor.md says",
            ));
        }
        let mut report = doctor::examine(&Tree::new(root), &options).map_err(|error| {
            Failure::usage("nothing was examined", error.to_string(), error.hint())
        })?;
        if live && options.devices.is_empty() {
            ask_daemon(context, &mut report);
        }
        context.print("doctor", &report, |out| report.write(out))?;
        Ok(Ended(u8::from(!report.well)))
    }
}

/// `FILE`, or `DEVICE=FILE` where the file does not name the device.
fn belief(text: &str) -> Result<Belief, Failure> {
    let (device, file) = match text.split_once('=') {
        Some((device, file)) if !std::path::Path::new(text).exists() => (Some(device), file),
        _ => (None, text),
    };
    let failure =
        |why: String, hint: &str| Failure::usage(format!("{file} cannot be used"), why, hint);
    let json = std::fs::read_to_string(file)
        .map_err(|error| failure(error.to_string(), "check the file's name"))?;
    Belief::parse(&json, device).map_err(|error| failure(error.to_string(), error.hint()))
}

/// Adds the daemon's pools that are not healthy. A missing daemon is not an error: most machines have none.
fn ask_daemon(context: &Context, report: &mut Report) {
    match context.client().get::<Pools>("pools") {
        Ok(pools) => {
            for pool in pools.pools {
                let what = match pool.health {
                    Health::Healthy => continue,
                    Health::Degraded => "it has less redundancy than it should have",
                    Health::Damaged => "some of its data is lost",
                    Health::Unusable => {
                        "some of its data cannot be read without drives that are out"
                    }
                };
                report.findings.push(Finding {
                    device: format!("pool {}", pool.name),
                    finding: "degraded",
                    what: what.to_owned(),
                    command: format!("ravelin pool status {}", pool.name),
                });
            }
        }
        Err(ClientError::NoDaemon { .. }) => {}
        Err(error) => report.notes.push(Full(error).to_string()),
    }
    report.well = report.findings.is_empty();
}
