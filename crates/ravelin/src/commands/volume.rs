//! `ravelin volume create | list | resize | delete | attach | detach`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use block::ByteSize;
use clap::error::ErrorKind;
use clap::{Arg, ArgGroup, ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueHint};
use control::Client;
use control::api::{
    Attach, AttachTls, ClosePool, CreateVolume, DeleteVolume, Done, Export, Exports, Pools,
    RenameVolume, ResizeVolume, Volume, Volumes,
};
use control::client::path;
use control::exports::{EXPORTS, ExportKind};
use serde_json::json;

use super::common::{Context, Failure, VolumeName, parsed, size};
use super::complete;
use super::examples;
use super::pool::table;

/// Create volumes and serve them.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Create a volume; its bytes are zeros.
    #[command(after_long_help = examples::VOLUME_CREATE)]
    Create {
        /// POOL/VOLUME.
        volume: VolumeName,
        /// Its size.
        #[arg(long, value_name = "SIZE", value_parser = parsed::<ByteSize>)]
        size: ByteSize,
    },
    /// List volumes, and where they are attached.
    #[command(visible_alias = "ls")]
    #[command(after_long_help = examples::VOLUME_LIST)]
    List {
        /// One pool only.
        #[arg(add = complete::pools())]
        pool: Option<String>,
    },
    /// Resize a volume.
    #[command(after_long_help = examples::VOLUME_RESIZE)]
    Resize {
        /// POOL/VOLUME.
        #[arg(add = complete::volumes())]
        volume: VolumeName,
        /// Its new size, or what to add or take off: 2G, +500M, -1G.
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
        /// With --fuse: make a loop device over the file, a block device (needs root).
        #[arg(long = "loop", requires = "fuse")]
        loop_device: bool,
        /// Refuse whatever would change the volume.
        #[arg(long)]
        read_only: bool,
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

/// How a volume is served: one of the kinds of exports, and where.
#[derive(Debug)]
pub(crate) struct At {
    kind: &'static dyn ExportKind,
    place: String,
}

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
        let names = EXPORTS.iter().map(|kind| kind.name());
        command.args(options).group(
            ArgGroup::new("at")
                .args(names)
                .required(true)
                .multiple(false),
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
            Some(Self { kind, place })
        });
        given
            .next()
            .ok_or_else(|| clap::Error::new(ErrorKind::MissingRequiredArgument))
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
                let size = ByteSize(whole_blocks(size.0)?);
                let request = CreateVolume {
                    name: volume.volume.clone(),
                    size_bytes: size.0,
                };
                let at = path(&["pools", &volume.pool, "volumes"]);
                let made: Volume = client.send("POST", &at, &request)?;
                print(context, "volume create", "created", &made)
            }
            Self::List { pool } => list(context, &client, pool),
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
                tls,
            } => attach(
                context,
                &client,
                &volume,
                &to,
                (loop_device, read_only, tls),
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
    (loop_device, read_only, tls): (bool, bool, Tls),
) -> Result<(), Failure> {
    let place = to.kind.absolute(&to.place)?;
    let request = Attach {
        at: [(to.kind.name().to_owned(), place)].into(),
        loop_device,
        read_only,
        insecure: tls.insecure,
        tls_psk: tls.tls_psk.as_ref().map(std::path::absolute).transpose()?,
        tls: tls.files()?,
    };
    let export: Export = client.send("POST", &at(volume, Some("attach")), &request)?;
    context.print("volume attach", &export, |out| {
        let lines = to.kind.said(&volume.to_string(), &export);
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
    let mut volumes = volumes(client, &name.pool)?.into_iter();
    let found = volumes.find(|volume| volume.name == name.volume);
    found.ok_or_else(|| Failure::Refused {
        problem: Box::new(control::api::Problem {
            what: "nothing was changed".to_owned(),
            why: format!("there is no volume `{name}`"),
            hint: "`ravelin volume list` shows what there is".to_owned(),
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

fn list(context: &Context, client: &Client, pool: Option<String>) -> Result<(), Failure> {
    let pools = match pool {
        Some(pool) => vec![pool],
        None => {
            let all: Pools = client.get("pools")?;
            all.pools.into_iter().map(|pool| pool.name).collect()
        }
    };
    let mut all = Vec::new();
    for pool in &pools {
        all.extend(volumes(client, pool)?);
    }
    context.print("volume list", &json!({ "volumes": all }), |out| {
        if all.is_empty() {
            return writeln!(out, "no volumes");
        }
        let mut lines = table(&["VOLUME", "SIZE", "ATTACHED", "CLIENTS"]);
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
                if addresses.is_empty() {
                    "-".to_owned()
                } else {
                    addresses.join(", ")
                },
                clients.to_string(),
            ]);
        }
        writeln!(out, "{lines}")
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
    let size_bytes = whole_blocks(size_bytes.of(now.size_bytes).ok_or_else(|| {
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
    print(context, "volume resize", "resized", &changed)
}

/// A volume's new size: absolute, or relative to its present size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewSize {
    To(u64),
    More(u64),
    Less(u64),
}

impl NewSize {
    /// The size of a volume that has `now` bytes; `None` if nothing would be left.
    fn of(self, now: u64) -> Option<u64> {
        match self {
            Self::To(bytes) => Some(bytes),
            Self::More(bytes) => Some(now.saturating_add(bytes)),
            Self::Less(bytes) => now.checked_sub(bytes).filter(|&left| left > 0),
        }
    }
}

impl std::str::FromStr for NewSize {
    type Err = <ByteSize as std::str::FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = |text: &str| text.parse::<ByteSize>().map(|size| size.0);
        Ok(match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(more), _) => Self::More(bytes(more)?),
            (_, Some(less)) => Self::Less(bytes(less)?),
            (None, None) => Self::To(bytes(text)?),
        })
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

#[cfg(test)]
mod tests {
    use super::NewSize;

    #[test]
    fn a_size_with_a_sign_is_a_change() {
        let of = |text: &str| text.parse::<NewSize>().unwrap().of(10 << 20);
        assert_eq!(of("1M"), Some(1 << 20));
        assert_eq!(of("+1M"), Some(11 << 20));
        assert_eq!(of("-1M"), Some(9 << 20));
        assert_eq!(of("-10M"), None);
        for text in ["", "+", "-", "+-1M", "1M+", "--1M"] {
            assert!(text.parse::<NewSize>().is_err(), "{text}");
        }
    }
}
