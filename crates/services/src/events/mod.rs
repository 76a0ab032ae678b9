//! Event channels: TAO's Real-time Event Service and CORBA's Event Service.
//!
//! A server adds a channel with one line of code; docs/events.md shows how suppliers and consumers
//! use it:
//!
//! ```
//! use corelane::Orb;
//! use corelane_services::events::EventChannel;
//!
//! let orb = Orb::builder().listen("tcp:127.0.0.1:0").build()?;
//! let channel = EventChannel::builder().name("flight").serve(&orb)?;
//! println!("{}\n{}", channel.reference(), channel.cos_reference());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A consumer's dependencies ([`DependencySet`]) are built into an [`EventFilter`], by the rules of
//! TAO's `basic` or `prefix` builder ([`FilterBuilder`]). [`Subscriptions`] has the filters of all
//! consumers, correlates events in conjunctions, and delivers timeouts.
//!
//! # Differences from TAO
//! - A set of dependencies that ends too early, has wrong counts, or that a builder cannot express
//!   is refused with a [`FilterError`].
//! - Several filters without a common group are a disjunction. A global designator heads a
//!   disjunction.
//! - A filter of the type 0 and the source 0 does not accept the event of a timeout.
//! - A supplier without publications may push every event. Any other supplier may push only events
//!   that it publishes; the channel drops others.
//! - A deadline that expires keeps its schedule; TAO starts its period again.

pub mod backbone;
mod channel;
mod correlation;
mod counts;
mod designator;
mod durable;
mod expression;
mod factory;
mod filter;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod gateway;
mod header;
mod health;
mod idl;
mod index;
mod keys;
mod lanes;
pub mod lifecycle;
mod lifetimes;
mod monitor;
mod numbers;
mod peer;
mod queue;
mod reach;
mod router;
pub mod schedule;
mod servants;
#[cfg(test)]
mod simulation;
mod stored;
mod subscriptions;
mod timers;
mod turn;

pub use self::channel::{EventChannel, EventChannelBuilder};
pub use self::counts::{
    ChannelStatistics, ConsumerStatistics, DeliveryCounts, DropCounts, QueueStatistics, SurplusCounts,
};
pub use self::designator::{DependencySet, Designator, TimeoutKind};
pub use self::durable::{EventStore, EventStoreLimits, RECORD_FORMAT, Retention, UncommittedEvents, UnstoredEvents};
pub use self::expression::{EventNames, FilterExpressionError};
pub use self::factory::EventChannelFactory;
pub use self::filter::{EventFilter, FilterBuilder, FilterError, FilterLimits};
pub use self::gateway::{Gateway, GatewayBuilder, GatewayCounts, GatewayStatus, ReconnectPolicy};
pub use self::header::{EventHeader, EventHeaderError, EventSource, EventType};
pub use self::health::MissPolicy;
pub use self::idl::{
    RtecEventData, corelane_events, cos_event_channel_admin, cos_event_comm, rtec_base, rtec_event_channel_admin,
    rtec_event_comm, time_base,
};
pub use self::keys::{FACTORY_KEY, MONITOR_KEY};
pub use self::lanes::{EventLane, receive_lanes};
pub use self::monitor::EventMonitor;
pub use self::queue::{OverflowPolicy, QueueLimits};
pub use self::reach::{DeliverySetArrival, DeliveryTrigger, FilterReach, PublishedEventKind, UnreachablePart};
pub use self::router::ChannelLimits;
pub use self::schedule::{
    AdmissionRefusal, ChannelSchedule, PublicationEntry, ScheduleError, SubscriptionEntry, SurplusPolicy,
};
pub use self::subscriptions::{ConsumerId, Expiry, Occurrence, SubscriptionError, SubscriptionLimits, Subscriptions};
