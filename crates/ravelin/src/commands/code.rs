//! `ravelin code list | show | verify | bench`: shows, tests and measures erasure codes.

mod bench;
mod draw;

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use block::Hint;
use clap::{Args, Subcommand};
use erasure::{
    Code, CodeError, Element, Equation, FAMILIES, NAMES, Order, Parameter, Verified, VerifyError,
    by_columns, by_parameter_in, kernel, verify,
};
use serde_json::{Value, json};

use super::common::{CHECK_OUTPUT, colours, print_document, stdout};
use super::complete;
use super::examples;

/// Look at erasure codes: list them, show one, put them to the test, measure them.
#[derive(Debug, Subcommand)]
pub(crate) enum CodeCommand {
    /// List the codes and what they survive.
    #[command(after_long_help = examples::CODE_LIST)]
    List,
    /// Draw a code's stripe and its equations.
    #[command(after_long_help = examples::CODE_SHOW)]
    Show {
        /// A code, such as dcode:7 or pq:8:zfs: a prime for array codes, else data columns.
        #[arg(value_name = "NAME[:P]", add = complete::codes())]
        code: String,
        /// Add a worked stripe: one byte an element, data[i] = (37 i + 11) mod 256.
        #[arg(long)]
        example: bool,
    },
    /// Lose every set of columns, with real bytes on every kernel, and see what comes back.
    #[command(after_long_help = examples::CODE_VERIFY)]
    Verify(VerifyArguments),
    /// Measure encoding and decoding in this machine's caches and memory.
    #[command(after_long_help = examples::CODE_BENCH)]
    Bench {
        /// Codes to measure, by name; all if none is said.
        #[arg(value_name = "NAME", add = complete::codes())]
        codes: Vec<String>,
        /// Columns of a stripe, where the code has that width.
        #[arg(long, default_value_t = 8)]
        columns: u16,
    },
}

/// Which codes to verify.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct VerifyArguments {
    /// One code, such as rdp:7, or all widths and primes of one, such as rdp.
    #[arg(value_name = "NAME[:P]", add = complete::codes())]
    code: Option<String>,
    /// Every code, at every width up to 24 and for every prime up to 23.
    #[arg(long)]
    all: bool,
}

/// Why a command failed, or which test a code failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CodeCommandError {
    /// There is no such code.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// The text after the name is not a parameter.
    #[error("'{text}' is no code: behind the name come a number and, for pq and pqr, 'zfs'")]
    Syntax {
        /// The text that was given.
        text: String,
    },
    /// A code fails its test.
    #[error(transparent)]
    Broken(#[from] VerifyError),
    /// A composite number was accepted as the parameter.
    #[error(
        "{name}:{parameter} was made although {parameter} is no prime, so pairs of columns would be lost for good"
    )]
    Composite {
        /// The code.
        name: &'static str,
        /// The number.
        parameter: u16,
    },
    /// No code is left to measure.
    #[error("none of the codes has stripes of {columns} columns")]
    NoWidth {
        /// The number of columns that was asked for.
        columns: u16,
    },
    /// The terminal or pipe is gone.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

impl Hint for CodeCommandError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Code(error) => error.hint(),
            Self::Syntax { .. } => Some("dcode:7 or pq:8:zfs".into()),
            Self::Broken(error) => error.hint(),
            Self::Composite { .. } => Some("keep the code off your pools".into()),
            Self::NoWidth { .. } => Some("--columns 7 or 8".into()),
            Self::Output(_) => Some(CHECK_OUTPUT.into()),
        }
    }
}

impl CodeCommandError {
    /// 2 for wrong arguments, 1 for all other errors.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Code(_) | Self::Syntax { .. } | Self::NoWidth { .. } => 2,
            Self::Broken(_) | Self::Composite { .. } | Self::Output(_) => 1,
        }
    }
}

impl CodeCommand {
    /// Runs the command; `json` asks for one document on stdout.
    ///
    /// # Errors
    ///
    /// [`CodeCommandError`], which has an exit code.
    pub(crate) fn run(self, json: bool) -> Result<(), CodeCommandError> {
        match self {
            Self::List => list(json),
            Self::Show { code, example } => show(&code, example, json),
            Self::Verify(arguments) => run_verify(&arguments, json),
            Self::Bench { codes, columns } => bench::run(&codes, columns, json),
        }
    }
}

fn list(json: bool) -> Result<(), CodeCommandError> {
    let widths = |name| {
        (1..=24)
            .filter(|&c| by_columns(name, c).is_ok())
            .collect::<Vec<u16>>()
    };
    let tolerance = |name, widths: &[u16]| -> Result<u16, CodeError> {
        // Mirrors survive the loss of all columns but one; the other codes survive the same number at every width.
        Ok(by_columns(name, widths[0].max(2))
            .or_else(|_| by_columns(name, widths[0]))?
            .tolerance())
    };
    let mut rows = Vec::new();
    for family in FAMILIES {
        let (name, about) = (family.name, family.about);
        let widths = widths(name);
        rows.push((name, tolerance(name, &widths)?, widths, about));
    }
    if json {
        let row = |(name, tolerance, widths, about): &(&str, u16, Vec<u16>, &str)| json!({ "name": name, "tolerance": tolerance, "columns": widths, "about": about });
        let codes: Vec<Value> = rows.iter().map(row).collect();
        return Ok(print_document("code list", json!({ "codes": codes }))?);
    }
    let mut out = stdout();
    for (name, tolerance, widths, about) in rows {
        let survives = if name == "mirror" {
            "all but one".to_owned()
        } else {
            tolerance.to_string()
        };
        writeln!(
            out,
            "{name:<15} survives {survives:<11} columns {:<22} {about}",
            ranges(&widths)
        )?;
    }
    Ok(())
}

/// "3-24" or "5 7 11": runs of three and more as a range.
fn ranges(widths: &[u16]) -> String {
    let mut parts: Vec<(u16, u16)> = Vec::new();
    for &w in widths {
        match parts.last_mut() {
            Some((_, end)) if *end + 1 == w => *end = w,
            _ => parts.push((w, w)),
        }
    }
    let part = |&(from, to): &(u16, u16)| match to - from {
        0 => from.to_string(),
        1 => format!("{from} {to}"),
        _ => format!("{from}-{to}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(" ")
}

/// NAME, NAME:P or NAME:P:zfs; the parameter, if given.
fn parse(text: &str) -> Result<(&str, Option<u16>, Order), CodeCommandError> {
    let syntax = || CodeCommandError::Syntax {
        text: text.to_owned(),
    };
    let mut words = text.split(':');
    let name = words.next().unwrap_or(text);
    let parameter = words
        .next()
        .map(|p| p.parse().map_err(|_| syntax()))
        .transpose()?;
    let order = match words.next() {
        None => Order::Md,
        Some("zfs") => Order::Zfs,
        Some(_) => return Err(syntax()),
    };
    if words.next().is_some() {
        return Err(syntax());
    }
    Ok((name, parameter, order))
}

/// Shown if no parameter is given: the smallest that all array codes have.
const PARAMETER: u16 = 5;

fn show(text: &str, example: bool, json: bool) -> Result<(), CodeCommandError> {
    let (name, parameter, order) = parse(text)?;
    let code = by_parameter_in(name, parameter.unwrap_or(PARAMETER), order)?;
    let stripe = example.then(|| erasure::example(&code, 1));
    if json {
        return Ok(print_document(
            "code show",
            show_json(&code, stripe.as_deref()),
        )?);
    }
    let colour = colours(&io::stdout());
    let picture = draw::picture(&code, stripe.as_deref(), colour);
    stdout().write_all(picture.as_bytes())?;
    Ok(())
}

fn show_json(code: &Code, stripe: Option<&[Vec<u8>]>) -> Value {
    let pair = |e: Element| json!([e.row, e.column]);
    let xor = code.is_xor();
    let parity = |equation: &Equation| {
        let members: Vec<Value> = equation.members.iter().map(|&(e, _)| pair(e)).collect();
        let mut value = json!({
            "pos": pair(equation.parity),
            "kind": equation.kind,
            "members": members,
        });
        if !xor {
            value["coefficients"] = coefficients(equation);
        }
        value
    };
    let mut fields = json!({
        "code": code.name(),
        "p": code.parameter(),
        "rows": code.rows(),
        "columns": code.columns(),
        "data": code.data().iter().copied().map(pair).collect::<Vec<_>>(),
        "parity": code.equations().iter().map(parity).collect::<Vec<_>>(),
    });
    if !xor {
        let rows: Vec<Value> = code.equations().iter().map(coefficients).collect();
        fields["coefficients"] = Value::from(rows);
    }
    if let Some(stripe) = stripe {
        let row = |row: &[Vec<u8>]| {
            row.iter()
                .map(|e| format!("{:02x}", e[0]))
                .collect::<String>()
        };
        let rows = stripe.chunks(usize::from(code.columns())).map(row);
        fields["stripe"] = Value::from(rows.collect::<Vec<_>>());
    }
    fields
}

/// In the order of the members.
fn coefficients(equation: &Equation) -> Value {
    let values = equation.members.iter().map(|&(_, c)| c);
    Value::from(values.collect::<Vec<_>>())
}

/// Widths and primes of `verify --all`.
const WIDTH_MAX: u16 = 24;
const PRIME_MAX: u16 = 23;

/// Bytes of an element: more than a vector, and not a multiple of one.
const ELEMENT_BYTES: usize = 67;

fn run_verify(arguments: &VerifyArguments, json: bool) -> Result<(), CodeCommandError> {
    let start = Instant::now();
    let mut total = Verified::default();
    let mut codes = 0u64;
    let mut refused_composites = 0u64;
    let mut check = |code: &Code| -> Result<(), CodeCommandError> {
        let done = verify(code, ELEMENT_BYTES)?;
        total.recovered += done.recovered;
        total.refused += done.refused;
        codes += 1;
        Ok(())
    };
    let named = match arguments.code.as_deref() {
        Some(text) => Some(parse(text)?),
        None => None,
    };
    match named {
        Some((name, Some(parameter), order)) => check(&by_parameter_in(name, parameter, order)?)?,
        _ => {
            let one = named.map(|(name, _, _)| name);
            if let Some(name) = one {
                // An unknown name is refused before any other output.
                if !NAMES.contains(&name) {
                    by_columns(name, 1)?;
                }
            }
            let mut progress = Progress::new(json);
            for name in NAMES
                .into_iter()
                .filter(|name| one.is_none_or(|one| one == *name))
            {
                progress.show(name);
                refused_composites += sweep(name, &mut check)?;
            }
            progress.clear();
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let kernels: Vec<&str> = kernel::available().iter().map(|k| k.name()).collect();
    if json {
        return Ok(print_document(
            "code verify",
            json!({
                "verified": true,
                "codes": codes,
                "recovered": total.recovered,
                "refused": total.refused,
                "composites_refused": refused_composites,
                "kernels": kernels,
                "seconds": seconds,
            }),
        )?);
    }
    writeln!(
        io::stdout().lock(),
        "{codes} codes on {}: {} losses came back, {} beyond the tolerance and {refused_composites} composite numbers were refused ({seconds:.1} s)",
        kernels.join(", "),
        total.recovered,
        total.refused,
    )?;
    Ok(())
}

/// Checks every width, and every prime in both orders that `show` has; composite numbers must be refused.
fn sweep(
    name: &'static str,
    check: &mut dyn FnMut(&Code) -> Result<(), CodeCommandError>,
) -> Result<u64, CodeCommandError> {
    let mut refused = 0;
    for columns in 1..=WIDTH_MAX {
        if let Ok(code) = by_columns(name, columns) {
            check(&code)?;
        }
    }
    for parameter in 2..=PRIME_MAX {
        for order in [Order::Md, Order::Zfs] {
            match by_parameter_in(name, parameter, order) {
                Ok(_) if takes_primes(name) && !is_prime(parameter) => {
                    return Err(CodeCommandError::Composite { name, parameter });
                }
                // Codes without a prime were checked by width already, except in the ZFS order.
                Ok(code) if takes_primes(name) || order == Order::Zfs => check(&code)?,
                Err(CodeError::NotPrime { .. }) => refused += 1,
                Ok(_) | Err(_) => {}
            }
        }
    }
    Ok(refused)
}

fn takes_primes(name: &str) -> bool {
    let mut families = FAMILIES.iter();
    families.any(|family| family.name == name && family.parameter == Parameter::Prime)
}

fn is_prime(n: u16) -> bool {
    n >= 2
        && (2..n)
            .take_while(|d| d * d <= n)
            .all(|d| !n.is_multiple_of(d))
}

/// A progress line on a terminal's stderr.
struct Progress(bool);

impl Progress {
    fn new(json: bool) -> Self {
        Self(!json && io::stderr().is_terminal())
    }

    fn show(&mut self, name: &str) {
        if self.0 {
            let _ = write!(io::stderr(), "\r\x1b[K{name} …");
        }
    }

    fn clear(&mut self) {
        if self.0 {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_parsed_with_and_without_parameter_and_order() {
        assert!(matches!(parse("dcode"), Ok(("dcode", None, Order::Md))));
        assert!(matches!(parse("pq:8:zfs"), Ok(("pq", Some(8), Order::Zfs))));
        for wrong in ["dcode:x", "pq:8:md5", "pq:8:zfs:1", "rdp:70000"] {
            assert!(
                matches!(parse(wrong), Err(CodeCommandError::Syntax { .. })),
                "{wrong}"
            );
        }
    }

    #[test]
    fn the_document_of_p_plus_q_has_coefficients_and_the_ones_of_array_codes_do_not() {
        let pq = by_parameter_in("pq", 3, Order::Md).expect("three");
        let value = show_json(&pq, None);
        assert_eq!(value["parity"][1]["coefficients"], json!([1, 2, 4]));
        assert_eq!(value["coefficients"], json!([[1, 1, 1], [1, 2, 4]]));
        let rdp = by_parameter_in("rdp", 5, Order::Md).expect("five");
        let value = show_json(&rdp, Some(&erasure::example(&rdp, 1)));
        assert!(value.get("coefficients").is_none());
        assert_eq!(value["stripe"][0], "0b30557a1404");
        assert_eq!(value["parity"][4]["members"][1], json!([1, 4]));
    }

    #[test]
    fn runs_of_widths_are_shown_as_ranges() {
        assert_eq!(ranges(&[3, 4, 5, 6]), "3-6");
        assert_eq!(ranges(&[5, 7, 11, 12]), "5 7 11 12");
    }
}
