//! The ceiling of best effort: bulk load that real-time I/O holds at a part of the link, on the
//! receiver's side and on the sender's. The rate of the full load in the same run counts as the
//! rate of the link.

use std::ops::Range;
use std::time::Duration;

use super::shared::{BENCH, CORELANE, is_trial, judged_unless_trial, label};
use super::testbed::RioTestbed;
use crate::Failure;
use crate::harness::Progress;
use crate::options::{BenchOptions, Depth};
use crate::report::Report;
use crate::targets::rio as goals;
use crate::value::SingleValue;

/// The ceiling in percent of the link.
const CEILING: f64 = 40.0;

/// Bytes of a full frame with its Ethernet header. A ceiling counts all these bytes.
const FRAME: f64 = 1_514.0;
/// Bytes of TCP data in a full frame.
const DATA: f64 = 1_448.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CeilingSide {
    /// The receiver's steering program drops frames above the ceiling.
    Received,
    /// The sender's transmit classes delay packets above the ceiling.
    Sent,
}

impl CeilingSide {
    const ALL: [Self; 2] = [Self::Received, Self::Sent];

    fn name(self) -> &'static str {
        match self {
            Self::Received => "received best effort",
            Self::Sent => "sent best effort",
        }
    }
}

/// Numbers of bytes of the bulk load that arrived in each millisecond, and the judged milliseconds.
pub(super) struct BulkRun {
    pub(super) bytes: Vec<u64>,
    pub(super) judged: Range<usize>,
    /// Frames that the receiver's steering program dropped.
    pub(super) dropped: u64,
}

impl BulkRun {
    /// Returns the mean rate in bytes of data per second.
    fn rate(&self) -> f64 {
        let bytes: u64 = self.bytes.iter().take(self.judged.end).skip(self.judged.start).sum();
        1e3 * bytes as f64 / self.judged.len().max(1) as f64
    }
}

fn length(options: &BenchOptions) -> Duration {
    match options.depth {
        _ if is_trial(options) => Duration::from_millis(500),
        Depth::Quick => Duration::from_millis(1_300),
        Depth::Usual => Duration::from_millis(4_300),
        Depth::Full => Duration::from_millis(12_300),
    }
}

pub(super) fn best_effort_ceiling(
    testbed: &RioTestbed,
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let length = length(options);
    for side in CeilingSide::ALL {
        let name = side.name();
        progress.show(&format!("{BENCH}: ceiling of {name}"));
        let peer = format!("{CORELANE}, ceiling of {name}");
        let (mut full, mut limited) = (Vec::new(), Vec::new());
        let mut refusal = testbed.refusal().filter(|_| side == CeilingSide::Received).map(str::to_owned);
        for _ in 0..options.run_length.repetitions.min(3) {
            if refusal.is_some() {
                break;
            }
            let link = testbed.bulk_alone(length)?.rate();
            if link <= 0.0 {
                refusal = Some("no load arrived without a ceiling".to_owned());
                break;
            }
            let ceiling = link * FRAME / DATA * CEILING / 100.0;
            match testbed.bulk_below_ceiling(side, ceiling as u64, length) {
                Ok(run) => limited.push(run),
                Err(failure) => refusal = Some(failure.to_string()),
            }
            full.push(link);
        }
        if let Some(reason) = refusal {
            report.add_missing(BENCH, &peer, &reason)?;
            continue;
        }
        let values = judged_unless_trial(options, judged(side, &full, &limited));
        report.add_values(&format!("{BENCH}: ceiling of {name}"), &values)?;
    }
    Ok(())
}

/// Compares the load of each run below the ceiling with the full load before it.
fn judged(side: CeilingSide, full: &[f64], limited: &[BulkRun]) -> Vec<SingleValue> {
    let count = full.len().max(1) as f64;
    let shares = full.iter().zip(limited).map(|(full, run)| 100.0 * run.rate() / full.max(1.0));
    let share = shares.sum::<f64>() / count;
    let value = |quantity: &str, value: f64, unit, bound| SingleValue {
        label: label(CORELANE, side.name(), "ceiling of 40 %"),
        quantity: quantity.to_owned(),
        value,
        unit,
        bound,
    };
    let megabytes = |rates: &mut dyn Iterator<Item = f64>| rates.sum::<f64>() / count / 1e6;
    let mut values = vec![
        value("full load", megabytes(&mut full.iter().copied()), "MB/s", None),
        value("load below the ceiling", megabytes(&mut limited.iter().map(BulkRun::rate)), "MB/s", None),
        value("part of the full load", share, "%", None),
        value("shortfall from 40 % of the full load", CEILING - share, "points", Some(goals::MAX_CEILING_SHORTFALL)),
        value("excess over 40 % of the full load", share - CEILING, "points", Some(goals::MAX_CEILING_EXCESS)),
    ];
    if side == CeilingSide::Received {
        let dropped: u64 = limited.iter().map(|run| run.dropped).sum();
        values.push(value("dropped frames", dropped as f64, "", None));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_below_the_ceiling_is_compared_with_the_full_load_before_it() {
        let run = |bytes| BulkRun { bytes: vec![bytes; 10], judged: 2..8, dropped: 3 };
        assert_eq!(run(1_000).rate(), 1e6);
        let values = judged(CeilingSide::Received, &[100e6, 50e6], &[run(39_000), run(19_000)]);
        let of = |quantity: &str| {
            let found = values.iter().find(|value| value.quantity.starts_with(quantity)).unwrap();
            ((found.value * 1e3).round() / 1e3, found.bound)
        };
        assert_eq!((of("full load"), of("load below")), ((75.0, None), (29.0, None)));
        assert_eq!(of("part"), (38.5, None));
        assert_eq!(of("shortfall"), (1.5, Some(goals::MAX_CEILING_SHORTFALL)));
        assert_eq!(of("excess"), (-1.5, Some(goals::MAX_CEILING_EXCESS)));
        assert_eq!(of("dropped"), (6.0, None));
    }
}
