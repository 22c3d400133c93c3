//! Pools that get more drives in their layout.

use block::Seat;
use engine::assemble::{self, Access, Command, ExpandPlan, Permitted};
use engine::drive::{Drive, DriveUri};

use super::Daemon;
use super::drives::{At, typed};
use super::stacks::is_volume;
use crate::Failure;
use crate::api::{ExpandPool, ExpandedPool, Overwrite};

/// The drives that a request names.
struct Named<'a> {
    fresh: Vec<&'a str>,
    /// Spares of the pool that wait, by their numbers.
    waiting: Vec<Seat>,
}

/// Refuses a drive, or a slot, that is named twice.
fn refuse_twice(names: &[&str], what: &str) -> Result<(), Failure> {
    let uris = names.iter().map(|name| typed(name, what));
    let uris = uris.collect::<Result<Vec<DriveUri>, _>>()?;
    for (index, uri) in uris.iter().enumerate() {
        for other in &uris[..index] {
            // Drives in memory have no names of their own.
            let same =
                uri.spec.place().is_some() && uri.absolute().is_same_drive(&other.absolute());
            let why = match (&uri.domain, uri.slot) {
                _ if same => format!("{uri} is named twice"),
                (Some(domain), Some(slot))
                    if (&uri.domain, uri.slot) == (&other.domain, other.slot) =>
                {
                    format!("slot {slot} of `{domain}` is named twice")
                }
                _ => continue,
            };
            return Err(Failure::request(what, why, "name each drive once"));
        }
    }
    Ok(())
}

impl Daemon {
    /// Takes drives into the layout of a pool: fresh ones, and spares that wait.
    pub fn expand(&self, name: &str, request: &ExpandPool) -> Result<ExpandedPool, Failure> {
        let what = format!("pool `{name}` was not expanded");
        let _taken = self.takes_volumes(request.drives.iter().any(|drive| is_volume(drive)));
        let handle = self.handle(name, &what)?;
        let at = At {
            handle: &handle,
            what: &what,
        };
        let named = at.named(&request.drives)?;
        let open = |access| -> Result<Vec<Permitted>, Failure> {
            let names = named.fresh.iter();
            names
                .map(|name| self.permitted(&at, (Command::Add, None), name, request.force, access))
                .collect()
        };
        let found = open(Access::Read)?;
        let mut overwrites = Vec::new();
        for Permitted { drive, holds } in &found {
            let drive = drive.uri.to_string();
            overwrites.extend(holds.clone().map(|holds| Overwrite { drive, holds }));
        }
        let drives: Vec<Drive> = found.into_iter().map(|found| found.drive).collect();
        let plan = at.plan(&drives, &named.waiting)?;
        // They are opened again for writing.
        drop(drives);
        if !request.dry_run {
            tracing::info!(pool = name, drives = ?request.drives, "expansion asked");
            let drives: Vec<Drive> = { open(Access::Write)?.into_iter() }
                .map(|found| found.drive)
                .collect();
            for drive in &drives {
                assemble::forget_earlier_life(drive)
                    .map_err(|error| Failure::assemble(&what, &error, ""))?;
            }
            let expanded = handle.expand(drives.clone(), named.waiting);
            // Also after a failure the pool may have the drives, as spares.
            self.remember(name);
            expanded.map_err(|error| Failure::pool(&what, &error))?;
            drives.iter().for_each(engine::drive::show_to_udev);
        }
        Ok(ExpandedPool {
            name: name.to_owned(),
            expanded: !request.dry_run,
            plan,
            overwrites,
        })
    }
}

impl At<'_> {
    /// A number is that of a spare, and so is the name of a drive that waits in the pool.
    fn named<'a>(&self, names: &'a [String]) -> Result<Named<'a>, Failure> {
        let mut named = Named {
            fresh: Vec::new(),
            waiting: Vec::new(),
        };
        for name in names {
            if name.parse::<u16>().is_ok() {
                named.waiting.push(Seat(self.seat(name)?.seat));
                continue;
            }
            let stored = typed(name, self.what)?.spec.place().is_some();
            let spare = || self.seat(name).ok().filter(|seat| seat.state == "waiting");
            match stored.then(spare).flatten() {
                Some(seat) => named.waiting.push(Seat(seat.seat)),
                None => named.fresh.push(name),
            }
        }
        refuse_twice(&named.fresh, self.what)?;
        Ok(named)
    }

    fn plan(&self, drives: &[Drive], waiting: &[Seat]) -> Result<ExpandPlan, Failure> {
        let planned = self.handle.plan_expand(drives, waiting.to_vec());
        planned.map_err(|error| Failure::pool(self.what, &error))
    }
}
