//! `slow:`: another drive behind one FIFO server, so that a demonstration or a test sees the same
//! drive on every machine.
//!
//! ```text
//! submit ──► inner drive at once ──────────────┐
//!        └─► done = max(now, busy) + size/bandwidth + 1/iops ─► + latency ─► answer when both ended
//! ```
//!
//! There is no burst: an idle server saves up nothing. Latency lies outside the server, so it adds to every answer
//! and takes nothing from the rate. Deadlines are absolute, so late wake-ups do not add up. The inner drive starts at
//! once and runs beside the server; it has no effect as long as it is the faster one.
//!
//! Reads and writes pay for their bytes and for one request. Flush, trim, discard and write-zeroes pay for
//! one request and for no bytes: no data crosses to the drive, which only marks a range or empties
//! its cache (ATA DATA SET MANAGEMENT, NVMe Deallocate and Write Zeroes). A disk that really writes
//! its zeros would be slower than this model. Their place in the FIFO is like any other's, so a
//! flush answers after the writes before it.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use block::{BlockDevice, Completed, Extent, Limits, Memory, Outcome, Permission, Request, Usage};

use super::telemetry::Telemetry;
use super::ticket::Ticket;
use super::timer::{Group, Scheduler};
use super::uri::{
    DriveKind, DriveSpec, NameText, ParseDriveUriError, Wrapper, bad, duration_text,
    parse_duration, parse_size, size_text, wrapped, write_options,
};
use super::{OpenDriveError, Opened, Opening};

pub(super) static KIND: DriveKind = DriveKind {
    word: "slow",
    names: &["slow:disk.img?bandwidth=8M&iops=500&latency=2ms"],
    what: "another drive as a slow one, for tests",
    options: "bandwidth=, iops= and latency=",
    parse: wrapped::<Rate>,
};

/// The parameters of `slow:`. At least one is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rate {
    /// `bandwidth=`: bytes per second through the server, not zero.
    bandwidth_bytes_per_second: Option<u64>,
    /// `iops=`: requests per second through the server, not zero.
    requests_per_second: Option<u64>,
    /// `latency=`: added after the server.
    latency: Duration,
}

impl Wrapper for Rate {
    fn parse(text: &NameText<'_>) -> Result<Self, ParseDriveUriError> {
        let mut rate = Self::default();
        let mut has_latency = false;
        for (key, value) in text.options() {
            match key {
                "bandwidth" => {
                    rate.bandwidth_bytes_per_second = Some(parse_size("bandwidth", value)?);
                }
                "iops" => {
                    let iops = value.parse().ok().filter(|&iops: &u64| iops > 0);
                    let wanted = "a whole number above 0, such as 500";
                    rate.requests_per_second =
                        Some(iops.ok_or_else(|| bad("iops", value, wanted))?);
                }
                "latency" => {
                    let wanted = "a time up to an hour, such as 2ms, 150us or 1s";
                    has_latency = true;
                    rate.latency =
                        parse_duration(value).ok_or_else(|| bad("latency", value, wanted))?;
                }
                _ => return Err(text.unknown(key)),
            }
        }
        if rate == Self::default() && !has_latency {
            return Err(ParseDriveUriError::Refused {
                reason: "`slow:` needs at least one of bandwidth=, iops= and latency=".to_owned(),
                hint: "such as slow:disk.img?bandwidth=8M",
            });
        }
        Ok(rate)
    }

    fn open(&self, inner: &DriveSpec, opening: &Opening<'_>) -> Result<Opened, OpenDriveError> {
        let inner = inner.open(opening)?;
        let telemetry = Arc::new(Telemetry::new());
        let drive = SlowDrive::new(inner.device, *self, &telemetry).map_err(KIND.start_error())?;
        Ok(Opened {
            device: Arc::new(drive),
            kind: KIND.word,
            works_in_caller: false,
            telemetry,
            ..inner
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bandwidth = self.bandwidth_bytes_per_second;
        let iops = self.requests_per_second;
        // At least one option is written.
        let latency = self.latency != Duration::ZERO || bandwidth.is_none() && iops.is_none();
        write_options(
            f,
            [
                ("bandwidth", bandwidth.map(size_text)),
                ("iops", iops.map(|iops| iops.to_string())),
                ("latency", latency.then(|| duration_text(self.latency))),
            ],
        )
    }
}

/// The server: when it is free again, and how fast it works.
struct Server {
    rate: Rate,
    busy_until: Instant,
}

impl Server {
    /// Admits a request at `now`; returns when it is done.
    fn admit(&mut self, now: Instant, request: &Request) -> Instant {
        let mut service = Duration::ZERO;
        if let Some(bandwidth) = self.rate.bandwidth_bytes_per_second {
            service += quotient(request.bytes_moved(), bandwidth);
        }
        if let Some(iops) = self.rate.requests_per_second {
            service += quotient(1, iops);
        }
        self.busy_until = self.busy_until.max(now) + service;
        self.busy_until + self.rate.latency
    }
}

/// `amount` units at `per_second` units a second, at most a year.
fn quotient(amount: u64, per_second: u64) -> Duration {
    const YEAR: u128 = 365 * 86_400 * 1_000_000_000;
    let nanoseconds = u128::from(amount) * 1_000_000_000 / u128::from(per_second.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds.min(YEAR)).unwrap_or(u64::MAX))
}

/// A drive that appears as fast as its [`Rate`], and no faster than the inner drive.
struct SlowDrive {
    // Closed before `inner` is dropped: later answers of the inner drive find the group closed.
    group: Group,
    inner: Arc<dyn BlockDevice>,
    server: Mutex<Server>,
    telemetry: Arc<Telemetry>,
}

impl SlowDrive {
    fn new(
        inner: Arc<dyn BlockDevice>,
        rate: Rate,
        telemetry: &Arc<Telemetry>,
    ) -> io::Result<Self> {
        Ok(Self {
            group: Group::new()?,
            inner,
            server: Mutex::new(Server {
                rate,
                busy_until: Instant::now(),
            }),
            telemetry: Arc::clone(telemetry),
        })
    }
}

/// Waits for the inner drive, then for the deadline.
struct Waiting {
    deadline: Instant,
    scheduler: Scheduler,
    ticket: Mutex<Option<Ticket>>,
}

impl Completed for Waiting {
    fn completed(&self, _token: u64, outcome: Outcome) {
        let ticket = self
            .ticket
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(ticket) = ticket else { return };
        if self.deadline <= Instant::now() {
            ticket.complete(outcome);
        } else {
            self.scheduler.complete_at(self.deadline, ticket, outcome);
        }
    }

    fn permission(&self) -> Permission {
        let ticket = self.ticket.lock().unwrap_or_else(PoisonError::into_inner);
        ticket
            .as_ref()
            .map_or(Permission::Revoked, Ticket::permission)
    }
}

impl BlockDevice for SlowDrive {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn usage(&self) -> Option<Usage> {
        self.inner.usage()
    }

    fn extents(&self, offset: u64, length: u64) -> Vec<Extent> {
        self.inner.extents(offset, length)
    }

    fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
        let ticket = Ticket::new(&self.telemetry, &request, token, to, Instant::now());
        let deadline = {
            // The clock is read under the lock, so that admission order is clock order.
            let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
            server.admit(Instant::now(), &request)
        };
        let waiting: Arc<dyn Completed> = Arc::new(Waiting {
            deadline,
            scheduler: self.group.scheduler(),
            ticket: Mutex::new(Some(ticket)),
        });
        self.inner.submit(request, memory, 0, &waiting);
    }
}

#[cfg(test)]
mod tests {
    use block::RequestKind;

    use super::*;

    fn request(kind: RequestKind, length: u64) -> Request {
        Request {
            kind,
            offset: 0,
            length,
            fua: false,
        }
    }

    #[test]
    fn the_server_is_fifo_without_burst_and_latency_lies_outside() {
        let start = Instant::now();
        let mut server = Server {
            rate: Rate {
                bandwidth_bytes_per_second: Some(1 << 20),
                requests_per_second: Some(100),
                latency: Duration::from_millis(7),
            },
            busy_until: start,
        };
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let (read, flush) = (RequestKind::Read, RequestKind::Flush);
        // 512 KiB at 1 MiB/s is 500 ms, a request at 100/s is 10 ms.
        assert_eq!(server.admit(at(0), &request(read, 1 << 19)), at(517));
        assert_eq!(
            server.admit(at(5), &request(flush, 0)),
            at(527),
            "behind the read"
        );
        assert_eq!(
            server.admit(at(6), &request(RequestKind::Trim, 1 << 40)),
            at(537)
        );
        // Idle from 530 to 2000: nothing was saved up.
        assert_eq!(server.admit(at(2000), &request(read, 0)), at(2017));
        assert_eq!(server.admit(at(2000), &request(read, 0)), at(2027));
    }

    #[test]
    fn absurd_rates_and_sizes_do_not_overflow() {
        let start = Instant::now();
        let mut server = Server {
            rate: Rate {
                bandwidth_bytes_per_second: Some(1),
                requests_per_second: Some(u64::MAX),
                latency: Duration::ZERO,
            },
            busy_until: start,
        };
        let done = server.admit(start, &request(RequestKind::Write, u64::MAX));
        assert_eq!(done - start, Duration::from_secs(365 * 86_400));
    }
}
