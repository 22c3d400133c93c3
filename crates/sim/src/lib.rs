//! (grows next)
