//! Header fields as received.

/// Header or trailer fields in their order and case, with duplicates.
///
/// Invalid UTF-8 becomes U+FFFD; the `raw_head` of a message has the original bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(Vec<(String, String)>);

impl Fields {
    /// Value of the first field with a name, in any case.
    pub fn first<'a>(&'a self, name: &str) -> Option<&'a str> {
        self.all(name).next()
    }

    /// Values of all fields with a name, in any case, in order.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Values of all fields with a name, joined with commas (RFC 9110, section 5.3).
    pub fn joined(&self, name: &str) -> Option<String> {
        let values: Vec<&str> = self.all(name).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    /// Returns whether a field with the name exists.
    pub fn contains(&self, name: &str) -> bool {
        self.first(name).is_some()
    }

    /// Names and values of all fields.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends a field.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.push((name.into(), value.into()));
    }

    /// Appends one received line. White space before the colon stays in the name, and a line
    /// without a colon is a name without a value, so that tests can see such errors.
    pub(crate) fn push_line(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        self.push(name, value.trim_matches([' ', '\t']));
    }

    /// Changes every value in place.
    pub(crate) fn map_values(&mut self, change: impl Fn(&str) -> String) {
        for (_, value) in &mut self.0 {
            *value = change(value);
        }
    }

    /// Writes the fields as lines.
    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        for (name, value) in self.iter() {
            out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Fields {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}
