//! What the drive tests share: a place for files, a collector of completions, a model.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use block::{BlockDevice, Completed, Memory, Outcome, Request, RequestKind, SplitMix64};

use crate::drive::handle::copy_out;
use crate::drive::{Drive, Open, open, sync};

/// A directory for drives.
pub(crate) struct Place(testing::Directory);

impl Place {
    pub(crate) fn new() -> Self {
        Self(testing::Directory::new())
    }

    pub(crate) fn under(parent: &Path) -> Self {
        Self(testing::Directory::under(parent))
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

/// Opens `uri`, making its file of `size` bytes if there is none.
pub(crate) fn open_sized(uri: &str, size: u64) -> Drive {
    let how = Open {
        create_size: Some(size),
        exclusive: true,
        read_only: false,
    };
    open(&uri.parse().unwrap(), how).unwrap_or_else(|error| panic!("{uri}: {error}"))
}

thread_local! {
    static SUBMITTING: Cell<bool> = const { Cell::new(false) };
}

/// Counts the completions of each token, and refuses those that come from inside `submit`.
#[derive(Default)]
pub(crate) struct Collector {
    outcomes: Mutex<HashMap<u64, Vec<Outcome>>>,
    more: Condvar,
}

impl Completed for Collector {
    fn completed(&self, token: u64, outcome: Outcome) {
        assert!(!SUBMITTING.get(), "completed inside submit");
        self.outcomes
            .lock()
            .unwrap()
            .entry(token)
            .or_default()
            .push(outcome);
        self.more.notify_all();
    }
}

impl Collector {
    pub(crate) fn submit(
        self: &Arc<Self>,
        device: &dyn BlockDevice,
        request: Request,
        memory: Memory,
        token: u64,
    ) {
        let to: Arc<dyn Completed> = Arc::clone(self) as _;
        SUBMITTING.set(true);
        device.submit(request, memory, token, &to);
        SUBMITTING.set(false);
    }

    /// Waits until `count` requests have been answered, and fails after half a minute.
    pub(crate) fn wait(&self, count: usize) {
        let outcomes = self.outcomes.lock().unwrap();
        let answered =
            |outcomes: &HashMap<_, Vec<_>>| outcomes.values().map(Vec::len).sum::<usize>();
        let (outcomes, _) = self
            .more
            .wait_timeout_while(outcomes, Duration::from_secs(30), |all| {
                answered(all) < count
            })
            .unwrap();
        assert!(
            answered(&outcomes) >= count,
            "{} of {count} answered",
            answered(&outcomes)
        );
    }

    pub(crate) fn answered(&self) -> usize {
        self.outcomes.lock().unwrap().values().map(Vec::len).sum()
    }

    /// The outcome of each of the tokens 0..`count`, each of which was answered once.
    pub(crate) fn once_each(&self, count: u64) -> Vec<Outcome> {
        let outcomes = self.outcomes.lock().unwrap();
        assert_eq!(outcomes.len() as u64, count);
        (0..count)
            .map(|token| match outcomes[&token].as_slice() {
                [outcome] => *outcome,
                several => panic!("request {token} was answered {} times", several.len()),
            })
            .collect()
    }
}

/// The bytes of memory that nothing in flight writes.
pub(crate) fn copy(memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    copy_out(memory, 0..memory.len(), &mut bytes);
    bytes
}

pub(crate) fn request(kind: RequestKind, offset: u64, length: u64) -> Request {
    Request {
        kind,
        offset,
        length,
        fua: false,
    }
}

/// `steps` random requests, one after another, each read compared with a plain array of bytes.
pub(crate) fn against_the_model(device: &dyn BlockDevice, steps: u32, seed: u64) {
    let limits = device.limits();
    let align = u64::from(limits.block_bytes_min);
    let mut chance = SplitMix64::new(seed);
    let size = limits.size_bytes;
    let mut model = sync::read(device, 0, size as usize).unwrap();
    for step in 0..steps {
        // Both ends of the drive, and everything between.
        let offset = match chance.below(8) {
            0 => 0,
            1 => size - align * (1 + chance.below(3)),
            _ => chance.below(size / align) * align,
        };
        let longest = (size - offset).min(if chance.below(8) == 0 {
            400 << 10
        } else {
            20 << 10
        });
        let length = (1 + chance.below(longest / align)) * align;
        let range = offset as usize..(offset + length) as usize;
        match chance.below(10) {
            0..4 => {
                let read = sync::read(device, offset, length as usize).unwrap();
                assert!(
                    read == model[range],
                    "seed {seed} step {step}: {offset}+{length}"
                );
            }
            4..7 => {
                let bytes = chance.bytes(length as usize);
                let write = Request {
                    fua: chance.below(4) == 0,
                    ..request(RequestKind::Write, offset, length)
                };
                // Off a page boundary, where a drive may not use the memory as it is.
                let shift = 8 * chance.below(3) as usize;
                let padded = [vec![0; shift], bytes.clone()].concat();
                let memory = Memory::from_bytes(&padded).slice(shift..padded.len());
                assert_eq!(sync::run(device, write, memory), Ok(()), "step {step}");
                model[range].copy_from_slice(&bytes);
            }
            7 => {
                sync::trim(device, offset, length).unwrap();
                model[range].fill(0);
            }
            8 => {
                sync::write_zeroes(device, offset, length).unwrap();
                model[range].fill(0);
            }
            _ => sync::flush(device).unwrap(),
        }
    }
    let last = sync::read(device, 0, size as usize).unwrap();
    assert!(last == model, "seed {seed}: the whole drive at the end");
}
