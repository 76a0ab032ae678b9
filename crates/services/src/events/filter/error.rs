//! The bounds of filters, and the reasons why a set of dependencies is not a filter.

use std::fmt;

use corelane_sched::task::Nanos;

/// The bounds of a consumer's filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterLimits {
    /// Maximum number of dependencies in a set.
    pub max_dependencies: usize,
    /// Maximum depth of nested filters. A filter without an inner filter has the depth 1. Values
    /// above [`FilterLimits::MAX_SUPPORTED_DEPTH`] mean [`FilterLimits::MAX_SUPPORTED_DEPTH`].
    pub max_depth: usize,
    /// Maximum number of timeouts in a set.
    pub max_timeouts: usize,
    /// The shortest period of a timeout, in nanoseconds. With a shorter period one consumer could
    /// occupy the channel. 0 counts as 1.
    pub min_period: Nanos,
    /// The longest delay or period of a timeout, in nanoseconds.
    pub max_timeout_delay: Nanos,
}

impl FilterLimits {
    /// The greatest [`FilterLimits::max_depth`]. It bounds the recursion that evaluates a filter.
    pub const MAX_SUPPORTED_DEPTH: usize = 128;
}

/// The default limits: 1,024 dependencies, a depth of 32, 64 timeouts, periods from 100 us, delays
/// and periods up to 366 days.
impl Default for FilterLimits {
    fn default() -> Self {
        const SECOND: Nanos = 1_000_000_000;
        Self {
            max_dependencies: 1_024,
            max_depth: 32,
            max_timeouts: 64,
            min_period: 100_000,
            max_timeout_delay: 366 * 24 * 3_600 * SECOND,
        }
    }
}

/// The reason why a set of dependencies is not a filter. `at` is the index of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterError {
    /// The set has more dependencies than [`FilterLimits::max_dependencies`].
    TooLong {
        /// The number of dependencies.
        length: usize,
        /// The value of [`FilterLimits::max_dependencies`].
        max: usize,
    },
    /// Filters are nested more deeply than [`FilterLimits::max_depth`].
    TooDeep {
        /// Index of the first dependency that is nested too deeply.
        at: usize,
        /// The maximum depth.
        max: usize,
    },
    /// The set ends before the filter, masks or values that this designator needs.
    Truncated {
        /// Index of the designator.
        at: usize,
    },
    /// The group's number of children is below 0, or above the number of dependencies behind it.
    WrongCount {
        /// Index of the head of the group.
        at: usize,
        /// The number of children that the head declares.
        count: i32,
    },
    /// Dependencies follow behind the children that the outermost group declares.
    TrailingDependencies {
        /// Index of the first dependency that follows.
        at: usize,
    },
    /// A conjunction or a logical "and" has no children.
    EmptyGroup {
        /// Index of the head of the group.
        at: usize,
    },
    /// A group is inside another group, which the `basic` builder cannot express.
    NestedGroup {
        /// Index of the head of the inner group.
        at: usize,
    },
    /// A global designator is not the first dependency, as the `prefix` builder requires.
    MisplacedGlobal {
        /// Index of the designator.
        at: usize,
    },
    /// A type is neither a designator nor a type that events may have.
    UnknownDesignator {
        /// Index of the dependency with this type.
        at: usize,
        /// The type, as a number.
        value: i32,
    },
    /// The set has more timeouts than [`FilterLimits::max_timeouts`].
    TooManyTimeouts {
        /// Index of the first timeout beyond the limit.
        at: usize,
        /// The value of [`FilterLimits::max_timeouts`].
        max: usize,
    },
    /// The period of a timeout is 0, or below [`FilterLimits::min_period`].
    PeriodTooShort {
        /// Index of the timeout.
        at: usize,
        /// The shortest permitted period in nanoseconds.
        min: Nanos,
    },
    /// The delay or period of a timeout is above [`FilterLimits::max_timeout_delay`].
    DelayTooLong {
        /// Index of the timeout.
        at: usize,
        /// The longest permitted delay or period in nanoseconds.
        max: Nanos,
    },
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { length, max } => write!(f, "{length} dependencies; a consumer may have {max}"),
            Self::TooDeep { at, max } => write!(f, "dependency {at}: more than {max} filters inside each other"),
            Self::Truncated { at } => write!(f, "dependency {at}: the set ends before the parts of this designator"),
            Self::WrongCount { at, count } => {
                write!(f, "dependency {at}: the group declares {count} children, which the set does not have")
            }
            Self::TrailingDependencies { at } => {
                write!(f, "dependency {at}: it is behind the last child of the outermost group")
            }
            Self::EmptyGroup { at } => write!(f, "dependency {at}: the group has no children"),
            Self::NestedGroup { at } => {
                write!(f, "dependency {at}: a group inside a group needs the prefix filter builder")
            }
            Self::MisplacedGlobal { at } => write!(f, "dependency {at}: a global designator must be the first"),
            Self::UnknownDesignator { at, value } => write!(f, "dependency {at}: {value} is not a designator"),
            Self::TooManyTimeouts { at, max } => write!(f, "dependency {at}: a consumer may have {max} timeouts"),
            Self::PeriodTooShort { at, min } => write!(f, "dependency {at}: the shortest period is {min} ns"),
            Self::DelayTooLong { at, max } => write!(f, "dependency {at}: the longest delay is {max} ns"),
        }
    }
}

impl std::error::Error for FilterError {}
