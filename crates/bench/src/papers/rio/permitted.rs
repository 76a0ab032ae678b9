//! The bulk load that a bound on the round trips permits: in the paper's example, half of the load
//! with the default subsystem, and the full load with RIO.
//!
//! The sender's pacing sets a part of the full load. A variant is not judged if the measured rate
//! of a part differs from the planned rate by more than 5 %.

use super::latency::{Condition, PacedLoad, Results};
use super::shared::{BENCH, MIN_P999_CALLS, is_trial, judged_if_long, label};
use super::testbed::{Calls, RioTestbed};
use super::variant::ReceiveVariant;
use crate::Failure;
use crate::harness::Progress;
use crate::options::BenchOptions;
use crate::report::Report;
use crate::targets::rio as goals;
use crate::value::SingleValue;

const PARTS: [u32; 3] = [25, 50, 75];

/// Maximum distance in percent of a part's measured rate from its planned rate.
const MAX_OFF: f64 = 5.0;

const VARIANTS: [ReceiveVariant; 2] = [ReceiveVariant::KernelFifo, ReceiveVariant::Steered];

pub(super) fn permitted_load(
    testbed: &RioTestbed,
    (idle, full): (&Results, &Results),
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let (Some(bound), Some(rate)) =
        (idle.p999_us(ReceiveVariant::KernelFifo), full.bulk_rate(ReceiveVariant::KernelFifo))
    else {
        return Ok(());
    };
    let bound = goals::BOUND_TO_IDLE * bound;
    let mut points: Vec<Vec<(u32, f64)>> = vec![Vec::new(); VARIANTS.len()];
    let (mut is_off, mut rates) = (vec![false; VARIANTS.len()], Vec::new());
    for percent in PARTS {
        let planned = rate * f64::from(percent) / 100.0;
        // `SO_MAX_PACING_RATE` takes 32 bits, so a higher rate becomes the maximum.
        let bytes_per_second = (planned * 1e6).clamp(1.0, f64::from(u32::MAX)) as u32;
        let condition = Condition::Paced(PacedLoad { percent, bytes_per_second });
        let results = Results::measure(testbed, &VARIANTS, (Calls::Echo, condition), &options.run_length, progress)?;
        results.report(options, report)?;
        for ((points, is_off), variant) in points.iter_mut().zip(&mut is_off).zip(VARIANTS) {
            let (Some(p999), Some(measured)) = (results.p999_us(variant), results.bulk_rate(variant)) else { continue };
            rates.push(rate_of_part(variant, percent, measured));
            match off_plan(measured, planned).filter(|_| !is_trial(options)) {
                None => points.push((percent, p999)),
                Some(reason) => {
                    *is_off = true;
                    let peer = format!("Corelane, {percent} % of the bulk load, {}", variant.name());
                    report.add_missing(BENCH, &peer, &reason)?;
                }
            }
        }
    }
    report.add_values(&format!("{BENCH}: rate of the parts of the bulk load during the round trips"), &rates)?;
    let mut values = Vec::new();
    for ((points, is_off), variant) in points.iter_mut().zip(is_off).zip(VARIANTS) {
        let Some(p999) = full.p999_us(variant).filter(|_| !is_off) else { continue };
        points.push((100, p999));
        values.extend(judged(variant, permitted(points, bound)));
    }
    if values.is_empty() {
        return Ok(());
    }
    let title = format!("{BENCH}: bulk load at which the p99.9 stays within {bound:.0} us");
    report.add_values(&title, &judged_if_long(options, has_p999(options), values))
}

fn has_p999(options: &BenchOptions) -> bool {
    options.run_length.count * options.run_length.repetitions >= MIN_P999_CALLS
}

/// Returns a reason if the measured rate differs from the planned rate by more than [`MAX_OFF`].
/// Rates are in MB/s.
fn off_plan(measured: f64, planned: f64) -> Option<String> {
    let off = 100.0 * (measured / planned - 1.0).abs();
    let is_planned = off <= MAX_OFF;
    (!is_planned).then(|| format!("{measured:.1} MB/s arrived, and {planned:.1} MB/s were planned"))
}

fn rate_of_part(variant: ReceiveVariant, percent: u32, megabytes_per_second: f64) -> SingleValue {
    SingleValue {
        label: label(variant.peer(), &format!("{percent} %"), variant.name()),
        quantity: "bulk load".to_owned(),
        value: megabytes_per_second,
        unit: "MB/s",
        bound: None,
    }
}

/// Returns the largest part of the load, in percent, up to which all percentiles are within the
/// bound; 0 if there is none. `points` are parts in percent with 99.9th percentiles, in rising
/// order.
fn permitted(points: &[(u32, f64)], bound: f64) -> u32 {
    points.iter().take_while(|(_, p999)| *p999 <= bound).last().map_or(0, |&(percent, _)| percent)
}

fn judged(variant: ReceiveVariant, permitted: u32) -> Vec<SingleValue> {
    let value = |quantity: &str, percent: u32, bound| SingleValue {
        label: label(variant.peer(), "bulk load", variant.name()),
        quantity: quantity.to_owned(),
        value: percent.into(),
        unit: "%",
        bound,
    };
    let mut values = vec![value("permitted part of the load", permitted, None)];
    if variant.uses_rio() {
        values.push(value("part that is not permitted", 100 - permitted, Some(goals::MAX_NOT_PERMITTED)));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_with_another_rate_is_refused() {
        assert_eq!([95.1, 100.0, 104.9].map(|rate| off_plan(rate, 100.0)), [None, None, None]);
        for rate in [94.9, 105.1, 0.0] {
            assert!(off_plan(rate, 100.0).unwrap().ends_with("100.0 MB/s were planned"));
        }
        assert!(off_plan(f64::NAN, 100.0).is_some());
    }

    #[test]
    fn load_is_permitted_up_to_the_first_time_above_the_bound() {
        let points = [(25, 10.0), (50, 30.0), (75, 20.0), (100, 40.0)];
        assert_eq!([9.0, 10.0, 30.0, 40.0].map(|bound| permitted(&points, bound)), [0, 25, 75, 100]);
        assert_eq!(permitted(&points, 29.0), 25);
        let of =
            |variant, percent| judged(variant, percent).iter().map(|one| (one.value, one.bound)).collect::<Vec<_>>();
        assert_eq!(of(ReceiveVariant::KernelFifo, 50), [(50.0, None)]);
        assert_eq!(of(ReceiveVariant::Steered, 100), [(100.0, None), (0.0, Some(goals::MAX_NOT_PERMITTED))]);
    }
}
