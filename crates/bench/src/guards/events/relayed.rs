//! Deliveries between three processes, compared with bare relays.

use super::figures::{found, judged, label, point};
use super::processes::{Channel, Consumers, Deliveries, EventSizes, bare_relay, rtec_supplier};
use super::programs::{Service, USUAL};
use crate::Failure;
use crate::baseline::BaselineTransport;
use crate::harness::{ComparedQuantity, Group, Progress, RunLength, Variant};
use crate::options::BenchOptions;
use crate::report::Report;
use crate::targets::events as goals;
use crate::value::SingleValue;

const CONSUMERS: [usize; 3] = [1, 10, 100];
/// Maximum number of deliveries in one turn of the measurement ([`harness`](crate::harness)), over
/// all consumers.
const MAX_DELIVERIES: usize = 100_000;

fn through_channel(
    transport: BaselineTransport,
    consumers: usize,
    options: &BenchOptions,
) -> Result<Deliveries, Failure> {
    let channel = Channel::start(transport, USUAL, &options.placement)?;
    let (consumers, arrivals) = Consumers::reporting(transport, Service::Rtec, consumers, &options.placement)?;
    channel.connect(&consumers, 0)?;
    rtec_supplier(channel, 0, arrivals, vec![consumers.into_program()])
}

/// Measures deliveries to one consumer over TCP and over shared memory.
pub(super) fn three_processes(
    options: &BenchOptions,
    sizes: EventSizes,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    for (transport, relay, bound) in [
        (BaselineTransport::Tcp, "relay", goals::MAX_DELIVERY_TO_RELAY_RATIO_TCP),
        (BaselineTransport::SharedMemory, "futex relay", goals::MAX_DELIVERY_TO_RELAY_RATIO_MEMORY),
    ] {
        let name = transport.name();
        let floor = label("floor", name, "delivery", relay);
        let ours = label("Corelane", name, "delivery", "channel");
        let variants = vec![
            Variant {
                label: floor.clone(),
                subject: Box::new(bare_relay(transport, sizes, 1, &options.placement)?),
                against: Vec::new(),
            },
            Variant {
                label: ours.clone(),
                subject: Box::new(through_channel(transport, 1, options)?),
                against: vec![0],
            },
        ];
        let title = format!("events: three processes, {name}");
        let group = Group { title, compare: ComparedQuantity::Median, variants };
        let figures = report.measure(group, &options.run_length, &options.placement, progress)?;
        let (Some(floor), Some(ours)) = (found(&figures, &floor), found(&figures, &ours)) else { continue };
        let ratio = ours.summary.p50_us / floor.summary.p50_us;
        let values = [judged(ours, &format!("median against the {relay}"), ratio, "x", bound)];
        report.add_values(&format!("events: goal of three processes, {name}"), &values)?;
    }
    Ok(())
}

/// Measures deliveries to 1, 10 and 100 consumers in another process.
pub(super) fn many_consumers(
    options: &BenchOptions,
    sizes: EventSizes,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut values = Vec::new();
    for consumers in CONSUMERS {
        values.extend(fan_out(consumers, sizes, options, report, progress)?);
    }
    report.add_values("events: goals of many consumers", &values)
}

fn fan_out(
    consumers: usize,
    sizes: EventSizes,
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<Option<SingleValue>, Failure> {
    let transport = BaselineTransport::Tcp;
    let run_length = RunLength {
        warm_up: options.run_length.warm_up.min(MAX_DELIVERIES / consumers / 10),
        count: options.run_length.count.min(MAX_DELIVERIES / consumers),
        ..options.run_length
    };
    let text = if consumers == 1 { "1 consumer".to_owned() } else { format!("{consumers} consumers") };
    let named = |peer, series: &str, config: String| {
        point(label(peer, transport.name(), "delivery", config), series, "consumers", consumers)
    };
    let floor = named("floor", "bare sends", format!("{text}, a loop of bare sends"));
    let ours = named("Corelane", "channel", text);
    let variants = vec![
        Variant {
            label: floor.clone(),
            subject: Box::new(bare_relay(transport, sizes, consumers, &options.placement)?),
            against: Vec::new(),
        },
        Variant {
            label: ours.clone(),
            subject: Box::new(through_channel(transport, consumers, options)?),
            against: vec![0],
        },
    ];
    let title = format!("events: delivery of an event to all consumers, {consumers}");
    let group = Group { title, compare: ComparedQuantity::Rate, variants };
    let figures = report.measure(group, &run_length, &options.placement, progress)?;
    let (Some(floor), Some(ours)) = (found(&figures, &floor), found(&figures, &ours)) else { return Ok(None) };
    let ratio = floor.summary.per_s / ours.summary.per_s;
    let bound = 1.0 / goals::MIN_DELIVERIES_TO_SENDS_RATIO;
    Ok(Some(judged(ours, "time per delivery against bare sends", ratio, "x", bound)))
}
