//! Runs the state machine on a simulated volume.

pub(crate) mod cases;

use shear::{Kind, Method, Options, Probe, Sample, Shear};
use sim::plain::Target;

/// Measures a burst.
pub(crate) fn answer(target: &mut Target, probe: &Probe) -> Sample {
    let requests: Vec<block::Request> = probe
        .requests
        .iter()
        .map(|request| block::Request {
            kind: match request.kind {
                Kind::Read => block::RequestKind::Read,
                Kind::Rewrite => block::RequestKind::Write,
            },
            offset: request.offset,
            length: request.length,
            fua: false,
        })
        .collect();
    Sample {
        nanoseconds: target.burst(&requests),
    }
}

/// Runs a method on the named array to its end.
pub(crate) fn run(name: &str, writes: bool, seed: u64, method: Method) -> Shear {
    run_behind(0, name, writes, seed, method)
}

/// The same on a partition that begins so many bytes into the array.
pub(crate) fn run_behind(begin: u64, name: &str, writes: bool, seed: u64, method: Method) -> Shear {
    let mut target = Target::open(name).unwrap();
    let mut shear = Shear::new(Options {
        size_bytes: target.array().capacity_bytes() - begin,
        writes,
        ios_max: 1 << 40,
        seed,
        method,
    });
    while let Some(mut probe) = shear.next_probe() {
        for request in &mut probe.requests {
            request.offset += begin;
        }
        let sample = answer(&mut target, &probe);
        shear.record(sample);
    }
    shear
}
