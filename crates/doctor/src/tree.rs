//! The source of facts: `/sys`, `/proc`, `/etc` and the first bytes of devices, read below one root, so that a tree
//! that was copied from another machine reads like the machine itself.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The longest text that is read, in bytes. sysfs gives at most a page; `mdadm.conf` and a saved
/// result of `shear` are longer.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// A machine, or a copy of its relevant files. Nothing is ever written.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The machine itself (`/`), or a copied tree.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The place of `path` (relative, such as `sys/block`) in the tree.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Whether the path exists.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The text of a file without white space at its ends; `None` if it cannot be read.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = read_bounded(&self.path(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// A file that holds one number.
    #[must_use]
    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Names in a directory, sorted so that numbers count as numbers (`sda2` before `sda10`).
    #[must_use]
    pub fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(path)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort_by_cached_key(|name| sort_key(name));
        names
    }

    /// The last name in the target of a symbolic link.
    #[must_use]
    pub fn link_name(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// Up to `length` bytes at `offset` of a device, opened read-only. Fewer if the device, or its copy, ends before.
    ///
    /// # Errors
    /// The operating system's.
    pub fn bytes(&self, device: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let file = File::open(self.path("dev").join(device))?;
        let mut bytes = vec![0; length];
        let mut done = 0;
        while done < length {
            match file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    File::open(path)?
        .take(TEXT_BYTES_MAX)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Text and numbers alternately, numbers compared by value.
pub(crate) fn sort_key(name: &str) -> Vec<(String, u64)> {
    let mut key: Vec<(String, u64)> = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (text, tail) = rest.split_at(digits);
        let end = tail
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (number, tail) = tail.split_at(end);
        key.push((text.to_owned(), number.parse().unwrap_or(0)));
        rest = tail;
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_sort_by_value() {
        let mut names = vec!["sdb1", "sda10", "md0", "sda", "sda2"];
        names.sort_by_cached_key(|name| sort_key(name));
        assert_eq!(names, ["md0", "sda", "sda2", "sda10", "sdb1"]);
    }
}
