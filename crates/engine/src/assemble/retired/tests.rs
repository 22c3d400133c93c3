//! The power is cut after each write of taking labels and of giving them back.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use block::{BlockDevice, Completed, Limits, Memory, Request, RequestKind};

use super::super::{NewPool, Without, choose, create, import, prepare, scan, scan_destroyed};
use super::*;
use crate::RunOptions;
use crate::drive::{DriveUri, Enclosures, Open, open};
use crate::status::Health;

const SIZE: u64 = 32 << 20;
const DRIVES: usize = 3;

/// A write: drive, place and bytes.
type Write = (usize, u64, Vec<u8>);

/// Notes each write to a drive and passes it on.
struct Recorder {
    number: usize,
    inner: Arc<dyn BlockDevice>,
    writes: Arc<Mutex<Vec<Write>>>,
}

impl BlockDevice for Recorder {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn submit(&self, request: Request, mut memory: Memory, token: u64, to: &Arc<dyn Completed>) {
        if request.kind == RequestKind::Write {
            let bytes = memory.unique().expect("nothing else reads it").to_vec();
            let mut writes = self.writes.lock().unwrap();
            writes.push((self.number, request.offset, bytes));
        }
        self.inner.submit(request, memory, token, to);
    }
}

/// A directory with a pool, removed at the end.
struct Place(testing::Directory);

impl Place {
    /// A pool that has been changed a few times and closed, so that each drive has both labels.
    fn with_pool() -> Self {
        let place = Self(testing::Directory::new());
        for number in 0..DRIVES {
            let file = File::create(place.path(number)).unwrap();
            file.set_len(SIZE).unwrap();
        }
        let new = NewPool {
            name: "tank".to_owned(),
            scheme: "raid5".parse().unwrap(),
            chunk_bytes: None,
            cell_bytes: None,
            journal: true,
            drives: (0..DRIVES).map(|number| place.uri(number)).collect(),
            spares: Vec::new(),
            force: false,
        };
        let pool = create(prepare(&new).unwrap(), RunOptions::default()).unwrap();
        pool.create_volume("v", 1 << 20).unwrap();
        pool.create_volume("w", 1 << 20).unwrap();
        pool.close().unwrap();
        place
    }

    fn path(&self, number: usize) -> PathBuf {
        self.0.join(format!("d{number}"))
    }

    fn uri(&self, number: usize) -> DriveUri {
        self.path(number).to_str().unwrap().parse().unwrap()
    }

    /// What the drives hold outside of holes matters only where labels are: their first and last bytes.
    fn ends(&self) -> Vec<[Vec<u8>; 2]> {
        let read = |number: usize| {
            let file = File::open(self.path(number)).unwrap();
            [0, SIZE - (8 << 20)].map(|at| {
                let mut bytes = vec![0; 1 << 20];
                file.read_exact_at(&mut bytes, at).unwrap();
                bytes
            })
        };
        (0..DRIVES).map(read).collect()
    }

    fn put(&self, number: usize, at: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(self.path(number));
        file.unwrap().write_all_at(bytes, at).unwrap();
    }

    /// The drives as they were, and then the first writes.
    fn cut(&self, before: &[[Vec<u8>; 2]], writes: &[Write]) {
        for (number, [head, tail]) in before.iter().enumerate() {
            self.put(number, 0, head);
            self.put(number, SIZE - (8 << 20), tail);
        }
        for (number, at, bytes) in writes {
            self.put(*number, *at, bytes);
        }
    }

    /// Runs `work` on each drive in turn; returns its writes.
    fn recorded(&self, mut work: impl FnMut(&Drive)) -> Vec<Write> {
        let writes = Arc::new(Mutex::new(Vec::new()));
        for number in 0..DRIVES {
            let how = Open {
                create_size: None,
                exclusive: true,
                read_only: false,
            };
            let mut drive = open(&self.uri(number), how).unwrap();
            drive.device = Arc::new(Recorder {
                number,
                inner: Arc::clone(&drive.device),
                writes: Arc::clone(&writes),
            });
            work(&drive);
        }
        Arc::into_inner(writes).unwrap().into_inner().unwrap()
    }

    /// Opens the pool, destroyed or not; every drive is in use and current.
    fn opens(&self, moment: &str) {
        let places = [self.0.to_owned()];
        let mut found = scan_destroyed(&places, &[]);
        if found.is_empty() {
            found = scan(&places, &[]);
        }
        let found = choose(&found, "tank", &places);
        let found = found.unwrap_or_else(|error| panic!("{moment}: {error}"));
        let pool = import(
            found,
            &Without::default(),
            (&[], &Enclosures::default()),
            RunOptions::default(),
        );
        let pool = pool.unwrap_or_else(|error| panic!("{moment}: {error}"));
        assert_eq!(pool.status().unwrap().health, Health::Healthy, "{moment}");
        pool.close().unwrap();
        assert!(scan_destroyed(&places, &[]).is_empty(), "{moment}");
        let labelled = scan(&places, &[]);
        assert_eq!(labelled[0].found.len(), DRIVES, "{moment}");
    }
}

#[test]
fn a_pool_comes_back_after_a_cut_at_any_write_of_destroying_it_and_of_bringing_it_back() {
    let place = Place::with_pool();
    let before = place.ends();
    let taking = place.recorded(|drive| assert!(retire(drive).unwrap()));
    // The first page, and two labels at each end.
    assert_eq!(taking.len(), DRIVES * 5);
    let after = place.ends();
    let giving = place.recorded(|drive| give_back(drive, &retired_of(drive).unwrap()).unwrap());
    assert_eq!(giving.len(), DRIVES * 5);
    assert_eq!(place.ends(), before, "all is as it was");
    for (what, start, writes) in [
        ("destroying", &before, &taking),
        ("bringing back", &after, &giving),
    ] {
        for count in 0..=writes.len() {
            place.cut(start, &writes[..count]);
            place.opens(&format!("{what}, {count} writes"));
        }
    }
    // No drive shows its older label alone: the newest generation is read from each that has a label.
    for count in 0..=taking.len() {
        place.cut(&before, &taking[..count]);
        for pool in scan(&[place.0.to_owned()], &[]) {
            let labels = pool.found.iter().map(|place| {
                let path = std::path::PathBuf::from(place.to_string());
                let file = super::super::find::open_for_labels(&path).unwrap();
                super::super::find::labels_of(&file).label.unwrap()
            });
            for label in labels {
                assert_eq!(label.generation, pool.generation, "{count} writes");
            }
        }
    }
}
