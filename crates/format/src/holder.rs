//! Which opening of the pool is at work, and whether it still is.
//!
//! Two blocks of one form, on every drive: the *reservation*, written once by each opening, and the *heartbeat*,
//! written repeatedly by the opening at work. Neither is flushed, because every reader reads through the same drive.
//! They are two blocks, so that a holder that continues does not overwrite the reservation of an opening that has taken
//! the pool over: the holder finds that reservation when it renews its lease.

use uuid::Uuid;

use super::ids::Generation;

/// Where the reservation lies on a drive: behind the first label copy.
pub const HOLDER_OFFSET: u64 = 508 << 10;
/// Where the heartbeat lies: behind the second.
pub const HEARTBEAT_OFFSET: u64 = 1020 << 10;

const MAGIC: [u8; 8] = *b"RVHOLDER";
const BLOCK: usize = 4096;
const FIELDS_BYTES: usize = 80;
/// The number of the opening and its checksum, which earlier versions leave zero.
const NUMBERED_BYTES: usize = 92;

/// The content of a holder block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The pool.
    pub pool: Uuid,
    /// The opening: random, new each time.
    pub opening: Uuid,
    /// The host's boot: within one boot, locks on the drives show which opening is at work.
    pub boot: Uuid,
    /// Grows by one with every heartbeat; 0 when the pool has been closed.
    pub heartbeat: u64,
    /// How long the holder continues after a heartbeat without another one.
    pub period_ms: u64,
    /// The generation of the pool's facts that the opening has made: of two openings the later one has the greater
    /// number. `None` in blocks of versions without this field.
    pub number: Option<Generation>,
}

impl Holder {
    /// The block as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[12..16].fill(0);
        bytes[16..32].copy_from_slice(self.pool.as_bytes());
        bytes[32..48].copy_from_slice(self.opening.as_bytes());
        bytes[48..64].copy_from_slice(self.boot.as_bytes());
        bytes[64..72].copy_from_slice(&self.heartbeat.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.period_ms.to_le_bytes());
        let check = block::crc32c(&bytes[16..FIELDS_BYTES]);
        bytes[8..12].copy_from_slice(&check.to_le_bytes());
        if let Some(number) = self.number {
            bytes[80..88].copy_from_slice(&number.0.to_le_bytes());
            let check = block::crc32c(&bytes[16..88]);
            bytes[88..92].copy_from_slice(&check.to_le_bytes());
        }
        bytes
    }

    /// Reads a block; `None` if the bytes are not a holder block of this pool. Never panics.
    #[must_use]
    pub fn parse(pool: Uuid, bytes: &[u8]) -> Option<Self> {
        let fields = bytes.get(..FIELDS_BYTES)?;
        let check = u32::from_le_bytes(fields[8..12].try_into().ok()?);
        if fields[..8] != MAGIC || check != block::crc32c(&fields[16..]) {
            return None;
        }
        let uuid = |at: usize| Uuid::from_slice(&fields[at..at + 16]).ok();
        let number = |at: usize| Some(u64::from_le_bytes(fields[at..at + 8].try_into().ok()?));
        let numbered = || {
            let fields = bytes.get(..NUMBERED_BYTES)?;
            let check = u32::from_le_bytes(fields[88..].try_into().ok()?);
            let number = u64::from_le_bytes(fields[80..88].try_into().ok()?);
            (check == block::crc32c(&fields[16..88])).then_some(Generation(number))
        };
        let holder = Self {
            pool: uuid(16)?,
            opening: uuid(32)?,
            boot: uuid(48)?,
            heartbeat: number(64)?,
            period_ms: number(72)?,
            number: numbered(),
        };
        (holder.pool == pool).then_some(holder)
    }

    /// Whether the opening that wrote this may still be at work under another boot, where no locks show it.
    #[must_use]
    pub fn may_be_alive(&self, boot: Uuid) -> bool {
        self.heartbeat > 0 && self.boot != boot
    }
}

/// The opening that has taken a pool over, by the reservations that were read from its drives.
///
/// - A later opening counts on any drive: it has read the pool's facts after `own` had written them.
/// - An opening of the same number, or of none, has begun beside `own`. Of two such openings at most one continues: the
///   one whose reservation is on more than half of the drives.
/// - An earlier opening counts if it is on more than half of the drives. On fewer its reservation is stale: such a
///   drive was set back, or was away while others were reserved.
///
/// Drives without a readable reservation do not count for any opening.
#[must_use]
pub fn usurper(own: &Holder, seen: &[Holder]) -> Option<Holder> {
    let others = || seen.iter().filter(|seen| seen.opening != own.opening);
    let beside = |other: &&Holder| other.number.is_none() || other.number == own.number;
    let later = others().find(|other| other.number > own.number);
    if later.is_some() || others().next().is_none() {
        return later.copied();
    }
    let rivals = others().filter(beside).count();
    if rivals > 0 && 2 * rivals >= seen.len() {
        return others().find(beside).copied();
    }
    let foreign = others().count();
    others()
        .next()
        .filter(|_| 2 * foreign > seen.len())
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(heartbeat: u64) -> Holder {
        Holder {
            pool: Uuid::from_u128(1),
            opening: Uuid::from_u128(2),
            boot: Uuid::from_u128(3),
            heartbeat,
            period_ms: 10_000,
            number: Some(Generation(5)),
        }
    }

    /// A reservation of another opening.
    fn other(opening: u128, number: Option<u64>) -> Holder {
        Holder {
            opening: Uuid::from_u128(opening),
            number: number.map(Generation),
            ..holder(1)
        }
    }

    /// One drive with the reservation of an earlier opening ended all service of a pool of six, although the other
    /// drives had the reservation of the opening at work.
    #[test]
    fn a_stale_reservation_on_one_drive_takes_nothing_and_a_later_one_does() {
        let own = holder(1);
        let seen = |reservation: Holder, count: usize| -> Vec<Holder> {
            (0..6)
                .map(|drive| if drive < count { reservation } else { own })
                .collect()
        };
        let ends = |number: Option<u64>, drives: usize| {
            let reservation = other(7, number);
            usurper(&own, &seen(reservation, drives)).is_some()
        };
        for drives in 1..=6 {
            assert!(ends(Some(6), drives), "later, on {drives}");
            assert_eq!(ends(Some(4), drives), drives > 3, "earlier, on {drives}");
            assert_eq!(ends(Some(5), drives), drives >= 3, "beside, on {drives}");
            assert_eq!(ends(None, drives), drives >= 3, "of no number, on {drives}");
        }
        assert_eq!(usurper(&own, &[]), None, "no drive has a reservation");
    }

    /// Two openings that read the same facts, with every distribution of their reservations: never do both continue.
    #[test]
    fn of_two_openings_that_began_together_at_most_one_goes_on() {
        for numbers in [(Some(5), Some(5)), (None, None), (Some(5), Some(6))] {
            let (a, b) = (other(8, numbers.0), other(9, numbers.1));
            for drives in 1..=6_usize {
                for split in 0..=drives {
                    let seen: Vec<Holder> = (0..drives)
                        .map(|drive| if drive < split { a } else { b })
                        .collect();
                    let on = |own: &Holder| usurper(own, &seen).is_none();
                    assert!(!(on(&a) && on(&b)), "{split} of {drives}, {numbers:?}");
                }
            }
        }
    }

    #[test]
    fn a_holder_block_comes_back_as_it_was_written_and_damaged_never() {
        let bytes = holder(7).encode();
        let pool = Uuid::from_u128(1);
        assert_eq!(Holder::parse(pool, &bytes), Some(holder(7)));
        assert_eq!(Holder::parse(Uuid::from_u128(9), &bytes), None);
        for at in 0..12 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Holder::parse(pool, &damaged), None, "byte {at}");
        }
        for at in 16..FIELDS_BYTES {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Holder::parse(pool, &damaged), None, "byte {at}");
        }
        assert_eq!(Holder::parse(pool, &bytes[..FIELDS_BYTES - 1]), None);
    }

    /// All orders of the holder's and the taker's steps. The holder's are: heartbeat, check of the reservations; twice.
    /// The taker's are: read heartbeats, read heartbeats again, reservation, read heartbeats once more.
    #[test]
    fn whenever_a_takeover_succeeds_the_holders_last_good_look_began_before_it() {
        const HOLDER: u32 = 4;
        const TAKER: u32 = 4;
        let mut takeovers = 0;
        for order in 0_u32..1 << (HOLDER + TAKER) {
            if order.count_ones() != TAKER {
                continue;
            }
            let (mut heartbeat, mut reserved) = (0, false);
            let (mut holders, mut takers) = (0, 0);
            let mut reads = Vec::new();
            // When the heartbeat of the last good check was written, and when the taker began.
            let (mut begun, mut good, mut taker_begun) = (0, None, None);
            for time in 0..HOLDER + TAKER {
                if order >> time & 1 == 1 {
                    takers += 1;
                    taker_begun = taker_begun.or(Some(time));
                    match takers {
                        3 => reserved = true,
                        _ => reads.push(heartbeat),
                    }
                } else {
                    holders += 1;
                    if holders % 2 == 1 {
                        heartbeat += 1;
                        begun = time;
                    } else if !reserved {
                        good = Some(begun);
                    }
                }
            }
            if reads.windows(2).all(|pair| pair[0] == pair[1]) {
                takeovers += 1;
                // The lease ends a period after that; the taker waits two between its reads.
                assert!(good < taker_begun, "{order:08b}");
            }
        }
        assert!(takeovers > 3);
    }

    #[test]
    fn who_has_closed_or_is_of_this_boot_is_not_waited_for() {
        let boot = Uuid::from_u128(3);
        let other = Uuid::from_u128(4);
        assert!(holder(1).may_be_alive(other));
        assert!(!holder(1).may_be_alive(boot));
        assert!(!holder(0).may_be_alive(other));
    }
}
