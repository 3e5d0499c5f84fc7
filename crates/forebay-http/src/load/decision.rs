//! Record of the decision about a load, for `explain`.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{KeyRef, Why};
use forebay_engine::{Content, LoadError, Loaded};
use forebay_semantics::{Refusal, RequestRef, ResponseRef, SetBy, Storable, Unstorable, advice};
use http::{Method, StatusCode};

use super::{ClientRequest, PassedResponse};
use crate::record::decisions::{Decided, Decision, Decisions, Line, Objections, hash};
use crate::record::{EndedLoad, LoadFeed};
use crate::stored::head::Answer;

/// Recorder of the decisions of one request.
pub(crate) struct DecisionRecorder {
    pub(crate) decisions: Arc<Decisions>,
    pub(crate) ended_loads: Arc<LoadFeed>,
    /// Reason why memory did not answer.
    pub(crate) why: Why,
}

/// Evaluation of the response of a load, as a decision records it.
#[derive(Debug)]
pub(super) struct Judged {
    status: StatusCode,
    objections: Objections,
    first: Option<Unstorable>,
    line: Line,
}

impl Judged {
    /// Describes a response that may be stored, with the setter of its lifetime.
    pub(super) fn storable(answer: &Answer, set_by: SetBy) -> Self {
        let line = Line::of(&advice::lifetime_line(set_by, &answer.headers));
        Self { status: answer.status, objections: Objections::default(), first: None, line }
    }

    fn add_to(self, decision: &mut Decision) {
        decision.status = self.status.as_u16();
        (decision.objections, decision.first) = (self.objections, self.first);
        decision.line = self.line;
    }
}

impl ClientRequest {
    /// Describes the evaluation of a response.
    pub(super) fn judged(&self, answer: &Answer, evaluated: &Result<Storable, Refusal>) -> Judged {
        match evaluated {
            Ok(kept) => Judged::storable(answer, kept.set_by),
            Err(refusal) => self.refused(answer, refusal),
        }
    }

    fn refused(&self, answer: &Answer, refusal: &Refusal) -> Judged {
        Judged {
            status: answer.status,
            objections: Objections::of(refusal.reasons()),
            first: Some(refusal.first),
            line: Line::of(&self.because(refusal.first, answer)),
        }
    }

    /// Records the result of a load that started at `begun`.
    pub(super) fn record_decision(
        &self,
        key: KeyRef<'_>,
        loaded: &Result<Loaded, LoadError>,
        judged: Option<Judged>,
        begun: Duration,
    ) {
        let took = self.clock.exact().saturating_sub(begun);
        let mut decision = self.decision(key, Decided::Unanswered, took);
        if let (Ok(_), Some(judged)) = (loaded, judged) {
            judged.add_to(&mut decision);
        }
        decision.decided = match loaded {
            Ok(Loaded::Entry { content, .. }) => {
                decision.length = length(content);
                Decided::Stored
            }
            Ok(Loaded::Unchanged { .. }) => {
                decision.status = StatusCode::NOT_MODIFIED.as_u16();
                Decided::Confirmed
            }
            Ok(Loaded::Pass(_)) => Decided::Passed,
            Ok(Loaded::Failed { .. }) => Decided::Failed,
            Ok(Loaded::Absent { .. }) => return,
            Err(error) => {
                decision.line = Line::of(&error.to_string());
                Decided::Unanswered
            }
        };
        self.recorder.decisions.add(decision);
        self.add_to_feed(took, decision.first, tags(loaded));
    }

    /// Adds a direct pass to the feed of loads. Its decision is recorded only if the pass marker was
    /// renewed: at most once a second for a key, with and without credentials each. Otherwise a busy key
    /// would replace the decisions about all other keys of its shard.
    pub(crate) fn record_pass(
        &self,
        key: KeyRef<'_>,
        passed: &PassedResponse,
        is_marker_renewed: bool,
    ) {
        let took = self.origin_time.get().copied().unwrap_or_default();
        let PassedResponse { response, unstorable } = passed;
        if is_marker_renewed {
            let mut decision = self.decision(key, Decided::Passed, took);
            // The pass took the first reason only; the record has all of them.
            let answer = Answer { status: response.status, headers: response.fields.to_map() };
            self.judged(&answer, &self.evaluate(&answer)).add_to(&mut decision);
            self.recorder.decisions.add(decision);
        }
        self.add_to_feed(took, Some(*unstorable), Vec::new());
    }

    /// Returns a decision without an evaluation.
    fn decision(&self, key: KeyRef<'_>, decided: Decided, took: Duration) -> Decision {
        Decision {
            key: hash(key),
            at: self.clock.now(),
            took,
            length: None,
            status: 0,
            objections: Objections::default(),
            first: None,
            decided,
            why: self.recorder.why,
            is_outgrown: false,
            line: Line::of(""),
        }
    }

    fn add_to_feed(&self, took: Duration, first: Option<Unstorable>, tags: Vec<Box<str>>) {
        let recorder = &self.recorder;
        recorder.ended_loads.push(EndedLoad {
            site: &self.site.settings.id,
            authority: &self.authority,
            target: self.target.as_str(),
            why: recorder.why.code(),
            took,
            unstorable: first.map(Unstorable::code),
            tags,
        });
    }

    /// Returns the field that is a reason against storing a response.
    pub(crate) fn because(&self, reason: Unstorable, answer: &Answer) -> String {
        let asked = RequestRef { method: &Method::GET, headers: self.headers() };
        let answered = ResponseRef { status: answer.status, headers: &answer.headers };
        advice::because(reason, asked, answered).into_owned()
    }
}

/// Returns the tags of a response that may be stored. Tags of the cache itself have line breaks.
fn tags(loaded: &Result<Loaded, LoadError>) -> Vec<Box<str>> {
    let Ok(Loaded::Entry { meta, .. } | Loaded::Unchanged { meta, .. }) = loaded else {
        return Vec::new();
    };
    meta.tags().iter().filter(|tag| !tag.contains('\n')).map(Into::into).collect()
}

fn length(content: &Content) -> Option<u32> {
    let length = match content {
        Content::Sized(length, _) => *length,
        Content::Whole(bytes) => bytes.len() as u64,
        Content::Stream(_) => return None,
    };
    Some(u32::try_from(length).unwrap_or(u32::MAX))
}
