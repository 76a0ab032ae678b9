//! Deliveries through two channels with a gateway, compared with one channel.

use std::time::Duration;

use corelane_services::events::corelane_events::FederatedChannelRef;
use corelane_sys::clock::Monotonic;

use super::figures::{found, judged, label};
use super::processes::{Channel, Consumers, Deliveries, rtec_supplier};
use super::programs::{Service, USUAL};
use crate::Failure;
use crate::baseline::BaselineTransport;
use crate::harness::{ComparedQuantity, Group, Progress, Variant};
use crate::options::BenchOptions;
use crate::report::Report;
use crate::targets::events as goals;

const TRANSPORT: BaselineTransport = BaselineTransport::Tcp;
/// Maximum time until the consumer's demand reaches the first channel.
const PATIENCE: Duration = Duration::from_secs(20);

fn one_channel(options: &BenchOptions) -> Result<Deliveries, Failure> {
    let channel = Channel::start(TRANSPORT, USUAL, &options.placement)?;
    let (consumers, arrivals) = Consumers::reporting(TRANSPORT, Service::Rtec, 1, &options.placement)?;
    channel.connect(&consumers, 0)?;
    rtec_supplier(channel, 0, arrivals, vec![consumers.into_program()])
}

/// Starts two channels. The first channel has a gateway to the second channel, to which the
/// consumer is connected.
fn two_channels(options: &BenchOptions) -> Result<Deliveries, Failure> {
    let second = Channel::start(TRANSPORT, USUAL, &options.placement)?;
    let to = second.rtec.to_string();
    let first = Channel::start_with_gateway(TRANSPORT, &to, &options.placement)?;
    let (consumers, arrivals) = Consumers::reporting(TRANSPORT, Service::Rtec, 1, &options.placement)?;
    second.connect(&consumers, 0)?;
    let federated = FederatedChannelRef::unchecked_narrow(first.rtec.as_object());
    let deadline = Monotonic::now() + PATIENCE;
    while federated.demands()?.is_empty() {
        if deadline.is_past() {
            return Err(Failure::new("the gateway does not connect the channels"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    rtec_supplier(first, 0, arrivals, vec![second.program, consumers.into_program()])
}

pub(super) fn one_hop(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let floor = label("Corelane", TRANSPORT.name(), "delivery", "channel alone");
    let ours = label("Corelane", TRANSPORT.name(), "delivery", "two channels and a gateway");
    let variants = vec![
        Variant { label: floor.clone(), subject: Box::new(one_channel(options)?), against: Vec::new() },
        Variant { label: ours.clone(), subject: Box::new(two_channels(options)?), against: vec![0] },
    ];
    let title = "events: one gateway".to_owned();
    let group = Group { title, compare: ComparedQuantity::Median, variants };
    let figures = report.measure(group, &options.run_length, &options.placement, progress)?;
    let (Some(floor), Some(ours)) = (found(&figures, &floor), found(&figures, &ours)) else { return Ok(()) };
    let ratio = ours.summary.p50_us / floor.summary.p50_us;
    let values = [judged(ours, "median against the channel alone", ratio, "x", goals::MAX_GATEWAY_TO_CHANNEL_RATIO)];
    report.add_values("events: goal of one gateway", &values)
}
