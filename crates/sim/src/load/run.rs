//! Runs a load on a target.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use block::{Instant, Request};
use slab::Slab;

use super::{Load, Numbers, Target};

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Flying {
    request: Request,
    client: u32,
    since: u64,
}

/// A load that is running. The run controls the time: a target has no other client.
#[derive(Clone, Debug)]
pub struct Run {
    load: Load,
    numbers: Numbers,
    series_ns: Option<u64>,
    now: u64,
    begun: bool,
    flying: Slab<Flying>,
    /// The next arrival of an open load.
    arrival: Option<u64>,
    /// Clients in their think time: until when, and which.
    thinking: BinaryHeap<Reverse<(u64, u32)>>,
    /// Requests that ended, with success or an error, in all.
    ended: u64,
    stopped: bool,
}

impl Run {
    /// A run at time 0, with a series of intervals of the given length if one is given.
    #[must_use]
    pub fn new(load: Load, series: Option<Duration>) -> Self {
        let series_ns =
            series.map(|length| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX).max(1));
        Self {
            load,
            numbers: Numbers::new(Instant::ZERO, series_ns),
            series_ns,
            now: 0,
            begun: false,
            flying: Slab::new(),
            arrival: None,
            thinking: BinaryHeap::new(),
            ended: 0,
            stopped: false,
        }
    }

    /// The same, beginning at `now`: for a target whose clock is past 0 already.
    #[must_use]
    pub fn starting_at(mut self, now: Instant) -> Self {
        self.now = now.0;
        self.numbers = Numbers::new(now, self.series_ns);
        self
    }

    /// The current time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        Instant(self.now)
    }

    /// The counts since the beginning, or since the last [`Run::count_anew`].
    #[must_use]
    pub const fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Counts from now on: everything before was warm-up.
    pub fn count_anew(&mut self) {
        self.numbers = Numbers::new(Instant(self.now), self.series_ns);
    }

    /// Sends no further requests; requests in flight continue.
    pub const fn stop(&mut self) {
        self.stopped = true;
    }

    /// Runs until time `at`. Everything that is due by then has happened on return.
    pub fn until(&mut self, target: &mut impl Target, at: Instant) {
        while self.next(target).is_some_and(|next| next <= at.0) {
            self.step(target);
        }
        self.now = self.now.max(at.0);
        self.numbers.reach(Instant(self.now));
    }

    /// Runs until `count` more requests have ended, or no event is left.
    pub fn requests(&mut self, target: &mut impl Target, count: u64) {
        let until = self.ended.saturating_add(count);
        while self.ended < until && self.step(target) {}
    }

    /// Runs until `over` returns true for the target, checked after each step, or no event is left. After [`Run::stop`]
    /// it sends nothing more.
    pub fn finish<T: Target>(&mut self, target: &mut T, over: impl Fn(&T) -> bool) {
        while !over(target) && self.step(target) {}
    }

    /// Time of the next event.
    fn next(&mut self, target: &impl Target) -> Option<u64> {
        self.begin();
        let due = target.poll_timeout().map_or(u64::MAX, |at| at.0);
        let (mut arrival, mut thinking) = (u64::MAX, u64::MAX);
        if !self.stopped {
            arrival = self.arrival.unwrap_or(u64::MAX);
            thinking = self
                .thinking
                .peek()
                .map_or(u64::MAX, |&Reverse((at, _))| at);
        }
        let next = due.min(arrival).min(thinking);
        (next < u64::MAX).then_some(next)
    }

    fn begin(&mut self) {
        if self.begun {
            return;
        }
        self.begun = true;
        if let Some((clients, _)) = self.load.clients() {
            let all = (0..clients).map(|client| Reverse((self.now, client)));
            self.thinking = all.collect();
        } else {
            self.arrange_arrival(self.now);
        }
    }

    fn arrange_arrival(&mut self, after: u64) {
        self.arrival = match self.load.gap_ns() {
            Some(gap) => Some(after.saturating_add(gap)),
            None => {
                let begun = self.numbers.began().0;
                self.load
                    .recorded_at()
                    .map(|at| begun.saturating_add(at).max(after))
            }
        };
    }

    /// Handles the next event; false if there is none.
    pub fn step(&mut self, target: &mut impl Target) -> bool {
        let Some(next) = self.next(target) else {
            return false;
        };
        self.now = self.now.max(next);
        let now = Instant(self.now);
        // Requests that end come before requests that begin at the same time.
        if target.poll_timeout().is_some_and(|due| due <= now) {
            target.handle_timeout(now);
            self.collect(target);
        } else if !self.stopped && self.arrival.is_some_and(|at| at <= self.now) {
            let at = self.arrival.unwrap_or(self.now);
            if let Some(request) = self.load.request(0) {
                self.send(target, request, 0);
            }
            self.arrange_arrival(at);
        } else if let Some(Reverse((_, client))) = self.thinking.pop() {
            self.send_for(target, client);
        }
        true
    }

    fn send_for(&mut self, target: &mut impl Target, client: u32) {
        if let Some(request) = self.load.request(client) {
            self.send(target, request, client);
        }
    }

    fn send(&mut self, target: &mut impl Target, request: Request, client: u32) {
        let key = self.flying.insert(Flying {
            request,
            client,
            since: self.now,
        });
        target.handle_request(Instant(self.now), key as u64, request);
        self.collect(target);
    }

    /// Takes ended requests, and starts the think time of their clients.
    fn collect(&mut self, target: &mut impl Target) {
        while let Some((token, outcome)) = target.poll_done() {
            let key = usize::try_from(token).expect("a key");
            let flying = self.flying.remove(key);
            self.ended += 1;
            let taken = self.now - flying.since;
            self.numbers
                .add(Instant(self.now), &flying.request, taken, outcome);
            if let Some((_, think)) = self.load.clients() {
                self.thinking
                    .push(Reverse((self.now.saturating_add(think), flying.client)));
            }
        }
    }
}
