//! A gateway as its source sees it: a consumer that gets each event with its path.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use corelane::SystemException;
use corelane_sched::task::Nanos;

use super::passage::{ChannelId, Passage};
use crate::events::idl::corelane_events::GatewayConsumerRef;
use crate::events::router::DeliverySet;
use crate::events::stored::StoredEvent;
use crate::events::subscriptions::Occurrence;

/// The identity of a channel, and the last number that it has given to an event. An event gets its
/// number when it first goes to a gateway.
#[derive(Debug)]
pub(in crate::events) struct ChannelIdentity {
    pub(in crate::events) id: ChannelId,
    last_number: AtomicU64,
}

impl ChannelIdentity {
    pub(in crate::events) const fn new(id: ChannelId) -> Self {
        Self { id, last_number: AtomicU64::new(0) }
    }

    fn next_passage(&self) -> Passage {
        // The numbers only have to differ, so relaxed ordering suffices.
        Passage { path: vec![self.id], number: self.last_number.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

#[derive(Debug)]
pub(in crate::events) struct GatewayPeer {
    pub(in crate::events) consumer: GatewayConsumerRef,
    pub(in crate::events) identity: Arc<ChannelIdentity>,
    /// The `rt_info` of each lane of the channel.
    pub(in crate::events) lanes: Box<[i32]>,
}

impl GatewayPeer {
    pub(in crate::events) fn pass(
        &self,
        set: &DeliverySet<Arc<StoredEvent>>,
        now: Nanos,
    ) -> Result<(), SystemException> {
        let passing = |occurrence: &Occurrence<Arc<StoredEvent>>| match occurrence {
            Occurrence::Event(event) => Some(event.passing(|| self.identity.next_passage(), &self.lanes, now)),
            Occurrence::Timeout(_) => None,
        };
        match set.as_slice() {
            [one] => passing(one).map_or(Ok(()), |event| self.consumer.pass(std::slice::from_ref(&event))),
            several => self.consumer.pass(&several.iter().filter_map(passing).collect::<Vec<_>>()),
        }
    }
}
