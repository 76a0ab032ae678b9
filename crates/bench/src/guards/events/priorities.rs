//! A consumer that gets events at 20 Hz, beside suppliers of lower priority.

use std::sync::Arc;
use std::time::Duration;

use corelane::Orb;
use corelane::rt::RtOrb;
use corelane_services::events::rtec_event_comm::{Event, PushConsumerRef};
use corelane_services::events::{DependencySet, EventSource, EventType};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::thread::Scheduling;

use super::connections::{MEASURED, PAYLOAD, SOURCE, connect_consumer, connect_supplier, event};
use super::figures::{label, point};
use super::processes::{Channel, Consumers, Deliveries, rtec_supplier};
use super::programs::Service;
use crate::Failure;
use crate::baseline::BaselineTransport;
use crate::client_group::GroupClient;
use crate::harness::{ComparedQuantity, Figure, FigureLabel, Progress};
use crate::idle::BusyCores;
use crate::options::{BenchOptions, Depth};
use crate::orb::client::object;
use crate::orb::{levels, prioritized_orb};
use crate::papers::mt::load_mix::{BackgroundClient, CallPace, LoadMix, Observations};
use crate::placement::{Placement, permits_fixed_priorities};
use crate::report::Report;
use crate::sample::{Samples, time_calls};
use crate::targets::events as goals;
use crate::value::SingleValue;

const PERIOD: Duration = Duration::from_millis(50);
const LOW_PERIOD: Duration = Duration::from_millis(100);
/// `rt_info` of the measured events and of their lane.
const FAST: i32 = 20;
/// `rt_info` of the events of the low suppliers, and of their lane.
const SLOW: i32 = 10;
/// Native and CORBA priority of the measured events, of their supplier and of their consumer. The
/// channel receives them in a lane of this priority.
const TOP: u8 = levels::LEVELS;
const LOWEST: u8 = 1;
const LOW_EVENT: EventType = EventType(MEASURED.0 + 1);

struct ThreadPriority {
    orb: RtOrb,
    /// Priority that the thread takes before its next call; `None` after the thread has taken its
    /// priority.
    pending: Option<i16>,
}

impl ThreadPriority {
    fn new(orb: &RtOrb, priority: u8) -> Self {
        ThreadPriority { orb: orb.clone(), pending: Some(priority.into()) }
    }

    fn enter(&mut self) -> Result<(), Failure> {
        match self.pending.take() {
            Some(priority) => Ok(self.orb.current()?.set_priority(priority)?),
            None => Ok(()),
        }
    }
}

/// A supplier that several runs use, one after the other.
struct FastSupplier {
    deliveries: Arc<Mutex<Deliveries>>,
    priority: ThreadPriority,
}

impl GroupClient for FastSupplier {
    fn calls(&mut self, count: usize, into: &mut Samples) -> Result<(), Failure> {
        self.priority.enter()?;
        let mut deliveries = self.deliveries.lock();
        for _ in 0..count {
            into.push(deliveries.deliver()?);
        }
        Ok(())
    }
}

struct LowSupplier {
    proxy: PushConsumerRef,
    priority: ThreadPriority,
    events: [Event; 1],
}

impl GroupClient for LowSupplier {
    fn calls(&mut self, count: usize, into: &mut Samples) -> Result<(), Failure> {
        self.priority.enter()?;
        time_calls(count, into, || self.proxy.push(&self.events)).map(drop)?;
        Ok(())
    }
}

fn class(priority: u8) -> Scheduling {
    if permits_fixed_priorities() { Scheduling::Fifo(priority) } else { Scheduling::Other }
}

fn counts(depth: Depth) -> (&'static [usize], usize) {
    match depth {
        Depth::Quick => (&[5, 500], 40),
        Depth::Usual => (&[5, 50, 500], 100),
        Depth::Full => (&[1, 5, 20, 50, 100, 500], 400),
    }
}

/// A channel with a lane for the measured events, and a lane for all other events.
struct Scene {
    fast: Arc<Mutex<Deliveries>>,
    low: Vec<PushConsumerRef>,
    channel: u32,
    placement: Placement,
    others: Placement,
    /// The ORB of the low suppliers, which must live as long as their connections.
    low_orb: Orb,
    fast_orb: RtOrb,
}

impl Scene {
    fn start(suppliers: usize, others: &Placement, options: &BenchOptions) -> Result<Self, Failure> {
        let at = |priority| Placement { scheduling: Some(class(priority)), ..options.placement };
        let lanes = format!("{FAST}:{TOP},{SLOW}:{LOWEST}");
        let channel = Channel::start_with_lanes(&lanes, &at(TOP))?;
        let (measured, arrivals) = Consumers::reporting(BaselineTransport::Tcp, Service::Rtec, 1, &at(TOP))?;
        channel.connect(&measured, FAST)?;
        let silent = Consumers::silent(1, Duration::ZERO, &at(LOWEST))?;
        let low_events = DependencySet::new().event(LOW_EVENT, EventSource(SOURCE));
        for reference in &silent.references {
            let consumer = PushConsumerRef::unchecked_narrow(&object(&channel.orb, reference)?);
            connect_consumer(&channel.rtec, &consumer, &low_events, SLOW)?;
        }
        // Suppliers of different priorities share no connection.
        let low_orb = prioritized_orb(suppliers)?;
        let low = (0..suppliers).map(|_| {
            let proxy = connect_supplier(&channel.rtec, LOW_EVENT, SLOW)?;
            Ok(PushConsumerRef::unchecked_narrow(&object(&low_orb, &proxy.to_string())?))
        });
        let low = low.collect::<Result<Vec<_>, Failure>>()?;
        let (pid, fast_orb) = (channel.program.pid(), channel.orb.real_time());
        let programs = vec![measured.into_program(), silent.into_program()];
        let fast = rtec_supplier(channel, FAST, arrivals, programs)?;
        let fast = Arc::new(Mutex::new("the fast supplier", LockScope::Orb, fast));
        Ok(Scene { fast, low, channel: pid, placement: options.placement, others: *others, low_orb, fast_orb })
    }

    fn run(&self, suppliers: usize, deliveries: usize, seen: &mut Observations) -> Result<(), Failure> {
        let low = self.low.iter().take(suppliers).enumerate();
        let others = low.map(|(number, proxy)| {
            let level = TOP - 1 - (number % usize::from(TOP - 1)) as u8;
            let (proxy, priority) = (proxy.clone(), ThreadPriority::new(&self.low_orb.real_time(), level));
            BackgroundClient {
                member: Box::new(LowSupplier { proxy, priority, events: [event(LOW_EVENT, PAYLOAD)] }),
                scheduling: class(level),
                pace: CallPace::Every(LOW_PERIOD),
            }
        });
        let others = others.collect();
        let load = LoadMix {
            high: Box::new(FastSupplier {
                deliveries: Arc::clone(&self.fast),
                priority: ThreadPriority::new(&self.fast_orb, TOP),
            }),
            scheduling: class(TOP),
            period: PERIOD,
            calls: deliveries,
            placement: self.placement,
            others: self.others,
            server: self.channel,
        };
        load.run(others, seen)
    }
}

fn named(suppliers: usize) -> FigureLabel {
    let config = format!("beside {suppliers} suppliers of lower priority");
    point(label("Corelane", "tcp", "delivery", config), "20 Hz consumer", "suppliers", suppliers)
}

/// Measures deliveries at 20 Hz beside 0 to 500 suppliers at 10 Hz, which have the placement
/// `others`. The kernel wakes each supplier by an interrupt, which delays threads of every priority
/// on the same core.
pub(super) fn beside_low_suppliers(
    options: &BenchOptions,
    others: &Placement,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let (suppliers, deliveries) = counts(options.depth);
    let deliveries = options.requested.count.map_or(deliveries, |count| count.min(deliveries));
    let most = suppliers.iter().copied().max().unwrap_or(0);
    progress.show("events: connecting the suppliers of lower priority");
    let scene = Scene::start(most, others, options)?;
    let busy = BusyCores::start(&options.placement)?;
    let mut alone: Vec<Observations> = suppliers.iter().map(|_| Observations::default()).collect();
    let mut beside: Vec<Observations> = suppliers.iter().map(|_| Observations::default()).collect();
    for repetition in 0..options.run_length.repetitions {
        for ((&count, alone), beside) in suppliers.iter().zip(&mut alone).zip(&mut beside) {
            let turn = repetition + 1;
            progress.show(&format!("events: {count} suppliers ({turn} of {})", options.run_length.repetitions));
            scene.run(0, deliveries, alone)?;
            scene.run(count, deliveries, beside)?;
        }
    }
    drop(busy);
    progress.clear();
    let mut all_alone = Observations::default();
    alone.iter().for_each(|alone| all_alone.add(alone));
    let first = named(0);
    let mut figures: Vec<Figure> = all_alone.high.figure(first.clone(), &all_alone, &[]).into_iter().collect();
    let mut values = Vec::new();
    for ((&count, alone), beside) in suppliers.iter().zip(&alone).zip(&beside) {
        let against = [(&first, &alone.high)];
        let Some(figure) = beside.high.figure(named(count), beside, &against) else { continue };
        if let Some(alone) = alone.high.summary() {
            values.push(SingleValue {
                label: figure.label.clone(),
                quantity: "p99 against no other supplier".to_owned(),
                value: figure.summary.p99_us / alone.p99_us,
                unit: "x",
                bound: Some(goals::MAX_P99_RATIO_BESIDE_SUPPLIERS),
            });
        }
        figures.push(figure);
    }
    let class = if permits_fixed_priorities() { "SCHED_FIFO" } else { "SCHED_OTHER" };
    let title = format!("events: a 20 Hz consumer beside suppliers of lower priority, {class}");
    report.add_figures(&title, ComparedQuantity::Median, &figures)?;
    report.add_values("events: goals beside suppliers of lower priority", &values)
}
