//! The counts of a server's channels for clients, and the control object that destroys channels.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use corelane::poa::PoaPolicies;
use corelane::{ObjectRef, Orb, Servant, SystemException};
use corelane_sys::lock::{LockScope, Mutex};

use super::channel::EventChannel;
use super::counts::{ConsumerStatistics, DeliveryCounts, DropCounts, QueueStatistics};
use super::durable::UnstoredEvents;
use super::idl::corelane_events::control::DestroyChannelError;
use super::idl::corelane_events::monitor::{ChannelNamedError, ConsumersAfterError, GatewaysAfterError};
use super::idl::corelane_events::{
    Channel, ChannelGateway, Consumer, Control, Deliveries, Drops, Monitor, NoChannel, NotStored, Queue, SurplusEvents,
    TypeDrops,
};
use super::keys::MONITOR_KEY;

const POA: &str = "CorelaneEventMonitor";
const MAX_CHANNELS: usize = 64;
const MAX_CONSUMERS: usize = 32;

/// The channels that a server shows to clients. [`serve`](Self::serve) makes an object that reports
/// their counts, and [`control_servant`](Self::control_servant) one that destroys them. Clones show
/// the same channels.
///
/// ```
/// use corelane::Orb;
/// use corelane_services::events::{EventChannel, EventMonitor};
///
/// let orb = Orb::builder().listen("tcp:127.0.0.1:0").build()?;
/// let monitor = EventMonitor::new();
/// monitor.add(&EventChannel::builder().name("flight").serve(&orb)?);
/// println!("{}", monitor.serve(&orb)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct EventMonitor {
    channels: Arc<Mutex<BTreeMap<String, EventChannel>>>,
}

impl Default for EventMonitor {
    fn default() -> Self {
        Self::new()
    }
}

impl EventMonitor {
    /// Creates a monitor without channels.
    #[must_use]
    pub fn new() -> Self {
        Self { channels: Arc::new(Mutex::new("event channels of a monitor", LockScope::Orb, BTreeMap::new())) }
    }

    /// Adds a channel, in place of an earlier channel with its name. The monitor shows the channel
    /// until the channel ends.
    pub fn add(&self, channel: &EventChannel) {
        let mut channels = self.channels.lock();
        channels.retain(|_, channel| !channel.has_ended());
        channels.insert(channel.name().to_owned(), channel.clone());
    }

    /// Serves the monitor in an ORB until the ORB ends. Binds the plain key `CorelaneEvents` to the
    /// monitor, and returns the monitor's reference. The interface `CorelaneEvents::Monitor` only
    /// reads.
    ///
    /// # Errors
    /// BAD_PARAM if the key is already bound; other errors of the ORB.
    pub fn serve(&self, orb: &Orb) -> Result<ObjectRef, SystemException> {
        let poa = orb.root_poa().create_poa(POA, None, PoaPolicies::default())?;
        let served = (|| {
            let reference = poa.activate(&Monitor::servant(self.clone()))?;
            orb.bind_corbaloc_key(MONITOR_KEY, &reference)?;
            poa.manager().activate().inspect_err(|_| {
                orb.unbind_corbaloc_key(MONITOR_KEY);
            })?;
            Ok(reference)
        })();
        if served.is_err() {
            let _ = poa.destroy(false, false);
        }
        served
    }

    /// Returns a servant of `CorelaneEvents::Control`, whose clients may destroy channels. The
    /// program decides which clients reach it.
    #[must_use]
    pub fn control_servant(&self) -> Servant {
        Control::servant(self.clone())
    }

    fn channel(&self, name: &str) -> Result<EventChannel, NoChannel> {
        let found = self.channels.lock().get(name).cloned();
        found.filter(|channel| !channel.has_ended()).ok_or(NoChannel)
    }
}

impl Monitor for EventMonitor {
    fn channels_after(&self, name: &str) -> Result<Vec<Channel>, SystemException> {
        let later: Vec<EventChannel> = {
            let channels = self.channels.lock();
            let later = channels.range::<str, _>((Bound::Excluded(name), Bound::Unbounded));
            later.map(|(_, channel)| channel).filter(|it| !it.has_ended()).take(MAX_CHANNELS).cloned().collect()
        };
        Ok(later.iter().map(channel).collect())
    }

    fn channel_named(&self, name: &str) -> Result<Channel, ChannelNamedError> {
        Ok(channel(&self.channel(name)?))
    }

    fn consumers_after(&self, name: &str, proxy: u64) -> Result<Vec<Consumer>, ConsumersAfterError> {
        let consumers = self.channel(name)?.shared().consumers_after(proxy, MAX_CONSUMERS);
        Ok(consumers.iter().map(consumer).collect())
    }

    fn gateways_after(&self, name: &str, proxy: u64) -> Result<Vec<ChannelGateway>, GatewaysAfterError> {
        Ok(self.channel(name)?.shared().gateways_after(proxy, MAX_CONSUMERS))
    }
}

impl Control for EventMonitor {
    fn destroy_channel(&self, name: &str) -> Result<(), DestroyChannelError> {
        self.channel(name)?.destroy()?;
        self.channels.lock().retain(|_, channel| !channel.has_ended());
        Ok(())
    }
}

fn channel(channel: &EventChannel) -> Channel {
    let summary = channel.shared().summary();
    let UnstoredEvents { queue_full, too_large: size, store_full: no_room, commit_failed: failed } =
        channel.shared().unstored();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Channel {
        name: channel.name().to_owned(),
        published: summary.published,
        refused: summary.refused,
        unpublished: summary.unpublished,
        suppliers: number(summary.suppliers),
        consumers: number(summary.consumers),
        sets: deliveries(&summary.sets),
        surplus: SurplusEvents {
            best_effort: summary.surplus.best_effort,
            dropped: summary.surplus.dropped,
            not_admitted: summary.surplus.not_admitted,
        },
        unstored: NotStored { queue_full, size, no_room, failed },
    }
}

fn consumer(consumer: &ConsumerStatistics) -> Consumer {
    let queue = |queue: &QueueStatistics| Queue {
        lane: u32::try_from(queue.lane).unwrap_or(u32::MAX),
        sets: u32::try_from(queue.delivery_sets).unwrap_or(u32::MAX),
        bytes: queue.bytes as u64,
    };
    let drops_by_type = consumer.drops_by_type.iter();
    Consumer {
        proxy: consumer.proxy_number,
        sets: deliveries(&consumer.counts),
        drops_by_type: drops_by_type
            .map(|(it, counts)| TypeDrops { event_type: it.0, dropped: drops(counts) })
            .collect(),
        queues: consumer.queues.iter().map(queue).collect(),
        is_suspended: consumer.is_suspended,
    }
}

fn deliveries(counts: &DeliveryCounts) -> Deliveries {
    Deliveries {
        routed: counts.routed,
        delivered: counts.delivered,
        queued: counts.queued,
        in_flight: counts.in_flight,
        dropped: drops(&counts.dropped),
    }
}

const fn drops(counts: &DropCounts) -> Drops {
    Drops {
        queue_full: counts.queue_full,
        replaced: counts.replaced,
        expired: counts.expired,
        suspended: counts.suspended,
        failed: counts.failed,
        disconnected: counts.disconnected,
        nested: counts.nesting_too_deep,
    }
}
