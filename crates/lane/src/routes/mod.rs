//! Routing: inputs of a lane, and outputs of its state machines, go to the machine that handles them.

mod checkpoint;
mod commands;
mod direct;
mod discards;
mod ends;
mod extents;
mod flushes;
mod jobs;
mod log;
mod moves;
mod ops;
mod pages;
mod planning;
mod recovery;
mod repairs;
mod requests;
mod room;
mod seats;
