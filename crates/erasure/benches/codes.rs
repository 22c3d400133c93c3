//! Every code and kernel: encoding and two-column decoding, strips of 4 KiB, 64 KiB and 1 MiB, in
//! cache and out of it.
//!
//! `cargo bench -p ravelin-erasure --bench codes [-- FILTER]`

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use erasure::kernel::{self, Kernel, Stores};
use erasure::{Code, NAMES, Program, by_columns};

/// Bytes of one column, and of all stripes' data together.
const SETS: [(&str, usize, usize); 4] = [
    ("4K", 4 << 10, 0),
    ("64K", 64 << 10, 0),
    ("1M", 1 << 20, 0),
    ("64K-dram", 64 << 10, 256 << 20),
];

/// A width that every code has.
fn code(name: &str) -> Code {
    let widths = [8, 7, 10, 12];
    widths
        .into_iter()
        .find_map(|c| by_columns(name, c).ok())
        .expect("one of them")
}

struct Stripes {
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
}

fn memory(program: &Program, element: usize, total: usize) -> Vec<Stripes> {
    let count = (total / (element * program.inputs().len())).max(1);
    let stripe = |_| Stripes {
        inputs: vec![vec![0x5a; element]; program.inputs().len()],
        outputs: vec![vec![0; element]; program.outputs().len()],
    };
    (0..count).map(stripe).collect()
}

fn measure(
    criterion: &mut Criterion,
    group: &str,
    program: &Program,
    kernels: &[&'static Kernel],
    rows: usize,
) {
    let mut group = criterion.benchmark_group(group);
    group.warm_up_time(Duration::from_millis(100));
    group.measurement_time(Duration::from_millis(400));
    group.sample_size(10);
    for (name, strip, total) in SETS {
        let element = strip / rows / 64 * 64;
        let mut stripes = memory(program, element, total);
        let bytes = stripes.len() * program.inputs().len() * element;
        group.throughput(Throughput::Bytes(bytes as u64));
        let stores = if total > 0 {
            Stores::Streaming
        } else {
            Stores::Cached
        };
        for kernel in kernels {
            group.bench_function(BenchmarkId::new(kernel.name(), name), |bencher| {
                bencher.iter(|| {
                    for stripe in &mut stripes {
                        let inputs: Vec<&[u8]> = stripe.inputs.iter().map(|s| &s[..]).collect();
                        let mut outputs: Vec<&mut [u8]> =
                            stripe.outputs.iter_mut().map(|s| &mut s[..]).collect();
                        program.run(kernel, black_box(&inputs), &mut outputs, stores);
                    }
                });
            });
        }
    }
    group.finish();
}

fn codes(criterion: &mut Criterion) {
    for name in NAMES.into_iter().filter(|&name| name != "none") {
        let code = code(name);
        let rows = usize::from(code.rows());
        let title = |what: &str| format!("{what}/{name}-{}", code.columns());
        let best = [kernel::best()];
        measure(
            criterion,
            &title("encode"),
            &code.encode().program(),
            &best,
            rows,
        );
        let lost: Vec<u16> = (0..code.tolerance().min(2)).collect();
        let recovery = code.recover(&code.without_columns(&lost), &code.columns_set(&lost));
        let program = recovery.expect("within the tolerance").schedule.program();
        measure(criterion, &title("decode"), &program, &best, rows);
    }
}

fn kernels(criterion: &mut Criterion) {
    for name in ["parity", "pq", "pqr", "dcode"] {
        let code = if name == "dcode" {
            by_columns(name, 7)
        } else {
            by_columns(name, 10)
        };
        let code = code.expect("these exist");
        let all = kernel::available();
        let title = format!("kernels/{name}-{}", code.columns());
        measure(
            criterion,
            &title,
            &code.encode().program(),
            all,
            usize::from(code.rows()),
        );
    }
}

criterion_group!(benches, codes, kernels);
criterion_main!(benches);
