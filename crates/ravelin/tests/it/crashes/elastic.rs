//! An elastic pool on drives that compress: the wanted share of copies jumps, data stops compressing, and the daemon is
//! killed again and again. No flushed data is lost, no drive goes out, and the scrub is clean.

use std::time::Instant;

use super::fio::{self, Fio};
use super::stream::Stream;
use super::{MIB, REGION, Random, TIMEOUT};
use crate::support::bench::Bench;
use crate::support::writer::{self, Target, Writer};
use block::SplitMix64;

/// Physical space of a drive: enough for the whole volume as parity of data that does not compress, not as copies.
const PHYSICAL_MIB: u64 = 48;

/// Kills; 40 in the long form.
fn rounds() -> u64 {
    match std::env::var_os("RAVELIN_LONG") {
        Some(_) => 40,
        None => 3,
    }
}

#[test]
fn conversions_and_crashes_lose_nothing_that_was_flushed_and_no_drive() {
    if !fio::is_installed() {
        return;
    }
    let seed = std::env::var("RAVELIN_SEED")
        .map_or(u64::from(std::process::id()), |text| text.parse().unwrap());
    let since = Instant::now();
    let mut random = Random(SplitMix64::new(seed));
    let mut bench = Bench::new("crashes-elastic");
    let exposed = 2 * PHYSICAL_MIB;
    let files = bench.drives("d", 4, exposed * MIB).into_iter();
    let drives: Vec<String> = files
        .map(|file| format!("compress:{file}?physical={PHYSICAL_MIB}M&exposed={exposed}M"))
        .collect();
    let created = bench.create("tank", "elastic5", &drives, &[]);
    assert_eq!(created.code, 0, "{}", created.stderr);
    bench.ok(&["volume", "create", "tank/v", "--size", "32M"]);
    let export = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    let uri = export["uri"].as_str().unwrap().to_owned();
    fio::fill(&uri);
    let stream = Stream::new();
    let log = bench.path("client.log");
    let mut converted = 0;
    for round in 0..rounds() {
        println!("seed {seed}, round {round}");
        let length = REGION.end - REGION.start;
        let mut client = Writer::start(Target::Nbd(&uri), REGION.start, length, &log);
        // What fio writes does not compress.
        let fio = (round % 2 == 1).then(|| Fio::start(&uri, random.0.draw()));
        let streamed = stream.start(&uri, TIMEOUT);
        client.has_flushed(TIMEOUT);
        for _ in 0..3 {
            let share = ["0", "100", "50", "auto"][random.below(4)];
            bench.ok(&["pool", "elastic", "tank", share]);
            random.pause(150);
        }
        let status = bench.json(&["pool", "status", "tank"]);
        converted += status["elastic"]["converted_stripes"].as_u64().unwrap();
        bench.kill();
        client.kill();
        if let Some(fio) = fio {
            fio.end();
        }
        streamed.join().unwrap();
        bench.start();
        let mut client = writer::connect(&uri, TIMEOUT);
        let length = usize::try_from(length).unwrap();
        writer::verify(&client.read(REGION.start, length).unwrap(), &log);
        stream.verify(&mut client);
        client.disconnect().unwrap();
        fio::verify(&uri);
        let written = bench.log();
        assert!(!written.contains("panicked"), "{written}");
    }
    bench.ok(&["pool", "wait", "tank"]);
    let status = bench.json(&["pool", "status", "tank"]);
    let seats = status["seats"].as_array().unwrap();
    assert!(
        seats.iter().all(|seat| seat["state"] == "current"),
        "{status}"
    );
    let scrubbed = bench.json(&["pool", "scrub", "tank", "--wait"]);
    assert_eq!(scrubbed["scrub"]["bad_blocks"], 0, "{scrubbed}");
    assert_eq!(scrubbed["scrub"]["failed_groups"], 0, "{scrubbed}");
    assert!(converted > 0, "stripes were converted");
    println!(
        "{} kills, {converted} conversions, {:.0} s",
        rounds(),
        since.elapsed().as_secs_f64()
    );
}
