//! Array codes: encoding and two lost columns, against Jerasure's schedules for the very same
//! sums, and against our own P+Q on as many columns.

use erasure::{Code, Program, by_parameter, kernel};

use crate::memory::Pages;
use crate::ratio::{Arm, report};
use crate::{LEVELS, Level};

/// Bytes of an element: about a strip divided by the rows, powers of two; 64 KiB from DRAM.
fn element_bytes(level: Level) -> usize {
    match level {
        Level::L1 => 512,
        Level::L2 => 8 << 10,
        Level::L3 | Level::Dram => 64 << 10,
    }
}

pub(crate) fn run(wanted: &dyn Fn(&str, Level) -> bool) {
    for level in LEVELS {
        for name in ["dcode", "xcode", "rdp", "evenodd", "liberation"] {
            let code = by_parameter(name, 7).expect("a prime");
            let encode = format!("{name}:7 encode");
            if wanted(&encode, level) {
                work(&encode, &code, &code.encode().program(), level);
            }
            let decode = format!("{name}:7 decode");
            if wanted(&decode, level) {
                let wanted = code.columns_set(&[1, 4]);
                let recovery = code.recover(&code.without_columns(&[1, 4]), &wanted);
                let program = recovery.expect("two columns").schedule.program();
                work(&decode, &code, &program, level);
            }
        }
    }
}

fn work(name: &str, code: &Code, program: &Program, level: Level) {
    let element = element_bytes(level);
    let slots = |list: &[u16]| list.iter().map(|&s| usize::from(s)).collect::<Vec<_>>();
    let (sources, targets) = (slots(program.inputs()), slots(program.outputs()));
    let count = sources.len();
    let stripes = level.stripes(count * element);
    let mut memory = Pages::new(stripes * (count + targets.len()) * element);
    let mut stripes = memory.stripes(count + targets.len(), element);
    let mut arms = vec![Arm::new(
        "ours",
        |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
            program.run(kernel::best(), inputs, outputs, level.stores());
        },
    )];
    #[cfg(feature = "jerasure")]
    arms.extend(jerasure(code, &sources, &targets, element));
    // Our P+Q on the same sources as strips: each `columns - 2` sources give two outputs.
    let width = code.columns() - 2;
    let pq = by_parameter("pq", width)
        .expect("columns")
        .encode()
        .program();
    let groups = count / usize::from(width);
    arms.push(Arm::new(
        "(pq)",
        move |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
            let width = usize::from(width);
            for group in 0..groups {
                let sources = &inputs[group * width..][..width];
                let first = 2 * group % (outputs.len() - 1);
                pq.run(
                    kernel::best(),
                    sources,
                    &mut outputs[first..first + 2],
                    level.stores(),
                );
            }
        },
    ));
    let computing = arms.len() - 1;
    if name.ends_with("encode") {
        arms.push(loads(code, &sources, &targets));
    }
    crate::rows::check(&mut arms[..computing], &mut stripes[0], count);
    report(name, level, &mut arms, &mut stripes, count);
}

/// The roofline of an encoding that goes equation by equation: the same loads in the same order,
/// with nothing written but one buffer that stays in L1.
fn loads(code: &Code, sources: &[usize], targets: &[usize]) -> Arm<'static> {
    const PIECE_BYTES: usize = 8 << 10;
    let all = [sources, targets].concat();
    let operand = |slot: usize| all.iter().position(|&s| s == slot).expect("of the stripe");
    let equations: Vec<(Vec<usize>, Program)> = code
        .equations()
        .iter()
        .map(|equation| {
            let members = equation.members.iter();
            let members: Vec<usize> = members.map(|&(e, _)| operand(code.index(e))).collect();
            let width = u16::try_from(members.len()).expect("of one stripe");
            let sum = by_parameter("parity", width).expect("a sum");
            (members, sum.encode().program())
        })
        .collect();
    let mut sink = vec![0; PIECE_BYTES];
    Arm::new(
        "(loads)",
        move |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
            for (members, sum) in &equations {
                for at in (0..inputs[0].len()).step_by(PIECE_BYTES) {
                    let end = inputs[0].len().min(at + PIECE_BYTES);
                    let slices: Vec<&[u8]> = members
                        .iter()
                        .map(|&m| match inputs.get(m) {
                            Some(input) => &input[at..end],
                            None => &outputs[m - inputs.len()][at..end],
                        })
                        .collect();
                    let sink = &mut [&mut sink[..end - at]];
                    sum.run(kernel::best(), &slices, sink, kernel::Stores::Cached);
                }
            }
        },
    )
}

/// Jerasure's smart schedule for the targets as sums of the sources, its packet size the best of
/// three.
#[cfg(feature = "jerasure")]
fn jerasure(
    code: &Code,
    sources: &[usize],
    targets: &[usize],
    element: usize,
) -> Vec<Arm<'static>> {
    let matrix = expand(code, sources, targets);
    let packets = [512, 2048, 8192].map(|packet: usize| packet.min(element));
    let names = ["jerasure/512", "jerasure/2K", "jerasure/8K"];
    let distinct = if element == 512 { 1 } else { 3 };
    let arms = packets
        .into_iter()
        .zip(names)
        .take(distinct)
        .map(|(packet, name)| {
            let schedule = crate::ffi::jerasure::Schedule::new(sources.len(), &matrix);
            Arm::new(name, move |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
                schedule.run(packet, inputs, outputs);
            })
        });
    arms.collect()
}

/// The 0/1 matrix of targets over sources: the code's schedule run on unit vectors, one bit each.
#[cfg(feature = "jerasure")]
fn expand(code: &Code, sources: &[usize], targets: &[usize]) -> Vec<u8> {
    let lost: erasure::ElementSet = targets.iter().copied().collect();
    let known: erasure::ElementSet = sources.iter().copied().collect();
    let recovery = code
        .recover(&known, &lost)
        .expect("sources determine targets");
    let mut stripe = vec![vec![0; sources.len()]; code.elements()];
    for (i, &slot) in sources.iter().enumerate() {
        stripe[slot][i] = 1;
    }
    recovery
        .schedule
        .run(kernel::by_name("naive").expect("always there"), &mut stripe);
    targets
        .iter()
        .flat_map(|&slot| stripe[slot].clone())
        .collect()
}
