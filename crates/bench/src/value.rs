//! Single numbers of a report: counts per call, sizes, ratios to a bound.

use crate::harness::FigureLabel;

/// Unit of numbers that a page draws in one picture, with one row for each operation.
pub(crate) const PER_CALL: &str = "us per call";

/// A single number that is not a call time: a count per request, a size.
#[derive(Clone, Debug)]
pub(crate) struct SingleValue {
    /// Subject of the measurement.
    pub(crate) label: FigureLabel,
    /// Name of the number, such as `client system calls per call`.
    pub(crate) what: String,
    pub(crate) value: f64,
    /// Unit, such as `octets`; empty for a count.
    pub(crate) unit: &'static str,
    /// The design's bound, if there is one.
    pub(crate) bound: Option<f64>,
}
