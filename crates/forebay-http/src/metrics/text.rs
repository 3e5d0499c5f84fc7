//! Prometheus text format 0.0.4, from the OpenMetrics text that the registry writes.

use std::fmt::Write;

/// Rewrites metrics in OpenMetrics text to the Prometheus text format 0.0.4, which every version of
/// Prometheus and its tools read.
///
/// The samples are equal. The lines of a family name it as its samples do: with `_total` for a
/// counter and `_info` for an info.
pub(super) fn to_prometheus(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, "unknown"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" if name.ends_with("_total") => ("", "counter"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            let help = help.take().filter(|(of, _)| *of == name).map_or("", |(_, help)| help);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_the_names_of_their_samples() {
        let openmetrics = "\
# HELP a Build.
# TYPE a info
a_info{v=\"1\"} 1
# HELP b Bees # of a hive.
# TYPE b counter
# UNIT b seconds
b_total{x=\"# y\"} 2
# HELP c_total Seas.
# TYPE c_total unknown
c_total 3
# HELP d Dees.
# TYPE d histogram
d_sum 1.0
d_count 1
d_bucket{le=\"+Inf\"} 1
# EOF
";
        let expected = "\
# HELP a_info Build.
# TYPE a_info gauge
a_info{v=\"1\"} 1
# HELP b_total Bees # of a hive.
# TYPE b_total counter
b_total{x=\"# y\"} 2
# HELP c_total Seas.
# TYPE c_total counter
c_total 3
# HELP d Dees.
# TYPE d histogram
d_sum 1.0
d_count 1
d_bucket{le=\"+Inf\"} 1
";
        assert_eq!(to_prometheus(openmetrics), expected);
    }
}
