//! The benchmark `cpu`, which measures the processor time that ORB and kernel need for a call
//! between two threads of one process.
//!
//! As in the papers, client and server are two ORBs of one process on one core, and the calls go
//! through sockets.
//!
//! A thread of lower priority, the *scavenger*, takes all remaining processor time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corelane::Orb;
use corelane_sys::clock;
use corelane_sys::thread::{self, CpuSet, JoinHandle, Scheduling, ThreadBuilder, Tid};

use crate::Failure;
use crate::address::LOOPBACK;
use crate::harness::{ComparedQuantity, Figure, FigureLabel, Group, MeasuredSubject, Progress, RunLength, Variant};
use crate::options::{BenchOptions, Depth};
use crate::orb::client::target;
use crate::orb::generated::cubit::{CountedTarget, CountedTargetRef};
use crate::orb::servant::{Echo, compute};
use crate::orb::server::start_orb;
use crate::orb::{ServerArchitecture, client_orb};
use crate::placement::{CoreChoice, Placement, Side};
use crate::report::Report;
use crate::sample::Samples;
use crate::value::SingleValue;

/// Number of calls between two readings of the clock, for very short calls.
const BATCH: usize = 100;

/// Total time of the calls after which the calling thread pauses.
const SLICE: Duration = Duration::from_millis(20);

const WORK: Duration = Duration::from_micros(100);

#[derive(Clone)]
enum CallPath {
    Reference(CountedTargetRef),
    Virtual(Arc<dyn CountedTarget>),
}

impl CallPath {
    #[inline]
    fn call(&self, rounds: u32) -> Result<(), Failure> {
        let octet = match (self, rounds) {
            (CallPath::Reference(target), 0) => target.echo_octet(7)?,
            (CallPath::Virtual(servant), 0) => std::hint::black_box(servant).echo_octet(7)?,
            (CallPath::Reference(target), rounds) => return Ok(target.work(rounds).map(|_| ())?),
            (CallPath::Virtual(servant), rounds) => return Ok(servant.work(rounds).map(|_| ())?),
        };
        if octet == 7 { Ok(()) } else { Err(Failure::new("the reply is not what was sent")) }
    }
}

struct Sliced {
    way: CallPath,
    rounds: u32,
    batch: usize,
    scavenger: Option<Tid>,
    seen: CpuTimes,
}

impl Sliced {
    /// Makes at most `count` calls, in batches, until they have taken [`SLICE`]. Returns the time
    /// of the calls, without the time in which results are recorded.
    fn slice(&self, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let (mut whole, mut made) = (Duration::ZERO, 0);
        while made < count && whole <= SLICE {
            let batch = self.batch.min(count - made);
            let began = clock::now();
            for _ in 0..batch {
                self.way.call(self.rounds)?;
            }
            let took = began.elapsed();
            let each = (took.as_nanos() as u64 + batch as u64 / 2) / batch as u64;
            (0..batch).for_each(|_| into.push(each));
            whole += took;
            made += batch;
        }
        Ok(whole)
    }
}

impl MeasuredSubject for Sliced {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        for _ in 0..warm_up {
            self.way.call(self.rounds)?;
        }
        let (first, mut whole) = (into.len(), Duration::ZERO);
        while into.len() - first < count {
            let before = self.scavenger.and_then(ran);
            let left = count - (into.len() - first);
            let took = self.slice(left, into)?;
            if let (Some(thread), Some(before)) = (self.scavenger, before) {
                self.seen.add(ran(thread).unwrap_or(before), before);
            }
            whole += took;
            std::thread::sleep(took / 8);
        }
        self.seen.calls.fetch_add(count as u64, Ordering::Relaxed);
        Ok(whole)
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}

#[derive(Clone, Default)]
struct CpuTimes {
    times: Arc<AtomicU64>,
    nanoseconds: Arc<AtomicU64>,
    calls: Arc<AtomicU64>,
}

impl CpuTimes {
    fn add(&self, now: ThreadRunTime, before: ThreadRunTime) {
        self.times.fetch_add(now.times.saturating_sub(before.times), Ordering::Relaxed);
        self.nanoseconds.fetch_add(now.nanoseconds.saturating_sub(before.nanoseconds), Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ThreadRunTime {
    nanoseconds: u64,
    times: u64,
}

/// Returns the processor time of a thread of this process; `None` if the kernel lacks
/// CONFIG_SCHED_INFO.
fn ran(thread: Tid) -> Option<ThreadRunTime> {
    let file = format!("/proc/self/task/{}/schedstat", thread.as_raw());
    std::fs::read_to_string(file).ok().as_deref().and_then(read_ran)
}

/// Parses the schedstat file of a thread: nanoseconds on a core, nanoseconds waiting for a core,
/// and the number of times that the thread was scheduled.
fn read_ran(text: &str) -> Option<ThreadRunTime> {
    let mut numbers = text.split_whitespace().map(str::parse);
    let (nanoseconds, _, times) = (numbers.next()?.ok()?, numbers.next()?, numbers.next()?.ok()?);
    Some(ThreadRunTime { nanoseconds, times })
}

struct Scavenger {
    id: Tid,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Scavenger {
    fn start(core: usize) -> Result<Self, Failure> {
        let (stop, id) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::new()));
        let (shared, told) = (stop.clone(), id.clone());
        let builder =
            ThreadBuilder::new().name("bench/scavenger").affinity(CpuSet::one(core)).scheduling(Scheduling::Other);
        let thread = builder.spawn(move || {
            told.get_or_init(thread::current_tid);
            while !shared.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let thread = thread.map_err(|error| Failure::new(format!("the scavenger cannot be started: {error}")))?;
        Ok(Scavenger { id: *id.wait(), stop, thread: Some(thread) })
    }

    fn seen(self) -> Result<Self, Failure> {
        match ran(self.id) {
            Some(_) => Ok(self),
            None => Err(Failure::new(
                "the scavenger thread: the kernel does not report how often a thread runs (schedstat)",
            )),
        }
    }
}

impl Drop for Scavenger {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn cpu(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let core = match options.placement.cores {
        CoreChoice::Shared(core) | CoreChoice::Separate(core, _) => core,
        CoreChoice::Any => thread::affinity(None).ok().and_then(|set| set.iter().last()).unwrap_or(0),
    };
    let fifo = match options.placement.scheduling {
        Some(class) => Some(class),
        None => {
            ThreadBuilder::new().scheduling(Scheduling::Fifo(20)).spawn(|| ()).is_ok().then_some(Scheduling::Fifo(20))
        }
    };
    let placement = Placement { cores: CoreChoice::Shared(core), scheduling: fifo };
    let scavenger = match fifo {
        Some(Scheduling::Fifo(_) | Scheduling::RoundRobin(_)) => Scavenger::start(core).and_then(Scavenger::seen),
        _ => {
            Err(Failure::new("the scavenger thread: fixed priorities are not permitted, so no thread runs below them"))
        }
    };
    let scavenger = report.or_report_missing("cpu", "floor", scavenger)?;
    let rounds = rounds_for(WORK);
    for (rounds, work) in [(0, "no work"), (rounds, "100 us of work")] {
        // Threads of an ORB inherit cores and class from the thread that creates them, so a placed
        // thread creates the ORBs.
        let orbs = placement.run(Side::Server, orbs).map_err(|error| Failure::new(error.to_string()))??;
        let below = scavenger.as_ref().map(|scavenger| scavenger.id);
        let (mut variants, seen) = orbs.variants(rounds, work, below)?;
        variants.iter_mut().skip(1).for_each(|variant| variant.against = vec![0]);
        let group = Group {
            title: format!("cpu, servant with {work}, client and server in one process"),
            compare: ComparedQuantity::Median,
            variants,
        };
        let figures = report.measure(group, &run_length(options, rounds), &placement, progress)?;
        let mut values = overhead(&figures, &seen, scavenger.is_some());
        if rounds == 0 {
            values.extend(over_virtual(&figures));
        }
        report.add_values(&format!("cpu overhead, servant with {work}"), &values)?;
    }
    Ok(())
}

/// Returns the length of a turn. At the full depth, a turn without work has 1,000,000 calls unless
/// a number is requested, so that ten turns have the papers' 10,000,000 calls. A turn with work has
/// at most 2,000 calls.
fn run_length(options: &BenchOptions, rounds: u32) -> RunLength {
    let asked = options.run_length;
    match (options.depth, rounds) {
        (Depth::Full, 0) if options.requested.count.is_none() => RunLength { count: 1_000_000, ..asked },
        (_, 0) => asked,
        _ => RunLength { count: asked.count.min(2000), warm_up: asked.warm_up.min(200), ..asked },
    }
}

/// Returns the number of rounds for which [`compute`] takes about `time` on this machine.
pub(crate) fn rounds_for(time: Duration) -> u32 {
    const TRIED: u32 = 200_000;
    let least = (0..5).map(|_| {
        let began = clock::now();
        std::hint::black_box(compute(std::hint::black_box(TRIED)));
        began.elapsed()
    });
    let least = least.min().unwrap_or(time).as_secs_f64().max(1e-9);
    (f64::from(TRIED) * time.as_secs_f64() / least).max(1.0) as u32
}

struct Orbs {
    servers: Vec<(ServerArchitecture, Orb, String)>,
    client: Orb,
    servant: Arc<dyn CountedTarget>,
}

fn orbs() -> Result<Orbs, Failure> {
    let mut servers = Vec::new();
    for architecture in [ServerArchitecture::PerConnection, ServerArchitecture::LeaderFollowers(1)] {
        let orb = start_orb(architecture, LOOPBACK)?;
        let poa = orb.root_poa();
        let failed = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
        let id = poa.activate_object(&CountedTarget::servant(Echo)).map_err(|error| failed(&error))?;
        poa.manager().activate().map_err(|error| failed(&error))?;
        let text = poa.id_to_reference(&id).map_err(|error| failed(&error))?.to_string();
        servers.push((architecture, orb, text));
    }
    let client = client_orb(0)?;
    Ok(Orbs { servers, client, servant: Arc::new(Echo) })
}

impl Orbs {
    /// Returns the variants, and for each the scavenger's run times during its calls. The first
    /// variant, the virtual call, is the baseline.
    fn variants(
        &self,
        rounds: u32,
        work: &str,
        scavenger: Option<Tid>,
    ) -> Result<(Vec<Variant>, Vec<CpuTimes>), Failure> {
        let mut ways = vec![("virtual call".to_owned(), "none", CallPath::Virtual(self.servant.clone()), BATCH)];
        if let Some((_, orb, text)) = self.servers.first() {
            let collocated: CountedTargetRef = orb.string_to_reference(text)?;
            let direct = CountedTargetRef::from_object(collocated.as_object().with_poa_bypass());
            ways.push(("collocated".to_owned(), "none", CallPath::Reference(collocated), BATCH));
            ways.push(("collocated, past the POA".to_owned(), "none", CallPath::Reference(direct), BATCH));
        }
        for (architecture, _, text) in &self.servers {
            let remote = target(&self.client, text)?;
            ways.push((architecture.config(), "tcp", CallPath::Reference(remote), 1));
        }
        let mut seen = Vec::new();
        let variants = ways.into_iter().map(|(config, transport, way, batch)| {
            let counts = CpuTimes::default();
            seen.push(counts.clone());
            let batch = if rounds == 0 { batch } else { 1 };
            Variant {
                label: FigureLabel {
                    bench: "cpu",
                    peer: "Corelane",
                    transport,
                    op: work.to_owned(),
                    config,
                    axis_point: None,
                },
                subject: Box::new(Sliced { way, rounds, batch, scavenger, seen: counts }),
                against: Vec::new(),
            }
        });
        let variants = variants.collect();
        Ok((variants, seen))
    }
}

/// Maximum nanoseconds by which a collocated call may exceed the call of a virtual function:
/// through the POA, and past the POA.
const GOALS: [f64; 2] = [60.0, 5.0];

fn over_virtual(figures: &[Figure]) -> Vec<SingleValue> {
    let Some((called, others)) = figures.split_first() else { return Vec::new() };
    let over = |(figure, goal): (&Figure, f64)| SingleValue {
        label: figure.label.clone(),
        quantity: "over a virtual function".to_owned(),
        value: (figure.summary.p50_us - called.summary.p50_us) * 1e3,
        unit: "ns",
        bound: Some(goal),
    };
    others.iter().zip(GOALS).map(over).collect()
}

fn deviation(values: &[f64]) -> f64 {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()
}

/// Compares each call through a transport with the collocated call, which is the second figure.
/// With `watched`, also returns how often and how long the scavenger ran.
fn overhead(figures: &[Figure], seen: &[CpuTimes], watched: bool) -> Vec<SingleValue> {
    let mut values = Vec::new();
    let Some(collocated) = figures.get(1) else { return values };
    for (figure, seen) in figures.iter().zip(seen) {
        let mut add = |quantity: &str, value: f64, unit: &'static str| {
            values.push(SingleValue {
                label: figure.label.clone(),
                quantity: quantity.to_owned(),
                value,
                unit,
                bound: None,
            });
        };
        let (ours, theirs) = (figure.summary.mean_us, collocated.summary.mean_us);
        if figure.label.transport != "none" {
            add("over a collocated call", ours - theirs, "us");
            add("overhead", (ours - theirs) / theirs * 100.0, "%");
            let repetitions = figure.medians_us.iter().zip(&collocated.medians_us);
            let overheads: Vec<f64> = repetitions.map(|(ours, theirs)| (ours - theirs) / theirs * 100.0).collect();
            add("overhead, sd of repetitions", deviation(&overheads), "%");
        }
        let number = |of: &AtomicU64| of.load(Ordering::Relaxed) as f64;
        let calls = number(&seen.calls);
        if watched && calls > 0.0 {
            add("scavenger ran per 100 calls", number(&seen.times) * 100.0 / calls, "");
            add("scavenger's time per call", number(&seen.nanoseconds) / 1e3 / calls, "us");
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_path_is_timed_and_compared() {
        let orbs = orbs().unwrap();
        let (mut variants, seen) = orbs.variants(0, "no work", None).unwrap();
        assert_eq!(variants.len(), 5);
        for variant in &mut variants {
            let mut samples = Samples::with_capacity(250);
            variant.subject.run(5, 250, &mut samples).unwrap();
            assert_eq!(samples.len(), 250, "{}", variant.label.config);
        }
        assert!(seen.iter().all(|seen| seen.calls.load(Ordering::Relaxed) == 250));
        let (variants, _) = orbs.variants(10, "work", None).unwrap();
        for mut variant in variants {
            variant.subject.run(0, 3, &mut Samples::with_capacity(3)).unwrap();
        }
    }

    #[test]
    fn standard_deviation_of_repetitions_is_that_of_a_population() {
        assert_eq!((deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), deviation(&[])), (2.0, 0.0));
    }

    #[test]
    fn scavenger_runs_on_an_idle_core_and_ends_on_drop() {
        let core = thread::affinity(None).unwrap().iter().last().unwrap();
        let scavenger = Scavenger::start(core).unwrap();
        let (id, stop) = (scavenger.id, scavenger.stop.clone());
        while ran(id).unwrap() == ThreadRunTime::default() {
            std::thread::yield_now();
        }
        drop(scavenger);
        assert_eq!(Arc::strong_count(&stop), 1);
    }

    #[test]
    fn full_depth_makes_the_papers_calls_unless_a_number_is_given() {
        let of = |line: &str| {
            let options = BenchOptions::parse(line.split_whitespace().map(std::ffi::OsString::from)).unwrap();
            let run_length = run_length(&options, 0);
            run_length.count * run_length.repetitions
        };
        assert_eq!((of("--full"), of("--full --count 30 --repetitions 2")), (10_000_000, 60));
    }

    #[test]
    fn run_time_of_a_thread_is_parsed() {
        assert_eq!(read_ran("1200 3400 5\n"), Some(ThreadRunTime { nanoseconds: 1200, times: 5 }));
        assert_eq!(read_ran("1200 3400"), None);
        let seen = CpuTimes::default();
        seen.add(ThreadRunTime { nanoseconds: 9, times: 4 }, ThreadRunTime { nanoseconds: 5, times: 3 });
        assert_eq!((seen.nanoseconds.load(Ordering::Relaxed), seen.times.load(Ordering::Relaxed)), (4, 1));
    }
}
