//! `ravelin doctor`: do the layers of this machine's storage agree, and is an array degraded?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use block::Full;
use clap::Args;
use control::ClientError;
use control::api::{Pools, Volumes};
use control::client::path;
use doctor::{Belief, Finding, Options, Ours, Report, Tree};
use engine::assemble::{Identified, identify};
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
        let mut options = Options {
            devices: self.devices,
            beliefs: beliefs.collect::<Result<_, _>>()?,
            ours: BTreeMap::new(),
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
        let tree = Tree::new(root);
        options.ours = members(&tree);
        if live {
            options.ours.extend(volumes(context));
        }
        let mut report = doctor::examine(&tree, &options).map_err(|error| {
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

/// The drives of pools among the devices of a tree, by their labels.
fn members(tree: &Tree) -> BTreeMap<String, Ours> {
    let mut found = BTreeMap::new();
    for disk in tree.names("sys/block") {
        let sys = format!("sys/block/{disk}");
        if tree
            .number(&format!("{sys}/size"))
            .is_none_or(|size| size == 0)
        {
            continue;
        }
        let mut names = tree.names(&sys);
        names.retain(|part| tree.exists(&format!("{sys}/{part}/partition")));
        names.push(disk);
        for name in names {
            let device = tree.path("dev").join(name.replace('!', "/"));
            if let Ok(Identified::Member(label)) = identify(&device) {
                let (pool, seat) = (label.pool, label.number);
                found.insert(name, Ours::Member { pool, seat });
            }
        }
    }
    found
}

/// The devices that serve volumes of the daemon. None without a daemon.
fn volumes(context: &Context) -> BTreeMap<String, Ours> {
    let client = context.client();
    let mut found = BTreeMap::new();
    let pools: Option<Pools> = client.get("pools").ok();
    for pool in pools.into_iter().flat_map(|pools| pools.pools) {
        let at = path(&["pools", &pool.name, "volumes"]);
        let volumes: Option<Volumes> = client.get(&at).ok();
        let volumes = volumes.into_iter().flat_map(|volumes| volumes.volumes);
        for export in volumes.flat_map(|volume| volume.exports) {
            let name = export.device.as_deref().and_then(Path::file_name);
            if let Some(name) = name.and_then(|name| name.to_str()) {
                let volume = format!("{}/{}", export.pool, export.volume);
                found.insert(name.to_owned(), Ours::Volume { volume });
            }
        }
    }
    found
}

/// Adds the daemon's pools that are not healthy. A missing daemon is not an error: most machines have none.
fn ask_daemon(context: &Context, report: &mut Report) {
    match context.client().get::<Pools>("pools") {
        Ok(pools) => {
            for pool in pools.pools {
                let what = match pool.health {
                    Health::Healthy => continue,
                    Health::Degraded => "it has less redundancy than it should have",
                    Health::Critical => "groups of it have no redundancy left",
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
