//! Results as tables for readers, and as JSON lines for programs (docs/benchmarks.md has the
//! schema).

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::Failure;
use crate::environment::{Environment, RunEnd};
use crate::harness::{
    self, AxisPoint, ComparedQuantity, Figure, FigureLabel, Group, GroupResult, Progress, Ratio, RunLength,
};
use crate::json::JsonObject;
use crate::placement::{CoreChoice, Placement};
use crate::sample::CDF_FRACTIONS;
use crate::targets;
use crate::value::SingleValue;

/// Version of the schema. It increases when a member is removed or changes its meaning.
pub(crate) const SCHEMA_VERSION: u64 = 1;

pub(crate) const STANDARD_OUTPUT: &str = "-";

/// Writes the results of a run as text and as JSON lines. The methods fail if the output cannot be
/// written.
pub(crate) struct Report<'o> {
    out: &'o mut dyn Write,
    json: Option<Box<dyn Write>>,
    run: String,
    incomplete: bool,
    figures: Vec<Figure>,
    bounded: Vec<SingleValue>,
    goals: u64,
    met: u64,
}

impl<'o> Report<'o> {
    /// Creates a report. Text goes to `out`, JSON lines to a new file or to the [standard
    /// output](STANDARD_OUTPUT).
    pub(crate) fn new(out: &'o mut dyn Write, json: Option<&Path>) -> Result<Self, Failure> {
        let json: Option<Box<dyn Write>> = match json {
            None => None,
            Some(path) if path == Path::new(STANDARD_OUTPUT) => Some(Box::new(std::io::stdout())),
            Some(path) => {
                let file = File::create(path);
                let file = file.map_err(|error| Failure::new(format!("cannot write `{}`: {error}", path.display())))?;
                Some(Box::new(BufWriter::new(file)))
            }
        };
        // The time and the process id distinguish the runs in one file.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let run = format!("{}-{}", now.as_secs(), std::process::id());
        Ok(Report { out, json, run, incomplete: false, figures: Vec::new(), bounded: Vec::new(), goals: 0, met: 0 })
    }

    pub(crate) fn begin(
        &mut self,
        name: Option<&str>,
        environment: &Environment,
        run_length: &RunLength,
    ) -> Result<(), Failure> {
        let text = format!(
            "{}each variant, unless a benchmark sets its own numbers: {} x {} calls, interleaved, {} calls of warm-up before each\n",
            environment.describe(),
            run_length.repetitions,
            run_length.count,
            run_length.warm_up
        );
        self.add_text(&text)?;
        let mut object = self.object("run");
        if let Some(name) = name {
            object = object.string("name", name);
        }
        let object = object
            .string("corelane", env!("CARGO_PKG_VERSION"))
            .boolean("debug_build", cfg!(debug_assertions))
            .integer("repetitions", run_length.repetitions as u64)
            .integer("count", run_length.count as u64)
            .integer("warm_up", run_length.warm_up as u64)
            .numbers("cdf_parts", &CDF_FRACTIONS);
        self.line(environment.record(object))
    }

    /// Measures a group and reports its figures. If another product fails, the report lists it as
    /// [missing](Self::add_missing).
    pub(crate) fn measure(
        &mut self,
        mut group: Group,
        run_length: &RunLength,
        placement: &Placement,
        progress: &mut Progress,
    ) -> Result<Vec<Figure>, Failure> {
        let GroupResult { figures, failed } = harness::measure(&mut group, run_length, placement, progress)?;
        self.add_figures(&group.title, group.compare, &figures)?;
        for (label, reason) in failed {
            self.add_missing(label.bench, label.peer, &reason.to_string())?;
        }
        Ok(figures)
    }

    pub(crate) fn add_figures(
        &mut self,
        title: &str,
        compare: ComparedQuantity,
        figures: &[Figure],
    ) -> Result<(), Failure> {
        self.add_text(&table(title, compare, figures))?;
        for figure in figures {
            let object = record(self.object("result").string("group", title), compare, figure);
            self.line(object)?;
        }
        self.figures.extend_from_slice(figures);
        Ok(())
    }

    pub(crate) fn add_values(&mut self, title: &str, values: &[SingleValue]) -> Result<(), Failure> {
        let mut text = format!("\n{title}\n");
        let columns = width(values.iter().map(|value| &value.label.config));
        for value in values {
            let FigureLabel { peer, config, op, .. } = &value.label;
            let bound = value.bound.map_or(String::new(), |bound| {
                format!("  ({} {})", if value.value <= bound { "within" } else { "ABOVE" }, format_number(bound))
            });
            let unit = if value.unit.is_empty() { String::new() } else { format!(" {}", value.unit) };
            let _ = writeln!(
                text,
                "  {:<9} {config:<columns$} {op:<12} {:<34} {:>12}{unit}{bound}",
                peer,
                value.quantity,
                format_number(value.value)
            );
        }
        self.add_text(&text)?;
        self.add_json_values(title, values)
    }

    /// Writes single numbers as JSON lines without text, and adds the values with a bound to the
    /// next verdict.
    pub(crate) fn add_json_values(&mut self, title: &str, values: &[SingleValue]) -> Result<(), Failure> {
        for value in values {
            let mut object = labelled(self.object("value").string("group", title), &value.label)
                .string("what", &value.quantity)
                .number("value", value.value)
                .string("unit", value.unit);
            if let Some(bound) = value.bound {
                object = object.number("bound", bound);
            }
            self.line(object)?;
        }
        self.bounded.extend(values.iter().filter(|value| value.bound.is_some()).cloned());
        Ok(())
    }

    /// Reports which goals a finished benchmark meets, and the comparisons whose goals are for
    /// other cores.
    pub(crate) fn add_verdict(&mut self, bench: &str, cores: CoreChoice) -> Result<(), Failure> {
        let compared = targets::compare_with_goals(&std::mem::take(&mut self.figures), cores);
        self.add_json_values(&format!("{bench}: goals"), &compared)?;
        let bounded = std::mem::take(&mut self.bounded);
        let (met, missed): (Vec<_>, Vec<_>) =
            bounded.iter().partition(|value| value.bound.is_some_and(|bound| written(value.value) <= written(bound)));
        self.goals += bounded.len() as u64;
        self.met += met.len() as u64;
        let mut text = String::new();
        if !bounded.is_empty() {
            let _ = writeln!(text, "\nverdict of {bench}: {} of {} goals are met", met.len(), bounded.len());
        }
        let listed = if bounded.len() <= MOST_LISTED { met } else { Vec::new() };
        for (word, values) in [("NOT MET", missed), ("met", listed)] {
            values.iter().for_each(|value| judged(&mut text, word, value));
        }
        if compared.iter().any(|value| value.bound.is_none()) {
            let _ = writeln!(text, "\n{bench}: without a verdict, since the goals are for other cores");
        }
        compared.iter().filter(|value| value.bound.is_none()).for_each(|value| judged(&mut text, "", value));
        self.add_text(&text)
    }

    pub(crate) fn end(&mut self, ending: &RunEnd) -> Result<(), Failure> {
        if self.goals > 0 {
            self.add_text(&format!("\nverdict of the run: {} of {} goals are met\n", self.met, self.goals))?;
        }
        self.add_text(&ending.describe())?;
        let object = ending.record(self.object("end")).integer("goals", self.goals).integer("goals_met", self.met);
        self.line(object)
    }

    pub(crate) fn add_missing(&mut self, bench: &str, peer: &str, reason: &str) -> Result<(), Failure> {
        self.incomplete = true;
        self.add_text(&format!("\nNOT MEASURED: {bench}, {peer}: {reason}\n"))?;
        let object = self.object("missing").string("bench", bench).string("peer", peer).string("reason", reason);
        self.line(object)
    }

    pub(crate) fn or_report_missing<T>(
        &mut self,
        bench: &str,
        peer: &str,
        result: Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        match result {
            Ok(found) => Ok(Some(found)),
            Err(reason) => self.add_missing(bench, peer, &reason.to_string()).map(|()| None),
        }
    }

    pub(crate) fn add_text(&mut self, text: &str) -> Result<(), Failure> {
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        written.map_err(|error| Failure::new(format!("cannot write the output: {error}")))
    }

    #[must_use]
    pub(crate) fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    fn object(&self, record: &str) -> JsonObject {
        JsonObject::new()
            .string("schema", "corelane-bench")
            .integer("version", SCHEMA_VERSION)
            .string("run", &self.run)
            .string("record", record)
    }

    fn line(&mut self, object: JsonObject) -> Result<(), Failure> {
        let Some(json) = &mut self.json else { return Ok(()) };
        let written = writeln!(json, "{}", object.finish()).and_then(|()| json.flush());
        written.map_err(|error| Failure::new(format!("cannot write JSON: {error}")))
    }
}

/// A verdict with more goals names only the goals that are missed.
const MOST_LISTED: usize = 100;

/// Rounds to three decimal digits, as in the written results, so that readers reach an equal
/// verdict.
fn written(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn judged(text: &mut String, word: &str, value: &SingleValue) {
    let FigureLabel { transport, config, op, .. } = &value.label;
    // In a group with several transports, the configuration begins with the transport, which is
    // then not repeated.
    let transport = if config.starts_with(transport) { "" } else { transport };
    let named: Vec<&str> = [transport, config, op].into_iter().filter(|name| !name.is_empty()).collect();
    let bound = value.bound.map_or(String::new(), |bound| format!(", at most {}", format_number(bound)));
    let unit = if value.unit.is_empty() { String::new() } else { format!(" {}", value.unit) };
    let _ = writeln!(
        text,
        "  {word:<8} {}: {} is {}{unit}{bound}",
        named.join(", "),
        value.quantity,
        format_number(value.value)
    );
}

fn labelled(object: JsonObject, label: &FigureLabel) -> JsonObject {
    let object = object
        .string("bench", label.bench)
        .string("peer", label.peer)
        .string("transport", label.transport)
        .string("op", &label.op)
        .string("config", &label.config);
    match &label.axis_point {
        None => object,
        Some(AxisPoint { series, axis, x }) => object.string("series", series).string("axis", axis).integer("x", *x),
    }
}

fn record(object: JsonObject, compare: ComparedQuantity, figure: &Figure) -> JsonObject {
    let summary = &figure.summary;
    let object = labelled(object, &figure.label)
        .integer("n", summary.n as u64)
        .number("min_us", summary.min_us)
        .number("p50_us", summary.p50_us)
        .number("p99_us", summary.p99_us)
        .number("p999_us", summary.p999_us)
        .number("max_us", summary.max_us)
        .number("mean_us", summary.mean_us)
        .number("sd_us", summary.sd_us)
        .number("per_s", summary.per_s)
        .numbers("medians_us", &figure.medians_us)
        .numbers("cdf_us", &figure.cdf_us);
    let object = match figure.cost {
        Some(cost) => cost.record(object, figure.calls),
        None => object,
    };
    let object = match figure.ratios.first() {
        None => object,
        Some(baseline) => object
            .string("baseline", &name(&baseline.with))
            .number("baseline_p50_us", baseline.p50_us)
            .number("ratio", baseline.ratio),
    };
    let ratio = |ratio: &Ratio| {
        labelled(JsonObject::new(), &ratio.with)
            .number("p50_us", ratio.p50_us)
            .number("ratio", ratio.ratio)
            .number("ratio_low", ratio.range.0)
            .number("ratio_high", ratio.range.1)
    };
    let compared = match compare {
        ComparedQuantity::Median => "p50_us",
        ComparedQuantity::Rate => "per_s",
    };
    object.string("compared", compared).objects("against", figure.ratios.iter().map(ratio).collect())
}

fn name(label: &FigureLabel) -> String {
    format!("{} {} {}", label.peer, label.transport, label.config)
}

fn width<'t>(texts: impl Iterator<Item = &'t String>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0).max("config".len())
}

fn columns_of_cost(figure: &Figure) -> String {
    let Some(cost) = figure.cost else {
        return format!("{:>7} {:>7} {:>8} {:>8} {:>6}", "-", "-", "-", "-", "-");
    };
    let calls = figure.calls.max(1) as f64;
    format!(
        "{:>7.2} {:>7.2} {:>8} {:>8} {:>6.0}",
        cost.client_us / calls,
        cost.server_us / calls,
        cost.voluntary_switches,
        cost.involuntary_switches,
        cost.steal_ms
    )
}

fn table(title: &str, compare: ComparedQuantity, figures: &[Figure]) -> String {
    let quantity = match compare {
        ComparedQuantity::Median => "ratio of medians (lowest to highest of a repetition)",
        ComparedQuantity::Rate => "ratio of times per call, all drained (lowest to highest of a repetition)",
    };
    let width = width(figures.iter().map(|figure| &figure.label.config));
    let mut text = format!("\n{title}; microseconds; {quantity}\n");
    let _ = writeln!(
        text,
        "  {:<9} {:<width$} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8} {:>7} {:>9} {:>7} {:>7} {:>8} {:>8} {:>6}  against",
        "peer",
        "config",
        "min",
        "p50",
        "p99",
        "p99.9",
        "max",
        "mean",
        "sd",
        "per s",
        "cpu cl",
        "cpu sv",
        "vol sw",
        "invol sw",
        "steal"
    );
    for figure in figures {
        let summary = &figure.summary;
        let _ = write!(
            text,
            "  {:<9} {:<width$} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>9.1} {:>8.2} {:>7.2} {:>9.0} {}",
            figure.label.peer,
            figure.label.config,
            summary.min_us,
            summary.p50_us,
            summary.p99_us,
            summary.p999_us,
            summary.max_us,
            summary.mean_us,
            summary.sd_us,
            summary.per_s,
            columns_of_cost(figure),
        );
        for ratio in &figure.ratios {
            let Ratio { with, ratio, range, .. } = ratio;
            let _ = write!(text, "  {ratio:.3} ({:.3}-{:.3}) x {} {}", range.0, range.1, with.peer, with.config);
        }
        text.push('\n');
    }
    text
}

pub(crate) fn format_with_bound(value: &SingleValue) -> String {
    match value.bound {
        Some(bound) if value.value > bound => format!("{} ABOVE {}", format_number(value.value), format_number(bound)),
        _ => format_number(value.value),
    }
}

pub(crate) fn format_number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cost;
    use crate::sample::Summary;
    use std::time::Duration;

    fn label(config: &str) -> FigureLabel {
        FigureLabel {
            bench: "call",
            peer: "floor",
            transport: "tcp",
            op: "octet".into(),
            config: config.into(),
            axis_point: None,
        }
    }

    fn figure(config: &str, time: u64) -> Figure {
        Figure {
            label: label(config),
            summary: Summary::of(&[time; 10], Duration::from_micros(100)).unwrap(),
            medians_us: vec![5.0, 5.5],
            cdf_us: vec![5.0; CDF_FRACTIONS.len()],
            ratios: Vec::new(),
            cost: Some(Cost { client_us: 20.0, ..Cost::default() }),
            calls: 10,
        }
    }

    #[test]
    fn result_line_has_every_member_of_the_schema() {
        let mut with_baseline = figure("epoll", 6000);
        with_baseline.ratios = vec![Ratio { with: label("blocking"), p50_us: 5.0, ratio: 1.2, range: (1.1, 1.3) }];
        for figure in [figure("blocking", 5000), with_baseline] {
            let line = record(JsonObject::new(), ComparedQuantity::Median, &figure).finish();
            let parsed: serde_json::Value = serde_json::from_str(&line).unwrap();
            for name in ["bench", "peer", "transport", "op", "config"] {
                assert!(parsed[name].is_string(), "{name} in {line}");
            }
            for name in ["n", "min_us", "p50_us", "p99_us", "p999_us", "max_us", "mean_us", "sd_us", "per_s"] {
                assert!(parsed[name].is_number(), "{name} in {line}");
            }
            assert_eq!(parsed["client_cpu_us"], 2.0);
            assert_eq!(parsed["baseline_p50_us"].is_number(), !figure.ratios.is_empty());
            let without =
                record(JsonObject::new(), ComparedQuantity::Median, &Figure { cost: None, ..figure.clone() }).finish();
            assert!(!without.contains("cpu_us") && !without.contains("steal"), "{without}");
            assert_eq!(parsed["against"].as_array().unwrap().len(), figure.ratios.len());
        }
    }

    #[test]
    fn text_shows_ratios_bounds_and_missing_measurements() {
        let mut text = Vec::new();
        let mut report = Report::new(&mut text, None).unwrap();
        let mut compared = figure("epoll", 6000);
        compared.ratios = vec![Ratio { with: label("blocking"), p50_us: 5.0, ratio: 1.2, range: (1.1, 1.3) }];
        compared.cost = compared.cost.map(|cost| Cost {
            voluntary_switches: 1234,
            involuntary_switches: 56,
            steal_ms: 70.0,
            ..cost
        });
        report.add_figures("call octet", ComparedQuantity::Median, &[figure("blocking", 5000), compared]).unwrap();
        let value =
            |value| SingleValue { label: label("x"), quantity: "calls".into(), value, unit: "", bound: Some(2.0) };
        report.add_values("counts", &[value(2.0), value(2.5)]).unwrap();
        report.add_json_values("counts", &[SingleValue { bound: None, ..value(9.0) }]).unwrap();
        report.add_json_values("counts", &[value(2.000_4)]).unwrap();
        report.add_verdict("counts", CoreChoice::Shared(0)).unwrap();
        report.add_verdict("switch", CoreChoice::Shared(0)).unwrap();
        assert!(!report.is_incomplete());
        report.add_missing("call", "omniORB", "not installed").unwrap();
        assert!(report.is_incomplete());
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.matches("verdict").count(), 1, "{text}");
        for part in [
            "verdict of counts: 2 of 3 goals",
            "NOT MET  tcp, x, octet: calls is 2.500, at most 2",
            "1.200 (1.100-1.300) x floor blocking",
            "    1234       56     70  1.200",
            "(within 2)",
            "(ABOVE 2)",
            "NOT MEASURED: call, omniORB",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn unwritable_file_is_refused_before_the_first_result() {
        let mut text = Vec::new();
        let refused = Report::new(&mut text, Some(Path::new("/nonexistent/x.json"))).map(|_| ()).unwrap_err();
        assert!(refused.to_string().contains("/nonexistent/x.json"));
    }
}
