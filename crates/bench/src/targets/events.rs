//! Goals of event channels. All processes of a row share one core, except suppliers of lower
//! priority and the slow consumer.

/// Maximum median of a push through a reactive channel to one consumer, relative to a collocated
/// call of the consumer.
pub(crate) const MAX_REACTIVE_TO_CALL_RATIO: f64 = 3.0;
/// Maximum time in microseconds by which a lane increases the median of a delivery through a
/// reactive channel.
pub(crate) const MAX_LANE_US: f64 = 1.2;

/// Maximum median of a delivery between three processes over TCP, relative to a bare relay of as
/// many octets.
pub(crate) const MAX_DELIVERY_TO_RELAY_RATIO_TCP: f64 = 1.15;
/// Maximum median of a delivery between three processes over shared memory, relative to a relay
/// that waits with a futex.
pub(crate) const MAX_DELIVERY_TO_RELAY_RATIO_MEMORY: f64 = 1.25;
/// Maximum median of a delivery through two channels with a gateway over TCP, relative to one
/// channel.
pub(crate) const MAX_GATEWAY_TO_CHANNEL_RATIO: f64 = 2.2;
/// Maximum median of a delivery by CORBA's Event Service, relative to omniEvents.
pub(crate) const MAX_DELIVERY_TO_OMNIEVENTS_RATIO: f64 = 0.8;

/// Maximum 99th percentile of a push, and of a delivery to another consumer, beside a stopped and a
/// slow consumer, relative to a channel without them.
pub(crate) const MAX_P99_RATIO_BESIDE_OTHERS: f64 = 1.1;

/// Minimum rate of deliveries to many consumers, relative to a loop of bare sends.
pub(crate) const MIN_DELIVERIES_TO_SENDS_RATIO: f64 = 0.9;

/// Maximum median of a push among more subscriptions that do not match, relative to the median
/// among one such subscription.
pub(crate) const MAX_PUSH_RATIO: f64 = 1.05;
/// Maximum time in microseconds by which a filter of 64 nodes increases the median of a push.
pub(crate) const MAX_FILTER_US: f64 = 1.0;

/// Minimum rate of acknowledged events of one supplier, relative to syncs of the disk.
pub(crate) const MIN_DURABLE_TO_SYNC_RATIO_1_SUPPLIER: f64 = 0.5;
/// Minimum rate of acknowledged events of 16 suppliers, relative to syncs of the disk.
pub(crate) const MIN_DURABLE_TO_SYNC_RATIO_16_SUPPLIERS: f64 = 8.0;
/// Minimum rate of replayed events per second.
pub(crate) const MIN_REPLAYED_PER_S: f64 = 300_000.0;

/// Maximum 99th percentile of deliveries at 20 Hz beside suppliers of lower priority, relative to
/// the percentile without them.
pub(crate) const MAX_P99_RATIO_BESIDE_SUPPLIERS: f64 = 1.10;
