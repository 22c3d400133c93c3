//! Routing: what comes to a lane, or from one of its machines, goes to the machine that it is for.

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
mod seats;
