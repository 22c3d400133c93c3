//! Files whose descriptors outlive the process that serves them.
//!
//! A supervisor (systemd's descriptor store) keeps three descriptors of a file, and gives them to the next process:
//!
//! | name | descriptor | use |
//! | --- | --- | --- |
//! | `fuse-N-kernel` | `/dev/fuse` with the connection | as long as it is open, the kernel's requests wait and do not fail |
//! | `fuse-N-requests` | the inbox | what the process before has read and not answered |
//! | `fuse-N-mount-K` | the mount | puts the file back at its path, if the mount namespace ended with the process |
//!
//! N is the mount's device number. Loop devices and file systems over the file notice a pause.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use super::inbox::{About, Inbox};
use super::place::{device_of, resolved};

/// Keeps descriptors for the next process.
pub trait Keeper: Send + Sync {
    /// Keeps a descriptor under a name.
    ///
    /// # Errors
    /// If it cannot be kept.
    fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()>;

    /// Keeps nothing more under a name.
    fn release(&self, name: &str);
}

/// How a file that is mounted is kept.
#[derive(Clone)]
pub struct Retention {
    /// Keeps the descriptors.
    pub keeper: Arc<dyn Keeper>,
    /// What is served. The next process serves the file again only if it serves the same.
    pub what: String,
}

impl std::fmt::Debug for Retention {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retention")
            .field("what", &self.what)
            .finish_non_exhaustive()
    }
}

/// A file that an earlier process has served. Dropping this ends the file: whoever uses it gets errors.
pub struct Kept {
    pub(super) kernel: OwnedFd,
    pub(super) inbox: Inbox,
    pub(super) about: About,
    /// The mount, with the number of its name.
    mounts: Vec<(u32, OwnedFd)>,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept")
            .field("about", &self.about)
            .finish_non_exhaustive()
    }
}

impl Kept {
    /// Of the descriptors that a supervisor has kept, with their names: the files, and the names of all other
    /// descriptors that [`Retention`] has made, which are of no use any more.
    #[must_use]
    pub fn among(descriptors: Vec<(String, OwnedFd)>) -> (Vec<Self>, Vec<String>) {
        let mut parts: BTreeMap<u64, Vec<(Part, OwnedFd)>> = BTreeMap::new();
        for (name, descriptor) in descriptors {
            if let Some((device, part)) = parse(&name) {
                parts.entry(device).or_default().push((part, descriptor));
            }
        }
        let (mut files, mut useless) = (Vec::new(), Vec::new());
        for (device, parts) in parts {
            let names: Vec<String> = parts.iter().map(|(part, _)| name(device, *part)).collect();
            match Self::of(device, parts) {
                Ok(file) => files.push(file),
                Err(error) => {
                    tracing::warn!("a file of the process before cannot be taken up: {error}");
                    useless.extend(names);
                }
            }
        }
        (files, useless)
    }

    fn of(device: u64, parts: Vec<(Part, OwnedFd)>) -> io::Result<Self> {
        let (mut kernel, mut inbox, mut mounts) = (None, None, Vec::new());
        for (part, descriptor) in parts {
            match part {
                Part::Kernel => kernel = Some(descriptor),
                Part::Requests => inbox = Some(descriptor),
                Part::Mount(number) => mounts.push((number, descriptor)),
            }
        }
        let (Some(kernel), Some(inbox)) = (kernel, inbox) else {
            return Err(io::Error::other("some of its descriptors were not kept"));
        };
        let Some((inbox, about)) = Inbox::open(inbox)? else {
            return Err(io::Error::other(
                "its requests have a form that this version does not know",
            ));
        };
        if about.device != device {
            return Err(io::Error::other("its descriptors are of different files"));
        }
        Ok(Self {
            kernel,
            inbox,
            about,
            mounts,
        })
    }

    /// Where the file is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.about.path
    }

    /// True if this is the file's path, also through links.
    #[must_use]
    pub fn is_at(&self, file: &Path) -> bool {
        let whole = resolved(file).ok().flatten();
        whole.is_some_and(|whole| whole == self.path())
    }

    /// What is served.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.about.what
    }

    /// The names of its descriptors, for [`Keeper::release`].
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mounts = self.mounts.iter().map(|(number, _)| Part::Mount(*number));
        let parts = [Part::Kernel, Part::Requests].into_iter().chain(mounts);
        parts.map(|part| name(self.about.device, part)).collect()
    }

    /// Puts the mount at its path, unless it is there.
    pub(super) fn mount_again(&self) -> io::Result<()> {
        let path = self.path();
        // Nothing is asked of the file here: its requests are not answered yet.
        match device_of(path) {
            Ok(device) if device == self.about.device => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut empty = OpenOptions::new();
                empty.write(true).create_new(true).mode(0o600).open(path)?;
            }
            Err(error) => return Err(error),
        }
        let mut last = io::Error::other("its mount was not kept");
        for (_, mount) in &self.mounts {
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            match move_mount(mount, "", CWD, path, flags) {
                Ok(()) => return Ok(()),
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }

    /// The number of the next mount's name.
    pub(super) fn next_mount(&self) -> u32 {
        let numbers = self.mounts.iter().map(|(number, _)| *number);
        numbers.max().map_or(0, |most| most + 1)
    }
}

/// What is kept of a mounted file. Dropping this releases it: from then on the file ends with this process.
pub(super) struct Names {
    keeper: Arc<dyn Keeper>,
    names: Vec<String>,
}

impl Names {
    /// Gives a file's descriptors to the keeper; those of `before` are kept already, but for the mount.
    ///
    /// # Errors
    /// If one cannot be kept. Then none is.
    pub(super) fn keep(
        retention: &Retention,
        (kernel, inbox): (BorrowedFd<'_>, &Inbox),
        (path, device): (&Path, u64),
        before: Option<&Kept>,
    ) -> io::Result<Self> {
        let mut kept = Self {
            keeper: Arc::clone(&retention.keeper),
            names: Vec::new(),
        };
        if let Some(before) = before {
            kept.names = before.names();
        }
        kept.add(
            (kernel, inbox),
            (path, device),
            before.map_or(0, Kept::next_mount),
            before.is_some(),
        )?;
        // A mount that was put at its path is of no use any more.
        let mounts = before.map_or(&[][..], |before| &before.mounts);
        for (number, _) in mounts {
            let old = name(device, Part::Mount(*number));
            kept.keeper.release(&old);
            kept.names.retain(|name| *name != old);
        }
        Ok(kept)
    }

    fn add(
        &mut self,
        (kernel, inbox): (BorrowedFd<'_>, &Inbox),
        (path, device): (&Path, u64),
        mount: u32,
        again: bool,
    ) -> io::Result<()> {
        // Only root may, and only root needs it: other users cannot have a mount namespace that ends with them.
        let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        match open_tree(CWD, path, clone) {
            Ok(tree) => self.one(device, Part::Mount(mount), tree.as_fd())?,
            Err(error) => tracing::debug!("{}: its mount is not kept: {error}", path.display()),
        }
        if !again {
            self.one(device, Part::Requests, inbox.file())?;
            // Without the others this one only makes requests wait, so it is the last.
            self.one(device, Part::Kernel, kernel)?;
        }
        Ok(())
    }

    fn one(&mut self, device: u64, part: Part, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let name = name(device, part);
        self.keeper.keep(&name, descriptor)?;
        self.names.push(name);
        Ok(())
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        for name in &self.names {
            self.keeper.release(name);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Kernel,
    Requests,
    Mount(u32),
}

fn name(device: u64, part: Part) -> String {
    match part {
        Part::Kernel => format!("fuse-{device}-kernel"),
        Part::Requests => format!("fuse-{device}-requests"),
        Part::Mount(number) => format!("fuse-{device}-mount-{number}"),
    }
}

fn parse(name: &str) -> Option<(u64, Part)> {
    let (device, part) = name.strip_prefix("fuse-")?.split_once('-')?;
    let part = match part {
        "kernel" => Part::Kernel,
        "requests" => Part::Requests,
        other => Part::Mount(other.strip_prefix("mount-")?.parse().ok()?),
    };
    Some((device.parse().ok()?, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_descriptors_are_read_as_they_were_written() {
        for part in [Part::Kernel, Part::Requests, Part::Mount(7)] {
            assert_eq!(parse(&name(41, part)), Some((41, part)));
        }
        for other in [
            "",
            "fuse-",
            "fuse-1-",
            "fuse-x-kernel",
            "fuse-1-mount-x",
            "stored",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn descriptors_that_are_not_all_there_are_no_file() {
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let descriptors = vec![
            ("fuse-1-kernel".to_owned(), null()),
            ("fuse-2-kernel".to_owned(), null()),
            ("fuse-2-requests".to_owned(), null()),
            ("something".to_owned(), null()),
        ];
        let (files, useless) = Kept::among(descriptors);
        assert!(files.is_empty());
        assert_eq!(
            useless,
            ["fuse-1-kernel", "fuse-2-kernel", "fuse-2-requests"]
        );
    }

    /// A supervisor that keeps a number of descriptors.
    struct Few {
        room: usize,
        names: std::sync::Mutex<Vec<String>>,
    }

    impl Keeper for Few {
        fn keep(&self, name: &str, _: BorrowedFd<'_>) -> io::Result<()> {
            let mut names = self.names.lock().unwrap();
            if names.len() == self.room {
                return Err(io::ErrorKind::StorageFull.into());
            }
            names.push(name.to_owned());
            Ok(())
        }

        fn release(&self, name: &str) {
            self.names.lock().unwrap().retain(|kept| kept != name);
        }
    }

    /// Regression: when the thread that serves a file could not be started, its descriptors stayed with the supervisor,
    /// and the requests of the file's users waited.
    #[test]
    fn what_is_kept_is_released_if_the_file_is_not_served_after_all() {
        let path = std::env::temp_dir();
        let about = About {
            room: 8192,
            device: 9,
            since: std::time::Duration::ZERO,
            path: path.clone(),
            what: "tank/home".to_owned(),
        };
        let inbox = Inbox::create(&about).unwrap();
        let kernel = std::fs::File::open("/dev/null").unwrap();
        let file = (kernel.as_fd(), &inbox);
        for (room, is_kept) in [(8, true), (1, false)] {
            let few = Arc::new(Few {
                room,
                names: std::sync::Mutex::default(),
            });
            let kept = || few.names.lock().unwrap().len();
            let retention = Retention {
                keeper: Arc::clone(&few) as Arc<dyn Keeper>,
                what: about.what.clone(),
            };
            let names = Names::keep(&retention, file, (&path, about.device), None);
            assert_eq!((names.is_ok(), kept() >= 2), (is_kept, is_kept));
            drop(names);
            assert_eq!(kept(), 0);
        }
    }
}
