//! Source of an answer, as callers see it.

/// Place that an answer came from, as a caller of the engine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Memory answered, with an entry that is fresh, or stale within the limits that the caller
    /// accepts.
    Hit,
    /// Memory answered, and a load refreshes the entry in the background. No load starts if the
    /// request forbids it, during a back-off, or if too many refreshes are in progress.
    Refreshing,
    /// The lower tier of this name answered.
    Tier(&'static str),
    /// Another instance loaded the answer while this one waited.
    Instance,
    /// This caller's own load answered, and other callers may get the answer, too.
    Led {
        /// `true` if the answer is stored, or is going to be once its body is complete.
        stored: bool,
        /// `true` if the origin confirmed the stored entry.
        unchanged: bool,
    },
    /// The load of another caller of this instance answered, or an entry that it has stored since
    /// the request arrived.
    Followed,
    /// This caller's own load answered, and the answer is for this caller alone.
    Passed,
    /// A stored entry answered, usually a stale one, because the load failed, was slow, or did not
    /// start (back-off or limit).
    Fallback,
}
