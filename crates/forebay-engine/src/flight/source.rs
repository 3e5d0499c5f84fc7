//! Source of an answer, as callers see it.

/// Place that an answer came from, as a caller of the engine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Memory answered, with an entry that is fresh, or stale within the limits that the caller
    /// accepts.
    Hit,
    /// Memory answered, and a load refreshes the entry in the background.
    Refreshing,
    /// The lower tier of this name answered.
    Tier(&'static str),
    /// Another instance loaded the answer while this one waited.
    Instance,
    /// This caller's own load answered, which other callers could share.
    Led {
        /// `true` if the answer is stored.
        stored: bool,
        /// `true` if the origin confirmed the stored entry.
        unchanged: bool,
    },
    /// The load of another caller of this instance answered.
    Followed,
    /// A load answered that was for this caller alone.
    Passed,
    /// Memory answered with a stale entry, because the load failed or was slow.
    Fallback,
}
