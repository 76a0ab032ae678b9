//! The table of all clients, redrawn in place on a terminal, and printed at intervals elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::record::{Record, format_bound, format_latency_or_dash};

const REDRAW: Duration = Duration::from_millis(500);
/// Interval at which the table is printed elsewhere than on a terminal. A run shorter than two
/// intervals prints the table once, in the middle of the run.
const REPRINT: Duration = Duration::from_secs(5);

pub(super) struct Table {
    in_place: bool,
    interval: Duration,
    drawn: usize,
    next: Instant,
}

impl Table {
    pub(super) fn new(length: Duration) -> Self {
        let in_place = io::stdout().is_terminal();
        let interval = if in_place { REDRAW } else { REPRINT.min(length / 2) };
        Table { in_place, interval, drawn: 0, next: Instant::now() + interval }
    }

    /// Returns true if the table should be shown again.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Shows the table of the records, and below it the text `more`.
    pub(super) fn show(&mut self, headline: &str, records: &[Record], more: &str) -> io::Result<()> {
        self.next += self.interval;
        let text = live_text(headline, records, more);
        let mut out = io::stdout().lock();
        if self.in_place && self.drawn > 0 {
            // Moves the cursor to the start of the old table, and clears the screen below.
            write!(out, "\x1b[{}A\x1b[J", self.drawn)?;
        }
        self.drawn = text.lines().count();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    pub(super) fn clear(&mut self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.in_place && self.drawn > 0 {
            write!(out, "\x1b[{}A\x1b[J", self.drawn)?;
        }
        self.drawn = 0;
        out.flush()
    }
}

/// Returns the text that is redrawn in place. The text and the cursor below it fit a terminal of 24
/// rows, because the cursor cannot move up to lines that have left the screen.
pub(super) fn live_text(headline: &str, records: &[Record], more: &str) -> String {
    format!("{headline}\n{}\n{more}\n", lines(records, |record| record.rate))
}

pub(super) fn lines(records: &[Record], rate: impl Fn(&Record) -> f64) -> String {
    let mut text = row(["client", "class", "Hz/due", "calls", "p50", "p99", "max", "deadline", "missed", "failed"]);
    for record in records {
        let class = if record.scheduling.is_empty() { "-" } else { &record.scheduling };
        text += &row([
            &record.name,
            class,
            &format!("{:.1}/{}", rate(record), record.due),
            &record.calls().to_string(),
            &format_latency_or_dash(record.percentile(0.5)),
            &format_latency_or_dash(record.percentile(0.99)),
            &format_latency_or_dash(record.percentile(1.0)),
            &record.deadline.map_or("-".into(), format_bound),
            &record.deadline.map_or("-".into(), |_| record.missed().to_string()),
            &record.failures.to_string(),
        ]);
    }
    text
}

fn row(cells: [&str; 10]) -> String {
    let [client, class, rate, calls, p50, p99, most, deadline, missed, failed] = cells;
    format!(
        "{client:10} {class:7} {rate:>7} {calls:>5} {p50:>7} {p99:>7} {most:>7} {deadline:>8} {missed:>6} {failed:>6}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_fits_a_terminal_of_80_columns() {
        let record = Record::new("navigation", "navigate", 20, Some(Duration::from_millis(5)));
        let text = lines(&[record], |record| record.rate);
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().all(|line| line.len() < 80), "{text}");
    }
}
