//! `ravelin drive fail | offline | online | replace | add`.

use clap::Subcommand;
use control::api::{ChangedDrive, DriveChange};
use control::client::path;
use serde_json::json;

use super::common::{Context, Failure, absolute};

/// Take drives of a pool out and bring them in.
#[derive(Debug, Subcommand)]
pub(crate) enum DriveCommand {
    /// Take a drive out for good; what it held is rebuilt onto spare space.
    Fail {
        /// The pool.
        pool: String,
        /// Its seat's number, or its name.
        #[arg(value_name = "SEAT-or-PATH")]
        drive: String,
        /// Even though data is lost.
        #[arg(long)]
        force: bool,
    },
    /// Take a drive out for a while.
    Offline {
        /// The pool.
        pool: String,
        /// Its seat's number, or its name.
        #[arg(value_name = "SEAT-or-PATH")]
        drive: String,
        /// Even though data cannot be read meanwhile.
        #[arg(long)]
        force: bool,
    },
    /// Bring a drive back that is out.
    Online {
        /// The pool.
        pool: String,
        /// Its seat's number, or its name.
        #[arg(value_name = "SEAT-or-PATH")]
        drive: String,
    },
    /// Put a new drive into the seat of an old one.
    Replace {
        /// The pool.
        pool: String,
        /// The old drive: its seat's number, or its name.
        old: String,
        /// The new drive.
        new: String,
        /// Even if the new drive holds something.
        #[arg(long)]
        force: bool,
    },
    /// Add a drive that waits as a spare.
    Add {
        /// The pool.
        pool: String,
        /// The drive.
        drive: String,
        /// Even if the drive holds something.
        #[arg(long)]
        force: bool,
    },
}

impl DriveCommand {
    /// Asks the daemon and prints what came of it.
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let (verb, pool, drive, new, force) = match self {
            Self::Fail { pool, drive, force } => ("fail", pool, drive, None, force),
            Self::Offline { pool, drive, force } => ("offline", pool, drive, None, force),
            Self::Online { pool, drive } => ("online", pool, drive, None, false),
            Self::Replace {
                pool,
                old,
                new,
                force,
            } => ("replace", pool, old, Some(absolute(&new)), force),
            Self::Add { pool, drive, force } => ("add", pool, drive, None, force),
        };
        let seat: Result<u16, _> = drive.parse();
        let request = DriveChange {
            drive: match (verb, seat) {
                ("add", _) | (_, Err(_)) => absolute(&drive),
                (_, Ok(seat)) => seat.to_string(),
            },
            new,
            force,
        };
        let at = path(&["pools", &pool, "drives", verb]);
        let changed: ChangedDrive = context.client().send("POST", &at, &request)?;
        let ChangedDrive { seat, path, state } = &changed;
        let fields = json!({ "pool": pool, "seat": seat, "path": path, "state": state });
        context.print(&format!("drive {verb}"), &fields, |out| {
            writeln!(out, "pool `{pool}`, seat {seat}: {path} is {state}")
        })
    }
}
