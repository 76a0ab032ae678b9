//! The benchmarks `mt` and `inversion`: does a client of high priority notice others of lower priority that call the same server?
//!
//! `mt` is the papers' MT_Cubit: one client at the top priority calls at 20 Hz, n clients at lower priorities call at 10 Hz, each on its own thread,
//! connection and object, all beginning together; replies are verified. Priorities of the low clients are all different (papers 1 and 2) or all equal
//! (paper 4). `inversion` has floods instead: clients of the ordinary class that call without a pause.
//!
//! Threads have fixed priorities where that is permitted; no load keeps a core busy with such threads all the time: floods are of the ordinary class, so
//! that their own calls wait whenever the server works.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use corelane::Orb;
use corelane_sys::clock;
use corelane_sys::thread::{Builder, JoinHandle, Scheduling};

use crate::Failure;
use crate::cost::Cost;
use crate::crowd::Member;
use crate::floor::{Carrier, FloorClient, Waiting, address_of};
use crate::harness::{Along, Compare, Figure, Label, Progress, Ratio};
use crate::operation::Operation;
use crate::options::{Depth, Options};
use crate::orb::client::{Caller, target};
use crate::orb::server::{Keys, LOOPBACK};
use crate::orb::{Architecture, client_orb};
use crate::placement::{Placement, Side};
use crate::report::Report;
use crate::sample::{Samples, Summary, cdf_us, median_us};
use crate::server::{start_echo, start_floor, start_laned, start_pool};
use crate::service::Service;

/// The high-priority client's and the others' time between calls.
const HIGH_PERIOD: Duration = Duration::from_millis(50);
const LOW_PERIOD: Duration = Duration::from_millis(100);

/// The high-priority client's priority; the others' begin below it.
const TOP: u8 = 80;
/// That of all low clients, where they have the same.
const EQUAL: u8 = 10;

/// That of the lane in which floods are served.
const LOWEST: u8 = 1;

/// How long a server may take to list references.
const PATIENCE: Duration = Duration::from_secs(20);

/// Numbers of low-priority clients, and calls that each of them makes.
struct Plan {
    clients: &'static [usize],
    calls: usize,
}

impl Plan {
    fn of(depth: Depth) -> Plan {
        match depth {
            Depth::Quick => Plan { clients: &[0, 1, 5, 20, 50], calls: 15 },
            Depth::Usual => Plan { clients: &[0, 1, 2, 5, 10, 20, 50, 100], calls: 50 },
            // The papers'.
            Depth::Full => Plan { clients: &[0, 1, 2, 5, 10, 20, 30, 40, 50, 100, 200, 300, 400, 500], calls: 4000 },
        }
    }
}

/// How the low clients' priorities relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ranks {
    Different,
    Equal,
}

impl Ranks {
    fn name(self) -> &'static str {
        match self {
            Ranks::Different => "priorities all different",
            Ranks::Equal => "priorities all equal",
        }
    }

    /// Linux has 98 priorities below the highest one: more clients than that share them in turn.
    fn priority(self, client: usize) -> u8 {
        match self {
            Ranks::Equal => EQUAL,
            Ranks::Different => TOP - 1 - (client % usize::from(TOP - 1)) as u8,
        }
    }
}

/// What is called: a server, and how to make a client of it.
struct Served {
    peer: &'static str,
    config: String,
    /// Ends with this.
    _server: Service,
    made: Made,
}

enum Made {
    /// One reference for each client.
    Orb(Orb, Vec<String>),
    /// The address of a floor server, and the sizes of messages.
    Floor(String, crate::floor::Sizes),
}

impl Served {
    fn member(&self, number: usize, operation: Operation) -> Result<Box<dyn Member>, Failure> {
        match &self.made {
            Made::Floor(address, sizes) => Ok(Box::new(FloorClient::connect(&address_of(address)?, *sizes)?)),
            Made::Orb(orb, references) => {
                let text = &references[number % references.len()];
                Ok(Box::new(Caller { target: target(orb, text)?, operation }))
            }
        }
    }
}

impl Member for Box<dyn Member> {
    fn calls(&mut self, count: usize, into: &mut Samples) -> Result<(), Failure> {
        (**self).calls(count, into)
    }
}

/// What was seen of one number of clients.
#[derive(Default)]
struct Seen {
    high: Vec<u64>,
    low: Vec<u64>,
    medians: [Vec<f64>; 2],
    late: usize,
}

/// Whether fixed priorities are permitted here.
fn fixed() -> bool {
    Builder::new().scheduling(Scheduling::Fifo(TOP)).spawn(|| ()).is_ok()
}

/// Server threads have the top priority, so that nobody's request waits for the server to get a processor.
fn server_placement(options: &Options, fixed: bool) -> Placement {
    Placement { scheduling: fixed.then_some(Scheduling::Fifo(TOP)), ..options.placement }
}

/// MT_Cubit.
pub(crate) fn mt(options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let fixed = fixed();
    if !fixed {
        report.missing(
            "mt",
            "Corelane",
            "fixed priorities are not permitted here: all clients run in the ordinary class",
        )?;
    }
    let plan = Plan::of(options.depth);
    let most = plan.clients.iter().copied().max().unwrap_or(0);
    let placement = server_placement(options, fixed);
    for ranks in [Ranks::Different, Ranks::Equal] {
        let mut served = vec![
            floor(&placement, Operation::Octet, options)?,
            corelane(Architecture::PerConnection, most + 1, &placement)?,
            corelane(Architecture::LeaderFollowers(options.threads), most + 1, &placement)?,
        ];
        if fixed {
            let low = (0..most).map(|client| ranks.priority(client));
            served.push(laned(std::iter::once(TOP).chain(low).collect(), options)?);
        }
        let mut all: Vec<Vec<Seen>> = served.iter().map(|_| Vec::new()).collect();
        all.iter_mut().for_each(|seen| seen.resize_with(plan.clients.len(), Seen::default));
        let repetitions = if options.depth == Depth::Full { 1 } else { options.extent.repetitions.min(2) };
        for repetition in 0..repetitions {
            for (at, &clients) in plan.clients.iter().enumerate() {
                for (one, seen) in served.iter().zip(&mut all) {
                    progress.show(&format!(
                        "mt, {}: {clients} clients, {} {} ({} of {repetitions})",
                        ranks.name(),
                        one.peer,
                        one.config,
                        repetition + 1
                    ));
                    let game = Game { one, ranks, clients, calls: plan.calls, fixed, placement: options.placement };
                    game.play(&mut seen[at])?;
                }
            }
        }
        progress.clear();
        let class = if fixed { "SCHED_FIFO" } else { "SCHED_OTHER" };
        for (side, name) in ["high-priority client", "low-priority clients"].into_iter().enumerate() {
            let figures: Vec<Figure> =
                served.iter().zip(&all).flat_map(|(one, seen)| figures(one, side, name, plan.clients, seen)).collect();
            let title = format!("MT_Cubit, {}, {class}: {name}", ranks.name());
            report.figures(&title, Compare::Median, &figures)?;
        }
        let late: usize = all.iter().flatten().map(|seen| seen.late).sum();
        if late > 0 {
            report.text(&format!("  {late} calls began later than their period allows\n"))?;
        }
    }
    Ok(())
}

/// One line of figures along the number of clients, each against that without any.
fn figures(one: &Served, side: usize, name: &str, clients: &[usize], seen: &[Seen]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    for (&clients, seen) in clients.iter().zip(seen) {
        let times = if side == 0 { &seen.high } else { &seen.low };
        let Some(summary) = Summary::of(times, Duration::ZERO) else { continue };
        let label = Label {
            bench: "mt",
            peer: one.peer,
            transport: "tcp",
            op: name.to_owned(),
            config: format!("{}, {clients} low-priority clients", one.config),
            along: Some(Along { series: one.config.clone(), axis: "low-priority clients", x: clients as u64 }),
        };
        let medians = &seen.medians[side];
        let ratios = figures.first().map(|first| {
            let parts: Vec<f64> = medians.iter().zip(&first.medians_us).map(|(ours, theirs)| ours / theirs).collect();
            let range =
                parts.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), &part| (low.min(part), high.max(part)));
            let ratio = summary.p50_us / first.summary.p50_us;
            Ratio { with: first.label.clone(), p50_us: first.summary.p50_us, ratio, range }
        });
        figures.push(Figure {
            label,
            summary,
            medians_us: medians.clone(),
            cdf_us: cdf_us(times),
            ratios: ratios.into_iter().collect(),
            cost: Cost::default(),
            calls: times.len(),
        });
    }
    figures
}

fn floor(placement: &Placement, operation: Operation, options: &Options) -> Result<Served, Failure> {
    let (server, address) = start_floor(Carrier::Tcp, Waiting::Blocking, placement)?;
    let made = Made::Floor(address, operation.sizes(options.key));
    Ok(Served { peer: "floor", config: "blocking".to_owned(), _server: server, made })
}

/// A Corelane server with so many objects.
fn corelane(architecture: Architecture, objects: usize, placement: &Placement) -> Result<Served, Failure> {
    let mut server = start_pool(objects, Keys::Transient, architecture, placement)?;
    let line = server.ask(&format!("same {objects}"), PATIENCE)?;
    let references: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let orb = client_orb(objects)?;
    Ok(Served { peer: "Corelane", config: architecture.config(), _server: server, made: Made::Orb(orb, references) })
}

/// A Corelane server whose objects have the priorities of their clients: the first is the high-priority client's.
fn laned(priorities: Vec<u8>, options: &Options) -> Result<Served, Failure> {
    // Lanes have priorities of their own; the rest of the server is of the ordinary class.
    let placement = Placement { scheduling: None, ..options.placement };
    let mut server = start_laned(&priorities, &placement)?;
    let line = server.ask("references", PATIENCE)?;
    let references: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let made = Made::Orb(client_orb(references.len())?, references);
    Ok(Served { peer: "Corelane", config: "a lane for each priority".to_owned(), _server: server, made })
}

/// One run with so many clients.
struct Game<'g> {
    one: &'g Served,
    ranks: Ranks,
    clients: usize,
    calls: usize,
    fixed: bool,
    placement: Placement,
}

impl Game<'_> {
    fn play(&self, seen: &mut Seen) -> Result<(), Failure> {
        let entered = Placement { scheduling: None, ..self.placement }.enter(Side::Client);
        let _entered = entered.map_err(|error| Failure::new(error.to_string()))?;
        let (barrier, left) = (Arc::new(Barrier::new(self.clients + 1)), Arc::new(AtomicUsize::new(self.clients)));
        let mut low = Vec::with_capacity(self.clients);
        for client in 0..self.clients {
            let member = self.one.member(client + 1, Operation::Octet)?;
            let (barrier, left, calls) = (barrier.clone(), left.clone(), self.calls);
            let name = format!("low/{client}");
            low.push(self.thread(name, self.ranks.priority(client), move || {
                let mut made = 0;
                let outcome = paced(member, LOW_PERIOD, calls, &barrier, || {
                    made += 1;
                    made < calls
                });
                left.fetch_sub(1, Ordering::AcqRel);
                outcome
            })?);
        }
        let member = self.one.member(0, Operation::Octet)?;
        let (alone, mut made) = (self.clients == 0, 0);
        let most = self.calls * 4 + 64;
        let high = self.thread("high".to_owned(), TOP, move || {
            paced(member, HIGH_PERIOD, most, &barrier, || {
                made += 1;
                let done = if alone { made >= 2 * calls_alone(most) } else { left.load(Ordering::Acquire) == 0 };
                !done && made < most
            })
        })?;
        let ended = |thread: JoinHandle<Paced>| thread.join().map_err(|_| Failure::new("a client thread panicked"));
        let mut low_times = Vec::new();
        for thread in low {
            let paced = ended(thread)?;
            low_times.extend_from_slice(paced.outcome?.since(0));
            seen.late += paced.late;
        }
        let paced = ended(high)?;
        let high_times = paced.outcome?;
        seen.late += paced.late;
        seen.medians[0].push(median_us(high_times.since(0)));
        seen.medians[1].push(median_us(&low_times));
        seen.high.extend_from_slice(high_times.since(0));
        seen.low.extend(low_times);
        Ok(())
    }

    fn thread<T: Send + 'static>(
        &self,
        name: String,
        priority: u8,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, Failure> {
        let builder = Builder::new().name(name).stack_size(256 * 1024);
        let builder = if self.fixed { builder.scheduling(Scheduling::Fifo(priority)) } else { builder };
        builder.spawn(body).map_err(|error| Failure::new(format!("a client thread cannot be started: {error}")))
    }
}

/// Without others the high-priority client runs as long as it would beside them.
fn calls_alone(most: usize) -> usize {
    (most - 64) / 4
}

/// What a client did at its rate.
struct Paced {
    outcome: Result<Samples, Failure>,
    /// Calls that began more than half a period late.
    late: usize,
}

/// Calls at fixed times from the common begin on, for as long as `more` says so.
fn paced(
    mut member: impl Member,
    period: Duration,
    most: usize,
    barrier: &Barrier,
    mut more: impl FnMut() -> bool,
) -> Paced {
    let mut samples = Samples::with_room(most);
    // The connection is made, and everything touched, before the begin.
    let mut outcome = member.calls(5, &mut Samples::with_room(5));
    barrier.wait();
    let (mut next, mut late) = (clock::now(), 0);
    while outcome.is_ok() {
        outcome = member.calls(1, &mut samples);
        if !more() || samples.len() >= most {
            break;
        }
        next += period;
        let left = next.remaining();
        late += usize::from(left.is_zero() && next.elapsed() > period / 2);
        std::thread::sleep(left);
    }
    Paced { outcome: outcome.map(|()| samples), late }
}

/// Priority inversion by dispatch architecture.
pub(crate) fn inversion(options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    /// Who else calls, what, whether the same server, and which of these it is compared with.
    const FLOODS: [(&str, usize, Operation, bool, Option<usize>); 5] = [
        ("nobody else", 0, Operation::Octet, true, None),
        ("4 floods of octets at another server", 4, Operation::Octet, false, None),
        ("4 floods of octets", 4, Operation::Octet, true, Some(1)),
        ("4 floods of 64 KiB at another server", 4, Operation::Octets(64 * 1024), false, None),
        ("4 floods of 64 KiB", 4, Operation::Octets(64 * 1024), true, Some(3)),
    ];
    let fixed = fixed();
    if !fixed {
        report.missing(
            "inversion",
            "Corelane",
            "fixed priorities are not permitted here, so there is nothing to invert",
        )?;
        return Ok(());
    }
    let calls = match options.depth {
        Depth::Quick => 60,
        Depth::Usual => 300,
        Depth::Full => 4000,
    };
    let placement = server_placement(options, fixed);
    let architectures = [
        Architecture::PerConnection,
        Architecture::LeaderFollowers(options.threads),
        Architecture::HalfSync(options.threads),
        Architecture::Reactive,
    ];
    let mut servers = Vec::new();
    for architecture in architectures {
        servers.push((single(architecture, &placement)?, single(architecture, &placement)?));
    }
    let lanes = || laned(vec![TOP, LOWEST, LOWEST, LOWEST, LOWEST], options);
    servers.push((lanes()?, lanes()?));
    for (one, other) in &servers {
        let mut own: Vec<Figure> = Vec::new();
        for (name, many, operation, same, against) in FLOODS {
            progress.show(&format!("inversion: {} beside {name}", one.config));
            let flooded = if same { one } else { other };
            let times = beside(one, flooded, many, operation, calls, options)?;
            let none = || Failure::new("the high-priority client made no call");
            let summary = Summary::of(&times, Duration::ZERO).ok_or_else(none)?;
            let ratios = against.and_then(|at| own.get(at)).map(|with| Ratio {
                with: with.label.clone(),
                p50_us: with.summary.p50_us,
                ratio: summary.p50_us / with.summary.p50_us,
                range: (summary.min_us / with.summary.min_us, summary.p99_us / with.summary.p99_us),
            });
            let label = Label {
                bench: "inversion",
                peer: one.peer,
                transport: "tcp",
                op: "octet".to_owned(),
                config: format!("{}, {name}", one.config),
                along: None,
            };
            own.push(Figure {
                label,
                summary,
                medians_us: vec![median_us(&times)],
                cdf_us: cdf_us(&times),
                ratios: ratios.into_iter().collect(),
                cost: Cost::default(),
                calls: times.len(),
            });
        }
        progress.clear();
        let title = format!(
            "inversion: high-priority client at 100 Hz beside floods of ordinary priority, {}; in parentheses the ratios of \
             minima and of p99",
            one.config
        );
        report.figures(&title, Compare::Median, &own)?;
    }
    Ok(())
}

/// A server with one object.
fn single(architecture: Architecture, placement: &Placement) -> Result<Served, Failure> {
    let (server, reference) = start_echo(architecture, LOOPBACK, placement)?;
    let made = Made::Orb(client_orb(0)?, vec![reference]);
    Ok(Served { peer: "Corelane", config: architecture.config(), _server: server, made })
}

/// The high-priority client's times beside so many floods.
fn beside(
    one: &Served,
    flooded: &Served,
    many: usize,
    operation: Operation,
    calls: usize,
    options: &Options,
) -> Result<Vec<u64>, Failure> {
    let entered = Placement { scheduling: None, ..options.placement }.enter(Side::Client);
    let _entered = entered.map_err(|error| Failure::new(error.to_string()))?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut floods = Vec::new();
    for number in 0..many {
        let (mut member, stop) = (flooded.member(number + 1, operation)?, stop.clone());
        let builder = Builder::new().name(format!("flood/{number}")).scheduling(Scheduling::Other);
        let thread = builder.spawn(move || {
            let mut outcome = Ok(());
            while outcome.is_ok() && !stop.load(Ordering::Relaxed) {
                outcome = member.calls(1, &mut Samples::with_room(1));
            }
            outcome
        });
        floods.push(thread.map_err(|error| Failure::new(format!("a flood cannot be started: {error}")))?);
    }
    let member = one.member(0, Operation::Octet)?;
    let barrier = Barrier::new(1);
    let high = Builder::new().name("high").scheduling(Scheduling::Fifo(TOP)).spawn(move || {
        let mut made = 0;
        paced(member, Duration::from_millis(10), calls, &barrier, || {
            made += 1;
            made < calls
        })
    });
    let high = high.map_err(|error| Failure::new(format!("the high-priority client cannot be started: {error}")))?;
    let high = high.join().map_err(|_| Failure::new("the high-priority client panicked"));
    stop.store(true, Ordering::Relaxed);
    for flood in floods {
        flood.join().map_err(|_| Failure::new("a flood panicked"))??;
    }
    Ok(high?.outcome?.since(0).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_low_client_is_below_the_top() {
        let different: Vec<u8> = (0..500).map(|client| Ranks::Different.priority(client)).collect();
        assert!(different.iter().all(|priority| (1..TOP).contains(priority)));
        assert_eq!(different[0], TOP - 1);
        assert_eq!((Ranks::Equal.priority(0), Ranks::Equal.priority(400)), (EQUAL, EQUAL));
    }

    #[test]
    fn plans_begin_without_others_and_the_full_one_is_the_papers() {
        for depth in [Depth::Quick, Depth::Usual, Depth::Full] {
            let plan = Plan::of(depth);
            assert!(plan.clients[0] == 0 && plan.clients.is_sorted());
        }
        let full = Plan::of(Depth::Full);
        assert_eq!((full.calls, full.clients.last()), (4000, Some(&500)));
    }

    struct Instant;

    impl Member for Instant {
        fn calls(&mut self, count: usize, into: &mut Samples) -> Result<(), Failure> {
            (0..count).for_each(|_| into.push(1));
            Ok(())
        }
    }

    #[test]
    fn a_paced_client_stops_when_told_and_within_its_room() {
        let barrier = Barrier::new(1);
        let mut made = 0;
        let told = paced(Instant, Duration::from_micros(10), 100, &barrier, || {
            made += 1;
            made < 7
        });
        assert_eq!(told.outcome.unwrap().len(), 7);
        let full = paced(Instant, Duration::ZERO, 5, &barrier, || true);
        assert_eq!(full.outcome.unwrap().len(), 5);
        assert_eq!(calls_alone(10 * 4 + 64), 10);
    }
}
