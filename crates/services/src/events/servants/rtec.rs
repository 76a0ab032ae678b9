//! The servants of TAO's Real-time Event Service.

use std::sync::Arc;

use corelane::{SystemException, SystemExceptionKind as Kind};

use super::{nil_peer, peer, system};
use crate::events::channel::{self, ChannelEnd, ConnectFailure, SharedChannel, disconnected};
use crate::events::header::EventHeader;
use crate::events::idl::corelane_events::FederatedChannel;
use crate::events::idl::rtec_event_channel_admin::event_channel::{
    AppendObserverError, CantAppendObserver, CantRemoveObserver, RemoveObserverError,
};
use crate::events::idl::rtec_event_channel_admin::proxy_push_consumer::ConnectPushSupplierError;
use crate::events::idl::rtec_event_channel_admin::proxy_push_supplier::ConnectPushConsumerError;
use crate::events::idl::rtec_event_channel_admin::{
    AlreadyConnected, ConsumerAdmin, ConsumerAdminRef, ConsumerQOS, EventChannel, EventChannelRef, ObserverRef,
    ProxyPushConsumer, ProxyPushConsumerRef, ProxyPushSupplier, ProxyPushSupplierRef, Publication as IdlPublication,
    SupplierAdmin, SupplierAdminRef, SupplierQOS, TypeError,
};
use crate::events::idl::rtec_event_comm::{Event, PushConsumer, PushConsumerRef, PushSupplier, PushSupplierRef};
use crate::events::peer::{Peer, PeerObject};
use crate::events::router::{ProxyId, PushRefusal};
use crate::events::stored::event_header;

/// Activates the servants of the channel, and returns the channel's reference. `end` ends the
/// channel when the channel's servant is dropped.
pub(in crate::events) fn activate(
    shared: &Arc<SharedChannel>,
    end: ChannelEnd,
) -> Result<EventChannelRef, SystemException> {
    let poa = &shared.poa;
    let consumers = poa.activate(&ConsumerAdmin::servant(Consumers(Arc::clone(shared))))?;
    let suppliers = poa.activate(&SupplierAdmin::servant(Suppliers(Arc::clone(shared))))?;
    let channel = Channel {
        end,
        consumers: ConsumerAdminRef::from_object(consumers),
        suppliers: SupplierAdminRef::from_object(suppliers),
    };
    Ok(EventChannelRef::from_object(poa.activate(&FederatedChannel::servant(channel))?))
}

pub(super) struct Channel {
    pub(super) end: ChannelEnd,
    consumers: ConsumerAdminRef,
    suppliers: SupplierAdminRef,
}

impl EventChannel for Channel {
    fn for_consumers(&self) -> Result<Option<ConsumerAdminRef>, SystemException> {
        Ok(Some(self.consumers.clone()))
    }

    fn for_suppliers(&self) -> Result<Option<SupplierAdminRef>, SystemException> {
        Ok(Some(self.suppliers.clone()))
    }

    fn destroy(&self) -> Result<(), SystemException> {
        channel::destroy_for_client(&self.end.0)
    }

    fn append_observer(&self, gw: Option<&ObserverRef>) -> Result<u32, AppendObserverError> {
        let observer = self.end.0.timed(gw.ok_or_else(nil_peer)?);
        Ok(self.end.0.add_observer(observer).ok_or(CantAppendObserver)?)
    }

    fn remove_observer(&self, gw: u32) -> Result<(), RemoveObserverError> {
        if self.end.0.remove_observer(gw) { Ok(()) } else { Err(CantRemoveObserver.into()) }
    }
}

struct Consumers(Arc<SharedChannel>);

impl ConsumerAdmin for Consumers {
    fn obtain_push_supplier(&self) -> Result<Option<ProxyPushSupplierRef>, SystemException> {
        let channel = Arc::clone(&self.0);
        self.0.obtain_consumer(|proxy| ProxyPushSupplier::servant(ConsumerProxy { channel, proxy })).map(Some)
    }
}

struct Suppliers(Arc<SharedChannel>);

impl SupplierAdmin for Suppliers {
    fn obtain_push_consumer(&self) -> Result<Option<ProxyPushConsumerRef>, SystemException> {
        let channel = Arc::clone(&self.0);
        self.0.obtain_supplier(|proxy| ProxyPushConsumer::servant(SupplierProxy { channel, proxy })).map(Some)
    }
}

struct ConsumerProxy {
    channel: Arc<SharedChannel>,
    proxy: ProxyId,
}

impl PushSupplier for ConsumerProxy {
    fn disconnect_push_supplier(&self) -> Result<(), SystemException> {
        if self.channel.disconnect_consumer(self.proxy, true) { Ok(()) } else { Err(disconnected()) }
    }
}

impl From<ConnectFailure> for ConnectPushConsumerError {
    fn from(failure: ConnectFailure) -> Self {
        match failure {
            ConnectFailure::AlreadyConnected => AlreadyConnected.into(),
            ConnectFailure::InvalidFilter(_) => TypeError.into(),
            ConnectFailure::System(exception) => exception.into(),
        }
    }
}

impl From<ConnectFailure> for ConnectPushSupplierError {
    fn from(failure: ConnectFailure) -> Self {
        match failure {
            ConnectFailure::AlreadyConnected => AlreadyConnected.into(),
            ConnectFailure::InvalidFilter(_) => system(Kind::Internal, "a supplier has no filter").into(),
            ConnectFailure::System(exception) => exception.into(),
        }
    }
}

impl ProxyPushSupplier for ConsumerProxy {
    fn connect_push_consumer(
        &self,
        push_consumer: Option<&PushConsumerRef>,
        qos: &ConsumerQOS,
    ) -> Result<(), ConnectPushConsumerError> {
        let consumer = push_consumer.ok_or_else(nil_peer)?;
        let headers: Vec<EventHeader> =
            qos.dependencies.iter().map(|dependency| event_header(&dependency.event.header)).collect();
        let filter = self.channel.filter(&headers).map_err(ConnectFailure::InvalidFilter)?;
        let peer = || Ok(Peer::new(PeerObject::RtecConsumer(peer(&self.channel, consumer)?)));
        let rt_infos: Vec<i32> = qos.dependencies.iter().map(|dependency| dependency.rt_info).collect();
        Ok(self.channel.connect_consumer(self.proxy, peer, false, filter, (qos.is_gateway, &rt_infos))?)
    }

    fn suspend_connection(&self) -> Result<(), SystemException> {
        self.channel.set_suspended(self.proxy, true)
    }

    fn resume_connection(&self) -> Result<(), SystemException> {
        self.channel.set_suspended(self.proxy, false)
    }
}

struct SupplierProxy {
    channel: Arc<SharedChannel>,
    proxy: ProxyId,
}

impl PushConsumer for SupplierProxy {
    fn push(&self, data: &[Event]) -> Result<(), SystemException> {
        self.channel.push(self.proxy, data.iter()).map_err(|refusal| match refusal {
            PushRefusal::NoProxy => disconnected(),
            PushRefusal::NotConnected => system(Kind::BadInvOrder, "no supplier is connected"),
            PushRefusal::Header(error) => system(Kind::BadParam, error.to_string()),
        })
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        if self.channel.disconnect_supplier(self.proxy, true) { Ok(()) } else { Err(disconnected()) }
    }
}

impl ProxyPushConsumer for SupplierProxy {
    fn connect_push_supplier(
        &self,
        push_supplier: Option<&PushSupplierRef>,
        qos: &SupplierQOS,
    ) -> Result<(), ConnectPushSupplierError> {
        let object = match push_supplier {
            Some(supplier) => PeerObject::RtecSupplier(peer(&self.channel, supplier)?),
            None => PeerObject::Nil,
        };
        let publication = |(at, publication): (usize, &IdlPublication)| {
            let header = event_header(&publication.event.header);
            self.channel.publication(at, header, publication.dependency_info.rt_info, qos.is_gateway)
        };
        let publications = qos.publications.iter().enumerate().map(publication).collect::<Result<_, _>>()?;
        Ok(self.channel.connect_supplier(self.proxy, Peer::new(object), publications, qos.is_gateway)?)
    }
}
