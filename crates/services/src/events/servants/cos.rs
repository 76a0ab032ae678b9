//! The servants of CORBA's Event Service.

use std::sync::Arc;

use corelane::{Any, SystemException, SystemExceptionKind as Kind};
use corelane_sys::clock::Monotonic;

use super::{nil_peer, peer, system};
use crate::events::channel::{self, ConnectFailure, PullRefusal, SharedChannel, disconnected};
use crate::events::designator::DependencySet;
use crate::events::durable::PublishFailure;
use crate::events::idl::corelane_events::DurableChannel;
use crate::events::idl::cos_event_channel_admin::proxy_pull_consumer::ConnectPullSupplierError;
use crate::events::idl::cos_event_channel_admin::proxy_pull_supplier::ConnectPullConsumerError;
use crate::events::idl::cos_event_channel_admin::proxy_push_consumer::ConnectPushSupplierError;
use crate::events::idl::cos_event_channel_admin::proxy_push_supplier::ConnectPushConsumerError;
use crate::events::idl::cos_event_channel_admin::{
    AlreadyConnected, ConsumerAdmin, ConsumerAdminRef, EventChannel, EventChannelRef, ProxyPullConsumer,
    ProxyPullConsumerRef, ProxyPullSupplier, ProxyPullSupplierRef, ProxyPushConsumer, ProxyPushConsumerRef,
    ProxyPushSupplier, ProxyPushSupplierRef, SupplierAdmin, SupplierAdminRef,
};
use crate::events::idl::cos_event_comm::pull_supplier::{PullError, TryPullError};
use crate::events::idl::cos_event_comm::push_consumer::PushError;
use crate::events::idl::cos_event_comm::{
    Disconnected, PullConsumer, PullConsumerRef, PullSupplier, PullSupplierRef, PushConsumer, PushConsumerRef,
    PushSupplier, PushSupplierRef,
};
use crate::events::peer::{Peer, PeerObject};
use crate::events::router::{ProxyId, PushRefusal};
use crate::events::stored::StoredEvent;
use crate::events::subscriptions::Occurrence;

pub(in crate::events) fn activate(shared: &Arc<SharedChannel>) -> Result<EventChannelRef, SystemException> {
    let poa = &shared.poa;
    let consumers = poa.activate(&ConsumerAdmin::servant(Consumers(Arc::clone(shared))))?;
    let suppliers = poa.activate(&SupplierAdmin::servant(Suppliers(Arc::clone(shared))))?;
    let channel = Channel {
        shared: Arc::clone(shared),
        consumers: ConsumerAdminRef::from_object(consumers),
        suppliers: SupplierAdminRef::from_object(suppliers),
    };
    let servant = match shared.durable {
        Some(_) => DurableChannel::servant(channel),
        None => EventChannel::servant(channel),
    };
    Ok(EventChannelRef::from_object(poa.activate(&servant)?))
}

pub(super) struct Channel {
    pub(super) shared: Arc<SharedChannel>,
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
        channel::destroy_for_client(&self.shared)
    }
}

struct Consumers(Arc<SharedChannel>);

impl ConsumerAdmin for Consumers {
    fn obtain_push_supplier(&self) -> Result<Option<ProxyPushSupplierRef>, SystemException> {
        let channel = Arc::clone(&self.0);
        self.0.obtain_consumer(|proxy| ProxyPushSupplier::servant(PushConsumerProxy { channel, proxy })).map(Some)
    }

    fn obtain_pull_supplier(&self) -> Result<Option<ProxyPullSupplierRef>, SystemException> {
        let channel = Arc::clone(&self.0);
        self.0.obtain_consumer(|proxy| ProxyPullSupplier::servant(PullConsumerProxy { channel, proxy })).map(Some)
    }
}

struct Suppliers(Arc<SharedChannel>);

impl SupplierAdmin for Suppliers {
    fn obtain_push_consumer(&self) -> Result<Option<ProxyPushConsumerRef>, SystemException> {
        let channel = Arc::clone(&self.0);
        self.0.obtain_supplier(|proxy| ProxyPushConsumer::servant(PushSupplierProxy { channel, proxy })).map(Some)
    }

    fn obtain_pull_consumer(&self) -> Result<Option<ProxyPullConsumerRef>, SystemException> {
        let channel = Arc::clone(&self.0);
        self.0.obtain_supplier(|proxy| ProxyPullConsumer::servant(PullSupplierProxy { channel, proxy })).map(Some)
    }
}

fn connect_consumer(
    channel: &Arc<SharedChannel>,
    proxy: ProxyId,
    peer: impl Fn() -> Result<Arc<Peer>, SystemException>,
    is_pulled: bool,
) -> Result<(), ConnectFailure> {
    let every_event = DependencySet::new().every_event();
    let filter = channel.filter(every_event.headers()).map_err(ConnectFailure::InvalidFilter)?;
    channel.connect_consumer(proxy, peer, is_pulled, filter, (false, &[]))
}

/// The proxy for a consumer to which the channel pushes.
struct PushConsumerProxy {
    channel: Arc<SharedChannel>,
    proxy: ProxyId,
}

impl PushSupplier for PushConsumerProxy {
    fn disconnect_push_supplier(&self) -> Result<(), SystemException> {
        if self.channel.disconnect_consumer(self.proxy, true) { Ok(()) } else { Err(disconnected()) }
    }
}

impl From<ConnectFailure> for ConnectPushConsumerError {
    fn from(failure: ConnectFailure) -> Self {
        match failure {
            ConnectFailure::AlreadyConnected => AlreadyConnected.into(),
            ConnectFailure::InvalidFilter(error) => system(Kind::ImpLimit, error.to_string()).into(),
            ConnectFailure::System(exception) => exception.into(),
        }
    }
}

impl From<ConnectFailure> for ConnectPullConsumerError {
    fn from(failure: ConnectFailure) -> Self {
        match failure {
            ConnectFailure::AlreadyConnected => AlreadyConnected.into(),
            ConnectFailure::InvalidFilter(error) => system(Kind::ImpLimit, error.to_string()).into(),
            ConnectFailure::System(exception) => exception.into(),
        }
    }
}

impl ProxyPushSupplier for PushConsumerProxy {
    fn connect_push_consumer(&self, push_consumer: Option<&PushConsumerRef>) -> Result<(), ConnectPushConsumerError> {
        let consumer = push_consumer.ok_or_else(nil_peer)?;
        let peer = || Ok(Peer::new(PeerObject::CosConsumer(peer(&self.channel, consumer)?)));
        Ok(connect_consumer(&self.channel, self.proxy, peer, false)?)
    }
}

/// The proxy for a consumer that pulls.
struct PullConsumerProxy {
    channel: Arc<SharedChannel>,
    proxy: ProxyId,
}

impl PullConsumerProxy {
    fn next(&self, deadline: Option<Monotonic>) -> Result<Option<Any>, PullError> {
        let pulled = self.channel.pull(self.proxy, deadline).map_err(|refusal| match refusal {
            PullRefusal::NoProxy => PullError::from(disconnected()),
            PullRefusal::NotConnected => Disconnected.into(),
        })?;
        // The filter of every event makes no sets of several events, so the first occurrence is the
        // whole set.
        match pulled.as_ref().and_then(|set| set.as_slice().first()) {
            Some(Occurrence::Event(event)) => Ok(Some(event.value()?.clone())),
            Some(Occurrence::Timeout(_)) | None => Ok(None),
        }
    }
}

impl PullSupplier for PullConsumerProxy {
    fn pull(&self) -> Result<Any, PullError> {
        let deadline = Monotonic::now() + self.channel.config.pull_timeout;
        let next = self.next(Some(deadline))?;
        next.ok_or_else(|| system(Kind::Transient, "there is no event yet").into())
    }

    fn try_pull(&self) -> Result<(Any, bool), TryPullError> {
        let next = self.next(None)?;
        let has_event = next.is_some();
        Ok((next.unwrap_or_default(), has_event))
    }

    fn disconnect_pull_supplier(&self) -> Result<(), SystemException> {
        if self.channel.disconnect_consumer(self.proxy, true) { Ok(()) } else { Err(disconnected()) }
    }
}

impl ProxyPullSupplier for PullConsumerProxy {
    fn connect_pull_consumer(&self, pull_consumer: Option<&PullConsumerRef>) -> Result<(), ConnectPullConsumerError> {
        // A consumer without an object gets no disconnect callback.
        let peer = || {
            let object = match pull_consumer {
                Some(consumer) => PeerObject::CosPullConsumer(peer(&self.channel, consumer)?),
                None => PeerObject::Nil,
            };
            Ok(Peer::new(object))
        };
        Ok(connect_consumer(&self.channel, self.proxy, peer, true)?)
    }
}

/// The proxy for a supplier that pushes.
struct PushSupplierProxy {
    channel: Arc<SharedChannel>,
    proxy: ProxyId,
}

impl PushConsumer for PushSupplierProxy {
    fn push(&self, data: &Any) -> Result<(), PushError> {
        let event = StoredEvent::of_value(data.clone(), &self.channel.config.cos_events, SharedChannel::now());
        let refused = |refusal| match refusal {
            PushRefusal::NoProxy => PushError::from(disconnected()),
            PushRefusal::NotConnected => Disconnected.into(),
            PushRefusal::Header(error) => system(Kind::BadParam, error.to_string()).into(),
        };
        match &self.channel.durable {
            None => self.channel.push(self.proxy, std::iter::once(event)).map_err(refused),
            Some(durable) => match self.channel.publish(durable, Some(self.proxy), event) {
                Ok(_) => Ok(()),
                Err(PublishFailure::Push(refusal)) => Err(refused(refusal)),
                Err(PublishFailure::System(exception)) => Err(exception.into()),
            },
        }
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        if self.channel.disconnect_supplier(self.proxy, true) { Ok(()) } else { Err(disconnected()) }
    }
}

impl ProxyPushConsumer for PushSupplierProxy {
    fn connect_push_supplier(&self, push_supplier: Option<&PushSupplierRef>) -> Result<(), ConnectPushSupplierError> {
        let object = match push_supplier {
            Some(supplier) => PeerObject::CosSupplier(peer(&self.channel, supplier)?),
            None => PeerObject::Nil,
        };
        match self.channel.connect_supplier(self.proxy, Peer::new(object), Box::default(), false) {
            Ok(()) => Ok(()),
            Err(ConnectFailure::AlreadyConnected | ConnectFailure::InvalidFilter(_)) => Err(AlreadyConnected.into()),
            Err(ConnectFailure::System(exception)) => Err(exception.into()),
        }
    }
}

/// The proxy for a supplier from which the channel pulls.
struct PullSupplierProxy {
    channel: Arc<SharedChannel>,
    proxy: ProxyId,
}

impl PullConsumer for PullSupplierProxy {
    fn disconnect_pull_consumer(&self) -> Result<(), SystemException> {
        if self.channel.disconnect_supplier(self.proxy, true) { Ok(()) } else { Err(disconnected()) }
    }
}

impl ProxyPullConsumer for PullSupplierProxy {
    fn connect_pull_supplier(&self, pull_supplier: Option<&PullSupplierRef>) -> Result<(), ConnectPullSupplierError> {
        let supplier = peer(&self.channel, pull_supplier.ok_or_else(nil_peer)?)?;
        match self.channel.connect_pulled_supplier(self.proxy, supplier) {
            Ok(()) => Ok(()),
            Err(ConnectFailure::AlreadyConnected | ConnectFailure::InvalidFilter(_)) => Err(AlreadyConnected.into()),
            Err(ConnectFailure::System(exception)) => Err(exception.into()),
        }
    }
}
