//! Drives that do not answer, on real threads and in real time.

#![expect(clippy::print_stdout, reason = "figures for the documents")]

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use array::pool::{OutReason, PoolError};
use block::{BlockDevice, Completed, Memory, Outcome, Request, RequestKind, Seat};
use engine::assemble::{NewPool, create, prepare};
use engine::drive::{Effect, FaultHandle, Trap};
use engine::{PoolHandle, RunOptions};

const VOLUME: &str = "v";
const BLOCK: usize = 4096;
const SIZE: usize = 4 << 20;

/// Token, outcome, and the memory with the read's bytes if it is not the read's own.
type End = (u64, Outcome, Option<Memory>);

struct Waiter(Mutex<mpsc::Sender<End>>);

impl Completed for Waiter {
    fn completed(&self, token: u64, outcome: Outcome) {
        let end = (token, outcome, None);
        self.0.lock().unwrap().send(end).unwrap();
    }

    fn completed_elsewhere(&self, token: u64, bytes: Memory) {
        let end = (token, Ok(()), Some(bytes));
        self.0.lock().unwrap().send(end).unwrap();
    }
}

/// A pool of memory drives that can be made to hang, full of known bytes.
struct Setup {
    pool: PoolHandle,
    faults: Vec<FaultHandle>,
    to: Arc<dyn Completed>,
    ended: mpsc::Receiver<End>,
}

fn content(block: usize) -> Vec<u8> {
    vec![u8::try_from(block % 251).unwrap(); BLOCK]
}

impl Setup {
    fn new(scheme: &str, drives: usize) -> Self {
        let new = NewPool {
            name: "test".to_owned(),
            scheme: scheme.parse().unwrap(),
            chunk_bytes: Some(16 << 10),
            cell_bytes: Some(256 << 10),
            journal: true,
            drives: vec!["faulty:mem:64M?fail=eio&nth=1000000000".parse().unwrap(); drives],
            spares: Vec::new(),
            force: false,
        };
        let prepared = prepare(&new).unwrap();
        let faults = prepared.faults().into_iter().map(Option::unwrap).collect();
        let options = RunOptions {
            threads: Some(2),
            record: false,
        };
        let pool = create(prepared, options).unwrap();
        pool.create_volume(VOLUME, SIZE as u64).unwrap();
        let (sender, ended) = mpsc::channel();
        let setup = Self {
            pool,
            faults,
            to: Arc::new(Waiter(Mutex::new(sender))),
            ended,
        };
        for block in 0..SIZE / BLOCK {
            let memory = Memory::from_bytes(&content(block));
            setup.submit(RequestKind::Write, block, memory);
        }
        for _ in 0..SIZE / BLOCK {
            setup.wait().1.unwrap();
        }
        setup.submit(RequestKind::Flush, 0, Memory::empty());
        setup.wait().1.unwrap();
        // A checkpoint puts logged blocks in place after a second without requests.
        std::thread::sleep(Duration::from_millis(1500));
        setup
    }

    fn submit(&self, kind: RequestKind, block: usize, memory: Memory) {
        let request = Request {
            kind,
            offset: (block * BLOCK) as u64,
            length: memory.len() as u64,
            fua: false,
        };
        let volume = self.pool.volume(VOLUME).unwrap();
        volume.submit(request, memory, block as u64, &self.to);
    }

    fn wait(&self) -> End {
        let end = self.ended.recv_timeout(Duration::from_secs(30));
        end.expect("no client waits for ever")
    }

    fn hang(&self, seat: usize) {
        self.faults[seat].set(Trap {
            on: None,
            nth: 1,
            times: None,
            effect: Effect::Hang,
        });
    }

    /// Reads every block, all at once; returns how long the last read took.
    fn read_all(&self) -> Duration {
        let began = Instant::now();
        let mut memories: Vec<Option<Memory>> = Vec::new();
        for block in 0..SIZE / BLOCK {
            let memory = Memory::zeroed(BLOCK);
            memories.push(Some(memory.clone()));
            self.submit(RequestKind::Read, block, memory);
        }
        for _ in 0..SIZE / BLOCK {
            let (token, outcome, elsewhere) = self.wait();
            outcome.unwrap();
            let block = usize::try_from(token).unwrap();
            let own = memories[block].take().expect("answered once");
            let mut bytes = elsewhere.unwrap_or(own);
            let bytes = bytes.unique().expect("nobody else holds the bytes");
            assert!(bytes == content(block), "block {block}");
        }
        began.elapsed()
    }

    fn reason_out(&self, seat: usize) -> Option<OutReason> {
        self.pool.status().unwrap().seats[seat].reason
    }
}

/// While a drive hangs, reads are answered from other drives, long before the deadline; a write waits
/// until the drive is put out. The drive may not return while it has operations that it has not
/// answered, and its late answers do no harm.
fn holds_up_no_read_and_no_write_past_its_deadline(scheme: &str) {
    let setup = Setup::new(scheme, 5);
    setup.read_all();
    setup.hang(2);
    let took = setup.read_all();
    println!("{scheme}: all reads took {took:?}");
    assert!(took < array::DEADLINE / 2, "{scheme}: {took:?}");
    let began = Instant::now();
    for block in 0..64 {
        let memory = Memory::from_bytes(&content(block));
        setup.submit(RequestKind::Write, block, memory);
    }
    setup.submit(RequestKind::Flush, 0, Memory::empty());
    for _ in 0..65 {
        setup.wait().1.unwrap();
    }
    let took = began.elapsed();
    println!("{scheme}: writes and a flush took {took:?}");
    assert!(took < array::DEADLINE + Duration::from_secs(5), "{took:?}");
    while setup.reason_out(2).is_none() {
        assert!(began.elapsed() < array::DEADLINE * 2, "it is put out");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(setup.reason_out(2), Some(OutReason::Hung));
    setup.read_all();
    assert!(setup.faults[2].held() > 0, "it still has something");
    let back = setup.pool.insert_drive(Seat(2), None);
    assert!(matches!(back, Err(PoolError::StillBusy { .. })), "{back:?}");
    setup.faults[2].restore();
    let began = Instant::now();
    while setup.pool.insert_drive(Seat(2), None).is_err() {
        assert!(began.elapsed() < Duration::from_secs(5), "it has answered");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(setup.pool.wait_idle(Duration::from_secs(30)));
    setup.read_all();
    setup.pool.close().unwrap();
}

// Two tests, so that their waits overlap.

#[test]
fn a_drive_of_a_raid5_that_hangs_holds_up_no_read_and_no_write_past_its_deadline() {
    holds_up_no_read_and_no_write_past_its_deadline("raid5");
}

#[test]
fn a_drive_of_an_array_code_that_hangs_holds_up_no_read_and_no_write_past_its_deadline() {
    holds_up_no_read_and_no_write_past_its_deadline("raid6:dcode:5c");
}
