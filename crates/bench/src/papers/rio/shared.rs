//! Names, labels and small functions of all parts of the benchmark.

use std::fmt::Write as _;

use crate::Failure;
use crate::harness::{AxisPoint, FigureLabel};
use crate::options::BenchOptions;
use crate::value::SingleValue;

pub(super) const BENCH: &str = "rio";

pub(super) const CORELANE: &str = "Corelane";

pub(super) const ECHO_BYTES: usize = 64;

/// Returns true if `--count` is below 100. Such a run only tests the benchmark.
pub(super) fn is_trial(options: &BenchOptions) -> bool {
    options.requested.count.is_some_and(|count| count < 100)
}

/// Minimum number of calls for a judgement of their 99.9th percentile. Three of these calls are
/// above it.
pub(super) const MIN_P999_CALLS: usize = 3_000;

/// Removes the bounds of the values unless `is_long` is true and the run is not a trial.
pub(super) fn judged_if_long(options: &BenchOptions, is_long: bool, values: Vec<SingleValue>) -> Vec<SingleValue> {
    if is_long && !is_trial(options) {
        return values;
    }
    values.into_iter().map(|value| SingleValue { bound: None, ..value }).collect()
}

pub(super) fn judged_unless_trial(options: &BenchOptions, values: Vec<SingleValue>) -> Vec<SingleValue> {
    judged_if_long(options, true, values)
}

pub(super) fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

pub(super) fn whole_answer(answer: Result<String, Failure>) -> String {
    answer.unwrap_or_else(|failure| format!("error {failure}"))
}

pub(super) fn joined(numbers: &[u64]) -> String {
    let mut text = String::with_capacity(8 * numbers.len());
    for number in numbers {
        let _ = write!(text, "{}{number}", if text.is_empty() { "" } else { " " });
    }
    text
}

pub(super) fn label(peer: &'static str, op: &str, config: &str) -> FigureLabel {
    let (op, config) = (op.to_owned(), config.to_owned());
    FigureLabel { bench: BENCH, peer, transport: "tcp", op, config, axis_point: None }
}

pub(super) fn at(label: FigureLabel, series: &str, axis: &'static str, x: u64) -> FigureLabel {
    FigureLabel { axis_point: Some(AxisPoint { series: series.to_owned(), axis, x }), ..label }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_and_short_runs_are_not_judged() {
        let value = SingleValue {
            label: label(CORELANE, "x", "x"),
            quantity: String::new(),
            value: 1.0,
            unit: "",
            bound: Some(2.0),
        };
        let mut options = BenchOptions::parse([]).unwrap();
        let bound = |options: &BenchOptions, is_long| judged_if_long(options, is_long, vec![value.clone()])[0].bound;
        assert_eq!([true, false].map(|is_long| bound(&options, is_long)), [Some(2.0), None]);
        options.requested.count = Some(99);
        assert_eq!(bound(&options, true), None);
        options.requested.count = Some(100);
        assert_eq!(bound(&options, true), Some(2.0));
    }
}
