//! Pools over volumes of other pools.
//!
//! ```text
//!   top   raid0    volume:left/v   volume:right/v        above
//!                       │               │
//!   left, right    raid6 over drives  raid6 over drives   below
//! ```
//!
//! Which pool stands on which follows from the drives of the open pools: a drive with the identity of a volume, or, for
//! a drive that is out, with a volume's name. A pool that is open has all pools below it open here, so the pools that
//! are open show every chain.
//!
//! Only raid0 takes volumes. Redundancy belongs to the pools below: of a drive that fails there, the pool above notices
//! nothing. And a raid0 pool never does without a drive, so it waits while a pool below still decides about a drive
//! that hangs.

use std::collections::BTreeSet;

use layout::{Family, Scheme};
use uuid::Uuid;

use super::AssembleError;
use super::occupant::OpenPool;
use crate::drive::{DriveUri, Identity, OpenVolume};
use crate::run::Member;

/// Whether a pool of this scheme takes volumes as drives.
pub(super) fn scheme_takes_volumes(scheme: &Scheme) -> bool {
    scheme.family == Family::Raid0
}

/// The same of a scheme as labels write it.
pub(crate) fn takes_volumes(scheme: &str) -> bool {
    let scheme: Result<Scheme, _> = scheme.parse();
    scheme.is_ok_and(|scheme| scheme_takes_volumes(&scheme))
}

/// The volume that a name says, if its pool is open.
pub(super) fn volume_named<'a>(uri: &DriveUri, pools: &'a [OpenPool]) -> Option<&'a OpenVolume> {
    let (pool, volume) = uri.spec.volume()?;
    let pool = pools.iter().find(|open| open.name == pool)?;
    pool.volumes.iter().find(|open| open.name == volume)
}

/// The pool and the volume that a drive of a pool is.
fn below<'a>(member: &Member, pools: &'a [OpenPool]) -> Option<(&'a OpenPool, &'a OpenVolume)> {
    let uuid = match member.device {
        Some(Identity::Volume(uuid)) => uuid,
        Some(Identity::Device(_) | Identity::File(..)) => return None,
        None => volume_named(&member.path.parse().ok()?, pools)?.uuid,
    };
    let of = |pool: &'a OpenPool| {
        let volume = pool.volumes.iter().find(|volume| volume.uuid == uuid)?;
        Some((pool, volume))
    };
    pools.iter().find_map(of)
}

/// The pool that has this volume as a drive, and the drive; without a volume, the first pool that has any volume of the
/// pool.
#[must_use]
pub fn above<'a>(
    pools: &'a [OpenPool],
    pool: &str,
    volume: Option<&str>,
) -> Option<(&'a OpenPool, &'a Member)> {
    let members = { pools.iter() }.flat_map(|upper| {
        let members = upper.members.iter();
        members.map(move |member| (upper, member))
    });
    { members }.find(|(_, member)| {
        below(member, pools).is_some_and(|(of, is)| {
            of.name == pool && volume.is_none_or(|volume| is.name == volume)
        })
    })
}

/// The chain of pools from one down to another, both included.
fn chain<'a>(from: &'a OpenPool, to: Uuid, pools: &'a [OpenPool]) -> Option<Vec<&'a str>> {
    fn walk<'a>(
        from: &'a OpenPool,
        to: Uuid,
        pools: &'a [OpenPool],
        seen: &mut BTreeSet<Uuid>,
    ) -> Option<Vec<&'a str>> {
        if from.uuid == to {
            return Some(vec![&from.name]);
        }
        if !seen.insert(from.uuid) {
            return None;
        }
        let lower = from
            .members
            .iter()
            .filter_map(|member| below(member, pools));
        let mut rest = { lower }.find_map(|(pool, _)| walk(pool, to, pools, seen))?;
        rest.insert(0, &from.name);
        Some(rest)
    }
    walk(from, to, pools, &mut BTreeSet::new())
}

/// Refuses a volume as a drive of an open pool that takes none, or that the volume stands on.
///
/// # Errors
/// [`AssembleError::TakesNoVolumes`], [`AssembleError::Circle`].
pub fn refuse_volume(uri: &DriveUri, pool: Uuid, pools: &[OpenPool]) -> Result<(), AssembleError> {
    let (Some((lower, _)), Some(upper)) = (
        uri.spec.volume(),
        pools.iter().find(|open| open.uuid == pool),
    ) else {
        return Ok(());
    };
    let drive = || uri.to_string();
    if !upper.takes_volumes {
        return Err(AssembleError::TakesNoVolumes { drive: drive() });
    }
    let lower = pools.iter().find(|open| open.name == lower);
    match lower.and_then(|lower| chain(lower, pool, pools)) {
        Some(down) => {
            let circle = std::iter::once(&*upper.name).chain(down);
            Err(AssembleError::Circle {
                drive: drive(),
                circle: circle.map(str::to_owned).collect(),
            })
        }
        None => Ok(()),
    }
}

/// The names of pools in an order in which they can be closed: those above come before those below.
#[must_use]
pub fn upper_first(pools: &[OpenPool]) -> Vec<String> {
    let mut left: Vec<OpenPool> = pools.to_vec();
    let mut order = Vec::new();
    while !left.is_empty() {
        let carries = |pool: &OpenPool| above(&left, &pool.name, None).is_some();
        // There is no circle, so one of them carries none.
        let at = left.iter().position(|pool| !carries(pool)).unwrap_or(0);
        order.push(left.remove(at).name);
    }
    order
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use array::pool::SeatState;

    use super::*;
    use crate::drive::{Open, open};

    fn uuid(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    /// A pool with one volume `v`, over volumes of pools of these numbers.
    fn pool(number: u128, name: &str, lower: &[u128]) -> OpenPool {
        let drive = open(&"mem:1M".parse().unwrap(), Open::default()).unwrap();
        let member = |(number, &on): (u16, &u128)| Member {
            number,
            drive: uuid(1000),
            path: "volume:elsewhere/v".to_owned(),
            state: SeatState::Current,
            is_free: false,
            is_open: true,
            has_vanished: false,
            device: Some(Identity::Volume(uuid(100 + on))),
        };
        OpenPool {
            name: name.to_owned(),
            uuid: uuid(number),
            members: (0..).zip(lower).map(member).collect(),
            volumes: vec![OpenVolume {
                name: "v".to_owned(),
                uuid: uuid(100 + number),
                device: Arc::clone(&drive.device),
                attached: None,
            }],
            takes_volumes: true,
        }
    }

    #[test]
    fn a_circle_is_refused_with_all_of_its_pools() {
        // c stands on b and d, b on a.
        let mut pools = [
            pool(1, "a", &[]),
            pool(2, "b", &[1]),
            pool(3, "c", &[4, 2]),
            pool(4, "d", &[]),
        ];
        let refused = |pools: &[OpenPool], upper: u128, volume: &str| {
            let uri = format!("slow:volume:{volume}/v?iops=9").parse().unwrap();
            refuse_volume(&uri, uuid(upper), pools).map_err(|error| error.to_string())
        };
        for (upper, volume, circle) in [
            (1, "c", "a -> c -> b -> a"),
            (1, "b", "a -> b -> a"),
            (2, "b", "b -> b"),
        ] {
            let error = refused(&pools, upper, volume).unwrap_err();
            assert!(
                error.ends_with(&format!("circle of pools: {circle}")),
                "{error}"
            );
        }
        assert_eq!(refused(&pools, 1, "d"), Ok(()));
        assert_eq!(refused(&pools, 4, "b"), Ok(()));
        pools[3].takes_volumes = false;
        assert!(refused(&pools, 4, "b").unwrap_err().contains("only raid0"));
        // A drive that is out closes a circle as well when it comes back.
        pools[1].members[0].device = None;
        pools[1].members[0].path = "volume:a/v".to_owned();
        assert!(refused(&pools, 1, "b").is_err());
    }

    #[test]
    fn pools_above_are_found_and_close_first() {
        let pools = [
            pool(1, "a", &[]),
            pool(2, "b", &[1]),
            pool(3, "c", &[4, 2]),
            pool(4, "d", &[]),
        ];
        let upper = |pool, volume| {
            above(&pools, pool, volume).map(|(pool, member)| (&*pool.name, member.number))
        };
        assert_eq!(upper("a", None), Some(("b", 0)));
        assert_eq!(upper("b", Some("v")), Some(("c", 1)));
        assert_eq!(upper("b", Some("w")), None);
        assert_eq!(upper("c", None), None);
        assert_eq!(upper_first(&pools), ["c", "b", "a", "d"]);
    }
}
