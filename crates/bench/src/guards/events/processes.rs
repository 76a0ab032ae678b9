//! Suppliers, channels and consumers in processes of their own.

use std::sync::Arc;
use std::time::Duration;

use corelane::{Any, Orb};
use corelane_services::events::rtec_event_comm::PushConsumerRef;
use corelane_services::events::{
    DependencySet, EventSource, cos_event_channel_admin as cos_admin, cos_event_comm as cos,
    rtec_event_channel_admin as rtec_admin,
};
use corelane_sys::clock;

use super::connections::{MEASURED, PAYLOAD, SOURCE, connect_consumer, connect_supplier, event};
use super::programs::{NONE, Service};
use crate::Failure;
use crate::address::free_address;
use crate::arrivals::{ArrivalListener, Arrivals};
use crate::baseline::{BaselineClient, BaselineTransport, one_way, parse_address};
use crate::harness::MeasuredSubject;
use crate::launch::{start_event_channel, start_event_consumers, start_relay, start_sink};
use crate::orb::client::object;
use crate::orb::relay::{RelayedBytes, relayed};
use crate::orb::{client_orb, prioritized_orb};
use crate::placement::Placement;
use crate::sample::Samples;
use crate::service::RunningProgram;

const PATIENCE: Duration = Duration::from_secs(20);

/// A channel in a process of its own, and the ORB through which the benchmark uses it.
pub(super) struct Channel {
    pub(super) program: RunningProgram,
    pub(super) orb: Orb,
    pub(super) rtec: rtec_admin::EventChannelRef,
    pub(super) cos: cos_admin::EventChannelRef,
}

impl Channel {
    /// Starts a channel without lanes. [`serve_channel`](super::programs::serve_channel) describes
    /// `patience`.
    pub(super) fn start(transport: BaselineTransport, patience: &str, placement: &Placement) -> Result<Self, Failure> {
        Self::of(start_event_channel(&free_address(transport), NONE, patience, NONE, placement)?, client_orb(0)?)
    }

    /// Starts a channel with lanes, which [`serve_channel`](super::programs::serve_channel)
    /// describes. Threads that use it have native priorities that equal their CORBA priorities.
    pub(super) fn start_with_lanes(lanes: &str, placement: &Placement) -> Result<Self, Failure> {
        let address = free_address(BaselineTransport::Tcp);
        Self::of(start_event_channel(&address, lanes, super::programs::USUAL, NONE, placement)?, prioritized_orb(0)?)
    }

    /// Starts a channel with a gateway to the channel `to`.
    pub(super) fn start_with_gateway(
        transport: BaselineTransport,
        to: &str,
        placement: &Placement,
    ) -> Result<Self, Failure> {
        let started = start_event_channel(&free_address(transport), NONE, super::programs::USUAL, to, placement)?;
        Self::of(started, client_orb(0)?)
    }

    fn of((program, references): (RunningProgram, String), orb: Orb) -> Result<Self, Failure> {
        let (rtec, cos) =
            references.split_once(' ').ok_or_else(|| Failure::new("the channel has not printed its references"))?;
        let rtec = rtec_admin::EventChannelRef::unchecked_narrow(&object(&orb, rtec)?);
        let cos = cos_admin::EventChannelRef::unchecked_narrow(&object(&orb, cos)?);
        Ok(Channel { program, orb, rtec, cos })
    }

    /// Connects the consumers of a process to the measured events.
    pub(super) fn connect(&self, consumers: &Consumers, rt_info: i32) -> Result<(), Failure> {
        let measured = DependencySet::new().event(MEASURED, EventSource(SOURCE));
        consumers.references.iter().try_for_each(|reference| {
            let consumer = PushConsumerRef::unchecked_narrow(&object(&self.orb, reference)?);
            connect_consumer(&self.rtec, &consumer, &measured, rt_info)
        })
    }

    pub(super) fn queued(&mut self) -> Result<u64, Failure> {
        let answer = self.program.ask("queued", PATIENCE)?;
        answer.parse().map_err(|_| Failure::new(format!("the channel answers `{answer}`")))
    }
}

pub(super) struct Consumers {
    program: RunningProgram,
    pub(super) references: Vec<String>,
}

impl Consumers {
    /// Starts consumers that report arrivals.
    pub(super) fn reporting(
        transport: BaselineTransport,
        service: Service,
        count: usize,
        placement: &Placement,
    ) -> Result<(Self, Arrivals), Failure> {
        let listener = ArrivalListener::open()?;
        let consumers = Self::start(transport, service, count, listener.name(), Duration::ZERO, placement)?;
        Ok((consumers, listener.accept()?))
    }

    /// Starts consumers of TAO's service that report nothing, and sleep in each push.
    pub(super) fn silent(count: usize, delay: Duration, placement: &Placement) -> Result<Self, Failure> {
        Self::start(BaselineTransport::Tcp, Service::Rtec, count, NONE, delay, placement)
    }

    fn start(
        transport: BaselineTransport,
        service: Service,
        count: usize,
        arrivals: &str,
        delay: Duration,
        placement: &Placement,
    ) -> Result<Self, Failure> {
        let address = free_address(transport);
        let (program, references) = start_event_consumers(&address, service.name(), count, arrivals, delay, placement)?;
        Ok(Consumers { program, references: references.split(' ').map(str::to_owned).collect() })
    }

    pub(super) fn into_program(self) -> RunningProgram {
        self.program
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MeasuredTime {
    /// The duration of the supplier's call.
    Push,
    /// The time from the start of the supplier's call until the consumer's servant runs.
    Delivery,
}

/// A supplier that pushes an event, and waits until the consumers have it.
pub(super) struct Deliveries {
    push: Box<dyn FnMut() -> Result<(), Failure> + Send>,
    arrivals: Arrivals,
    time: MeasuredTime,
    server: u32,
    /// Programs of the measurement, which end when this value is dropped.
    _programs: Vec<RunningProgram>,
}

impl Deliveries {
    pub(super) fn new(
        push: Box<dyn FnMut() -> Result<(), Failure> + Send>,
        arrivals: Arrivals,
        server: u32,
        programs: Vec<RunningProgram>,
    ) -> Self {
        Deliveries { push, arrivals, time: MeasuredTime::Delivery, server, _programs: programs }
    }

    pub(super) fn timing(self, time: MeasuredTime) -> Self {
        Deliveries { time, ..self }
    }

    /// Pushes one event, and returns the measured time in nanoseconds.
    #[inline]
    pub(super) fn deliver(&mut self) -> Result<u64, Failure> {
        let sent = clock::now().as_nanos();
        (self.push)()?;
        let pushed = clock::now().as_nanos();
        let arrived = self.arrivals.next()?;
        let until = if self.time == MeasuredTime::Push { pushed } else { arrived };
        Ok(until.saturating_sub(sent))
    }
}

impl MeasuredSubject for Deliveries {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        for _ in 0..warm_up {
            self.deliver()?;
        }
        let mut whole = 0;
        for _ in 0..count {
            let time = self.deliver()?;
            into.push(time);
            whole += time;
        }
        Ok(Duration::from_nanos(whole))
    }

    fn server_pid(&self) -> Option<u32> {
        Some(self.server)
    }
}

/// Connects a supplier of the measured events to a channel.
pub(super) fn rtec_supplier(
    channel: Channel,
    rt_info: i32,
    arrivals: Arrivals,
    others: Vec<RunningProgram>,
) -> Result<Deliveries, Failure> {
    let proxy = connect_supplier(&channel.rtec, MEASURED, rt_info)?;
    let events = [event(MEASURED, PAYLOAD)];
    let (server, mut programs) = (channel.program.pid(), vec![channel.program]);
    programs.extend(others);
    let orb = channel.orb;
    let push = move || {
        let _orb = &orb;
        Ok(proxy.push(&events)?)
    };
    Ok(Deliveries::new(Box::new(push), arrivals, server, programs))
}

/// Connects the first consumer and a supplier of CORBA's Event Service to a channel.
pub(super) fn cos_supplier(
    channel: &cos_admin::EventChannelRef,
    orb: Arc<Orb>,
    server: u32,
    (consumers, arrivals): (Consumers, Arrivals),
    programs: Vec<RunningProgram>,
) -> Result<Deliveries, Failure> {
    let nil = || Failure::new("the channel returned nil");
    let refused = |error: &dyn std::fmt::Display| Failure::new(format!("the channel refuses a client: {error}"));
    let pushing = channel.for_consumers()?.ok_or_else(nil)?.obtain_push_supplier()?.ok_or_else(nil)?;
    let reference = consumers.references.first().ok_or_else(nil)?;
    let consumer = cos::PushConsumerRef::unchecked_narrow(&object(&orb, reference)?);
    pushing.connect_push_consumer(Some(&consumer)).map_err(|error| refused(&error))?;
    let proxy = channel.for_suppliers()?.ok_or_else(nil)?.obtain_push_consumer()?.ok_or_else(nil)?;
    proxy.connect_push_supplier(None).map_err(|error| refused(&error))?;
    let value = Any::new(&7_i32).map_err(|error| Failure::new(error.to_string()))?;
    let push = move || {
        let _orb = &orb;
        proxy.push(&value).map_err(|error| Failure::new(format!("push: {error}")))
    };
    let mut programs = programs;
    programs.push(consumers.into_program());
    Ok(Deliveries::new(Box::new(push), arrivals, server, programs))
}

/// The sizes in bytes of the messages that carry a measured event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventSizes {
    to_channel: usize,
    to_consumer: usize,
}

/// Measures the sizes over TCP; they do not depend on the transport.
pub(super) fn event_sizes(placement: &Placement) -> Result<EventSizes, Failure> {
    let channel = Channel::start(BaselineTransport::Tcp, super::programs::USUAL, placement)?;
    let (mut consumers, mut arrivals) = Consumers::reporting(BaselineTransport::Tcp, Service::Rtec, 1, placement)?;
    let (supplied, delivered) = (Arc::new(RelayedBytes::default()), Arc::new(RelayedBytes::default()));
    for reference in &mut consumers.references {
        *reference = relayed(&object(&channel.orb, reference)?, &delivered)?;
    }
    channel.connect(&consumers, 0)?;
    let proxy = connect_supplier(&channel.rtec, MEASURED, 0)?;
    let proxy = object(&channel.orb, &relayed(proxy.as_object(), &supplied)?)?;
    let (proxy, events) = (PushConsumerRef::unchecked_narrow(&proxy), [event(MEASURED, PAYLOAD)]);
    let mut push = || {
        proxy.push(&events)?;
        arrivals.next()?;
        Ok::<_, Failure>((supplied.requests(), delivered.requests()))
    };
    // The first message may have service contexts that later messages lack, so it is not measured.
    push()?;
    let before = push()?;
    let after = push()?;
    Ok(EventSizes { to_channel: after.0 - before.0, to_consumer: after.1 - before.1 })
}

/// Starts a relay and a sink with `connections` connections, and a supplier that sends messages of
/// the sizes of events.
pub(super) fn bare_relay(
    transport: BaselineTransport,
    sizes: EventSizes,
    connections: usize,
    placement: &Placement,
) -> Result<Deliveries, Failure> {
    let listener = ArrivalListener::open()?;
    let (sink, address) = start_sink(transport, connections, listener.name(), placement)?;
    let arrivals = listener.accept()?;
    let (relay, address) = start_relay(transport, &address, sizes.to_consumer, connections, placement)?;
    let mut supplier = BaselineClient::connect(&parse_address(&address)?, one_way(sizes.to_channel))?;
    let (server, push) = (relay.pid(), move || supplier.post());
    Ok(Deliveries::new(Box::new(push), arrivals, server, vec![relay, sink]))
}
