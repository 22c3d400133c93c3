//! How volumes are served: by a protocol, or as a file.
//!
//! Adding a kind of export is a file here, its `mod` line and its line in [`EXPORTS`] (`docs/howto/add-an-export.md`). Its name is the
//! option of `volume attach`, the field of [`Attach`] and what is remembered for the next start.

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
use crate::state::SavedDevice;
use read_only::ReadOnly;

/// All kinds of exports, in the order in which help names them.
pub static EXPORTS: &[&dyn ExportKind] = &[
    &nbd::Nbd,
    &fuse::Fuse,
    #[cfg(test)]
    &stream::Stream,
];

/// A way in which volumes are served.
pub trait ExportKind: fmt::Debug + Sync {
    /// The option of `volume attach`, without dashes, and the field of [`Attach`].
    fn name(&self) -> &'static str;

    /// What is given with the option, as help calls it: `ADDRESS`.
    fn value_name(&self) -> &'static str;

    /// What help says of the option.
    fn help(&self) -> &'static str;

    /// What was typed, as the daemon finds it, which runs in another directory.
    ///
    /// # Errors
    /// When this directory cannot be found out.
    fn absolute(&self, place: &str) -> io::Result<String> {
        Ok(place.to_owned())
    }

    /// Options of this kind that the request gives.
    fn options(&self, attach: &Attach) -> Vec<&'static str> {
        let _ = attach;
        Vec::new()
    }

    /// Serves a volume at the place that was asked for.
    ///
    /// # Errors
    /// When the place cannot be understood or had, or an option does not fit.
    fn serve(&self, place: &str, serving: &Serving<'_>) -> Result<Box<dyn Served>, Failure>;

    /// Removes what a killed daemon has left where it served a volume, and the device that it had made, if they are in use no
    /// longer.
    fn remove_dead(&self, place: &str, device: Option<&SavedDevice>) {
        let _ = (place, device);
    }

    /// What a user reads who has attached a volume: lines.
    fn said(&self, volume: &str, export: &Export) -> Vec<String> {
        vec![format!("volume `{volume}` is served at {}", export.uri)]
    }
}

/// What is to be served.
pub struct Serving<'a> {
    /// Its pool and its name.
    pub volume: (&'a str, &'a str),
    /// The volume.
    pub device: Arc<dyn BlockDevice>,
    /// What was asked for.
    pub attach: &'a Attach,
    /// Whether it was asked for in an earlier life of the daemon.
    pub restored: bool,
    /// How a failure begins.
    pub what: &'a str,
    /// Which volume is served at this address.
    pub served_at: &'a dyn Fn(&str) -> Option<String>,
}

impl Serving<'_> {
    /// POOL/VOLUME.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.volume.0, self.volume.1)
    }

    /// The volume; one that refuses changes where that was asked for. For kinds that know no read-only volumes themselves.
    pub(crate) fn device(&self) -> Arc<dyn BlockDevice> {
        let device = Arc::clone(&self.device);
        match self.attach.read_only {
            true => Arc::new(ReadOnly(device)),
            false => device,
        }
    }
}

/// A volume that is served. Dropping it ends that.
pub trait Served: Send {
    /// The name of its kind, a colon and where it is; `unix:` and `tcp:` need no other name.
    fn address(&self) -> String;

    /// What a client is given to find it.
    fn uri(&self) -> String;

    /// Clients now.
    fn clients(&self) -> usize;

    /// What is asked for in the next life of the daemon, if not what was asked for in this: the port that was taken.
    fn place(&self) -> Option<String> {
        None
    }

    /// A block device that clients have made of it.
    fn device(&self) -> Option<PathBuf> {
        None
    }

    /// The block device that was made with it and goes with it.
    fn own_device(&self) -> Option<&Path> {
        None
    }

    /// The volume has another size.
    ///
    /// # Errors
    /// When its own device keeps the old one.
    fn resized(&self) -> io::Result<()> {
        Ok(())
    }
}

/// What is asked for: the kind, and the place.
///
/// # Errors
/// When it is not one kind, or options of another one are given.
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
    Ok((kind, place))
}

#[cfg(test)]
mod tests;
