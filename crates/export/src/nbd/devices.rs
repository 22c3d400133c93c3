//! Block devices of the kernel's own NBD client (`/dev/nbd0`, …): finds those that are connected to this server.
//!
//! The kernel reports the ID of the process that set a device up, and a Unix socket the ID of the process that
//! connected. For a client that hands its socket to the kernel (`nbd-client` by netlink, its default) the two are
//! equal.

use std::fs;
use std::path::{Path, PathBuf};

/// The NBD devices that one of the processes `peers` has set up, according to `sys`.
pub(super) fn connected_by(peers: &[u32], sys: &Path) -> Vec<PathBuf> {
    if peers.is_empty() {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(sys.join("block")) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let ours = names.filter(|name| {
        // Devices of other drivers and devices that are not connected have no such file.
        name.to_str().is_some_and(|name| name.starts_with("nbd"))
            && fs::read_to_string(sys.join("block").join(name).join("pid"))
                .ok()
                .and_then(|text| text.trim().parse().ok())
                .is_some_and(|pid: u32| peers.contains(&pid))
    });
    let mut devices: Vec<PathBuf> = ours.map(|name| Path::new("/dev").join(name)).collect();
    devices.sort();
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_the_process_that_has_set_them_up() {
        let sys = testing::Directory::new();
        for (name, pid) in [
            ("nbd0", Some("71\n")),
            ("nbd1", None),
            ("nbd2", Some("72\n")),
            ("nbd10", Some("71\n")),
            ("loop0", Some("71\n")),
            ("nbd3", Some("no number")),
        ] {
            let dir = sys.join("block").join(name);
            fs::create_dir_all(&dir).unwrap();
            if let Some(pid) = pid {
                fs::write(dir.join("pid"), pid).unwrap();
            }
        }
        let devices = connected_by(&[71, 5], &sys);
        assert_eq!(devices, [Path::new("/dev/nbd0"), Path::new("/dev/nbd10")]);
        assert!(connected_by(&[], &sys).is_empty());
        assert!(connected_by(&[71], &sys.join("missing")).is_empty());
    }
}
