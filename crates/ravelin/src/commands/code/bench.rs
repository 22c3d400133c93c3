//! `ravelin code bench`: how fast this machine encodes and decodes.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use erasure::kernel::{self, Kernel, Stores};
use erasure::{Code, NAMES, Program, by_columns};
use serde_json::{Value, json};

use super::{CodeCommandError, print_document};
use crate::commands::common::stdout;

/// Bytes of a strip (one column of a stripe), and how large all stripes are together.
const SETS: [(&str, usize, usize); 4] = [
    ("L1", 4 << 10, 0),
    ("L2", 64 << 10, 0),
    ("L3", 1 << 20, 0),
    ("memory", 64 << 10, 256 << 20),
];

/// Each figure is the best of several tries of this length: the speed of the undisturbed machine.
const TRY: Duration = Duration::from_millis(8);
const TRIES: usize = 5;

pub(super) fn run(names: &[String], columns: u16, json: bool) -> Result<(), CodeCommandError> {
    let mut codes = Vec::new();
    for name in names {
        codes.push(by_columns(name, columns)?);
    }
    if names.is_empty() {
        let all = NAMES
            .into_iter()
            .filter(|&name| name != "none" && name != "mirror");
        // Vertical codes: at the largest width up to `columns` that they have.
        let near =
            all.filter_map(|name| (5..=columns).rev().find_map(|c| by_columns(name, c).ok()));
        codes.extend(near);
    }
    if codes.is_empty() {
        return Err(CodeCommandError::NoWidth { columns });
    }
    let kernel = kernel::best();
    if !json {
        let mut out = stdout();
        writeln!(
            out,
            "kernel {}; 10^9 bytes of data a second, one thread",
            kernel.name()
        )?;
        write!(out, "{:<15} {:>7}", "code", "columns")?;
        for (set, _, _) in SETS {
            write!(out, "  {:>8} {:>8}", format!("{set} enc"), "dec")?;
        }
        writeln!(out)?;
    }
    let mut results = Vec::new();
    for code in &codes {
        let mut line = format!("{:<15} {:>7}", code.name(), code.columns());
        for (set, strip, total) in SETS {
            let (encode, decode) = speeds(code, kernel, strip, total);
            line += &format!("  {:>8.1} {:>8.1}", encode * 1e-9, decode * 1e-9);
            results.push(result(code, kernel, set, strip, encode, decode));
        }
        if !json {
            writeln!(io::stdout().lock(), "{line}")?;
        }
    }
    if json {
        return Ok(print_document("code bench", json!({ "results": results }))?);
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "rates are below 2^63")]
#[expect(clippy::cast_sign_loss, reason = "rates are not negative")]
fn result(
    code: &Code,
    kernel: &Kernel,
    set: &str,
    strip: usize,
    encode: f64,
    decode: f64,
) -> Value {
    json!({
        "code": code.name(),
        "columns": code.columns(),
        "kernel": kernel.name(),
        "set": set,
        "strip_bytes": strip,
        "encode_bytes_per_second": encode as u64,
        "decode_bytes_per_second": decode as u64,
    })
}

/// Data bytes per second: of encoding a full stripe, and of rebuilding as many columns as may be lost, two at most.
fn speeds(code: &Code, kernel: &Kernel, strip: usize, total: usize) -> (f64, f64) {
    let element = strip / usize::from(code.rows()) / 64 * 64;
    let lost: Vec<u16> = (0..code.tolerance().min(2)).collect();
    let recovery = code.recover(&code.without_columns(&lost), &code.columns_set(&lost));
    let decode = recovery
        .expect("no more than the tolerance")
        .schedule
        .program();
    let data = code.data().len() * element;
    let stripes = (total / data).max(1);
    let rate = |program: &Program| data as f64 / seconds(program, kernel, element, stripes);
    (rate(&code.encode().program()), rate(&decode))
}

/// Seconds per stripe.
fn seconds(program: &Program, kernel: &Kernel, element: usize, stripes: usize) -> f64 {
    let (inputs, outputs) = (program.inputs().len(), program.outputs().len());
    let elements = inputs + outputs;
    let mut memory = vec![0x5au8; stripes * elements * element + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let stores = if stripes > 1 {
        Stores::Streaming
    } else {
        Stores::Cached
    };
    let mut best = f64::INFINITY;
    for _ in 0..TRIES {
        let begin = Instant::now();
        let mut done = 0u32;
        while begin.elapsed() < TRY {
            for stripe in memory[start..]
                .chunks_exact_mut(elements * element)
                .take(stripes)
            {
                let (sources, targets) = stripe.split_at_mut(inputs * element);
                let sources: Vec<&[u8]> = sources.chunks_exact(element).collect();
                let mut targets: Vec<&mut [u8]> = targets.chunks_exact_mut(element).collect();
                program.run(kernel, &sources, &mut targets, stores);
                done += 1;
            }
        }
        best = best.min(begin.elapsed().as_secs_f64() / f64::from(done));
    }
    best
}
