//! Panics of checks as text. Shrinking repeats a failing check hundreds of times, and only the last
//! message is worth printing, so the panic hook records messages of checks instead of printing them.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
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
    NOTED.with(|noted| noted.replace(Some(String::new())));
    let result = catch_unwind(AssertUnwindSafe(check));
    let noted = NOTED.with(RefCell::take).unwrap_or_default();
    result.map_err(|_| noted)
}

/// Installs the panic hook. Panics outside of checks go to the previous hook.
fn note_panics() {
    let before = take_hook();
    set_hook(Box::new(move |panic| {
        let is_noted = NOTED.with(|noted| match &mut *noted.borrow_mut() {
            Some(noted) => {
                *noted = words_of(panic);
                true
            }
            None => false,
        });
        if !is_noted {
            before(panic);
        }
    }));
}

fn words_of(panic: &PanicHookInfo<'_>) -> String {
    let words = panic.payload_as_str().unwrap_or("a panic without words");
    panic.location().map_or_else(|| words.to_owned(), |place| format!("{place}: {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_reported_with_its_position() {
        assert_eq!(caught(|| 1), Ok(1));
        let said = caught(|| assert_eq!(1, 2, "not {}", "so")).unwrap_err();
        assert!(said.contains("caught.rs:") && said.contains("not so"), "{said}");
        assert_eq!(caught(|| 2), Ok(2));
    }
}
