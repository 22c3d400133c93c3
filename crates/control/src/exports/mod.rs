//! Kinds of exports: a volume is served by a network protocol, or as a file.
//!
//! A new kind of export needs a file here, its `mod` line and its line in [`EXPORTS`] (see
//! `docs/howto/add-an-export.md`). Its name is the option of `volume attach`, the field of [`Attach`] and the key in
//! the record for the next start.

mod blocks;
mod fuse;
mod nbd;
mod read_only;
/// The example of `docs/howto/add-an-export.md`, which is compiled and tested here.
#[cfg(test)]
#[path = "../../../../docs/howto/stream.rs"]
mod stream;

use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::BlockDevice;

use crate::Failure;
use crate::api::{Attach, Export};
use crate::kept::KeptFiles;
use crate::state::SavedDevice;
use read_only::ReadOnly;

/// All kinds of exports, in the order of the help text.
pub static EXPORTS: &[&dyn ExportKind] = &[
    &nbd::Nbd,
    &fuse::Fuse,
    #[cfg(test)]
    &stream::Stream,
];

/// The kind that serves a volume as a file, and makes a loop device over it.
pub const FILE: &dyn ExportKind = &fuse::Fuse;

/// A kind of export.
pub trait ExportKind: fmt::Debug + Sync {
    /// The option of `volume attach`, without dashes, and the field of [`Attach`].
    fn name(&self) -> &'static str;

    /// The placeholder for the option's value in the help text: `ADDRESS`.
    fn value_name(&self) -> &'static str;

    /// The option's help text.
    fn help(&self) -> &'static str;

    /// Makes the place that the user typed absolute: the daemon runs in another directory.
    ///
    /// # Errors
    /// If the current directory cannot be determined.
    fn absolute(&self, place: &str) -> io::Result<String> {
        Ok(place.to_owned())
    }

    /// The options of this kind that the request contains.
    fn options(&self, attach: &Attach) -> Vec<&'static str> {
        let _ = attach;
        Vec::new()
    }

    /// Serves a volume at the requested place.
    ///
    /// # Errors
    /// If the place cannot be parsed or is not available, or an option does not fit.
    fn serve(&self, place: &str, serving: &Serving<'_>) -> Result<Box<dyn Served>, Failure>;

    /// Removes the files and the device that a killed daemon left behind at this place, if they are no longer in use.
    fn remove_dead(&self, place: &str, device: Option<&SavedDevice>) {
        let _ = (place, device);
    }

    /// The lines that the CLI prints after a volume was attached.
    fn said(&self, volume: &str, export: &Export) -> Vec<String> {
        vec![format!("volume `{volume}` is served at {}", export.uri)]
    }
}

/// A volume to be served, and how.
pub struct Serving<'a> {
    /// Its pool and its name.
    pub volume: (&'a str, &'a str),
    /// The volume.
    pub device: Arc<dyn BlockDevice>,
    /// The request.
    pub attach: &'a Attach,
    /// True if the request is one of an earlier run of the daemon.
    pub restored: bool,
    /// The beginning of an error message.
    pub what: &'a str,
    /// Returns the volume that is served at an address.
    pub served_at: &'a dyn Fn(&str) -> Option<String>,
    /// The identity of its pool, and its name: what is served, for kinds of exports that outlive the daemon.
    pub identity: String,
    /// Files that outlive the daemon.
    pub kept: &'a KeptFiles,
    /// The loop device that the daemon before has made.
    pub device_before: Option<&'a SavedDevice>,
}

impl Serving<'_> {
    /// POOL/VOLUME.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.volume.0, self.volume.1)
    }

    /// The volume, wrapped to refuse changes if the request is read-only. For kinds of exports without read-only
    /// support of their own.
    pub(crate) fn device(&self) -> Arc<dyn BlockDevice> {
        let device = Arc::clone(&self.device);
        match self.attach.read_only {
            true => Arc::new(ReadOnly(device)),
            false => device,
        }
    }
}

/// Bytes of a logical block that clients can use.
const BLOCK_SIZES: [u32; 2] = [512, 4096];

/// Refuses a size of logical blocks that clients cannot use, and one for a file, which has none.
fn check_block_size(attach: &Attach, kind: &dyn ExportKind, what: &str) -> Result<(), Failure> {
    let Some(size) = attach.block_size else {
        return Ok(());
    };
    if !BLOCK_SIZES.contains(&size) {
        let why = format!("logical blocks have 512 or 4096 bytes, and not {size}");
        return Err(Failure::request(what, why, "--block-size 4096"));
    }
    if kind.name() == FILE.name() && !attach.loop_device {
        return Err(Failure::request(
            what,
            "--block-size is of a block device, and a file is none",
            "give --loop or --nbd ADDRESS, or leave --block-size out",
        ));
    }
    Ok(())
}

/// A volume that is served. Dropping this ends the export.
pub trait Served: Send {
    /// The name of its kind, a colon, and the place; `unix:` and `tcp:` stand without the kind's name.
    fn address(&self) -> String;

    /// The URI or path for clients.
    fn uri(&self) -> String;

    /// The number of connected clients.
    fn clients(&self) -> usize;

    /// The place to request at the next start, if it differs from the place in this request: it contains the port
    /// that was assigned.
    fn place(&self) -> Option<String> {
        None
    }

    /// The block device that a client has created from it.
    fn device(&self) -> Option<PathBuf> {
        None
    }

    /// The block device that was created with this export and is removed with it.
    fn own_device(&self) -> Option<&Path> {
        None
    }

    /// Ends the service so that the next daemon goes on with the same clients. False if this kind of export cannot;
    /// otherwise dropping it changes nothing any more.
    fn leave(&mut self) -> bool {
        false
    }

    /// Updates the export after the volume was resized.
    ///
    /// # Errors
    /// If its own device keeps the old size.
    fn resized(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The kind and the place of a request.
///
/// # Errors
/// If the request does not name exactly one kind, or has options of another kind.
pub(crate) fn chosen<'a>(
    attach: &'a Attach,
    what: &str,
) -> Result<(&'static dyn ExportKind, &'a str), Failure> {
    let mut asked = EXPORTS.iter().filter_map(|&kind| {
        let place = attach.at.get(kind.name())?;
        Some((kind, place.as_str()))
    });
    let (Some((kind, place)), None) = (asked.next(), asked.next()) else {
        let (mut names, mut options) = (String::new(), String::new());
        for (index, kind) in EXPORTS.iter().enumerate() {
            let or = if index > 0 { " or " } else { "" };
            let (name, value) = (kind.name(), kind.value_name());
            let _ = (
                write!(names, "{or}`{name}`"),
                write!(options, "{or}--{name} {value}"),
            );
        }
        return Err(Failure::request(
            what,
            format!("it takes one of {names}"),
            format!("give {options}"),
        ));
    };
    for other in EXPORTS.iter().filter(|other| other.name() != kind.name()) {
        if let Some(option) = other.options(attach).first() {
            return Err(Failure::request(
                what,
                format!("--{option} does not go with --{}", kind.name()),
                format!(
                    "give --{} {}, or leave --{option} out",
                    other.name(),
                    other.value_name()
                ),
            ));
        }
    }
    check_block_size(attach, kind, what)?;
    Ok((kind, place))
}

#[cfg(test)]
mod tests;
