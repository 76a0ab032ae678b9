//! Connections of measured suppliers and consumers to a channel of TAO's Real-time Event Service.

use corelane_services::events::rtec_base::DependencyInfo;
use corelane_services::events::rtec_event_channel_admin::{
    ConsumerQOS, Dependency, EventChannelRef, Publication, SupplierQOS,
};
use corelane_services::events::rtec_event_comm::{Event, EventHeader, PushConsumerRef};
use corelane_services::events::{DependencySet, EventType, RtecEventData};

use crate::Failure;

pub(super) const MEASURED: EventType = EventType(16);
pub(super) const SOURCE: i32 = 1;
/// Size of an event's payload in bytes.
pub(super) const PAYLOAD: usize = 64;

pub(super) fn event(event_type: EventType, octets: usize) -> Event {
    Event {
        header: EventHeader { r#type: event_type.0, source: SOURCE, ttl: 1, ..EventHeader::default() },
        data: RtecEventData { payload: vec![7; octets].into(), ..RtecEventData::default() },
    }
}

pub(super) fn consumer_qos(set: &DependencySet, rt_info: i32) -> ConsumerQOS {
    let dependency = |header: &corelane_services::events::EventHeader| {
        let header = EventHeader {
            r#type: header.event_type.0,
            source: header.source.0,
            creation_time: header.creation_time,
            ..EventHeader::default()
        };
        Dependency { event: Event { header, ..Event::default() }, rt_info }
    };
    ConsumerQOS { dependencies: set.headers().iter().map(dependency).collect(), is_gateway: false }
}

/// Connects a consumer of TAO's Real-time Event Service.
pub(super) fn connect_consumer(
    channel: &EventChannelRef,
    consumer: &PushConsumerRef,
    set: &DependencySet,
    rt_info: i32,
) -> Result<(), Failure> {
    let nil = || Failure::new("the channel returned nil");
    let proxy = channel.for_consumers()?.ok_or_else(nil)?.obtain_push_supplier()?.ok_or_else(nil)?;
    let connected = proxy.connect_push_consumer(Some(consumer), &consumer_qos(set, rt_info));
    connected.map_err(|error| Failure::new(format!("the consumer is refused: {error}")))
}

/// Connects a supplier of one type of events, and returns the proxy to which it pushes.
pub(super) fn connect_supplier(
    channel: &EventChannelRef,
    event_type: EventType,
    rt_info: i32,
) -> Result<PushConsumerRef, Failure> {
    let nil = || Failure::new("the channel returned nil");
    let proxy = channel.for_suppliers()?.ok_or_else(nil)?.obtain_push_consumer()?.ok_or_else(nil)?;
    let publication = Publication {
        event: event(event_type, 0),
        dependency_info: DependencyInfo { rt_info, ..DependencyInfo::default() },
    };
    let qos = SupplierQOS { publications: vec![publication], is_gateway: false };
    let connected = proxy.connect_push_supplier(None, &qos);
    connected.map_err(|error| Failure::new(format!("the supplier is refused: {error}")))?;
    Ok(PushConsumerRef::unchecked_narrow(proxy.as_object()))
}
