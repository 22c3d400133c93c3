//! Optimizations give the same bytes: sources in groups, P and Q by doubling, streamed outputs that are
//! read again from copies.

use crate::common::{Numbers, evaluate};
use erasure::kernel::{self, Kernel, Stores};
use erasure::{NAMES, Program, by_columns, gf};

/// Bytes at a chosen distance from a cache line, so that streaming stores are used or are not.
struct Slice {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Slice {
    fn new(content: &[u8], distance: usize) -> Self {
        let mut bytes = vec![0xee; content.len() + 192];
        let start = bytes.as_ptr().align_offset(64) + distance;
        bytes[start..start + content.len()].copy_from_slice(content);
        Self {
            bytes,
            start,
            length: content.len(),
        }
    }

    fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }

    fn is_intact_around(&self) -> bool {
        let after = &self.bytes[self.start + self.length..];
        let around = self.bytes[..self.start].iter().chain(after);
        around.into_iter().all(|&b| b == 0xee)
    }
}

fn combined(
    kernel: &Kernel,
    before: &[Vec<u8>],
    accumulate: bool,
    sources: &[Vec<u8>],
    matrix: &[u8],
    (stores, distance): (Stores, usize),
) -> Vec<Vec<u8>> {
    let mut targets: Vec<Slice> = before.iter().map(|t| Slice::new(t, distance)).collect();
    let slices: Vec<&[u8]> = sources.iter().map(|s| &s[..]).collect();
    let mut slots: Vec<&mut [u8]> = targets.iter_mut().map(Slice::get_mut).collect();
    kernel.combine(&mut slots, accumulate, &slices, matrix, stores);
    assert!(targets.iter().all(Slice::is_intact_around), "{kernel:?}");
    targets.iter().map(|t| t.get().to_vec()).collect()
}

#[test]
fn many_sources_taken_in_groups_give_what_one_pass_over_all_gives() {
    let mut numbers = Numbers::new(15);
    let naive = kernel::by_name("naive").expect("always there");
    for (count, rows, length) in [
        (14, 2, 65_600),
        (15, 2, 65_536 + 77),
        (16, 1, 131_072),
        (17, 3, 66_000),
        (24, 2, 5),
        (33, 3, 700),
    ] {
        let matrix = numbers.bytes(rows * count);
        let sources: Vec<Vec<u8>> = (0..count).map(|_| numbers.bytes(length)).collect();
        let before: Vec<Vec<u8>> = (0..rows).map(|_| numbers.bytes(length)).collect();
        for accumulate in [false, true] {
            let run = |kernel, how| combined(kernel, &before, accumulate, &sources, &matrix, how);
            let truth = run(naive, (Stores::Cached, 0));
            for kernel in &kernel::available()[1..] {
                for distance in [0, 32, 3] {
                    let got = run(kernel, (Stores::Streaming, distance));
                    assert!(got == truth, "{kernel:?} {count} sources at {distance}");
                }
            }
        }
    }
}

/// The kernels compute P and Q without reading the coefficients, so sums that only resemble P and Q must
/// not be taken for them.
#[test]
fn sums_by_doubling_are_p_and_q_and_nothing_else_is_taken_for_them() {
    let mut numbers = Numbers::new(2);
    let naive = kernel::by_name("naive").expect("always there");
    for count in 1..=20u16 {
        let power = gf::power_of_two;
        let variants: [Vec<u8>; 5] = [
            (0..count).map(power).collect(),
            (0..count).map(|i| power(i + 1)).collect(),
            (0..count).rev().map(power).collect(),
            (0..count).map(|i| power(i) ^ u8::from(i == 7)).collect(),
            vec![1; usize::from(count)],
        ];
        for (second, accumulate) in variants.iter().flat_map(|v| [(v, false), (v, true)]) {
            let ones = vec![1; usize::from(count)];
            let matrix = [ones, second.clone()].concat();
            let lengths = [64, 383, 384, 385, 448, 1000, 4096];
            let length = lengths[numbers.below(lengths.len())];
            let sources: Vec<Vec<u8>> = (0..count).map(|_| numbers.bytes(length)).collect();
            let before: Vec<Vec<u8>> = (0..2).map(|_| numbers.bytes(length)).collect();
            let run = |kernel, how| combined(kernel, &before, accumulate, &sources, &matrix, how);
            let truth = run(naive, (Stores::Cached, 0));
            for kernel in kernel::available() {
                for how in [(Stores::Cached, 5), (Stores::Streaming, 0)] {
                    assert!(run(kernel, how) == truth, "{kernel:?} {second:?} {length}");
                }
            }
        }
    }
}

fn run(program: &Program, kernel: &Kernel, truth: &[Vec<u8>], distance: usize, context: &str) {
    let of = |&slot: &u16| &truth[usize::from(slot)][..];
    let inputs: Vec<&[u8]> = program.inputs().iter().map(of).collect();
    let rubbish = vec![0x5a; truth[0].len()];
    let outputs = program.outputs().iter();
    let mut sinks: Vec<Slice> = outputs.map(|_| Slice::new(&rubbish, distance)).collect();
    let mut slots: Vec<&mut [u8]> = sinks.iter_mut().map(Slice::get_mut).collect();
    program.run(kernel, &inputs, &mut slots, Stores::Streaming);
    for (slot, sink) in program.outputs().iter().zip(&sinks) {
        let right = sink.get() == &truth[usize::from(*slot)][..];
        assert!(
            right && sink.is_intact_around(),
            "{context} {kernel:?} slot {slot} at {distance}"
        );
    }
}

/// A streamed output is in memory, not in the cache; later steps read a copy of it.
#[test]
fn streamed_outputs_that_later_steps_read_are_read_right() {
    let mut numbers = Numbers::new(9);
    let mut outputs_read_again = 0;
    for name in NAMES {
        for columns in [6, 7, 8] {
            let Ok(code) = by_columns(name, columns) else {
                continue;
            };
            // More than one tile for the largest of these, and a part of a vector at the end.
            let length = 100_000 + 13;
            let mut truth = vec![vec![0; length]; code.elements()];
            for slot in code.data_slots() {
                let pattern = numbers.bytes(1009);
                truth[slot] = pattern.iter().copied().cycle().take(length).collect();
            }
            evaluate(&code, &mut truth);
            let mut programs = vec![("encode", code.encode().program())];
            let lost = code.columns_set(&[0, columns - 2]);
            let known = code.without_columns(&[0, columns - 2]);
            if let Ok(recovery) = code.recover(&known, &lost) {
                let steps = &recovery.schedule.steps;
                let read = |t: u16| steps.iter().any(|s| s.terms.iter().any(|&(r, _)| r == t));
                outputs_read_again += steps.iter().filter(|s| read(s.target)).count();
                programs.push(("decode", recovery.schedule.program()));
            }
            for (work, program) in programs {
                let context = format!("{name}:{columns} {work}");
                for kernel in &kernel::available()[1..] {
                    run(&program, kernel, &truth, 0, &context);
                    run(&program, kernel, &truth, 9, &context);
                }
            }
        }
    }
    assert!(outputs_read_again > 50, "the point of the test");
}
