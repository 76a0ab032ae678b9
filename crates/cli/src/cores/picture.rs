//! Pictures of analyses and schedules, as SVG.

use std::fmt::Write as _;

use corelane_sched::simulation::SimulationOutcome;
use corelane_sched::task::Nanos;

use super::milliseconds;

/// Width in pixels of the column of names.
const NAMES: usize = 170;
/// Width in pixels of the column of bars.
const BARS: u64 = 760;
/// Height in pixels of a row. `BAR` is the height of a row's bar.
const ROW: usize = 20;
const BAR: usize = 13;
/// Height in pixels of the area above the rows.
const HEAD: usize = 34;
/// Maximum number of rectangles in a schedule, so that a browser can display it.
const MAX_RECTANGLES: usize = 20_000;
/// Maximum number of tasks in a picture.
const MAX_ROWS: usize = 500;

/// The response time of a task and its deadline.
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

/// Draws the times at which each task ran, with one row for each task and one colour for each core.
pub(super) fn schedule(names: &[&str], cores: usize, duration: Nanos, outcome: &SimulationOutcome) -> String {
    let rows = names.len().min(MAX_ROWS);
    let mut svg = open(rows, &format!("Schedule of {} ms", milliseconds(duration)));
    for (core, x) in (0..cores.min(8)).zip((0_u64..).step_by(80)) {
        rectangle(&mut svg, NAMES as u64 + 300 + x, 8, 12, colour(core));
        text(&mut svg, NAMES as u64 + 316 + x, 19, "start", &format!("core {core}"));
    }
    for (row, (name, observed)) in names.iter().zip(&outcome.tasks).take(rows).enumerate() {
        let y = HEAD + row * ROW;
        text(&mut svg, NAMES as u64 - 8, y + BAR - 2, "end", &short(name));
        let missed = format!("{} missed", observed.missed);
        text(&mut svg, NAMES as u64 + BARS + 8, y + BAR - 2, "start", &missed);
    }
    let place = |at: Nanos| {
        let place = u128::from(at) * u128::from(BARS * 100) / u128::from(duration.max(1));
        u64::try_from(place).unwrap_or(BARS * 100)
    };
    let drawn = outcome.execution_intervals.iter().filter(|interval| interval.task < rows).take(MAX_RECTANGLES);
    for interval in drawn {
        let (from, until) = (place(interval.from), place(interval.until).max(place(interval.from) + 20));
        let y = HEAD + interval.task * ROW;
        let _ = writeln!(
            svg,
            "<rect x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{BAR}\" fill=\"{}\"/>",
            hundredths(NAMES as u64 * 100 + from),
            hundredths(until - from),
            colour(interval.core)
        );
    }
    close(svg)
}

fn open(rows: usize, title: &str) -> String {
    let (width, height) = (NAMES as u64 + BARS + 190, HEAD + rows * ROW + 10);
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
    // Writing to a String does not fail.
    let _ = writeln!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{BAR}\" fill=\"{fill}\"/>");
}

fn text(svg: &mut String, x: u64, y: usize, anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>");
}

/// Cuts a name to the width of its column.
fn short(name: &str) -> String {
    match name.char_indices().nth(18) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_owned(),
    }
}

fn hundredths(number: u64) -> String {
    format!("{}.{:02}", number / 100, number % 100)
}

/// Returns the colour of a core. The colours of Okabe and Ito are distinct for colour-blind readers
/// too.
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
    fn length_of_a_bar_is_a_fraction_of_the_deadline() {
        let bar = |response| ResponseBar { name: "t", core: None, response, deadline: 1_000, fits: false };
        let width = |response| format!("width=\"{response}\" height=\"{BAR}\"");
        assert!(responses(&[bar(Some(500))]).contains(&width(BARS / 3)));
        assert!(responses(&[bar(Some(u64::MAX))]).contains(&width(BARS)));
        assert!(responses(&[bar(None)]).contains("no bound"));
    }
}
