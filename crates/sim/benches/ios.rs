//! Drive I/Os per CPU second without bytes: 12 drives, random 4 KiB.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sim::load::{Arrivals, Load, LoadOptions, Run};
use sim::model::preset;
use sim::plain::{PlainArray, PlainOptions};
use sim::{StudyOptions, StudyVolume};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Requests of one measurement.
const REQUESTS: u64 = 100_000;

fn begun(scheme: &str, drive: &str, read_percent: u32) -> (PlainArray, Run) {
    let options = PlainOptions::new(scheme, preset(drive).expect("a preset"));
    let array = PlainArray::new(&options).expect("an array");
    let load = LoadOptions {
        arrivals: Arrivals::Closed {
            clients: 64,
            think_ns: 0,
        },
        read_percent,
        ..LoadOptions::default()
    };
    let load = Load::new(&load, array.capacity_bytes(), 1).expect("a load");
    (array, Run::new(load, None))
}

fn plain(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plain");
    group.sample_size(10);
    group.measurement_time(Duration::from_secs(5));
    for drive in ["server", "9lzx", "15k", "ssd"] {
        for (work, scheme, read_percent) in [
            ("read", "raid5:12c", 100),
            ("write", "raid5:12c", 0),
            ("mixed", "raid6:12c", 70),
        ] {
            let (mut array, mut run) = begun(scheme, drive, read_percent);
            // I/Os of so many requests follow from the seed.
            run.requests(&mut array, REQUESTS);
            group.throughput(Throughput::Elements(array.ios()));
            group.bench_function(BenchmarkId::new(work, drive), |bencher| {
                bencher.iter(|| {
                    run.requests(&mut array, REQUESTS);
                    black_box(array.trace())
                });
            });
        }
    }
    group.finish();
}

/// The whole pool, with journal and checksum pages and without.
fn pool(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pool");
    group.sample_size(10);
    group.measurement_time(Duration::from_secs(5));
    for (name, journal) in [("journal", true), ("bare", false)] {
        for (work, read_percent) in [("read", 100), ("write", 0)] {
            let options = StudyOptions {
                journal,
                ..StudyOptions::new("raid5:12c", preset("server").expect("a preset"))
            };
            let mut pool = StudyVolume::create(&options, Some(64 << 30)).expect("a pool");
            let load = LoadOptions {
                arrivals: Arrivals::Closed {
                    clients: 64,
                    think_ns: 0,
                },
                read_percent,
                ..LoadOptions::default()
            };
            let load = Load::new(&load, 64 << 30, 1).expect("a load");
            let mut run = Run::new(load, None).starting_at(pool.now());
            let before = pool.ios();
            run.requests(&mut pool, REQUESTS);
            group.throughput(Throughput::Elements(pool.ios() - before));
            group.bench_function(BenchmarkId::new(work, name), |bencher| {
                bencher.iter(|| {
                    run.requests(&mut pool, REQUESTS);
                    black_box(pool.trace())
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, plain, pool);
criterion_main!(benches);
