//! Codes as equations, and all that is derived from equations alone: encoding, updating, decoding,
//! and the cheapest recovery.
//!
//! A stripe is a matrix of *elements*, `rows` × `columns`; a column is on one drive. A code defines
//! some elements as sums over GF(2^8) of other elements ([`Equation`]); XOR codes have only
//! coefficients 1. Everything else here works on the equations and does not depend on the code's
//! name.
//!
//! ```text
//! code/*.rs      equations of one code each
//! equations.rs   Code: the equations, checked, and expanded to data
//! encode.rs      data → parities, with shared sums; deltas → parities
//! decode.rs      known elements → wanted elements: peeling, then elimination
//! recovery.rs    one lost column from the fewest reads; degraded reads under three policies
//! search.rs      the choice of equations behind both
//! schedule.rs    what all of these return: steps `target (^)= Σ coefficient · slot`
//! program.rs     a schedule compiled to run: steps that share sources fused into one pass
//! verify.rs      tests a code with real bytes
//! kernel/        bytes; the only `unsafe`
//! ```
//!
//! No disks and no placement. `kernel` holds the SIMD and the `unsafe` of this crate.

mod code;
mod decode;
mod element;
mod encode;
mod equations;
pub mod gf;
pub mod kernel;
mod program;
mod recovery;
mod schedule;
mod search;
mod verify;

pub use code::{
    FAMILIES, Family, NAMES, Order, Parameter, by_columns, by_parameter, by_parameter_in, copies,
};
pub use decode::{Recovery, Unrecoverable};
pub use element::{Element, ElementSet};
pub use encode::Update;
pub use equations::{Code, CodeError, Equation};
pub use program::Program;
pub use recovery::{ColumnRecovery, ReadPolicy};
pub use schedule::{Schedule, Step};
pub use verify::{Verified, VerifyError, example, verify};
