//! The calls of a gateway to its two channels. Each channel is a channel of this crate, of TAO's
//! Real-time Event Service, or of CORBA's Event Service.

use std::fmt::Display;
use std::time::Duration;

use corelane::rt::RtClientPolicies;
use corelane::{Completion, ObjectRef, Reference, SystemException, SystemExceptionKind as Kind};

use super::core::{Accepted, MAX_BATCH};
use super::demand::{self, Demand};
use super::passage::ChannelId;
use crate::events::designator::Designator;
use crate::events::idl::corelane_events::{
    ChannelDemand, EventKey, FederatedChannelRef, GatewayConsumerRef, GatewayOutletRef, GatewayState, PassingEvent,
};
use crate::events::idl::cos_event_channel_admin as cos_admin;
use crate::events::idl::cos_event_comm as cos;
use crate::events::idl::cos_event_comm::push_consumer::PushError;
use crate::events::idl::rtec_event_channel_admin::proxy_push_supplier::ConnectPushConsumerError;
use crate::events::idl::rtec_event_channel_admin::{
    ConsumerQOS, Dependency, EventChannelRef, ObserverRef, ProxyPushConsumerRef, ProxyPushSupplierRef, Publication,
    SupplierQOS,
};
use crate::events::idl::rtec_event_comm::{Event, EventHeader, PushConsumerRef};
use crate::events::peer::classify;
use crate::events::router::CallResult;
use crate::events::stored;

/// Returns the demand of a channel that has no identity and wants every event.
pub(super) fn every_event() -> Vec<ChannelDemand> {
    vec![ChannelDemand { path: Vec::new(), wanted: vec![EventKey { event_type: 0, source: 0 }] }]
}

/// Returns the demand in `subscribed`, the subscriptions that a channel has reported to its
/// observer.
pub(super) fn observed(subscribed: &ConsumerQOS) -> Vec<ChannelDemand> {
    let is_head = |header: &EventHeader| {
        Designator::from_type(crate::events::EventType(header.r#type)).is_some_and(Designator::is_group)
    };
    let headers = subscribed.dependencies.iter().map(|dependency| &dependency.event.header);
    let keys = headers.filter(|header| !is_head(header));
    let wanted = keys.map(|header| EventKey { event_type: header.r#type, source: header.source }).collect();
    vec![ChannelDemand { path: Vec::new(), wanted }]
}

fn nil() -> SystemException {
    SystemException::new(Kind::InvObjref, 0, Completion::No).with_message("the channel returned a nil reference")
}

fn said(error: impl Display) -> String {
    error.to_string()
}

/// Returns a reference with a time-out and a connection of its own, so that calls of other lanes do
/// not delay calls of this reference.
pub(in crate::events) fn separate<R: Reference>(reference: &R, timeout: Duration) -> Result<R, SystemException> {
    let own = RtClientPolicies { private_connection: true, ..RtClientPolicies::default() };
    Ok(R::from_object(reference.as_object().with_rt_policies(&own)?).with_timeout(timeout))
}

/// Returns the reference that a channel has returned, with a time-out. Such a reference does not
/// take over the time-out of the channel's reference.
fn timed<R: Reference>(returned: Result<Option<R>, SystemException>, timeout: Duration) -> Result<R, String> {
    Ok(returned.map_err(said)?.ok_or_else(nil).map_err(said)?.with_timeout(timeout))
}

pub(super) enum Channel {
    Federated(FederatedChannelRef),
    Rtec(EventChannelRef),
    Cos(cos_admin::EventChannelRef),
}

impl Channel {
    pub(super) fn find(object: &ObjectRef) -> Result<Self, String> {
        let is = |id: &str| object.is_a(id).map_err(said);
        if is(FederatedChannelRef::REPOSITORY_ID)? {
            return Ok(Self::Federated(FederatedChannelRef::unchecked_narrow(object)));
        }
        if is(EventChannelRef::REPOSITORY_ID)? {
            return Ok(Self::Rtec(EventChannelRef::unchecked_narrow(object)));
        }
        if is(cos_admin::EventChannelRef::REPOSITORY_ID)? {
            return Ok(Self::Cos(cos_admin::EventChannelRef::unchecked_narrow(object)));
        }
        Err("the object is not an event channel".to_owned())
    }
}

/// The object of the destination that takes the events of one lane.
pub(super) enum LaneEnd {
    Federated(FederatedChannelRef),
    Rtec(ProxyPushConsumerRef),
    Cos(cos_admin::ProxyPushConsumerRef),
}

impl LaneEnd {
    /// Maximum number of events that may be sent together. Each event to a channel of CORBA's Event
    /// Service is a separate call, so a batch has one event: after a failed call in a longer batch,
    /// the gateway would repeat events that the channel has received.
    pub(super) const fn max_batch(&self) -> usize {
        if matches!(self, Self::Cos(_)) { 1 } else { MAX_BATCH }
    }

    /// Sends events. An error means that the destination is lost; the events may have arrived.
    pub(super) fn send(&self, batch: &[PassingEvent]) -> Result<Accepted, SystemException> {
        match self.send_all(batch) {
            Err(exception) if classify(&exception) == CallResult::Refused => match batch {
                [_] => Ok(Accepted { refused: 1, ..Accepted::default() }),
                // The destination may refuse only one of the events, so each is sent alone.
                several => several.iter().try_fold(Accepted::default(), |sum, event| {
                    let one = self.send(std::slice::from_ref(event))?;
                    Ok(Accepted { duplicates: sum.duplicates + one.duplicates, refused: sum.refused + one.refused })
                }),
            },
            sent => sent,
        }
    }

    fn send_all(&self, batch: &[PassingEvent]) -> Result<Accepted, SystemException> {
        match self {
            Self::Federated(channel) => {
                let accepted = channel.accept(batch)?;
                Ok(Accepted { duplicates: accepted.duplicates.into(), refused: accepted.refused.into() })
            }
            Self::Rtec(proxy) => {
                let events: Vec<Event> = batch.iter().map(|passing| passing.event.clone()).collect();
                proxy.push(&events).map(|()| Accepted::default())
            }
            Self::Cos(proxy) => {
                for passing in batch {
                    proxy.push(&stored::value_of(&passing.event)?).map_err(|error| match error {
                        PushError::System(exception) => exception,
                        PushError::Disconnected(_) => {
                            SystemException::new(Kind::ObjectNotExist, 0, Completion::No).with_message("disconnected")
                        }
                    })?;
                }
                Ok(Accepted::default())
            }
        }
    }
}

pub(super) struct Destination {
    channel: Channel,
    /// The identity of the channel; 0 if it has none.
    pub(super) number: ChannelId,
    observer: Option<u32>,
}

impl Destination {
    /// Connects the gateway to the destination in each of the lanes, and adds the observer if the
    /// channel takes one.
    pub(super) fn connect(
        to: &ObjectRef,
        lanes: &[i32],
        observer: &ObserverRef,
        timeout: Duration,
    ) -> Result<(Self, Vec<LaneEnd>), String> {
        let channel = Channel::find(to)?;
        let (number, ends, observer) = match &channel {
            Channel::Federated(channel) => {
                let observed = channel.append_observer(Some(observer)).ok();
                let end = |_: &i32| Ok(LaneEnd::Federated(separate(channel, timeout)?));
                let ends: Result<_, SystemException> = lanes.iter().map(end).collect();
                (channel.channel_number().map_err(said)?, ends.map_err(said)?, observed)
            }
            Channel::Rtec(channel) => {
                // The channel tells a new observer its present subscriptions at once.
                let observed = channel.append_observer(Some(observer)).map_err(said)?;
                let end = |lane: &i32| Ok(LaneEnd::Rtec(rtec_supplier(channel, *lane, timeout)?));
                let ends: Result<_, String> = lanes.iter().map(end).collect();
                (0, ends?, Some(observed))
            }
            Channel::Cos(channel) => {
                let end = |_: &i32| {
                    let admin = timed(channel.for_suppliers(), timeout)?;
                    let proxy = timed(admin.obtain_push_consumer(), timeout)?;
                    proxy.connect_push_supplier(None).map_err(said)?;
                    Ok(LaneEnd::Cos(separate(&proxy, timeout).map_err(said)?))
                };
                let ends: Result<_, String> = lanes.iter().map(end).collect();
                (0, ends?, None)
            }
        };
        Ok((Self { channel, number, observer }, ends))
    }

    /// Returns the demand of the destination; `None` for a channel that reports each change to the
    /// gateway's observer.
    pub(super) fn demands(&self) -> Result<Option<Vec<ChannelDemand>>, SystemException> {
        match &self.channel {
            Channel::Federated(channel) => channel.demands().map(Some),
            Channel::Rtec(channel) => exists(channel.as_object()).map(|()| None),
            Channel::Cos(channel) => exists(channel.as_object()).map(|()| Some(every_event())),
        }
    }

    /// Leaves the channel, which may have ended or may not be reached. Returns the observer if it
    /// could not be removed from a channel with an identity.
    pub(super) fn leave(&self, ends: &[LaneEnd]) -> Option<StaleObserver> {
        let observer = self.observer;
        let is_removed = match (&self.channel, observer) {
            (Channel::Federated(channel), Some(observer)) => channel.remove_observer(observer).is_ok(),
            (Channel::Rtec(channel), Some(observer)) => channel.remove_observer(observer).is_ok(),
            _ => true,
        };
        for end in ends {
            let _ = match end {
                LaneEnd::Federated(_) => Ok(()),
                LaneEnd::Rtec(proxy) => proxy.disconnect_push_consumer(),
                LaneEnd::Cos(proxy) => proxy.disconnect_push_consumer(),
            };
        }
        let is_stale = !is_removed && self.number != 0;
        observer.filter(|_| is_stale).map(|observer| StaleObserver { channel: self.number, observer })
    }

    /// Removes the observer of an earlier connection, if that connection was to the same channel.
    pub(super) fn remove_stale(&self, stale: &StaleObserver) {
        if let (Channel::Federated(channel), true) = (&self.channel, stale.channel == self.number) {
            let _ = channel.remove_observer(stale.observer);
        }
    }
}

/// An observer that could not be removed, because its channel was not reached. It still occupies a
/// place in the channel.
pub(super) struct StaleObserver {
    channel: ChannelId,
    observer: u32,
}

fn exists(object: &ObjectRef) -> Result<(), SystemException> {
    match object.non_existent()? {
        false => Ok(()),
        true => Err(SystemException::new(Kind::ObjectNotExist, 0, Completion::No)),
    }
}

fn rtec_supplier(channel: &EventChannelRef, lane: i32, timeout: Duration) -> Result<ProxyPushConsumerRef, String> {
    let admin = timed(channel.for_suppliers(), timeout)?;
    let proxy = timed(admin.obtain_push_consumer(), timeout)?;
    let mut publication = Publication::default();
    publication.dependency_info.rt_info = lane;
    let qos = SupplierQOS { publications: vec![publication], is_gateway: true };
    proxy.connect_push_supplier(None, &qos).map_err(said)?;
    separate(&proxy, timeout).map_err(said)
}

pub(super) enum Source {
    Federated(GatewayOutletRef),
    Rtec(EventChannelRef, ProxyPushSupplierRef),
    Cos(cos_admin::ProxyPushSupplierRef),
}

pub(super) struct Intakes {
    pub(super) typed: GatewayConsumerRef,
    pub(super) values: cos::PushConsumerRef,
}

pub(super) enum SourceFailure {
    /// The source is the destination. Further attempts cannot succeed.
    Itself,
    NotReached(String),
}

impl From<String> for SourceFailure {
    fn from(why: String) -> Self {
        Self::NotReached(why)
    }
}

impl Source {
    pub(super) fn connect(
        from: &ObjectRef,
        to: ChannelId,
        intakes: &Intakes,
        demands: &[ChannelDemand],
        timeout: Duration,
    ) -> Result<Self, SourceFailure> {
        Ok(match Channel::find(from)? {
            Channel::Federated(channel) => {
                if channel.channel_number().map_err(said)? == to {
                    return Err(SourceFailure::Itself);
                }
                Self::Federated(timed(channel.open_outlet(Some(&intakes.typed), demands), timeout)?)
            }
            Channel::Rtec(channel) => {
                let proxy = rtec_consumer(&channel, intakes, demands, timeout)?;
                Self::Rtec(channel, proxy)
            }
            Channel::Cos(channel) => {
                let admin = timed(channel.for_consumers(), timeout)?;
                let proxy = timed(admin.obtain_push_supplier(), timeout)?;
                proxy.connect_push_consumer(Some(&intakes.values)).map_err(said)?;
                Self::Cos(proxy)
            }
        })
    }

    pub(super) fn set_demands(
        &mut self,
        intakes: &Intakes,
        demands: &[ChannelDemand],
        timeout: Duration,
    ) -> Result<(), String> {
        match self {
            Self::Federated(outlet) => outlet.set_demands(demands).map_err(said),
            Self::Rtec(channel, proxy) => {
                let consumer = PushConsumerRef::unchecked_narrow(intakes.typed.as_object());
                match proxy.connect_push_consumer(Some(&consumer), &consumer_qos(demands)) {
                    Ok(()) => Ok(()),
                    // The channel does not permit reconnection. Events between the two calls are
                    // lost.
                    Err(ConnectPushConsumerError::AlreadyConnected(_)) => {
                        proxy.disconnect_push_supplier().map_err(said)?;
                        *proxy = rtec_consumer(channel, intakes, demands, timeout)?;
                        Ok(())
                    }
                    Err(error) => Err(said(error)),
                }
            }
            Self::Cos(_) => Ok(()),
        }
    }

    /// Tells the source the state of the gateway. Asks a source that takes no such reports whether
    /// the gateway's proxy exists.
    pub(super) fn report(&self, state: &GatewayState) -> Result<(), String> {
        match self {
            Self::Federated(outlet) => outlet.report(state),
            Self::Rtec(_, proxy) => exists(proxy.as_object()),
            Self::Cos(proxy) => exists(proxy.as_object()),
        }
        .map_err(said)
    }

    /// Leaves the channel, which may have ended.
    pub(super) fn leave(&self) {
        let _ = match self {
            Self::Federated(outlet) => outlet.close(),
            Self::Rtec(_, proxy) => proxy.disconnect_push_supplier(),
            Self::Cos(proxy) => proxy.disconnect_push_supplier(),
        };
    }
}

fn rtec_consumer(
    channel: &EventChannelRef,
    intakes: &Intakes,
    demands: &[ChannelDemand],
    timeout: Duration,
) -> Result<ProxyPushSupplierRef, String> {
    let admin = timed(channel.for_consumers(), timeout)?;
    let proxy = timed(admin.obtain_push_supplier(), timeout)?;
    let consumer = PushConsumerRef::unchecked_narrow(intakes.typed.as_object());
    proxy.connect_push_consumer(Some(&consumer), &consumer_qos(demands)).map_err(said)?;
    Ok(proxy)
}

/// Returns the subscription at a channel without identity: what the consumers of the destination
/// itself want.
fn consumer_qos(demands: &[ChannelDemand]) -> ConsumerQOS {
    let demand = |demand: &ChannelDemand| Demand {
        path: demand.path.clone(),
        wanted: demand.wanted.iter().map(|key| (key.event_type, key.source)).collect(),
    };
    let wanted = demand::own_demand(&demands.iter().map(demand).collect::<Vec<_>>());
    let dependency = |event_type: i32, source: i32| {
        let header = EventHeader { r#type: event_type, source, ..EventHeader::default() };
        Dependency { event: Event { header, ..Event::default() }, rt_info: 0 }
    };
    let count = i32::try_from(wanted.len()).unwrap_or(i32::MAX);
    let head = dependency(Designator::Disjunction.event_type().0, count);
    let rest = wanted.into_iter().map(|(event_type, source)| dependency(event_type, source));
    ConsumerQOS { dependencies: std::iter::once(head).chain(rest).collect(), is_gateway: true }
}
