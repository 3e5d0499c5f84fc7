//! The HTML page of a record: one file without network access.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::plot::{bars, escaped, lines};

const STYLE: &str = "
:root{color-scheme:light dark;--line:#8885;--ours:#0b7a75;--rival:#94a3b8}
body{overflow-wrap:anywhere;font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:0 auto;padding:1rem}
h2{margin-top:3rem;border-top:2px solid var(--line);padding-top:1rem}
h3{font-size:1.05rem;overflow-wrap:anywhere}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.85rem;overflow-wrap:normal}
td,th{border-bottom:1px solid var(--line);padding:.3rem .6rem;text-align:left;vertical-align:top}
tr.lost td:nth-child(4){color:#c2410c}
tr.missed td:last-child{color:#c2410c;font-weight:bold}
.bars{display:grid;grid-template-columns:minmax(5rem,28%) 1fr minmax(4.5rem,auto);gap:.1rem .6rem;
align-items:center;font-size:.85rem;margin:.8rem 0}
.bars p{grid-column:1/-1;margin:0;font-weight:600}
.bars span{overflow-wrap:anywhere}.bars b{font-weight:400;text-align:right}
i{font-weight:400;opacity:.7}
svg.ours rect{fill:var(--ours)}svg.rivals rect{fill:var(--rival)}
svg.published rect{fill:none;stroke:var(--rival);stroke-width:2}
svg.lines{width:100%;height:180px;border-left:1px solid var(--line);border-bottom:1px solid var(--line)}
polyline{fill:none;stroke-width:1.5;vector-effect:non-scaling-stroke}
.legend span{margin-right:1rem}.axis,.from{font-size:.8rem;opacity:.8;overflow-wrap:anywhere}
pre{overflow-x:auto;font-size:.75rem;white-space:pre-wrap;overflow-wrap:anywhere}
a{color:inherit}nav a{margin-right:.8rem;display:inline-block}
";

/// Text of the page. Benchmarks in which a rival is ahead come first.
pub(super) fn render(benchmarks: &Map<String, Value>) -> String {
    let mut order: Vec<(&String, &Value)> = benchmarks.iter().collect();
    order.sort_by_key(|(_, one)| !is_lost(one));
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content='width=device-width,initial-scale=1'>\
         <link rel=icon href='data:,'>\
         <title>forebay: benchmarks</title><style>{STYLE}</style>\
         <main><h1>Benchmarks of forebay</h1>\
         <p>Benchmarks in which a rival is ahead in some row come first; those rows say by how \
         much; a difference below 2 % counts as none. Published figures come from the named source and from its machine; all \
         others were measured in one run.</p><nav>"
    );
    for (name, _) in &order {
        let _ = write!(page, "<a href='#{0}'>{0}</a>", escaped(name));
    }
    page.push_str("</nav>\n");
    for (name, benchmark) in order {
        section(&mut page, name, benchmark);
    }
    page.push_str("</main></html>\n");
    page
}

fn is_lost(benchmark: &Value) -> bool {
    tables(benchmark).any(|table| table["lost"] == true)
}

fn tables(benchmark: &Value) -> impl Iterator<Item = &Value> {
    benchmark["tables"].as_array().into_iter().flatten()
}

fn section(page: &mut String, name: &str, benchmark: &Value) {
    let text = |field: &str| escaped(benchmark[field].as_str().unwrap_or_default());
    let (name, shows) = (escaped(name), text("shows"));
    let _ = write!(
        page,
        "<h2 id='{name}'>{name}: {shows}</h2><p class=from><code>{}</code>, ",
        text("command")
    );
    let _ = write!(
        page,
        "{} s on {} at {}; {}",
        benchmark["seconds"],
        text("date"),
        text("commit"),
        text("machine")
    );
    page.push_str(if benchmark["quick"] == true {
        "; shortened by --quick, with few rounds: small differences may be chance</p>"
    } else {
        "</p>"
    });
    for table in tables(benchmark) {
        let _ = write!(page, "<h3>{}</h3>{}{}", cell(&table["title"]), bars(table), lines(table));
        rows(page, table);
        if let Some(note) = table["note"].as_str().filter(|note| !note.is_empty()) {
            let _ = write!(page, "<p>{}</p>", escaped(note));
        }
        for rival in table["rivals"].as_array().into_iter().flatten() {
            one_rival(page, rival);
        }
    }
}

fn cell(value: &Value) -> String {
    escaped(value.as_str().unwrap_or_default())
}

fn rows(page: &mut String, table: &Value) {
    // With the keyboard, a region is scrolled once it has the focus.
    page.push_str("<div class=scroll tabindex=0><table><tr>");
    for column in table["columns"].as_array().into_iter().flatten() {
        let _ = match cell(column).as_str() {
            // The column of the names.
            "" => write!(page, "<td></td>"),
            title => write!(page, "<th>{title}</th>"),
        };
    }
    page.push_str("<th>bound</th><th>holds</th></tr>");
    for row in table["rows"].as_array().into_iter().flatten() {
        let lost = if row["comparison"]["lost"] == true { "lost" } else { "" };
        let missed = if row["holds"] == "NO" { "missed" } else { "" };
        let _ = write!(page, "<tr class='{lost} {missed}'>");
        for text in row["cells"].as_array().into_iter().flatten() {
            let _ = write!(page, "<td>{}</td>", cell(text));
        }
        let _ =
            write!(page, "<td>{}</td><td>{}</td></tr>", cell(&row["bound"]), cell(&row["holds"]));
    }
    page.push_str("</table></div>");
}

fn one_rival(page: &mut String, rival: &Value) {
    let field = |name: &str| cell(&rival[name]);
    if let Some(missing) = rival["missing"].as_str() {
        let _ = write!(page, "<p>{} was not measured: {}</p>", field("name"), escaped(missing));
        return;
    }
    let _ = write!(
        page,
        "<details><summary>{} {}</summary><p>{}</p><p class=from>{}</p><pre>{}</pre></details>",
        field("name"),
        field("version"),
        field("why"),
        field("documentation"),
        field("settings"),
    );
}
