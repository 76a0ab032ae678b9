//! The schedule of a channel: declared publications and subscriptions, the response times of the
//! consumers, admission, and the meters of publications.
//!
//! The module is pure: time is an argument.

mod admission;
mod entries;
mod jobs;
mod meter;
mod refusals;
#[cfg(test)]
mod simulation;

pub use self::admission::{AdmissibleLoad, AdmissionRefusal, RefusedPeer, ScheduleTest};
pub(super) use self::admission::{AdmittedConsumer, AdmittedPublication, Candidate, ChannelLoad};
pub use self::entries::{ChannelSchedule, PublicationEntry, ScheduleError, SubscriptionEntry, SurplusPolicy};
pub use self::jobs::{ConsumerJob, JobTrigger, PublicationLoad, ScheduledLoad, SubscriptionLoad, UndeclaredTiming};
pub(super) use self::meter::RateMeter;
pub(super) use self::refusals::{RefusalListener, Refusals, ScheduleConfig};
