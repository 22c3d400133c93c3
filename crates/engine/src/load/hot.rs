//! Loads that prefer a part of the volume.

use serde::{Deserialize, Serialize};

use block::SplitMix64;

/// A share of the requests that goes to a part at the volume's start. The others go to the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hot {
    /// The share of the requests, in percent.
    pub requests_percent: u8,
    /// How large the part is.
    pub part: HotPart,
}

/// The size of the part of a volume that most requests go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HotPart {
    /// Of the volume.
    Percent(u8),
    /// That many bytes.
    Bytes(u64),
}

/// Where requests go, as numbers of requests that fit into the volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    requests: u64,
    hot: Option<(u64, u64)>,
}

impl Places {
    /// Of a volume into which `requests` requests of `length` bytes fit. None if the hot part or the rest is too small
    /// for a request.
    pub(super) fn new(requests: u64, length: u64, hot: Option<Hot>) -> Option<Self> {
        let Some(hot) = hot else {
            return Some(Self {
                requests,
                hot: None,
            });
        };
        let end = match hot.part {
            HotPart::Percent(percent) => {
                let part = u128::from(requests) * u128::from(percent) / 100;
                u64::try_from(part).ok()?
            }
            HotPart::Bytes(bytes) => bytes / length,
        };
        let share = u64::from(hot.requests_percent);
        (share <= 100 && (1..requests).contains(&end)).then_some(Self {
            requests,
            hot: Some((share, end)),
        })
    }

    pub(super) const fn draw(&self, random: &mut SplitMix64) -> u64 {
        match self.hot {
            None => random.below(self.requests),
            Some((share, end)) if random.below(100) < share => random.below(end),
            Some((_, end)) => end + random.below(self.requests - end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_goes_to_the_part_and_all_else_to_the_rest() {
        let part = |part| {
            Some(Hot {
                requests_percent: 90,
                part,
            })
        };
        for hot in [HotPart::Percent(10), HotPart::Bytes(100 * 4096 + 4095)] {
            let places = Places::new(1000, 4096, part(hot)).unwrap();
            let mut random = SplitMix64::new(5);
            let drawn: Vec<u64> = (0..100_000).map(|_| places.draw(&mut random)).collect();
            let count = drawn.iter().filter(|&&place| place < 100).count();
            assert!((89_500..90_500).contains(&count), "{hot:?}: {count}");
            let rest = drawn.iter().filter(|&&place| place >= 100);
            assert_eq!(rest.clone().max(), Some(&999));
            // Each of 900 is drawn eleven times; a place without any has a chance of one in sixty thousand.
            assert!(rest.collect::<std::collections::HashSet<_>>().len() > 890);
        }
    }

    #[test]
    fn a_part_without_room_for_a_request_or_without_a_rest_is_none() {
        let hot = |part| {
            Some(Hot {
                requests_percent: 90,
                part,
            })
        };
        for part in [
            HotPart::Percent(9),
            HotPart::Percent(100),
            HotPart::Bytes(4095),
            HotPart::Bytes(10 * 4096),
        ] {
            assert!(Places::new(10, 4096, hot(part)).is_none(), "{part:?}");
        }
        assert!(Places::new(10, 4096, hot(HotPart::Percent(10))).is_some());
    }
}
