//! `ravelin layout crush`: arguments and map files.

use std::borrow::Cow;
use std::path::PathBuf;

use block::Hint;
use clap::Args;
use layout::crush::{Bucket, Item, Map, MapError, Mode, ONE, Rule, RuleError};
use serde_json::Value;

/// Place inputs by CRUSH.
#[derive(Debug, Args)]
pub(crate) struct CrushArguments {
    /// Devices in one bucket.
    #[arg(
        long,
        value_name = "N",
        required_unless_present = "map",
        conflicts_with = "map"
    )]
    devices: Option<u32>,
    /// Their weights, 1 is 1.0; those not said weigh 1.
    #[arg(long, value_name = "W,…", value_delimiter = ',')]
    weights: Vec<f64>,
    /// Their reweights: 1 is in, 0 is out, between is how much of their share they keep.
    #[arg(long, value_name = "W,…", value_delimiter = ',')]
    reweights: Vec<f64>,
    /// indep:K or firstn:K.
    #[arg(long, value_name = "MODE:K", required_unless_present = "map")]
    rule: Option<String>,
    /// Inputs A..B, both included.
    #[arg(long, value_name = "A..B")]
    x: Option<String>,
    /// A map with its rule as JSON: buckets, steps, num_rep, x, reweight.
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
}

/// Why inputs could not be placed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CrushError {
    /// An argument that cannot be read.
    #[error("{argument} `{text}` cannot be read: {why}")]
    Argument {
        /// Which argument.
        argument: &'static str,
        /// What was written.
        text: String,
        /// What is wrong.
        why: &'static str,
        /// Something that works.
        example: &'static str,
    },
    /// The map file cannot be opened.
    #[error("{} cannot be read: {error}", path.display())]
    Open {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// The map file is not JSON.
    #[error("{} is not JSON: {error}", path.display())]
    Json {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        error: serde_json::Error,
    },
    /// Something is missing in the map file or of the wrong kind.
    #[error("the map's `{field}` is missing or not {wanted}")]
    Field {
        /// Which.
        field: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// The buckets do not form a tree.
    #[error(transparent)]
    Map(#[from] MapError),
    /// A step cannot be read.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

impl Hint for CrushError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Argument { example, .. } => Some(format!("`{example}`").into()),
            Self::Open { .. } => Some("check the path".into()),
            Self::Json { .. } => Some("write one case with buckets, steps, num_rep and x".into()),
            Self::Field { .. } => {
                Some("see `buckets`, `steps`, `num_rep`, `x` and `reweight`".into())
            }
            Self::Map(error) => error.hint(),
            Self::Rule(error) => error.hint(),
        }
    }
}

impl CrushError {
    pub(super) const fn exit_code(&self) -> u8 {
        match self {
            Self::Open { .. } => 1,
            _ => 2,
        }
    }
}

/// (input, its devices) in order.
pub(crate) type Mappings = Vec<(u32, Vec<Option<Item>>)>;

/// Inputs that one command places, at most.
const INPUTS_MAX: u64 = 10_000_000;

impl CrushArguments {
    /// Places every input.
    pub(super) fn mappings(&self) -> Result<Mappings, CrushError> {
        let case = match &self.map {
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| CrushError::Open {
                    path: path.clone(),
                    error,
                })?;
                let case = serde_json::from_str(&text).map_err(|error| CrushError::Json {
                    path: path.clone(),
                    error,
                })?;
                self.read(&case)?
            }
            None => self.said()?,
        };
        let Case {
            map,
            rule,
            positions,
            reweights,
            x,
        } = case;
        let place = |x| (x, map.place(&rule, x, positions, &reweights));
        Ok((x.0..=x.1).map(place).collect())
    }

    fn said(&self) -> Result<Case, CrushError> {
        let devices = self.devices.unwrap_or(0);
        if devices > 1 << 20 || self.weights.len() > devices as usize {
            return Err(CrushError::Argument {
                argument: "--devices",
                text: devices.to_string(),
                why: "there are as many as weights, and at most 1048576",
                example: "--devices 60",
            });
        }
        let mut weights = fixed("--weights", &self.weights)?;
        weights.resize(devices as usize, ONE);
        let text = self.rule.clone().unwrap_or_default();
        let (mode, positions) = parse_rule(&text).ok_or(CrushError::Argument {
            argument: "--rule",
            text,
            why: "a rule is a mode and a number of positions",
            example: "indep:10",
        })?;
        Ok(Case {
            map: Map::flat(&weights),
            rule: Rule::flat(-1, mode),
            positions,
            reweights: fixed("--reweights", &self.reweights)?,
            x: self.range()?.unwrap_or((0, 1023)),
        })
    }

    fn range(&self) -> Result<Option<(u32, u32)>, CrushError> {
        let Some(text) = &self.x else {
            return Ok(None);
        };
        let range = match text.split_once("..") {
            Some((from, to)) => from
                .parse()
                .ok()
                .zip(to.trim_start_matches('=').parse().ok()),
            None => text.parse().ok().map(|x| (x, x)),
        };
        let small = |&(from, to): &(u32, u32)| from <= to && u64::from(to - from) < INPUTS_MAX;
        range.filter(small).map(Some).ok_or(CrushError::Argument {
            argument: "--x",
            text: text.clone(),
            why: "inputs go from A to B, ten million at most",
            example: "0..1023",
        })
    }

    fn read(&self, case: &Value) -> Result<Case, CrushError> {
        let list = |field: &str| {
            case[field].as_array().ok_or_else(|| CrushError::Field {
                field: field.to_owned(),
                wanted: "a list",
            })
        };
        let mut names = Vec::new();
        let mut buckets = Vec::new();
        for bucket in list("buckets")? {
            let items = numbers(&bucket["items"], "buckets.items")?;
            let weights = match &bucket["weights"] {
                Value::Null => vec![ONE; items.len()],
                weights => numbers(weights, "buckets.weights")?,
            };
            let id = number(&bucket["id"], "buckets.id")?;
            names.push((bucket["name"].as_str().unwrap_or("").to_owned(), id));
            buckets.push(Bucket {
                id,
                kind: number(&bucket["type"], "buckets.type")?,
                items: items.into_iter().zip(weights).collect(),
            });
        }
        let most = buckets
            .iter()
            .flat_map(|bucket| &bucket.items)
            .map(|&(item, _)| item)
            .max();
        let devices = match &case["devices"] {
            Value::Null => u32::try_from(most.unwrap_or(-1) + 1).unwrap_or(0),
            devices => number(devices, "devices")?,
        };
        let steps = list("steps")?;
        let steps: Option<Vec<&str>> = steps.iter().map(Value::as_str).collect();
        let steps = steps.ok_or(CrushError::Field {
            field: "steps".to_owned(),
            wanted: "a list of texts",
        })?;
        let bucket = |name: &str| {
            let named = names
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, id)| *id);
            named.or_else(|| name.parse().ok())
        };
        // A type is identified by its usual name, by its number, or by the first part of its buckets' names.
        let kind = |name: &str| match name {
            "osd" | "device" => Some(0),
            _ => name
                .parse()
                .ok()
                .or_else(|| {
                    let alike = |known: &str| {
                        known.trim_end_matches(|last: char| {
                            last.is_ascii_digit() || "-_.".contains(last)
                        }) == name
                    };
                    let at = names.iter().position(|(known, _)| alike(known))?;
                    Some(buckets[at].kind)
                })
                .or(match name {
                    "host" => Some(1),
                    "root" => Some(2),
                    _ => None,
                }),
        };
        let rule = Rule::parse(steps, bucket, kind)?;
        let x = match (self.range()?, &case["x"]) {
            (Some(range), _) => range,
            (None, Value::Array(ends)) if ends.len() == 2 => {
                (number(&ends[0], "x")?, number(&ends[1], "x")?)
            }
            (None, x) => {
                let x = number(x, "x")?;
                (x, x)
            }
        };
        let reweights = match self.reweights.as_slice() {
            [] => reweights(&case["reweight"], devices)?,
            given => fixed("--reweights", given)?,
        };
        Ok(Case {
            map: Map::new(devices, buckets)?,
            rule,
            positions: number(&case["num_rep"], "num_rep")?,
            reweights,
            x,
        })
    }
}

/// Everything that a placement depends on.
struct Case {
    map: Map,
    rule: Rule,
    positions: usize,
    reweights: Vec<u32>,
    x: (u32, u32),
}

fn parse_rule(text: &str) -> Option<(Mode, usize)> {
    let (mode, positions) = text.split_once(':')?;
    let mode = match mode {
        "indep" => Mode::Indep,
        "firstn" => Mode::FirstN,
        _ => return None,
    };
    let positions = positions.parse().ok()?;
    (1..=4096).contains(&positions).then_some((mode, positions))
}

/// Weights in units of 1/65536 as crushtool makes them: truncated, not rounded.
fn fixed(argument: &'static str, weights: &[f64]) -> Result<Vec<u32>, CrushError> {
    let one = |&weight: &f64| {
        if !(0.0..=65535.0).contains(&weight) {
            return Err(CrushError::Argument {
                argument,
                text: weight.to_string(),
                why: "weights are between 0 and 65535",
                example: "1,0.5,2",
            });
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked above, and cut off on purpose"
        )]
        Ok((weight * f64::from(ONE)) as u32)
    };
    weights.iter().map(one).collect()
}

fn number<T: TryFrom<i64>>(value: &Value, field: &str) -> Result<T, CrushError> {
    let number = value.as_i64().and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| CrushError::Field {
        field: field.to_owned(),
        wanted: "a number in range",
    })
}

fn numbers<T: TryFrom<i64>>(value: &Value, field: &str) -> Result<Vec<T>, CrushError> {
    let list = value.as_array().ok_or_else(|| CrushError::Field {
        field: field.to_owned(),
        wanted: "a list of numbers",
    })?;
    list.iter().map(|value| number(value, field)).collect()
}

/// Reweights of a map file: a factor for each device, or pairs of device and factor, or an object
/// by device. Whole numbers above 1 are in units of 1/65536, everything else is a factor.
fn reweights(value: &Value, devices: u32) -> Result<Vec<u32>, CrushError> {
    let wrong = || CrushError::Field {
        field: "reweight".to_owned(),
        wanted: "a list of factors, of [device, factor] pairs, or an object by device",
    };
    let mut entries: Vec<(usize, &Value)> = Vec::new();
    match value {
        Value::Null => {}
        Value::Array(list) => {
            for (index, entry) in list.iter().enumerate() {
                match entry {
                    Value::Array(pair) if pair.len() == 2 => {
                        entries.push((number(&pair[0], "reweight")?, &pair[1]));
                    }
                    entry => entries.push((index, entry)),
                }
            }
        }
        Value::Object(by_device) => {
            for (device, factor) in by_device {
                entries.push((device.parse().map_err(|_| wrong())?, factor));
            }
        }
        _ => return Err(wrong()),
    }
    let mut all = vec![ONE; devices as usize];
    for (device, factor) in entries {
        let weight = match (factor.as_u64(), factor.as_f64()) {
            (Some(units), _) if units > 1 => u32::try_from(units).map_err(|_| wrong())?,
            (_, Some(factor)) => fixed("reweight", &[factor])?[0],
            _ => return Err(wrong()),
        };
        *all.get_mut(device).ok_or_else(wrong)? = weight;
    }
    Ok(all)
}
