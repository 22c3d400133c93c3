//! A real file system's bytes: an ext4 image of files from this machine.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use block::{ByteSize, SplitMix64};
use sha2::{Digest, Sha256};

use super::DemoError;
use super::show::Show;

/// Directories from which files are copied: every Linux has them, and all users may read them.
const SOURCES: [&str; 3] = ["/usr/lib", "/usr/bin", "/usr/share"];
/// Share of the image that files fill; the rest is the file system's own and free space.
const FILLED_PERCENT: u64 = 75;
/// Smaller files are left out, because copying tens of thousands of them takes minutes.
const FILE_BYTES_MIN: u64 = 128 << 10;
/// Larger files are left out, so that the image has many files.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// The image and its hash.
pub(super) struct Image {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

impl Image {
    /// Makes the image in `place` with `mke2fs -d`. If `mke2fs` is missing, the image is the files one after another.
    pub(super) fn make(place: &Path, bytes: u64, show: &Show) -> Result<Self, DemoError> {
        let began = Instant::now();
        let error = |error: io::Error| DemoError::new("making the image", error);
        let tree = place.join("tree");
        let path = place.join("image");
        let files = copy_tree(&tree, bytes / 100 * FILLED_PERCENT).map_err(error)?;
        File::create(&path)
            .and_then(|file| file.set_len(bytes))
            .map_err(error)?;
        let kind = if mke2fs(&tree, &path).map_err(error)? {
            "ext4 image"
        } else {
            archive(&tree, &path).map_err(error)?;
            "archive (mke2fs is not installed, so no ext4)"
        };
        fs::remove_dir_all(&tree).map_err(error)?;
        let sha256 = hash(&path).map_err(error)?;
        show.step(&format!(
            "{kind} of {} with {files} files from {}, sha256 {}…, in {:.1} s",
            ByteSize(bytes),
            SOURCES.join(", "),
            &sha256[..16],
            began.elapsed().as_secs_f64()
        ));
        Ok(Self {
            path,
            bytes,
            sha256,
        })
    }
}

/// Copies files until `budget` bytes are there; if the machine has too few files, the rest is generated.
fn copy_tree(tree: &Path, budget: u64) -> io::Result<u64> {
    fs::create_dir_all(tree)?;
    let (mut files, mut left) = (0, budget);
    let mut directories: Vec<PathBuf> = SOURCES.iter().map(PathBuf::from).collect();
    directories.reverse();
    while let Some(directory) = directories.pop() {
        // Directories that cannot be read are skipped.
        let mut entries: Vec<PathBuf> = fs::read_dir(&directory)
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        entries.sort();
        for path in entries {
            let Ok(metadata) = fs::symlink_metadata(&path) else {
                continue;
            };
            if metadata.is_dir() {
                directories.push(path);
            } else if metadata.is_file()
                && (FILE_BYTES_MIN..=FILE_BYTES_MAX.min(left)).contains(&metadata.len())
            {
                let relative = path.strip_prefix("/").unwrap_or(&path);
                let target = tree.join(relative);
                fs::create_dir_all(target.parent().unwrap_or(tree))?;
                if let Ok(bytes) = fs::copy(&path, &target) {
                    files += 1;
                    // A file takes at least one block.
                    left = left.saturating_sub(bytes.next_multiple_of(4096));
                }
            }
            if left < 1 << 20 {
                return Ok(files);
            }
        }
    }
    while left >= 1 << 20 {
        let bytes = left.min(16 << 20);
        generate(&tree.join(format!("generated-{files}")), bytes, files)?;
        files += 1;
        left -= bytes;
    }
    Ok(files)
}

/// A file of bytes that do not repeat.
fn generate(path: &Path, bytes: u64, seed: u64) -> io::Result<()> {
    let mut random = SplitMix64::new(seed);
    let mut out = io::BufWriter::new(File::create(path)?);
    for _ in 0..bytes / 8 {
        out.write_all(&random.draw().to_le_bytes())?;
    }
    out.flush()
}

/// Makes the image with `mke2fs`. Returns false if there is no `mke2fs`.
fn mke2fs(tree: &Path, image: &Path) -> io::Result<bool> {
    // Some users do not have the administrator's directories on the path.
    let names = ["mke2fs", "/usr/sbin/mke2fs", "/sbin/mke2fs"];
    for name in names {
        let status = Command::new(name)
            .args(["-q", "-F", "-t", "ext4", "-L", "ravelin-demo", "-d"])
            .arg(tree)
            .arg(image)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match status {
            Ok(status) if status.success() => return Ok(true),
            Ok(_) => {
                return Err(io::Error::other(format!(
                    "{name} did not make a file system"
                )));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// All files one after another, each with its name and length before it.
fn archive(tree: &Path, image: &Path) -> io::Result<()> {
    let mut out = io::BufWriter::new(File::options().write(true).open(image)?);
    let mut directories = vec![tree.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let bytes = fs::read(&path)?;
                writeln!(out, "{} {}", path.display(), bytes.len())?;
                out.write_all(&bytes)?;
            }
        }
    }
    out.flush()
}

fn hash(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&buffer[..count]);
    }
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string succeeds");
        text
    })
}
