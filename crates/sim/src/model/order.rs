//! Queue disciplines: which waiting operation a drive takes next.
//!
//! | name | takes |
//! | --- | --- |
//! | `fifo` | the oldest |
//! | `sstf` | the one with the shortest seek |
//! | `clook` | the next one upwards from where the arm is, else the lowest |
//! | `sptf` | the one that can begin soonest: seek and rotation together |
//!
//! Only the first `depth` waiting operations are candidates: the drive holds that many (tagged queueing), and the rest
//! wait in the host. Ties go to the older operation, so a discipline is a function of the queue and nothing else.
//! (Worthington, Ganger and Patt, "Scheduling algorithms for modern disk drives", SIGMETRICS 1994, sections 3 and 4.)

use std::fmt;
use std::str::FromStr;

/// A queue discipline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// First in, first out.
    #[default]
    Fifo,
    /// Shortest seek first.
    Sstf,
    /// Circular LOOK: upwards, then back to the lowest.
    CLook,
    /// Shortest positioning time first.
    Sptf,
}

/// A drive's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// Which operation is next.
    pub order: Order,
    /// Number of operations to choose from, at least 1.
    pub depth: usize,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            order: Order::Fifo,
            depth: 1,
        }
    }
}

/// The data of waiting operation number `index` that a discipline uses.
pub(super) trait Waiting {
    /// Number of waiting operations.
    fn len(&self) -> usize;
    /// Cylinders between the arm and the operation.
    fn distance(&self, index: usize) -> u64;
    /// Its first sector, and the sector after the last one that was accessed.
    fn sectors(&self, index: usize) -> (u64, u64);
    /// Nanoseconds until its first sector is under the head.
    fn positioning_ns(&self, index: usize) -> u64;
}

impl QueueOptions {
    /// Index of the operation that is next; at least one operation must wait.
    pub(super) fn pick(self, waiting: &impl Waiting) -> usize {
        let candidates = 0..waiting.len().min(self.depth.max(1));
        let best = match self.order {
            Order::Fifo => None,
            Order::Sstf => candidates.min_by_key(|&index| waiting.distance(index)),
            Order::CLook => candidates.min_by_key(|&index| {
                let (sector, arm) = waiting.sectors(index);
                (sector < arm, sector)
            }),
            Order::Sptf => candidates.min_by_key(|&index| waiting.positioning_ns(index)),
        };
        best.unwrap_or(0)
    }
}

/// Not the name of a discipline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a queue order: use fifo, sstf, clook or sptf")]
pub struct UnknownOrder {
    /// What was given.
    pub text: String,
}

impl FromStr for Order {
    type Err = UnknownOrder;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "fifo" => Ok(Self::Fifo),
            "sstf" => Ok(Self::Sstf),
            "clook" => Ok(Self::CLook),
            "sptf" => Ok(Self::Sptf),
            _ => Err(UnknownOrder {
                text: text.to_owned(),
            }),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "fifo",
            Self::Sstf => "sstf",
            Self::CLook => "clook",
            Self::Sptf => "sptf",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sector, cylinder, positioning time; the arm is at sector 50, cylinder 5.
    struct Queue(Vec<(u64, u64, u64)>);

    impl Waiting for Queue {
        fn len(&self) -> usize {
            self.0.len()
        }
        fn distance(&self, index: usize) -> u64 {
            self.0[index].1.abs_diff(5)
        }
        fn sectors(&self, index: usize) -> (u64, u64) {
            (self.0[index].0, 50)
        }
        fn positioning_ns(&self, index: usize) -> u64 {
            self.0[index].2
        }
    }

    #[test]
    fn each_discipline_takes_its_own() {
        let queue = Queue(vec![(90, 9, 40), (10, 1, 30), (60, 6, 50), (55, 3, 20)]);
        let pick = |order, depth| QueueOptions { order, depth }.pick(&queue);
        assert_eq!(pick(Order::Fifo, 4), 0);
        assert_eq!(pick(Order::Sstf, 4), 2);
        assert_eq!(pick(Order::CLook, 4), 3);
        assert_eq!(pick(Order::Sptf, 4), 3);
        // The depth hides later operations. With no operation upwards, the lowest is next.
        assert_eq!(pick(Order::Sptf, 3), 1);
        assert_eq!(pick(Order::CLook, 2), 0);
        let low = Queue(vec![(40, 4, 1), (10, 1, 1)]);
        let upwards = QueueOptions {
            order: Order::CLook,
            depth: 8,
        };
        assert_eq!(upwards.pick(&low), 1);
    }
}
