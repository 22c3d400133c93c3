//! `ravelin volume list` and `ravelin volume show`.

use std::io::{self, Write};

use control::Client;
use control::api::{Export, Status, Volume, Volumes};
use control::client::path;
use serde_json::json;

use crate::commands::common::{Context, Failure, VolumeName, count, size};
use crate::commands::pool::{self, table};

/// How long `list` finds out what of a volume is allocated, and `show`.
const LIST_MILLISECONDS: u64 = 500;
const SHOW_MILLISECONDS: u64 = 10_000;

/// `volume list`.
pub(super) fn list(
    context: &Context,
    client: &Client,
    pool: Option<String>,
    mkfs: bool,
) -> Result<(), Failure> {
    let pools = pool::names(client, pool)?;
    let mut all = Vec::new();
    for pool in &pools {
        let at = path(&["pools", pool, "volumes"]);
        let query = format!("{at}?allocated_milliseconds={LIST_MILLISECONDS}");
        let found: Volumes = client.get(&query)?;
        all.extend(found.volumes);
    }
    context.print("volume list", &json!({ "volumes": all }), |out| {
        if all.is_empty() {
            return writeln!(out, "no volumes");
        }
        let mut lines = table(&["VOLUME", "SIZE", "ALLOCATED", "ATTACHED", "CLIENTS"]);
        for volume in &all {
            let address = |export: &Export| match &export.device {
                Some(device) => format!("{} ({})", export.address, device.display()),
                None => export.address.clone(),
            };
            let addresses: Vec<String> = volume.exports.iter().map(address).collect();
            let clients: usize = volume.exports.iter().map(|export| export.clients).sum();
            lines.add_row(vec![
                format!("{}/{}", volume.pool, volume.name),
                size(volume.size_bytes),
                volume.allocated_bytes.map_or_else(|| "?".to_owned(), size),
                if addresses.is_empty() {
                    "-".to_owned()
                } else {
                    addresses.join(", ")
                },
                clients.to_string(),
            ]);
        }
        writeln!(out, "{lines}")?;
        for volume in all.iter().filter(|_| mkfs) {
            writeln!(out, "{}/{}", volume.pool, volume.name)?;
            write_mkfs(out, volume)?;
        }
        Ok(())
    })
}

fn write_mkfs(out: &mut dyn Write, volume: &Volume) -> io::Result<()> {
    let mut lines = volume.mkfs.iter();
    lines.try_for_each(|line| writeln!(out, "  {line}"))
}

/// `volume show`.
pub(super) fn show(context: &Context, client: &Client, name: &VolumeName) -> Result<(), Failure> {
    let at = path(&["pools", &name.pool, "volumes", &name.volume]);
    let query = format!("{at}?allocated_milliseconds={SHOW_MILLISECONDS}");
    let volume: Volume = client.get(&query)?;
    let status: Status = client.get(&path(&["pools", &name.pool, "status"]))?;
    let scheme = &status.pool.scheme;
    let mut fields = serde_json::to_value(&volume).map_err(io::Error::from)?;
    fields["scheme"] = json!(scheme);
    context.print("volume show", &fields, |out| {
        writeln!(out, "volume `{name}`")?;
        writeln!(
            out,
            "  size       {}, and {} of the pool",
            size(volume.size_bytes),
            size(volume.reserved_bytes)
        )?;
        let allocated = match volume.allocated_bytes {
            Some(bytes) => size(bytes),
            None => "not known: finding out takes too long".to_owned(),
        };
        writeln!(out, "  allocated  {allocated}")?;
        writeln!(
            out,
            "  scheme     {scheme}, chunks of {}, full stripes of {}",
            size(volume.chunk_bytes),
            size(volume.stripe_bytes)
        )?;
        writeln!(out, "  identity   {}", volume.uuid)?;
        if volume.exports.is_empty() {
            writeln!(out, "  attached   -")?;
        }
        for export in &volume.exports {
            writeln!(out, "  attached   {}", attachment(export))?;
        }
        writeln!(out, "file systems that fit the scheme:")?;
        write_mkfs(out, &volume)?;
        writeln!(out, "a disk of qemu, on which mkfs finds these units:")?;
        writeln!(out, "  -device {}", volume.qemu)
    })
}

/// An attachment in a line.
fn attachment(export: &Export) -> String {
    let mut words = vec![export.address.clone()];
    if let Some(device) = export.link.as_ref().or(export.device.as_ref()) {
        words.push(format!("the block device {}", device.display()));
    }
    words.push(match export.block_bytes {
        1 => "requests of any size".to_owned(),
        bytes => format!("blocks of {bytes} bytes"),
    });
    if export.read_only {
        words.push("read-only".to_owned());
    }
    words.push(count(export.clients, "1 client", "clients"));
    words.join(", ")
}
