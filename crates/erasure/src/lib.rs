//! Codes as equations, and what follows from equations alone: encoding, updating, decoding, and
//! the cheapest recovery.
//!
//! A stripe is a matrix of *elements*, `rows` × `columns`; a column lives on one drive. A code says
//! which elements are which sums over GF(2^8) of which others ([`Equation`]); XOR codes have only
//! coefficients 1. Everything else here works on the equations and knows no code by name.
//!
//! No disks and no placement. It is the home of SIMD: `kernel` holds the `unsafe` of this crate.
