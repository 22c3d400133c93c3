use std::time::Duration;

use super::*;
use crate::model::{Server, ServerOptions};

fn lone(per_operation_ns: u64) -> Lone {
    let capacity_bytes = 1 << 30;
    Lone {
        model: Box::new(Server::new(ServerOptions {
            capacity_bytes,
            bytes_per_second: 0,
            per_operation_ns,
            latency_ns: 0,
        })),
        capacity_bytes,
    }
}

fn requests(options: &LoadOptions, count: usize) -> Vec<Request> {
    let mut load = Load::new(options, 1 << 30, 5).unwrap();
    let clients = load.clients().map_or(1, |(clients, _)| clients);
    (0..clients)
        .cycle()
        .take(count)
        .map(|client| load.request(client).unwrap())
        .collect()
}

#[test]
fn a_closed_load_keeps_its_clients_in_flight() {
    let options = LoadOptions::default();
    let mut target = lone(1_000);
    let mut run = Run::new(
        Load::new(&options, 1 << 30, 1).unwrap(),
        Some(Duration::from_micros(100)),
    );
    run.until(&mut target, Instant(1_000_000));
    assert_eq!(run.numbers().reads(), 1000, "the server is never idle");
    // The first round waits for those before it, then each for the other fifteen.
    assert_eq!(
        run.numbers().read_latency().greatest(),
        16_007,
        "16 µs, to three digits"
    );
    assert_eq!(run.numbers().series().len(), 10);
    assert!(
        run.numbers()
            .series()
            .iter()
            .skip(1)
            .all(|interval| interval.reads == 100)
    );
    run.stop();
    run.requests(&mut target, u64::MAX);
    assert_eq!(run.numbers().reads(), 1016, "those in flight, and no more");
}

#[test]
fn a_client_that_thinks_leaves_the_server_idle() {
    let options = LoadOptions {
        arrivals: Arrivals::Closed {
            clients: 1,
            think_ns: 9_000,
        },
        ..LoadOptions::default()
    };
    let mut target = lone(1_000);
    let mut run = Run::new(Load::new(&options, 1 << 30, 1).unwrap(), None);
    run.until(&mut target, Instant(1_000_000));
    assert_eq!(run.numbers().reads(), 100);
}

#[test]
fn open_loads_come_at_their_rate() {
    for (arrivals, spread) in [
        (
            Arrivals::Regular {
                per_second: 10_000.0,
            },
            1,
        ),
        (
            Arrivals::Poisson {
                per_second: 10_000.0,
            },
            500,
        ),
    ] {
        let options = LoadOptions {
            arrivals,
            ..LoadOptions::default()
        };
        let mut target = lone(10);
        let mut run = Run::new(Load::new(&options, 1 << 30, 1).unwrap(), None);
        run.until(&mut target, Instant(1_000_000_000));
        let found = run.numbers().requests();
        assert!(found.abs_diff(10_000) <= spread, "{found}");
    }
}

#[test]
fn mixes_and_sizes_come_in_their_shares() {
    let options = LoadOptions {
        read_percent: 70,
        sizes: vec![(4096, 3), (65536, 1)],
        ..LoadOptions::default()
    };
    let all = requests(&options, 10_000);
    let reads = all
        .iter()
        .filter(|request| request.kind == RequestKind::Read);
    assert!(reads.count().abs_diff(7_000) < 250);
    let long = all.iter().filter(|request| request.length == 65536);
    assert!(long.count().abs_diff(2_500) < 250);
    assert!(
        all.iter().all(|request| request.offset.is_multiple_of(4096)
            && request.offset + request.length <= 1 << 30)
    );
}

#[test]
fn streams_go_through_their_parts() {
    let all = requests(&LoadOptions::ior(1 << 20, true, false), 16 * 70);
    let part = (1 << 30) / 16;
    for (index, request) in (0..).zip(&all) {
        let (stream, step) = (index % 16, index / 16);
        assert_eq!(request.offset, stream * part + step % 64 * (1 << 20));
    }
}

#[test]
fn hot_places_get_their_share() {
    let options = LoadOptions {
        access: Access::Hot {
            accesses_percent: 80,
            space_percent: 20,
        },
        region: Some((1 << 29, 1 << 29)),
        ..LoadOptions::default()
    };
    let all = requests(&options, 10_000);
    assert!(all.iter().all(|request| request.offset >= 1 << 29));
    let end = (1 << 29) + (1 << 29) / 5;
    let hot = all.iter().filter(|request| request.offset < end).count();
    assert!(hot.abs_diff(8_000) < 250, "{hot}");
}

#[test]
fn records_come_when_they_say_and_replays_when_there_is_room() {
    let record = |at_ns, offset| Record {
        at_ns,
        kind: RequestKind::Write,
        offset,
        length: 4096,
    };
    let records = vec![record(500, 0), record(2_500, 1 << 40), record(2_500, 8192)];
    let options = |arrivals| LoadOptions {
        arrivals,
        ..LoadOptions::default()
    };
    let mut target = lone(1_000);
    let recorded = options(Arrivals::Recorded(records.clone()));
    let mut run = Run::new(Load::new(&recorded, 1 << 30, 1).unwrap(), None);
    run.requests(&mut target, u64::MAX);
    assert_eq!((run.numbers().writes(), run.now()), (3, Instant(4_000)));
    let replayed = options(Arrivals::Replayed {
        records,
        clients: 2,
    });
    let mut target = lone(1_000);
    let mut run = Run::new(Load::new(&replayed, 1 << 30, 1).unwrap(), None);
    run.requests(&mut target, u64::MAX);
    assert_eq!((run.numbers().writes(), run.now()), (3, Instant(3_000)));
}

#[test]
fn wrong_loads_are_told_in_a_sentence() {
    let said = |change: fn(&mut LoadOptions)| {
        let mut options = LoadOptions::default();
        change(&mut options);
        Load::new(&options, 1 << 20, 1).unwrap_err().to_string()
    };
    for (said, part) in [
        (said(|load| load.sizes = vec![(100, 1)]), "whole sectors"),
        (said(|load| load.sizes = vec![(1 << 21, 1)]), "do not fit"),
        (said(|load| load.sizes.clear()), "more than 0"),
        (said(|load| load.read_percent = 101), "more than 100"),
        (
            said(|load| load.region = Some((1 << 19, 1 << 20))),
            "ends at byte",
        ),
        (
            said(|load| load.access = Access::Sequential { streams: 0 }),
            "streams",
        ),
        (
            said(|load| load.access = Access::Zipf { exponent: 0.0 }),
            "exponent",
        ),
        (
            said(|load| load.arrivals = Arrivals::Poisson { per_second: 0.0 }),
            "per second",
        ),
    ] {
        assert!(said.contains(part), "{said}");
    }
}
