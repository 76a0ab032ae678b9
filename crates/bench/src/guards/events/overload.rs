//! A stopped and a slow consumer beside a consumer that keeps up.

use std::net::TcpListener;
use std::time::Duration;

use corelane_services::events::rtec_event_comm::PushConsumerRef;
use corelane_services::events::{DependencySet, EventSource, EventType};

use super::connections::{MEASURED, SOURCE, connect_consumer, connect_supplier, event};
use super::figures::{found, judged, label};
use super::processes::{Channel, Consumers, Deliveries, MeasuredTime, rtec_supplier};
use super::programs::{PATIENT, Service};
use crate::Failure;
use crate::baseline::BaselineTransport;
use crate::harness::{ComparedQuantity, Group, MeasuredSubject, Progress, Variant};
use crate::options::BenchOptions;
use crate::orb::client::object;
use crate::placement::Placement;
use crate::report::Report;
use crate::sample::Samples;
use crate::targets::events as goals;

/// Type of the events that only the stopped consumer gets.
const FILLING: EventType = EventType(MEASURED.0 + 1);
const FILLING_OCTETS: usize = 64 << 10;
/// Maximum number of filling events, far above the room of a connection.
const MAX_FILLING: usize = 2_000;
/// Number of queued events that shows that the stopped consumer's connection is full.
const FULL: u64 = 16;
const SLOW: Duration = Duration::from_millis(1);

struct Beside {
    deliveries: Deliveries,
    /// The stopped consumer accepts connections and reads nothing.
    _stopped: Option<TcpListener>,
}

impl MeasuredSubject for Beside {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        self.deliveries.run(warm_up, count, into)
    }

    fn server_pid(&self) -> Option<u32> {
        self.deliveries.server_pid()
    }
}

fn connect_stopped(channel: &mut Channel) -> Result<TcpListener, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("the stopped consumer: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let url = format!("corbaloc::1.2@{}/Consumer", listener.local_addr().map_err(failed)?);
    let consumer = PushConsumerRef::unchecked_narrow(&object(&channel.orb, &url)?);
    let both = DependencySet::new().disjunction(2);
    let both = both.event(MEASURED, EventSource(SOURCE)).event(FILLING, EventSource(SOURCE));
    connect_consumer(&channel.rtec, &consumer, &both, 0)?;
    let supplier = connect_supplier(&channel.rtec, FILLING, 0)?;
    let events = [event(FILLING, FILLING_OCTETS)];
    for _ in 0..MAX_FILLING {
        supplier.push(&events)?;
        if channel.queued()? < FULL {
            continue;
        }
        // In this time the sender would empty the queue of a consumer that reads, so a queue that
        // stays full shows that the consumer has stopped.
        std::thread::sleep(Duration::from_millis(20));
        if channel.queued()? >= FULL {
            return Ok(listener);
        }
    }
    Err(Failure::new("the stopped consumer takes every event"))
}

/// Connects a consumer that keeps up. If `has_others` is true, a stopped and a slow consumer
/// connect before it. The process of the slow consumer has the placement `others`.
fn beside(has_others: bool, time: MeasuredTime, options: &BenchOptions, others: &Placement) -> Result<Beside, Failure> {
    let (transport, placement) = (BaselineTransport::Tcp, &options.placement);
    let mut channel = Channel::start(transport, PATIENT, placement)?;
    let (mut programs, mut stopped) = (Vec::new(), None);
    if has_others {
        // The measured consumer connects last, so that the channel serves the other consumers
        // before it.
        stopped = Some(connect_stopped(&mut channel)?);
        let slow = Consumers::silent(1, SLOW, others)?;
        channel.connect(&slow, 0)?;
        programs.push(slow.into_program());
    }
    let (measured, arrivals) = Consumers::reporting(transport, Service::Rtec, 1, placement)?;
    channel.connect(&measured, 0)?;
    programs.push(measured.into_program());
    Ok(Beside { deliveries: rtec_supplier(channel, 0, arrivals, programs)?.timing(time), _stopped: stopped })
}

/// Measures pushes and deliveries to a consumer alone, and beside a stopped and a slow one.
pub(super) fn stopped_and_slow(
    options: &BenchOptions,
    others: &Placement,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut values = Vec::new();
    for (time, op) in [(MeasuredTime::Push, "push"), (MeasuredTime::Delivery, "delivery")] {
        progress.show("events: filling the connection of the stopped consumer");
        let base = label("Corelane", "tcp", op, "no other consumer");
        let loaded = label("Corelane", "tcp", op, "beside a stopped and a slow consumer");
        let variants = vec![
            Variant {
                label: base.clone(),
                subject: Box::new(beside(false, time, options, others)?),
                against: Vec::new(),
            },
            Variant {
                label: loaded.clone(),
                subject: Box::new(beside(true, time, options, others)?),
                against: vec![0],
            },
        ];
        let title = format!("events: {op} beside other consumers");
        let group = Group { title, compare: ComparedQuantity::Median, variants };
        let figures = report.measure(group, &options.run_length, &options.placement, progress)?;
        let (Some(base), Some(loaded)) = (found(&figures, &base), found(&figures, &loaded)) else { continue };
        let ratio = loaded.summary.p99_us / base.summary.p99_us;
        let quantity = "p99 against no other consumer";
        values.push(judged(loaded, quantity, ratio, "x", goals::MAX_P99_RATIO_BESIDE_OTHERS));
    }
    report.add_values("events: goals beside a stopped and a slow consumer", &values)
}
