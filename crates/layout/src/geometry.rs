//! Geometry: the numbers and the layout of a scheme on a given number of drives.

mod domains;
mod error;
mod resolve;

use std::fmt;
use std::sync::Arc;

pub use domains::{Placed, place};
pub use error::{Field, GeometryError};
pub(crate) use resolve::Ask;

use crate::{Layout, Scheme};

/// Which code a group's stripes are coded with. `layout` only counts its columns; `erasure` decides
/// whether a named array code exists at that width.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodeSpec {
    /// `none` (1 column), `mirror`, `parity`, `pq`, `pqr`, or an array code's word.
    pub name: String,
    /// Units of a stripe, parity included.
    pub columns: u16,
    /// Units that may be lost.
    pub parity: u16,
}

/// A scheme with its numbers computed and checked, and its layout.
#[derive(Clone)]
pub struct Geometry {
    /// The scheme as requested.
    pub scheme: Scheme,
    /// n: seats, hot spares included.
    pub drives: u16,
    /// d: data units of a stripe.
    pub data: u16,
    /// p: units of a stripe that may be lost. For mirrors copies − 1.
    pub parity: u16,
    /// s: spare cells per row; for pools the preservation capacity in drives.
    pub spares: u16,
    /// How stripes are coded.
    pub code: CodeSpec,
    /// The placement.
    pub layout: Arc<dyn Layout>,
}

impl Geometry {
    /// The geometry of `scheme` on `drives` drives of `rows` cells each. If the scheme has the
    /// field `c`, `drives` may be `None`. `rows` matters to layouts that depend on a drive's height
    /// (`raid10:far`) and to pools.
    ///
    /// # Errors
    /// When no layout exists for these numbers; the error names the field and a value that works.
    pub fn new(scheme: &Scheme, drives: Option<u16>, rows: u64) -> Result<Self, GeometryError> {
        resolve::geometry(scheme, drives, rows, None)
    }

    /// As [`Geometry::new`], from the bytes that [`Geometry::stored`] returned when the pool was
    /// created: searched bases and tables are those of the pool and not of this version's search.
    ///
    /// # Errors
    /// As [`Geometry::new`], and when `stored` does not fit the scheme.
    pub fn restore(
        scheme: &Scheme,
        drives: Option<u16>,
        rows: u64,
        stored: &[u8],
    ) -> Result<Self, GeometryError> {
        resolve::geometry(scheme, drives, rows, Some(stored))
    }

    /// The bytes to store with the pool; `None` where the scheme and the drives determine the
    /// layout.
    #[must_use]
    pub fn stored(&self) -> Option<Vec<u8>> {
        self.layout.stored()
    }
}

impl fmt::Debug for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Geometry")
            .field("scheme", &self.scheme.to_string())
            .field("drives", &self.drives)
            .field("data", &self.data)
            .field("parity", &self.parity)
            .field("spares", &self.spares)
            .field("code", &self.code)
            .finish_non_exhaustive()
    }
}
