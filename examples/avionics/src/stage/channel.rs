//! The event channel, as the stage sees it: the counts of its consumers, and the mode changes.

use std::fmt::Write;
use std::time::Duration;

use super::page::escape;
use super::record::Record;
use crate::Result;
use crate::avionics::event_computer::EnterError;
use crate::avionics::{ConsumerCounts, EventComputerRef, Mode};
use crate::clients::{CLIENTS, Role};
use crate::mission::plan::WORK;

const PATIENCE: Duration = Duration::from_secs(2);

/// The mode changes, each at a part of the run in hundredths.
const CHANGES: [(u32, Mode); 2] = [(33, Mode::Attack), (67, Mode::Cruise)];

/// The mission computer on an event channel.
pub(super) struct ChannelView {
    computer: EventComputerRef,
    /// True if the server admits tasks.
    has_admission: bool,
    counts: Vec<ConsumerCounts>,
    /// A line for each mode change.
    changes: Vec<String>,
}

impl ChannelView {
    pub(super) fn new(computer: &EventComputerRef, has_admission: bool) -> Self {
        ChannelView {
            computer: computer.with_timeout(PATIENCE),
            has_admission,
            counts: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Changes the mode if the next change is due. `passed` is the part of the run that has passed,
    /// in hundredths.
    pub(super) fn change_mode(&mut self, passed: u32) -> Result<()> {
        let Some((due, mode)) = CHANGES.get(self.changes.len()).copied() else { return Ok(()) };
        if passed < due {
            return Ok(());
        }
        let name = if mode == Mode::Attack { "attack" } else { "cruise" };
        let outcome = match self.computer.enter(mode) {
            Ok(()) if self.has_admission => "admitted".to_owned(),
            Ok(()) => "without admission".to_owned(),
            Err(EnterError::Refused(refused)) => format!("{} is refused by the {}", refused.task, refused.reason),
            Err(error) => return Err(format!("the mode {name} cannot be entered: {error:?}").into()),
        };
        let work = WORK.iter().filter(|work| work.modes.contains(&mode)).map(|work| work.name);
        self.changes.push(format!("{name} with {}: {outcome}", work.collect::<Vec<_>>().join(", ")));
        Ok(())
    }

    /// Gets the counts from the server. Call it while the server runs.
    pub(super) fn refresh(&mut self) -> Result<()> {
        self.counts = self.computer.counts()?;
        Ok(())
    }

    /// Returns a line for each consumer.
    pub(super) fn table(&self) -> String {
        table(&self.counts)
    }

    /// Returns a line for each consumer, and one line for all sensors.
    pub(super) fn live_table(&self) -> String {
        live_table(&self.counts)
    }

    /// Notes the sets that were dropped at a full queue in the records of their work.
    pub(super) fn note_overflows(&self, records: &mut [Record]) {
        note_overflows(&self.counts, records);
    }

    /// Returns a sentence for each consumer to which pushes have failed.
    pub(super) fn failures(&self) -> Vec<String> {
        failures(&self.counts)
    }

    /// Returns a line for each mode change.
    pub(super) fn lines(&self) -> String {
        self.changes.iter().map(|change| format!("mode      {change}\n")).collect()
    }

    pub(super) fn section(&self) -> String {
        let mut page = String::from(
            "<h2>Event channel</h2>\n<p>The number of event sets for each consumer: those that its filter has passed, and what \
             became of them. The display stalls, so its queues fill, and the channel drops its oldest events. The admission counts the \
             processor time of the work that events start; this work runs in the threads of the lanes, on any core.</p>\n",
        );
        page += "<div class=\"wide\"><table>\n<tr><th>consumer<th>matched<th>delivered<th>waiting<th>queue full<th>suspended<th>failed\n";
        for consumer in &self.counts {
            let _ = writeln!(page, "<tr><td>{}<td>{}", escape(&consumer.name), cells(consumer).join("<td>"));
        }
        page += "</table></div>\n";
        page += &chart(&self.counts);
        page += "<ul>\n";
        for change in &self.changes {
            let _ = writeln!(page, "<li>Mode {}", escape(change));
        }
        page + "</ul>\n"
    }
}

fn table(counts: &[ConsumerCounts]) -> String {
    let mut text = row("channel", ["matched", "delivered", "waiting", "queue full", "suspended", "failed"]);
    for consumer in counts {
        text += &row(&consumer.name, cells(consumer).each_ref().map(String::as_str));
    }
    text
}

pub(super) fn live_table(counts: &[ConsumerCounts]) -> String {
    let is_sensor = |name: &str| CLIENTS.iter().any(|client| client.name == name && client.role == Role::Sensor);
    let (sensors, mut shown): (Vec<ConsumerCounts>, Vec<ConsumerCounts>) =
        counts.iter().cloned().partition(|consumer| is_sensor(&consumer.name));
    let sum = |part: fn(&ConsumerCounts) -> u64| sensors.iter().map(part).sum();
    shown.push(ConsumerCounts {
        name: "sensors".to_owned(),
        matched: sum(|it| it.matched),
        delivered: sum(|it| it.delivered),
        waiting: sum(|it| it.waiting),
        overflowed: sum(|it| it.overflowed),
        suspended: sum(|it| it.suspended),
        failed: sum(|it| it.failed),
    });
    table(&shown)
}

fn note_overflows(counts: &[ConsumerCounts], records: &mut [Record]) {
    for consumer in counts {
        if let Some(record) = records.iter_mut().find(|record| record.name == consumer.name) {
            record.overflowed = u32::try_from(consumer.overflowed).unwrap_or(u32::MAX);
        }
    }
}

fn failures(counts: &[ConsumerCounts]) -> Vec<String> {
    let failed = counts.iter().filter(|consumer| consumer.failed > 0);
    failed.map(|consumer| format!("{} event sets did not reach {}", consumer.failed, consumer.name)).collect()
}

fn cells(consumer: &ConsumerCounts) -> [String; 6] {
    let ConsumerCounts { matched, delivered, waiting, overflowed, suspended, failed, .. } = consumer;
    [matched, delivered, waiting, overflowed, suspended, failed].map(u64::to_string)
}

fn row(name: &str, cells: [&str; 6]) -> String {
    let [matched, delivered, waiting, overflowed, suspended, failed] = cells;
    format!("{name:10} {matched:>9} {delivered:>9} {waiting:>9} {overflowed:>10} {suspended:>9} {failed:>9}\n")
}

/// Height of a row in pixels.
const ROW: usize = 20;
/// Left margin of the chart in pixels.
const LEFT: usize = 100;
/// Width of the chart in pixels.
const WIDTH: usize = 600;

/// Draws a bar for each consumer: the delivered sets, and the lost sets in another colour.
fn chart(counts: &[ConsumerCounts]) -> String {
    let most = counts.iter().map(|consumer| consumer.matched).max().unwrap_or(0).max(1);
    let width = |sets: u64| usize::try_from(sets.saturating_mul(WIDTH as u64) / most).unwrap_or(0);
    let mut rows = String::new();
    for (at, consumer) in counts.iter().enumerate() {
        let (y, height) = (at * ROW, ROW - 6);
        let lost = consumer.overflowed + consumer.failed;
        let (delivered, lost_width) = (width(consumer.delivered), width(lost));
        let _ = writeln!(
            rows,
            "<text class=\"note\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect class=\"bar\" x=\"{LEFT}\" y=\"{}\" width=\"{delivered}\" height=\"{height}\"/>\
             <rect class=\"late\" x=\"{}\" y=\"{}\" width=\"{lost_width}\" height=\"{height}\"/>\
             <text x=\"{}\" y=\"{}\">{} <tspan class=\"note\" dx=\"6\">{lost} lost</tspan></text>",
            LEFT - 10,
            y + 14,
            escape(&consumer.name),
            y + 3,
            LEFT + delivered,
            y + 3,
            LEFT + delivered + lost_width + 8,
            y + 14,
            consumer.delivered,
        );
    }
    let (width, height) = (LEFT + WIDTH + 140, counts.len() * ROW);
    format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"Deliveries of the channel\">\n{rows}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::super::table::live_text;
    use super::*;
    use crate::Form;

    fn consumer(name: &str, delivered: u64, overflowed: u64) -> ConsumerCounts {
        ConsumerCounts {
            name: name.into(),
            matched: delivered + overflowed,
            delivered,
            waiting: 0,
            overflowed,
            suspended: 0,
            failed: 0,
        }
    }

    #[test]
    fn sets_dropped_at_a_full_queue_are_misses_of_their_work() {
        let mut records = [Record::new("hud", "", 30, Some(PATIENCE)), Record::new("steering", "", 20, Some(PATIENCE))];
        let counts = [consumer("hud", 300, 7), consumer("display", 1, 400)];
        // The counts are totals, so a second note of the same counts changes nothing.
        (0..2).for_each(|_| note_overflows(&counts, &mut records));
        assert_eq!(records.map(|record| record.missed()), [7, 0]);
    }

    #[test]
    fn consumer_with_failed_pushes_is_a_failure() {
        let lost = ConsumerCounts { failed: 2, ..consumer("radar", 10, 0) };
        assert_eq!(failures(&[consumer("display", 1, 400), lost]), ["2 event sets did not reach radar"]);
    }

    #[test]
    fn live_text_fits_a_terminal_of_24_rows() {
        let mut records = super::super::records(Form::Events);
        records.push(super::super::omniorb::record());
        let clients = CLIENTS.iter().filter(|client| client.role != Role::Caller).map(|client| client.name);
        let names = WORK.iter().map(|work| work.name).chain(clients);
        let counts: Vec<ConsumerCounts> = names.map(|name| consumer(name, 3, 1)).collect();
        let text = live_text("3 s of 15", &records, &live_table(&counts));
        // The cursor has a row of its own, so the text has fewer rows than the terminal.
        assert!(text.lines().count() < 24 && text.lines().all(|line| line.len() < 80), "{text}");
        let sensors = text.lines().find(|line| line.starts_with("sensors ")).unwrap();
        let numbers: Vec<&str> = sensors.split_whitespace().skip(1).collect();
        assert_eq!(numbers, ["20", "15", "0", "5", "0", "0"]);
    }

    #[test]
    fn chart_shows_what_each_consumer_got_and_lost() {
        let drawing = chart(&[consumer("hud", 300, 0), consumer("display", 100, 500)]);
        assert!(
            drawing.contains("width=\"300\"") && drawing.contains(">300 <tspan class=\"note\" dx=\"6\">0 lost</tspan>")
        );
        assert!(
            drawing.contains("width=\"500\"")
                && drawing.contains(">100 <tspan class=\"note\" dx=\"6\">500 lost</tspan>")
        );
        assert!(chart(&[]).starts_with("<svg"));
    }
}
