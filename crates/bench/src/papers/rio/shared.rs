//! Names, labels and small functions of all parts of the benchmark.

use std::fmt::Write as _;

use crate::Failure;
use crate::harness::{AxisPoint, FigureLabel};
use crate::options::BenchOptions;

pub(super) const BENCH: &str = "rio";

/// Name of the subjects that use real-time I/O.
pub(super) const CORELANE: &str = "Corelane";

/// Size in bytes of the messages of a round trip, as in the paper.
pub(super) const ECHO_BYTES: usize = 64;

/// Returns true if the run only shows that the measurements work.
pub(super) fn is_trial(options: &BenchOptions) -> bool {
    options.requested.count.is_some_and(|count| count < 100)
}

pub(super) fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

/// Returns the line that answers a line of the benchmark.
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

/// Returns a label of this benchmark without a position on an axis.
pub(super) fn label(peer: &'static str, op: &str, config: &str) -> FigureLabel {
    let (op, config) = (op.to_owned(), config.to_owned());
    FigureLabel { bench: BENCH, peer, transport: "tcp", op, config, axis_point: None }
}

/// Returns the label with a position on an axis.
pub(super) fn at(label: FigureLabel, series: &str, axis: &'static str, x: u64) -> FigureLabel {
    FigureLabel { axis_point: Some(AxisPoint { series: series.to_owned(), axis, x }), ..label }
}
