//! The benchmark `floods`, which measures the calls of clients that wait for each reply (*good
//! clients*), beside connections that send oneways without end, by dispatch architecture.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Duration;

use corelane::{CallPolicies, Orb, SyncScope};
use corelane_sys::{clock, thread};

use crate::Failure;
use crate::address::LOOPBACK;
use crate::client_group::ClientGroup;
use crate::harness::{ComparedQuantity, Figure, FigureLabel, Group, MeasuredSubject, Progress, RunLength, Variant};
use crate::launch::start_echo;
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client::{TwoWayCaller, target};
use crate::orb::generated::cubit::CountedTargetRef;
use crate::orb::{ServerArchitecture, client_orb, limits};
use crate::placement::{CoreChoice, Placement};
use crate::report::Report;
use crate::sample::Samples;
use crate::targets::floods as goals;
use crate::value::SingleValue;

const FLOODS: usize = 4;

const CLIENTS: usize = 4;

/// Number of oneways that each flood sends before the good clients call.
const FIRST: u64 = 2_000;

const MAX_CALLS: usize = 2_000;

pub(crate) fn floods(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let placement = apart(&options.placement);
    let RunLength { warm_up, count, repetitions } = options.run_length;
    let run_length = RunLength { warm_up: warm_up.min(MAX_CALLS / 10), count: count.min(MAX_CALLS), repetitions };
    let architectures = [
        ServerArchitecture::LeaderFollowers(options.threads),
        ServerArchitecture::HalfSync(options.threads),
        ServerArchitecture::PerConnection,
        ServerArchitecture::Reactive,
    ];
    let (mut variants, mut servers, mut sent) = (Vec::new(), Vec::new(), Vec::new());
    for architecture in architectures {
        let (server, reference) = start_echo(architecture, LOOPBACK, &placement)?;
        let flooded = Flooded::new(&reference, server.pid())?;
        sent.push(flooded.sent.clone());
        let alone = variants.len();
        variants.push(Variant {
            label: label(architecture, false),
            subject: Box::new(GoodClients::new(&reference, server.pid())?),
            against: Vec::new(),
        });
        // The first comparison is with the same server without floods; the second is with the first
        // architecture beside floods.
        let against = if alone == 0 { vec![0] } else { vec![alone, 1] };
        variants.push(Variant { label: label(architecture, true), subject: Box::new(flooded), against });
        servers.push(server);
    }
    let title = format!("floods: {CLIENTS} clients beside {FLOODS} connections of oneways, octet; {}", placement.cores);
    let group = Group { title, compare: ComparedQuantity::Median, variants };
    let figures = report.measure(group, &run_length, &placement, progress)?;
    report.add_values("floods: the clients beside floods", &values(&figures, &architectures, &sent))
}

fn apart(placement: &Placement) -> Placement {
    let CoreChoice::Shared(server) = placement.cores else { return *placement };
    let cores = thread::affinity(None).ok();
    let client = cores.and_then(|cores| cores.iter().find(|&core| core != server));
    Placement { cores: client.map_or(placement.cores, |client| CoreChoice::Separate(client, server)), ..*placement }
}

fn label(architecture: ServerArchitecture, has_floods: bool) -> FigureLabel {
    let beside = if has_floods { "beside floods" } else { "no other client" };
    let config = format!("{}, {beside}", architecture.config());
    FigureLabel {
        bench: "floods",
        peer: "Corelane",
        transport: "tcp",
        op: "octet".to_owned(),
        config,
        axis_point: None,
    }
}

fn values(figures: &[Figure], architectures: &[ServerArchitecture], sent: &[Arc<SentOneways>]) -> Vec<SingleValue> {
    let found = |architecture, has_floods| {
        let label = label(architecture, has_floods);
        figures.iter().find(move |figure| figure.label == label)
    };
    let first = architectures.first().and_then(|&first| found(first, true));
    let mut values = Vec::new();
    for (&architecture, sent) in architectures.iter().zip(sent) {
        let (Some(alone), Some(beside)) = (found(architecture, false), found(architecture, true)) else { continue };
        let mut value = |quantity: &str, value, unit, bound| {
            values.push(SingleValue { label: beside.label.clone(), quantity: quantity.to_owned(), value, unit, bound });
        };
        let (own, alone) = (beside.summary, alone.summary);
        value("median, over that without floods", own.p50_us / alone.p50_us, "x", None);
        value("p99, over that without floods", own.p99_us / alone.p99_us, "x", None);
        let is_half_sync = matches!(architecture, ServerArchitecture::HalfSync(_));
        if let Some(first) = first.filter(|_| architecture != architectures[0]) {
            let (first, name) = (first.summary, architectures[0].config());
            value(&format!("median, over {name}"), own.p50_us / first.p50_us, "x", None);
            let bound = is_half_sync.then_some(goals::MAX_HALF_SYNC_P99_RATIO);
            value(&format!("p99, over {name}"), own.p99_us / first.p99_us, "x", bound);
        }
        // The server is never idle, so its rate times the median time of a call is the number of
        // requests that it takes during the call.
        let requests = own.p50_us / 1e6 * (sent.per_second() + own.per_s);
        let bound = is_half_sync.then_some(goals::MAX_HALF_SYNC_REQUESTS);
        value("requests taken in a median call", requests, "", bound);
        value("oneways of all floods", sent.per_second(), "/s", None);
    }
    values
}

#[derive(Debug, Default)]
struct SentOneways {
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

impl SentOneways {
    fn per_second(&self) -> f64 {
        let seconds = self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9;
        self.count.load(Ordering::Relaxed) as f64 / seconds.max(1e-9)
    }
}

struct GoodClients {
    group: ClientGroup<TwoWayCaller>,
    _orb: Orb,
}

impl GoodClients {
    fn new(reference: &str, server: u32) -> Result<Self, Failure> {
        let orb = client_orb(CLIENTS)?;
        let caller = |_| Ok(TwoWayCaller { target: target(&orb, reference)?, operation: MeasuredOperation::Octet });
        let callers = (0..CLIENTS).map(caller).collect::<Result<Vec<_>, Failure>>()?;
        Ok(GoodClients { group: ClientGroup::new(callers, server), _orb: orb })
    }
}

impl MeasuredSubject for GoodClients {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        self.group.run(warm_up, count, into)
    }

    fn server_pid(&self) -> Option<u32> {
        self.group.server_pid()
    }
}

struct Flooded {
    clients: GoodClients,
    floods: Vec<Flood>,
    sent: Arc<SentOneways>,
}

impl Flooded {
    fn new(reference: &str, server: u32) -> Result<Self, Failure> {
        let floods = (0..FLOODS).map(|_| Flood::new(reference)).collect::<Result<_, Failure>>()?;
        Ok(Flooded { clients: GoodClients::new(reference, server)?, floods, sent: Arc::default() })
    }
}

impl MeasuredSubject for Flooded {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let (begun, end) = (AtomicUsize::new(0), AtomicBool::new(false));
        let Flooded { clients, floods, sent } = self;
        std::thread::scope(|scope| {
            let is_running = EndOnDrop(&end);
            let mut threads = Vec::with_capacity(FLOODS);
            for (number, flood) in floods.iter().enumerate() {
                let builder = Builder::new().name(format!("flood/{number}")).stack_size(256 * 1024);
                let thread = builder.spawn_scoped(scope, || flood.send(&begun, &end, sent));
                threads.push(thread.map_err(|error| Failure::new(format!("flood {number}: {error}")))?);
            }
            while begun.load(Ordering::Acquire) < FLOODS && !threads.iter().any(ScopedJoinHandle::is_finished) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let outcome = clients.run(warm_up, count, into);
            drop(is_running);
            for thread in threads {
                thread.join().map_err(|_| Failure::new("a flood's thread panicked"))??;
            }
            outcome
        })
    }

    fn server_pid(&self) -> Option<u32> {
        self.clients.server_pid()
    }
}

struct EndOnDrop<'e>(&'e AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A client with an ORB of its own, so that no other client shares its connection.
struct Flood {
    target: CountedTargetRef,
    _orb: Orb,
}

impl Flood {
    fn new(reference: &str) -> Result<Self, Failure> {
        let orb = Orb::builder().limits(limits()).max_connections_per_server(1).build();
        let orb = orb.map_err(|error| Failure::new(error.to_string()))?;
        let policies = CallPolicies { sync_scope: Some(SyncScope::None), ..CallPolicies::NONE };
        Ok(Flood { target: target(&orb, reference)?.with_policies(policies), _orb: orb })
    }

    fn send(&self, begun: &AtomicUsize, end: &AtomicBool, sent: &SentOneways) -> Result<(), Failure> {
        let began = clock::now();
        let mut count = 0;
        while !end.load(Ordering::Acquire) {
            self.target.take_octet(7)?;
            count += 1;
            if count == FIRST {
                begun.fetch_add(1, Ordering::Release);
            }
        }
        self.target.echo_nothing()?;
        sent.count.fetch_add(count, Ordering::Relaxed);
        // The floods send concurrently, so each adds its share of the elapsed time.
        let nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX) / FLOODS as u64;
        sent.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floods_use_two_cores_if_permitted() {
        let cores: Vec<usize> = thread::affinity(None).unwrap().iter().collect();
        let (first, last) = (cores[0], *cores.last().unwrap());
        let of = |cores| apart(&Placement { cores, scheduling: None }).cores;
        let expected = if first == last { CoreChoice::Shared(last) } else { CoreChoice::Separate(first, last) };
        assert_eq!(of(CoreChoice::Shared(last)), expected);
        for chosen in [CoreChoice::Any, CoreChoice::Separate(last, first)] {
            assert_eq!(of(chosen), chosen);
        }
    }

    #[test]
    fn floods_end_with_the_turn_and_are_counted() {
        let orb = crate::orb::server::start_orb(ServerArchitecture::LeaderFollowers(2), LOOPBACK).unwrap();
        let servant = crate::orb::generated::cubit::CountedTarget::servant(crate::orb::servant::Echo);
        let reference = orb.root_poa().activate(&servant).unwrap().to_string();
        orb.root_poa().manager().activate().unwrap();
        let mut flooded = Flooded::new(&reference, std::process::id()).unwrap();
        let mut samples = Samples::with_capacity(8);
        for turn in 1..=2 {
            flooded.run(0, 4, &mut samples).unwrap();
            assert_eq!(samples.len(), 4 * turn);
            assert!(flooded.sent.count.load(Ordering::Relaxed) >= FLOODS as u64 * FIRST * turn as u64);
        }
        orb.shutdown(true).unwrap();
        assert!(flooded.run(0, 4, &mut samples).is_err());
    }
}
