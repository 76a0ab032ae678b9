//! Calls with time probes in client and server.

use std::fmt;
use std::time::Duration;

use corelane::Orb;
use corelane_sys::probe::{self, ProbeRecord};

use crate::Failure;
use crate::address::LOOPBACK;
use crate::harness::MeasuredSubject;
use crate::launch;
use crate::operation::MeasuredOperation;
use crate::orb::ServerArchitecture;
use crate::orb::client::{StubCalls, target};
use crate::orb::generated::cubit::CountedTarget;
use crate::orb::servant::Echo;
use crate::orb::server::{orb_with_lanes, start_orb};
use crate::placement::{Placement, Side};
use crate::sample::Samples;
use crate::service::{RunningProgram, serve_lines};

const PATIENCE: Duration = Duration::from_secs(10);

/// A record of a thread that passed a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedProbe {
    /// Id of the thread in the kernel.
    pub thread: u32,
    /// Time of the machine's monotonic clock, in nanoseconds.
    pub at_ns: u64,
    /// Id of the request; 0 if the probe has none.
    pub request_id: u64,
    /// Name of the probe.
    pub name: String,
}

/// The probe records of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessRecords {
    /// Name of the process: client or server.
    pub name: String,
    /// Process id.
    pub pid: u32,
    /// Ids and names of the threads that passed probes.
    pub threads: Vec<(u32, String)>,
    /// Probe records in the order of time.
    pub probes: Vec<PassedProbe>,
}

/// A server and a client that calls one operation of the server, both with time probes.
pub struct ProbedClientAndServer {
    server: RunningProgram,
    calls: Option<StubCalls>,
    placement: Placement,
}

impl ProbedClientAndServer {
    /// Starts a server, and a client that calls `operation`. `kind` names a dispatch architecture
    /// or a number of lanes, as in `corelane trace --server`.
    ///
    /// # Errors
    /// `kind` names no server, or the server or the client cannot be started.
    pub fn start(kind: &str, operation: MeasuredOperation, placement: &Placement) -> Result<Self, Failure> {
        let (server, reference) = start_probed(ProbedServer::from_word(kind)?, placement)?;
        let orb = Orb::new().map_err(|error| Failure::new(error.to_string()))?;
        let calls = StubCalls { target: target(&orb, &reference)?, operation, server: server.pid() };
        // References are usable while their ORB exists, so the ORB is never dropped.
        std::mem::forget(orb);
        Ok(ProbedClientAndServer { server, calls: Some(calls), placement: *placement })
    }

    /// Makes `warm_up` calls without probes, then `count` calls with active probes. Returns the
    /// records of the client and of the server for the `count` calls.
    ///
    /// # Errors
    /// A call fails or has failed before, the client's thread may not run in its placement, or the
    /// server has ended.
    pub fn record_calls(&mut self, warm_up: usize, count: usize) -> Result<[ProcessRecords; 2], Failure> {
        let Some(mut calls) = self.calls.take() else { return Err(Failure::new("earlier calls have failed")) };
        let run =
            |calls: &mut StubCalls, count: usize| calls.run(0, count, &mut Samples::with_capacity(count)).map(|_| ());
        let server = &mut self.server;
        let placed = self.placement.enter(Side::Client).map_err(|error| Failure::new(error.to_string()))?;
        run(&mut calls, warm_up)?;
        server.ask("on", PATIENCE)?;
        probe::enable();
        let outcome = run(&mut calls, count);
        probe::disable();
        drop(placed);
        let answer = server.ask("collect", PATIENCE)?;
        outcome?;
        self.calls = Some(calls);
        let client = own("client");
        let server = parse("server", self.server.pid(), &answer)?;
        Ok([client, server])
    }

    /// Lets the server measure a probe. Returns the time in nanoseconds that a probe takes on the
    /// server's thread, first active and then inactive; NaN for a number that the server does not
    /// report.
    ///
    /// # Errors
    /// The server has ended.
    pub fn probe_cost_ns(&mut self) -> Result<[f64; 2], Failure> {
        let answer = self.server.ask("cost", PATIENCE)?;
        let mut numbers = answer.split(' ').map(|number| number.parse().unwrap_or(f64::NAN));
        Ok([numbers.next().unwrap_or(f64::NAN), numbers.next().unwrap_or(f64::NAN)])
    }
}

fn start_probed(kind: ProbedServer, placement: &Placement) -> Result<(RunningProgram, String), Failure> {
    launch::start("Corelane's server with probes", &["probed", &kind.to_string()], placement)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbedServer {
    Pool(ServerArchitecture),
    /// This number of lanes. Another thread reads each request and hands it over to the highest
    /// lane, which serves it.
    Lanes(u8),
}

impl ProbedServer {
    pub(crate) fn from_word(word: &str) -> Result<Self, Failure> {
        let Some(number) = word.strip_prefix("lanes:") else {
            return Ok(ProbedServer::Pool(ServerArchitecture::from_word(word)?));
        };
        let number = number.parse().ok().filter(|number| (1..=64).contains(number));
        number
            .map(ProbedServer::Lanes)
            .ok_or_else(|| Failure::new(format!("`{word}` needs a number of lanes from 1 to 64")))
    }
}

impl fmt::Display for ProbedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbedServer::Pool(architecture) => architecture.fmt(f),
            ProbedServer::Lanes(number) => write!(f, "lanes:{number}"),
        }
    }
}

fn own(name: &str) -> ProcessRecords {
    let of = |record: ProbeRecord| PassedProbe {
        thread: record.thread,
        at_ns: record.passed_at_ns,
        request_id: record.id,
        name: record.point.to_owned(),
    };
    let probes = probe::collect().into_iter().map(of).collect();
    ProcessRecords { name: name.to_owned(), pid: std::process::id(), threads: probe::thread_names(), probes }
}

/// Runs a server with probes until the standard input ends. Prints `ready REFERENCE`, then answers
/// lines:
///
/// | line | answer |
/// |---|---|
/// | `on` | `on`; recording begins |
/// | `collect` | records `thread T NAME` and `T AT ID POINT`, separated by tabs; recording ends |
/// | `cost` | nanoseconds of one probe: on, off |
pub(crate) fn serve(kind: ProbedServer) -> Result<(), Failure> {
    let failed = |error: &dyn fmt::Display| Failure::new(error.to_string());
    let (_orb, reference) = match kind {
        ProbedServer::Pool(architecture) => {
            let orb = start_orb(architecture, LOOPBACK)?;
            let reference = orb.root_poa().activate(&CountedTarget::servant(Echo)).map_err(|error| failed(&error))?;
            orb.root_poa().manager().activate().map_err(|error| failed(&error))?;
            (orb, reference.to_string())
        }
        ProbedServer::Lanes(number) => orb_with_lanes(number)?,
    };
    println!("ready {reference}");
    serve_lines(|line| {
        Some(match line {
            "on" => {
                probe::enable();
                "on".to_owned()
            }
            "collect" => {
                probe::disable();
                text(&own("server"))
            }
            "cost" => {
                let [on, off] = [true, false].map(cost);
                format!("{on:.2} {off:.2}")
            }
            _ => format!("error unknown line `{line}`"),
        })
    })
    .map_err(|error| failed(&error))
}

fn cost(on: bool) -> f64 {
    const ROUNDS: usize = 50;
    const PROBES: u32 = 1000;
    if on {
        probe::enable();
    }
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let began = corelane_sys::clock::now();
        for id in 0..u64::from(PROBES) {
            corelane_sys::probe!("probe", std::hint::black_box(id));
        }
        least = least.min(began.elapsed().as_nanos() as f64 / f64::from(PROBES));
    }
    probe::disable();
    least
}

fn text(process: &ProcessRecords) -> String {
    let threads = process.threads.iter().map(|(number, name)| format!("thread {number} {name}"));
    let probes = process
        .probes
        .iter()
        .map(|PassedProbe { thread, at_ns, request_id, name }| format!("{thread} {at_ns} {request_id} {name}"));
    threads.chain(probes).collect::<Vec<_>>().join("\t")
}

fn parse(name: &str, pid: u32, line: &str) -> Result<ProcessRecords, Failure> {
    let mut process = ProcessRecords { name: name.to_owned(), pid, ..ProcessRecords::default() };
    for part in line.split('\t').filter(|part| !part.is_empty()) {
        let broken = || Failure::new(format!("`{part}` is not a record of a probe"));
        let mut words = part.splitn(4, ' ');
        let (Some(first), Some(second), Some(third)) = (words.next(), words.next(), words.next()) else {
            return Err(broken());
        };
        if first == "thread" {
            let rest = words.next().map_or_else(|| third.to_owned(), |rest| format!("{third} {rest}"));
            process.threads.push((second.parse().map_err(|_| broken())?, rest));
            continue;
        }
        process.probes.push(PassedProbe {
            thread: first.parse().map_err(|_| broken())?,
            at_ns: second.parse().map_err(|_| broken())?,
            request_id: third.parse().map_err(|_| broken())?,
            name: words.next().ok_or_else(broken)?.to_owned(),
        });
    }
    Ok(process)
}

/// Name of the first probe that a server's thread passes for a request.
pub const FIRST_SERVER_PROBE: &str = "octets read";
/// Name of the last probe that a server's thread passes for a request.
pub const LAST_SERVER_PROBE: &str = "reply sent";

/// Returns the durations of the stages between the probes `from` and `to`, in nanoseconds.
///
/// A stage is the time between two successive probes of one thread, and has the name of the second
/// probe.
#[must_use]
pub fn stage_durations(probes: &[PassedProbe], from: &str, to: &str) -> Vec<(String, Vec<u64>)> {
    let mut stages: Vec<(String, Vec<u64>)> = Vec::new();
    let mut threads: Vec<u32> = probes.iter().map(|point| point.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    for thread in threads {
        let mut before: Option<u64> = None;
        for point in probes.iter().filter(|point| point.thread == thread) {
            if let (Some(before), true) = (before, point.name != from) {
                let took = point.at_ns.saturating_sub(before);
                match stages.iter_mut().find(|(name, _)| *name == point.name) {
                    Some((_, times)) => times.push(took),
                    None => stages.push((point.name.clone(), vec![took])),
                }
            }
            let inside = before.is_some() || point.name == from;
            before = (inside && point.name != to).then_some(point.at_ns);
        }
    }
    stages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probed_server_words_are_parsed_back() {
        for kind in [ProbedServer::Pool(ServerArchitecture::HalfSync(2)), ProbedServer::Lanes(3)] {
            assert_eq!(ProbedServer::from_word(&kind.to_string()), Ok(kind));
        }
        for word in ["lanes", "lanes:", "lanes:0", "lanes:65", "pool"] {
            assert!(ProbedServer::from_word(word).is_err(), "{word}");
        }
    }

    fn point(thread: u32, at_ns: u64, name: &str) -> PassedProbe {
        PassedProbe { thread, at_ns, request_id: 7, name: name.to_owned() }
    }

    #[test]
    fn probe_records_are_parsed_back_from_their_line() {
        let process = ProcessRecords {
            name: "server".into(),
            pid: 5,
            threads: vec![(8, "bench/c1".into()), (9, "two words".into())],
            probes: vec![point(8, 100, "octets read"), point(9, 130, "reply sent")],
        };
        assert_eq!(parse("server", 5, &text(&process)).unwrap(), process);
        for line in ["x", "1 2", "1 2 3", "a 2 3 name", "thread x name"] {
            assert!(parse("server", 5, line).is_err(), "{line}");
        }
        assert_eq!(parse("server", 5, "").unwrap().probes, []);
    }

    #[test]
    fn stages_are_the_times_between_probes_of_one_thread() {
        let probes = [
            point(1, 5, "upcall"),
            point(1, 10, "octets read"),
            point(2, 11, "octets read"),
            point(1, 14, "parsed"),
            point(2, 20, "parsed"),
            point(1, 20, "reply sent"),
            point(1, 90, "octets read"),
            point(1, 92, "parsed"),
        ];
        let stages = stage_durations(&probes, "octets read", "reply sent");
        assert_eq!(stages, [("parsed".to_owned(), vec![4, 2, 9]), ("reply sent".to_owned(), vec![6])]);
    }
}
