//! The calls of the thread `events/admin`: disconnect callbacks, and updates of observers. A peer
//! that does not answer delays other callbacks, but no event.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use corelane::{Reference, SystemException};

use super::{ChannelState, SharedChannel};
use crate::events::designator::Designator;
use crate::events::idl::rtec_base::DependencyInfo;
use crate::events::idl::rtec_event_channel_admin::{ConsumerQOS, Dependency, ObserverRef, Publication, SupplierQOS};
use crate::events::idl::rtec_event_comm::{Event, EventHeader};
use crate::events::peer::{Peer, classify};
use crate::events::queue::LatestKey;
use crate::events::router::CallResult;

const MAX_OBSERVERS: usize = 64;
const MAX_MISSED_UPDATES: u32 = 3;

#[derive(Default)]
pub(super) struct Callbacks {
    pub(super) peers: VecDeque<Arc<Peer>>,
    observers: BTreeMap<u32, Observed>,
    last_observer: u32,
    has_changed: bool,
}

struct Observed {
    observer: ObserverRef,
    missed_updates: u32,
}

impl SharedChannel {
    /// Adds an observer, and lets the thread `events/admin` update all observers. Returns `None` if
    /// there are too many observers. If an observer is added again, its new handle replaces the
    /// earlier handle, because the observer's program may have lost the answer with the earlier
    /// handle.
    pub(in crate::events) fn add_observer(&self, observer: ObserverRef) -> Option<u32> {
        let mut state = self.state.lock();
        let callbacks = &mut state.callbacks;
        callbacks.observers.retain(|_, observed| !observed.observer.is_equivalent(&observer));
        if callbacks.observers.len() >= MAX_OBSERVERS {
            return None;
        }
        callbacks.last_observer = callbacks.last_observer.checked_add(1)?;
        let handle = callbacks.last_observer;
        callbacks.observers.insert(handle, Observed { observer, missed_updates: 0 });
        self.tell_observers(&mut state);
        Some(handle)
    }

    pub(in crate::events) fn remove_observer(&self, handle: u32) -> bool {
        self.state.lock().callbacks.observers.remove(&handle).is_some()
    }

    /// Lets the thread `events/admin` send the present subscriptions and publications to the
    /// observers.
    pub(super) fn tell_observers(&self, state: &mut ChannelState) {
        if !state.callbacks.observers.is_empty() {
            state.callbacks.has_changed = true;
            self.callback_due.notify_all();
        }
    }

    pub(super) fn run_callbacks(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(peer) = state.callbacks.peers.pop_front() {
                drop(state);
                peer.call_back();
            } else if state.has_ended {
                return;
            } else if std::mem::take(&mut state.callbacks.has_changed) {
                let wanted = subscriptions(&state.router.wanted_events());
                let published = publications(&state.router.published_events());
                let observers = &state.callbacks.observers;
                let observers: Vec<_> =
                    observers.iter().map(|(handle, observed)| (*handle, observed.observer.clone())).collect();
                drop(state);
                for (handle, observer) in observers {
                    let told = observer.update_consumer(&wanted).and_then(|()| observer.update_supplier(&published));
                    self.note_update(handle, told);
                }
            } else {
                state = self.callback_due.wait(state);
                continue;
            }
            state = self.state.lock();
        }
    }

    /// Records an observer's answer. Removes an observer that is gone, or that has missed
    /// [`MAX_MISSED_UPDATES`] updates in a row.
    fn note_update(&self, handle: u32, told: Result<(), SystemException>) {
        let result = told.map_or_else(|exception| classify(&exception), |()| CallResult::Done);
        let mut state = self.state.lock();
        let observers = &mut state.callbacks.observers;
        let Some(observed) = observers.get_mut(&handle) else { return };
        match result {
            CallResult::Done | CallResult::Refused => observed.missed_updates = 0,
            CallResult::Missed => observed.missed_updates += 1,
            CallResult::Gone => observed.missed_updates = MAX_MISSED_UPDATES,
        }
        if observed.missed_updates >= MAX_MISSED_UPDATES {
            observers.remove(&handle);
        }
    }

    pub(in crate::events) fn timed<R: Reference>(&self, reference: &R) -> R {
        reference.with_timeout(self.config.misses.send_timeout)
    }
}

fn event(event_type: i32, source: i32) -> Event {
    Event { header: EventHeader { r#type: event_type, source, ..EventHeader::default() }, ..Event::default() }
}

/// Returns the types and sources as a disjunction, as TAO does.
fn subscriptions(wanted: &BTreeSet<LatestKey>) -> ConsumerQOS {
    let count = i32::try_from(wanted.len()).unwrap_or(i32::MAX);
    let head = event(Designator::Disjunction.event_type().0, count);
    let events = wanted.iter().map(|(event_type, source)| event(*event_type, *source));
    let dependencies = std::iter::once(head).chain(events).map(|event| Dependency { event, rt_info: 0 });
    ConsumerQOS { dependencies: dependencies.collect(), is_gateway: true }
}

fn publications(published: &BTreeSet<LatestKey>) -> SupplierQOS {
    let publication = |(event_type, source): &LatestKey| Publication {
        event: event(*event_type, *source),
        dependency_info: DependencyInfo::default(),
    };
    SupplierQOS { publications: published.iter().map(publication).collect(), is_gateway: true }
}
