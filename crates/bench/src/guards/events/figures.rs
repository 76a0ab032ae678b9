//! Labels of the benchmark's figures, and their goals.

use crate::harness::{AxisPoint, Figure, FigureLabel};
use crate::value::SingleValue;

pub(super) const BENCH: &str = "events";

pub(super) fn label(peer: &'static str, transport: &'static str, op: &str, config: impl Into<String>) -> FigureLabel {
    FigureLabel { bench: BENCH, peer, transport, op: op.to_owned(), config: config.into(), axis_point: None }
}

/// Returns the label of a point of a curve along `axis`.
pub(super) fn point(label: FigureLabel, series: &str, axis: &'static str, x: usize) -> FigureLabel {
    FigureLabel { axis_point: Some(AxisPoint { series: series.to_owned(), axis, x: x as u64 }), ..label }
}

pub(super) fn found<'f>(figures: &'f [Figure], label: &FigureLabel) -> Option<&'f Figure> {
    figures.iter().find(|figure| figure.label == *label)
}

pub(super) fn judged(figure: &Figure, quantity: &str, value: f64, unit: &'static str, bound: f64) -> SingleValue {
    SingleValue { label: figure.label.clone(), quantity: quantity.to_owned(), value, unit, bound: Some(bound) }
}
