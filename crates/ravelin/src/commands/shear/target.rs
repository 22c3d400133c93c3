//! What is measured: a file, a device, an export, a simulated array.

use std::path::Path;

use shear::{Probe, Sample};

use super::super::common::Failure;
use super::{file::FileTarget, nbd::NbdTarget, simulated::Simulated};

/// A volume that carries out bursts.
pub(super) trait Target {
    /// Its size in bytes.
    fn size_bytes(&self) -> u64;

    /// Submits all requests at once and waits for all of them. Ranges to be written back are read before.
    ///
    /// # Errors
    /// What went wrong, in the system's words.
    fn burst(&mut self, probe: &Probe) -> Result<Sample, String>;

    /// Elapsed seconds of the target's own time, if the target does not use the clock's.
    fn seconds(&self) -> Option<f64> {
        None
    }
}

/// Opens a target; read-only unless `writes`.
pub(super) fn open(text: &str, writes: bool) -> Result<Box<dyn Target>, Failure> {
    if let Some(name) = text.strip_prefix("sim:") {
        return Ok(Box::new(Simulated::open(name)?));
    }
    if ["nbd://", "nbd+unix://", "nbds://", "nbds+unix://"]
        .iter()
        .any(|scheme| text.starts_with(scheme))
    {
        return Ok(Box::new(NbdTarget::open(text, writes)?));
    }
    Ok(Box::new(FileTarget::open(Path::new(text), writes)?))
}

/// A target that cannot be measured.
pub(super) fn refused(target: &str, why: impl Into<String>, hint: &str) -> Failure {
    Failure::usage(format!("{target} cannot be measured"), why, hint)
}

/// A target that failed half way.
pub(super) fn failure(target: &str, why: &str) -> Failure {
    Failure::failed(
        format!("measuring {target} ended early"),
        why,
        "see what the system's log says of it; nothing was changed",
    )
}

/// The canonical path of a file; other targets are unchanged.
pub(super) fn absolute(target: &str) -> String {
    let path = Path::new(target);
    match path.exists() {
        true => path
            .canonicalize()
            .map_or_else(|_| target.to_owned(), |path| path.display().to_string()),
        false => target.to_owned(),
    }
}
