//! The command `corelane trace`, which records requests in client and server and writes a trace for
//! Perfetto and Chrome.

mod switches;

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::{ArgMatches, Command};
use corelane_bench::json::JsonObject;
use corelane_bench::operation::MeasuredOperation;
use corelane_bench::placement::{CoreChoice, Placement};
use corelane_bench::probed::{PassedProbe, ProbedClientAndServer, ProcessRecords};

use self::switches::{Preemption, PreemptionCapture};
use crate::arguments::{self, ArgumentRefusal, option};
use crate::text::excerpt;
use crate::{DONE, NOT_DONE};

pub(crate) const USAGE: &str = "\
usage: corelane trace [OPTION]...

Starts a server, calls it with time probes on, and writes the activity of each thread of both processes, on one time line, as
trace events in JSON, for ui.perfetto.dev or chrome://tracing.

  --out FILE        the file to write (trace.json)
  --op NAME         the operation: octet, long, struct, longsN, structsN, octetsN (octet)
  --calls N         calls that are recorded, 1 to 300 (1)
  --server NAME     per-connection, leader-followers:N, half-sync:N, reactive, or lanes:N, which hands the request over to the
                    highest of N lanes (leader-followers:2)
  --cores A,B       client on core A, server on core B; by default both are on the last core

Exit status: 0 written, 1 not written, 2 wrong usage.
";

struct TraceOptions {
    out: PathBuf,
    operation: MeasuredOperation,
    calls: usize,
    server: String,
    placement: Placement,
}

const WARM_UP: usize = 1000;

pub(crate) fn command() -> Command {
    let options = [option("out", "FILE"), option("op", "NAME"), option("calls", "N")];
    let command = arguments::command("trace", USAGE).args(options);
    arguments::with_descriptions(command.args([option("server", "NAME"), option("cores", "A,B")]), USAGE)
}

pub(crate) fn run(arguments: impl Iterator<Item = OsString>, out: &mut dyn Write) -> u8 {
    let options = match parse(arguments) {
        Ok(options) => options,
        Err(reason) => return arguments::print_refusal(reason, USAGE, out),
    };
    let capture = PreemptionCapture::start();
    let permitted = capture.is_some();
    let recorded = ProbedClientAndServer::start(&options.server, options.operation, &options.placement)
        .and_then(|mut probed| probed.record_calls(WARM_UP, options.calls));
    let processes = match recorded {
        Ok(processes) => processes,
        Err(failure) => {
            let _ = writeln!(out, "error: {failure}");
            return NOT_DONE;
        }
    };
    let preemptions = capture.map(PreemptionCapture::finish).unwrap_or_default();
    let probes: usize = processes.iter().map(|process| process.probes.len()).sum();
    if let Err(error) = fs::write(&options.out, chrome(&processes, &preemptions)) {
        let _ = writeln!(out, "error: cannot write `{}`: {error}", options.out.display());
        return NOT_DONE;
    }
    let _ = writeln!(out, "{} has {probes} probe records of {} calls", options.out.display(), options.calls);
    if !permitted {
        let _ = writeln!(out, "preemption is not included: the kernel's tracefs is missing or not permitted");
    }
    DONE
}

fn parse(words: impl Iterator<Item = OsString>) -> Result<TraceOptions, Option<String>> {
    let parsed = arguments::parse(command(), words).map_err(|refusal| match refusal {
        ArgumentRefusal::Unknown(word) => Some(format!("there is no option `{}`", excerpt(&word))),
        other => other.reason(),
    })?;
    refine(&parsed).map_err(Some)
}

fn refine(parsed: &ArgMatches) -> Result<TraceOptions, String> {
    let mut placement = Placement::one_core().map_err(|error| error.to_string())?;
    let mut operation = MeasuredOperation::Octet;
    if let Some(name) = arguments::text(parsed, "op") {
        operation = MeasuredOperation::from_name(&name).map_err(|error| error.to_string())?;
        if operation.is_oneway() {
            return Err("a oneway has no reply to wait for; choose another operation".to_owned());
        }
    }
    let mut calls = 1;
    if let Some(text) = arguments::text(parsed, "calls") {
        let number = text.parse().ok().filter(|calls| (1..=300).contains(calls));
        let refused = || format!("`--calls` takes a number from 1 to 300, not `{}`", excerpt(&text));
        calls = number.ok_or_else(refused)?;
    }
    if let Some(text) = arguments::text(parsed, "cores") {
        let pair = text.split_once(',').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let refused = || format!("`--cores` takes two cores as in 0,1, not `{}`", excerpt(&text));
        let (client, server) = pair.ok_or_else(refused)?;
        placement.cores = CoreChoice::Separate(client, server);
    }
    Ok(TraceOptions {
        out: parsed.get_one::<OsString>("out").map_or_else(|| "trace.json".into(), Into::into),
        operation,
        calls,
        server: arguments::text(parsed, "server").unwrap_or_else(|| "leader-followers:2".to_owned()),
        placement,
    })
}

fn wait(point: &str) -> Option<&'static str> {
    match point {
        "octets read" | "reply read" => Some("socket"),
        "taken from the queue" => Some("queue"),
        "lock taken" => Some("lock"),
        _ => None,
    }
}

/// Returns the records in the trace format of Chrome. A slice is the time between two probes of a
/// thread, with the name of the later probe. Arrows connect the threads at each message and
/// hand-over.
fn chrome(processes: &[ProcessRecords], preemptions: &[Preemption]) -> String {
    let all = processes.iter().flat_map(|process| &process.probes);
    let Some(origin) = all.map(|point| point.at_ns).min() else { return "[]\n".to_owned() };
    let mut events = Vec::new();
    for process in processes {
        events.push(named(process.pid, process.pid, "process_name", &process.name));
        for (thread, name) in &process.threads {
            if process.probes.iter().any(|point| point.thread == *thread) {
                events.push(named(process.pid, *thread, "thread_name", name));
                slices(process, *thread, origin, &mut events);
                preempted(process, *thread, origin, preemptions, &mut events);
            }
        }
    }
    let messages = messages(processes).into_iter().map(|ends| ("message", ends));
    let handovers = processes.iter().flat_map(handovers).map(|ends| ("hand-over", ends));
    for (number, (name, (from, to))) in messages.chain(handovers).enumerate() {
        for (phase, (pid, point)) in [("s", from), ("f", to)] {
            let arrow = event(phase, name, pid, point.thread, point.at_ns - origin).integer("id", number as u64);
            events.push(if phase == "f" { arrow.string("bp", "e") } else { arrow });
        }
        if name == "hand-over" {
            events.push(waited(from, to, number, origin));
            events.push(ended(to, number, origin));
        }
    }
    let lines: Vec<String> = events.into_iter().map(JsonObject::finish).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

fn named(pid: u32, thread: u32, what: &str, name: &str) -> JsonObject {
    let arguments = JsonObject::new().string("name", name);
    let object = JsonObject::new()
        .string("ph", "M")
        .string("name", what)
        .integer("pid", pid.into())
        .integer("tid", thread.into());
    object.object("args", arguments)
}

fn event(phase: &str, name: &str, pid: u32, thread: u32, after: u64) -> JsonObject {
    JsonObject::new()
        .string("ph", phase)
        .string("name", name)
        .string("cat", "corelane")
        .integer("pid", pid.into())
        .integer("tid", thread.into())
        .number("ts", after as f64 / 1e3)
}

fn slices(process: &ProcessRecords, thread: u32, origin: u64, events: &mut Vec<JsonObject>) {
    let probes: Vec<&PassedProbe> = process.probes.iter().filter(|point| point.thread == thread).collect();
    let mut request = 0;
    for (index, pair) in probes.windows(2).enumerate() {
        let [before, point] = pair else { continue };
        // A probe without an id belongs to the request of the thread's next probe with an id.
        request =
            probes[index + 1..].iter().find(|later| later.request_id != 0).map_or(request, |later| later.request_id);
        let waited = wait(&point.name);
        let name = waited.map_or_else(|| point.name.clone(), |what| format!("waiting for the {what}"));
        let mut arguments = JsonObject::new().integer("request", request).string("until", &point.name);
        if let Some(what) = waited {
            arguments = arguments.string("blame", what);
        }
        let slice = event("X", &name, process.pid, thread, before.at_ns - origin);
        events.push(slice.number("dur", (point.at_ns - before.at_ns) as f64 / 1e3).object("args", arguments));
    }
}

fn preempted(
    process: &ProcessRecords,
    thread: u32,
    origin: u64,
    preemptions: &[Preemption],
    events: &mut Vec<JsonObject>,
) {
    let mut probes = process.probes.iter().filter(|point| point.thread == thread).map(|point| point.at_ns);
    let Some(first) = probes.next() else { return };
    let last = probes.next_back().unwrap_or(first);
    for preemption in preemptions.iter().filter(|preemption| preemption.thread == thread) {
        if preemption.from < first || preemption.until > last {
            continue;
        }
        let arguments = JsonObject::new().string("blame", "preemption").string("by", &preemption.by);
        let slice = event("X", "preempted", process.pid, thread, preemption.from - origin);
        let took = (preemption.until - preemption.from) as f64 / 1e3;
        events.push(slice.number("dur", took).object("args", arguments));
    }
}

/// Returns the event at which a wait in the queue begins. Such a wait has a separate line in the
/// trace.
fn waited((pid, from): ProcessPoint<'_>, (_, to): ProcessPoint<'_>, number: usize, origin: u64) -> JsonObject {
    let arguments = JsonObject::new().integer("request", from.request_id.max(to.request_id)).string("blame", "queue");
    let begin = event("b", "waiting in the queue", pid, from.thread, from.at_ns.min(to.at_ns) - origin);
    begin.integer("id", number as u64).object("args", arguments)
}

fn ended((pid, to): ProcessPoint<'_>, number: usize, origin: u64) -> JsonObject {
    event("e", "waiting in the queue", pid, to.thread, to.at_ns - origin).integer("id", number as u64)
}

/// Returns both points of each hand-over between threads: through the queue of a pool, or to a
/// lane, whose thread parses the request again.
fn handovers(process: &ProcessRecords) -> Vec<(ProcessPoint<'_>, ProcessPoint<'_>)> {
    let of = |name: &'static str| process.probes.iter().filter(move |point| point.name == name);
    let place = |point| (process.pid, point);
    // The requests of one connection leave the queue in their order. Requests of several
    // connections may be paired wrongly.
    let queued = of("request queued").zip(of("taken from the queue"));
    let to_lanes = of("request parsed").filter_map(|first| {
        let again = |point: &&PassedProbe| {
            point.request_id == first.request_id && point.at_ns > first.at_ns && point.thread != first.thread
        };
        Some((first, of("request parsed").find(again)?))
    });
    queued.chain(to_lanes).map(|(from, to)| (place(from), place(to))).collect()
}

type ProcessPoint<'p> = (u32, &'p PassedProbe);

/// Returns the departure and arrival of each message for which an arrival was recorded. The arrival
/// is the nearest in time of the arrivals in other processes with the request's id or without an
/// id. It may belong to a call that was not recorded.
fn messages(processes: &[ProcessRecords]) -> Vec<(ProcessPoint<'_>, ProcessPoint<'_>)> {
    let of = |name: &'static str| {
        let probes = processes.iter().flat_map(|process| process.probes.iter().map(|point| (process.pid, point)));
        probes.filter(|(_, point)| point.name == name).collect::<Vec<ProcessPoint<'_>>>()
    };
    let mut found = Vec::new();
    for (leaves, arrives) in [("request sent", "octets read"), ("reply sent", "reply read")] {
        let arrivals = of(arrives);
        for from in of(leaves) {
            // The receiver may have the message before the sender's call returns, so an arrival may
            // precede its departure.
            let others = arrivals
                .iter()
                .filter(|to| to.0 != from.0 && (to.1.request_id == from.1.request_id || to.1.request_id == 0));
            found.extend(others.min_by_key(|to| to.1.at_ns.abs_diff(from.1.at_ns)).map(|to| (from, *to)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WRONG_USAGE;

    fn point(thread: u32, at_ns: u64, request_id: u64, name: &str) -> PassedProbe {
        PassedProbe { thread, at_ns, request_id, name: name.to_owned() }
    }

    fn call() -> [ProcessRecords; 2] {
        let client = ProcessRecords {
            name: "client".into(),
            pid: 1,
            threads: vec![(1, "main".into()), (9, "idle".into())],
            probes: vec![
                point(1, 1000, 0, "call begun"),
                point(1, 1400, 5, "request sent"),
                point(1, 9000, 5, "reply read"),
            ],
        };
        let server = ProcessRecords {
            name: "server".into(),
            pid: 2,
            threads: vec![(3, "pool/l0".into())],
            probes: vec![
                point(3, 1300, 0, "octets read"),
                point(3, 1350, 5, "request parsed"),
                point(3, 8000, 5, "reply sent"),
            ],
        };
        [client, server]
    }

    #[test]
    fn call_is_shown_as_slices_waits_and_arrows() {
        let preemption = Preemption { thread: 3, from: 2000, until: 4000, by: "other".into() };
        let elsewhere = Preemption { from: 100, ..preemption.clone() };
        let parsed: serde_json::Value = serde_json::from_str(&chrome(&call(), &[preemption, elsewhere])).unwrap();
        let events = parsed.as_array().unwrap();
        let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
        assert_eq!(of("M").len(), 4);
        assert_eq!(of("X").len(), 5);
        let taken = of("X").into_iter().find(|event| event["name"] == "preempted").unwrap();
        assert_eq!((&taken["dur"], &taken["args"]["by"]), (&2.0.into(), &"other".into()));
        let wait = of("X").into_iter().find(|event| event["args"]["blame"] == "socket").unwrap();
        assert_eq!((&wait["pid"], &wait["ts"], &wait["dur"]), (&1.into(), &0.4.into(), &7.6.into()));
        assert_eq!(wait["args"]["request"], 5);
        let begun = of("X").into_iter().find(|event| event["name"] == "request parsed").unwrap();
        assert_eq!(begun["args"]["request"], 5);
        let arrows = (of("s"), of("f"));
        assert_eq!((arrows.0.len(), arrows.1.len()), (2, 2));
        assert_eq!((&arrows.0[0]["pid"], &arrows.1[0]["pid"], &arrows.1[1]["pid"]), (&1.into(), &2.into(), &1.into()));
        assert_eq!(chrome(&[], &[]), "[]\n");
    }

    #[test]
    fn reply_to_an_unrecorded_call_has_no_arrow() {
        let [client, mut server] = call();
        server.probes.insert(0, point(3, 900, 4, "reply sent"));
        assert_eq!(messages(&[client, server]).len(), 2);
    }

    #[test]
    fn request_waits_between_its_threads() {
        let probes = vec![
            point(3, 100, 0, "request queued"),
            point(4, 130, 0, "taken from the queue"),
            point(4, 140, 5, "request parsed"),
            point(3, 200, 6, "request parsed"),
            point(5, 260, 6, "request parsed"),
        ];
        let threads = [3, 4, 5].map(|thread| (thread, format!("pool/{thread}"))).to_vec();
        let server = ProcessRecords { name: "server".into(), pid: 2, threads, probes };
        let ends = |of: Vec<(ProcessPoint<'_>, ProcessPoint<'_>)>| {
            of.iter().map(|(a, b)| (a.1.at_ns, b.1.at_ns)).collect::<Vec<_>>()
        };
        assert_eq!(ends(handovers(&server)), [(100, 130), (200, 260)]);
        let parsed: serde_json::Value = serde_json::from_str(&chrome(&[server], &[])).unwrap();
        let waits = |phase: &str| parsed.as_array().unwrap().iter().filter(|event| event["ph"] == phase).count();
        assert_eq!((waits("s"), waits("f"), waits("b"), waits("e")), (2, 2, 2, 2));
    }

    #[test]
    fn wrong_usage_has_a_reason_and_the_usage_text() {
        for line in ["--calls 0", "--calls", "--op oneway", "--op what", "--cores 1", "--nothing"] {
            let mut out = Vec::new();
            assert_eq!(run(line.split(' ').map(OsString::from), &mut out), WRONG_USAGE, "{line}");
            assert!(String::from_utf8(out).unwrap().contains("usage:"));
        }
    }
}
