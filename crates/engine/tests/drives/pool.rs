//! A pool on real threads and memory drives, in real time.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use array::pool::{OutReason, PoolError};
use block::{BlockDevice, Completed, Memory, Outcome, Request, RequestKind, Seat, SplitMix64};
use engine::assemble::{NewPool, create, prepare};
use engine::drive::{Drive, DriveUri, Open, open, sync};
use engine::{PoolHandle, RunOptions, Volume};

const VOLUME: &str = "v";

fn new_pool(scheme: &str, drives: u16, size: &str) -> NewPool {
    let uri: DriveUri = format!("mem:{size}").parse().unwrap();
    NewPool {
        name: "test".to_owned(),
        scheme: scheme.parse().unwrap(),
        chunk_bytes: Some(16 << 10),
        cell_bytes: Some(256 << 10),
        journal: true,
        drives: vec![uri; usize::from(drives)],
        spares: Vec::new(),
        force: false,
    }
}

fn start(scheme: &str, drives: u16, record: bool) -> PoolHandle {
    let options = RunOptions {
        threads: Some(2),
        record,
    };
    create(prepare(&new_pool(scheme, drives, "64M")).unwrap(), options).unwrap()
}

fn memory_drive() -> Drive {
    let uri: DriveUri = "mem:64M".parse().unwrap();
    open(&uri, Open::default()).unwrap()
}

struct Waiter(Mutex<mpsc::Sender<(u64, Outcome)>>);

impl Completed for Waiter {
    fn completed(&self, token: u64, outcome: Outcome) {
        self.0.lock().unwrap().send((token, outcome)).unwrap();
    }
}

/// A client with many requests in flight.
struct Client {
    volume: Arc<Volume>,
    to: Arc<dyn Completed>,
    ended: mpsc::Receiver<(u64, Outcome)>,
}

impl Client {
    fn new(volume: Arc<Volume>) -> Self {
        let (sender, ended) = mpsc::channel();
        Self {
            volume,
            to: Arc::new(Waiter(Mutex::new(sender))),
            ended,
        }
    }

    fn submit(&self, token: u64, kind: RequestKind, offset: u64, memory: Memory, length: u64) {
        let request = Request {
            kind,
            offset,
            length,
            fua: false,
        };
        self.volume.submit(request, memory, token, &self.to);
    }

    fn wait(&self) -> (u64, Outcome) {
        self.ended
            .recv_timeout(Duration::from_secs(60))
            .expect("no hang")
    }

    fn write_all(&self, bytes: &[u8], piece: usize) {
        let mut in_flight = 0;
        for (index, part) in bytes.chunks(piece).enumerate() {
            let offset = (index * piece) as u64;
            let memory = Memory::from_bytes(part);
            self.submit(0, RequestKind::Write, offset, memory, part.len() as u64);
            in_flight += 1;
            if in_flight >= 32 {
                self.wait().1.unwrap();
                in_flight -= 1;
            }
        }
        for _ in 0..in_flight {
            self.wait().1.unwrap();
        }
    }

    fn read_all(&self, size: usize, piece: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size);
        for offset in (0..size).step_by(piece) {
            let length = piece.min(size - offset);
            bytes.extend(sync::read(&*self.volume, offset as u64, length).unwrap());
        }
        bytes
    }

    fn flush(&self) {
        self.submit(0, RequestKind::Flush, 0, Memory::empty(), 0);
        self.wait().1.unwrap();
    }
}

/// Before, such a pool could not even be created: an empty ring counted as a quarter full, and the lane
/// panicked over a checkpoint for which there was no journal.
#[test]
fn a_pool_without_a_journal_serves_and_survives_a_drive() {
    let new = NewPool {
        journal: false,
        ..new_pool("raid5", 4, "64M")
    };
    let options = RunOptions {
        threads: Some(2),
        record: false,
    };
    let pool = create(prepare(&new).unwrap(), options).unwrap();
    let size = 4 << 20;
    pool.create_volume(VOLUME, size as u64).unwrap();
    let client = Client::new(pool.volume(VOLUME).unwrap());
    let bytes = SplitMix64::new(7).bytes(size);
    client.write_all(&bytes, 100 << 10);
    client.flush();
    pool.fail_drive(Seat(1), OutReason::FailedByAdministrator, false)
        .unwrap();
    assert!(client.read_all(size, 1 << 20) == bytes);
    pool.close().unwrap();
}

#[test]
fn a_pool_of_pieces_grows_while_a_client_writes() {
    let pool = start("ddp:2d:1p", 4, false);
    let size = 24 << 20;
    pool.create_volume(VOLUME, size as u64).unwrap();
    let client = Client::new(pool.volume(VOLUME).unwrap());
    let mut bytes = SplitMix64::new(7).bytes(size);
    client.write_all(&bytes, 1 << 20);
    client.flush();
    let before = pool.status().unwrap();
    pool.add_spare(memory_drive()).unwrap();
    // A spare by its number, and a fresh drive.
    pool.expand(vec![memory_drive()], vec![Seat(4)]).unwrap();
    for value in 0..20_u8 {
        let at = 300_000 * usize::from(value);
        bytes[at..][..200_000].fill(value);
        client.write_all(&bytes[..8 << 20], 12_345);
    }
    assert!(pool.wait_idle(Duration::from_secs(60)));
    let status = pool.status().unwrap();
    assert_eq!(status.seats.len(), 6);
    assert!(
        status.seats.iter().all(|seat| seat.state == "current"),
        "{status:?}"
    );
    assert!(
        status.capacity_bytes * 10 >= before.capacity_bytes * 14,
        "{status:?}"
    );
    assert!(client.read_all(size, 1 << 20) == bytes);
    pool.fail_drive(Seat(5), OutReason::FailedByAdministrator, false)
        .unwrap();
    assert!(client.read_all(size, 777_777) == bytes);
    assert!(matches!(
        pool.expand(vec![memory_drive()], Vec::new()),
        Err(PoolError::Grow { .. })
    ));
    pool.close().unwrap();
}

#[test]
fn bytes_survive_as_many_failures_as_the_code_does() {
    for (scheme, drives) in [("raid6", 6), ("pddl2:4d:13c:1s", 13), ("raid5", 4)] {
        let pool = start(scheme, drives, false);
        let size = 24 << 20;
        pool.create_volume(VOLUME, size as u64).unwrap();
        let client = Client::new(pool.volume(VOLUME).unwrap());
        let mut bytes = SplitMix64::new(7).bytes(size);
        client.write_all(&bytes, 1 << 20);
        client.flush();
        let failures = if scheme == "raid5" { 1 } else { 2 };
        for seat in 0..failures {
            pool.fail_drive(Seat(seat), OutReason::FailedByAdministrator, false)
                .unwrap();
            bytes[100_000..200_000].fill(seat.to_le_bytes()[0]);
            client.write_all(&bytes[..1 << 20], 12_345);
            assert!(
                client.read_all(size, 1 << 20) == bytes,
                "{scheme}: {seat} out"
            );
            assert!(pool.wait_idle(Duration::from_secs(60)));
        }
        for seat in 0..failures {
            pool.insert_drive(Seat(seat), None).unwrap();
            assert!(pool.wait_idle(Duration::from_secs(60)));
            assert!(
                client.read_all(size, 777_777) == bytes,
                "{scheme}: {seat} back"
            );
        }
        let status = pool.status().unwrap();
        assert!(
            status.seats.iter().all(|seat| seat.state == "current"),
            "{status:?}"
        );
        pool.close().unwrap();
    }
}

#[test]
fn what_the_engine_did_is_what_a_fresh_array_and_the_simulator_do() {
    let pool = start("pddl2:4d:13c:1s", 13, true);
    let geometry = Arc::clone(pool.geometry());
    let size = 6 << 20;
    pool.create_volume(VOLUME, size as u64).unwrap();
    let client = Client::new(pool.volume(VOLUME).unwrap());
    let bytes = SplitMix64::new(7).bytes(size);
    client.write_all(&bytes, 100_000);
    pool.fail_drive(Seat(3), OutReason::FailedByAdministrator, false)
        .unwrap();
    client.write_all(&bytes, 9_999);
    assert!(client.read_all(size, 123_456) == bytes);
    pool.fail_drive(Seat(8), OutReason::FailedByAdministrator, false)
        .unwrap();
    assert!(client.read_all(size, 1 << 20) == bytes);
    assert!(pool.wait_idle(Duration::from_secs(60)));
    client.flush();
    let records: Vec<_> = (0..geometry.lanes())
        .map(|lane| pool.take_records(lane))
        .collect();
    pool.close().unwrap();

    let mut inputs = 0;
    for (lane, records) in (0..).zip(&records) {
        inputs += records.len();
        sim::replay(Arc::clone(&geometry), lane, records)
            .unwrap_or_else(|(step, got)| panic!("lane {lane} step {step}: {got:?}"));
        // The same in the simulator, with its own drives, arithmetic and memory. Lanes share no block,
        // so each lane can have its own drives.
        let mut drives = (0..13)
            .map(|seat| (Seat(seat), sim::Drive::new(64 << 20, sim::Pace::Null)))
            .collect();
        sim::replay_on_drives(Arc::clone(&geometry), lane, records, &mut drives)
            .unwrap_or_else(|step| panic!("lane {lane} step {step} differs in the simulator"));
    }
    assert!(inputs > 5_000, "only {inputs} inputs were recorded");
}

#[test]
fn a_request_outside_the_volume_is_refused_and_an_empty_one_answered() {
    let pool = start("raid0", 2, false);
    pool.create_volume(VOLUME, 1 << 20).unwrap();
    let client = Client::new(pool.volume(VOLUME).unwrap());
    client.submit(1, RequestKind::Read, 1 << 20, Memory::zeroed(1), 1);
    assert_eq!(client.wait(), (1, Err(block::Fault::Invalid)));
    client.submit(2, RequestKind::Write, u64::MAX, Memory::zeroed(4096), 4096);
    assert_eq!(client.wait(), (2, Err(block::Fault::Invalid)));
    client.submit(3, RequestKind::Read, 0, Memory::empty(), 0);
    assert_eq!(client.wait(), (3, Ok(())));
    pool.delete_volume(VOLUME).unwrap();
    client.submit(4, RequestKind::Read, 0, Memory::zeroed(1), 1);
    assert!(client.wait().1.is_err());
    pool.close().unwrap();
}
