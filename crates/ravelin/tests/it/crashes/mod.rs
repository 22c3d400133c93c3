//! The daemon is killed repeatedly while clients write over NBD and drives leave and return. No flushed data is lost,
//! no block holds data that was never written to it, and the final scrub finds nothing to repair.
//!
//! A round: three clients write, while commands fail drives, take them offline, replace them and bring them back. Then
//! comes `kill -9`, often during such a command. While no daemon runs, drives are taken away, within what the code
//! survives, and others return. The next daemon opens the remaining drives, and everything is read and compared.
//!
//! The first client is ours and logs what it has flushed. The second is fio, which keeps many writes in flight; each of
//! its blocks holds its own place and checksums. The third streams; all its acknowledged writes must be there, flushed
//! or not.
//!
//! `RAVELIN_CRASHES=n` runs n rounds on each pool, `RAVELIN_LONG` a hundred; the default is three. A failure prints its
//! seed; `RAVELIN_SEED` sets the seed.

mod elastic;
mod fio;
mod stream;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::support::bench::Bench;
use crate::support::writer::{self, Target, Writer};
use block::SplitMix64;
use fio::Fio;
use stream::Stream;

const MIB: u64 = 1 << 20;
const DRIVE_BYTES: u64 = 96 * MIB;
/// The range that our client writes to.
const REGION: std::ops::Range<u64> = 0..2 * MIB;
/// Longer than any operation takes here.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What a trial draws, which depends only on the seed.
struct Random(SplitMix64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.below(bound as u64)).unwrap()
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pause(&mut self, milliseconds: usize) {
        let pause = self.below(milliseconds) as u64;
        std::thread::sleep(Duration::from_millis(pause));
    }
}

/// A seat as the daemon reports it.
#[derive(Clone, Debug)]
struct Seat {
    number: usize,
    path: PathBuf,
    state: String,
}

struct Trial {
    bench: Bench,
    random: Random,
    uri: String,
    stream: Stream,
    /// How many drives may be missing.
    survives: usize,
    /// Drives that are away, by the path where they belong.
    away: BTreeSet<PathBuf>,
    /// Seats that a command may have taken out when the daemon was killed.
    unsure: BTreeSet<usize>,
    replacements: usize,
    taken_away: usize,
    commands: usize,
}

impl Trial {
    fn new(name: &str, scheme: &str, drives: usize, survives: usize, seed: u64) -> Self {
        let bench = Bench::new(name);
        let drives = bench.drives("d", drives, DRIVE_BYTES);
        let created = bench.create("tank", scheme, &drives, &[]);
        assert_eq!(created.code, 0, "{}", created.stderr);
        bench.ok(&["volume", "create", "tank/v", "--size", "32M"]);
        let export = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
        let uri = export["uri"].as_str().unwrap().to_owned();
        fio::fill(&uri);
        Self {
            bench,
            random: Random(SplitMix64::new(seed)),
            uri,
            stream: Stream::new(),
            survives,
            away: BTreeSet::new(),
            unsure: BTreeSet::new(),
            replacements: 0,
            taken_away: 0,
            commands: 0,
        }
    }

    fn log(&self) -> PathBuf {
        self.bench.path("client.log")
    }

    fn seats(&self) -> Vec<Seat> {
        let status = self.bench.json(&["pool", "status", "tank"]);
        let seats = status["seats"].as_array().unwrap().iter().enumerate();
        seats
            .map(|(number, seat)| Seat {
                number,
                path: PathBuf::from(seat["path"].as_str().unwrap().trim_start_matches("file:")),
                state: seat["state"].as_str().unwrap().to_owned(),
            })
            .collect()
    }

    /// A command that changes one drive, within what the code survives.
    fn command(&mut self, seats: &[Seat]) -> Option<(usize, Vec<String>)> {
        let lacking: Vec<&Seat> = { seats.iter() }
            .filter(|seat| seat.state != "current")
            .collect();
        let out: Vec<&Seat> = { lacking.iter().copied() }
            .filter(|seat| seat.state == "out")
            .collect();
        let words = |verb: &str, seat: usize| {
            ["drive", verb, "tank", &seat.to_string()]
                .map(str::to_owned)
                .to_vec()
        };
        if !out.is_empty() && self.random.chance(60) {
            let seat = out[self.random.below(out.len())];
            if self.random.chance(50) {
                self.bring_file_back(&seat.path);
                return Some((seat.number, words("online", seat.number)));
            }
            let mut words = words("replace", seat.number);
            words.push(self.new_drive());
            return Some((seat.number, words));
        }
        if lacking.len() < self.survives {
            let seat = self.random.below(seats.len());
            if seats[seat].state == "current" {
                let verb = ["fail", "offline"][self.random.below(2)];
                return Some((seat, words(verb, seat)));
            }
        }
        None
    }

    /// Runs a command that must succeed. If a crash cut off a replacement before the drive had a label, `online` of
    /// this drive fails with that message, and a new drive takes the seat.
    fn succeeds(&mut self, words: &[&str]) {
        let ran = self.bench.run(words);
        if ran.code != 0 && ran.stderr.contains("no longer holds a label of this pool") {
            assert_eq!(words[1], "online", "{}", ran.stderr);
            let new = self.new_drive();
            self.bench.ok(&["drive", "replace", "tank", words[3], &new]);
        } else {
            assert_eq!(ran.code, 0, "{words:?}: {}", ran.stderr);
        }
    }

    fn new_drive(&mut self) -> String {
        self.replacements += 1;
        let new = format!("n{}-", self.replacements);
        self.bench.drives(&new, 1, DRIVE_BYTES).remove(0)
    }

    fn bring_file_back(&mut self, path: &PathBuf) {
        if self.away.remove(path) {
            std::fs::rename(path.with_extension("away"), path).unwrap();
        }
    }

    /// Clients write, commands change drives, and the daemon is killed.
    fn load_and_kill(&mut self) {
        let mut writer = Writer::start(
            Target::Nbd(&self.uri),
            REGION.start,
            REGION.end - REGION.start,
            &self.log(),
        );
        let fio = Fio::start(&self.uri, self.random.0.draw());
        let stream = self.stream.start(&self.uri, TIMEOUT);
        writer.has_flushed(TIMEOUT);
        self.random.pause(100);
        for _ in 0..self.random.below(3) {
            let seats = self.seats();
            if let Some((_, words)) = self.command(&seats) {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                self.succeeds(&words);
                self.commands += 1;
                println!("  {}", words.join(" "));
            }
            self.random.pause(60);
        }
        let seats = self.seats();
        self.unsure = { seats.iter() }
            .filter(|seat| seat.state != "current")
            .map(|seat| seat.number)
            .collect();
        // The kill may interrupt the last command.
        let mut cut: Option<Child> = None;
        if self.random.chance(50)
            && let Some((seat, words)) = self.command(&seats)
        {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            println!("  {}, cut", words.join(" "));
            cut = Some(self.bench.begin(&words));
            self.commands += 1;
            self.unsure.insert(seat);
            self.random.pause(15);
        } else {
            self.random.pause(50);
        }
        self.bench.kill();
        if let Some(mut cut) = cut {
            cut.wait().unwrap();
        }
        writer.kill();
        fio.end();
        stream.join().unwrap();
        self.change_while_dead(&seats);
    }

    /// Drives leave and return while no daemon runs.
    fn change_while_dead(&mut self, seats: &[Seat]) {
        for path in self.away.clone() {
            if self.random.chance(50) {
                println!("  {} comes back", path.display());
                self.bring_file_back(&path);
            }
        }
        let mut spare = self.survives - self.unsure.len().min(self.survives);
        while spare > 0 && self.random.chance(40) {
            spare -= 1;
            let seat = &seats[self.random.below(seats.len())];
            if !self.unsure.contains(&seat.number) && self.away.insert(seat.path.clone()) {
                println!("  {} is taken away", seat.path.display());
                std::fs::rename(&seat.path, seat.path.with_extension("away")).unwrap();
                self.taken_away += 1;
            }
        }
    }

    /// Everything that clients have written is as it must be.
    fn verify(&self) {
        let mut client = writer::connect(&self.uri, TIMEOUT);
        let length = usize::try_from(REGION.end - REGION.start).unwrap();
        let bytes = client.read(REGION.start, length).unwrap();
        writer::verify(&bytes, &self.log());
        self.stream.verify(&mut client);
        client.disconnect().unwrap();
        fio::verify(&self.uri);
    }

    /// All drives are brought back, and the scrub finds nothing.
    fn quiesce_and_scrub(&mut self) {
        for path in self.away.clone() {
            self.bring_file_back(&path);
        }
        for seat in self.seats() {
            if seat.state == "out" {
                let number = seat.number.to_string();
                self.succeeds(&["drive", "online", "tank", &number]);
            }
        }
        self.bench.ok(&["pool", "wait", "tank"]);
        let seats = self.seats();
        let whole = seats.iter().all(|seat| seat.state == "current");
        assert!(whole, "{seats:?}");
        let scrubbed = self.bench.json(&["pool", "scrub", "tank", "--wait"]);
        let scrub = &scrubbed["scrub"];
        assert_eq!(scrub["running"], false, "{scrubbed}");
        assert_eq!(scrub["bad_blocks"], 0, "{scrubbed}");
        assert_eq!(scrub["failed_groups"], 0, "{scrubbed}");
        assert!(scrub["read_bytes"].as_u64().unwrap() > 6 * MIB);
        self.verify();
    }
}

fn rounds() -> usize {
    let set = std::env::var("RAVELIN_CRASHES").ok();
    let long = std::env::var_os("RAVELIN_LONG").is_some();
    set.map_or(if long { 100 } else { 3 }, |text| text.parse().unwrap())
}

fn kill_rounds(name: &str, scheme: &str, drives: usize, survives: usize) {
    if !fio::is_installed() {
        return;
    }
    let seed = std::env::var("RAVELIN_SEED")
        .map_or(u64::from(std::process::id()), |text| text.parse().unwrap());
    let since = Instant::now();
    let mut trial = Trial::new(name, scheme, drives, survives, seed);
    for round in 0..rounds() {
        println!("{scheme} seed {seed}, round {round}");
        trial.load_and_kill();
        // The missing drives were taken away by the test; waiting for them would only take time.
        trial.bench.start_with(&["--wait-drives", "0"]);
        trial.verify();
        let log = trial.bench.log();
        assert!(!log.contains("panicked"), "{log}");
    }
    trial.quiesce_and_scrub();
    println!(
        "{scheme}: {} kills, {} commands, {} drives taken away, {} MiB streamed, {:.0} s",
        rounds(),
        trial.commands,
        trial.taken_away,
        trial.stream.acknowledged(),
        since.elapsed().as_secs_f64()
    );
}

#[test]
fn crashes_lose_nothing_that_was_flushed_on_raid6() {
    kill_rounds("crashes-raid6", "raid6", 6, 2);
}

#[test]
fn crashes_lose_nothing_that_was_flushed_on_raid5() {
    kill_rounds("crashes-raid5", "raid5", 5, 1);
}

#[test]
fn crashes_lose_nothing_that_was_flushed_on_a_mirror() {
    kill_rounds("crashes-raid1", "raid1:3r", 3, 1);
}

#[test]
fn crashes_lose_nothing_that_was_flushed_with_distributed_spares() {
    kill_rounds("crashes-pddl2", "pddl2:2d:7c:1s", 7, 2);
}
