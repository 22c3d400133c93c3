//! `zram:`: a zram device, which is sized if it has no size; and what such a device says about its memory: its limit is
//! its physical capacity.
//!
//! `mm_stat` is a line of numbers (`Documentation/admin-guide/blockdev/zram.rst`): orig_data_size, compr_data_size,
//! mem_used_total, mem_limit, mem_used_max, … in bytes. The limit is 0 where there is none. The used memory is whole
//! pages of the allocator, some percent more than the compressed data.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use block::Usage;

use super::file::{self, FileName};
use super::uri::{DriveKind, DriveSpec, Named};
use super::{Open, OpenDriveError, Opened, Opening};

pub(super) static KIND: DriveKind = DriveKind {
    word: "zram",
    names: &["zram:/dev/zram1"],
    what: "a zram device; one without a size gets the size that the command gives",
    options: file::OPTIONS,
    parse: |text| Ok(DriveSpec::new(ZramName(FileName::parse(text)?))),
};

#[derive(Debug)]
struct ZramName(FileName);

impl fmt::Display for ZramName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("zram:")?;
        self.0.write(f)
    }
}

impl Named for ZramName {
    fn open(&self, opening: &Opening<'_>) -> Result<Opened, OpenDriveError> {
        prepare(self.0.path(), &opening.how)?;
        Ok(Opened {
            kind: KIND.word,
            ..self.0.open(opening)?
        })
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.0.size_bytes()
    }

    fn path(&self) -> Option<&Path> {
        Some(self.0.path())
    }

    fn with_path(&self, path: &Path) -> Option<DriveSpec> {
        Some(DriveSpec::new(Self(self.0.with_path(path))))
    }
}

/// Checks that `path` is a zram device, and sets its size if it has none and `how` gives one.
fn prepare(path: &Path, how: &Open) -> Result<(), OpenDriveError> {
    let fail = |doing| {
        move |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => OpenDriveError::NotFound {
                path: path.to_owned(),
            },
            _ => OpenDriveError::Io {
                path: path.to_owned(),
                doing,
                source,
            },
        }
    };
    let device = std::fs::canonicalize(path).map_err(fail("opening"))?;
    let name = device.file_name().unwrap_or_default();
    let disksize = Path::new("/sys/block").join(name).join("disksize");
    let is_zram = name.as_encoded_bytes().starts_with(b"zram") && disksize.exists();
    if !is_zram {
        return Err(OpenDriveError::NotZram {
            path: path.to_owned(),
        });
    }
    let now = std::fs::read_to_string(&disksize).map_err(fail("reading the size of"))?;
    if let (Some(size_bytes), "0") = (how.create_size, now.trim()) {
        std::fs::write(&disksize, size_bytes.to_string()).map_err(fail("sizing"))?;
    }
    Ok(())
}

/// The allocator takes memory in chains of up to 16 pages (`CONFIG_ZSMALLOC_CHAIN_SIZE`): a write fails when the next
/// chain would exceed the limit.
const CHAIN_BYTES_MAX: u64 = 16 * 4096;

/// The counters of a zram device, or of the one that a partition is on.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    mm_stat: PathBuf,
    /// The drive is a partition, so it has only a part of the device's memory.
    partition: bool,
}

impl Counters {
    /// `device`: the directory of a block device in sysfs. `None` if the device is no zram.
    pub(super) fn find(device: &Path) -> Option<Self> {
        let places = [("mm_stat", false), ("../mm_stat", true)];
        places.into_iter().find_map(|(name, partition)| {
            let mm_stat = device.join(name);
            mm_stat.exists().then_some(Self { mm_stat, partition })
        })
    }

    /// The device's limit and its used memory; `None` without a limit.
    pub(super) fn usage(&self) -> Option<Usage> {
        let memory = self.read().filter(|_| !self.partition)?;
        (memory.limit > 0).then_some(Usage {
            physical_bytes: memory.limit,
            used_bytes: memory.used,
        })
    }

    /// Whether a write may have failed at the limit.
    pub(super) fn is_full(&self) -> bool {
        self.read().is_some_and(|memory| memory.is_full())
    }

    fn read(&self) -> Option<MemoryUse> {
        MemoryUse::parse(&fs::read_to_string(&self.mm_stat).ok()?)
    }
}

/// Fields of `mm_stat`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemoryUse {
    used: u64,
    limit: u64,
    used_max: u64,
}

impl MemoryUse {
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_whitespace().skip(2).map(str::parse);
        let mut next = || fields.next()?.ok();
        Some(Self {
            used: next()?,
            limit: next()?,
            used_max: next()?,
        })
    }

    /// The highest use counts attempts that were refused, too. It is above the limit also when a discard has freed
    /// memory since the write failed.
    const fn is_full(self) -> bool {
        let near = self.used + CHAIN_BYTES_MAX > self.limit;
        self.limit > 0 && (near || self.used_max > self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_full_where_the_next_chain_of_pages_has_no_room() {
        // Linux 6.18, 64 KiB writes of noise to a device with `mem_limit` 4M, until one fails.
        let full =
            "4194304  4194304  4194304  4194304  4198400        0        0     1024     1024";
        let full = MemoryUse::parse(full).unwrap();
        assert_eq!(full.used, 4 << 20);
        assert!(full.is_full());
        let at = |used, limit, used_max| MemoryUse {
            used,
            limit,
            used_max,
        };
        assert!(!at(3 << 20, 4 << 20, 3 << 20).is_full());
        assert!(
            at(3 << 20, 4 << 20, (4 << 20) + 4096).is_full(),
            "freed since"
        );
        assert!(at((4 << 20) - 8192, 4 << 20, (4 << 20) - 8192).is_full());
        assert!(!at(4 << 20, 0, 4 << 20).is_full(), "it has no limit");
        assert_eq!(MemoryUse::parse("1 2 3"), None);
    }
}
