//! Parser for the JSON lines of runs (docs/benchmarks.md has their schema).

use serde_json::Value as Json;

use crate::Failure;
use crate::report::SCHEMA_VERSION;

#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedRun {
    pub(crate) name: String,
    given_name: Option<String>,
    pub(crate) id: String,
    /// Members of the records `run` and `end` that describe the environment, in their order.
    pub(crate) environment: Vec<(String, String)>,
    /// Fractions of the calls. `cdf` of a result has, for each fraction, the time in microseconds
    /// within which this fraction of the calls ended.
    pub(crate) cdf_parts: Vec<f64>,
    pub(crate) results: Vec<ResultLine>,
    pub(crate) values: Vec<ValueLine>,
    pub(crate) missing: Vec<Missing>,
    pub(crate) ended: bool,
    pub(crate) debug_build: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RecordedLabel {
    pub(crate) bench: String,
    pub(crate) group: String,
    pub(crate) peer: String,
    pub(crate) transport: String,
    pub(crate) op: String,
    pub(crate) config: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordedAxisPoint {
    pub(crate) series: String,
    pub(crate) axis: String,
    pub(crate) x: f64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ResultLine {
    pub(crate) label: RecordedLabel,
    pub(crate) axis_point: Option<RecordedAxisPoint>,
    /// True if ratios compare rates instead of medians.
    pub(crate) by_rate: bool,
    pub(crate) n: f64,
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
    pub(crate) sd: f64,
    pub(crate) per_s: f64,
    pub(crate) client_cpu: f64,
    pub(crate) server_cpu: f64,
    pub(crate) voluntary_switches: f64,
    pub(crate) involuntary_switches: f64,
    pub(crate) steal: f64,
    pub(crate) cdf: Vec<f64>,
    pub(crate) against: Vec<ReferenceRatio>,
}

#[derive(Clone, Debug)]
pub(crate) struct ReferenceRatio {
    pub(crate) other: String,
    pub(crate) ratio: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct ValueLine {
    pub(crate) label: RecordedLabel,
    pub(crate) axis_point: Option<RecordedAxisPoint>,
    pub(crate) quantity: String,
    pub(crate) value: f64,
    pub(crate) unit: String,
    pub(crate) bound: Option<f64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Missing {
    pub(crate) bench: String,
    pub(crate) peer: String,
    pub(crate) reason: String,
}

pub(crate) fn add(runs: &mut Vec<RecordedRun>, name: &str, text: &str) -> Result<(), Failure> {
    let before = runs.len();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |reason: &str| Failure::new(format!("{name}, line {}: {reason}", index + 1));
        let line: Json = serde_json::from_str(line).map_err(|error| wrong(&error.to_string()))?;
        if line["schema"] != "corelane-bench" {
            return Err(wrong("not a line of `corelane bench --json`"));
        }
        match line["version"].as_u64() {
            Some(SCHEMA_VERSION) => {}
            other => return Err(wrong(&format!("schema version {other:?}; this program reads {SCHEMA_VERSION}"))),
        }
        let id = text_of(&line, "run");
        let at = runs[before..].iter().position(|run| run.id == id).map(|at| before + at);
        let at = at.unwrap_or_else(|| {
            runs.push(RecordedRun { id, ..RecordedRun::default() });
            runs.len() - 1
        });
        take(&mut runs[at], &line);
    }
    let several = runs.len() - before > 1;
    for (number, run) in runs[before..].iter_mut().enumerate() {
        run.name = match &run.given_name {
            Some(given) => given.clone(),
            None if several => format!("{name} #{}", number + 1),
            None => name.to_owned(),
        };
    }
    Ok(())
}

fn take(run: &mut RecordedRun, line: &Json) {
    match line["record"].as_str() {
        Some("run") => {
            run.cdf_parts = numbers(&line["cdf_parts"]);
            run.given_name = line["name"].as_str().map(str::to_owned);
            run.debug_build = line["debug_build"] == true;
            run.environment = environment(line);
        }
        Some("end") => {
            run.ended = true;
            run.environment.extend(environment(line));
        }
        Some("result") => run.results.push(result(line)),
        Some("value") => run.values.push(ValueLine {
            label: names(line),
            axis_point: place(line),
            quantity: text_of(line, "what"),
            value: number(line, "value"),
            unit: text_of(line, "unit"),
            bound: line["bound"].as_f64(),
        }),
        Some("missing") => run.missing.push(Missing {
            bench: text_of(line, "bench"),
            peer: text_of(line, "peer"),
            reason: text_of(line, "reason"),
        }),
        // A later version of the program may write unknown records, which are ignored.
        _ => {}
    }
}

fn environment(line: &Json) -> Vec<(String, String)> {
    const OTHERS: [&str; 5] = ["schema", "version", "run", "record", "cdf_parts"];
    let members = line.as_object().into_iter().flatten();
    members
        .filter(|(name, _)| !OTHERS.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), as_text(value)))
        .collect()
}

fn as_text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Bool(true) => "yes".to_owned(),
        Json::Bool(false) => "no".to_owned(),
        Json::Array(list) if list.is_empty() => "none".to_owned(),
        Json::Array(list) => list.iter().map(as_text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

fn result(line: &Json) -> ResultLine {
    let against = line["against"].as_array().into_iter().flatten().map(|other| ReferenceRatio {
        other: format!("{} {}", text_of(other, "peer"), text_of(other, "config")),
        ratio: number(other, "ratio"),
        low: number(other, "ratio_low"),
        high: number(other, "ratio_high"),
    });
    ResultLine {
        label: names(line),
        axis_point: place(line),
        by_rate: line["compared"] == "per_s",
        n: number(line, "n"),
        min: number(line, "min_us"),
        p50: number(line, "p50_us"),
        p99: number(line, "p99_us"),
        p999: number(line, "p999_us"),
        max: number(line, "max_us"),
        mean: number(line, "mean_us"),
        sd: number(line, "sd_us"),
        per_s: number(line, "per_s"),
        client_cpu: number(line, "client_cpu_us"),
        server_cpu: number(line, "server_cpu_us"),
        voluntary_switches: number(line, "voluntary_switches"),
        involuntary_switches: number(line, "involuntary_switches"),
        steal: number(line, "steal_ms"),
        cdf: numbers(&line["cdf_us"]),
        against: against.collect(),
    }
}

fn names(line: &Json) -> RecordedLabel {
    let mut names = RecordedLabel {
        bench: text_of(line, "bench"),
        group: text_of(line, "group"),
        peer: text_of(line, "peer"),
        transport: text_of(line, "transport"),
        op: text_of(line, "op"),
        config: text_of(line, "config"),
    };
    // Lines of older versions of the program lack the name of the group.
    if names.group.is_empty() {
        names.group = format!("{} {} over {}", names.bench, names.op, names.transport);
    }
    names
}

fn place(line: &Json) -> Option<RecordedAxisPoint> {
    Some(RecordedAxisPoint {
        series: line["series"].as_str()?.to_owned(),
        axis: text_of(line, "axis"),
        x: line["x"].as_f64()?,
    })
}

fn text_of(line: &Json, name: &str) -> String {
    line[name].as_str().unwrap_or_default().to_owned()
}

fn number(line: &Json, name: &str) -> f64 {
    line[name].as_f64().unwrap_or(f64::NAN)
}

fn numbers(list: &Json) -> Vec<f64> {
    list.as_array().into_iter().flatten().filter_map(Json::as_f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_belong_to_the_run_of_their_id() {
        let line = |run: &str, record: &str| {
            format!("{{\"schema\":\"corelane-bench\",\"version\":1,\"run\":\"{run}\",\"record\":{record}}}\n")
        };
        let text = line("a", "\"run\",\"kernel\":\"6.1\",\"quiet\":true,\"cores\":[\"0\",\"1\"]")
            + &line("a", "\"result\",\"bench\":\"call\",\"op\":\"octet\",\"transport\":\"tcp\",\"p50_us\":5.5")
            + &line("b", "\"value\",\"what\":\"size\",\"value\":2,\"bound\":3,\"series\":\"s\",\"axis\":\"n\",\"x\":7")
            + &line("b", "\"missing\",\"bench\":\"call\",\"peer\":\"x\",\"reason\":\"gone\"")
            + &line("b", "\"something new\"");
        let mut runs = Vec::new();
        add(&mut runs, "file", &text).unwrap();
        add(&mut runs, "other", &line("a", "\"end\",\"load_end\":0.5")).unwrap();
        let shown: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(shown, ["file #1", "file #2", "other"]);
        assert_eq!(runs[0].environment[0], ("cores".to_owned(), "0, 1".to_owned()));
        assert_eq!(runs[0].results[0].label.group, "call octet over tcp");
        assert_eq!((runs[0].results[0].p50, runs[0].results[0].max.is_nan()), (5.5, true));
        let value = &runs[1].values[0];
        assert_eq!((value.value, value.bound, value.axis_point.as_ref().unwrap().x), (2.0, Some(3.0), 7.0));
        assert_eq!(runs[1].missing[0].reason, "gone");
    }

    #[test]
    fn records_outside_the_schema_are_refused_with_the_line_number() {
        let said = |text: &str| add(&mut Vec::new(), "f", text).unwrap_err().to_string();
        assert!(said("\nnonsense").starts_with("f, line 2: "));
        assert!(said("{}").contains("not a line"));
        assert!(said("{\"schema\":\"corelane-bench\",\"version\":99}").contains("99"));
    }
}
