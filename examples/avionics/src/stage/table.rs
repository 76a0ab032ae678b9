//! The table in the terminal: redrawn in place on a terminal, printed now and then elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::record::{Record, short_or_dash};

/// How often the table is redrawn on a terminal.
const REDRAW: Duration = Duration::from_millis(500);
/// How often it is printed elsewhere.
const REPRINT: Duration = Duration::from_secs(5);

/// Where the table is, and when it is shown next.
pub(super) struct Table {
    in_place: bool,
    /// Lines to go up.
    drawn: usize,
    next: Instant,
}

impl Table {
    pub(super) fn new() -> Self {
        let in_place = io::stdout().is_terminal();
        let mut table = Table { in_place, drawn: 0, next: Instant::now() };
        table.next += table.interval();
        table
    }

    fn interval(&self) -> Duration {
        if self.in_place { REDRAW } else { REPRINT }
    }

    /// Shows the table if it is time to.
    pub(super) fn show(&mut self, headline: &str, records: &[Record]) -> io::Result<()> {
        if Instant::now() < self.next {
            return Ok(());
        }
        self.next += self.interval();
        let text = format!("{headline}\n{}", lines(records, |record| record.rate));
        let mut out = io::stdout().lock();
        if self.in_place && self.drawn > 0 {
            // Up over the old table, and clear from there.
            write!(out, "\x1b[{}A\x1b[J", self.drawn)?;
        }
        self.drawn = text.lines().count();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Takes the live table away, so that the summary stands in its place.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.in_place && self.drawn > 0 {
            write!(out, "\x1b[{}A\x1b[J", self.drawn)?;
        }
        self.drawn = 0;
        out.flush()
    }
}

/// The table, a line for each client.
pub(super) fn lines(records: &[Record], rate: impl Fn(&Record) -> f64) -> String {
    let mut text = format!(
        "{:9} {:18} {:8} {:>11} {:>6} {:>8} {:>8} {:>8} {:>9} {:>6} {:>6}\n",
        "client", "calls", "class", "rate/due", "calls", "p50", "p99", "max", "deadline", "missed", "failed"
    );
    for record in records {
        let class = if record.scheduling.is_empty() { "-" } else { &record.scheduling };
        let (p50, p99, most) = (record.percentile(0.5), record.percentile(0.99), record.percentile(1.0));
        text += &format!(
            "{:9} {:18} {:8} {:>11} {:>6} {:>8} {:>8} {:>8} {:>9} {:>6} {:>6}\n",
            record.name,
            record.task,
            class,
            format!("{:.1}/{} Hz", rate(record), record.due),
            record.calls(),
            short_or_dash(p50),
            short_or_dash(p99),
            short_or_dash(most),
            short_or_dash(record.deadline),
            record.deadline.map_or("-".into(), |_| record.misses.to_string()),
            record.failures,
        );
    }
    text
}
