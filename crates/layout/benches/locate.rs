//! What it costs to find a cell, beside a plain RAID-5 map.
//!
//! `cargo bench -p ravelin-layout`. Each iteration locates another group and column, in an order
//! that no predictor learns, through the trait object that the array holds.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use layout::crush::{Map, Mode, ONE, Rule};
use layout::{Cell, Geometry, Scheme};

/// Pieces of a drive: 20 TB in 512 MiB. Cells are more, but tables are what grows.
const ROWS: u64 = 4096;

/// (stripe, unit) as a textbook has it: left-symmetric on n drives.
#[inline(never)]
fn plain_raid5(n: u64, stripe: u64, unit: u64) -> Cell {
    let parity = n - 1 - stripe % n;
    let drive = if unit == n - 1 {
        parity
    } else {
        (parity + 1 + unit) % n
    };
    Cell {
        seat: block::Seat(u16::try_from(drive).unwrap_or(0)),
        row: stripe,
    }
}

/// Scattered numbers below `bound`, the same every time.
fn scattered(bound: u64) -> Vec<u64> {
    let mut random = block::SplitMix64::new(1);
    (0..4096).map(|_| random.below(bound)).collect()
}

fn locate(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("locate");
    group
        .sample_size(30)
        .measurement_time(std::time::Duration::from_secs(1));
    group.warm_up_time(std::time::Duration::from_millis(300));
    let stripes = scattered(1 << 20);
    group.bench_function("raid5 plain arithmetic, 8 drives", |bencher| {
        let mut at = 0;
        bencher.iter(|| {
            at = (at + 1) & 4095;
            plain_raid5(black_box(8), stripes[at], at as u64 % 8)
        });
    });
    for scheme in [
        "raid5:8c",
        "pddl1:4d:61c:1s",
        "pddl2:8d:60c:3s",
        "pddl2:8d:96c:8s:8f",
        "draid2:8d:60c:3s",
        "draid2:8d:255c:5s",
        "design1:4d:17c",
        "ddp:8d:60c:3s",
        "crush2:8d:60c:3s",
    ] {
        let parsed: Scheme = scheme.parse().expect("a scheme");
        let geometry = Geometry::new(&parsed, None, ROWS).expect("a geometry");
        let groups = scattered(geometry.layout.groups(ROWS));
        let layout = geometry.layout;
        let columns = layout.columns();
        group.bench_function(format!("{scheme} cell"), |bencher| {
            let (mut at, mut column) = (0, 0);
            bencher.iter(|| {
                at = (at + 1) & 4095;
                column = if column + 1 == columns { 0 } else { column + 1 };
                layout.cell(groups[at], column)
            });
        });
        if scheme == "raid5:8c" || scheme == "pddl2:8d:60c:3s" {
            group.bench_function(format!("{scheme} place and cell"), |bencher| {
                let mut at = 0;
                let stripes_per_group = layout.stripes_per_group(256);
                bencher.iter(|| {
                    at = (at + 1) & 4095;
                    let index = at as u64 % 256;
                    let place = layout.place(groups[at] * stripes_per_group + index, index, 3);
                    (layout.cell(groups[at], place.column), place.slot)
                });
            });
            group.bench_function(format!("{scheme} role"), |bencher| {
                let mut at = 0;
                bencher.iter(|| {
                    at = (at + 1) & 4095;
                    layout.role(Cell {
                        seat: block::Seat(5),
                        row: groups[at],
                    })
                });
            });
        }
    }
    for (devices, positions) in [(7, 3), (17, 5), (60, 10)] {
        let map = Map::flat(&vec![ONE; devices]);
        let rule = Rule::flat(-1, Mode::Indep);
        group.bench_function(
            format!("crush rule, {positions} of {devices} devices"),
            |bencher| {
                let mut x = 0;
                bencher.iter(|| {
                    x += 1;
                    map.place(&rule, x, positions, &[])
                });
            },
        );
    }
    group.finish();
}

criterion_group!(benches, locate);
criterion_main!(benches);
