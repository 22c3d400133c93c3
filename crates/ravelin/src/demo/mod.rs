//! The main purpose of Ravelin on one machine: a drive is lost, and the data stays readable and correct.
//!
//! Thirteen sparse files, each behind a throttle, stand for thirteen drives. The bytes of a real file system go onto a
//! declustered pool through NBD. Then a drive is pulled: reads stay correct, and the rebuild uses all drives. The same
//! follows with the same bytes on plain RAID-6 with a hot spare.

mod bench;
mod image;
mod show;

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use block::{ByteSize, Hint};
use clap::Args;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use self::bench::Bench;
use self::image::Image;
use self::show::Show;
use crate::commands::common::{Exit, parsed};

/// Number of drives, and the bytes per second of each.
const DRIVES: u16 = 13;
const DRIVE_BYTES_PER_SECOND: &str = "16M";
const DECLUSTERED: &str = "pddl2:4d:13c:1s";
const RAID6: &str = "raid6:4d:13c:1s";
/// Data columns and spares of both schemes.
const DATA: f64 = 4.0;
const SPARES: f64 = 1.0;
/// The drive that is pulled.
const VICTIM: u16 = 4;

/// Thirteen drives, a file system, a drive pulled, the rebuild, everything verified.
#[derive(Debug, Args)]
pub(crate) struct DemoCommand {
    /// Where to put the drives (2 GiB are needed); by default the directory for temporary files.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Size of the file system image.
    #[arg(long, value_name = "SIZE", default_value = "768M", value_parser = parsed::<ByteSize>)]
    size: ByteSize,
}

/// Why the demo stopped.
#[derive(Debug, thiserror::Error)]
#[error("the demo stopped while {doing}: {why}")]
pub(crate) struct DemoError {
    doing: &'static str,
    why: String,
    hint: &'static str,
}

impl Hint for DemoError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(self.hint.into())
    }
}

impl Exit for DemoError {
    fn exit_code(&self) -> u8 {
        1
    }
}

impl DemoError {
    fn new(doing: &'static str, why: impl std::fmt::Display) -> Self {
        Self {
            doing,
            why: why.to_string(),
            hint: "--dir names another place, --size a smaller image",
        }
    }
}

#[derive(Debug, Serialize)]
struct Rebuild {
    declustered_seconds: f64,
    raid6_seconds: f64,
    ratio: f64,
    bound: f64,
}

#[derive(Debug, Serialize)]
struct Document {
    ravelin: &'static str,
    kind: &'static str,
    verified: bool,
    bytes: u64,
    sha256: String,
    rebuild: Rebuild,
    drives: u16,
    seconds: f64,
}

/// A directory that is removed in any case: when this is dropped, and on SIGINT and SIGTERM, which then end the
/// process.
struct Workplace(PathBuf);

impl Workplace {
    fn new(parent: Option<&Path>) -> Result<Self, DemoError> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let path = parent.join(format!("ravelin-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .map_err(|error| DemoError::new("making its directory", error))?;
        let place = Self(path);
        place
            .removed_on_signal()
            .map_err(|error| DemoError::new("waiting for signals", error))?;
        Ok(place)
    }

    /// Waits for a signal on a thread of its own. Without this, ^C would leave gigabytes behind.
    fn removed_on_signal(&self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (mut interrupt, mut terminate) = {
            let _inside = runtime.enter();
            let interrupt = signal(SignalKind::interrupt())?;
            (interrupt, signal(SignalKind::terminate())?)
        };
        let path = self.0.clone();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                let number = runtime.block_on(async {
                    tokio::select! {
                        _ = interrupt.recv() => 2,
                        _ = terminate.recv() => 15,
                    }
                });
                // Another thread may still be making files in the directory: try a second time, then give up.
                for _ in 0..2 {
                    std::fs::remove_dir_all(&path).unwrap_or_default();
                }
                std::process::exit(128 + number);
            })?;
        Ok(())
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        // An error is ignored: nothing more can be done about it.
        std::fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

impl DemoCommand {
    pub(crate) fn run(self, json: bool) -> Result<(), DemoError> {
        let began = Instant::now();
        let show = Show::new(json);
        let place = Workplace::new(self.dir.as_deref())?;
        show.title("Ravelin: thirteen drives, one is pulled");
        let image = Image::make(&place.0, self.size.0, &show)?;
        let (declustered, first) = act(DECLUSTERED, &image, &place.0, &show)?;
        show.title("The same bytes and the same failure on plain RAID-6");
        let (raid6, second) = act(RAID6, &image, &place.0, &show)?;

        let n = f64::from(DRIVES);
        let bound = n * (n - 1.0) / ((n - SPARES) * (DATA + 1.0));
        let rebuild = Rebuild {
            declustered_seconds: declustered,
            raid6_seconds: raid6,
            ratio: raid6 / declustered,
            bound,
        };
        let verified = first && second;
        show.summary(&rebuild, verified);
        show.real_drives();
        if json {
            show.document(&Document {
                ravelin: env!("CARGO_PKG_VERSION"),
                kind: "demo",
                verified,
                bytes: image.bytes,
                sha256: image.sha256.clone(),
                rebuild,
                drives: DRIVES,
                seconds: began.elapsed().as_secs_f64(),
            });
        }
        if verified {
            Ok(())
        } else {
            Err(DemoError {
                doing: "verifying",
                why: "the bytes read back are not those that were written".to_owned(),
                hint: "this is a bug: please report it with the output above",
            })
        }
    }
}

/// Runs the sequence on one pool: write, pull, read, rebuild, read. Returns the rebuild's seconds, and whether every
/// byte was right at every step.
fn act(scheme: &str, image: &Image, place: &Path, show: &Show) -> Result<(f64, bool), DemoError> {
    let bench = Bench::start(scheme, image.bytes, place)?;
    show.step(&format!(
        "pool `demo`: {scheme} on {DRIVES} files of {}, each throttled to {DRIVE_BYTES_PER_SECOND}B/s",
        ByteSize(bench.drive_bytes())
    ));
    let (seconds, by) = bench.write(&image.path)?;
    show.timed(
        &format!("image written through NBD by {by}"),
        image.bytes,
        seconds,
    );
    let mut right = true;
    let mut verify = |when: &str, progress: &mut dyn FnMut(u64)| -> Result<(), DemoError> {
        let began = Instant::now();
        let same = bench.verify(image, progress)?;
        right &= same;
        show.verified(when, image.bytes, began.elapsed().as_secs_f64(), same);
        Ok(())
    };
    verify("read back", &mut |_| {})?;
    // Otherwise the clients' reads and the rebuild would share the drives, and the times below would depend on how much
    // was left to read.
    bench.hold_rebuild(true)?;
    show.step(&format!(
        "drive {VICTIM} will be pulled a quarter into the next read; the rebuild waits until that has ended"
    ));
    let mut pulled = false;
    verify("read while a drive is pulled", &mut |done| {
        if !pulled && done >= image.bytes / 4 {
            pulled = true;
            bench.pull(VICTIM);
        }
    })?;
    bench.hold_rebuild(false)?;
    let seconds = show.rebuild(&bench)?;
    verify("read after the rebuild", &mut |_| {})?;
    bench.end()?;
    Ok((seconds, right))
}

/// How often the rebuild's bars move.
const TICK: Duration = Duration::from_millis(100);
