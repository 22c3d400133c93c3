//! A lane's inputs and outputs, as values.
//!
//! A driver that keeps these can show later what its lane did and why. A lane is deterministic: the same inputs give
//! the same outputs with any driver.

use block::{Instant, Outcome};
use plan::{Action, Command, ComputeId, Computed, Event, GroupRequest, IoId, RequestId};

use crate::Lane;

/// An input of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// `handle_request`, with the bytes of a write.
    Request(RequestId, GroupRequest, Vec<u8>),
    /// `handle_completion`.
    Completion(IoId, Outcome),
    /// `handle_computed`.
    Computed(ComputeId, Computed),
    /// `handle_command`.
    Command(Command),
    /// `handle_timeout`.
    Timeout,
}

/// An output of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// An action.
    Action(Action),
    /// An event.
    Event(Event),
}

/// One step of a recording: an input, when it came, and everything that was polled after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time of the input.
    pub at: Instant,
    /// The input.
    pub input: Input,
    /// Actions, then events.
    pub outputs: Vec<Output>,
}

/// Gives a lane one input. The outputs are polled: actions until there are no more, then events.
///
/// # Panics
/// When the lane refuses a command: the pool sends each lane only commands for its own groups.
pub fn tell(lane: &mut Lane, at: Instant, input: Input) {
    match input {
        Input::Request(id, request, _) => lane.handle_request(at, id, request),
        Input::Completion(id, outcome) => lane.handle_completion(at, id, outcome),
        Input::Computed(id, computed) => lane.handle_computed(at, id, computed),
        Input::Command(command) => lane
            .handle_command(at, command)
            .expect("the pool knows the lanes' groups"),
        Input::Timeout => lane.handle_timeout(at),
    }
}

/// As [`tell`], and returns all outputs of the lane.
///
/// # Panics
/// As [`tell`].
pub fn feed(lane: &mut Lane, at: Instant, input: &Input) -> Vec<Output> {
    tell(lane, at, input.clone());
    let mut outputs = Vec::new();
    while let Some(action) = lane.poll_action() {
        outputs.push(Output::Action(action));
    }
    while let Some(event) = lane.poll_event() {
        outputs.push(Output::Event(event));
    }
    outputs
}
