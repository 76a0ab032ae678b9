//! Suppliers from which the channel pulls: a thread for each asks for events.

use std::io;
use std::sync::Arc;

use corelane::SystemExceptionKind as Kind;
use corelane_sched::task::Nanos;
use corelane_sys::clock::Monotonic;
use corelane_sys::thread;

use super::{ConnectFailure, SharedChannel, system};
use crate::events::health::{ConsumerHealth, NextCall};
use crate::events::idl::cos_event_comm::PullSupplierRef;
use crate::events::idl::cos_event_comm::pull_supplier::TryPullError;
use crate::events::peer::{Peer, PeerObject, classify};
use crate::events::router::{CallResult, ProxyId, SupplierConnection};
use crate::events::stored::StoredEvent;

impl SharedChannel {
    pub(in crate::events) fn connect_pulled_supplier(
        self: &Arc<Self>,
        proxy: ProxyId,
        supplier: PullSupplierRef,
    ) -> Result<(), ConnectFailure> {
        let peer = Peer::new(PeerObject::CosPullSupplier(supplier.clone()));
        let connection = SupplierConnection {
            peer: Arc::clone(&peer),
            publications: Box::default(),
            is_gateway: false,
            is_pulled: true,
        };
        self.add_supplier(proxy, connection)?;
        let shared = Arc::clone(self);
        let name = format!("events/p{}", proxy.0);
        let spawned = thread::ThreadBuilder::new().name(name).spawn(move || shared.run_puller(proxy, &peer, &supplier));
        spawned.map(drop).map_err(|error: io::Error| {
            self.disconnect_supplier(proxy, false);
            system(Kind::NoResources, format!("no thread for the supplier: {error}")).into()
        })
    }

    fn run_puller(&self, proxy: ProxyId, peer: &Arc<Peer>, supplier: &PullSupplierRef) {
        let interval = u64::try_from(self.config.pull_interval.as_nanos()).unwrap_or(Nanos::MAX);
        let mut health = ConsumerHealth::default();
        let mut next_at = Self::now();
        while self.wait_for_turn(proxy, peer, &health, next_at) {
            let pulled = supplier.try_pull();
            let now = Self::now();
            next_at = now.saturating_add(interval);
            let result = match pulled {
                Ok((value, true)) => {
                    next_at = now;
                    let event = StoredEvent::of_value(value, &self.config.cos_events, now);
                    // Ignores a refusal: if the supplier has been disconnected, the loop ends.
                    let _ = self.push(proxy, std::iter::once(event));
                    CallResult::Done
                }
                Ok((_, false)) => CallResult::Done,
                Err(TryPullError::Disconnected(_)) => CallResult::Gone,
                Err(TryPullError::System(exception)) => classify(&exception),
            };
            let is_lost = match result {
                CallResult::Done | CallResult::Refused => {
                    health.answered();
                    false
                }
                CallResult::Missed => health.missed(&self.config.misses, now),
                CallResult::Gone => true,
            };
            if is_lost {
                self.disconnect_supplier(proxy, false);
            }
        }
    }

    /// Waits until the supplier is to be asked again: at `next_at`, or at the end of its suspension
    /// if that is later. Returns false if the supplier is no longer connected.
    fn wait_for_turn(&self, proxy: ProxyId, peer: &Arc<Peer>, health: &ConsumerHealth, next_at: Nanos) -> bool {
        let mut state = self.state.lock();
        while state.router.supplier(proxy).is_some_and(|connected| Arc::ptr_eq(connected, peer)) {
            let now = Self::now();
            let until = match health.next_call(now) {
                NextCall::WaitUntil(time) => time.max(next_at),
                NextCall::Event | NextCall::Question => next_at,
            };
            if until <= now {
                return true;
            }
            state = peer.wake.wait_until(state, Some(Monotonic::from_nanos(until))).0;
        }
        false
    }
}
