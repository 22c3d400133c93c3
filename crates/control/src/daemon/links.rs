//! Names that stay: `DIR/POOL/VOLUME` leads to the block device of an attached volume, whatever its number.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A symbolic link to a device. It goes when this is dropped, unless it leads elsewhere by then.
#[derive(Debug)]
pub(super) struct DeviceLink {
    path: PathBuf,
    device: PathBuf,
}

impl DeviceLink {
    /// Makes the link. What an earlier life has left there leads to a device that is something else by now.
    ///
    /// # Errors
    /// When something that is no link is in the way, or the directory cannot be written.
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

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for DeviceLink {
    fn drop(&mut self) {
        if std::fs::read_link(&self.path).is_ok_and(|to| to == self.device) {
            std::fs::remove_file(&self.path).ok();
            // Others of the pool may be there still.
            if let Some(place) = self.path.parent() {
                std::fs::remove_dir(place).ok();
            }
        }
    }
}
