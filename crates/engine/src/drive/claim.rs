//! What in this machine has claimed a block device.
//!
//! The kernel gives one owner at a time the exclusive claim of a disk: a mount, swap, an md array, the device mapper.
//! A claim of a partition keeps others from the whole disk, and the other way round. The kernel refuses with `EBUSY`
//! and does not name the owner; sysfs and procfs do.
//!
//! udev takes the claim, too, for as long as it reads a partition table again, which it does whenever a program closes
//! a disk that it could have written. Such a claim has none of the traces that are looked for here.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// An owner of a block device, of one of its partitions, or of the disk whose partition the device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What is claimed, by the kernel's name.
    device: String,
    of: Of,
    by: By,
}

/// What is claimed, seen from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Device,
    Partition,
    Disk,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum By {
    Mount(String),
    Swap,
    Array(String),
    VolumeGroup(String),
    Encryption(String),
    Mapper(String),
    Other(String),
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            Of::Device => {}
            Of::Partition => write!(f, "its partition {} is ", self.device)?,
            Of::Disk => write!(f, "its disk {} is ", self.device)?,
        }
        match &self.by {
            By::Mount(place) => write!(f, "mounted at {place}"),
            By::Swap => f.write_str("swap space"),
            By::Array(name) => write!(f, "a drive of the md array {name}"),
            By::VolumeGroup(name) => write!(f, "a drive of the LVM volume group {name}"),
            By::Encryption(name) => write!(f, "open as the encrypted device {name}"),
            By::Mapper(name) => write!(f, "used by {name} of the device mapper"),
            By::Other(name) => write!(f, "used by {name}"),
        }
    }
}

impl Claim {
    /// What releases the device.
    pub(super) fn hint(&self) -> String {
        match &self.by {
            By::Mount(place) => format!("`umount {place}` first if that is not needed"),
            By::Swap => format!("`swapoff /dev/{}` first if there is memory", self.device),
            By::Array(name) => format!("`mdadm --stop /dev/{name}` first if that is not needed"),
            By::VolumeGroup(name) => {
                format!("`vgchange --activate n {name}` first if that is not needed")
            }
            By::Encryption(name) => {
                format!("`cryptsetup close {name}` first if that is not needed")
            }
            By::Mapper(name) => format!("`dmsetup remove {name}` first if that is not needed"),
            By::Other(name) => format!("end {name} first if that is not needed"),
        }
    }
}

/// The owners of the block device of a name, as far as the machine shows them.
pub(super) fn claims(path: &Path) -> Vec<Claim> {
    match fs::metadata(path) {
        Ok(metadata) => {
            let number = std::os::unix::fs::MetadataExt::rdev(&metadata);
            claims_in(Path::new("/"), (major(number), minor(number)))
        }
        Err(_) => Vec::new(),
    }
}

/// The same, where `root` has `sys` and `proc`.
fn claims_in(root: &Path, (major, minor): (u32, u32)) -> Vec<Claim> {
    let link = root.join(format!("sys/dev/block/{major}:{minor}"));
    let Ok(own) = fs::canonicalize(link) else {
        return Vec::new();
    };
    let is_partition = |directory: &Path| directory.join("partition").exists();
    let mut all = vec![(Of::Device, own.clone())];
    if is_partition(&own) {
        all.extend(own.parent().map(|disk| (Of::Disk, disk.to_owned())));
    } else {
        let inside = fs::read_dir(&own).into_iter().flatten().flatten();
        let mut partitions: Vec<PathBuf> = { inside.map(|entry| entry.path()) }
            .filter(|path| is_partition(path))
            .collect();
        partitions.sort();
        all.extend(partitions.into_iter().map(|path| (Of::Partition, path)));
    }
    let machine = Machine::read(root);
    { all.into_iter() }
        .flat_map(|(of, directory)| {
            let name = name_of(&directory);
            let owners = machine.owners(&directory, &name);
            owners.into_iter().map(move |by| Claim {
                device: name.clone(),
                of,
                by,
            })
        })
        .collect()
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Mounts and swap space.
struct Machine<'a> {
    root: &'a Path,
    mounts: String,
    swaps: String,
}

impl<'a> Machine<'a> {
    fn read(root: &'a Path) -> Self {
        let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
        Self {
            root,
            // A service may have mounts of its own; those of the first process are the machine's.
            mounts: read("proc/self/mountinfo") + &read("proc/1/mountinfo"),
            swaps: read("proc/swaps"),
        }
    }

    fn owners(&self, directory: &Path, name: &str) -> Vec<By> {
        let number = fs::read_to_string(directory.join("dev")).unwrap_or_default();
        let node = format!("/dev/{name}");
        let mut owners = Vec::new();
        let mut add = |by: By| {
            if !owners.contains(&by) {
                owners.push(by);
            }
        };
        for line in self.mounts.lines() {
            // "36 35 8:17 / /mnt/a rw,noatime master:1 - ext4 /dev/sdb1 rw"; btrfs has numbers of its own.
            let Some((place, what)) = line.split_once(" - ") else {
                continue;
            };
            let mut fields = place.split(' ').skip(2);
            let by_number = fields.next() == Some(number.trim());
            if let Some(place) = fields.nth(1)
                && (by_number || what.split(' ').nth(1) == Some(&node))
            {
                add(By::Mount(unescape(place)));
            }
        }
        let swaps = self.swaps.lines().skip(1);
        if { swaps }.any(|line| line.split_whitespace().next() == Some(&node)) {
            add(By::Swap);
        }
        let holders = fs::read_dir(directory.join("holders"));
        let mut holders: Vec<String> = { holders.into_iter().flatten().flatten() }
            .map(|entry| name_of(&entry.path()))
            .collect();
        holders.sort();
        for holder in holders {
            add(self.holder(holder));
        }
        owners
    }

    /// A device that is made of the claimed one.
    fn holder(&self, name: String) -> By {
        let directory = self.root.join("sys/block").join(&name);
        if directory.join("md").exists() {
            return By::Array(name);
        }
        let read = |file: &str| {
            let text = fs::read_to_string(directory.join("dm").join(file)).ok()?;
            Some(text.trim().to_owned())
        };
        match (read("name"), read("uuid").unwrap_or_default()) {
            (Some(mapped), uuid) if uuid.starts_with("LVM-") => {
                By::VolumeGroup(volume_group(&mapped))
            }
            (Some(mapped), uuid) if uuid.starts_with("CRYPT-") => By::Encryption(mapped),
            (Some(mapped), _) => By::Mapper(mapped),
            (None, _) if name.starts_with("md") => By::Array(name),
            (None, _) => By::Other(name),
        }
    }
}

/// The volume group in the name of a mapped device, `GROUP-VOLUME`: hyphens within either are doubled.
fn volume_group(mapped: &str) -> String {
    let mut group = String::new();
    let mut rest = mapped.chars().peekable();
    while let Some(next) = rest.next() {
        match (next, rest.peek()) {
            ('-', Some('-')) => {
                rest.next();
                group.push('-');
            }
            ('-', _) => break,
            _ => group.push(next),
        }
    }
    group
}

/// The name of a place as `mountinfo` writes it: blanks and backslashes as octal numbers.
fn unescape(place: &str) -> String {
    let mut parts = place.split('\\');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) if code.is_ascii() => {
                name.push(char::from(code));
                name.push_str(&part[3..]);
            }
            _ => {
                name.push('\\');
                name.push_str(part);
            }
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::tests::support::Place;

    /// A machine with two disks: `sdb` whole, and `sdc` with a partition.
    fn machine(files: &[(&str, &str)]) -> (Place, PathBuf) {
        let place = Place::new();
        let root = PathBuf::from(place.file(""));
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/block/sdb/dev", "8:16\n");
        write("sys/block/sdc/dev", "8:32\n");
        write("sys/block/sdc/sdc1/dev", "8:33\n");
        write("sys/block/sdc/sdc1/partition", "1\n");
        for (name, text) in files {
            write(name, text);
        }
        fs::create_dir_all(root.join("sys/dev/block")).unwrap();
        for (number, device) in [("8:16", "sdb"), ("8:32", "sdc"), ("8:33", "sdc/sdc1")] {
            let link = root.join("sys/dev/block").join(number);
            std::os::unix::fs::symlink(format!("../../block/{device}"), link).unwrap();
        }
        (place, root)
    }

    fn said(files: &[(&str, &str)], minor: u32) -> (Vec<String>, Vec<String>) {
        let (_place, root) = machine(files);
        let claims = claims_in(&root, (8, minor));
        (
            claims.iter().map(ToString::to_string).collect(),
            claims.iter().map(Claim::hint).collect(),
        )
    }

    #[test]
    fn each_owner_of_a_device_is_named_with_what_releases_it() {
        let array = ("sys/block/md0/md/level", "raid1");
        let group = ("sys/block/dm-0/dm/name", "my--group-root");
        let lvm = ("sys/block/dm-0/dm/uuid", "LVM-abc");
        let luks = ("sys/block/dm-0/dm/uuid", "CRYPT-LUKS2-abc");
        let by_dm = ("sys/block/sdb/holders/dm-0", "");
        for (files, what, hint) in [
            (
                &[array, ("sys/block/sdb/holders/md0", "")][..],
                "a drive of the md array md0",
                "mdadm --stop /dev/md0",
            ),
            (
                &[group, lvm, by_dm],
                "a drive of the LVM volume group my-group",
                "vgchange --activate n my-group",
            ),
            (
                &[group, luks, by_dm],
                "open as the encrypted device my--group-root",
                "cryptsetup close",
            ),
            (
                &[("sys/block/dm-0/dm/name", "mpatha"), by_dm],
                "used by mpatha of the device mapper",
                "dmsetup remove mpatha",
            ),
            (
                &[("sys/block/sdb/holders/bcache0", "")],
                "used by bcache0",
                "end bcache0",
            ),
            (
                &[(
                    "proc/self/mountinfo",
                    "30 1 8:16 / /mnt/my\\040disk rw shared:1 - ext4 /dev/sdb rw\n",
                )],
                "mounted at /mnt/my disk",
                "umount /mnt/my disk",
            ),
            (
                &[(
                    "proc/1/mountinfo",
                    "30 1 0:44 / /mnt rw shared:1 - btrfs /dev/sdb rw\n",
                )],
                "mounted at /mnt",
                "umount /mnt",
            ),
            (
                &[("proc/swaps", "Filename Type Size\n/dev/sdb partition 1\n")],
                "swap space",
                "swapoff /dev/sdb",
            ),
        ] {
            let (said, hints) = said(files, 16);
            assert_eq!(said, [what]);
            assert!(hints[0].contains(hint), "{hints:?}");
        }
    }

    #[test]
    fn the_owner_of_a_partition_keeps_the_disk_and_the_other_way_round() {
        let mounted = "30 1 8:33 / /boot rw - ext4 /dev/sdc1 rw\n";
        let files = [("proc/self/mountinfo", mounted)];
        assert_eq!(
            said(&files, 32).0,
            ["its partition sdc1 is mounted at /boot"]
        );
        assert_eq!(said(&files, 33).0, ["mounted at /boot"]);
        assert_eq!(said(&files, 16).0, [""; 0]);
        let held = [("sys/block/sdc/holders/md7", "")];
        assert_eq!(
            said(&held, 33).0,
            ["its disk sdc is a drive of the md array md7"]
        );
    }
}
