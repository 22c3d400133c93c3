//! Stable names: `DIR/POOL/VOLUME` is a link to the block device of an attached volume, whatever the device's number.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A symbolic link to a device. Dropping this removes the link, unless the link leads to another device by then.
#[derive(Debug)]
pub(super) struct DeviceLink {
    path: PathBuf,
    device: PathBuf,
}

impl DeviceLink {
    /// Creates the link. Replaces a link of an earlier run: the device that it names may be another one by now.
    ///
    /// # Errors
    /// If a file that is no link has this path, or the directory cannot be written.
    pub(super) fn make(dir: &Path, pool: &str, volume: &str, device: &Path) -> io::Result<Self> {
        let place = dir.join(pool);
        std::fs::create_dir_all(&place)?;
        let path = place.join(volume);
        match path.symlink_metadata() {
            Ok(found) if found.is_symlink() => std::fs::remove_file(&path)?,
            Ok(_) => {
                let why = format!("{} exists and is no link", path.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        symlink(device, &path)?;
        let device = device.to_owned();
        Ok(Self { path, device })
    }

    /// Leaves the link to the next daemon.
    pub(super) fn leave(self) {
        std::mem::forget(self);
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for DeviceLink {
    fn drop(&mut self) {
        if std::fs::read_link(&self.path).is_ok_and(|to| to == self.device) {
            std::fs::remove_file(&self.path).ok();
            // Fails, as intended, if the directory still has links of the pool's other volumes.
            if let Some(place) = self.path.parent() {
                std::fs::remove_dir(place).ok();
            }
        }
    }
}
