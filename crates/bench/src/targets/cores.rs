//! Goals of the admission of tasks to cores, and of the core pool.
//!
//! The numbers are maximums. A minimum share of accepted tasks appears as the maximum share of
//! rejected tasks.

/// Goals of `cores-acceptance`, in percent of the offered tasks or of the offered utilization.
pub(crate) mod acceptance {
    /// Maximum rejected part up to a utilization of 1.7 on two cores, with every balance factor.
    pub(crate) const MAX_REJECTED: f64 = 0.1;
    pub(crate) const MAX_REJECTED_AT_180: f64 = 1.1;
    pub(crate) const MAX_REJECTED_AT_190: f64 = 9.5;
    /// Maximum rejected part under earliest deadline first, up to a utilization of 1.95.
    pub(crate) const MAX_REJECTED_BY_DEADLINES: f64 = 0.1;
    /// Maximum rejected part of the offered utilization on 4 to 64 cores, with a utilization of 0.9
    /// for each core.
    pub(crate) const MAX_REJECTED_ON_MANY_CORES: f64 = 0.5;
    /// Maximum ratio of the number of tasks that an exhaustive search accepts on two cores to the
    /// number that admission with bounded time accepts.
    pub(crate) const MAX_EXHAUSTIVE_RATIO: f64 = 1.0 / 0.999;
}

/// Goals of `cores-decide`.
pub(crate) mod decide {
    /// Numbers of tasks and of cores, and the maximum 99th percentile of an admission test in
    /// microseconds.
    pub(crate) const MAX_TEST_P99_US: [(usize, u32, f64); 4] =
        [(20, 2, 2.0), (100, 2, 25.0), (100, 8, 6.0), (1000, 16, 250.0)];
    /// Number of cores, and the maximum 99th percentile of a decision that searches for moves, in
    /// microseconds.
    pub(crate) const MAX_SEARCH_P99_US: [(u32, f64); 3] = [(2, 40.0), (4, 120.0), (8, 300.0)];
}

/// Goals of `cores-migration`.
pub(crate) mod migration {
    /// Maximum median of the migration of a sleeping thread, relative to the median of a running
    /// thread.
    pub(crate) const MAX_SLEEPING_RATIO: f64 = 0.1;
}

/// Goals of `cores-path`.
pub(crate) mod path {
    /// Maximum median of a bound task's call, relative to the median with a thread for each
    /// connection.
    pub(crate) const MAX_TO_PER_CONNECTION: f64 = 1.01;
    pub(crate) const MAX_TO_LANE: f64 = 1.00;
    /// Maximum mean in microseconds that the hand-over to a thread of the client's core adds.
    pub(crate) const MAX_HAND_OVER_US: f64 = 10.0;
    /// Maximum mean in microseconds of a change that moves 15 threads between two cores.
    pub(crate) const MAX_MOVES_US: f64 = 100.0;
    /// Maximum by which the mean of a rejected admission exceeds the sum of the means of a call and
    /// of a decision, in microseconds.
    pub(crate) const MAX_REJECTION_US: f64 = 8.0;
}

/// Goals of `cores-misses`.
pub(crate) mod misses {
    /// Maximum fraction of task sets with a deadline miss, in each cell.
    pub(crate) const MAX_SETS_WITH_A_MISS: f64 = 0.0;
    pub(crate) const MAX_REJECTED: f64 = 0.0;
}

/// Goals of `cores-balance`.
pub(crate) mod balance {
    /// Maximum share of the time that the kernel's load balancer takes, in millionths.
    pub(crate) const MAX_SHARE_MILLIONTHS: f64 = 10.0;
}

/// Goals of `cores-isolation`.
pub(crate) mod isolation {
    /// Maximum 99th percentile of a task's calls beside others, relative to the task alone.
    pub(crate) const MAX_P99_RATIO: f64 = 1.10;
}
