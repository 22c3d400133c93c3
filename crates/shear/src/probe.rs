//! The bursts that a volume gets, and their times.

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read.
    Read,
    /// Write back what is there: the driver reads the range before the burst begins, and this read is not timed.
    Rewrite,
}

/// One request of a burst. Offset and length are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// What it does.
    pub kind: Kind,
}

/// A burst: all requests are handed to the volume at once, in this order, while nothing else is in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The requests.
    pub requests: Vec<Request>,
}

/// The times of a burst.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// For each request, in order, nanoseconds from the begin of the burst to its completion.
    pub nanoseconds: Vec<u64>,
}

impl Sample {
    /// Nanoseconds until the last request had ended, at least 1.
    #[must_use]
    pub fn makespan(&self) -> u64 {
        self.nanoseconds.iter().copied().max().unwrap_or(0).max(1)
    }
}

/// Why a run ends before everything is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The limit on I/Os is reached.
    Ios,
    /// The limit on time is reached.
    Seconds,
    /// The volume failed or is gone; the text of its error.
    Failed(String),
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ios => f.write_str("the limit on I/Os was reached"),
            Self::Seconds => f.write_str("the limit on time was reached"),
            Self::Failed(why) => write!(f, "the volume failed: {why}"),
        }
    }
}
