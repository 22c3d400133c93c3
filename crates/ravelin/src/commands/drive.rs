//! `ravelin drive list | fail | offline | online | replace | add | remove | clear | wipe |
//! restore-label | identify | locate`.

mod identify;
mod list;
mod machine;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Subcommand;
use control::Client;
use control::api::{ChangeLabel, ChangedDrive, DriveChange, RestoredLabel, WipedDrive};
use control::client::path;
use engine::assemble::RemovalPlan;
use serde_json::json;

use super::common::{Context, Failure, Moves, absolute, count, drive_state};
use super::complete;
use super::examples;

/// Take drives of a pool out, bring them in, replace and wipe them.
#[derive(Debug, Subcommand)]
pub(crate) enum DriveCommand {
    /// List the drives of pools: seat, state, size, serial number, WWN and slot.
    #[command(visible_alias = "ls")]
    #[command(after_long_help = examples::DRIVE_LIST)]
    List {
        /// One pool only.
        #[arg(add = complete::pools())]
        pool: Option<String>,
        /// Ask `smartctl` for temperatures and SMART's verdict, for some seconds at most (needs root).
        #[arg(long)]
        smart: bool,
        /// Read a copied tree (its `sys`, `dev`, `run`) instead of this machine.
        #[arg(long, value_name = "DIR", hide = true)]
        sysroot: Option<PathBuf>,
    },
    /// Switch on the light of the slot that a drive is in, to find it in a rack (needs root).
    #[command(after_long_help = examples::DRIVE_LOCATE)]
    Locate {
        /// The pool.
        #[arg(add = complete::pools())]
        pool: String,
        /// Its seat's number, or its name.
        #[arg(value_name = "SEAT-or-PATH", add = complete::members())]
        drive: String,
        /// Switch it off.
        #[arg(long)]
        off: bool,
        /// Read a copied tree (its `sys`, `dev`, `run`) instead of this machine.
        #[arg(long, value_name = "DIR", hide = true)]
        sysroot: Option<PathBuf>,
    },
    /// Take a drive out for good; what it held is rebuilt onto spare space.
    #[command(after_long_help = examples::DRIVE_FAIL)]
    Fail {
        /// The pool.
        #[arg(add = complete::pools())]
        pool: String,
        /// Its seat's number, or its name.
        #[arg(value_name = "SEAT-or-PATH", add = complete::members())]
        drive: String,
        /// Even though data is lost.
        #[arg(long)]
        force: bool,
    },
    /// Take a drive out for maintenance. Spares wait, nothing is rebuilt, and when it comes back it gets what it
    /// missed.
    #[command(after_long_help = examples::DRIVE_OFFLINE)]
    Offline {
        /// The pool.
        #[arg(add = complete::pools())]
        pool: String,
        /// Its seat's number, or its name.
        #[arg(value_name = "SEAT-or-PATH", add = complete::members())]
        drive: String,
        /// Even though data cannot be read meanwhile.
        #[arg(long)]
        force: bool,
        /// Do not wait for it: rebuild what it held onto spares now, as `drive fail` does.
        #[arg(long)]
        rebuild: bool,
    },
    /// Bring a drive back that is out. The drive is known by its label, whatever its name is by now.
    #[command(after_long_help = examples::DRIVE_ONLINE)]
    Online {
        /// The pool.
        #[arg(add = complete::pools())]
        pool: String,
        /// Its seat's number, or its name.
        #[arg(value_name = "SEAT-or-PATH", add = complete::members())]
        drive: String,
        /// Even if the drive was in use elsewhere meanwhile: what that wrote is lost once the pool's name is typed.
        #[arg(long)]
        force: bool,
        /// With --force: do not ask for the pool's name.
        #[arg(long)]
        yes: bool,
    },
    /// Put a new drive into the seat of an old one.
    #[command(after_long_help = examples::DRIVE_REPLACE)]
    Replace {
        /// The pool.
        #[arg(add = complete::pools())]
        pool: String,
        /// The old drive: its seat's number, or its name.
        #[arg(add = complete::members())]
        old: String,
        /// The new drive; NEW@DOMAIN#SLOT names its enclosure and bay.
        #[arg(add = complete::drives())]
        new: String,
        /// Even if the new drive holds something: what that is is shown, and lost once the pool's name is typed.
        #[arg(long)]
        force: bool,
        /// With --force: do not ask for the pool's name.
        #[arg(long)]
        yes: bool,
    },
    /// Add a spare drive.
    #[command(after_long_help = examples::DRIVE_ADD)]
    Add {
        /// The pool.
        #[arg(add = complete::pools())]
        pool: String,
        /// The drive; DRIVE@DOMAIN#SLOT names its enclosure and bay.
        #[arg(add = complete::drives())]
        drive: String,
        /// Even if the drive holds something: what that is is shown, and lost once the pool's name is typed.
        #[arg(long)]
        force: bool,
        /// With --force: do not ask for the pool's name.
        #[arg(long)]
        yes: bool,
    },
    /// Remove a drive from a pool; its label goes, and the drive is free. A spare is removed at once. What another drive
    /// of a pool of pieces has moves to the other drives first, which `pool wait --for remove` waits for and `drive online`
    /// calls off.
    #[command(after_long_help = examples::DRIVE_REMOVE)]
    Remove {
        /// The pool.
        #[arg(add = complete::pools())]
        pool: String,
        /// Its seat's number, or its name.
        #[arg(value_name = "SEAT-or-PATH", add = complete::members())]
        drive: String,
        /// Show what would move and what room is left, and change nothing.
        #[arg(short = 'n', long)]
        dry_run: bool,
    },
    /// Forget the errors of a drive; one that is out because of errors or slowness comes back.
    #[command(after_long_help = examples::DRIVE_CLEAR)]
    Clear {
        /// The pool.
        #[arg(add = complete::pools())]
        pool: String,
        /// Its seat's number, or its name.
        #[arg(value_name = "SEAT-or-PATH", add = complete::members())]
        drive: String,
    },
    /// Remove labels and signatures from a drive that belongs to no open pool: what it holds is lost.
    #[command(after_long_help = examples::DRIVE_WIPE)]
    Wipe {
        /// The drive.
        #[arg(add = complete::drives())]
        drive: String,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
    /// Give a drive its label back, after `drive wipe` or where something has overwritten it. Not after another use.
    #[command(after_long_help = examples::DRIVE_RESTORE_LABEL)]
    RestoreLabel {
        /// The drive.
        #[arg(add = complete::drives())]
        drive: String,
        /// Do not ask for the drive's name where something was written over the label, which is lost.
        #[arg(long)]
        yes: bool,
    },
    /// Say which pool and seat a drive belongs to, by its label. Reads only, and needs no daemon.
    #[command(after_long_help = examples::DRIVE_IDENTIFY)]
    Identify {
        /// The drive.
        #[arg(add = complete::drives())]
        drive: String,
        /// Print properties for udev's rule: KEY=VALUE lines, or nothing if the drive has no label.
        #[arg(long)]
        udev: bool,
    },
}

/// A change that is requested of a pool.
struct Asked {
    verb: &'static str,
    pool: String,
    request: DriveChange,
    /// Do not ask for the pool's name.
    yes: bool,
}

impl DriveCommand {
    /// Sends the request to the daemon and prints the result.
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client();
        match self {
            Self::Identify { drive, udev } => identify::run(context, &drive, udev),
            Self::List {
                pool,
                smart,
                sysroot,
            } => list::list(context, &client, pool, smart, sysroot),
            Self::Locate {
                pool,
                drive,
                off,
                sysroot,
            } => list::locate(context, &client, (&pool, &drive), off, sysroot),
            Self::RestoreLabel { drive, yes } => {
                restore_label(context, &client, &absolute(&drive), yes)
            }
            change_or_wipe => match change_or_wipe.asked() {
                Ok(asked) => change(context, &client, asked),
                Err((drive, yes)) => wipe(context, &client, &drive, yes),
            },
        }
    }

    /// The change that is requested of a pool; or, as an error, the drive to wipe and `yes`.
    fn asked(self) -> Result<Asked, (String, bool)> {
        let plain = |verb, pool, drive: String, force| Asked {
            verb,
            pool,
            request: DriveChange {
                // A number is a seat, not the name of a file.
                drive: match drive.parse::<u16>() {
                    Ok(seat) => seat.to_string(),
                    Err(_) => absolute(&drive),
                },
                force,
                ..DriveChange::default()
            },
            yes: false,
        };
        Ok(match self {
            Self::Fail { pool, drive, force } => plain("fail", pool, drive, force),
            Self::Offline {
                pool,
                drive,
                force,
                rebuild,
            } => {
                let mut asked = plain("offline", pool, drive, force);
                asked.request.rebuild = rebuild;
                asked
            }
            Self::Online {
                pool,
                drive,
                force,
                yes,
            } => Asked {
                yes,
                ..plain("online", pool, drive, force)
            },
            Self::Remove {
                pool,
                drive,
                dry_run,
            } => {
                let mut asked = plain("remove", pool, drive, false);
                asked.request.dry_run = dry_run;
                asked
            }
            Self::Clear { pool, drive } => plain("clear", pool, drive, false),
            Self::Replace {
                pool,
                old,
                new,
                force,
                yes,
            } => {
                let mut asked = plain("replace", pool, old, force);
                asked.request.new = Some(absolute(&new));
                Asked { yes, ..asked }
            }
            Self::Add {
                pool,
                drive,
                force,
                yes,
            } => {
                let mut asked = plain("add", pool, String::new(), force);
                asked.request.drive = absolute(&drive);
                Asked { yes, ..asked }
            }
            Self::Wipe { drive, yes } => return Err((absolute(&drive), yes)),
            Self::Identify { .. }
            | Self::RestoreLabel { .. }
            | Self::List { .. }
            | Self::Locate { .. } => {
                unreachable!("these change no pool")
            }
        })
    }
}

fn change(context: &Context, client: &Client, asked: Asked) -> Result<(), Failure> {
    let Asked {
        verb,
        pool,
        mut request,
        yes,
    } = asked;
    let at = path(&["pools", &pool, "drives", verb]);
    let takes_a_drive = matches!(verb, "add" | "replace" | "online");
    let mut overwrites = Vec::new();
    if request.force && takes_a_drive {
        request.dry_run = true;
        let plan: ChangedDrive = client.send("POST", &at, &request)?;
        request.dry_run = false;
        overwrites = plan.overwrites;
        let lost: Vec<String> = { overwrites.iter() }
            .map(|over| {
                format!(
                    "This loses what {} holds for good: {}.",
                    over.drive, over.holds
                )
            })
            .collect();
        context.confirm(&pool, &lost, yes || lost.is_empty())?;
    }
    let mut changed: ChangedDrive = client.send("POST", &at, &request)?;
    changed.overwrites = overwrites;
    let ChangedDrive {
        seat, path, state, ..
    } = &changed;
    let mut fields = json!({ "pool": pool, "seat": seat, "path": path, "state": state });
    if !changed.overwrites.is_empty() {
        fields["overwrites"] = json!(changed.overwrites);
    }
    if let Some(kept) = &changed.kept {
        fields["kept"] = json!(kept);
    }
    if let Some(plan) = &changed.plan {
        fields["plan"] = json!(plan);
        fields["dry_run"] = json!(request.dry_run);
    }
    context.print(&format!("drive {verb}"), &fields, |out| {
        if let (true, Some(kept)) = (verb == "remove", &changed.kept) {
            return writeln!(
                out,
                "pool `{pool}`: seat {seat} is no spare any more; {path} is another drive by now and stays as it is: {kept}"
            );
        }
        if let Some(plan) = &changed.plan {
            return leaves(out, &pool, (*seat, path), plan, request.dry_run);
        }
        if verb == "remove" && request.dry_run {
            return writeln!(
                out,
                "pool `{pool}` without the spare {path}, nothing written"
            );
        }
        if verb == "remove" {
            return writeln!(out, "pool `{pool}`: {path} is no spare any more, and free");
        }
        let state = match state.as_str() {
            "waiting" => "a spare",
            state => drive_state(state),
        };
        writeln!(out, "pool `{pool}`, seat {seat}: {path} is {state}")
    })
}

/// A drive of the layout is being removed, or would be.
fn leaves(
    out: &mut dyn Write,
    pool: &str,
    (seat, path): (u16, &str),
    plan: &RemovalPlan,
    dry_run: bool,
) -> io::Result<()> {
    match dry_run {
        true => writeln!(
            out,
            "pool `{pool}` without seat {seat} ({path}), nothing written:"
        )?,
        false => writeln!(out, "pool `{pool}`, seat {seat}: {path} is being removed")?,
    }
    let moves = Moves {
        pieces: plan.pieces,
        bytes: plan.moved_bytes,
        seconds: plan.seconds,
        bound: &plan.bound,
        drive_bytes_per_second: plan.drive_bytes_per_second,
        capacity_bytes_before: plan.capacity_bytes_before,
        capacity_bytes: plan.capacity_bytes,
    };
    moves.write(out)?;
    let drives = |number: u16| count(number.into(), "a failed drive", "failed drives");
    writeln!(
        out,
        "  room for: {} afterwards, {} before",
        drives(plan.spare_drives),
        drives(plan.spare_drives_before)
    )?;
    match dry_run {
        true => Ok(()),
        false => writeln!(
            out,
            "`ravelin pool wait {pool} --for remove` waits for the end"
        ),
    }
}

fn wipe(context: &Context, client: &Client, drive: &str, yes: bool) -> Result<(), Failure> {
    let mut request = ChangeLabel {
        drive: drive.to_owned(),
        confirm: None,
        dry_run: true,
    };
    let plan: WipedDrive = client.send("POST", "drives/wipe", &request)?;
    let holds = plan.holds.as_deref();
    let lost = format!(
        "This loses what {drive} holds for good: {}.",
        holds.unwrap_or("nothing that is known here")
    );
    context.confirm_by("drive", drive, &[lost], yes)?;
    request.dry_run = false;
    request.confirm = Some(request.drive.clone());
    let wiped: WipedDrive = client.send("POST", "drives/wipe", &request)?;
    context.print("drive wipe", &wiped, |out| match &wiped.holds {
        Some(held) if wiped.restorable => writeln!(
            out,
            "{drive} is wiped; it held {held}; until it is used again, `ravelin drive restore-label {drive}` gives it its label back"
        ),
        Some(held) => writeln!(out, "{drive} is wiped; it held {held}"),
        None => writeln!(out, "{drive} is wiped"),
    })
}

fn restore_label(
    context: &Context,
    client: &Client,
    drive: &str,
    yes: bool,
) -> Result<(), Failure> {
    let mut request = ChangeLabel {
        drive: drive.to_owned(),
        confirm: None,
        dry_run: true,
    };
    let plan: RestoredLabel = client.send("POST", "drives/restore-label", &request)?;
    if let Some(over) = &plan.over {
        let lost = format!("This loses what was written over the label of {drive}: {over}.");
        context.confirm_by("drive", drive, &[lost], yes)?;
    }
    request.dry_run = false;
    request.confirm = Some(request.drive.clone());
    let restored: RestoredLabel = client.send("POST", "drives/restore-label", &request)?;
    context.print("drive restore-label", &restored, |out| {
        let RestoredLabel { pool, seat, .. } = &restored;
        writeln!(
            out,
            "{drive} is the drive of seat {seat} of pool `{pool}` again"
        )
    })
}
