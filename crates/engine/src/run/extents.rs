//! Asks a volume's lanes which of its bytes are data and which are holes.
//!
//! ```text
//!   volume ──one question a group──► lane's thread ──known──────────────► answer
//!                                        │ pages are not in memory           ▲
//!                                        └──► ReadPages ──► pages are here ──┘
//! ```
//!
//! A question is answered exactly once. If a lane stops, or drops the question for another reason, the part counts as
//! data.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use array::Command;
use array::format::GroupId;
use array::router::Part;
use block::{Extent, ExtentsAnswer, push_extent};

/// A question to a lane.
pub(crate) struct Question {
    pub(super) lane: u16,
    pub(super) group: GroupId,
    /// The range in the group's data.
    pub(super) bytes: Range<u64>,
    asked: bool,
    answer: ExtentsAnswer,
}

/// The next step of a question.
pub(super) enum Turn {
    /// It has been answered.
    Answered,
    /// The lane needs this command first.
    Tell(Question, Command),
    /// Pages are being read.
    Wait(Question),
}

impl Question {
    /// Answers if the lane's pages in memory suffice; else returns the next step.
    pub(super) fn turn(mut self, lane: &array::Lane) -> Turn {
        if lane.reads_pages(self.group) {
            return Turn::Wait(self);
        }
        if !self.asked && lane.lacks_pages(self.group, self.bytes.clone()) {
            // Once: where memory has no room for so many pages, the bytes of the missing ones count as data.
            self.asked = true;
            let command = Command::ReadPages {
                group: self.group,
                bytes: self.bytes.clone(),
            };
            return Turn::Tell(self, command);
        }
        let extents = lane.extents(self.group, self.bytes);
        self.answer.give(extents);
        Turn::Answered
    }
}

/// The answers of all lanes to one question.
struct Gathering {
    /// By part: its extents, or its length while they are not known.
    parts: Vec<Result<Vec<Extent>, u64>>,
    left: usize,
    answer: Option<ExtentsAnswer>,
}

impl Gathering {
    fn given(&mut self, index: usize, mut extents: Vec<Extent>) {
        let length = self.parts[index].as_ref().err().copied().unwrap_or(0);
        let known: u64 = extents.iter().map(|extent| extent.length).sum();
        push_extent(
            &mut extents,
            Extent {
                length: length.saturating_sub(known),
                hole: false,
            },
        );
        self.parts[index] = Ok(extents);
        self.left -= 1;
        if self.left > 0 {
            return;
        }
        let mut all = Vec::new();
        for extent in std::mem::take(&mut self.parts)
            .into_iter()
            .flatten()
            .flatten()
        {
            push_extent(&mut all, extent);
        }
        if let Some(answer) = self.answer.take() {
            answer.give(all);
        }
    }
}

/// The questions for the parts of a read; `answer` gets the answers to all of them together.
pub(super) fn questions(parts: &[Part], answer: ExtentsAnswer) -> Vec<Question> {
    let gathering = Arc::new(Mutex::new(Gathering {
        parts: parts
            .iter()
            .map(|part| Err(part.request.request.length))
            .collect(),
        left: parts.len(),
        answer: Some(answer),
    }));
    let question = |(index, part): (usize, &Part)| {
        let gathering = Arc::clone(&gathering);
        let request = part.request.request;
        Question {
            lane: part.lane,
            group: part.request.group,
            bytes: request.offset..request.offset + request.length,
            asked: false,
            answer: ExtentsAnswer::new(move |extents| {
                let gathering = gathering.lock();
                let mut gathering = gathering.unwrap_or_else(PoisonError::into_inner);
                gathering.given(index, extents);
            }),
        }
    };
    parts.iter().enumerate().map(question).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use array::{GroupRequest, VolumeId};
    use block::{Request, RequestKind};

    use super::*;

    #[test]
    fn answers_are_put_in_order_and_what_nobody_answers_is_data() {
        let part = |group, length| Part {
            lane: 0,
            request: GroupRequest {
                group: GroupId(group),
                request: Request {
                    kind: RequestKind::Read,
                    offset: 0,
                    length,
                    fua: false,
                },
                buffer_offset: 0,
                volume: VolumeId::NONE,
            },
        };
        let (sender, answers) = channel();
        let answer = ExtentsAnswer::new(move |extents| sender.send(extents).unwrap());
        let parts = [part(0, 10), part(1, 20), part(2, 30)];
        let mut questions = questions(&parts, answer);
        let hole = |length| Extent { length, hole: true };
        // The last one first; the second one is lost, and the answer to the first one covers only its beginning.
        questions.pop().unwrap().answer.give(vec![hole(30)]);
        drop(questions.pop());
        assert!(answers.try_recv().is_err());
        questions.pop().unwrap().answer.give(vec![hole(4)]);
        let data = |length| Extent {
            length,
            hole: false,
        };
        assert_eq!(answers.recv().unwrap(), [hole(4), data(26), hole(30)]);
    }
}
