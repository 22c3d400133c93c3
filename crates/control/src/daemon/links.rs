//! Stable names: `DIR/POOL/VOLUME` is a link to the block device of an attached volume, whatever the device's number.
//!
//! Where udev runs, it makes the same link, so that systemd knows the device by this name and `/etc/fstab` can wait for
//! it. udev's rule reads the name in a file that is named for the device's sequence number: no other device ever has
//! that number.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use export::fuse::loops;

/// How long the daemon tries to make udev look at a device.
const UDEV_WAIT_MAX: Duration = Duration::from_secs(30);

/// Where links are made.
#[derive(Clone, Debug)]
pub struct LinkPlaces {
    /// Links to devices.
    pub links: PathBuf,
    /// Files for udev's rule, if it reads them.
    pub udev: Option<PathBuf>,
}

/// A symbolic link to a device. Dropping this removes the link, unless the link leads to another device by then.
#[derive(Debug)]
pub(super) struct DeviceLink {
    path: PathBuf,
    device: PathBuf,
    /// The file for udev's rule.
    properties: Option<PathBuf>,
}

impl DeviceLink {
    /// Creates the link. Replaces a link of an earlier run: the device that it names may be another one by now.
    ///
    /// # Errors
    /// If a file that is no link has this path, or the directory cannot be written.
    pub(super) fn make(
        places: &LinkPlaces,
        (pool, volume): (&str, &str),
        device: &Path,
    ) -> io::Result<Self> {
        let place = places.links.join(pool);
        fs::create_dir_all(&place)?;
        let path = place.join(volume);
        // udev may have made it already: a device that a daemon before has made goes on.
        if !leads_to(&path, device) {
            match path.symlink_metadata() {
                Ok(found) if found.is_symlink() => fs::remove_file(&path)?,
                Ok(_) => {
                    let why = format!("{} exists and is no link", path.display());
                    return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            symlink(device, &path)?;
        }
        let properties = places.udev.as_ref().and_then(|place| {
            let made = tell_udev(place, (pool, volume), device);
            made.inspect_err(|error| tracing::warn!(pool, volume, "udev makes no link: {error}"))
                .ok()?
        });
        Ok(Self {
            path,
            device: device.to_owned(),
            properties,
        })
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
        if let Some(properties) = &self.properties {
            fs::remove_file(properties).ok();
        }
        if leads_to(&self.path, &self.device) {
            fs::remove_file(&self.path).ok();
            // Fails, as intended, if the directory still has links of the pool's other volumes.
            if let Some(place) = self.path.parent() {
                fs::remove_dir(place).ok();
            }
        }
    }
}

/// True if a link leads to a device; udev's links are relative.
fn leads_to(link: &Path, device: &Path) -> bool {
    let is_link = link
        .symlink_metadata()
        .is_ok_and(|found| found.is_symlink());
    let target = fs::read_link(link).ok();
    let whole = target.and_then(|target| Some(link.parent()?.join(target)));
    let same = |a: PathBuf, b: &Path| match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    };
    is_link && whole.is_some_and(|whole| same(whole, device))
}

/// Writes the file for udev's rule and makes udev look at the device. `None` if there is no udev, or the device has no
/// sequence number (kernels before 5.15).
fn tell_udev(
    place: &Path,
    (pool, volume): (&str, &str),
    device: &Path,
) -> io::Result<Option<PathBuf>> {
    let running = Path::new("/run/udev/control").exists();
    let Some(sequence) = loops::sequence(device).filter(|_| running) else {
        return Ok(None);
    };
    fs::create_dir_all(place)?;
    let path = place.join(sequence.to_string());
    fs::write(&path, format!("RAVELIN_VOLUME={pool}/{volume}\n"))?;
    let (device, link) = (device.to_owned(), format!("S:ravelin/{pool}/{volume}"));
    let properties = path.clone();
    // The daemon does not wait: udev may be busy with other devices.
    std::thread::Builder::new()
        .name("udev".to_owned())
        .spawn(move || until_udev_has(&device, &link, &properties))?;
    Ok(Some(path))
}

/// udev looks at a device again when a program that had it open for writing has closed it. While udev looks at it, it
/// does not see that, so this is repeated until udev's record has the link.
fn until_udev_has(device: &Path, link: &str, properties: &Path) {
    let Ok(found) = fs::metadata(device) else {
        return;
    };
    let (major, minor) = (
        rustix::fs::major(found.rdev()),
        rustix::fs::minor(found.rdev()),
    );
    let record = format!("/run/udev/data/b{major}:{minor}");
    let begun = Instant::now();
    let mut pause = Duration::from_millis(50);
    while properties.exists() && begun.elapsed() < UDEV_WAIT_MAX {
        let has =
            fs::read_to_string(&record).is_ok_and(|text| text.lines().any(|line| line == link));
        if has {
            return;
        }
        drop(OpenOptions::new().write(true).open(device));
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_secs(2));
    }
    tracing::warn!("udev has not made {link} for {}", device.display());
}
