//! Codes of one row: P, P+Q, P+Q+R, and two lost columns of P+Q.

use erasure::{Code, by_parameter, gf, kernel};

use crate::memory::Pages;
use crate::ratio::{Arm, report};
use crate::{LEVELS, Level};

pub(crate) fn run(wanted: &dyn Fn(&str, Level) -> bool) {
    for level in LEVELS {
        for (name, code, data) in [
            ("p 4+1 encode", "parity", 4),
            ("p 8+1 encode", "parity", 8),
            ("pq 8+2 encode", "pq", 8),
            ("pq 16+2 encode", "pq", 16),
            ("pqr 8+3 encode", "pqr", 8),
        ] {
            if wanted(name, level) {
                let code = by_parameter(code, data).expect("a code");
                encode(name, &code, level);
            }
        }
        if wanted("pq 8+2 decode", level) {
            decode("pq 8+2 decode", level);
        }
    }
}

fn encode(name: &str, code: &Code, level: Level) {
    let (sources, targets) = (code.data().len(), code.equations().len());
    let strip = level.strip_bytes();
    let stripes = level.stripes(sources * strip);
    let mut memory = Pages::new(stripes * (sources + targets) * strip);
    let mut stripes = memory.stripes(sources + targets, strip);
    let matrix: Vec<u8> = (0..targets)
        .flat_map(|t| (0..sources).map(move |s| code.coefficient(sources + t, s)))
        .collect();
    let program = code.encode().program();
    let mut arms = vec![Arm::new(
        "ours",
        |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
            program.run(kernel::best(), inputs, outputs, level.stores());
        },
    )];
    arms.extend(peers(targets, sources, &matrix));
    arms.push(Arm::new(
        "(read)",
        |inputs: &[&[u8]], _: &mut [&mut [u8]]| read(inputs),
    ));
    if level == Level::Dram {
        arms.push(Arm::new(
            "(cached)",
            |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
                program.run(kernel::best(), inputs, outputs, kernel::Stores::Cached);
            },
        ));
    }
    check(&mut arms, &mut stripes[0], sources);
    report(name, level, &mut arms, &mut stripes, sources);
}

/// Recovers data columns 1 and 4 from the others, P and Q.
fn decode(name: &str, level: Level) {
    let code = by_parameter("pq", 8).expect("a code");
    let known = code.without_columns(&[1, 4]);
    let recovery = code
        .recover(&known, &code.columns_set(&[1, 4]))
        .expect("two columns");
    let strip = level.strip_bytes();
    let stripes = level.stripes(8 * strip);
    let mut memory = Pages::new(stripes * 10 * strip);
    let mut stripes = memory.stripes(10, strip);
    let program = recovery.schedule.program();
    // The same as a plain matrix: D1 + D4 = P', 2·D1 + 16·D4 = Q'.
    let scale = gf::invert(2 ^ 16);
    let matrix: Vec<u8> = [16u8, 2]
        .iter()
        .flat_map(|&other| {
            let data = [0u16, 2, 3, 5, 6, 7].map(|i| gf::power_of_two(i) ^ other);
            data.into_iter()
                .chain([other, 1])
                .map(move |c| gf::multiply(c, scale))
        })
        .collect();
    let mut arms = vec![Arm::new(
        "ours",
        |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
            program.run(kernel::best(), inputs, outputs, level.stores());
        },
    )];
    // `pq_gen` cannot do this: the general functions do.
    arms.extend(matrix_peers(8, &matrix));
    check(&mut arms, &mut stripes[0], 8);
    report(name, level, &mut arms, &mut stripes, 8);
}

/// The libraries' best way to the same sums.
fn peers(targets: usize, sources: usize, matrix: &[u8]) -> Vec<Arm<'static>> {
    let mut arms = Vec::new();
    match targets {
        1 => {
            #[cfg(feature = "isal")]
            arms.push(Arm::new("isal", crate::ffi::isal::xor));
            arms.push(Arm::new(
                "rusty_erasure",
                |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
                    rusty_erasure::raid::xor_gen(inputs, outputs[0]).expect("slices of one length");
                },
            ));
        }
        2 => {
            #[cfg(feature = "isal")]
            arms.push(Arm::new("isal", crate::ffi::isal::pq));
            arms.push(Arm::new(
                "rusty_erasure",
                |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
                    let (p, q) = outputs.split_at_mut(1);
                    rusty_erasure::raid::pq_gen(inputs, p[0], q[0]).expect("slices of one length");
                },
            ));
        }
        _ => arms.extend(matrix_peers(sources, matrix)),
    }
    arms
}

fn matrix_peers(sources: usize, matrix: &[u8]) -> Vec<Arm<'static>> {
    let mut arms = Vec::new();
    let rows = matrix.len() / sources;
    #[cfg(feature = "isal")]
    {
        let tables = crate::ffi::isal::tables(sources, matrix);
        arms.push(Arm::new(
            "isal",
            move |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
                crate::ffi::isal::encode(&tables, inputs, outputs);
            },
        ));
    }
    let mut tables = vec![0; 32 * matrix.len()];
    rusty_erasure::isal::ec_init_tables(sources, rows, matrix, &mut tables).expect("sizes fit");
    arms.push(Arm::new(
        "rusty_erasure",
        move |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
            rusty_erasure::isal::ec_encode_data(
                inputs[0].len(),
                sources,
                rows,
                &tables,
                inputs,
                outputs,
            )
            .expect("sizes fit");
        },
    ));
    arms
}

/// All arms that compute give the same bytes.
pub(crate) fn check(arms: &mut [Arm<'_>], stripe: &mut [&mut [u8]], sources: usize) {
    let (head, tail) = stripe.split_at_mut(sources);
    let inputs: Vec<&[u8]> = head.iter().map(|s| &**s).collect();
    let mut truth: Option<Vec<Vec<u8>>> = None;
    for arm in arms.iter_mut().filter(|arm| arm.name != "(read)") {
        tail.iter_mut().for_each(|target| target.fill(0));
        (arm.work)(&inputs, tail);
        let got: Vec<Vec<u8>> = tail.iter().map(|t| t.to_vec()).collect();
        let truth = truth.get_or_insert_with(|| got.clone());
        assert!(*truth == got, "{} computes something else", arm.name);
    }
}

/// The roofline: every byte of the sources loaded once, in vectors as wide as there are.
pub(crate) fn read(inputs: &[&[u8]]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        #[expect(unsafe_code, reason = "wide loads are for CPUs that have them")]
        // SAFETY: the CPU has AVX-512F.
        unsafe {
            read_wide(inputs);
        };
        return;
    }
    sum_all(inputs);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[expect(unsafe_code, reason = "loads through pointers")]
fn read_wide(inputs: &[&[u8]]) {
    use std::arch::x86_64::{_mm512_loadu_si512, _mm512_or_si512, _mm512_setzero_si512};
    let mut sums = [_mm512_setzero_si512(); 4];
    for input in inputs {
        for block in input.chunks_exact(256) {
            for (sum, vector) in sums.iter_mut().zip(block.chunks_exact(64)) {
                // SAFETY: the chunk has 64 bytes.
                *sum = _mm512_or_si512(*sum, unsafe { _mm512_loadu_si512(vector.as_ptr().cast()) });
            }
        }
    }
    std::hint::black_box(sums);
}

fn sum_all(inputs: &[&[u8]]) {
    let mut sum = [0u64; 16];
    for input in inputs {
        for block in input.chunks_exact(128) {
            for (s, word) in sum.iter_mut().zip(block.chunks_exact(8)) {
                *s ^= u64::from_le_bytes(word.try_into().expect("eight bytes"));
            }
        }
    }
    std::hint::black_box(sum);
}
