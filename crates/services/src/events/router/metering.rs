//! Events of a channel with a schedule: which events are within their declaration, and the load of
//! the admitted peers.

use corelane_sched::task::Nanos;

use super::Router;
use super::connection::{ProxyId, QueuePeer, SupplierConnection};
use super::delivery_set::RoutedEvent;
use crate::events::header::EventHeader;
use crate::events::schedule::{AdmittedPublication, ChannelLoad, RateMeter, SurplusPolicy};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::events) struct DeclaredEvents {
    pub(in crate::events) publication: AdmittedPublication,
    pub(in crate::events) meter: RateMeter,
}

impl<E: RoutedEvent, P: QueuePeer> Router<E, P> {
    /// Returns the lane of an event in a channel with a schedule, and counts surplus. `None` if the
    /// event is dropped.
    #[cold]
    pub(super) fn metered_lane(
        &mut self,
        supplier: ProxyId,
        header: &EventHeader,
        bytes: usize,
        now: Nanos,
    ) -> Option<usize> {
        let least_urgent = self.config.lanes.saturating_sub(1);
        let Some(supplier) = self.suppliers.get_mut(&supplier).and_then(Option::as_mut) else {
            return Some(least_urgent);
        };
        match take(supplier, header, bytes, now) {
            Metered::Within(lane) => Some(lane),
            Metered::Undeclared => Some(least_urgent),
            Metered::Surplus if self.config.surplus == Some(SurplusPolicy::Drop) => {
                self.surplus.dropped += 1;
                None
            }
            Metered::Surplus => {
                self.surplus.best_effort += 1;
                Some(least_urgent)
            }
        }
    }

    /// Keeps the meters of a supplier that is no longer connected.
    pub(super) fn keep_meters(&mut self, departed: &SupplierConnection<P>, now: Nanos) {
        for publication in &departed.publications {
            if let Some(DeclaredEvents { publication, meter }) = publication.declared.as_deref() {
                self.departed_meters.keep(publication.used.entry, &publication.header, meter, now);
            }
        }
    }

    /// Lets the meters of a new supplier continue from the state of the departed meters.
    pub(super) fn resume_meters(&mut self, supplier: &mut SupplierConnection<P>) {
        for publication in &mut supplier.publications {
            if let Some(DeclaredEvents { publication, meter }) = publication.declared.as_deref_mut() {
                self.departed_meters.resume(publication.used.entry, &publication.header, meter);
            }
        }
    }

    /// Returns the load of all admitted peers, except that of the proxy `except`, whose peer may be
    /// replaced.
    pub(in crate::events) fn admitted_load(&self, except: ProxyId, lanes: Vec<i32>, overhead: Nanos) -> ChannelLoad {
        let suppliers = self.suppliers.iter().filter(|(proxy, _)| **proxy != except);
        let publications = suppliers.filter_map(|(_, supplier)| supplier.as_ref()).flat_map(|it| &it.publications);
        let declared = publications.filter_map(|it| Some(it.declared.as_deref()?.publication.clone()));
        let connections = self.connections.values();
        let present = connections.filter(|connection| connection.proxy != except && connection.ending.is_none());
        ChannelLoad {
            lanes,
            overhead,
            publications: declared.collect(),
            consumers: present.filter_map(|connection| connection.declared.as_deref().cloned()).collect(),
        }
    }
}

enum Metered {
    Within(usize),
    Surplus,
    Undeclared,
}

/// Meters an event by the publications that declare exactly its type and source. An event without a
/// type or source is undeclared: it matches filters that no declaration has been analysed for.
fn take<P>(supplier: &mut SupplierConnection<P>, header: &EventHeader, bytes: usize, now: Nanos) -> Metered {
    let is_same =
        |published: &EventHeader| published.event_type == header.event_type && published.source == header.source;
    let mut metered = Metered::Undeclared;
    for publication in supplier.publications.iter_mut().filter(|publication| is_same(&publication.header)) {
        let Some(declared) = publication.declared.as_deref_mut() else { continue };
        if declared.meter.take(bytes, now) {
            return Metered::Within(declared.publication.load.lane);
        }
        metered = Metered::Surplus;
    }
    metered
}
