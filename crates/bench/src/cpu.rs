//! The benchmark `cpu`: what an ORB and the system beneath it take for a call between two threads of one process, over the same call within a thread.
//!
//! Client and server are one process, as in the papers: two ORBs on one core, so that calls between them go through sockets, and the same object
//! called collocated and as a plain virtual function. Below them runs a *scavenger*, a thread of lower priority that counts how often it comes to
//! run: never, if the system obeys priorities. The papers' percentage is that of a servant that computes for a while; without any work the figure that matters
//! is the difference itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use corelane::Orb;
use corelane_sys::clock;
use corelane_sys::thread::{self, Builder, CpuSet, JoinHandle, Scheduling};

use crate::Failure;
use crate::harness::{Compare, Extent, Figure, Group, Label, Progress, Subject, Variant, measure};
use crate::options::{Depth, Options};
use crate::orb::client::target;
use crate::orb::generated::cubit::{CountedTarget, CountedTargetRef};
use crate::orb::servant::{Echo, compute};
use crate::orb::server::{LOOPBACK, start};
use crate::orb::{Architecture, client_orb};
use crate::placement::{Cores, Placement, Side};
use crate::report::{Report, Value};
use crate::sample::Samples;

/// Calls between two readings of the clock, where a call takes less than a reading.
const BATCH: usize = 100;

/// Threads of fixed priority run at most for so long and rest for an eighth of it: others have their share of the core.
const SLICE: Duration = Duration::from_millis(20);

/// What a servant computes in the variants with work.
const WORK: Duration = Duration::from_micros(100);

/// How an object is called.
#[derive(Clone)]
enum Way {
    /// Through a reference: sockets, or within the process, as the reference says.
    Reference(CountedTargetRef),
    /// The servant itself.
    Virtual(Arc<dyn CountedTarget>),
}

impl Way {
    #[inline]
    fn call(&self, rounds: u32) -> Result<(), Failure> {
        let octet = match (self, rounds) {
            (Way::Reference(target), 0) => target.echo_octet(7)?,
            (Way::Virtual(servant), 0) => std::hint::black_box(servant).echo_octet(7)?,
            (Way::Reference(target), rounds) => return Ok(target.work(rounds).map(|_| ())?),
            (Way::Virtual(servant), rounds) => return Ok(servant.work(rounds).map(|_| ())?),
        };
        if octet == 7 { Ok(()) } else { Err(Failure::new("the reply is not what was sent")) }
    }
}

/// Calls in slices, while the scavenger is watched.
struct Sliced {
    way: Way,
    rounds: u32,
    batch: usize,
    scavenger: Option<Arc<Watch>>,
    /// Times that the scavenger ran during calls, and calls.
    seen: Arc<(AtomicU64, AtomicU64)>,
}

/// What the scavenger and the measuring thread share.
struct Watch {
    measuring: AtomicBool,
    rounds: AtomicU64,
    stop: AtomicBool,
}

impl Sliced {
    fn slice(&self, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let began = clock::now();
        let mut last = began;
        let mut made = 0;
        while made < count {
            let batch = self.batch.min(count - made);
            for _ in 0..batch {
                self.way.call(self.rounds)?;
            }
            let now = clock::now();
            let each = (now.as_nanos() - last.as_nanos()) / batch as u64;
            (0..batch).for_each(|_| into.push(each));
            last = now;
            made += batch;
            if now - began > SLICE {
                break;
            }
        }
        Ok(last - began)
    }
}

impl Subject for Sliced {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        for _ in 0..warm_up {
            self.way.call(self.rounds)?;
        }
        let (first, mut whole) = (into.len(), Duration::ZERO);
        while into.len() - first < count {
            let before = self.scavenger.as_ref().map(|watch| {
                watch.measuring.store(true, Ordering::SeqCst);
                watch.rounds.load(Ordering::SeqCst)
            });
            let left = count - (into.len() - first);
            let took = self.slice(left, into);
            if let (Some(watch), Some(before)) = (&self.scavenger, before) {
                watch.measuring.store(false, Ordering::SeqCst);
                let ran = watch.rounds.load(Ordering::SeqCst) - before;
                self.seen.0.fetch_add(ran, Ordering::Relaxed);
            }
            let took = took?;
            whole += took;
            std::thread::sleep(took / 8);
        }
        self.seen.1.fetch_add(count as u64, Ordering::Relaxed);
        Ok(whole)
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}

/// The thread below. Ends with its handle.
struct Scavenger {
    watch: Arc<Watch>,
    thread: Option<JoinHandle<()>>,
}

impl Scavenger {
    fn start(core: usize) -> Result<Self, Failure> {
        let watch = Arc::new(Watch {
            measuring: AtomicBool::new(false),
            rounds: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let shared = watch.clone();
        let builder = Builder::new().name("bench/scavenger").affinity(CpuSet::one(core)).scheduling(Scheduling::Other);
        let thread = builder.spawn(move || {
            while !shared.stop.load(Ordering::Relaxed) {
                if shared.measuring.load(Ordering::SeqCst) {
                    shared.rounds.fetch_add(1, Ordering::SeqCst);
                }
                (0..100).for_each(|_| std::hint::spin_loop());
            }
        });
        let thread = thread.map_err(|error| Failure::new(format!("the scavenger cannot be started: {error}")))?;
        Ok(Scavenger { watch, thread: Some(thread) })
    }
}

impl Drop for Scavenger {
    fn drop(&mut self) {
        self.watch.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing that can panic.
            let _ = thread.join();
        }
    }
}

/// Without work, then with.
pub(crate) fn cpu(options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let core = match options.placement.cores {
        Cores::One(core) | Cores::Two(core, _) => core,
        Cores::Any => thread::affinity(None).ok().and_then(|set| set.iter().last()).unwrap_or(0),
    };
    let fifo = match options.placement.scheduling {
        Some(class) => Some(class),
        None => Builder::new().scheduling(Scheduling::Fifo(20)).spawn(|| ()).is_ok().then_some(Scheduling::Fifo(20)),
    };
    let placement = Placement { cores: Cores::One(core), scheduling: fifo };
    let scavenger = match fifo {
        Some(Scheduling::Fifo(_) | Scheduling::RoundRobin(_)) => Some(Scavenger::start(core)?),
        _ => {
            report.missing(
                "cpu",
                "floor",
                "the scavenger thread: fixed priorities are not permitted, so nothing is below",
            )?;
            None
        }
    };
    let rounds = rounds_for(WORK);
    for (rounds, work) in [(0, "no work"), (rounds, "100 us of work")] {
        // Threads of the ORBs inherit core and class from the thread that makes them.
        let orbs = placement.run(Side::Server, orbs).map_err(|error| Failure::new(error.to_string()))??;
        let watch = scavenger.as_ref().map(|scavenger| scavenger.watch.clone());
        let (mut variants, seen) = orbs.variants(rounds, work, watch)?;
        variants.iter_mut().skip(1).for_each(|variant| variant.against = vec![0]);
        let mut group = Group {
            title: format!("cpu, servant with {work}, client and server in one process"),
            compare: Compare::Median,
            variants,
        };
        let figures = measure(&mut group, &extent(options, rounds), &placement, progress)?;
        report.figures(&group.title, group.compare, &figures)?;
        report.values(&format!("cpu overhead, servant with {work}"), &overhead(&figures, &seen))?;
    }
    Ok(())
}

/// The papers' 10,000,000 calls in the full form.
fn extent(options: &Options, rounds: u32) -> Extent {
    let asked = options.extent;
    match (options.depth, rounds) {
        (Depth::Full, 0) => Extent { count: 1_000_000, ..asked },
        (_, 0) => asked,
        _ => Extent { count: asked.count.min(2000), warm_up: asked.warm_up.min(200), ..asked },
    }
}

/// So many rounds of computing take about so long here.
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

/// Two servers, a client, and the servant itself.
struct Orbs {
    servers: Vec<(Architecture, Orb, String)>,
    client: Orb,
    servant: Arc<dyn CountedTarget>,
}

fn orbs() -> Result<Orbs, Failure> {
    let mut servers = Vec::new();
    for architecture in [Architecture::PerConnection, Architecture::LeaderFollowers(1)] {
        let orb = start(architecture, LOOPBACK)?;
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

/// Rounds of the scavenger, and calls.
type Seen = Arc<(AtomicU64, AtomicU64)>;

impl Orbs {
    /// The baseline first: the virtual function.
    fn variants(
        &self,
        rounds: u32,
        work: &str,
        watch: Option<Arc<Watch>>,
    ) -> Result<(Vec<Variant>, Vec<Seen>), Failure> {
        let mut ways = vec![("virtual call".to_owned(), "none", Way::Virtual(self.servant.clone()), BATCH)];
        if let Some((_, orb, text)) = self.servers.first() {
            let collocated: CountedTargetRef = orb.reference(text)?;
            ways.push(("collocated".to_owned(), "none", Way::Reference(collocated), BATCH));
        }
        for (architecture, _, text) in &self.servers {
            let remote = target(&self.client, text)?;
            ways.push((architecture.config(), "tcp", Way::Reference(remote), 1));
        }
        let mut seen = Vec::new();
        let variants = ways.into_iter().map(|(config, transport, way, batch)| {
            let counts = Seen::default();
            seen.push(counts.clone());
            let batch = if rounds == 0 { batch } else { 1 };
            Variant {
                label: Label { bench: "cpu", peer: "Corelane", transport, op: work.to_owned(), config, along: None },
                subject: Box::new(Sliced { way, rounds, batch, scavenger: watch.clone(), seen: counts }),
                against: Vec::new(),
            }
        });
        let variants = variants.collect();
        Ok((variants, seen))
    }
}

/// Against the second figure, the collocated call, as the papers have it.
fn overhead(figures: &[Figure], seen: &[Seen]) -> Vec<Value> {
    let mut values = Vec::new();
    let Some(collocated) = figures.get(1) else { return values };
    for (figure, seen) in figures.iter().zip(seen) {
        let mut add = |what: &str, value: f64, unit: &'static str| {
            values.push(Value { label: figure.label.clone(), what: what.to_owned(), value, unit, bound: None });
        };
        let (ours, theirs) = (figure.summary.mean_us, collocated.summary.mean_us);
        if figure.label.transport != "none" {
            add("over a collocated call", ours - theirs, "us");
            add("overhead", (ours - theirs) / theirs * 100.0, "%");
        }
        let calls = seen.1.load(Ordering::Relaxed);
        if calls > 0 {
            add("scavenger ran per 100 calls", seen.0.load(Ordering::Relaxed) as f64 * 100.0 / calls as f64, "");
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_call_is_timed_and_compared() {
        let orbs = orbs().unwrap();
        let (mut variants, seen) = orbs.variants(0, "no work", None).unwrap();
        assert_eq!(variants.len(), 4);
        for variant in &mut variants {
            let mut samples = Samples::with_room(250);
            variant.subject.run(5, 250, &mut samples).unwrap();
            assert_eq!(samples.len(), 250, "{}", variant.label.config);
        }
        assert!(seen.iter().all(|seen| seen.1.load(Ordering::Relaxed) == 250));
        let (variants, _) = orbs.variants(10, "work", None).unwrap();
        for mut variant in variants {
            variant.subject.run(0, 3, &mut Samples::with_room(3)).unwrap();
        }
    }

    #[test]
    fn a_scavenger_runs_when_nobody_else_does_and_ends() {
        let core = thread::affinity(None).unwrap().iter().last().unwrap();
        let scavenger = Scavenger::start(core).unwrap();
        let watch = scavenger.watch.clone();
        watch.measuring.store(true, Ordering::SeqCst);
        while watch.rounds.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        drop(scavenger);
        assert_eq!(Arc::strong_count(&watch), 1);
    }
}
