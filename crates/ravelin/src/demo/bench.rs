//! The demo's pool: throttled files below, an NBD server above.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use block::BlockDevice;
use engine::assemble::{NewPool, create, prepare};
use engine::drive::{DriveUri, FaultHandle, create_sparse};
use engine::status::PoolStatus;
use engine::{PoolHandle, RunOptions, Volume};
use export::nbd::{Client, CopyOptions, Exports, Listen, Options, Server, copy_in, copy_out};
use sha2::{Digest, Sha256};

use super::image::{Image, hex};
use super::{DRIVE_BYTES_PER_SECOND, DRIVES, DemoError};

/// A drive's size in percent of its share of the image: the rest is for labels, reserves and rounding.
const DRIVE_PERCENT: u64 = 150;

struct One(Arc<Volume>);

impl Exports for One {
    fn list(&self) -> Vec<String> {
        vec!["demo/data".to_owned()]
    }

    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        (name.is_empty() || name == "demo/data").then(|| Arc::clone(&self.0) as _)
    }
}

/// A running pool with one volume behind a socket.
pub(super) struct Bench {
    pool: PoolHandle,
    server: Server,
    socket: PathBuf,
    directory: PathBuf,
    faults: Vec<Option<FaultHandle>>,
    drive_bytes: u64,
}

impl Bench {
    pub(super) fn start(scheme: &str, image_bytes: u64, place: &Path) -> Result<Self, DemoError> {
        let directory = place.join("pool");
        std::fs::create_dir_all(&directory)
            .map_err(|error| DemoError::new("making the drives", error))?;
        // Six columns for every four of data, on the drives that are not spare.
        let share = image_bytes * 6 / 4 / u64::from(DRIVES - 1);
        let drive_bytes = (share * DRIVE_PERCENT / 100 + (24 << 20)).next_multiple_of(1 << 20);
        let mut drives = Vec::new();
        for index in 0..DRIVES {
            let path = directory.join(format!("drive{index:02}.img"));
            create_sparse(&path, drive_bytes)
                .map_err(|error| DemoError::new("making the drives", error))?;
            let uri = format!(
                "faulty:slow:{}?bandwidth={DRIVE_BYTES_PER_SECOND}?",
                path.display()
            );
            let uri: DriveUri = uri
                .parse()
                .map_err(|error| DemoError::new("naming the drives", error))?;
            drives.push(uri);
        }
        let new = NewPool {
            name: "demo".to_owned(),
            scheme: scheme
                .parse()
                .map_err(|error| DemoError::new("reading the scheme", error))?,
            chunk_bytes: None,
            cell_bytes: None,
            journal: true,
            drives,
            spares: Vec::new(),
            force: false,
        };
        let prepared =
            prepare(&new).map_err(|error| DemoError::new("opening the drives", error))?;
        let faults = prepared.faults();
        let pool = create(prepared, RunOptions::default())
            .map_err(|error| DemoError::new("creating the pool", error))?;
        pool.create_volume("data", image_bytes)
            .map_err(|error| DemoError::new("creating the volume", error))?;
        let volume = pool
            .volume("data")
            .ok_or_else(|| DemoError::new("opening the volume", "it is not there"))?;
        let socket = place.join("nbd.sock");
        let server = Server::bind(
            &Listen::Unix(socket.clone()),
            Arc::new(One(volume)),
            &Options::default(),
        )
        .map_err(|error| DemoError::new("starting the NBD server", error))?;
        Ok(Self {
            pool,
            server,
            socket,
            directory,
            faults,
            drive_bytes,
        })
    }

    pub(super) const fn drive_bytes(&self) -> u64 {
        self.drive_bytes
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///demo/data?socket={}", self.socket.display())
    }

    fn client(&self) -> Result<Client, DemoError> {
        let uri = self
            .uri()
            .parse()
            .map_err(|error| DemoError::new("naming the export", error))?;
        Client::connect(&uri, None).map_err(|error| DemoError::new("connecting by NBD", error))
    }

    /// Copies the file onto the volume with `nbdcopy`, or with our own client if `nbdcopy` is missing. Returns the
    /// seconds and the name of the program.
    pub(super) fn write(&self, image: &Path) -> Result<(f64, &'static str), DemoError> {
        let began = Instant::now();
        let nbdcopy = Command::new("nbdcopy")
            .args(["--flush", "--requests=16"])
            .arg(image)
            .arg(self.uri())
            .stdin(Stdio::null())
            .status();
        let by = match nbdcopy {
            Ok(status) if status.success() => "nbdcopy",
            Ok(status) => return Err(DemoError::new("copying by nbdcopy", status)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let error = |error: &dyn std::fmt::Display| DemoError::new("copying", error);
                let mut file = std::fs::File::open(image).map_err(|why| error(&why))?;
                let mut client = self.client()?;
                copy_in(&mut file, &mut client, CopyOptions::default(), &mut |_| {})
                    .map_err(|why| error(&why))?;
                "our own client"
            }
            Err(error) => return Err(DemoError::new("starting nbdcopy", error)),
        };
        Ok((began.elapsed().as_secs_f64(), by))
    }

    /// Reads as many bytes as the image has and compares their hash with the image's. `progress` gets the number of
    /// bytes that have been read.
    pub(super) fn verify(
        &self,
        image: &Image,
        progress: &mut dyn FnMut(u64),
    ) -> Result<bool, DemoError> {
        struct Hasher(Sha256);
        impl Write for Hasher {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.update(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut hasher = Hasher(Sha256::new());
        let mut client = self.client()?;
        copy_out(
            &mut client,
            image.bytes,
            &mut hasher,
            CopyOptions::default(),
            progress,
        )
        .map_err(|error| DemoError::new("reading back", error))?;
        Ok(hex(&hasher.0.finalize()) == image.sha256)
    }

    /// Fails the drive: it answers no more requests.
    pub(super) fn pull(&self, seat: u16) {
        if let Some(Some(faults)) = self.faults.get(usize::from(seat)) {
            faults.fail();
        }
    }

    pub(super) fn hold_rebuild(&self, hold: bool) -> Result<(), DemoError> {
        self.pool
            .pause_rebuild(hold)
            .map_err(|error| DemoError::new("holding the rebuild", error))
    }

    pub(super) fn status(&self) -> Result<PoolStatus, DemoError> {
        self.pool
            .status()
            .map_err(|error| DemoError::new("asking for the status", error))
    }

    pub(super) fn end(self) -> Result<(), DemoError> {
        self.server.shutdown();
        self.pool
            .close()
            .map_err(|error| DemoError::new("closing the pool", error))?;
        std::fs::remove_dir_all(&self.directory)
            .map_err(|error| DemoError::new("removing the drives", error))
    }
}
