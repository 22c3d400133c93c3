//! The crate's tests from outside, one program.

/// As the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod common;
mod dcode;
mod draid;
mod shear;
