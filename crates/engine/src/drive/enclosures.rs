//! Enclosures as the kernel's `ses` driver shows them: which bay a disk is in.
//!
//! ```text
//! /sys/class/enclosure/1:0:8:0/id             0x500304801f1e2b3f: the enclosure's logical identifier
//!                              Slot 03/slot   3: the number of the bay; old kernels do not have this file
//!                              Slot 03/locate the light of the bay
//!                              Slot 03/device the disk in the bay, with its name in device/block/
//! ```
//!
//! The directory of an enclosure is named by its SCSI address, which may be another one after a start of the machine;
//! and an enclosure with two paths has two of them. Its identifier stays the same.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use array::pool::Bay;

use super::Drive;

/// The enclosures of the machine, or of a copy of its `sys` and `dev` in which devices are files.
#[derive(Clone, Debug)]
pub struct Enclosures {
    root: PathBuf,
}

impl Default for Enclosures {
    fn default() -> Self {
        Self::below(PathBuf::from("/"))
    }
}

impl Enclosures {
    /// The enclosures of the machine with this root directory.
    #[must_use]
    pub const fn below(root: PathBuf) -> Self {
        Self { root }
    }

    /// Where a path of the machine is.
    #[must_use]
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The kernel's name of the disk that a device is, or is a partition of; none if the path leads to no device.
    #[must_use]
    pub fn disk(&self, device: &Path) -> Option<String> {
        let path = fs::canonicalize(self.at(device)).ok()?;
        let live = self.root == Path::new("/");
        if live && !fs::metadata(&path).ok()?.file_type().is_block_device() {
            return None;
        }
        let name = path.file_name()?.to_str()?;
        let own = self.at("sys/class/block").join(name);
        if !own.join("partition").exists() {
            return own.exists().then(|| name.to_owned());
        }
        let whole = fs::canonicalize(own).ok()?;
        Some(whole.parent()?.file_name()?.to_str()?.to_owned())
    }

    /// The directory of the slot that a disk is in, or that one of the paths to it is in.
    #[must_use]
    pub fn slot(&self, disk: &str) -> Option<PathBuf> {
        let paths = fs::read_dir(self.at("sys/class/block").join(disk).join("slaves"));
        let paths = paths.into_iter().flatten().flatten();
        let names = paths.map(|path| path.file_name());
        let disks: Vec<_> = std::iter::once(disk.into()).chain(names).collect();
        let enclosures = fs::read_dir(self.at("sys/class/enclosure")).ok()?;
        for enclosure in enclosures.flatten() {
            let slots = fs::read_dir(enclosure.path()).into_iter().flatten();
            for slot in slots.flatten().map(|slot| slot.path()) {
                let there = slot.join("device/block");
                if disks.iter().any(|disk| there.join(disk).exists()) {
                    return Some(slot);
                }
            }
        }
        None
    }

    /// The bay of a drive, if the drive is a disk in an enclosure.
    #[must_use]
    pub fn bay(&self, device: &Path) -> Option<Bay> {
        let directory = self.slot(&self.disk(device)?)?;
        let text = |file: PathBuf| {
            let text = fs::read_to_string(file).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let number = text(directory.join("slot")).and_then(|text| text.parse().ok());
        let enclosure = directory.parent()?;
        let name = || Some(enclosure.file_name()?.to_str()?.to_owned());
        Some(Bay {
            slot: number.or_else(|| last_number(directory.file_name()?.to_str()?))?,
            enclosure: Some(text(enclosure.join("id")).or_else(name)?),
        })
    }

    /// Looks for the bay of a drive whose name does not say it.
    pub fn place(&self, drive: &mut Drive) {
        if let (None, Some(path)) = (&drive.bay, drive.uri.spec.path()) {
            drive.bay = self.bay(path);
        }
    }
}

/// The number at the end of a slot's name: 3 of `Slot 03`.
fn last_number(name: &str) -> Option<u32> {
    let name = name.trim_end();
    let digits = name.trim_start_matches(|sign: char| !sign.is_ascii_digit());
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Machine(testing::Directory);

    impl Machine {
        fn new() -> Self {
            Self(testing::Directory::new())
        }

        fn put(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn bay(&self, device: &str) -> Option<Bay> {
            Enclosures::below(self.0.to_owned()).bay(Path::new(device))
        }
    }

    fn bay(slot: u32, enclosure: &str) -> Option<Bay> {
        let enclosure = Some(enclosure.to_owned());
        Some(Bay { slot, enclosure })
    }

    #[test]
    fn a_bay_is_the_number_in_the_slot_and_the_identifier_of_the_enclosure() {
        let machine = Machine::new();
        for disk in ["sda", "sdb", "sdc", "sdd"] {
            machine.put(&format!("dev/{disk}"), "");
            machine.put(&format!("sys/class/block/{disk}/size"), "1");
        }
        let slot = "sys/class/enclosure/1:0:8:0/Slot 03";
        machine.put("sys/class/enclosure/1:0:8:0/id", "0x500304801f1e2b3f\n");
        machine.put(&format!("{slot}/slot"), "17\n");
        machine.put(&format!("{slot}/device/block/sda/size"), "");
        assert_eq!(machine.bay("/dev/sda"), bay(17, "0x500304801f1e2b3f"));
        // Older kernels have neither file.
        let old = "sys/class/enclosure/2:0:0:0/SLOT 007";
        machine.put(&format!("{old}/device/block/sdb/size"), "");
        assert_eq!(machine.bay("/dev/sdb"), bay(7, "2:0:0:0"));
        // A slot without any number, a disk in no enclosure, and no disk.
        let odd = "sys/class/enclosure/2:0:0:0/left";
        machine.put(&format!("{odd}/device/block/sdc/size"), "");
        assert_eq!(machine.bay("/dev/sdc"), None);
        assert_eq!(machine.bay("/dev/sdd"), None);
        assert_eq!(machine.bay("/dev/none"), None);
    }

    #[test]
    fn a_disk_with_several_paths_is_in_the_bay_of_one_of_them() {
        let machine = Machine::new();
        machine.put("dev/dm-0", "");
        machine.put("sys/class/block/dm-0/slaves/sdx/size", "");
        let slot = "sys/class/enclosure/1:0:8:0/Slot 03";
        machine.put(&format!("{slot}/device/block/sdx/size"), "");
        assert_eq!(machine.bay("/dev/dm-0"), bay(3, "1:0:8:0"));
    }

    #[test]
    fn numbers_at_the_end_of_a_name_are_read_and_nothing_else() {
        assert_eq!(last_number("Slot 03"), Some(3));
        assert_eq!(last_number("ArrayDevice12 "), Some(12));
        assert_eq!(last_number("9"), Some(9));
        assert_eq!(last_number("Disk 1 of 4"), None);
        assert_eq!(last_number("left"), None);
        assert_eq!(last_number("99999999999"), None);
    }
}
