//! The benchmark `events`: event channels compared with collocated calls, with bare relays of as
//! many octets, and with omniEvents.
//!
//! All processes share one core, so that a delivery has as many context switches as its baseline.

mod durable;
mod federated;
mod omnievents;
mod one_process;
mod overload;
mod priorities;
mod processes;
pub(crate) mod programs;
mod relayed;

use corelane_services::events::rtec_base::DependencyInfo;
use corelane_services::events::rtec_event_channel_admin::{
    ConsumerQOS, Dependency, EventChannelRef, Publication, SupplierQOS,
};
use corelane_services::events::rtec_event_comm::{Event, EventHeader, PushConsumerRef};
use corelane_services::events::{DependencySet, EventType, RtecEventData};

use crate::Failure;
use crate::harness::{AxisPoint, Figure, FigureLabel, Progress};
use crate::options::BenchOptions;
use crate::placement::{CoreChoice, Placement};
use crate::report::Report;
use crate::value::SingleValue;

const BENCH: &str = "events";

/// Type of the measured events.
const MEASURED: EventType = EventType(16);
/// Source of all events.
const SOURCE: i32 = 1;
/// Size of an event's payload in bytes.
const PAYLOAD: usize = 64;

pub(crate) fn events(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let others = on_other_core(&options.placement);
    let options = &BenchOptions { placement: on_one_core(&options.placement), ..options.clone() };
    report.add_text(
        "events: all measured processes are on one core; the time of a delivery is from the supplier's push to the consumer's \
         servant, and the supplier pushes the next event after the delivery\n",
    )?;
    one_process::dispatch(options, report, progress)?;
    progress.show("events: measuring the sizes of messages");
    let sizes = processes::event_sizes(&options.placement)?;
    relayed::three_processes(options, sizes, report, progress)?;
    federated::one_hop(options, report, progress)?;
    omnievents::cos_push(options, report, progress)?;
    overload::stopped_and_slow(options, &others, report, progress)?;
    relayed::many_consumers(options, sizes, report, progress)?;
    one_process::subscriptions(options, report, progress)?;
    durable::durable(options, report, progress)?;
    priorities::beside_low_suppliers(options, report, progress)
}

/// Returns a placement of both sides on one core: the server's core, if the placement has one.
fn on_one_core(placement: &Placement) -> Placement {
    let cores = match placement.cores {
        CoreChoice::Shared(core) | CoreChoice::Separate(_, core) => CoreChoice::Shared(core),
        CoreChoice::Any => Placement::one_core().map_or(CoreChoice::Any, |placement| placement.cores),
    };
    Placement { cores, ..*placement }
}

/// Returns a placement on the client's core, for a process that is not measured. Without a second
/// core this is the core of the measured processes.
fn on_other_core(placement: &Placement) -> Placement {
    match placement.cores {
        CoreChoice::Separate(core, _) => Placement { cores: CoreChoice::Shared(core), ..*placement },
        CoreChoice::Shared(_) | CoreChoice::Any => on_one_core(placement),
    }
}

fn event(event_type: EventType, octets: usize) -> Event {
    Event {
        header: EventHeader { r#type: event_type.0, source: SOURCE, ttl: 1, ..EventHeader::default() },
        data: RtecEventData { payload: vec![7; octets].into(), ..RtecEventData::default() },
    }
}

fn consumer_qos(set: &DependencySet, rt_info: i32) -> ConsumerQOS {
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
fn connect_consumer(
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
fn connect_supplier(
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

fn label(peer: &'static str, transport: &'static str, op: &str, config: impl Into<String>) -> FigureLabel {
    FigureLabel { bench: BENCH, peer, transport, op: op.to_owned(), config: config.into(), axis_point: None }
}

/// Returns the label of a point of a curve along `axis`.
fn point(label: FigureLabel, series: &str, axis: &'static str, x: usize) -> FigureLabel {
    FigureLabel { axis_point: Some(AxisPoint { series: series.to_owned(), axis, x: x as u64 }), ..label }
}

fn found<'f>(figures: &'f [Figure], label: &FigureLabel) -> Option<&'f Figure> {
    figures.iter().find(|figure| figure.label == *label)
}

fn judged(figure: &Figure, quantity: &str, value: f64, unit: &'static str, bound: f64) -> SingleValue {
    SingleValue { label: figure.label.clone(), quantity: quantity.to_owned(), value, unit, bound: Some(bound) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_processes_are_on_the_core_of_the_server() {
        let on = |cores| on_one_core(&Placement { cores, scheduling: None }).cores;
        assert_eq!(on(CoreChoice::Shared(3)), CoreChoice::Shared(3));
        assert_eq!(on(CoreChoice::Separate(0, 1)), CoreChoice::Shared(1));
        assert!(matches!(on(CoreChoice::Any), CoreChoice::Shared(_)));
        let other = |cores| on_other_core(&Placement { cores, scheduling: None }).cores;
        assert_eq!(other(CoreChoice::Separate(0, 1)), CoreChoice::Shared(0));
        assert_eq!(other(CoreChoice::Shared(3)), CoreChoice::Shared(3));
    }
}
