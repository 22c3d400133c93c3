//! A saved result of `ravelin shear`, as far as it matters for alignment.

use std::path::Path;

use serde_json::Value;

use crate::stack::Device;

/// The result of a run of `ravelin shear --json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Belief {
    /// The measured device, as given: a path or a kernel name.
    pub target: String,
    /// `classic`, `declustered`, `none` or `unknown`.
    pub family: String,
    /// Bytes of a chunk, if known.
    pub chunk_bytes: Option<u64>,
    /// Bytes of a full stripe's data, if known.
    pub stripe_bytes: Option<u64>,
    /// Whether writes that do not fill a stripe cost reads.
    pub parity: bool,
    /// Positions of drives that are missing.
    pub degraded: Vec<u64>,
}

/// Why a file is not a saved result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BeliefError {
    /// It is not JSON, or not of this kind.
    NotShear {
        /// What is wrong.
        why: String,
    },
    /// It does not name the measured device.
    NoTarget,
}

impl std::fmt::Display for BeliefError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotShear { why } => {
                write!(f, "this is no result of `ravelin shear --json`: {why}")
            }
            Self::NoTarget => write!(f, "the result does not say which device it is about"),
        }
    }
}

impl std::error::Error for BeliefError {}

impl BeliefError {
    /// One thing to try, in small letters and without a full stop.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NotShear { .. } => "save one with `ravelin shear TARGET --json > FILE`",
            Self::NoTarget => "write --shear DEVICE=FILE",
        }
    }
}

impl Belief {
    /// Reads a document of `ravelin shear --json`; `target` overrides the one in it.
    ///
    /// # Errors
    /// [`BeliefError`].
    pub fn parse(text: &str, target: Option<&str>) -> Result<Self, BeliefError> {
        let document: Value =
            serde_json::from_str(text).map_err(|error| BeliefError::NotShear {
                why: error.to_string(),
            })?;
        if document["kind"] != "shear" {
            return Err(BeliefError::NotShear {
                why: format!("its kind is {}", document["kind"]),
            });
        }
        let target = target
            .or_else(|| document["target"].as_str())
            .ok_or(BeliefError::NoTarget)?;
        let redundancy = document["redundancy"].as_str().unwrap_or("unknown");
        Ok(Self {
            target: target.to_owned(),
            family: document["family"].as_str().unwrap_or("unknown").to_owned(),
            chunk_bytes: document["chunk_bytes"].as_u64().filter(|&bytes| bytes > 0),
            stripe_bytes: document["stripe_bytes"].as_u64().filter(|&bytes| bytes > 0),
            parity: matches!(redundancy, "parity" | "double-parity"),
            degraded: document["degraded"]
                .as_array()
                .map(|all| all.iter().filter_map(Value::as_u64).collect())
                .unwrap_or_default(),
        })
    }

    pub(crate) fn is_of(&self, device: &Device) -> bool {
        let name = Path::new(&self.target)
            .file_name()
            .and_then(|name| name.to_str());
        self.target == device.path
            || self.target == device.name
            || (self.target.starts_with("/dev/") && name == Some(&device.name))
    }
}
