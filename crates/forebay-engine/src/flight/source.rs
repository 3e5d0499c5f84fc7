//! Source of an answer, as callers see it.

/// Source of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Memory: fresh, or stale within the limits that the caller accepts.
    Hit,
    /// Memory, with a refresh in the background.
    Refreshing,
    /// The lower tier of this name.
    Tier(&'static str),
    /// Another instance, which loaded it meanwhile.
    Instance,
    /// The load of this caller.
    Led {
        /// `true` if the answer is stored.
        stored: bool,
        /// `true` if the origin confirmed the stored entry.
        unchanged: bool,
    },
    /// The load of another caller of this instance.
    Followed,
    /// A load for this caller alone.
    Passed,
    /// Memory, because the load failed.
    Fallback,
}
