//! Controller, host link and processor: first-come first-served servers around the drives.

use crate::model::transfer_ns;

/// Options of the servers; 0 stands for no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServersOptions {
    /// Time of the controller for each request.
    pub controller_ns: u64,
    /// Bytes per second of the link to the host, in each direction.
    pub link_bytes_per_second: u64,
    /// Bytes per second at which parity is computed: each element that goes into a sum counts.
    pub parity_bytes_per_second: u64,
}

/// When each server is free.
#[derive(Clone, Copy, Debug)]
pub(super) struct Servers {
    options: ServersOptions,
    controller_free: u64,
    link_in_free: u64,
    link_out_free: u64,
    processor_free: u64,
}

fn serve(free: &mut u64, now: u64, taken: u64) -> u64 {
    if taken == 0 {
        return now;
    }
    *free = now.max(*free) + taken;
    *free
}

impl Servers {
    pub(super) const fn new(options: ServersOptions) -> Self {
        Self {
            options,
            controller_free: 0,
            link_in_free: 0,
            link_out_free: 0,
            processor_free: 0,
        }
    }

    /// The time at which a request that brings `bytes` has arrived.
    pub(super) fn arrive(&mut self, now: u64, bytes: u64) -> u64 {
        let moving = transfer_ns(bytes, self.options.link_bytes_per_second);
        let here = serve(&mut self.link_in_free, now, moving);
        serve(&mut self.controller_free, here, self.options.controller_ns)
    }

    /// The time at which an answer of `bytes` has been sent.
    pub(super) fn leave(&mut self, now: u64, bytes: u64) -> u64 {
        let moving = transfer_ns(bytes, self.options.link_bytes_per_second);
        serve(&mut self.link_out_free, now, moving)
    }

    /// The time at which a sum over `bytes` has been computed.
    pub(super) fn compute(&mut self, now: u64, bytes: u64) -> u64 {
        let taken = transfer_ns(bytes, self.options.parity_bytes_per_second);
        serve(&mut self.processor_free, now, taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_through_one_after_the_other_and_both_ways_at_once() {
        let mut servers = Servers::new(ServersOptions {
            controller_ns: 10,
            link_bytes_per_second: 1_000_000_000,
            parity_bytes_per_second: 0,
        });
        assert_eq!(servers.arrive(0, 100), 110);
        assert_eq!(servers.arrive(0, 100), 210);
        assert_eq!(servers.leave(0, 50), 50);
        assert_eq!(servers.compute(7, 1 << 30), 7);
    }
}
