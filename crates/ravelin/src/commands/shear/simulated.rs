//! A simulated array, in virtual time.

use block::{Hint, RequestKind};
use shear::{Kind, Probe, Sample};

use super::super::common::Failure;
use super::target::{Target, refused};

/// An array of the simulator.
#[derive(Debug)]
pub(super) struct Simulated(sim::plain::Target);

impl Simulated {
    pub(super) fn open(name: &str) -> Result<Self, Failure> {
        let target = sim::plain::Target::open(name);
        target.map(Self).map_err(|error| {
            let hint = error.hint();
            let hint = hint.as_deref();
            let hint = hint.unwrap_or("such as sim:raid5:la:6c?chunk=8K&disk=9lzx");
            refused(&format!("sim:{name}"), error.to_string(), hint)
        })
    }
}

impl Target for Simulated {
    fn size_bytes(&self) -> u64 {
        self.0.array().capacity_bytes()
    }

    fn burst(&mut self, probe: &Probe) -> Result<Sample, String> {
        let requests = probe.requests.iter().map(|request| block::Request {
            kind: match request.kind {
                Kind::Read => RequestKind::Read,
                Kind::Rewrite => RequestKind::Write,
            },
            offset: request.offset,
            length: request.length,
            fua: false,
        });
        let requests: Vec<block::Request> = requests.collect();
        Ok(Sample {
            nanoseconds: self.0.burst(&requests),
        })
    }

    fn seconds(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a time")]
        let seconds = self.0.array().now().0 as f64 / 1e9;
        Some(seconds)
    }
}
