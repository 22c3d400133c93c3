//! Events and histories of pools, preserved across restarts of the daemon: a file for each pool, `events/UUID` and
//! `history/UUID` in the state directory, with one event per line of JSON.
//!
//! ```text
//!  pool threads ── try_send ──► queue of 1024 ──► one thread ── append; cut in half when too long ──► files
//! ```
//!
//! A pool's thread does not wait for the file. If the disk is too slow and the queue is full, events are dropped; the
//! gap in the event numbers shows how many. An incomplete line, cut short by a stop, is skipped when the file is
//! read.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use engine::status::LoggedEvent;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Events that may wait to be written.
const QUEUE_MAX: usize = 1024;
/// The maximum size of a file. A longer file loses its older half. About five thousand events.
const FILE_BYTES_MAX: u64 = 1 << 20;

enum Message<T> {
    /// An event of the pool with this identity.
    Event(String, T),
    /// Reply when all earlier messages have been written.
    Written(Sender<()>),
}

/// The directory of event files, and the queue of their writer thread.
#[derive(Clone, Debug)]
pub(crate) struct LineFiles<T> {
    directory: PathBuf,
    queue: SyncSender<Message<T>>,
}

/// All events.
pub(crate) type EventFiles = LineFiles<LoggedEvent>;

impl<T: Clone + Serialize + DeserializeOwned + Send + 'static> LineFiles<T> {
    /// Begins to write lines to a directory below `state`, the daemon's.
    ///
    /// # Errors
    /// When the directory cannot be made, or there is no thread.
    pub(crate) fn open(state: &Path, name: &str) -> io::Result<Self> {
        let directory = state.join(name);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)?;
        let (queue, messages) = sync_channel(QUEUE_MAX);
        let to = directory.clone();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || write_all(&to, &messages))?;
        Ok(Self { directory, queue })
    }

    /// Queues an event for writing. Never waits.
    pub(crate) fn keep(&self, pool: &str, event: &T) {
        let message = Message::Event(pool.to_owned(), event.clone());
        if self.queue.try_send(message).is_err() {
            tracing::debug!(pool, "an event is not kept: too many wait");
        }
    }

    /// The stored events of a pool, oldest first.
    pub(crate) fn read(&self, pool: &str) -> Vec<T> {
        let (to, written) = channel();
        if self.queue.send(Message::Written(to)).is_ok() {
            written.recv().ok();
        }
        events(&self.directory.join(pool))
    }

    /// Deletes a pool's events.
    pub(crate) fn forget(&self, pool: &str) {
        self.read(pool);
        fs::remove_file(self.directory.join(pool)).ok();
    }
}

fn events<T: DeserializeOwned>(path: &Path) -> Vec<T> {
    let bytes = fs::read(path).unwrap_or_default();
    let lines = bytes.split(|&byte| byte == b'\n');
    lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

fn write_all<T: Serialize>(directory: &Path, messages: &Receiver<Message<T>>) {
    let mut failing = false;
    while let Ok(message) = messages.recv() {
        match message {
            Message::Event(pool, event) => {
                let written = append(&directory.join(pool), &event);
                if let Err(error) = &written
                    && !failing
                {
                    tracing::warn!("events are not kept: {}: {error}", directory.display());
                }
                failing = written.is_err();
            }
            // The receiver may be gone.
            Message::Written(to) => to.send(()).unwrap_or_default(),
        }
    }
}

fn append(path: &Path, event: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(event).map_err(io::Error::other)?;
    line.push(b'\n');
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(&line)?;
    if file.metadata()?.len() > FILE_BYTES_MAX {
        cut_in_half(path)?;
    }
    Ok(())
}

/// Drops the older half of a file. The rename is atomic: a reader finds the old or the new file, whole.
fn cut_in_half(path: &Path) -> io::Result<()> {
    let bytes = fs::read(path)?;
    let half = bytes.len() / 2;
    let begin = { bytes[half..].iter() }.position(|&byte| byte == b'\n');
    let rest = begin.map_or(&[][..], |at| &bytes[half + at + 1..]);
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(rest)?;
    file.sync_data()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64) -> LoggedEvent {
        LoggedEvent {
            number,
            at: std::time::SystemTime::UNIX_EPOCH,
            event: "scrub_begins".to_owned(),
            severity: engine::status::Severity::Info,
            seat: None,
            path: None,
            text: "scrub of 10 groups begins".to_owned(),
        }
    }

    #[test]
    fn events_are_kept_in_order_and_the_older_half_goes_when_there_are_too_many() {
        let place = testing::Directory::new();
        let files = EventFiles::open(&place, "events").unwrap();
        assert_eq!(files.read("a"), []);
        for number in 1..=3 {
            files.keep("a", &event(number));
        }
        assert_eq!(files.read("a"), [event(1), event(2), event(3)]);
        assert_eq!(files.read("b"), []);
        // A stop in the middle of a line.
        let path = place.join("events/a");
        let cut = fs::read(&path).unwrap();
        fs::write(&path, &cut[..cut.len() - 5]).unwrap();
        assert_eq!(files.read("a"), [event(1), event(2)]);

        let line = serde_json::to_vec(&event(10_000)).unwrap().len() as u64 + 1;
        let many = 2 * FILE_BYTES_MAX / line;
        for number in 0..many {
            append(&place.join("events/b"), &event(10_000 + number)).unwrap();
        }
        let kept = files.read("b");
        assert!(fs::metadata(place.join("events/b")).unwrap().len() <= FILE_BYTES_MAX);
        assert!(kept.len() as u64 >= many / 4, "{}", kept.len());
        assert_eq!(kept.last().unwrap().number, 10_000 + many - 1);
        let in_a_row = |pair: &[LoggedEvent]| pair[0].number + 1 == pair[1].number;
        assert!(kept.windows(2).all(in_a_row));
        files.forget("b");
        assert_eq!(files.read("b"), []);
    }
}
