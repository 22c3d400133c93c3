//! `ravelin pool create`.

use std::collections::BTreeSet;
use std::path::Path;

use block::{ByteSize, Hint, closest};
use clap::Args;
use control::Client;
use control::api::{CreatePool, CreatedPool};

use crate::commands::common::{Context, Failure, absolute, bad_scheme, size};
use crate::commands::{complete, plan};

/// Create a pool of drives.
#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    /// Its name.
    name: String,
    /// Its scheme, such as raid6 or pddl2:8d:22c:2s.
    #[arg(add = complete::schemes())]
    scheme: String,
    /// Drives, and behind the word `spare` those that wait. DRIVE@DOMAIN names an enclosure,
    /// DRIVE@DOMAIN#SLOT also the bay.
    #[arg(required = true, value_name = "DRIVE", add = complete::drives())]
    drives: Vec<String>,
    /// Options: chunk=SIZE, cell=SIZE (or piece=SIZE), code=NAME, elastic=on, expansion=RATIO.
    #[arg(short = 'o', value_name = "KEY=VALUE")]
    options: Vec<String>,
    /// Show the plan with its capacity and write nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// With --force: do not ask for the pool's name.
    #[arg(long)]
    yes: bool,
    /// Use drives that hold something, too: what is on them is listed, and lost once the pool's name is typed.
    #[arg(short = 'f', long)]
    force: bool,
}

impl CreateArguments {
    pub(super) fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let (name, yes, dry_run) = (self.name.clone(), self.yes, self.dry_run);
        let mut request = self.request()?;
        if request.force && !dry_run {
            request.dry_run = true;
            let plan: CreatedPool = client.send("POST", "pools", &request)?;
            if !plan.overwrites.is_empty() {
                context.confirm(&name, &lost(&plan), yes)?;
            }
        }
        request.dry_run = dry_run;
        let made: CreatedPool = client.send("POST", "pools", &request)?;
        context.print("pool create", &made, |out| {
            let arithmetic = &made.arithmetic;
            if made.created {
                writeln!(out, "pool `{name}` is created: {arithmetic}")?;
                return plan::write(out, &made.plan);
            }
            writeln!(out, "pool `{name}` as {}, nothing written:", made.scheme)?;
            writeln!(out, "  {arithmetic}")?;
            plan::write(out, &made.plan)?;
            for line in lost(&made) {
                writeln!(out, "{line}")?;
            }
            Ok(())
        })
    }

    fn request(self) -> Result<CreatePool, Failure> {
        let what = format!("pool `{}` was not created", self.name);
        let mut request = CreatePool {
            name: self.name,
            scheme: self.scheme,
            force: self.force,
            ..CreatePool::default()
        };
        let mut parts = self.drives.split(|drive| drive == "spare");
        if self.drives.last().is_some_and(|last| last == "spare") {
            return Err(Failure::usage(
                what,
                "`spare` has no drives behind it",
                "name the spare drives after it, or leave it out",
            ));
        }
        let absolute = |drives: &[String]| drives.iter().map(|drive| absolute(drive)).collect();
        request.drives = absolute(parts.next().unwrap_or_default());
        request.spares = parts
            .flat_map(|drives| -> Vec<String> { absolute(drives) })
            .collect();
        let mut said = BTreeSet::new();
        let (mut journal, mut checksum) = ("data", "on");
        let (mut elastic, mut expansion) = (None, None);
        for option in &self.options {
            let (key, value) = option.split_once('=').ok_or_else(|| {
                Failure::usage(
                    &*what,
                    format!("`-o {option}` has no value"),
                    "write -o KEY=VALUE",
                )
            })?;
            let key = if key == "piece" { "cell" } else { key };
            if !said.insert(key.to_owned()) {
                return Err(Failure::usage(
                    what,
                    format!("`-o {key}=` is given twice"),
                    "leave one of them out",
                ));
            }
            let bytes = || match value.parse::<ByteSize>() {
                Ok(size) => Ok(Some(size.0)),
                Err(error) => {
                    let hint = error.hint().unwrap_or_default();
                    Err(Failure::usage(&*what, format!("-o {key}: {error}"), hint))
                }
            };
            let choice = |choices: [&'static str; 2]| {
                let found = choices.into_iter().find(|&choice| choice == value);
                found.ok_or_else(|| {
                    Failure::usage(
                        &*what,
                        format!("`-o {key}={value}`: there is no such choice"),
                        format!("{} or {}", choices[0], choices[1]),
                    )
                })
            };
            match key {
                "chunk" => request.chunk_bytes = bytes()?,
                "cell" => request.cell_bytes = bytes()?,
                // A code is a word of the scheme: append it.
                "code" => request.scheme = format!("{}:{value}", request.scheme),
                "journal" => journal = choice(["data", "intent"])?,
                "checksum" => checksum = choice(["on", "off"])?,
                "elastic" => elastic = Some(choice(["on", "off"])? == "on"),
                "expansion" => {
                    let number = value.trim_end_matches(['x', 'X']);
                    if !number.starts_with(|first: char| first.is_ascii_digit())
                        || number.parse::<f64>().is_err()
                    {
                        return Err(Failure::usage(
                            what,
                            format!("`-o expansion={value}` is not a ratio"),
                            "1 to 16 with up to three decimals, such as 1.8",
                        ));
                    }
                    expansion = Some(number.to_owned());
                }
                _ => {
                    let known = [
                        "chunk",
                        "cell",
                        "piece",
                        "code",
                        "journal",
                        "checksum",
                        "elastic",
                        "expansion",
                    ];
                    let all =
                        "chunk=, cell=, piece=, code=, journal=, checksum=, elastic= or expansion=";
                    return Err(Failure::usage(
                        what,
                        format!("there is no option `{key}`"),
                        match closest(key, known) {
                            Some(close) => format!("`{close}=`; there are {all}"),
                            None => all.to_owned(),
                        },
                    ));
                }
            }
        }
        if elastic == Some(false) && expansion.is_some() {
            return Err(Failure::usage(
                what,
                "`-o expansion=` is for elastic pools, and `-o elastic=off` says that this is none",
                "leave one of them out",
            ));
        }
        // Both are parts of the scheme, too.
        if elastic == Some(true) && expansion.is_none() {
            request.scheme = format!("{}:elastic", request.scheme);
        }
        if let Some(expansion) = expansion {
            request.scheme = format!("{}:{expansion}x", request.scheme);
        }
        request.unprotected = match (journal, checksum) {
            ("data", "on") => false,
            ("intent", "off") => true,
            _ => {
                return Err(Failure::usage(
                    what,
                    format!(
                        "`-o journal={journal} -o checksum={checksum}`: one without the other is not supported"
                    ),
                    "leave both out, or say `-o journal=intent -o checksum=off`",
                ));
            }
        };
        if request.unprotected {
            eprintln!(
                "given up by journal=intent and checksum=off: after a power cut, what was being written while \
                 a drive is missing can be lost together with its neighbours in the stripe, all parity is \
                 computed anew, and bytes that a drive changes without an error are not detected"
            );
        }
        // The daemon checks the same. A scheme that cannot be parsed is reported here, also without a daemon.
        if let Err(error) = request.scheme.parse::<layout::Scheme>() {
            // If the scheme was left out, the first drive is in its place.
            if request.scheme.contains('/') || Path::new(&request.scheme).exists() {
                return Err(Failure::usage(
                    what,
                    format!(
                        "no scheme was given: `{}` is a drive's name",
                        request.scheme
                    ),
                    "`ravelin pool create NAME SCHEME DRIVE…`; `ravelin advise DRIVE…` compares schemes for your drives",
                ));
            }
            let drives = u16::try_from(request.drives.len()).unwrap_or(u16::MAX);
            let part = error.span();
            let error = error.with_drives(drives);
            return Err(Failure::Refused {
                problem: Box::new(bad_scheme(&what, &request.scheme, &error, part)),
                usage: true,
            });
        }
        Ok(request)
    }
}

fn lost(plan: &CreatedPool) -> Vec<String> {
    if plan.overwrites.is_empty() {
        return Vec::new();
    }
    let head = format!(
        "Pool `{}` ({}) takes drives that hold something, and that is lost for good:",
        plan.name,
        size(plan.capacity_bytes)
    );
    let overwrites = plan.overwrites.iter();
    let lines = overwrites.map(|over| format!("  {}  {}", over.drive, over.holds));
    std::iter::once(head).chain(lines).collect()
}
