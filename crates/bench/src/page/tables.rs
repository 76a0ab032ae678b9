//! The page's tables: machine, what is missing, what changed between runs, the papers' values, numbers beneath figures.

use std::fmt::Write as _;

use super::chart::{escaped, short};
use super::papers;
use super::read::{ResultLine, Run, ValueLine};

/// One column for each run; rows in which runs differ stand out.
pub(crate) fn environment(runs: &[Run]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in runs.iter().flat_map(|run| &run.environment) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let mut text = String::from("<div class=\"scroll\"><table><tr><th></th>");
    for run in runs {
        let _ = write!(text, "<th class=\"left\">{}</th>", escaped(&run.name));
    }
    text.push_str("</tr>\n");
    for name in names {
        let value = |run: &Run| run.environment.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone());
        let values: Vec<String> = runs.iter().map(|run| value(run).unwrap_or_default()).collect();
        let differs = if values.iter().any(|value| *value != values[0]) { " differs" } else { "" };
        let _ = write!(text, "<tr><td>{}</td>", escaped(&name.replace('_', " ")));
        for value in values {
            let _ = write!(text, "<td class=\"wrap{differs}\">{}</td>", escaped(&value));
        }
        text.push_str("</tr>\n");
    }
    text + "</table></div>\n"
}

/// What was not measured, with reasons.
pub(crate) fn missing(runs: &[Run]) -> String {
    let mut text = String::new();
    for run in runs {
        for missing in &run.missing {
            let _ = writeln!(
                text,
                "<tr><td>{}</td><td class=\"left\">{}</td><td class=\"left\">{}</td><td class=\"wrap\">{}</td></tr>",
                escaped(&run.name),
                escaped(&missing.bench),
                escaped(&missing.peer),
                escaped(&missing.reason)
            );
        }
        if run.environment.iter().any(|(name, value)| name == "quiet" && value == "no") {
            let _ = writeln!(
                text,
                "<tr><td>{}</td><td></td><td></td><td class=\"wrap warn\">other programs shared the machine: its figures are \
                 indications only</td></tr>",
                escaped(&run.name)
            );
        }
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "<h3 class=\"warn\">Not measured, or not on a quiet machine</h3>\n<div class=\"scroll\"><table><tr><th>run</th><th class=\"left\">benchmark</th><th \
         class=\"left\">peer</th><th class=\"left\">reason</th></tr>\n{text}</table></div>\n"
    )
}

/// What the papers have for a benchmark.
pub(crate) fn papers(bench: &str) -> String {
    let mut text = String::new();
    for table in papers::TABLES.iter().filter(|table| table.bench == bench) {
        let _ = write!(
            text,
            "<details open><summary>The papers: {}</summary><div class=\"scroll\"><table><tr>",
            escaped(table.title)
        );
        table.columns.iter().for_each(|column| {
            let _ = write!(text, "<th>{}</th>", escaped(column));
        });
        text.push_str("</tr>\n");
        for row in table.rows {
            if let [source] = row {
                let _ = writeln!(
                    text,
                    "<tr class=\"source\"><td colspan=\"{}\">{}</td></tr>",
                    table.columns.len(),
                    escaped(source)
                );
                continue;
            }
            text.push_str("<tr>");
            row.iter().for_each(|cell| {
                let _ = write!(text, "<td>{}</td>", escaped(cell));
            });
            text.push_str("</tr>\n");
        }
        text.push_str("</table></div></details>\n");
    }
    text
}

/// Statistics beneath a figure. The run's name is shown where there are several.
pub(crate) fn results(rows: &[(&Run, &ResultLine)], several: bool) -> String {
    let mut text = String::from("<div class=\"scroll\"><table><tr>");
    if several {
        text.push_str("<th>run</th>");
    }
    text.push_str(
        "<th class=\"left\">peer</th><th class=\"left\">config</th><th>n</th><th>min</th><th>p50</th><th>p99</th><th>p99.9</th>\
         <th>max</th><th>mean</th><th>sd</th><th>per s</th><th>cpu cl</th><th>cpu sv</th><th>vol sw</th><th>invol sw</th><th>steal ms</th><th class=\"left\">against</th></tr>\n",
    );
    for (run, line) in rows {
        text.push_str("<tr>");
        if several {
            let _ = write!(text, "<td>{}</td>", escaped(&run.name));
        }
        let _ = write!(
            text,
            "<td class=\"left\">{}</td><td class=\"left\">{}</td>",
            escaped(&line.names.peer),
            escaped(&line.names.config)
        );
        for number in [
            line.n,
            line.min,
            line.p50,
            line.p99,
            line.p999,
            line.max,
            line.mean,
            line.sd,
            line.per_s,
            line.client_cpu,
            line.server_cpu,
            line.voluntary,
            line.involuntary,
            line.steal,
        ] {
            let _ = write!(text, "<td>{}</td>", short(number));
        }
        text.push_str("<td class=\"wrap\">");
        for (index, other) in line.against.iter().enumerate() {
            let _ = write!(
                text,
                "{}{:.3} ({:.3}-{:.3}) × {}",
                if index > 0 { "; " } else { "" },
                other.ratio,
                other.low,
                other.high,
                escaped(&other.who)
            );
        }
        text.push_str("</td></tr>\n");
    }
    text + "</table></div>\n"
}

/// Single numbers: one row for each thing looked at, one column for each number.
pub(crate) fn values(rows: &[(&Run, &ValueLine)], several: bool) -> String {
    let mut columns: Vec<(&str, &str)> = Vec::new();
    let mut subjects: Vec<(&str, String)> = Vec::new();
    let subject = |line: &ValueLine| {
        let parts = [&line.names.peer, &line.names.config, &line.names.op];
        let named: Vec<&str> = parts.iter().map(|part| part.as_str()).filter(|part| !part.is_empty()).collect();
        named.join(", ")
    };
    for (run, line) in rows {
        let column = (line.what.as_str(), line.unit.as_str());
        if !columns.contains(&column) {
            columns.push(column);
        }
        let row = (run.name.as_str(), subject(line));
        if !subjects.contains(&row) {
            subjects.push(row);
        }
    }
    let mut text = String::from("<div class=\"scroll\"><table><tr>");
    if several {
        text.push_str("<th>run</th>");
    }
    text.push_str("<th class=\"left\"></th>");
    for (what, unit) in &columns {
        let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
        let _ = write!(text, "<th>{}{}</th>", escaped(what), escaped(&unit));
    }
    text.push_str("</tr>\n");
    for (name, who) in &subjects {
        text.push_str("<tr>");
        if several {
            let _ = write!(text, "<td>{}</td>", escaped(name));
        }
        let _ = write!(text, "<td class=\"left\">{}</td>", escaped(who));
        for (what, unit) in &columns {
            let found = rows.iter().find(|(run, line)| {
                run.name == *name && line.what == *what && line.unit == *unit && subject(line) == *who
            });
            let cell = found.map_or(String::new(), |(_, line)| number(line));
            let _ = write!(text, "<td>{cell}</td>");
        }
        text.push_str("</tr>\n");
    }
    text + "</table></div>\n"
}

fn number(line: &ValueLine) -> String {
    match line.bound {
        Some(bound) if line.value > bound => {
            format!("<span class=\"warn\">{}</span> above {}", short(line.value), short(bound))
        }
        Some(bound) => format!("{} <span class=\"soft\">of {}</span>", short(line.value), short(bound)),
        None => short(line.value),
    }
}

/// What several runs have in common: their medians (or rates), and how the second and later relate to the first.
pub(crate) fn comparison(runs: &[Run]) -> String {
    let [first, others @ ..] = runs else { return String::new() };
    if others.is_empty() {
        return String::new();
    }
    let mut rows = String::new();
    for line in &first.results {
        let found: Vec<Option<&ResultLine>> =
            others.iter().map(|run| run.results.iter().find(|other| same(line, other))).collect();
        if found.iter().all(Option::is_none) {
            continue;
        }
        let names = &line.names;
        let _ = write!(
            rows,
            "<tr><td>{}</td><td class=\"left\">{}</td><td class=\"left\">{} {}</td><td>{}</td>",
            escaped(&names.bench),
            escaped(&format!("{} {}", names.op, names.transport)),
            escaped(&names.peer),
            escaped(&names.config),
            short(worth(line))
        );
        for other in found {
            let Some(other) = other else {
                rows.push_str("<td></td><td></td><td></td>");
                continue;
            };
            let ratio = worth(other) / worth(line);
            let _ = write!(rows, "<td>{}</td><td>{ratio:.3}</td>{}", short(worth(other)), normalised(line, other));
        }
        rows.push_str("</tr>\n");
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut head = format!(
        "<h2>Comparison</h2>\n<p>Medians (of oneways: time per call) of {}, and of each other run with its ratio to it. The last column \
         of a run is the ratio of the ratios to each run's own baseline: it leaves out what changed for the machine as a whole. It \
         stands out where no repetition of one run was as any of the other.</p>\n\
         <details open><summary>Table</summary><div class=\"scroll\"><table><tr><th>benchmark</th><th class=\"left\">op</th><th \
         class=\"left\">variant</th><th>{}</th>",
        escaped(&first.name),
        escaped(&first.name)
    );
    for run in others {
        let _ = write!(head, "<th>{}</th><th>ratio</th><th>to baseline</th>", escaped(&run.name));
    }
    format!("{head}</tr>\n{rows}</table></div></details>\n")
}

fn same(one: &ResultLine, other: &ResultLine) -> bool {
    let (a, b) = (&one.names, &other.names);
    (&a.bench, &a.peer, &a.transport, &a.op, &a.config) == (&b.bench, &b.peer, &b.transport, &b.op, &b.config)
}

/// What compares: the median, or the time per call.
fn worth(line: &ResultLine) -> f64 {
    if line.by_rate { 1e6 / line.per_s } else { line.p50 }
}

fn normalised(one: &ResultLine, other: &ResultLine) -> String {
    let (Some(before), Some(after)) = (one.against.first(), other.against.first()) else {
        return "<td></td>".to_owned();
    };
    let apart = after.low > before.high || after.high < before.low;
    let class = match apart {
        true if after.ratio > before.ratio => " class=\"warn\"",
        true => " class=\"good\"",
        false => "",
    };
    format!("<td{class}>{:.3}</td>", after.ratio / before.ratio)
}
