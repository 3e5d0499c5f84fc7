//! Lines on stdout and stderr, the text of an error, and exit codes.

use std::fmt;
use std::io::Write;

/// Exit code for a failure with a message.
pub(crate) const FAILED: u8 = 1;

/// Exit code for wrong usage; clap exits with it too.
pub(crate) const USAGE: u8 = 2;

/// Prints a line to stdout. A closed pipe, as behind `| head -1`, is not an error.
pub(crate) fn print_line(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints a line to stderr. A closed pipe is not an error.
pub(crate) fn print_error(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Joins the messages of an error and its causes with colons. A cause whose text the message
/// before it already contains is left out.
pub(crate) fn describe(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| {
        if text.is_empty() {
            cause
        } else if text.contains(&cause) {
            text
        } else {
            format!("{text}: {cause}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_cause_that_its_message_repeats_is_printed_once() {
        let cause = || std::io::Error::from_raw_os_error(13);
        let quoting = anyhow::Error::new(cause()).context(format!("/data: {}", cause()));
        assert_eq!(describe(&quoting), "/data: Permission denied (os error 13)");
        let other = Err::<(), _>(cause()).context("/data").unwrap_err();
        assert_eq!(describe(&other), "/data: Permission denied (os error 13)");
    }
}
