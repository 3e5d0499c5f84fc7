//! Plots of a table: bars for each comparison, lines for values over time.

use std::fmt::Write as _;

use serde_json::Value;

use super::comparison::Unit;

/// Colours of lines, in the order of the subjects.
const COLOURS: [&str; 8] =
    ["#0b7a75", "#c2410c", "#4338ca", "#a16207", "#be185d", "#475569", "#15803d", "#9f1239"];

/// Width and height of a plot of lines, in its own units.
const SIZE: (f64, f64) = (700.0, 180.0);

/// Text with the characters of HTML replaced.
pub(super) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// Bars of the rows that compare at least two figures; each row has a scale of its own.
pub(super) fn bars(table: &Value) -> String {
    let mut all = String::new();
    for row in table["rows"].as_array().into_iter().flatten() {
        let comparison = &row["comparison"];
        let mut figures: Vec<(&str, &Value)> = Vec::new();
        figures
            .extend(comparison.get("ours").filter(|ours| !ours.is_null()).map(|one| ("ours", one)));
        for kind in ["rivals", "published"] {
            let those = comparison[kind].as_array().into_iter().flatten();
            figures.extend(those.map(|figure| (kind, figure)));
        }
        if figures.len() < 2 {
            continue;
        }
        let unit = Unit::named(comparison["unit"].as_str().unwrap_or_default());
        let value = |figure: &Value| figure["value"].as_f64().unwrap_or_default();
        let most = figures.iter().map(|(_, one)| value(one)).fold(f64::MIN_POSITIVE, f64::max);
        let name = escaped(row["cells"][0].as_str().unwrap_or_default());
        let _ = write!(all, "<div class=bars><p>{name}{}</p>", hint(comparison));
        for (kind, figure) in figures {
            let mut subject = escaped(figure["subject"].as_str().unwrap_or_default());
            if kind == "published" {
                subject.push_str(" <i>published</i>");
            }
            let width = (value(figure) / most * 100.0).max(0.5);
            let _ = write!(
                all,
                "<span>{subject}</span><svg class={kind} height=12 width='100%'>\
                 <rect width='{width:.2}%' height=12 /></svg><b>{}</b>",
                unit.show(value(figure))
            );
        }
        all.push_str("</div>\n");
    }
    all
}

fn hint(comparison: &Value) -> &'static str {
    match comparison["better"].as_str() {
        Some("lower") => " <i>shorter is better</i>",
        Some("higher") => " <i>longer is better</i>",
        _ => "",
    }
}

/// Lines over time with a legend.
pub(super) fn lines(table: &Value) -> String {
    let series: Vec<&Value> = table["series"].as_array().into_iter().flatten().collect();
    let points = |one: &Value| -> Vec<(f64, f64)> {
        serde_json::from_value(one["points"].clone()).unwrap_or_default()
    };
    let all: Vec<(f64, f64)> = series.iter().flat_map(|one| points(one)).collect();
    let most = |of: fn(&(f64, f64)) -> f64| all.iter().map(of).fold(0.0, f64::max);
    let (right, top) = (most(|point| point.0), most(|point| point.1));
    if right <= 0.0 || top <= 0.0 {
        return String::new();
    }
    let mut legend = String::new();
    let (width, height) = SIZE;
    let mut drawn =
        format!("<svg class=lines viewBox='0 0 {width} {height}' preserveAspectRatio=none>");
    for (one, colour) in series.iter().zip(COLOURS) {
        let path = points(one).into_iter().map(|(x, y)| {
            format!("{:.1},{:.1}", x / right * width, height - y / top * height * 0.98)
        });
        let path = path.collect::<Vec<_>>().join(" ");
        let _ = write!(drawn, "<polyline stroke='{colour}' points='{path}' />");
        let subject = escaped(one["subject"].as_str().unwrap_or_default());
        let _ = write!(legend, "<span style='color:{colour}'>■ {subject}</span> ");
    }
    format!(
        "<p class=legend>{legend}</p>{drawn}</svg><p class=axis>0 to {right:.0} s; up to {top:.1}</p>"
    )
}
