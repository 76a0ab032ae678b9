//! Goals of real-time I/O. The baseline is the kernel's TCP with threads of fixed priority in the
//! same run.

/// Maximum ratios of the round trips to the baseline under one condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LatencyGoals {
    pub(crate) mean: f64,
    /// Ratio of the 99th percentiles. The paper states maximums instead.
    pub(crate) p99: f64,
    pub(crate) p999: Option<f64>,
    /// Ratio of the standard deviations.
    pub(crate) jitter: f64,
}

/// Goals without other traffic.
pub(crate) const IDLE: LatencyGoals = LatencyGoals { mean: 1.01, p99: 1.02, p999: None, jitter: 0.95 };
/// Goals without other traffic, with kernel threads of the ordinary scheduling class.
pub(crate) const IDLE_ORDINARY: LatencyGoals = LatencyGoals { mean: 1.10, p99: 1.15, p999: None, jitter: 1.20 };
/// Goals under bulk load.
pub(crate) const LOADED: LatencyGoals = LatencyGoals { mean: 0.45, p99: 0.60, p999: Some(0.50), jitter: 0.45 };

/// Maximum of the bulk rate with the kernel's TCP, relative to the rate with real-time I/O.
pub(crate) const MAX_BULK_RATIO: f64 = 1.0 / 0.95;

/// Bound on the 99.9th percentile under load, relative to the baseline's 99.9th percentile without
/// other traffic. In the paper the bound is 2 ms, and the maximum is 0.807 ms.
pub(crate) const BOUND_TO_IDLE: f64 = 2.5;
pub(crate) const MAX_NOT_PERMITTED: f64 = 0.0;

pub(crate) const MAX_RATE_ERROR: f64 = 1.0;
/// Maximum distance in percent of a stream's rate from its guarantee, in every 100 ms.
pub(crate) const MAX_WINDOW_ERROR: f64 = 5.0;
/// Maximum shortfall in percent of best effort from the rate that the guarantees leave to it.
pub(crate) const MAX_REST_SHORTFALL: f64 = 5.0;

/// Maximum by which best effort falls short of its ceiling, in percentage points of the link's
/// rate.
pub(crate) const MAX_CEILING_SHORTFALL: f64 = 1.0;
/// Maximum by which best effort exceeds its ceiling, in percentage points of the link's rate.
pub(crate) const MAX_CEILING_EXCESS: f64 = 0.05;

/// Maximum time in nanoseconds in which the steering program sorts a frame, in the mean over
/// connections.
pub(crate) const MAX_SORTING_NS: f64 = 60.0;
/// Maximum ratio of the sorting times with the slowest and with the fastest size of the tables.
pub(crate) const MAX_SORTING_GROWTH: f64 = 1.10;

pub(crate) const MAX_PROCESSOR_RATIO: f64 = 1.15;

/// Minimum factor by which the load raises the 99th percentile of the baseline's times from the
/// call to the server's thread. A load with a smaller effect does not strain the receiver.
pub(crate) const MIN_STRAIN: f64 = 1.5;
