//! `ravelin volume create | list | show | resize | rename | delete | attach | detach`.

mod show;
mod size;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use block::{ByteSize, closest};
use clap::error::ErrorKind;
use clap::{Arg, ArgGroup, ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueHint};
use control::Client;
use control::api::{
    Attach, AttachTls, ClosePool, CreateVolume, DeleteVolume, Done, Export, Exports, Pools,
    RenameVolume, ResizeVolume, Status, Volume, Volumes,
};
use control::client::path;
use control::exports::{EXPORTS, ExportKind};
use serde_json::json;

use super::common::{Context, Failure, VolumeName, parsed, size};
use super::complete;
use super::examples;
use size::{FirstSize, NewSize, Present};

/// Create volumes and serve them.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Create a volume; its bytes are zeros.
    #[command(after_long_help = examples::VOLUME_CREATE)]
    Create {
        /// POOL/VOLUME.
        volume: VolumeName,
        /// Its size: 100G; max for all that is free in the pool, 50% for half of it.
        #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = parsed::<FirstSize>)]
        size: FirstSize,
    },
    /// List volumes: size, what of it is written, and where they are attached.
    #[command(visible_alias = "ls")]
    #[command(after_long_help = examples::VOLUME_LIST)]
    List {
        /// One pool only.
        #[arg(add = complete::pools())]
        pool: Option<String>,
        /// Print for each volume the commands that make a file system that fits the pool's scheme.
        #[arg(long)]
        mkfs: bool,
    },
    /// Show a volume: size, what of it is written, attachments, and file systems that fit the scheme.
    #[command(after_long_help = examples::VOLUME_SHOW)]
    Show {
        /// POOL/VOLUME.
        #[arg(add = complete::volumes())]
        volume: VolumeName,
    },
    /// Resize a volume.
    #[command(after_long_help = examples::VOLUME_RESIZE)]
    Resize {
        /// POOL/VOLUME.
        #[arg(add = complete::volumes())]
        volume: VolumeName,
        /// Its new size, or what to add or take off: 2G, +500M, -1G; max adds all that is free in the pool, +50% half
        /// of it.
        #[arg(long, value_name = "[+|-]SIZE", allow_hyphen_values = true, value_parser = parsed::<NewSize>)]
        size: NewSize,
        /// Do not ask before a smaller size cuts data off.
        #[arg(long)]
        yes: bool,
        /// Shrink it although it is attached: its clients must expect it.
        #[arg(long)]
        force: bool,
    },
    /// Rename a volume. It must not be attached.
    #[command(after_long_help = examples::VOLUME_RENAME)]
    Rename {
        /// POOL/VOLUME.
        #[arg(add = complete::volumes())]
        volume: VolumeName,
        /// Its new name: VOLUME, or POOL/VOLUME with the same pool.
        #[arg(value_name = "NEW")]
        new: String,
    },
    /// Delete a volume and what it holds.
    #[command(visible_aliases = ["destroy", "rm"])]
    #[command(after_long_help = examples::VOLUME_DELETE)]
    Delete {
        /// POOL/VOLUME.
        #[arg(add = complete::volumes())]
        volume: VolumeName,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
    /// Serve a volume, for as long as the daemon runs.
    #[command(after_long_help = examples::VOLUME_ATTACH)]
    Attach {
        /// POOL/VOLUME.
        #[arg(add = complete::volumes())]
        volume: VolumeName,
        #[command(flatten)]
        to: At,
        /// Make a block device of the volume: a loop device over its file (needs root). Without --fuse the daemon
        /// chooses the file, beside its socket, and removes it afterwards.
        #[arg(long = "loop", conflicts_with = "nbd")]
        loop_device: bool,
        /// Refuse whatever would change the volume.
        #[arg(long)]
        read_only: bool,
        /// Logical blocks of so many bytes: of the loop device, or the shortest request of NBD clients.
        #[arg(long, value_name = "512|4096", value_parser = block_size)]
        block_size: Option<u32>,
        #[command(flatten)]
        tls: Tls,
    },
    /// Print POOL/VOLUME of a block device that serves a volume, for udev's rule.
    #[command(hide = true)]
    #[command(after_long_help = examples::VOLUME_OF_DEVICE)]
    OfDevice {
        /// A block device, such as /dev/nbd0, or a link to one.
        device: PathBuf,
    },
    /// Stop serving a volume.
    #[command(after_long_help = examples::VOLUME_DETACH)]
    Detach {
        /// POOL/VOLUME.
        #[arg(add = complete::volumes())]
        volume: VolumeName,
        /// Cut off clients that are connected.
        #[arg(long)]
        force: bool,
    },
}

/// How a volume is served: one of the kinds of exports, and where. None: the daemon chooses the file below a loop
/// device.
#[derive(Debug)]
pub(crate) struct At(Option<(&'static dyn ExportKind, String)>);

/// An option for each kind of export.
impl Args for At {
    fn augment_args(command: Command) -> Command {
        let options = EXPORTS.iter().map(|kind| {
            Arg::new(kind.name())
                .long(kind.name())
                .value_name(kind.value_name())
                .value_hint(ValueHint::AnyPath)
                .help(kind.help())
        });
        let options = options.map(|option| {
            let own = option.get_id().clone();
            let others = EXPORTS.iter().map(|kind| kind.name());
            option.conflicts_with_all(others.filter(|name| own != *name))
        });
        // A loop device is over a file of the user's choice, or over one that the daemon chooses.
        let names = EXPORTS.iter().map(|kind| kind.name());
        command.args(options).group(
            ArgGroup::new("at")
                .args(names.chain(["loop_device"]))
                .required(true)
                .multiple(true),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for At {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = EXPORTS.iter().filter_map(|&kind| {
            let place = matches.get_one::<String>(kind.name())?.clone();
            Some((kind, place))
        });
        let at = given.next();
        if at.is_none() && !matches.get_flag("loop_device") {
            return Err(clap::Error::new(ErrorKind::MissingRequiredArgument));
        }
        Ok(Self(at))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// TLS of an NBD server.
#[derive(Debug, Args)]
pub(crate) struct Tls {
    /// With --nbd: the server's certificate (PEM); clients must use TLS.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Serve only clients that show a certificate of this authority (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// With --nbd: clients must use TLS with one of the keys in this file, NAME:HEX in a line as psktool writes them.
    #[arg(
        long,
        value_name = "FILE",
        requires = "nbd",
        conflicts_with = "tls_cert"
    )]
    tls_psk: Option<PathBuf>,
    /// With --nbd tcp: serve other machines without knowing who they are: whoever reaches the port has the volume.
    #[arg(long, requires = "nbd", conflicts_with_all = ["tls_client_ca", "tls_psk"])]
    insecure: bool,
}

impl Tls {
    /// The files with absolute paths: the daemon runs in another directory.
    fn files(self) -> std::io::Result<Option<AttachTls>> {
        let (Some(certificate), Some(key)) = (self.tls_cert, self.tls_key) else {
            return Ok(None);
        };
        Ok(Some(AttachTls {
            certificate: std::path::absolute(certificate)?,
            key: std::path::absolute(key)?,
            client_authority: self.tls_client_ca.map(std::path::absolute).transpose()?,
        }))
    }
}

impl VolumeCommand {
    /// Sends the request to the daemon and prints the result.
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client();
        match self {
            Self::Create { volume, size } => {
                let size = ByteSize(first_size(&client, &volume, size)?);
                let request = CreateVolume {
                    name: volume.volume.clone(),
                    size_bytes: size.0,
                };
                let at = path(&["pools", &volume.pool, "volumes"]);
                let made: Volume = client.send("POST", &at, &request)?;
                print(context, "volume create", "created", &made)
            }
            Self::List { pool, mkfs } => show::list(context, &client, pool, mkfs),
            Self::Show { volume } => show::show(context, &client, &volume),
            Self::Resize {
                volume,
                size,
                yes,
                force,
            } => resize(context, &client, &volume, size, (yes, force)),
            Self::Delete { volume, yes } => {
                let now = find(&client, &volume)?;
                let lost = [will_be_lost(&now)];
                context.confirm(&volume.pool, &lost, yes)?;
                let request = DeleteVolume {
                    pool: Some(volume.pool.clone()),
                };
                let Done {} = client.send("DELETE", &at(&volume, None), &request)?;
                print(context, "volume delete", "deleted", &now)
            }
            Self::Attach {
                volume,
                to,
                loop_device,
                read_only,
                block_size,
                tls,
            } => attach(
                context,
                &client,
                &volume,
                &to,
                (loop_device, read_only, block_size, tls),
            ),
            Self::Rename { volume, new } => rename(context, &client, &volume, &new),
            Self::OfDevice { device } => of_device(context, &client, &device),
            Self::Detach { volume, force } => {
                let request = ClosePool { force };
                let ended: Exports = client.send("POST", &at(&volume, Some("detach")), &request)?;
                let fields = json!({
                    "pool": volume.pool, "volume": volume.volume, "exports": ended.exports,
                });
                context.print("volume detach", &fields, |out| {
                    for export in &ended.exports {
                        writeln!(
                            out,
                            "volume `{volume}` is no longer served at {}",
                            export.address
                        )?;
                    }
                    Ok(())
                })
            }
        }
    }
}

fn attach(
    context: &Context,
    client: &Client,
    volume: &VolumeName,
    to: &At,
    (loop_device, read_only, block_size, tls): (bool, bool, Option<u32>, Tls),
) -> Result<(), Failure> {
    let place = to.0.as_ref().map(|(kind, place)| {
        let place = kind.absolute(place)?;
        std::io::Result::Ok((kind.name().to_owned(), place))
    });
    let request = Attach {
        at: place.transpose()?.into_iter().collect(),
        loop_device,
        read_only,
        block_size,
        insecure: tls.insecure,
        tls_psk: tls.tls_psk.as_ref().map(std::path::absolute).transpose()?,
        tls: tls.files()?,
    };
    let export: Export = client.send("POST", &at(volume, Some("attach")), &request)?;
    context.print("volume attach", &export, |out| {
        let kind =
            to.0.as_ref()
                .map_or(control::exports::FILE, |(kind, _)| *kind);
        let lines = kind.said(&volume.to_string(), &export);
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    })
}

fn at(name: &VolumeName, verb: Option<&str>) -> String {
    let mut parts = vec!["pools", &name.pool, "volumes", &name.volume];
    parts.extend(verb);
    path(&parts)
}

/// Prints the volume that a block device serves.
fn of_device(context: &Context, client: &Client, device: &Path) -> Result<(), Failure> {
    let device = std::fs::canonicalize(device).unwrap_or_else(|_| device.to_owned());
    let pools: Pools = client.get("pools")?;
    for pool in pools.pools {
        for volume in volumes(client, &pool.name)? {
            let mut devices = volume
                .exports
                .iter()
                .filter_map(|one| one.device.as_deref());
            if devices.any(|one| one == device) {
                let name = format!("{}/{}", volume.pool, volume.name);
                let fields = json!({ "volume": name, "device": device });
                return context.print("volume of-device", &fields, |out| writeln!(out, "{name}"));
            }
        }
    }
    Err(Failure::failed(
        "no volume was found",
        format!("{} serves none of ours", device.display()),
        "`ravelin volume list` shows which devices do",
    ))
}

fn volumes(client: &Client, pool: &str) -> Result<Vec<Volume>, Failure> {
    let found: Volumes = client.get(&path(&["pools", pool, "volumes"]))?;
    Ok(found.volumes)
}

fn find(client: &Client, name: &VolumeName) -> Result<Volume, Failure> {
    let mut volumes = volumes(client, &name.pool)?;
    if let Some(at) = volumes.iter().position(|volume| volume.name == name.volume) {
        return Ok(volumes.swap_remove(at));
    }
    let hint = "`ravelin volume list` shows what there is";
    let names = volumes.iter().map(|volume| &*volume.name);
    Err(Failure::Refused {
        problem: Box::new(control::api::Problem {
            what: "nothing was changed".to_owned(),
            why: format!("there is no volume `{name}`"),
            hint: match closest(&name.volume, names) {
                Some(close) => format!("there is `{}/{close}`; {hint}", name.pool),
                None => hint.to_owned(),
            },
            kind: control::api::Kind::NotFound,
            span: None,
        }),
        usage: false,
    })
}

fn will_be_lost(volume: &Volume) -> String {
    format!(
        "This loses volume `{}/{}` with its {} for good.",
        volume.pool,
        volume.name,
        size(volume.size_bytes)
    )
}

fn print(context: &Context, kind: &str, done: &str, volume: &Volume) -> Result<(), Failure> {
    context.print(kind, volume, |out| {
        writeln!(
            out,
            "volume `{}/{}` of {} {done}",
            volume.pool,
            volume.name,
            size(volume.size_bytes)
        )
    })
}

fn rename(
    context: &Context,
    client: &Client,
    volume: &VolumeName,
    new: &str,
) -> Result<(), Failure> {
    let name = match new.split_once('/') {
        None => new,
        Some((pool, name)) if pool == volume.pool => name,
        Some((pool, _)) => {
            return Err(Failure::usage(
                format!("volume `{volume}` was not renamed"),
                format!("`{pool}` is another pool, and its data stays where it is"),
                "give a name within the same pool",
            ));
        }
    };
    let request = RenameVolume {
        name: name.to_owned(),
    };
    let renamed: Volume = client.send("POST", &at(volume, Some("rename")), &request)?;
    context.print("volume rename", &renamed, |out| {
        writeln!(
            out,
            "volume `{volume}` is now `{}/{}`",
            renamed.pool, renamed.name
        )
    })
}

fn resize(
    context: &Context,
    client: &Client,
    name: &VolumeName,
    size_bytes: NewSize,
    (yes, force): (bool, bool),
) -> Result<(), Failure> {
    let now = find(client, name)?;
    let present = Present {
        size_bytes: now.size_bytes,
        reserved_bytes: now.reserved_bytes,
        free_bytes: match size_bytes.needs_free() {
            true => free_bytes(client, &name.pool)?,
            false => 0,
        },
    };
    let size_bytes = whole_blocks(size_bytes.of(present).ok_or_else(|| {
        Failure::usage(
            format!("volume `{name}` was not resized"),
            format!("its {} less that is nothing", size(now.size_bytes)),
            "a smaller change, or `ravelin volume delete`",
        )
    })?)?;
    let shrink = size_bytes < now.size_bytes;
    if shrink {
        let lost = format!(
            "This loses whatever volume `{name}` holds between {} and {}.",
            size(size_bytes),
            size(now.size_bytes)
        );
        context.confirm(&name.pool, &[lost], yes)?;
    }
    let request = ResizeVolume {
        size_bytes,
        shrink,
        pool: shrink.then(|| name.pool.clone()),
        force,
    };
    let changed: Volume = client.send("PATCH", &at(name, None), &request)?;
    print(context, "volume resize", "resized", &changed)?;
    // Clients learn a size when they connect; the kernel's NBD client never asks again.
    let is_nbd = |export: &Export| !export.address.starts_with("fuse:");
    if !context.json && size_bytes != now.size_bytes && changed.exports.iter().any(is_nbd) {
        eprintln!(
            "NBD clients that are connected keep the size of {}: connect them again (`nbd-client -d`, then `nbd-client`)",
            size(now.size_bytes)
        );
    }
    Ok(())
}

/// What is free in a pool.
fn free_bytes(client: &Client, pool: &str) -> Result<u64, Failure> {
    let status: Status = client.get(&path(&["pools", pool, "status"]))?;
    Ok(status.pool.free_bytes)
}

/// The size in bytes of a volume to be created.
fn first_size(client: &Client, name: &VolumeName, size: FirstSize) -> Result<u64, Failure> {
    if !size.needs_free() {
        return whole_blocks(size.of(0));
    }
    match size.of(free_bytes(client, &name.pool)?) {
        0 => Err(Failure::failed(
            format!("volume `{name}` was not created"),
            format!("nothing is free in pool `{}`", name.pool),
            "delete or shrink a volume; `ravelin volume list` shows them",
        )),
        bytes => Ok(bytes),
    }
}

/// Sizes of logical blocks that there are.
fn block_size(text: &str) -> Result<u32, String> {
    match text {
        "512" => Ok(512),
        "4096" | "4k" | "4K" => Ok(4096),
        _ => Err("it is 512 or 4096".to_owned()),
    }
}

/// Volumes are made of whole blocks: other sizes are rounded up, with a note on stderr.
fn whole_blocks(bytes: u64) -> Result<u64, Failure> {
    let whole = bytes.checked_next_multiple_of(block::BLOCK_BYTES);
    let whole = whole.unwrap_or(bytes);
    if whole != bytes {
        writeln!(
            std::io::stderr(),
            "note: {bytes} bytes are rounded up to {whole}: volumes are made of blocks of 4 KiB"
        )?;
    }
    Ok(whole)
}
