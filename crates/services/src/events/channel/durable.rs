//! The pushes of durable channels: each event goes to the consumers, and then to the store.
//!
//! The delivery of an event does not wait for its commit. Only a supplier that gets an
//! acknowledgement waits for the disk.

use std::sync::Arc;

use corelane::{CdrError, Completion, SystemException, SystemExceptionKind as Kind};

use super::{ROUTED, SharedChannel, system};
use crate::events::durable::{DurablePart, PublishFailure, UnstoredEvents};
use crate::events::router::{ProxyId, PushRefusal};
use crate::events::stored::StoredEvent;

const MAX_STORED_BYTES: usize = 4 << 20;

fn encode(event: &StoredEvent) -> Result<Arc<[u8]>, SystemException> {
    let octets = event.to_octets().map_err(|error| {
        let kind = if error == CdrError::NestingTooDeep { Kind::ImpLimit } else { Kind::Marshal };
        system(kind, format!("the event cannot be stored: {error}"))
    })?;
    if octets.len() > MAX_STORED_BYTES {
        let reason = format!("an event of a durable channel has at most {MAX_STORED_BYTES} bytes");
        return Err(system(Kind::ImpLimit, reason));
    }
    Ok(octets.into())
}

impl SharedChannel {
    /// Routes events of a supplier that gets no acknowledgement, and gives them to the store.
    pub(super) fn push_and_offer(
        &self,
        durable: &DurablePart,
        supplier: ProxyId,
        events: impl Iterator<Item = StoredEvent>,
    ) -> Result<(), PushRefusal> {
        let mut result = Ok(());
        for event in events {
            let octets = encode(&event);
            match self.route_one(Some(supplier), event) {
                Ok(true) => durable.offer(octets),
                Ok(false) => {}
                Err(refusal) => result = result.and(Err(refusal)),
            }
        }
        result
    }

    /// Routes an event, and returns its number after its commit. `supplier` is `None` for an event
    /// without a supplier.
    pub(in crate::events) fn publish(
        &self,
        durable: &DurablePart,
        supplier: Option<ProxyId>,
        event: StoredEvent,
    ) -> Result<u64, PublishFailure> {
        // A request beyond the maximum number of waiting requests is refused before a consumer gets
        // its event.
        let _place = durable.enter().map_err(|error| PublishFailure::System(error.into()))?;
        let octets = encode(&event).map_err(PublishFailure::System)?;
        if !self.route_one(supplier, event).map_err(PublishFailure::Push)? {
            return Err(PublishFailure::System(system(Kind::BadParam, "the supplier does not publish such events")));
        }
        let stored = durable.stream().and_then(|stream| stream.finish(stream.begin(octets)?));
        // The completion status is MAYBE, because consumers have the event even if the store has
        // refused it.
        let failed = |error| PublishFailure::System(SystemException::from(error).with_completion(Completion::Maybe));
        stored.map_err(failed)
    }

    /// Returns the counts of the events without acknowledgement that are not in the store.
    pub(in crate::events) fn unstored(&self) -> UnstoredEvents {
        self.durable.as_ref().map(DurablePart::unstored).unwrap_or_default()
    }

    /// Routes an event. Returns false if the router has dropped the event.
    fn route_one(&self, supplier: Option<ProxyId>, event: StoredEvent) -> Result<bool, PushRefusal> {
        let event = Arc::new(event);
        event.measure();
        let mut routed = ROUTED.take().unwrap_or_default();
        let header = event.header();
        let mut state = self.state.lock();
        if state.has_ended {
            return Err(PushRefusal::NoProxy);
        }
        let before = state.router.published();
        let now = Self::now();
        let pushed = match supplier {
            Some(supplier) => state.router.push(supplier, &header, event, now, &mut routed),
            None => state.router.publish(&header, event, now, &mut routed),
        };
        let is_routed = state.router.published() != before;
        let removed = self.remove_disconnected(&mut state, &mut routed);
        drop(state);
        self.deliver(&mut routed, now);
        ROUTED.set(Some(routed));
        self.finish_all(removed);
        pushed.map(|()| is_routed)
    }

    /// Opens the stream of a durable channel, and lets the channel's objects take requests. Called
    /// when the channel has its plain keys, so that a refused channel is not in the store, where
    /// later starts would find it. Returns true if the store had no such channel.
    pub(super) fn open_and_activate(&self) -> Result<bool, SystemException> {
        let is_new = self.durable.as_ref().map(|durable| durable.open(&self.name)).transpose()?.unwrap_or_default();
        let activated = self.poa.manager().activate();
        activated.inspect_err(|_| {
            if is_new {
                // Ignores an error: if the store fails, it still has the record of the channel,
                // which a later start finds.
                let _ = self.remove_stored();
            }
        })?;
        Ok(is_new)
    }

    pub(super) fn remove_stored(&self) -> Result<(), SystemException> {
        match &self.durable {
            Some(durable) => Ok(durable.remove()?),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use corelane::{Any, Orb};

    use super::*;
    use crate::events::EventChannel;
    use crate::events::durable::{EventStore, RECORD_FORMAT, Retention};
    use crate::store::MemoryStore;

    #[test]
    fn destroyed_channel_delivers_and_stores_no_event() {
        let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
        let store = EventStore::open(MemoryStore::new(RECORD_FORMAT)).unwrap();
        let channel = EventChannel::builder().name("flight").durable(&store, Retention::default());
        let channel = channel.serve(&orb).unwrap();
        let shared = channel.shared();
        let durable = shared.durable.as_ref().unwrap();
        let publish = || {
            let value = Any::new(&1_u32).unwrap();
            shared.publish(durable, None, StoredEvent::of_value(value, &shared.config.cos_events, SharedChannel::now()))
        };
        assert_eq!(publish().unwrap(), 1);
        channel.destroy().unwrap();
        assert!(matches!(publish(), Err(PublishFailure::Push(PushRefusal::NoProxy))));
        assert_eq!(shared.summary().published, 1);
        orb.shutdown(true).unwrap();
    }
}
