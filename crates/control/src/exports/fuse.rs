//! A volume as a file by FUSE, and a loop device over it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use axum::http::StatusCode;
use block::BlockDevice;
use export::fuse::kept::Retention;
use export::fuse::loops::{self, LoopDevice};
use export::fuse::{FuseError, FuseFile};

use super::{ExportKind, Served, Serving};
use crate::Failure;
use crate::api::{Attach, Export};
use crate::state::SavedDevice;

#[derive(Debug)]
pub(super) struct Fuse;

/// A mounted file, and the loop device made over it.
struct File {
    /// `None` if it is left to the next daemon.
    file: Option<FuseFile>,
    device: Option<LoopDevice>,
}

impl File {
    fn file(&self) -> &FuseFile {
        self.file.as_ref().expect("it is not left yet")
    }
}

impl Drop for File {
    /// A loop device whose file has lost its name with the daemon before is not found by that name.
    fn drop(&mut self) {
        if let (Some(file), Some(device)) = (&self.file, &self.device) {
            device.end(file.path());
        }
    }
}

impl ExportKind for Fuse {
    fn name(&self) -> &'static str {
        "fuse"
    }

    fn value_name(&self) -> &'static str {
        "FILE"
    }

    fn help(&self) -> &'static str {
        "By FUSE, as this file: it need not exist, and a loop device over it is a block device"
    }

    fn absolute(&self, place: &str) -> io::Result<String> {
        Ok(std::path::absolute(place)?.display().to_string())
    }

    fn options(&self, attach: &Attach) -> Vec<&'static str> {
        attach.loop_device.then_some("loop").into_iter().collect()
    }

    fn serve(&self, place: &str, serving: &Serving<'_>) -> Result<Box<dyn Served>, Failure> {
        let (what, attach) = (serving.what, serving.attach);
        let place = Path::new(place);
        let retention = serving.kept.retention(&serving.identity);
        let waiting = retention.as_ref().zip(serving.kept.take(place));
        let (file, before) = match waiting {
            Some((retention, kept)) => {
                let file = FuseFile::take_up(kept, serving.device(), retention)
                    .map_err(|error| failure(what, &error))?;
                let before = serving.device_before;
                let device =
                    before.and_then(|saved| LoopDevice::of_before(&saved.path, saved.sequence));
                (file, device)
            }
            None => (
                mount(place, serving.device(), what, retention.as_ref())?,
                None,
            ),
        };
        let device = match (before, attach.loop_device) {
            (Some(before), _) => Some(before),
            (None, true) => Some(loop_over(&file, attach, what)?),
            (None, false) => None,
        };
        Ok(Box::new(File {
            file: Some(file),
            device,
        }))
    }

    fn remove_dead(&self, place: &str, device: Option<&SavedDevice>) {
        let file = Path::new(place);
        if let Some(device) = device {
            loops::let_go_of(&device.path, device.sequence, file);
        }
        if let Err(error) = export::fuse::remove_dead(file)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("{} is not unmounted: {error}", file.display());
        }
    }

    fn said(&self, volume: &str, export: &Export) -> Vec<String> {
        if let Some(device) = export.link.as_ref().or(export.device.as_ref()) {
            return vec![format!(
                "volume `{volume}` is the block device {}, over the file {}",
                device.display(),
                export.uri
            )];
        }
        let mut lines = vec![format!("volume `{volume}` is the file {}", export.uri)];
        if std::fs::metadata(&export.uri).is_ok_and(|found| found.len() > 0) {
            lines.push("for a block device, as root:".to_owned());
            lines.push(format!(
                "  losetup --direct-io=on -f --show {}",
                shell_word(&export.uri)
            ));
        } else {
            lines
                .push("which only the daemon sees: it has a mount namespace of its own".to_owned());
            lines.push("for a block device that all see, attach it with --loop".to_owned());
        }
        lines
    }
}

impl Served for File {
    fn address(&self) -> String {
        format!("fuse:{}", self.uri())
    }

    fn uri(&self) -> String {
        self.file().path().display().to_string()
    }

    /// How often the file is open. With a loop device: opens besides the loop device's own, plus 1 if the loop device
    /// is in use.
    fn clients(&self) -> usize {
        match self.own_device() {
            None => self.file().opens(),
            Some(device) => {
                self.file().opens().saturating_sub(1) + usize::from(loops::is_held(device))
            }
        }
    }

    fn leave(&mut self) -> bool {
        let kept = self.file.take_if(|file| file.is_kept());
        kept.map(FuseFile::leave).is_some()
    }

    fn own_device(&self) -> Option<&Path> {
        self.device.as_ref()?.path()
    }

    fn resized(&self) -> io::Result<()> {
        match self.own_device() {
            Some(device) => loops::take_size(device, self.file().path()),
            None => Ok(()),
        }
    }
}

fn mount(
    file: &Path,
    volume: Arc<dyn BlockDevice>,
    what: &str,
    retention: Option<&Retention>,
) -> Result<FuseFile, Failure> {
    if !file.is_absolute() {
        return Err(Failure::request(
            what,
            format!("`{}` is not an absolute path", file.display()),
            "the daemon runs in another directory; give the whole path",
        ));
    }
    FuseFile::mount_kept(file, volume, retention).map_err(|error| failure(what, &error))
}

fn failure(what: &str, error: &FuseError) -> Failure {
    let status = match error {
        FuseError::NotAFile { .. } | FuseError::Exists { .. } | FuseError::Busy { .. } => {
            StatusCode::CONFLICT
        }
        FuseError::Prepare { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            StatusCode::NOT_FOUND
        }
        FuseError::Prepare { .. } => StatusCode::CONFLICT,
        FuseError::NoFuse { .. } | FuseError::Mount { .. } | FuseError::TakeUp { .. } => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    Failure::of(status, what, error)
}

fn loop_over(file: &FuseFile, attach: &Attach, what: &str) -> Result<LoopDevice, Failure> {
    LoopDevice::over(file.path(), attach.read_only, attach.block_size).map_err(|error| {
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            what,
            format!("there is no loop device over it: {error}"),
            "run the daemon as root with util-linux installed, or attach it without --loop",
        )
    })
}

/// Quotes a text so that a shell reads one word.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn what_is_to_be_typed_is_one_word_to_a_shell() {
        assert_eq!(shell_word("/run/tank-home.img"), "/run/tank-home.img");
        assert_eq!(shell_word("/run/my disk"), "'/run/my disk'");
        assert_eq!(shell_word("/run/it's"), r"'/run/it'\''s'");
    }
}
