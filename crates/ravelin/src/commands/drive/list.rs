//! `ravelin drive list` and `ravelin drive locate`.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use control::Client;
use control::api::Status;
use control::client::path;
use engine::status::SeatStatus;
use serde_json::{Value, json};

use super::machine::{self, Identity, Machine, Smart};
use crate::commands::common::{Context, Failure, absolute, seat_state, size};
use crate::commands::pool::{self, table};

/// A drive and what the machine knows of it.
struct Line {
    pool: String,
    seat: SeatStatus,
    identity: Identity,
    smart: Smart,
}

impl Line {
    /// The slot as the machine names it now; else as the pool knows it.
    fn slot(&self) -> Option<String> {
        let seat = &self.seat;
        let of_pool = || {
            let enclosure = seat.enclosure.as_ref().or(seat.domain.as_ref())?;
            Some(format!("{enclosure}/{}", seat.slot?))
        };
        self.identity.slot.clone().or_else(of_pool)
    }

    fn fields(&self, with_smart: bool) -> Value {
        let mut fields = json!({
            "pool": self.pool,
            "seat": self.seat.seat,
            "path": self.seat.path,
            "drive": self.seat.drive,
            "state": self.seat.state,
            "size_bytes": self.seat.size_bytes,
            "domain": self.seat.domain,
            "serial": self.identity.serial,
            "wwn": self.identity.wwn,
            "slot": self.slot(),
        });
        if with_smart {
            fields["temperature_celsius"] = json!(self.smart.celsius);
            fields["smart_passed"] = json!(self.smart.passed);
        }
        fields
    }

    fn cells(&self, with_smart: bool) -> Vec<String> {
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let mut cells = vec![
            self.pool.clone(),
            self.seat.seat.to_string(),
            self.seat.path.clone(),
            seat_state(&self.seat).to_owned(),
            size(self.seat.size_bytes),
            known(&self.identity.serial),
            known(&self.identity.wwn),
            known(&self.slot()),
        ];
        if with_smart {
            cells.push(known(
                &self.smart.celsius.map(|degrees| format!("{degrees} °C")),
            ));
            cells.push(match self.smart.passed {
                Some(true) => "passed".to_owned(),
                Some(false) => "FAILING".to_owned(),
                None => "-".to_owned(),
            });
        }
        cells
    }
}

/// `drive list`.
pub(super) fn list(
    context: &Context,
    client: &Client,
    pool: Option<String>,
    with_smart: bool,
    sysroot: Option<PathBuf>,
) -> Result<(), Failure> {
    let pools = pool::names(client, pool)?;
    let machine = Machine::new(sysroot);
    let (mut lines, mut disks) = (Vec::new(), Vec::new());
    for pool in pools {
        let status: Status = client.get(&path(&["pools", &pool, "status"]))?;
        for seat in status.pool.seats {
            let disk = machine.disk(&seat.path);
            let identity = disk.as_deref().map(|disk| machine.identity(disk));
            disks.push(disk);
            lines.push(Line {
                pool: pool.clone(),
                seat,
                identity: identity.unwrap_or_default(),
                smart: Smart::default(),
            });
        }
    }
    if with_smart {
        if machine::has_smart() {
            for (line, smart) in lines.iter_mut().zip(machine::smart(&disks)) {
                line.smart = smart;
            }
        } else {
            io::Write::write_all(
                &mut io::stderr(),
                b"note: there is no `smartctl`; the package smartmontools has it\n",
            )?;
        }
    }
    let fields: Vec<Value> = { lines.iter() }
        .map(|line| line.fields(with_smart))
        .collect();
    context.print("drive list", &json!({ "drives": fields }), |out| {
        if lines.is_empty() {
            return writeln!(out, "no drives");
        }
        let mut head = vec![
            "POOL", "SEAT", "DRIVE", "STATE", "SIZE", "SERIAL", "WWN", "SLOT",
        ];
        if with_smart {
            head.extend(["TEMPERATURE", "SMART"]);
        }
        let mut rows = table(&head);
        for line in &lines {
            rows.add_row(line.cells(with_smart));
        }
        writeln!(out, "{rows}")
    })
}

/// `drive locate`.
pub(super) fn locate(
    context: &Context,
    client: &Client,
    (pool, drive): (&str, &str),
    off: bool,
    sysroot: Option<PathBuf>,
) -> Result<(), Failure> {
    let status: Status = client.get(&path(&["pools", pool, "status"]))?;
    let what = format!("the light of drive {drive} of pool `{pool}` was not switched");
    let own = absolute(drive);
    let mut seats = status.pool.seats.iter();
    let seat = seats.find(|seat| match drive.parse::<u16>() {
        Ok(number) => seat.seat == number,
        Err(_) => seat.path == own,
    });
    let Some(seat) = seat else {
        return Err(Failure::failed(
            what,
            format!("pool `{pool}` has no such drive"),
            format!("`ravelin drive list {pool}` shows its drives"),
        ));
    };
    let machine = Machine::new(sysroot);
    let Some(disk) = machine.disk(&seat.path) else {
        return Err(Failure::failed(
            what,
            format!(
                "{} is no disk of this machine, so it has no light",
                seat.path
            ),
            format!("`ravelin drive list {pool}` shows where its drives are"),
        ));
    };
    let by = match machine.light(&disk) {
        Some(light) => {
            let value: &[u8] = if off { b"0" } else { b"1" };
            std::fs::write(&light, value).map_err(|error| {
                let why = format!("{}: {error}", light.display());
                Failure::failed(&*what, why, "run it as root")
            })?;
            light.display().to_string()
        }
        None => ledctl(&disk, off).map_err(|(why, hint)| Failure::failed(&*what, why, hint))?,
    };
    let light = if off { "off" } else { "on" };
    let fields = json!({
        "pool": pool, "seat": seat.seat, "path": seat.path, "light": light, "by": by,
    });
    context.print("drive locate", &fields, |out| {
        writeln!(
            out,
            "pool `{pool}`, seat {}: the light of {} is {light}",
            seat.seat, seat.path
        )
    })
}

/// Switches the light by `ledctl`, which knows controllers that have no enclosure in `/sys`.
fn ledctl(disk: &str, off: bool) -> Result<String, (String, String)> {
    let pattern = if off { "locate_off" } else { "locate" };
    let none = format!("no slot in /sys/class/enclosure has {disk}");
    let ran = Command::new("ledctl")
        .arg(format!("{pattern}=/dev/{disk}"))
        .stdin(Stdio::null())
        .output();
    match ran {
        Ok(ran) if ran.status.success() => Ok("ledctl".to_owned()),
        Ok(ran) => {
            let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
            let why = format!("{none}, and ledctl says: {said}");
            Err((
                why,
                "find it by its serial number: `ravelin drive list`".to_owned(),
            ))
        }
        Err(error) => Err((
            format!("{none}, and ledctl cannot be run: {error}"),
            "install ledmon, or find it by its serial number: `ravelin drive list`".to_owned(),
        )),
    }
}
