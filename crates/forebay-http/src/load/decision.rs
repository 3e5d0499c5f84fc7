//! Record of the decision about a load, for `explain`.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{KeyRef, Why};
use forebay_engine::{Content, Head, LoadError, Loaded};
use forebay_semantics::{RequestRef, ResponseRef, Unstorable, advice};
use http::{Method, StatusCode};

use super::ClientRequest;
use crate::record::decisions::{Decided, Decision, Decisions, Line, Objections, hash};
use crate::stored::head::Answer;

/// Recorder of the decisions of one request.
pub(crate) struct DecisionRecorder {
    pub(crate) decisions: Arc<Decisions>,
    /// Reason why memory did not answer.
    pub(crate) why: Why,
}

impl ClientRequest {
    /// Records the result of a load that started at `begun`.
    pub(super) fn record_decision(
        &self,
        key: KeyRef<'_>,
        loaded: &Result<Loaded, LoadError>,
        begun: Duration,
    ) {
        let recorder = &self.recorder;
        let mut decision = Decision {
            key: hash(key),
            at: self.clock.now(),
            took: self.clock.exact().saturating_sub(begun),
            length: None,
            status: 0,
            objections: Objections::default(),
            first: None,
            decided: Decided::Unanswered,
            why: recorder.why,
            is_outgrown: false,
            line: Line::of(""),
        };
        match loaded {
            Ok(Loaded::Entry { head, content, .. }) => {
                decision.length = length(content);
                self.judge_head(&mut decision, Decided::Stored, head);
            }
            Ok(Loaded::Unchanged { head, .. }) => {
                if let Some(head) = head {
                    self.judge_head(&mut decision, Decided::Confirmed, head);
                }
                decision.decided = Decided::Confirmed;
                decision.status = StatusCode::NOT_MODIFIED.as_u16();
            }
            Ok(Loaded::Pass(passed)) => {
                self.judge_head(&mut decision, Decided::Passed, &passed.head);
            }
            Ok(Loaded::Failed { passed, .. }) => {
                self.judge_head(&mut decision, Decided::Failed, &passed.head);
            }
            Ok(Loaded::Absent { .. }) => return,
            Err(error) => decision.line = Line::of(&error.to_string()),
        }
        recorder.decisions.add(decision);
    }

    fn judge_head(&self, decision: &mut Decision, decided: Decided, head: &Head) {
        decision.decided = decided;
        let Some(answer) = head.bytes().and_then(Answer::decode) else { return };
        decision.status = answer.status.as_u16();
        let objections = if matches!(decided, Decided::Stored | Decided::Confirmed) {
            Vec::new()
        } else {
            self.objections(&answer)
        };
        decision.objections = Objections::of(&objections);
        decision.first = objections.first().copied();
        decision.line = Line::of(&match objections.first() {
            Some(first) => self.because(*first, &answer),
            None => self.lifetime_by(&answer).line,
        });
    }

    /// Returns the field that is a reason against storing a response.
    pub(crate) fn because(&self, reason: Unstorable, answer: &Answer) -> String {
        let asked = RequestRef { method: &Method::GET, headers: &self.headers };
        let answered = ResponseRef { status: answer.status, headers: &answer.headers };
        advice::because(reason, asked, answered).into_owned()
    }
}

fn length(content: &Content) -> Option<u32> {
    let length = match content {
        Content::Sized(length, _) => *length,
        Content::Whole(bytes) => bytes.len() as u64,
        Content::Stream(_) => return None,
    };
    Some(u32::try_from(length).unwrap_or(u32::MAX))
}
