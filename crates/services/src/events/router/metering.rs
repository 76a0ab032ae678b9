//! Events of a channel with a schedule: which are within their declaration, and the load of the
//! admitted peers.

use corelane_sched::task::Nanos;

use super::connection::{ProxyId, QueuePeer, SupplierConnection};
use super::delivery_set::RoutedEvent;
use super::{Connection, Router};
use crate::events::filter::EventFilter;
use crate::events::header::EventHeader;
use crate::events::schedule::{
    AdmittedConsumer, AdmittedPublication, ChannelLoad, PublicationLoad, RateMeter, SubscriptionLoad, SurplusPolicy,
};

/// The declaration of a supplier for the events of one type and source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::events) struct DeclaredEvents {
    pub(in crate::events) period: Nanos,
    pub(in crate::events) load: PublicationLoad,
    pub(in crate::events) meter: RateMeter,
}

/// The declaration of an admitted consumer.
#[derive(Clone, Debug)]
pub(in crate::events) struct DeclaredHandling {
    pub(in crate::events) filter: EventFilter,
    pub(in crate::events) load: SubscriptionLoad,
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

    /// Returns the load of all admitted peers, except that of the proxy whose peer may be replaced.
    pub(in crate::events) fn admitted_load(&self, except: ProxyId, lanes: Vec<i32>, overhead: Nanos) -> ChannelLoad {
        let suppliers = self.suppliers.iter().filter(|(proxy, _)| **proxy != except);
        let publications = suppliers.filter_map(|(_, supplier)| supplier.as_ref()).flat_map(|it| &it.publications);
        let publication = |(header, declared): (EventHeader, &DeclaredEvents)| AdmittedPublication {
            header,
            period: declared.period,
            load: declared.load,
        };
        let connections = self.connections.values();
        let present = connections.filter(|connection| connection.proxy != except && connection.ending.is_none());
        let consumer = |connection: &Connection<E, P>| {
            let declared = connection.declared.as_ref()?;
            Some(AdmittedConsumer { proxy: connection.proxy.0, filter: declared.filter.clone(), load: declared.load })
        };
        ChannelLoad {
            lanes,
            overhead,
            publications: publications
                .filter_map(|it| Some((it.header, it.declared.as_deref()?)))
                .map(publication)
                .collect(),
            consumers: present.filter_map(consumer).collect(),
        }
    }
}

enum Metered {
    Within(usize),
    Surplus,
    Undeclared,
}

/// An event without type or source matches filters that no declaration has been analysed for, so
/// only events of exactly the declared type and source are within it.
fn take<P>(supplier: &mut SupplierConnection<P>, header: &EventHeader, bytes: usize, now: Nanos) -> Metered {
    let is_same =
        |published: &EventHeader| published.event_type == header.event_type && published.source == header.source;
    let mut metered = Metered::Undeclared;
    for publication in supplier.publications.iter_mut().filter(|publication| is_same(&publication.header)) {
        let Some(declared) = publication.declared.as_deref_mut() else { continue };
        if declared.meter.take(bytes, now) {
            return Metered::Within(declared.load.lane);
        }
        metered = Metered::Surplus;
    }
    metered
}
