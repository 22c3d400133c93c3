//! Which copy a read of a mirror takes.

use std::str::FromStr;

/// A policy for reads of mirrors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MirrorReads {
    /// The first copy that can be read: what a mirror without a policy does.
    First,
    /// The copies in turn.
    Alternate,
    /// The copy whose drive has the fewest operations queued; on a tie, in turn.
    #[default]
    LeastQueued,
}

impl MirrorReads {
    /// Chooses one of the `copies` that can be read (their element, and the operations queued at their drive). `turn`
    /// counts reads.
    pub(super) fn choose(
        self,
        turn: u64,
        mut copies: impl Iterator<Item = (usize, usize)> + Clone,
    ) -> Option<usize> {
        let count = copies.clone().count();
        let first = usize::try_from(turn % (count.max(1) as u64)).expect("few copies");
        let rotated = copies.clone().skip(first).chain(copies.clone().take(first));
        let chosen = match self {
            Self::First => copies.next(),
            Self::Alternate => copies.nth(first),
            Self::LeastQueued => rotated.min_by_key(|&(_, queued)| queued),
        };
        chosen.map(|(copy, _)| copy)
    }
}

/// Not a policy for reads of mirrors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a way to read mirrors: use first, alternate or least-queued")]
pub struct UnknownMirrorReads(String);

impl FromStr for MirrorReads {
    type Err = UnknownMirrorReads;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "first" => Ok(Self::First),
            "alternate" => Ok(Self::Alternate),
            "least-queued" => Ok(Self::LeastQueued),
            _ => Err(UnknownMirrorReads(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_takes_its_copy() {
        let copies = [(0, 4), (3, 2), (5, 2)];
        let choose = |policy: MirrorReads, turn| policy.choose(turn, copies.iter().copied());
        assert_eq!(choose(MirrorReads::First, 7), Some(0));
        let turns = (0..4).map(|turn| choose(MirrorReads::Alternate, turn));
        assert_eq!(turns.collect::<Vec<_>>(), [0, 3, 5, 0].map(Some));
        assert_eq!(choose(MirrorReads::LeastQueued, 0), Some(3));
        assert_eq!(
            choose(MirrorReads::LeastQueued, 2),
            Some(5),
            "a tie, in turn"
        );
        assert_eq!(MirrorReads::First.choose(0, std::iter::empty()), None);
    }
}
