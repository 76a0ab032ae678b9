//! Durable streams of events: each channel's events in a store, with numbers from 1 that survive
//! restarts, and named consumers with the number of the last event that they acknowledged.
//!
//! A thread writes the requests of all suppliers that wait, with one commit of the store. A reader
//! sees an event after its commit, so that a power failure never takes back an event that a named
//! consumer has seen.

mod committer;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzz;
mod gate;
mod ledger;
mod limits;
mod names;
mod part;
mod records;
mod requests;
#[cfg(test)]
mod simulation;
mod store;
mod unstored;

pub use self::ledger::Retention;
pub use self::limits::EventStoreLimits;
pub(super) use self::part::{DurablePart, PublishFailure};
pub use self::requests::UncommittedEvents;
pub(super) use self::store::StoredOctets;
pub use self::store::{EventStore, RECORD_FORMAT};
pub use self::unstored::UnstoredEvents;
