//! Pictures of analyses and schedules, as SVG.

use std::fmt::Write as _;

use corelane_sched::simulation::SimulationOutcome;
use corelane_sched::task::Nanos;

use super::output::milliseconds;

const NAMES: usize = 170;
const BARS: u64 = 760;
/// Height in pixels of a row.
const ROW: usize = 20;
/// Height in pixels of the bar in a row.
const BAR: usize = 13;
const HEAD: usize = 34;
/// Maximum number of bars in a chart, so that a browser can display it.
const MAX_RECTANGLES: usize = 20_000;
const NAMED_COLOURS: usize = 8;
const MAX_ROWS: usize = 500;

pub(super) struct ResponseBar<'n> {
    pub(super) name: &'n str,
    pub(super) core: Option<u32>,
    pub(super) response: Option<Nanos>,
    pub(super) deadline: Nanos,
    pub(super) fits: bool,
}

/// Draws response times as fractions of the deadlines. A line at two thirds of the width marks the
/// deadline.
pub(super) fn responses(bars: &[ResponseBar<'_>]) -> String {
    let shown = &bars[..bars.len().min(MAX_ROWS)];
    let deadline = BARS * 2 / 3;
    let mut svg = open(shown.len(), "Worst-case response times");
    text(&mut svg, NAMES as u64 + deadline, HEAD - 8, "middle", "deadline");
    for (row, bar) in shown.iter().enumerate() {
        let y = HEAD + row * ROW;
        let core = bar.core.map_or_else(String::new, |core| format!(" (core {core})"));
        text(&mut svg, NAMES as u64 - 8, y + BAR - 2, "end", &format!("{}{core}", short(bar.name)));
        let scaled = |response: Nanos| u128::from(response) * u128::from(deadline) / u128::from(bar.deadline.max(1));
        let width = bar.response.map(|response| u64::try_from(scaled(response)).unwrap_or(BARS).min(BARS));
        rectangle(&mut svg, NAMES as u64, y, width.unwrap_or(0).max(1), if bar.fits { "#2a6fb0" } else { "#c0392b" });
        let told = match bar.response {
            Some(response) => format!("{} of {} ms", milliseconds(response), milliseconds(bar.deadline)),
            None if bar.fits => format!("fits within {} ms", milliseconds(bar.deadline)),
            None => "no bound".to_owned(),
        };
        text(&mut svg, NAMES as u64 + BARS + 8, y + BAR - 2, "start", &told);
    }
    let (x, bottom) = (NAMES as u64 + deadline, HEAD + shown.len() * ROW);
    let _ = writeln!(svg, "<line x1=\"{x}\" y1=\"{HEAD}\" x2=\"{x}\" y2=\"{bottom}\" stroke=\"#000\"/>");
    close(svg)
}

pub(super) fn schedule(names: &[&str], cores: usize, duration: Nanos, outcome: &SimulationOutcome) -> String {
    let rows = names.iter().zip(&outcome.tasks);
    let rows =
        rows.map(|(name, observed)| GanttRow { name: (*name).to_owned(), note: format!("{} missed", observed.missed) });
    let bars = outcome.execution_intervals.iter().map(|interval| GanttBar {
        row: interval.task,
        colour: interval.core,
        from: interval.from,
        until: interval.until,
    });
    gantt(&GanttChart {
        title: format!("Schedule of {} ms", milliseconds(duration)),
        colours: (0..cores).map(|core| format!("core {core}")).collect(),
        rows: rows.collect(),
        bars: bars.collect(),
        from: 0,
        until: duration,
    })
}

pub(super) struct GanttRow {
    pub(super) name: String,
    pub(super) note: String,
}

#[derive(Clone, Copy)]
pub(super) struct GanttBar {
    pub(super) row: usize,
    pub(super) colour: usize,
    pub(super) from: Nanos,
    pub(super) until: Nanos,
}

pub(super) struct GanttChart {
    pub(super) title: String,
    /// The meanings of the colours, of which the chart names the first eight.
    pub(super) colours: Vec<String>,
    pub(super) rows: Vec<GanttRow>,
    /// A later bar covers an earlier one. Bars outside of the chart's time are left out.
    pub(super) bars: Vec<GanttBar>,
    pub(super) from: Nanos,
    pub(super) until: Nanos,
}

pub(super) fn gantt(chart: &GanttChart) -> String {
    let rows = chart.rows.len().min(MAX_ROWS);
    let mut svg = open(rows, &chart.title);
    for (number, (x, name)) in (0_u64..).step_by(85).zip(chart.colours.iter().take(NAMED_COLOURS)).enumerate() {
        rectangle(&mut svg, NAMES as u64 + 250 + x, 8, 12, colour(number));
        text(&mut svg, NAMES as u64 + 266 + x, 19, "start", &cut(name, 9));
    }
    for (row, GanttRow { name, note }) in chart.rows.iter().take(rows).enumerate() {
        let y = HEAD + row * ROW;
        text(&mut svg, NAMES as u64 - 8, y + BAR - 2, "end", &short(name));
        text(&mut svg, NAMES as u64 + BARS + 8, y + BAR - 2, "start", note);
    }
    let duration = chart.until.saturating_sub(chart.from);
    let place = |at: Nanos| {
        let since = at.clamp(chart.from, chart.until) - chart.from;
        let place = u128::from(since) * u128::from(BARS * 100) / u128::from(duration.max(1));
        u64::try_from(place).unwrap_or(BARS * 100)
    };
    let is_shown = |bar: &&GanttBar| bar.row < rows && bar.from < chart.until && bar.until >= chart.from;
    for bar in chart.bars.iter().filter(is_shown).take(MAX_RECTANGLES) {
        let (from, until) = (place(bar.from), place(bar.until).max(place(bar.from) + 20));
        let y = HEAD + bar.row * ROW;
        let _ = writeln!(
            svg,
            "<rect x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{BAR}\" fill=\"{}\"/>",
            hundredths(NAMES as u64 * 100 + from),
            hundredths(until - from),
            colour(bar.colour)
        );
    }
    for quarter in 0..=4 {
        let (x, at) = (NAMES as u64 + BARS * quarter / 4, u128::from(duration) * u128::from(quarter) / 4);
        let at = u64::try_from(at).unwrap_or(Nanos::MAX);
        text(&mut svg, x, HEAD + rows * ROW + 12, "middle", &format!("{} ms", milliseconds(at)));
    }
    close(svg)
}

fn open(rows: usize, title: &str) -> String {
    let (width, height) = (NAMES as u64 + BARS + 190, HEAD + rows * ROW + 20);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    text(&mut svg, 8, 19, "start", title);
    svg
}

fn close(mut svg: String) -> String {
    svg.push_str("</svg>\n");
    svg
}

fn rectangle(svg: &mut String, x: u64, y: usize, width: u64, fill: &str) {
    let _ = writeln!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{BAR}\" fill=\"{fill}\"/>");
}

fn text(svg: &mut String, x: u64, y: usize, anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>");
}

fn short(name: &str) -> String {
    cut(name, 18)
}

fn cut(name: &str, most: usize) -> String {
    match name.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_owned(),
    }
}

fn hundredths(number: u64) -> String {
    format!("{}.{:02}", number / 100, number % 100)
}

/// Returns the colour of a core, one of the eight colours of Okabe and Ito, which colour-blind
/// readers can distinguish.
fn colour(core: usize) -> &'static str {
    const COLOURS: [&str; 8] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#000000"];
    COLOURS[core % COLOURS.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_cut() {
        let bar = |name| ResponseBar { name, core: Some(1), response: Some(50), deadline: 100, fits: true };
        let svg = responses(&[bar("<a&b>"), bar("a name of more than eighteen letters")]);
        assert!(svg.contains("&lt;a&amp;b&gt; (core 1)"), "{svg}");
        assert!(svg.contains("a name of more tha... (core 1)"), "{svg}");
        assert!(!svg.contains("<a&"), "{svg}");
    }

    #[test]
    fn bars_outside_of_the_time_of_a_gantt_chart_are_cut_or_left_out() {
        let bar = |row, from, until| GanttBar { row, colour: row, from, until };
        let rows = ["a", "b"].map(|name| GanttRow { name: name.to_owned(), note: "<note>".to_owned() });
        let chart = GanttChart {
            title: "T".to_owned(),
            colours: vec!["one".to_owned(), "a long name of a colour".to_owned()],
            rows: rows.into(),
            bars: vec![
                bar(0, 0, 150),
                bar(1, 120, 140),
                bar(1, 190, 500),
                bar(0, 0, 99),
                bar(0, 200, 300),
                bar(2, 100, 200),
            ],
            from: 100,
            until: 200,
        };
        let svg = gantt(&chart);
        let spans: Vec<&str> = svg.lines().filter(|line| line.contains(".00\" y=")).collect();
        assert_eq!(spans.len(), 3, "{svg}");
        let place = |x: u64, width: u64| format!("<rect x=\"{x}.00\" y=\"{}\" width=\"{width}.00\"", HEAD);
        assert!(spans[0].starts_with(&place(NAMES as u64, BARS / 2)), "{}", spans[0]);
        let second = |x: u64, width: u64| format!("<rect x=\"{x}.00\" y=\"{}\" width=\"{width}.00\"", HEAD + ROW);
        assert!(spans[1].starts_with(&second(NAMES as u64 + BARS / 5, BARS / 5)), "{}", spans[1]);
        assert!(spans[2].starts_with(&second(NAMES as u64 + BARS * 9 / 10, BARS / 10)), "{}", spans[2]);
        assert!(svg.contains("&lt;note&gt;") && svg.contains(">a long na...<"), "{svg}");
    }

    #[test]
    fn length_of_a_bar_is_a_fraction_of_the_deadline() {
        let bar = |response| ResponseBar { name: "t", core: None, response, deadline: 1_000, fits: false };
        let width = |response| format!("width=\"{response}\" height=\"{BAR}\"");
        assert!(responses(&[bar(Some(500))]).contains(&width(BARS / 3)));
        assert!(responses(&[bar(Some(u64::MAX))]).contains(&width(BARS)));
        assert!(responses(&[bar(None)]).contains("no bound"));
    }
}
