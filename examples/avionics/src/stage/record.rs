//! Statistics of each client: calls, latencies, misses, failures.

use std::time::Duration;

use crate::avionics::Report;

/// Upper bounds of the histogram's buckets; one more bucket counts all longer latencies.
pub(super) const BOUNDS: [Duration; 14] = [
    Duration::from_micros(20),
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(200),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
];

#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) task: String,
    /// Calls per second that the client should make.
    pub(super) due: u32,
    pub(super) deadline: Option<Duration>,
    /// Scheduling class that the kernel granted; empty until the first report.
    pub(super) scheduling: String,
    pub(super) rate: f64,
    seconds: f64,
    /// Latencies of the calls that did not fail, ascending.
    latencies: Vec<Duration>,
    misses: u32,
    /// Number of event sets for the work, which the channel has dropped at a full queue.
    pub(super) overflowed: u32,
    pub(super) failures: u32,
    pub(super) trouble: String,
}

impl Record {
    pub(super) fn new(name: &str, task: &str, due: u32, deadline: Option<Duration>) -> Self {
        Record { name: name.into(), task: task.into(), due, deadline, ..Record::default() }
    }

    pub(super) fn add(&mut self, report: Report) {
        // The last report may cover too short a time for a rate.
        if report.period > 0.5 {
            self.rate = report.latencies.len() as f64 / report.period;
        }
        self.seconds += report.period;
        self.latencies.extend(report.latencies.into_iter().map(|nanoseconds| Duration::from_nanos(nanoseconds.into())));
        self.latencies.sort_unstable();
        self.misses += report.misses;
        self.failures += report.failures;
        self.scheduling = report.scheduling;
        if !report.trouble.is_empty() {
            self.trouble = report.trouble;
        }
    }

    pub(super) fn calls(&self) -> usize {
        self.latencies.len()
    }

    /// Returns the number of results after the deadline, of skipped calls, and of event sets that
    /// were dropped at a full queue.
    pub(super) fn missed(&self) -> u32 {
        self.misses.saturating_add(self.overflowed)
    }

    pub(super) fn mean_rate(&self) -> f64 {
        if self.seconds > 0.0 { self.calls() as f64 / self.seconds } else { 0.0 }
    }

    /// Returns the latency that the fraction `part` of the calls do not exceed; `None` without
    /// calls.
    pub(super) fn percentile(&self, part: f64) -> Option<Duration> {
        let rank = (part * self.calls() as f64).ceil() as usize;
        self.latencies.get(rank.max(1) - 1).copied()
    }

    pub(super) fn buckets(&self) -> [usize; BOUNDS.len() + 1] {
        let mut buckets = [0; BOUNDS.len() + 1];
        for latency in &self.latencies {
            buckets[BOUNDS.partition_point(|bound| bound < latency)] += 1;
        }
        buckets
    }
}

pub(super) fn format_latency(time: Duration) -> String {
    let microseconds = time.as_secs_f64() * 1e6;
    match microseconds {
        ..999.5 => format!("{microseconds:.0} us"),
        ..9_995.0 => format!("{:.2} ms", microseconds / 1e3),
        ..99_950.0 => format!("{:.1} ms", microseconds / 1e3),
        _ => format!("{:.0} ms", microseconds / 1e3),
    }
}

pub(super) fn format_bound(time: Duration) -> String {
    match time.as_micros() {
        microseconds @ ..1_000 => format!("{microseconds} us"),
        microseconds => format!("{} ms", microseconds / 1_000),
    }
}

pub(super) fn format_latency_or_dash(time: Option<Duration>) -> String {
    time.map_or("-".into(), format_latency)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(latencies: Vec<u32>) -> Report {
        Report {
            client: "radar".into(),
            scheduling: "OTHER".into(),
            period: 1.0,
            latencies,
            misses: 1,
            failures: 0,
            trouble: String::new(),
        }
    }

    #[test]
    fn record_sums_the_reports() {
        let mut record = Record::new("radar", "assess", 10, None);
        assert_eq!((record.percentile(0.5), record.mean_rate()), (None, 0.0));
        record.add(report((1..=50).rev().map(|n| n * 1_000).collect()));
        record.add(report((51..=100).map(|n| n * 1_000).collect()));
        let microseconds = |part| record.percentile(part).unwrap().as_micros();
        assert_eq!((microseconds(0.5), microseconds(0.99), microseconds(1.0)), (50, 99, 100));
        assert_eq!((record.calls(), record.missed(), record.mean_rate()), (100, 2, 50.0));
        assert_eq!(record.buckets()[..3], [20, 30, 50]);
    }

    #[test]
    fn bucket_includes_its_upper_bound_and_the_last_bucket_has_no_bound() {
        let mut record = Record::default();
        record.add(report(vec![20_000, 20_001, u32::MAX]));
        let buckets = record.buckets();
        assert_eq!((buckets[0], buckets[1], buckets[BOUNDS.len()]), (1, 1, 1));
    }

    #[test]
    fn latencies_are_formatted_with_few_characters() {
        let texts =
            [87, 999, 1_250, 12_340, 123_400].map(|microseconds| format_latency(Duration::from_micros(microseconds)));
        assert_eq!(texts, ["87 us", "999 us", "1.25 ms", "12.3 ms", "123 ms"]);
    }
}
