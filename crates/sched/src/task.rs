//! Periodic tasks, and the identifiers of tasks, hosts and cores.

use std::fmt;

/// A span of time in nanoseconds. The functions of [`analysis`](crate::analysis) accept any unit,
/// if all times of a call have it.
pub type Nanos = u64;

/// The shortest period that admission accepts: 100 us.
pub const MIN_PERIOD: Nanos = 100_000;
/// The longest period that admission accepts: one hour.
pub const MAX_PERIOD: Nanos = 3_600_000_000_000;

/// Arrivals and execution time of a task's jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// Worst-case execution time of one job.
    pub execution: Nanos,
    /// Shortest time between two arrivals.
    pub period: Nanos,
    /// Time from a job's arrival to its deadline. It may exceed the period.
    pub deadline: Nanos,
    /// Longest time from a job's arrival until the job is ready to run.
    pub jitter: Nanos,
    /// Longest time for which a job of lower priority blocks a job of this task.
    pub blocking: Nanos,
    /// Shortest time between the moments at which two successive jobs become ready; 0 if only the
    /// period and the jitter bound this time.
    pub min_interarrival: Nanos,
}

impl Timing {
    /// Creates a timing whose deadline is its period. Jitter, blocking and minimum distance are 0.
    #[must_use]
    pub const fn new(execution: Nanos, period: Nanos) -> Self {
        Self { execution, period, deadline: period, jitter: 0, blocking: 0, min_interarrival: 0 }
    }

    /// Sets [`deadline`](field@Self::deadline).
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Nanos) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets [`jitter`](field@Self::jitter).
    #[must_use]
    pub const fn with_jitter(mut self, jitter: Nanos) -> Self {
        self.jitter = jitter;
        self
    }

    /// Sets [`blocking`](field@Self::blocking).
    #[must_use]
    pub const fn with_blocking(mut self, blocking: Nanos) -> Self {
        self.blocking = blocking;
        self
    }

    /// Sets [`min_interarrival`](field@Self::min_interarrival).
    #[must_use]
    pub const fn with_min_interarrival(mut self, min_interarrival: Nanos) -> Self {
        self.min_interarrival = min_interarrival;
        self
    }

    /// Returns execution time divided by period, rounded up to a billionth.
    #[must_use]
    pub fn utilization(&self) -> Utilization {
        let parts = u128::from(self.execution) * u128::from(Utilization::ONE.0);
        let share = parts.div_ceil(u128::from(self.period.max(1)));
        Utilization(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// Returns the utilization, rounded down to a billionth. If the rounded shares of tasks
    /// together exceed a capacity, the exact shares exceed it.
    #[must_use]
    pub fn utilization_floor(&self) -> Utilization {
        let parts = u128::from(self.execution) * u128::from(Utilization::ONE.0);
        let share = parts / u128::from(self.period.max(1));
        Utilization(u64::try_from(share).unwrap_or(u64::MAX))
    }
}

/// A share of a processor, in billionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Utilization(pub u64);

impl Utilization {
    /// A whole processor.
    pub const ONE: Self = Self(1_000_000_000);

    /// Returns the sum of two shares. It saturates at the maximum.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference of two shares, or zero if `other` is greater.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the sum of the utilizations of all timings, each rounded up.
    #[must_use]
    pub fn total<'a>(timings: impl IntoIterator<Item = &'a Timing>) -> Self {
        timings.into_iter().fold(Self::default(), |sum, timing| sum.saturating_add(timing.utilization()))
    }

    /// Returns the sum of the utilizations of all timings, each rounded down.
    #[must_use]
    pub fn total_floor<'a>(timings: impl IntoIterator<Item = &'a Timing>) -> Self {
        timings.into_iter().fold(Self::default(), |sum, timing| sum.saturating_add(timing.utilization_floor()))
    }
}

/// Writes a fraction with three digits, rounded up, such as `0.875`.
impl fmt::Display for Utilization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thousandths = self.0.div_ceil(1_000_000);
        write!(f, "{}.{:03}", thousandths / 1000, thousandths % 1000)
    }
}

/// Identifier of a task in admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// Identifier of a machine in a distributed system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// A core of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId {
    /// The host of the core.
    pub host: HostId,
    /// Number of the core on its host.
    pub core: u32,
}

/// Criticality of a task: the order in which tasks get another core after the loss of their core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Criticality {
    /// Tasks that get another core after all other tasks.
    Low,
    /// Tasks that get another core after the tasks of high criticality, and before the tasks of low
    /// criticality.
    #[default]
    Normal,
    /// Tasks that get another core before all other tasks.
    High,
}

/// A task that admission may accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The identifier, unique in a task set.
    pub id: TaskId,
    /// The task's timing in nanoseconds.
    pub timing: Timing,
    /// The task's criticality.
    pub criticality: Criticality,
    /// The only core on which the task may run; `None` if it may run on every core.
    pub pinned_core: Option<CoreId>,
}

impl Task {
    /// Creates a task of ordinary criticality that may run on any core.
    ///
    /// # Errors
    /// [`TimingError`] if admission does not accept the timing.
    pub fn new(id: TaskId, timing: Timing) -> Result<Self, TimingError> {
        timing.check()?;
        Ok(Self { id, timing, criticality: Criticality::Normal, pinned_core: None })
    }
}

impl Timing {
    /// Checks that admission accepts this timing, with times in nanoseconds.
    ///
    /// # Errors
    /// [`TimingError`] with the first field that is out of range, and its range.
    pub fn check(&self) -> Result<(), TimingError> {
        let refuse =
            |field, value, least, most| Err(TimingError { field, value, min_allowed: least, max_allowed: most });
        if !(MIN_PERIOD..=MAX_PERIOD).contains(&self.period) {
            return refuse(TimingField::Period, self.period, MIN_PERIOD, MAX_PERIOD);
        }
        if self.deadline == 0 || self.deadline > MAX_PERIOD {
            return refuse(TimingField::Deadline, self.deadline, 1, MAX_PERIOD);
        }
        let most = self.period.min(self.deadline);
        if self.execution == 0 || self.execution > most {
            return refuse(TimingField::Execution, self.execution, 1, most);
        }
        let rest = self.deadline - self.execution;
        if self.jitter > rest {
            return refuse(TimingField::Jitter, self.jitter, 0, rest);
        }
        if self.blocking > rest - self.jitter {
            return refuse(TimingField::Blocking, self.blocking, 0, rest - self.jitter);
        }
        if self.min_interarrival > self.period {
            return refuse(TimingField::MinInterarrival, self.min_interarrival, 0, self.period);
        }
        Ok(())
    }
}

/// Name of a field of [`Timing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimingField {
    /// [`Timing::execution`].
    Execution,
    /// [`Timing::period`].
    Period,
    /// [`Timing::deadline`].
    Deadline,
    /// [`Timing::jitter`].
    Jitter,
    /// [`Timing::blocking`].
    Blocking,
    /// [`Timing::min_interarrival`].
    MinInterarrival,
}

impl fmt::Display for TimingField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Execution => "execution",
            Self::Period => "period",
            Self::Deadline => "deadline",
            Self::Jitter => "jitter",
            Self::Blocking => "blocking",
            Self::MinInterarrival => "min_distance",
        })
    }
}

/// Error of a timing that admission does not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimingError {
    /// The field that is out of range.
    pub field: TimingField,
    /// The field's value in nanoseconds.
    pub value: Nanos,
    /// The smallest accepted value, given the other fields.
    pub min_allowed: Nanos,
    /// The largest accepted value, given the other fields.
    pub max_allowed: Nanos,
}

impl fmt::Display for TimingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, min_allowed: least, max_allowed: most } = self;
        write!(f, "{field} is {value} ns; with the task's other times it must be {least} to {most} ns")
    }
}

impl std::error::Error for TimingError {}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn utilization_is_rounded_as_its_name_says() {
        assert_eq!(Timing::new(1, 3).utilization(), Utilization(333_333_334));
        assert_eq!(Timing::new(1, 3).utilization_floor(), Utilization(333_333_333));
        assert_eq!(Utilization(1_000_000_001).to_string(), "1.001");
        assert_eq!(Utilization::total(&[Timing::new(1, 4), Timing::new(1, 2)]).to_string(), "0.750");
        assert_eq!(Timing::new(u64::MAX, 0).utilization(), Utilization(u64::MAX));
    }

    #[test]
    fn a_timing_out_of_range_is_refused_by_its_field() {
        let good = Timing::new(2 * MS, 20 * MS);
        assert_eq!(good.check(), Ok(()));
        let field = |timing: Timing| timing.check().map_err(|error| error.field);
        assert_eq!(field(Timing::new(0, 20 * MS)), Err(TimingField::Execution));
        assert_eq!(field(Timing::new(21 * MS, 20 * MS)), Err(TimingField::Execution));
        assert_eq!(field(good.with_deadline(MS)), Err(TimingField::Execution));
        assert_eq!(field(Timing::new(1, MIN_PERIOD - 1)), Err(TimingField::Period));
        assert_eq!(field(Timing::new(1, MIN_PERIOD)), Ok(()));
        assert_eq!(field(Timing::new(1, MAX_PERIOD)), Ok(()));
        assert_eq!(field(Timing::new(1, MAX_PERIOD + 1)), Err(TimingField::Period));
        assert_eq!(field(good.with_deadline(0)), Err(TimingField::Deadline));
        assert_eq!(field(good.with_deadline(u64::MAX)), Err(TimingField::Deadline));
        assert_eq!(field(good.with_jitter(18 * MS)), Ok(()));
        assert_eq!(field(good.with_jitter(18 * MS + 1)), Err(TimingField::Jitter));
        assert_eq!(field(good.with_jitter(17 * MS).with_blocking(MS + 1)), Err(TimingField::Blocking));
        assert_eq!(field(good.with_min_interarrival(21 * MS)), Err(TimingField::MinInterarrival));
    }

    #[test]
    fn a_refusal_names_the_field_and_its_range() {
        let error = Timing::new(3 * MS, 2 * MS).check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "execution is 3000000 ns; with the task's other times it must be 1 to 2000000 ns"
        );
    }
}
