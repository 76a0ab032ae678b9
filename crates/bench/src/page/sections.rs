//! The section of one benchmark: the figures of each group, with their numbers beneath.

use std::fmt::Write as _;

use super::chart::{self, Axis, AxisScale, Bar, Line, Style, escaped};
use super::read::{RecordedAxisPoint, RecordedRun, ResultLine, ValueLine};
use super::tables;
use crate::value::MICROSECONDS_PER_CALL;

type RunLine<'r, T> = (usize, &'r RecordedRun, &'r T);

pub(crate) fn of_bench(runs: &[RecordedRun], bench: &str) -> String {
    let has = |run: &&RecordedRun| {
        let names = run.results.iter().map(|line| &line.label).chain(run.values.iter().map(|line| &line.label));
        names.into_iter().any(|names| names.bench == bench)
    };
    let several = runs.iter().filter(has).count() > 1;
    let mut text = across_groups(runs, bench, several);
    for group in groups(runs, bench) {
        let results: Vec<RunLine<'_, ResultLine>> = numbered(runs, |run| &run.results)
            .filter(|(_, _, line)| line.label.bench == bench && line.label.group == group)
            .collect();
        let values: Vec<RunLine<'_, ValueLine>> = numbered(runs, |run| &run.values)
            .filter(|(_, _, line)| line.label.bench == bench && line.label.group == group)
            .collect();
        let _ = writeln!(text, "<h3>{}</h3>", escaped(&group));
        if !results.is_empty() {
            text.push_str(&of_results(&results, several));
            let rows: Vec<_> = results.iter().map(|(_, run, line)| (*run, *line)).collect();
            text.push_str(&tables::results(&rows, several));
        }
        if !values.is_empty() {
            text.push_str(&of_values(&values, several));
            let rows: Vec<_> = values.iter().map(|(_, run, line)| (*run, *line)).collect();
            text.push_str(&tables::values(&rows, several));
        }
    }
    text
}

/// Draws curves across groups, for each axis on which all lines of a group have the same position.
fn across_groups(runs: &[RecordedRun], bench: &str, several: bool) -> String {
    let placed: Vec<RunLine<'_, ResultLine>> = numbered(runs, |run| &run.results)
        .filter(|(_, _, line)| line.label.bench == bench && line.axis_point.is_some())
        .collect();
    let mut axes: Vec<&str> = Vec::new();
    for axis in placed.iter().filter_map(|(_, _, line)| line.axis_point.as_ref()).map(|place| place.axis.as_str()) {
        if !axes.contains(&axis) {
            axes.push(axis);
        }
    }
    let mut text = String::new();
    for axis in axes {
        let on_axis = |line: &ResultLine| line.axis_point.as_ref().is_some_and(|place| place.axis == axis);
        let lines: Vec<_> = placed.iter().filter(|(_, _, line)| on_axis(line)).copied().collect();
        let alone = lines.iter().map(|(_, _, line)| &line.label.group).all(|group| {
            let of_group = lines.iter().filter(|(_, _, line)| line.label.group == *group);
            !varies(of_group.filter_map(|(_, _, line)| line.axis_point.as_ref()))
        });
        if alone && varies(lines.iter().filter_map(|(_, _, line)| line.axis_point.as_ref())) {
            let _ = write!(text, "<h3>{} by {}</h3>{}", escaped(bench), escaped(axis), curves(&lines, several));
        }
    }
    text
}

fn numbered<'r, T: 'r>(
    runs: &'r [RecordedRun],
    lines: impl Fn(&'r RecordedRun) -> &'r [T],
) -> impl Iterator<Item = RunLine<'r, T>> {
    runs.iter().enumerate().flat_map(move |(number, run)| lines(run).iter().map(move |line| (number, run, line)))
}

fn groups(runs: &[RecordedRun], bench: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for run in runs {
        let all = run.results.iter().map(|line| &line.label).chain(run.values.iter().map(|line| &line.label));
        for names in all.filter(|names| names.bench == bench) {
            if !found.contains(&names.group) {
                found.push(names.group.clone());
            }
        }
    }
    found
}

const MT_CUBIT: [&str; 2] = ["mt", "mt-equal"];

fn of_results(lines: &[RunLine<'_, ResultLine>], several: bool) -> String {
    let mut text = String::new();
    let with_axis: Vec<_> = lines.iter().filter(|(_, _, line)| line.axis_point.is_some()).copied().collect();
    if varies(with_axis.iter().filter_map(|(_, _, line)| line.axis_point.as_ref())) {
        text.push_str(&curves(&with_axis, several));
        if MT_CUBIT.contains(&with_axis[0].2.label.bench.as_str()) {
            text.push_str(&papers_curves(&with_axis, several));
        }
    } else {
        let by_rate = lines.iter().all(|(_, _, line)| line.by_rate);
        let bars: Vec<Bar> = lines
            .iter()
            .map(|&(_, run, line)| Bar {
                name: title(run, line, several),
                value: if by_rate { 1e6 / line.per_s } else { line.p50 },
                spread: (!by_rate).then_some(line.p99),
                style: Style::of(&line.label.peer),
            })
            .collect();
        text.push_str(&chart::bars(if by_rate { MICROSECONDS_PER_CALL } else { CALL_TIMES_UNIT }, &bars));
    }
    let distributions = distributions(lines, several);
    if !distributions.is_empty() {
        let _ = writeln!(text, "<details><summary>Distributions</summary>{distributions}</details>");
    }
    text
}

pub(crate) const CALL_TIMES_UNIT: &str = "us: bar to the median, thin line to p99";

/// Returns the bars of an operation over TCP, from the first group of `cubit`, or else of `call`.
/// Calls by dynamic invocation are left out.
pub(crate) fn panel(runs: &[RecordedRun], operation: &str) -> Option<(String, Vec<Bar>)> {
    let calls = |bench: &'static str| {
        numbered(runs, |run| &run.results).filter(move |(_, _, line)| {
            let names = &line.label;
            names.bench == bench && names.op == operation && names.transport == "tcp" && !line.by_rate
        })
    };
    let first = |bench| calls(bench).next().map(|found| (bench, found));
    let (bench, (number, _, line)) = first("cubit").or_else(|| first("call"))?;
    let of_group = calls(bench).filter(|(other, _, its)| *other == number && its.label.group == line.label.group);
    let stubs = of_group.filter(|(_, _, line)| !line.label.config.ends_with("dynamic invocation"));
    let bars = stubs.map(|(_, run, line)| Bar {
        name: title(run, line, false).replacen("floor", "bare sockets,", 1),
        value: line.p50,
        spread: Some(line.p99),
        style: Style::of(&line.label.peer),
    });
    Some((operation.to_owned(), bars.collect()))
}

fn varies<'p>(places: impl Iterator<Item = &'p RecordedAxisPoint>) -> bool {
    let mut places = places.map(|place| place.x);
    let Some(first) = places.next() else { return false };
    places.any(|x| x != first)
}

type LineMeasure = (&'static str, fn(&ResultLine) -> f64, bool);

/// Draws medians and 99th percentiles, or times per call if ratios compare rates.
fn curves(lines: &[RunLine<'_, ResultLine>], several: bool) -> String {
    match lines.iter().all(|(_, _, line)| line.by_rate) {
        true => curves_of(&[("time per call over all", |line| 1e6 / line.per_s, false)], lines, several),
        false => curves_of(&[("median", |line| line.p50, false), ("p99", |line| line.p99, true)], lines, several),
    }
}

fn papers_curves(lines: &[RunLine<'_, ResultLine>], several: bool) -> String {
    let measures: [LineMeasure; 2] = [("mean", |line| line.mean, false), ("jitter", |line| line.sd, false)];
    let mut text = String::new();
    for (title, measure) in ["Mean", "Jitter: standard deviation"].into_iter().zip(measures) {
        let _ = write!(text, "<h4>{title}</h4>{}", curves_of(&[measure], lines, several));
    }
    text
}

fn curves_of(measures: &[LineMeasure], lines: &[RunLine<'_, ResultLine>], several: bool) -> String {
    let points = lines.iter().filter_map(|&(_, run, line)| {
        let place = line.axis_point.as_ref()?;
        let values = measures.iter().map(|(_, value, _)| value(line)).collect();
        Some(SeriesPoint {
            peer: &line.label.peer,
            series: series_of(run, &line.label.peer, place, several),
            x: place.x,
            values,
        })
    });
    let named: Vec<(&str, bool)> = measures.iter().map(|&(quantity, _, dashed)| (quantity, dashed)).collect();
    draw(axis_of(lines.iter().map(|(_, _, line)| &line.axis_point)), "us", &named, points)
}

fn series_of(run: &RecordedRun, peer: &str, place: &RecordedAxisPoint, several: bool) -> String {
    format!("{peer} {}{}", place.series, of_run(run, several))
}

fn axis_of<'p>(mut places: impl Iterator<Item = &'p Option<RecordedAxisPoint>>) -> &'p str {
    places.find_map(Option::as_ref).map_or("", |place| place.axis.as_str())
}

struct SeriesPoint<'p> {
    peer: &'p str,
    series: String,
    x: f64,
    values: Vec<f64>,
}

struct Series<'p> {
    peer: &'p str,
    name: String,
    points: Vec<(f64, Vec<f64>)>,
}

/// Draws one curve for each series and measure. All curves of a series have one colour and one
/// shape of marks.
fn draw<'p>(
    axis: &str,
    unit: &str,
    measures: &[(&str, bool)],
    points: impl Iterator<Item = SeriesPoint<'p>>,
) -> String {
    let mut all: Vec<Series<'p>> = Vec::new();
    for SeriesPoint { peer, series: name, x, values } in points {
        match all.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push((x, values)),
            None => all.push(Series { peer, name, points: vec![(x, values)] }),
        }
    }
    let styles = Style::of_all(all.iter().map(|series| series.peer));
    let mut lines = Vec::new();
    for (Series { name, mut points, .. }, style) in all.into_iter().zip(styles) {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (index, &(quantity, dashed)) in measures.iter().enumerate() {
            let name = if quantity.is_empty() { name.clone() } else { format!("{name}, {quantity}") };
            let points = points.iter().map(|(x, values)| (*x, values[index])).collect();
            lines.push(Line { name, points, style, dashed });
        }
    }
    let scale = AxisScale::BySpan;
    chart::lines(Axis { title: axis, scale }, Axis { title: unit, scale }, &lines)
}

fn distributions(lines: &[RunLine<'_, ResultLine>], several: bool) -> String {
    let drawn = lines.iter().filter(|(_, run, line)| !line.cdf.is_empty() && line.cdf.len() == run.cdf_parts.len());
    let styles = Style::of_all(drawn.clone().map(|(_, _, line)| line.label.peer.as_str()));
    let drawn: Vec<Line> = drawn
        .zip(styles)
        .map(|(&(_, run, line), style)| Line {
            name: match &line.axis_point {
                Some(place) => format!("{}, {} {}", title(run, line, several), chart::short(place.x), place.axis),
                None => title(run, line, several),
            },
            points: line
                .cdf
                .iter()
                .zip(&run.cdf_parts)
                // The slowest thousandth of the calls would dominate the picture.
                .filter(|(_, part)| **part <= 0.999)
                .map(|(time, part)| (*time, 100.0 * part))
                .collect(),
            style,
            dashed: false,
        })
        .collect();
    let x = Axis { title: "us", scale: AxisScale::Logarithmic };
    chart::lines(x, Axis { title: "% of calls", scale: AxisScale::Linear }, &drawn)
}

fn of_values(lines: &[RunLine<'_, ValueLine>], several: bool) -> String {
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    for (_, _, line) in lines {
        if !kinds.contains(&(line.quantity.as_str(), line.unit.as_str())) {
            kinds.push((&line.quantity, &line.unit));
        }
    }
    let mut text = side_by_side(lines, several);
    let pictured = |unit: &str| !unit.is_empty() && unit != MICROSECONDS_PER_CALL;
    for (quantity, unit) in kinds.into_iter().filter(|(_, unit)| pictured(unit)) {
        let of_kind: Vec<_> =
            lines.iter().filter(|(_, _, line)| line.quantity == quantity && line.unit == unit).collect();
        let places = of_kind.iter().filter_map(|(_, _, line)| line.axis_point.as_ref());
        if varies(places) {
            let _ = write!(text, "<h4>{}</h4>{}", escaped(quantity), value_curves(&of_kind, unit, several));
        } else if of_kind.len() > 1 {
            let bars: Vec<Bar> = of_kind
                .iter()
                .map(|&&(_, run, line)| Bar {
                    name: value_title(run, line, several),
                    value: line.value,
                    spread: None,
                    style: Style::of(&line.label.peer),
                })
                .collect();
            let _ = write!(text, "<h4>{}</h4>{}", escaped(quantity), chart::bars(unit, &bars));
        }
    }
    text
}

fn side_by_side(lines: &[RunLine<'_, ValueLine>], several: bool) -> String {
    let (mut series, mut rows): (Vec<(&str, String)>, Vec<chart::DotRow>) = (Vec::new(), Vec::new());
    for &(_, run, line) in lines.iter().filter(|(_, _, line)| line.unit == MICROSECONDS_PER_CALL) {
        let name = value_title(run, line, several);
        let number = series.iter().position(|(_, known)| *known == name).unwrap_or_else(|| {
            series.push((&line.label.peer, name));
            series.len() - 1
        });
        let row = rows.iter().position(|row| row.name == line.quantity).unwrap_or_else(|| {
            rows.push(chart::DotRow { name: line.quantity.clone(), marks: Vec::new() });
            rows.len() - 1
        });
        rows[row].marks.push((number, line.value));
    }
    let styles = Style::of_all(series.iter().map(|(peer, _)| *peer));
    let series: Vec<_> = series.into_iter().map(|(_, name)| name).zip(styles).collect();
    chart::dots(MICROSECONDS_PER_CALL, &series, &rows)
}

fn value_curves(lines: &[&RunLine<'_, ValueLine>], unit: &str, several: bool) -> String {
    let points = lines.iter().filter_map(|&&(_, run, line)| {
        let place = line.axis_point.as_ref()?;
        let series = series_of(run, &line.label.peer, place, several);
        Some(SeriesPoint { peer: &line.label.peer, series, x: place.x, values: vec![line.value] })
    });
    draw(axis_of(lines.iter().map(|(_, _, line)| &line.axis_point)), unit, &[("", false)], points)
}

fn title(run: &RecordedRun, line: &ResultLine, several: bool) -> String {
    format!("{} {}{}", line.label.peer, line.label.config, of_run(run, several))
}

fn value_title(run: &RecordedRun, line: &ValueLine, several: bool) -> String {
    let names = &line.label;
    let op = if names.op.is_empty() { String::new() } else { format!(" {}", names.op) };
    format!("{} {}{op}{}", names.peer, names.config, of_run(run, several))
}

fn of_run(run: &RecordedRun, several: bool) -> String {
    if several { format!(" [{}]", run.name) } else { String::new() }
}
