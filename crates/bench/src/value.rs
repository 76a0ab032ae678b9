//! Single numbers of a report, such as counts per call, sizes and ratios.

use crate::harness::FigureLabel;

pub(crate) const MICROSECONDS_PER_CALL: &str = "us per call";

#[derive(Clone, Debug)]
pub(crate) struct SingleValue {
    pub(crate) label: FigureLabel,
    pub(crate) quantity: String,
    pub(crate) value: f64,
    /// Unit, such as `octets`; empty for a count.
    pub(crate) unit: &'static str,
    /// Maximum of the value, if there is a goal.
    pub(crate) bound: Option<f64>,
}
