//! The bulk load that a bound on the round trips permits: in the paper's example, half of the load
//! with the default subsystem, and the full load with RIO.

use super::latency::{Condition, PacedLoad, Results};
use super::shared::{BENCH, label};
use super::testbed::{Calls, RioTestbed};
use super::variant::ReceiveVariant;
use crate::Failure;
use crate::harness::{Progress, RunLength};
use crate::report::Report;
use crate::targets::rio as goals;
use crate::value::SingleValue;

/// Parts of the full load in percent.
const PARTS: [u32; 3] = [25, 50, 75];

/// The compared variants.
const VARIANTS: [ReceiveVariant; 2] = [ReceiveVariant::KernelFifo, ReceiveVariant::Steered];

/// Measures the round trips by bulk load. The results without and with full load are known.
pub(super) fn permitted_load(
    testbed: &RioTestbed,
    (idle, full): (&Results, &Results),
    length: &RunLength,
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
    for percent in PARTS {
        // `SO_MAX_PACING_RATE` takes 32 bits.
        let bytes_per_second = (rate * 1e6 * f64::from(percent) / 100.0).clamp(1.0, f64::from(u32::MAX)) as u32;
        let condition = Condition::Paced(PacedLoad { percent, bytes_per_second });
        let results = Results::measure(testbed, &VARIANTS, (Calls::Echo, condition), length, progress)?;
        results.report(report)?;
        for (points, variant) in points.iter_mut().zip(VARIANTS) {
            points.extend(results.p999_us(variant).map(|p999| (percent, p999)));
        }
    }
    let mut values = Vec::new();
    for (points, variant) in points.iter_mut().zip(VARIANTS) {
        let Some(p999) = full.p999_us(variant) else { continue };
        points.push((100, p999));
        values.extend(judged(variant, permitted(points, bound)));
    }
    let title = format!("{BENCH}: bulk load at which the p99.9 stays within {bound:.0} us");
    report.add_values(&title, &values)
}

/// Returns the largest part of the load in percent up to which all times are within the bound.
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
