//! A filled volume of a pool on slow drives, and its exports.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use block::SplitMix64;
use export::nbd::{Client, Operation};
use sha2::{Digest, Sha256};

use crate::support::bench::Bench;
use crate::support::common::{can_mount, installed};

const MIB: u64 = 1 << 20;
/// A multiple of [`FILL_BYTES`].
const VOLUME_BYTES: u64 = 192 * MIB;
/// Room for a copy of the whole volume on every drive, and for the pool's own regions.
const DRIVE_BYTES: u64 = 288 * MIB;
/// A multiple of the stripes of one, two, three and four data chunks of 64 KiB.
pub(crate) const FILL_BYTES: usize = (24 * 64) << 10;
/// Requests in flight while the volume is filled or hashed.
const DEPTH: usize = 4;
/// Enough for two volumes at once.
const MEMORY_BYTES: u64 = 4 << 30;

/// Options without journal and checksums, because their drive operations would hide those of the layout.
pub(crate) const BARE: &[&str] = &[
    "-o",
    "cell=256K",
    "-o",
    "journal=intent",
    "-o",
    "checksum=off",
];
/// The default options.
pub(crate) const DEFAULTS: &[&str] = &["-o", "cell=256K"];

/// Sparse files behind slow drives; removed at the end.
pub(crate) struct DriveFiles(Vec<PathBuf>);

impl DriveFiles {
    pub(crate) fn new(test: &str, count: usize, size_bytes: u64) -> Self {
        let name = |index| format!("ravelin-{}-{test}-{index}", std::process::id());
        let files: Vec<PathBuf> = (0..count)
            .map(|index| Self::place().join(name(index)))
            .collect();
        for path in &files {
            File::create(path).unwrap().set_len(size_bytes).unwrap();
        }
        Self(files)
    }

    /// A file system in memory, if large enough: the storage below a slow drive must add no delay of its own.
    fn place() -> PathBuf {
        let memory = Path::new("/dev/shm");
        let free = rustix::fs::statvfs(memory).map_or(0, |all| all.f_bavail * all.f_frsize);
        match free >= MEMORY_BYTES {
            true => memory.to_owned(),
            false => std::env::temp_dir(),
        }
    }

    /// URIs of slow drives: a request of 4 KiB takes 2.06 ms, one of 64 KiB 3 ms.
    pub(crate) fn uris(&self) -> Vec<String> {
        let uri = |path: &PathBuf| format!("slow:{}?bandwidth=64M&iops=500", path.display());
        self.0.iter().map(uri).collect()
    }
}

impl Drop for DriveFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// [`FILL_BYTES`] bytes that do not compress, different for each number.
pub(crate) fn noise(number: u64) -> Vec<u8> {
    SplitMix64::new(number << 32).bytes(FILL_BYTES)
}

/// The hash of a file's bytes, read from its drives and not from the page cache.
pub(crate) fn hash_of_file(path: &Path) -> Vec<u8> {
    let mut file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut hash = Sha256::new();
    let mut bytes = vec![0; FILL_BYTES];
    loop {
        let length = file.read(&mut bytes).unwrap();
        if length == 0 {
            return hash.finalize().to_vec();
        }
        hash.update(&bytes[..length]);
    }
}

/// A daemon with a pool `tank` and its filled volume `v`.
pub(crate) struct SlowVolume {
    pub(crate) bench: Bench,
    drives: DriveFiles,
}

impl SlowVolume {
    pub(crate) fn new(test: &str, scheme: &str, drives: usize, options: &[&str]) -> Self {
        let test = format!("shear-{test}");
        let mut volume = Self {
            bench: Bench::new(&test),
            drives: DriveFiles::new(&test, drives, DRIVE_BYTES),
        };
        let (bench, uris) = (&volume.bench, volume.drives.uris());
        let made = bench.create("tank", scheme, &uris, options);
        assert_eq!(made.code, 0, "{}", made.stderr);
        let size = VOLUME_BYTES.to_string();
        bench.ok(&["volume", "create", "tank/v", "--size", &size]);
        bench.ok(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
        volume.fill();
        // Restarts the daemon: otherwise the pool answers from its memory.
        assert_eq!(volume.bench.terminate(), Some(0), "{}", volume.bench.log());
        volume.bench.start();
        volume
    }

    /// Writes every byte, in requests of whole stripes.
    fn fill(&self) {
        self.stream(|place| Some(noise(place)));
    }

    /// The hash of the whole volume as clients read it.
    pub(crate) fn hash(&self) -> Vec<u8> {
        let parts = self.stream(|_| None);
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part);
        }
        hash.finalize().to_vec()
    }

    /// For each place, writes the bytes that `bytes` returns, or reads if it returns none; returns the hash of each
    /// reply's data.
    fn stream(&self, mut bytes: impl FnMut(u64) -> Option<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut client = Client::connect(&self.uri().parse().unwrap(), None).unwrap();
        let places = VOLUME_BYTES / FILL_BYTES as u64;
        let mut cookies = std::collections::BTreeMap::new();
        let mut hashes = vec![Vec::new(); usize::try_from(places).unwrap()];
        let mut next = 0;
        loop {
            while next < places && client.in_flight() < DEPTH {
                let offset = next * FILL_BYTES as u64;
                let operation = match bytes(next) {
                    Some(buffer) => Operation::Write {
                        offset,
                        buffer,
                        fua: false,
                    },
                    None => Operation::Read {
                        offset,
                        buffer: vec![0; FILL_BYTES],
                    },
                };
                let at = usize::try_from(next).unwrap();
                cookies.insert(client.submit(operation).unwrap(), at);
                next += 1;
            }
            client.send().unwrap();
            let Some(reply) = client.wait().unwrap() else {
                break;
            };
            let reply = reply.ok().unwrap();
            hashes[cookies[&reply.cookie]] = Sha256::digest(&reply.buffer).to_vec();
        }
        client.flush().unwrap();
        client.disconnect().unwrap();
        hashes
    }

    pub(crate) fn uri(&self) -> String {
        let socket = self.bench.path("nbd");
        format!("nbd+unix:///?socket={}", socket.display())
    }

    /// Attaches the volume also as a loop device over a FUSE file; `None`, with a message, where this is impossible.
    pub(crate) fn device(&self, more: &[&str]) -> Option<PathBuf> {
        if !can_loop() {
            return None;
        }
        let name = format!("v{}.img", more.len());
        let attach = ["volume", "attach", "tank/v", "--fuse", &name, "--loop"];
        let export = self.bench.json(&[&attach, more].concat());
        Some(PathBuf::from(export["device"].as_str().unwrap()))
    }
}

impl Drop for SlowVolume {
    fn drop(&mut self) {
        // A daemon that ends in an orderly way leaves no loop device behind.
        self.bench.terminate();
    }
}

/// Whether there are FUSE and loop devices; names what is missing.
fn can_loop() -> bool {
    can_mount(&["/dev/fuse", "/dev/loop-control"]) && installed("losetup")
}
