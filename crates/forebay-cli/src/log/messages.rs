//! Messages as `name=value` pairs or as JSON objects: `ts`, `level`, `msg`, then the fields.

use std::fmt;
use std::time::SystemTime;

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::access::{FieldOutput, FieldValue, JsonObject, LogfmtPairs};

/// Maximum length of a text in bytes; what a peer sent may be longer.
const TEXT_MAX: usize = 2 << 10;

/// Format of messages for programs.
#[derive(Clone, Copy, Debug)]
pub(super) enum MessageFormat {
    Logfmt,
    Json,
}

impl<S, N> FormatEvent<S, N> for MessageFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let line = self.line(*event.metadata().level(), SystemTime::now(), &fields);
        writeln!(writer, "{}", String::from_utf8_lossy(&line))
    }
}

impl MessageFormat {
    fn line(self, level: Level, at: SystemTime, fields: &Fields) -> Vec<u8> {
        let mut line = Vec::new();
        match self {
            Self::Logfmt => fields.write(level, at, &mut LogfmtPairs::begin(&mut line)),
            Self::Json => {
                let mut object = JsonObject::begin(&mut line);
                fields.write(level, at, &mut object);
                object.end();
            }
        }
        line
    }
}

const fn word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// Fields of a message.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.others.push((field.name(), value.into()));
    }

    fn write(&self, level: Level, at: SystemTime, output: &mut impl FieldOutput) {
        output.add("ts", &FieldValue::Time(at));
        output.add("level", &word(level).into());
        output.add("msg", &(&*self.message).into());
        self.others.iter().for_each(|(name, value)| output.add(name, &value.into()));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let text = &value[..value.floor_char_boundary(TEXT_MAX)];
        if field.name() == "message" {
            text.clone_into(&mut self.message);
        } else {
            self.add(field, text);
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    use parking_lot::Mutex;
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::{Context, SubscriberExt};

    use super::*;

    struct Lines(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Lines {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            for format in [MessageFormat::Logfmt, MessageFormat::Json] {
                let mut fields = Fields::default();
                event.record(&mut fields);
                let line = format.line(*event.metadata().level(), UNIX_EPOCH, &fields);
                self.0.lock().push(String::from_utf8(line).unwrap());
            }
        }
    }

    #[test]
    fn messages_are_lines_with_their_fields() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let subscriber = tracing_subscriber::registry().with(Lines(lines.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let host = "a\n\u{1b}b";
            tracing::warn!(site = "shop", sites = 2, is_new = true, host, "it {}", "failed");
        });
        let lines = lines.lock().clone();
        let start = "ts=1970-01-01T00:00:00.000000Z level=warn msg=\"it failed\"";
        let expected = format!("{start} site=shop sites=2 is_new=true host=\"a\\n\\u001bb\"");
        assert_eq!(lines[0], expected);
        let json: Value = serde_json::from_str(&lines[1]).unwrap();
        assert_eq!((&json["msg"], &json["sites"]), (&"it failed".into(), &2.into()));
        assert_eq!(json["host"], "a\n\u{1b}b");
    }
}
