//! Tables of the page.

use std::fmt::Write as _;

use super::chart::{escaped, short};
use super::papers;
use super::read::{RecordedAxisPoint, RecordedLabel, RecordedRun, ResultLine, ValueLine};
use super::table::{Column, Table};

/// Returns a table of the runs' environments. Rows in which the runs differ are highlighted.
pub(crate) fn environment(runs: &[RecordedRun]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in runs.iter().flat_map(|run| &run.environment) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let columns = [Column::text("")].into_iter().chain(runs.iter().map(|run| Column::text(&run.name)));
    let mut table = Table::new(columns.collect());
    for name in names {
        let value =
            |run: &RecordedRun| run.environment.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone());
        let values: Vec<String> = runs.iter().map(|run| value(run).unwrap_or_default()).collect();
        let differs = if values.iter().any(|value| *value != values[0]) { "differs" } else { "" };
        table.row().plain(&name.replace('_', " "));
        values.iter().for_each(|value| _ = table.marked(differs, escaped(value)));
    }
    table.finish()
}

pub(crate) fn missing(runs: &[RecordedRun]) -> String {
    let mut table = Table::new(["run", "benchmark", "peer", "reason"].map(Column::text).to_vec());
    for run in runs {
        for missing in &run.missing {
            table.row().plain(&run.name).plain(&missing.bench).plain(&missing.peer).plain(&missing.reason);
        }
        let loud = run.environment.iter().any(|(name, value)| name == "quiet" && value == "no");
        let loud = loud.then_some("other programs shared the machine: its figures are indications only");
        for doubt in doubts(run).chain(loud) {
            table.row().plain(&run.name).cell("").cell("").marked("warn", doubt);
        }
    }
    if table.is_empty() {
        return String::new();
    }
    format!("<h3 class=\"warn\">Not measured, or not to be trusted</h3>\n{}", table.finish())
}

pub(crate) fn goals(runs: &[RecordedRun]) -> String {
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
        let mut table = Table::new(vec![
            Column::text("benchmark"),
            Column::text("variant"),
            Column::text("what"),
            Column::number("measured"),
            Column::number("at most"),
        ]);
        for (line, bound) in missed {
            let [bench, op, transport, peer, config] = named(&line.label);
            table.row().plain(bench).plain(&joined(&[peer, config, op, transport])).plain(&line.quantity);
            table.cell(format_args!("{} {}", short(line.value), escaped(&line.unit))).cell(short(bound));
        }
        let _ = writeln!(text, "<details><summary>Not met</summary>{}</details>", table.finish());
    }
    if text.is_empty() { text } else { format!("<h3>Goals</h3>\n{text}") }
}

pub(crate) fn papers(bench: &str) -> String {
    let mut text = String::new();
    for paper in papers::TABLES.iter().filter(|table| table.bench == bench) {
        let mut table = Table::new(paper.columns.iter().copied().map(Column::text).collect());
        for row in paper.rows {
            match row {
                [source] => table.heading(source),
                cells => {
                    table.row();
                    cells.iter().for_each(|cell| _ = table.plain(cell));
                }
            }
        }
        let title = escaped(paper.title);
        let _ = writeln!(text, "<details><summary>The papers: {title}</summary>{}</details>", table.finish());
    }
    text
}

pub(crate) fn results(rows: &[(&RecordedRun, &ResultLine)], several: bool) -> String {
    let columns = |numbers: &[&str]| {
        let texts = several.then_some("run").into_iter().chain(["peer", "config"]).map(Column::text);
        texts.chain(numbers.iter().copied().map(Column::number)).collect::<Vec<_>>()
    };
    let mut all = columns(&["min", "p50", "p99", "p99.9", "max", "mean", "sd", "per s"]);
    all.push(Column::text("against"));
    let (mut times, mut costs) = (
        Table::new(all),
        Table::new(columns(&["calls", "cpu client", "cpu server", "vol. switches", "invol. switches", "steal ms"])),
    );
    for (run, line) in rows {
        for table in [&mut times, &mut costs] {
            table.row();
            if several {
                table.plain(&run.name);
            }
            table.plain(&line.label.peer).plain(&line.label.config);
        }
        for number in [line.min, line.p50, line.p99, line.p999, line.max, line.mean, line.sd, line.per_s] {
            times.cell(short(number));
        }
        let against: Vec<String> = line
            .against
            .iter()
            .map(|other| format!("{:.3} ({:.3}-{:.3}) × {}", other.ratio, other.low, other.high, escaped(&other.other)))
            .collect();
        times.cell(against.join("<br>"));
        for number in
            [line.n, line.client_cpu, line.server_cpu, line.voluntary_switches, line.involuntary_switches, line.steal]
        {
            costs.cell(short(number));
        }
    }
    format!(
        "{}<details><summary>Cost of a call: processor time, context switches</summary>{}</details>\n",
        times.finish(),
        costs.finish()
    )
}

/// Maximum number of columns. A wider table exchanges rows and columns if it has more columns than
/// rows.
const MOST_COLUMNS: usize = 8;

pub(crate) fn values(rows: &[(&RecordedRun, &ValueLine)], several: bool) -> String {
    let mut whats: Vec<(&str, &str)> = Vec::new();
    let mut subjects: Vec<(&str, String)> = Vec::new();
    let subject = |line: &ValueLine| {
        let parts = [&line.label.peer, &line.label.config, &line.label.op];
        let named: Vec<&str> = parts.iter().map(|part| part.as_str()).filter(|part| !part.is_empty()).collect();
        named.join(", ")
    };
    for (run, line) in rows {
        let quantity = (line.quantity.as_str(), line.unit.as_str());
        if !whats.contains(&quantity) {
            whats.push(quantity);
        }
        let row = (run.name.as_str(), subject(line));
        if !subjects.contains(&row) {
            subjects.push(row);
        }
    }
    let cell = |(name, who): &(&str, String), (quantity, unit): &(&str, &str)| {
        let of_cell = |(run, line): &&(&RecordedRun, &ValueLine)| {
            run.name == *name && line.quantity == *quantity && line.unit == *unit && subject(line) == *who
        };
        rows.iter().find(of_cell).map_or(String::new(), |(_, line)| number(line))
    };
    let shared = whats.first().map_or("", |(_, unit)| *unit);
    let shared = if whats.iter().all(|(_, unit)| *unit == shared) { shared } else { "" };
    let what_name = |(quantity, unit): &(&str, &str)| {
        if *unit == shared || unit.is_empty() { (*quantity).to_owned() } else { format!("{quantity} ({unit})") }
    };
    let who_name = |(run, who): &(&str, String)| if several { format!("{who} [{run}]") } else { who.clone() };
    let text = [Column::text(shared)].into_iter();
    if whats.len() > MOST_COLUMNS && whats.len() > subjects.len() {
        let mut table = Table::new(text.chain(subjects.iter().map(|who| Column::number(who_name(who)))).collect());
        for quantity in &whats {
            table.row().plain(&what_name(quantity));
            subjects.iter().for_each(|who| _ = table.cell(cell(who, quantity)));
        }
        return table.finish();
    }
    let mut table = Table::new(text.chain(whats.iter().map(|quantity| Column::number(what_name(quantity)))).collect());
    for who in &subjects {
        table.row().plain(&who_name(who));
        whats.iter().for_each(|quantity| _ = table.cell(cell(who, quantity)));
    }
    table.finish()
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

/// Returns tables that compare the runs. Each row compares the first run that has the line with
/// later runs.
pub(crate) fn comparison(runs: &[RecordedRun]) -> String {
    let columns = || {
        let mut columns = vec![Column::text("benchmark"), Column::text("op"), Column::text("variant")];
        for (index, run) in runs.iter().enumerate() {
            let doubts = doubts(run).map(|doubt| format!(" <span class=\"warn\">{doubt}</span>")).collect();
            columns.push(Column::number(&run.name).remark(doubts));
            if index > 0 {
                columns.extend([Column::number("ratio"), Column::number("to baseline")]);
            }
        }
        Table::new(columns)
    };
    let (mut results, mut values) = (columns(), columns());
    compared(&mut results, runs, |run| &run.results, result_key, worth, normalised);
    compared(&mut values, runs, |run| &run.values, value_key, |line| line.value, |_, _| None);
    if results.is_empty() && values.is_empty() {
        return String::new();
    }
    let mut text = "<h2>Comparison</h2>\n<p>The other runs in a row are compared with its first one: calls by their medians, oneways by the time per call. \
         <i>to baseline</i> is the ratio of the ratios to each run's own baseline, in which changes of the whole machine cancel out. It \
         is highlighted if the ranges of the repetitions do not overlap.</p>\n"
        .to_owned();
    for (title, table) in [("Calls", results), ("Numbers", values)] {
        if !table.is_empty() {
            let _ = writeln!(text, "<details open><summary>{title}</summary>{}</details>", table.finish());
        }
    }
    text
}

fn doubts(run: &RecordedRun) -> impl Iterator<Item = &'static str> {
    let doubts = [(run.debug_build, "debug build"), (!run.ended, "broken off")];
    doubts.into_iter().filter(|(holds, _)| *holds).map(|(_, doubt)| doubt)
}

type Key<'l> = ([&'l str; 5], Option<&'l RecordedAxisPoint>, [&'l str; 2]);

fn result_key(line: &ResultLine) -> Key<'_> {
    (named(&line.label), line.axis_point.as_ref(), [""; 2])
}

fn value_key(line: &ValueLine) -> Key<'_> {
    (named(&line.label), line.axis_point.as_ref(), [&line.quantity, &line.unit])
}

fn named(names: &RecordedLabel) -> [&str; 5] {
    [&names.bench, &names.op, &names.transport, &names.peer, &names.config]
}

/// Adds a row for each line that several runs have. `normalised` compares two lines after a
/// division by their baselines.
fn compared<'r, T: 'r>(
    table: &mut Table,
    runs: &'r [RecordedRun],
    lines: impl Fn(&'r RecordedRun) -> &'r [T],
    key: impl Fn(&'r T) -> Key<'r>,
    worth: impl Fn(&T) -> f64,
    normalised: impl Fn(&T, &T) -> Option<(f64, &'static str)>,
) {
    for (at, run) in runs.iter().enumerate() {
        for (number, line) in lines(run).iter().enumerate() {
            let wanted = key(line);
            // Several lines of a run may have the same key. The n-th line with a key is therefore
            // compared with the n-th line with this key in another run.
            let earlier = lines(run)[..number].iter().filter(|other| key(other) == wanted).count();
            let find = |run: &'r RecordedRun| lines(run).iter().filter(|other| key(other) == wanted).nth(earlier);
            let (before, after) = (&runs[..at], &runs[at + 1..]);
            let found: Vec<Option<&T>> = after.iter().map(find).collect();
            if before.iter().any(|run| find(run).is_some()) || found.iter().all(Option::is_none) {
                continue;
            }
            let ([bench, op, transport, peer, config], place, [quantity, unit]) = wanted;
            let place = place.map_or(String::new(), |place| format!("{} {}", short(place.x), place.axis));
            let variant = [joined(&[peer, config]), joined(&[&place]), joined(&[quantity, unit])];
            let variant: Vec<String> = variant.into_iter().filter(|part| !part.is_empty()).collect();
            table.row().plain(bench).plain(&joined(&[op, transport])).plain(&variant.join(", "));
            (0..at).for_each(|run| table.gap(if run > 0 { 3 } else { 1 }));
            table.cell(short(worth(line))).gap(if at > 0 { 2 } else { 0 });
            for other in found {
                let Some(other) = other else {
                    table.gap(3);
                    continue;
                };
                let ratio = worth(other) / worth(line);
                table.cell(short(worth(other)));
                table.cell(if ratio.is_finite() { format!("{ratio:.3}") } else { "-".to_owned() });
                match normalised(line, other) {
                    Some((ratio, class)) => table.marked(class, format_args!("{ratio:.3}")),
                    None => table.cell(""),
                };
            }
        }
    }
}

fn joined(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

fn worth(line: &ResultLine) -> f64 {
    if line.by_rate { 1e6 / line.per_s } else { line.p50 }
}

fn normalised(one: &ResultLine, other: &ResultLine) -> Option<(f64, &'static str)> {
    let (before, after) = (one.against.first()?, other.against.first()?);
    let apart = after.low > before.high || after.high < before.low;
    let class = match apart {
        true if after.ratio > before.ratio => "warn",
        true => "good",
        false => "",
    };
    Some((after.ratio / before.ratio, class))
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

    fn runs() -> Vec<RecordedRun> {
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

    fn cells(row: &str) -> String {
        let cells = row.split("<td").skip(1).map(|cell| {
            let (attributes, text) = cell.split_once('>').unwrap();
            let class = ["warn", "good"].into_iter().find(|class| attributes.contains(class));
            let text = text.split("</td>").next().unwrap();
            class.map_or(text.to_owned(), |class| format!("{class} {text}"))
        });
        cells.collect::<Vec<_>>().join("|")
    }

    #[test]
    fn row_is_compared_with_the_first_run_that_has_the_line() {
        let text = comparison(&runs());
        let rows: Vec<String> = text.lines().filter(|line| line.starts_with("<tr><td")).map(cells).collect();
        assert_eq!(
            rows,
            [
                "call|octet tcp|Corelane reactive|4||||6|1.500|warn 2.000",
                "call|octet tcp|Corelane pool||5|||10|2.000|good 0.800",
                "scale||Corelane pool, 1 threads, size KiB||4|||2|0.500|",
            ]
        );
        assert_eq!(comparison(&runs()[..1]), "");
        assert_eq!(comparison(&runs()[..2]), "");
    }

    #[test]
    fn rows_with_equal_keys_are_compared_in_their_order() {
        let mut runs = Vec::new();
        for (id, values) in [("a", [2.0, 30.0]), ("b", [3.0, 60.0])] {
            let text: String = values.into_iter().map(|value| threads(id, 1, value)).collect();
            read::add(&mut runs, id, &text).unwrap();
        }
        let text = comparison(&runs);
        let rows: Vec<String> = text.lines().filter(|line| line.starts_with("<tr><td")).map(cells).collect();
        assert!(rows[0].ends_with("|2|3|1.500|") && rows[1].ends_with("|30|60|2.000|"), "{rows:?}");
    }

    #[test]
    fn debug_builds_and_incomplete_runs_are_marked() {
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
    fn goals_are_counted_and_missed_goals_are_listed() {
        let text = goals(&runs());
        assert!(
            text.contains("second: 1 of 1 goals are met.") && text.contains("third: 1 of 2 goals are met."),
            "{text}"
        );
        let missed: Vec<String> = text.lines().filter(|line| line.starts_with("<tr><td")).map(cells).collect();
        assert_eq!(missed, ["scale|Corelane pool|size|9 KiB|8"]);
        assert!(!text.contains("first"), "{text}");
    }

    #[test]
    fn table_with_more_columns_than_rows_is_transposed() {
        let text: String = (0..10)
            .map(|number| {
                let record = format!(
                    "\"value\",\"bench\":\"cubit\",\"peer\":\"omniORB\",\"what\":\"op{number}\",\"unit\":\"us\",\"value\":{number}"
                );
                line("a", &record)
            })
            .collect();
        let mut runs = Vec::new();
        read::add(&mut runs, "a", &text).unwrap();
        let rows = |most: usize| {
            let rows: Vec<_> = runs[0].values.iter().take(most).map(|line| (&runs[0], line)).collect();
            values(&rows, false).lines().filter(|line| line.starts_with("<tr><td")).map(cells).collect::<Vec<_>>()
        };
        assert_eq!(rows(3), ["omniORB|0|1|2"]);
        assert_eq!((rows(10).len(), rows(10)[9].as_str()), (10, "op9|9"));
    }
}
