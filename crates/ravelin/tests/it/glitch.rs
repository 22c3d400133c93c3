//! A shelf blinks: more drives vanish than the code survives, and all come back. Each scheme, with each kind of writes
//! before, and each way to come back. `sim/tests/it/glitch.rs` has the orders and the moments.

use std::time::{Duration, Instant};

use export::nbd::Client;
use serde_json::Value;

use crate::support::bench::Bench;

const MIB: u64 = 1 << 20;
const BYTES: usize = 6 << 20;
const BLOCK: usize = 4096;

/// What is written and flushed before the drives vanish.
#[derive(Clone, Copy, Debug)]
enum Workload {
    FirstWrites,
    WholeStripes,
    SmallWrites,
    Trims,
    Mix,
}

/// How the drives come back.
#[derive(Clone, Copy, Debug)]
enum Back {
    /// Into the pool, which is still open.
    Open,
    /// The pool is closed, and opened again.
    Imported,
    /// The daemon is killed, and started again.
    Restarted,
}

const WORKLOADS: [Workload; 5] = [
    Workload::FirstWrites,
    Workload::WholeStripes,
    Workload::SmallWrites,
    Workload::Trims,
    Workload::Mix,
];

const WAYS: [Back; 3] = [Back::Open, Back::Imported, Back::Restarted];

struct Shelf {
    bench: Bench,
    drives: usize,
    /// What the volume must hold.
    content: Vec<u8>,
    salt: u8,
}

impl Shelf {
    fn new(test: &str, scheme: &str, drives: usize) -> Self {
        let bench = Bench::new(&format!("glitch-{test}"));
        let names = bench.drives("d", drives, 40 * MIB);
        let vanish = |(index, name): (usize, &String)| {
            let flag = bench.path(&format!("gone{index}"));
            format!("faulty:{name}?fail=gone&times=all&while={}", flag.display())
        };
        let faulty: Vec<String> = names.iter().enumerate().map(vanish).collect();
        // A stripe of an array code has several chunks of a cell.
        let made = bench.create("tank", scheme, &faulty, &["-o", "chunk=16K"]);
        assert_eq!(made.code, 0, "{}", made.stderr);
        Self {
            bench,
            drives,
            content: Vec::new(),
            salt: 0,
        }
    }

    fn served(&self) -> Client {
        self.bench.run(&["volume", "detach", "tank/v"]);
        let attach = ["volume", "attach", "tank/v", "--nbd", "unix:nbd"];
        let export = self.bench.json(&attach);
        let uri = export["uri"].as_str().unwrap().parse().unwrap();
        let mut client = Client::connect(&uri, None).unwrap();
        client.set_timeout(Some(Duration::from_secs(60)));
        client
    }

    fn write(&mut self, client: &mut Client, at: usize, length: usize) {
        self.salt = self.salt.wrapping_add(1);
        for (index, byte) in self.content[at..at + length].iter_mut().enumerate() {
            *byte = self.salt ^ u8::try_from(index / BLOCK % 251 + 1).unwrap();
        }
        client
            .write(at as u64, &self.content[at..at + length], false)
            .unwrap();
    }

    fn write_blocks(&mut self, client: &mut Client) {
        for number in 0..40 {
            self.write(client, number * 37 % (BYTES / BLOCK) * BLOCK, BLOCK);
        }
    }

    fn trim(&mut self, client: &mut Client, at: usize, length: usize) {
        let trimmed = u32::try_from(length).unwrap();
        client.trim(at as u64, trimmed).unwrap();
        self.content[at..at + length].fill(0);
    }

    fn load(&mut self, client: &mut Client, workload: Workload) {
        self.content = vec![0; BYTES];
        if !matches!(workload, Workload::FirstWrites) {
            self.write(client, 0, BYTES);
            client.flush().unwrap();
        }
        match workload {
            Workload::FirstWrites | Workload::WholeStripes => self.write(client, 0, BYTES),
            Workload::SmallWrites => self.write_blocks(client),
            Workload::Trims => {
                self.trim(client, 0, BYTES / 2);
                self.write(client, BYTES / 4, BLOCK);
            }
            Workload::Mix => {
                self.write(client, 0, BYTES / 2);
                self.trim(client, BYTES / 4, BYTES / 2);
                self.write_blocks(client);
            }
        }
        client.flush().unwrap();
    }

    /// All drives vanish, one after the other from this one on.
    fn vanish(&self, client: &mut Client, first: usize) {
        for step in 0..self.drives {
            let seat = (first + step) % self.drives;
            std::fs::write(self.bench.path(&format!("gone{seat}")), "").unwrap();
            let at = step * BLOCK * 7;
            // What can still be read is right.
            if let Ok(found) = client.read(at as u64, BLOCK) {
                assert!(found == self.content[at..at + BLOCK], "block at {at}");
            }
        }
        client.write(0, &self.content[..BLOCK], true).ok();
    }

    fn come_back(&mut self, client: Client, back: Back) -> Client {
        let bench = &mut self.bench;
        match back {
            Back::Open => {}
            Back::Imported => {
                bench.run(&["pool", "export", "--force", "tank"]);
            }
            Back::Restarted => bench.kill(),
        }
        for seat in 0..self.drives {
            std::fs::remove_file(bench.path(&format!("gone{seat}"))).unwrap();
        }
        match back {
            Back::Open => return client,
            Back::Imported => {
                bench.ok(&["pool", "import", "--dir", ".", "tank"]);
            }
            Back::Restarted => bench.start(),
        }
        self.served()
    }

    fn check(&self, client: &mut Client, when: &str) {
        let found = client.read(0, BYTES).unwrap();
        let wrong = |&at: &usize| found[at..at + BLOCK] != self.content[at..at + BLOCK];
        let wrong = (0..BYTES).step_by(BLOCK).filter(wrong).count();
        assert_eq!(
            wrong,
            0,
            "{when}: blocks of {} that are wrong",
            BYTES / BLOCK
        );
    }

    /// Drives that went out before the last ones are brought back by name.
    fn is_healthy_again(&self, when: &str) {
        let status: Value = self.bench.json(&["pool", "status", "tank"]);
        for seat in status["seats"].as_array().unwrap() {
            if seat["state"] == "out" {
                let number = seat["seat"].to_string();
                self.bench.ok(&["drive", "online", "tank", &number]);
            }
        }
        self.bench.ok(&["pool", "wait", "tank"]);
        let scrub = self.bench.run(&["pool", "scrub", "tank", "--wait"]);
        assert_eq!(scrub.code, 0, "{when}: {}", scrub.stdout);
        // A cell that could not be filled because a drive had just refused something is tried again within seconds.
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let check = self.bench.run(&["pool", "status", "--check"]);
            if check.code == 0 {
                return;
            }
            let events = || self.bench.run(&["pool", "events", "tank"]).stdout;
            let late = Instant::now() > deadline;
            assert!(!late, "{when}: {}{}", check.stdout, events());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn blinks(&mut self, workload: Workload, back: Back, first: usize) {
        let when = format!("{workload:?}, {back:?}");
        self.bench
            .ok(&["volume", "create", "tank/v", "--size", "6M"]);
        let mut client = self.served();
        self.load(&mut client, workload);
        self.vanish(&mut client, first);
        let mut client = self.come_back(client, back);
        self.check(&mut client, &when);
        self.is_healthy_again(&when);
        self.check(&mut client, &when);
        client.disconnect().unwrap();
        self.bench.ok(&["volume", "detach", "tank/v"]);
        self.bench.ok(&["volume", "delete", "tank/v", "--yes"]);
    }
}

fn every_workload(test: &str, scheme: &str, drives: usize, way: usize) {
    let mut shelf = Shelf::new(test, scheme, drives);
    for (index, workload) in WORKLOADS.into_iter().enumerate() {
        shelf.blinks(workload, WAYS[(way + index) % WAYS.len()], index);
    }
}

#[test]
fn a_raid5_has_all_that_was_flushed() {
    every_workload("raid5", "raid5", 3, 0);
}

#[test]
fn a_raid6_has_all_that_was_flushed() {
    every_workload("raid6", "raid6", 5, 1);
}

#[test]
fn a_mirror_has_all_that_was_flushed() {
    every_workload("raid1", "raid1", 2, 2);
}

#[test]
fn a_raid10_has_all_that_was_flushed() {
    every_workload("raid10", "raid10", 4, 0);
}

#[test]
fn a_declustered_pool_has_all_that_was_flushed() {
    every_workload("pddl2", "pddl2:2d:7c:1s", 7, 1);
}

#[test]
fn a_dynamic_pool_has_all_that_was_flushed() {
    every_workload("ddp", "ddp:2d:8c", 8, 2);
}

#[test]
fn a_dcode_pool_has_all_that_was_flushed() {
    every_workload("dcode", "raid6:dcode", 5, 0);
}
