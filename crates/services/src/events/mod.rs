//! The pure core of a real-time event channel: which consumers get an event, and when.
//!
//! The filters follow TAO's Real-time Event Service. A consumer's dependencies ([`DependencySet`])
//! are built into an [`EventFilter`], by the rules of TAO's `basic` or `prefix` builder
//! ([`FilterBuilder`]). [`Subscriptions`] has the filters of all consumers. It delivers pushed
//! events to the consumers that accept them, correlates events in conjunctions, and delivers
//! timeouts.
//!
//! The module knows neither clocks nor threads nor sockets: each time is an argument. A channel
//! that serves these subscriptions to other processes does not exist yet.
//!
//! Invariants: no input leads to a panic. [`FilterLimits`] bounds the memory of a consumer, and
//! [`SubscriptionLimits`] the memory of all consumers.
//!
//! # Differences from TAO
//! - A set of dependencies that ends too early, has wrong counts, or that a builder cannot express
//!   is refused with a [`FilterError`].
//! - Several filters without a common group are a disjunction. A global designator heads a
//!   disjunction.
//! - The event of a timeout matches only the node of the timeout. A filter of every type and source
//!   does not accept it.
//! - A deadline that expires keeps its schedule; TAO starts its period again.

mod correlation;
mod designator;
mod filter;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod header;
mod index;
#[cfg(test)]
mod simulation;
mod subscriptions;
mod timers;

pub use self::designator::{DependencySet, Designator, TimeoutKind};
pub use self::filter::{EventFilter, FilterBuilder, FilterError, FilterLimits};
pub use self::header::{EventHeader, EventHeaderError, EventSource, EventType};
pub use self::subscriptions::{ConsumerId, Expiry, Occurrence, SubscriptionError, SubscriptionLimits, Subscriptions};
