//! Counters in the Prometheus text format.

/// Name of a metric, and labels that its samples must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    name: String,
    labels: Vec<(String, String)>,
}

impl Selector {
    /// Reads `name` or `name{a="b",c="d"}`; returns the rest of the text with it.
    pub(crate) fn read(text: &str) -> Option<(Self, &str)> {
        let end = text.find(|c: char| !is_name(c)).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        if name.is_empty() {
            return None;
        }
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => read_labels(rest)?,
            None => (Vec::new(), rest),
        };
        Some((Self { name: name.to_owned(), labels }, rest))
    }

    /// Sum of the matching samples; 0 if the metric exists without such a sample, `None` if it does
    /// not exist.
    pub(crate) fn sum(&self, text: &str) -> Option<f64> {
        let mut known = false;
        let mut sum = 0.0;
        for line in text.lines() {
            known = known || self.is_declared_by(line);
            let Some((sample, rest)) = Self::read(line) else { continue };
            if sample.name != self.name {
                continue;
            }
            known = true;
            if self.labels.iter().all(|label| sample.labels.contains(label)) {
                let value = rest.split_whitespace().next();
                sum += value.and_then(|value| value.parse::<f64>().ok()).unwrap_or(f64::NAN);
            }
        }
        known.then_some(sum)
    }

    /// Returns whether the line is the `# TYPE` of the metric. OpenMetrics omits `_total` there.
    fn is_declared_by(&self, line: &str) -> bool {
        let family = self.name.strip_suffix("_total").unwrap_or(&self.name);
        let mut words = line.split_whitespace();
        words.next() == Some("#")
            && words.next() == Some("TYPE")
            && words.next().is_some_and(|name| name == self.name || name == family)
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

type Labels = Vec<(String, String)>;

fn read_labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = rest.split_once("=\"")?;
        let (value, after) = read_value(after)?;
        labels.push((name.trim().to_owned(), value));
        rest = after;
    }
}

/// Reads a label value up to its closing quote, and resolves escapes.
fn read_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            c => value.push(c),
        }
    }
    None
}
