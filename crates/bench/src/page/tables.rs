//! Tables of the page: machine, missing measurements, changes between runs, the papers' values,
//! numbers beneath figures.

use std::fmt::Write as _;

use super::chart::{escaped, short};
use super::papers;
use super::read::{AxisPosition, Names, ResultLine, Run, ValueLine};

/// Returns a table with one column for each run. Rows in which runs differ are highlighted.
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

/// Returns the table of missing measurements and their reasons.
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
        let loud = run.environment.iter().any(|(name, value)| name == "quiet" && value == "no");
        let loud = loud.then_some("other programs shared the machine: its figures are indications only");
        for doubt in doubts(run).chain(loud) {
            let _ = writeln!(
                text,
                "<tr><td>{}</td><td></td><td></td><td class=\"wrap warn\">{doubt}</td></tr>",
                escaped(&run.name)
            );
        }
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "<h3 class=\"warn\">Not measured, or not to be trusted</h3>\n<div class=\"scroll\"><table><tr><th>run</th><th class=\"left\">benchmark</th><th \
         class=\"left\">peer</th><th class=\"left\">reason</th></tr>\n{text}</table></div>\n"
    )
}

/// Returns the number of goals that each run meets, and the list of missed goals.
pub(crate) fn goals(runs: &[Run]) -> String {
    let mut text = String::new();
    for run in runs {
        let bounded = run.values.iter().filter_map(|line| Some((line, line.bound?)));
        let (met, missed): (Vec<_>, Vec<_>) = bounded.partition(|(line, bound)| line.value <= *bound);
        let goals = met.len() + missed.len();
        if goals == 0 {
            continue;
        }
        let _ = writeln!(text, "<p>{}: {} of {goals} goals are met.</p>", escaped(&run.name), met.len());
        if missed.is_empty() {
            continue;
        }
        text.push_str(
            "<details><summary>Not met</summary><div class=\"scroll\"><table><tr><th>benchmark</th><th class=\"left\">variant</th>\
             <th class=\"left\">what</th><th></th><th>at most</th></tr>\n",
        );
        for (line, bound) in missed {
            let [bench, op, transport, peer, config] = named(&line.names).map(escaped);
            let (what, unit) = (escaped(&line.what), escaped(&line.unit));
            let _ = writeln!(
                text,
                "<tr><td>{bench}</td><td class=\"left\">{peer} {config} {op} {transport}</td><td class=\"left\">{what}</td>\
                 <td>{} {unit}</td><td>{}</td></tr>",
                short(line.value),
                short(bound)
            );
        }
        text.push_str("</table></div></details>\n");
    }
    if text.is_empty() { text } else { format!("<h3>Goals</h3>\n{text}") }
}

/// Returns the papers' tables for a benchmark.
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

/// Returns the statistics beneath a figure. With several runs, the run's name is shown.
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

/// Returns a table of single numbers: one row for each subject, one column for each number.
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

/// Compares lines that several runs have in common. The first run that has a line is the baseline
/// of its row.
pub(crate) fn comparison(runs: &[Run]) -> String {
    let results = compared(runs, |run| &run.results, result_key, worth, normalised);
    let values = compared(runs, |run| &run.values, value_key, |line| line.value, |_, _| "<td></td>".to_owned());
    if results.is_empty() && values.is_empty() {
        return String::new();
    }
    let mut text = "<h2>Comparison</h2>\n<p>The other runs in a row are compared with its first one: calls by their medians, oneways by the time per call. \
         <i>to baseline</i> is the ratio of the ratios to each run's own baseline, in which changes of the whole machine cancel out. It \
         is highlighted if the ranges of the repetitions do not overlap.</p>\n"
        .to_owned();
    for (title, rows) in [("Calls", results), ("Numbers", values)] {
        if rows.is_empty() {
            continue;
        }
        let _ = write!(
            text,
            "<details open><summary>{title}</summary><div class=\"scroll\"><table><tr><th>benchmark</th><th class=\"left\">op</th>\
             <th class=\"left\">variant</th>"
        );
        for (index, run) in runs.iter().enumerate() {
            let doubts: String = doubts(run).map(|doubt| format!(" <span class=\"warn\">{doubt}</span>")).collect();
            let more = if index > 0 { "<th>ratio</th><th>to baseline</th>" } else { "" };
            let _ = write!(text, "<th>{}{doubts}</th>{more}", escaped(&run.name));
        }
        let _ = writeln!(text, "</tr>\n{rows}</table></div></details>");
    }
    text
}

/// Returns the reasons why the figures of a run are in doubt.
fn doubts(run: &Run) -> impl Iterator<Item = &'static str> {
    let doubts = [(run.debug_build, "debug build"), (!run.ended, "broken off")];
    doubts.into_iter().filter(|(holds, _)| *holds).map(|(_, doubt)| doubt)
}

/// Key of a row: benchmark, operation, variant, and position on an axis.
type Key<'l> = ([&'l str; 5], Option<&'l AxisPosition>, [&'l str; 2]);

fn result_key(line: &ResultLine) -> Key<'_> {
    (named(&line.names), line.place.as_ref(), [""; 2])
}

fn value_key(line: &ValueLine) -> Key<'_> {
    (named(&line.names), line.place.as_ref(), [&line.what, &line.unit])
}

fn named(names: &Names) -> [&str; 5] {
    [&names.bench, &names.op, &names.transport, &names.peer, &names.config]
}

/// Returns a row for each line that at least two runs have.
fn compared<'r, T: 'r>(
    runs: &'r [Run],
    lines: impl Fn(&'r Run) -> &'r [T],
    key: impl Fn(&'r T) -> Key<'r>,
    worth: impl Fn(&T) -> f64,
    normalised: impl Fn(&T, &T) -> String,
) -> String {
    let mut rows = String::new();
    for (at, run) in runs.iter().enumerate() {
        for (number, line) in lines(run).iter().enumerate() {
            let wanted = key(line);
            // Lines with the same key, as for several files or settings, are compared in their
            // order.
            let earlier = lines(run)[..number].iter().filter(|other| key(other) == wanted).count();
            let find = |run: &'r Run| lines(run).iter().filter(|other| key(other) == wanted).nth(earlier);
            let (before, after) = (&runs[..at], &runs[at + 1..]);
            let found: Vec<Option<&T>> = after.iter().map(find).collect();
            if before.iter().any(|run| find(run).is_some()) || found.iter().all(Option::is_none) {
                continue;
            }
            let ([bench, op, transport, peer, config], place, [what, unit]) = wanted;
            let place = place.map_or(String::new(), |place| format!("{} {}", short(place.x), place.axis));
            let joined = |parts: &[&str]| {
                let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
                escaped(&parts.join(" "))
            };
            let variant = [joined(&[peer, config]), joined(&[&place]), joined(&[what, unit])];
            let variant: Vec<String> = variant.into_iter().filter(|part| !part.is_empty()).collect();
            let _ = write!(
                rows,
                "<tr><td>{}</td><td class=\"left\">{}</td><td class=\"left\">{}</td>",
                escaped(bench),
                joined(&[op, transport]),
                variant.join(", ")
            );
            let nothing = |run: usize| if run > 0 { "<td></td><td></td><td></td>" } else { "<td></td>" };
            (0..at).for_each(|run| rows.push_str(nothing(run)));
            let _ = write!(rows, "<td>{}</td>{}", short(worth(line)), if at > 0 { "<td></td><td></td>" } else { "" });
            for other in found {
                let Some(other) = other else {
                    rows.push_str(nothing(1));
                    continue;
                };
                let ratio = worth(other) / worth(line);
                let ratio = if ratio.is_finite() { format!("{ratio:.3}") } else { "-".to_owned() };
                let _ = write!(rows, "<td>{}</td><td>{ratio}</td>{}", short(worth(other)), normalised(line, other));
            }
            rows.push_str("</tr>\n");
        }
    }
    rows
}

/// Returns the compared value: the median, or the time per call.
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

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    fn line(id: &str, record: &str) -> String {
        format!("{{\"schema\":\"corelane-bench\",\"version\":1,\"run\":\"{id}\",\"record\":{record}}}\n")
    }

    fn result(id: &str, config: &str, p50: f64, ratio: f64) -> String {
        line(
            id,
            &format!(
                "\"result\",\"bench\":\"call\",\"peer\":\"Corelane\",\"transport\":\"tcp\",\"op\":\"octet\",\"config\":\"{config}\",\
                 \"p50_us\":{p50},\"against\":[{{\"ratio\":{ratio},\"ratio_low\":{ratio},\"ratio_high\":{ratio}}}]"
            ),
        )
    }

    fn threads(id: &str, x: u64, value: f64) -> String {
        let record = format!(
            "\"value\",\"bench\":\"scale\",\"peer\":\"Corelane\",\"config\":\"pool\",\"what\":\"size\",\"unit\":\"KiB\",\
             \"value\":{value},\"bound\":8,\"series\":\"s\",\"axis\":\"threads\",\"x\":{x}"
        );
        line(id, &record)
    }

    /// Returns three runs. The second's lines are in the third too; the first and the third share
    /// another line.
    fn runs() -> Vec<Run> {
        let (run, end) = (|id| line(id, "\"run\",\"debug_build\":false"), |id| line(id, "\"end\""));
        let texts = [
            run("a") + &result("a", "reactive", 4.0, 1.0) + &result("a", "alone", 1.0, 1.0) + &end("a"),
            line("b", "\"run\",\"debug_build\":true")
                + &result("b", "pool", 5.0, 1.25)
                + &threads("b", 1, 4.0)
                + &end("b"),
            run("c")
                + &result("c", "reactive", 6.0, 2.0)
                + &result("c", "pool", 10.0, 1.0)
                + &threads("c", 4, 9.0)
                + &threads("c", 1, 2.0),
        ];
        let mut runs = Vec::new();
        for (name, text) in ["first", "second", "third"].iter().zip(texts) {
            read::add(&mut runs, name, &text).unwrap();
        }
        runs
    }

    #[test]
    fn each_row_is_compared_with_the_first_run_that_has_it() {
        let text = comparison(&runs());
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("<tr><td>")).collect();
        assert_eq!(
            rows,
            [
                "<tr><td>call</td><td class=\"left\">octet tcp</td><td class=\"left\">Corelane reactive</td><td>4</td>\
                 <td></td><td></td><td></td><td>6</td><td>1.500</td><td class=\"warn\">2.000</td></tr>",
                "<tr><td>call</td><td class=\"left\">octet tcp</td><td class=\"left\">Corelane pool</td><td></td>\
                 <td>5</td><td></td><td></td><td>10</td><td>2.000</td><td class=\"good\">0.800</td></tr>",
                "<tr><td>scale</td><td class=\"left\"></td><td class=\"left\">Corelane pool, 1 threads, size KiB</td><td></td>\
                 <td>4</td><td></td><td></td><td>2</td><td>0.500</td><td></td></tr>",
            ]
        );
        assert_eq!(comparison(&runs()[..1]), "");
        // The first two runs have nothing in common.
        assert_eq!(comparison(&runs()[..2]), "");
    }

    #[test]
    fn rows_that_nothing_tells_apart_are_compared_in_their_order() {
        let mut runs = Vec::new();
        for (id, values) in [("a", [2.0, 30.0]), ("b", [3.0, 60.0])] {
            let text: String = values.into_iter().map(|value| threads(id, 1, value)).collect();
            read::add(&mut runs, id, &text).unwrap();
        }
        let text = comparison(&runs);
        assert!(text.contains("<td>2</td><td>3</td><td>1.500</td>"), "{text}");
        assert!(text.contains("<td>30</td><td>60</td><td>2.000</td>"), "{text}");
    }

    #[test]
    fn runs_that_mean_nothing_or_broke_off_are_marked() {
        let text = comparison(&runs());
        for head in [
            "<th>first</th>",
            "<th>second <span class=\"warn\">debug build</span></th><th>ratio</th>",
            "<th>third <span class=\"warn\">broken off</span></th><th>ratio</th>",
        ] {
            assert_eq!(text.matches(head).count(), 2, "{head} in {text}");
        }
        let text = missing(&runs());
        assert_eq!(text.lines().filter(|line| line.starts_with("<tr>")).count(), 2, "{text}");
    }

    #[test]
    fn goals_are_counted_and_those_not_met_are_listed() {
        let text = goals(&runs());
        assert!(
            text.contains("second: 1 of 1 goals are met.") && text.contains("third: 1 of 2 goals are met."),
            "{text}"
        );
        assert_eq!(text.matches("<td>9 KiB</td><td>8</td>").count(), 1, "{text}");
        assert!(!text.contains("first"), "{text}");
    }
}
