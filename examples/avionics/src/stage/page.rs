//! The report: one self-contained HTML page, with a histogram and its numbers for each client.

use std::fmt::Write;
use std::time::Duration;

use corelane_sys::guarantees::GuaranteeStatus;

use super::machine::Machine;
use super::record::{BOUNDS, Record, format_bound, format_latency_or_dash};
use super::{DemoOptions, Findings, LinkMode};

const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5d6878; --line: #d9dee6; --page: #fff; --bar: #2f6fb2; --late: #c2452d }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --soft: #9aa5b4; --line: #364050; --page: #12161c; --bar: #6aa6e6; --late: #f0805f }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 68rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem } p, .soft { color: var(--soft) }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .15rem .7rem; border-bottom: 1px solid var(--line) }
th:first-child, td:first-child, .text { text-align: left }
.wide { overflow-x: auto } .bad { color: var(--late); font-weight: 600 }
svg { display: block; max-width: 100%; font: 12px system-ui, sans-serif; fill: var(--ink) }
.bar { fill: var(--bar) } .late { fill: var(--late) } .rule { stroke: var(--late); stroke-dasharray: 4 3 } .note { fill: var(--soft) }
";

pub(super) fn page(options: &DemoOptions, machine: &Machine, records: &[Record], found: &Findings<'_>) -> String {
    let seconds = options.seconds;
    let network =
        if options.link == LinkMode::None { "the loopback interface" } else { "a link between two namespaces" };
    let form = if found.channel.is_some() { ", joined to the computer by an event channel" } else { "" };
    let mut page = String::from("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n");
    page += "<meta name=\"viewport\" content=\"width=device-width\">\n<title>Corelane: avionics demo</title>\n";
    page += &format!("<style>\n{STYLE}</style>\n<h1>A mission computer and what calls it</h1>\n");
    page += &format!(
        "<p>{seconds} seconds on {}, {} cores, over TCP on {network}. Each client is a process{form}. Latency is \
         the time from the moment a call or sample is due to the moment its result is there, so a late start counts too.</p>\n",
        escape(&machine.kernel),
        machine.cores
    );
    if let Some((idle, stolen)) = machine.idle_and_stolen() {
        page += &format!("<p>The cores were {idle:.0} % idle, with all programs of the machine");
        page += &format!("; the host of the virtual machine took {stolen:.1} %.</p>\n");
    }
    page += &summary(records);
    if let Some(reason) = found.left_out {
        page += &format!("<p>The omniORB client was left out: {}.</p>\n", escape(reason));
    }
    if let Some(channel) = found.channel {
        page += &channel.section();
    }
    if let Some(tasks) = found.tasks {
        page += &tasks.section();
    }
    if !found.streams.is_empty() {
        page += "<h2>Real-time I/O</h2>\n<p>The commands are a guaranteed stream; the bulk transfer is best effort.</p>\n<ul>\n";
        for line in found.streams {
            page += &format!("<li>{}\n", escape(line.trim_start_matches("stream").trim_start()));
        }
        page += "</ul>\n";
    }
    for record in records {
        page += &section(record);
    }
    page += &guarantees(machine);
    page
}

fn summary(records: &[Record]) -> String {
    let mut rows = String::new();
    for record in records {
        let alarm = |count: u32| if count > 0 { " class=\"bad\"" } else { "" };
        rows += &format!(
            "<tr><td>{}<td class=\"text\">{}<td class=\"text\">{}<td>{:.1} / {} Hz<td>{}<td>{}<td>{}<td>{}<td>{}",
            escape(&record.name),
            escape(&record.task),
            escape(&record.scheduling),
            record.mean_rate(),
            record.due,
            record.calls(),
            format_latency_or_dash(record.percentile(0.5)),
            format_latency_or_dash(record.percentile(0.99)),
            format_latency_or_dash(record.percentile(1.0)),
            record.deadline.map_or("-".into(), format_bound),
        );
        let misses = record.deadline.map_or("-".into(), |_| record.missed().to_string());
        rows += &format!("<td{}>{misses}", if record.deadline.is_some() { alarm(record.missed()) } else { "" });
        rows += &format!("<td{}>{}\n", alarm(record.failures), record.failures);
    }
    format!(
        "<div class=\"wide\"><table>\n<tr><th>client<th class=\"text\">calls<th class=\"text\">class<th>rate / due<th>calls\
         <th>p50<th>p99<th>max<th>deadline<th>missed<th>failed\n{rows}</table></div>\n"
    )
}

fn section(record: &Record) -> String {
    let deadline =
        record.deadline.map_or("no deadline".into(), |deadline| format!("deadline {}", format_bound(deadline)));
    let mut text = format!("<h2>{}</h2>\n<p>{}, {deadline}", escape(&record.name), escape(&record.task));
    if record.failures > 0 {
        let _ = write!(text, "; <span class=\"bad\">{} failed: {}</span>", record.failures, escape(&record.trouble));
    }
    text + "</p>\n" + &histogram(record)
}

/// Height of a bucket's row in pixels.
const ROW: usize = 20;
/// Left margin of a histogram in pixels.
const LEFT: usize = 150;
/// Width of a histogram in pixels.
const WIDTH: usize = 440;

fn histogram(record: &Record) -> String {
    let buckets = record.buckets();
    let filled = |bucket: &usize| buckets[*bucket] > 0;
    let all = 0..buckets.len();
    let (Some(first), Some(last)) = (all.clone().find(filled), all.rev().find(filled)) else {
        return "<p>No calls.</p>\n".into();
    };
    let most = buckets.iter().max().copied().unwrap_or(1).max(1);
    let (mut bars, mut rule) = (String::new(), String::new());
    for (row, bucket) in (first..=last).enumerate() {
        let (y, count) = (row * ROW, buckets[bucket]);
        let above = bucket.checked_sub(1).map_or(Duration::ZERO, |below| BOUNDS[below]);
        let late = record.deadline.is_some_and(|deadline| above >= deadline);
        if late && rule.is_empty() && row > 0 {
            rule = format!("<line class=\"rule\" x1=\"0\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>\n", LEFT + WIDTH + 120);
        }
        let label = match BOUNDS.get(bucket) {
            Some(bound) => format!("{} to {}", format_bound(above), format_bound(*bound)),
            None => format!("above {}", format_bound(above)),
        };
        let (text, class) = (y + 14, if late { "late" } else { "bar" });
        let width = (count * WIDTH).div_ceil(most);
        let part = count as f64 * 100.0 / record.calls() as f64;
        let _ = writeln!(
            bars,
            "<text class=\"note\" x=\"{}\" y=\"{text}\" text-anchor=\"end\">{label}</text>\
             <rect class=\"{class}\" x=\"{LEFT}\" y=\"{}\" width=\"{width}\" height=\"{}\" rx=\"2\"/>\
             <text x=\"{}\" y=\"{text}\">{count} <tspan class=\"note\" dx=\"6\">{part:.1} %</tspan></text>",
            LEFT - 10,
            y + 3,
            ROW - 6,
            LEFT + width + 8,
        );
    }
    let (width, height) = (LEFT + WIDTH + 120, (last - first + 1) * ROW);
    let title = format!("Latencies of {}", escape(&record.name));
    format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\">\n\
         {bars}{rule}</svg>\n"
    )
}

fn guarantees(machine: &Machine) -> String {
    let mut rows = String::new();
    for guarantee in &machine.guarantees {
        let holds = match guarantee.status {
            GuaranteeStatus::Met => "holds",
            GuaranteeStatus::NotMet => "lacking",
            GuaranteeStatus::Unknown => "unknown",
        };
        let remedy = if guarantee.status == GuaranteeStatus::Met { "" } else { guarantee.remedy };
        let (found, wanted, remedy) = (escape(&guarantee.finding), escape(guarantee.property), escape(remedy));
        rows += &format!("<tr><td>{}<td class=\"text\">{holds}<td class=\"text\">{found}", guarantee.name);
        rows += &format!("<td class=\"text soft\">{wanted}<td class=\"text soft\">{remedy}\n");
    }
    format!(
        "<h2>Real-time guarantees of this machine</h2>\n<div class=\"wide\"><table>\n<tr><th>guarantee<th class=\"text\">here\
         <th class=\"text\">found<th class=\"text\">wanted<th class=\"text\">remedy\n{rows}</table></div>\n"
    )
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::avionics::Report;

    fn record(latencies: Vec<u32>) -> Record {
        let mut record = Record::new("radar", "assess <all>", 10, Some(Duration::from_millis(10)));
        let report = Report {
            client: "radar".into(),
            scheduling: "FIFO 20".into(),
            period: 1.0,
            latencies,
            misses: 1,
            failures: 0,
            trouble: String::new(),
        };
        record.add(report);
        record
    }

    #[test]
    fn histogram_has_a_bar_and_a_number_for_each_bucket() {
        let drawing = histogram(&record(vec![300_000, 400_000, 600_000, 15_000_000]));
        // The buckets are 200 to 500 us, 500 us to 1 ms, three empty buckets, and 10 to 20 ms.
        assert_eq!(drawing.matches("<rect").count(), 6);
        assert!(drawing.contains(">2 <tspan class=\"note\" dx=\"6\">50.0 %</tspan>"), "{drawing}");
        assert_eq!(drawing.matches("class=\"late\"").count(), 1);
        assert_eq!(drawing.matches("class=\"rule\"").count(), 1);
    }

    #[test]
    fn text_from_outside_is_escaped() {
        let text = section(&record(vec![1]));
        assert!(text.contains("assess &lt;all&gt;") && !text.contains("<all>"));
    }

    #[test]
    fn client_without_calls_has_no_histogram() {
        assert!(histogram(&record(Vec::new())).contains("No calls"));
    }
}
