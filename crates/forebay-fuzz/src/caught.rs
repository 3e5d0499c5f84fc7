//! Panics of checks as text. Shrinking repeats a failing check hundreds of times, and only the last
//! message is worth printing, so the panic hook records messages of checks instead of printing them.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Message and position of the last panic; `None` outside of a check.
    static NOTED: RefCell<Option<String>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Runs a check.
///
/// # Errors
/// Message and position of its panic.
pub(crate) fn caught<T>(check: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(note_panics);
    NOTED.set(Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(check));
    let noted = NOTED.take().unwrap_or_default();
    result.map_err(|_| noted)
}

/// Installs the panic hook. Panics outside of checks go to the previous hook.
fn note_panics() {
    let before = take_hook();
    set_hook(Box::new(move |panic| {
        if NOTED.with_borrow(Option::is_none) {
            return before(panic);
        }
        let words = panic.payload_as_str().unwrap_or("a panic without words");
        let place = panic.location().map_or_else(String::new, ToString::to_string);
        NOTED.set(Some(format!("{place}: {words}")));
    }));
}
