//! What administrators who know zpool, mdadm, LVM or storcli expect: which commands are safe, and which messages they
//! get.

mod blocks;
mod checks;
mod compress;
mod destroying;
mod devices;
mod doctoring;
mod doors;
mod drives;
mod elastic;
mod expanding;
mod hardening;
mod history;
mod identify;
mod journal;
mod listing;
mod loads;
mod maps;
mod package;
mod plans;
mod schemes;
mod scrubs;
mod sizes;
mod slips;
mod small;
mod stacked;
mod steering;
mod tables;
mod tls;
mod volumes;
mod watching;

use std::ops::Range;

use serde_json::Value;

use crate::support::bench::Bench;

const MIB: u64 = 1 << 20;

/// Writes the first `bytes` of `tank/v`, whole mebibytes, and flushes them.
fn write(bench: &Bench, bytes: u64) {
    let attach = ["volume", "attach", "tank/v", "--nbd", "unix:nbd"];
    let uri = bench.json(&attach)["uri"].as_str().unwrap().to_owned();
    write_to(&uri, 0..bytes / MIB);
}

/// Writes these MiB of an attached volume.
fn write_to(uri: &str, mebibytes: Range<u64>) {
    let mut client = export::nbd::Client::connect(&uri.parse().unwrap(), None).unwrap();
    for at in mebibytes {
        client.write(at * MIB, &[7; 1 << 20], false).unwrap();
    }
    client.flush().unwrap();
    client.disconnect().unwrap();
}

fn status(bench: &Bench) -> Value {
    bench.json(&["pool", "status", "tank"])
}
