//! A volume, its expected content, and streams of writes to it and reads of it; long tests in parts.

use std::collections::VecDeque;

use block::{Request, RequestKind};
use rand::Rng;
use sim::{Drive, Oracle, World, WorldOptions};

const VOLUME: &str = "v";

/// A pool with one volume.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) world: World,
    pub(crate) oracle: Oracle,
    pub(crate) size: u64,
}

impl Bench {
    /// A pool with a volume of `groups` groups.
    pub(crate) fn of(options: &WorldOptions, groups: u64) -> Self {
        let mut world = World::create(options);
        let size = groups * world.pool().geometry().group_data_bytes();
        world.create_volume(VOLUME, size).unwrap();
        world.settle();
        Self {
            world,
            oracle: Oracle::new(size),
            size,
        }
    }

    pub(crate) fn stripe_bytes(&self) -> u64 {
        self.world.pool().geometry().stripe_data_bytes()
    }

    fn noise(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.size).unwrap()];
        self.world.rng().fill_bytes(&mut bytes);
        bytes
    }

    /// Writes the whole volume with one request.
    pub(crate) fn write_all(&mut self) {
        let bytes = self.noise();
        self.write(0, &bytes);
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.world.write(VOLUME, offset, bytes).unwrap();
        self.oracle.wrote(offset, bytes);
    }

    /// Writes the whole volume in requests of `length` bytes, `depth` at a time.
    pub(crate) fn write_in_parts(&mut self, length: u64, depth: usize) {
        let bytes = self.noise();
        let mut in_flight = VecDeque::new();
        for (index, part) in bytes.chunks(usize::try_from(length).unwrap()).enumerate() {
            let request = Request {
                kind: RequestKind::Write,
                offset: index as u64 * length,
                length: part.len() as u64,
                fua: false,
            };
            in_flight.push_back(self.world.submit(VOLUME, request, part));
            if in_flight.len() == depth {
                self.await_first(&mut in_flight);
            }
        }
        while !in_flight.is_empty() {
            self.await_first(&mut in_flight);
        }
        self.oracle.wrote(0, &bytes);
    }

    /// Submits reads of the whole volume in requests of `length` bytes, all at once; calls `happens`; then checks that
    /// each read returns the written data.
    pub(crate) fn read_in_parts(&mut self, length: u64, happens: impl FnOnce(&mut World)) {
        let read = |offset| Request {
            kind: RequestKind::Read,
            offset,
            length,
            fua: false,
        };
        let asked: Vec<(u64, u64)> = (0..self.size / length)
            .map(|number| number * length)
            .map(|offset| (offset, self.world.submit(VOLUME, read(offset), &[])))
            .collect();
        happens(&mut self.world);
        for (offset, id) in asked {
            let bytes = self.await_end(id);
            self.oracle.check(offset, &bytes, "a read in parts");
        }
    }

    fn await_first(&mut self, in_flight: &mut VecDeque<u64>) {
        let id = in_flight.pop_front().unwrap();
        self.await_end(id);
    }

    fn await_end(&mut self, id: u64) -> Vec<u8> {
        loop {
            if let Some(outcome) = self.world.ended(id) {
                return outcome.unwrap();
            }
            assert!(self.world.step(), "every request ends");
        }
    }

    pub(crate) fn trim(&mut self, offset: u64, length: u64) {
        self.request(RequestKind::Trim, offset, length);
        let zeros = vec![0; usize::try_from(length).unwrap()];
        self.oracle.wrote(offset, &zeros);
    }

    pub(crate) fn flush(&mut self) {
        self.request(RequestKind::Flush, 0, 0);
    }

    fn request(&mut self, kind: RequestKind, offset: u64, length: u64) {
        let request = Request {
            kind,
            offset,
            length,
            fua: false,
        };
        self.world.request(VOLUME, request, &[]).unwrap();
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        self.world.drives().iter().map(Drive::written_bytes).sum()
    }

    /// Checks all bytes, read from the pool as it is.
    pub(crate) fn check_here(&mut self, when: &str) {
        let read = self.world.read(VOLUME, 0, self.size).unwrap();
        self.oracle.check(0, &read, when);
    }

    /// Checks all bytes of the pool that is on these drives.
    pub(crate) fn check(&self, drives: Vec<Drive>, when: &str) {
        let mut world = World::open(drives, true, 1).unwrap();
        world.settle();
        let read = world.read(VOLUME, 0, self.size).unwrap();
        self.oracle.check(0, &read, when);
    }
}
