//! The command `corelane bench`, which lists, runs and reports benchmarks.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::baseline::BaselineTransport;
use crate::environment::{Environment, RunEnd};
use crate::guards::{
    call, core_scaling, counts, cubit, demux, events, floods, footprint, idl, instead, lane, naming, scale,
};
use crate::harness::Progress;
use crate::idle::IdleStateLock;
use crate::options::BenchOptions;
use crate::page::{self, Outputs};
use crate::papers::{architectures, cores, cpu, mt, os, protocol, rio, stages, switch};
use crate::plan;
use crate::report::{Report, STANDARD_OUTPUT};

/// Help text of `corelane bench`.
pub const USAGE: &str = "\
usage: corelane bench list
       corelane bench run NAME... [OPTION]...
       corelane bench all [OPTION]...
       corelane bench plan PLAN --json FILE [--via PROGRAM]
       corelane bench report FILE... [--out PAGE] [--picture FILE [--op NAME]...]

Measures this ORB, its peers and bare sockets against each other. Variants take turns, so that ratios hold even if the
speed of the machine changes; figures are valid only while no other program runs. `report` makes one HTML page from the
JSON lines of one or more runs and compares them; `plan` makes runs on this and other machines (docs/benchmarks.md).

  --quick, --full       fewer or more calls (3 x 2000 or 10 x 50000 instead of 5 x 10000)
  --count N             calls per repetition
  --repetitions N       turns of each variant
  --warm-up N           calls before each turn that are not counted
  --core N              client and server on core N; the default, with the last core
  --cores A,B           client on core A, server on core B
  --unpinned            client and server on any cores
  --fifo PRIORITY       run in the class SCHED_FIFO at this priority, 1 to 99, instead of the ordinary class
  --threads N           threads of a pool (4)
  --op NAME             call this operation; may be given several times
  --transport NAME      tcp (the default), unix or shm (shared memory), for `call` and `cubit`; may be given several times;
                        `all` has all three unless some are named
  --json FILE           also write JSON lines (docs/benchmarks.md); `-`: to the standard output, text to the standard error
  --name TEXT           name of the run in reports
  --via PROGRAM         program through which `plan` reaches other hosts (ssh)
  --out FILE            the page that `report` writes (report.html)
  --picture FILE        `report` also draws the medians of the calls of each --op (octet) over TCP, as one SVG picture
  --hello FILE          the hello example's server, for `footprint`; by default hello-server in the folder of this program
  --minimal FILE        its smallest form (cargo build --profile minimal); by default ../minimal/hello-server
  --peers DIR           folder of the peers' sources: interop/peers of the repository
  --preemption          `os` also switches the kernel's preemption mode, for the whole machine, while it measures
  --without-peers       leave the peers out; the report says so
  --strict              missing measurements are a failure

Exit status: 0 all ran (missing peers are reported and are no failure), 1 a benchmark failed,
2 wrong usage.
";

/// Exit status of a command that succeeded.
pub const EXIT_SUCCESS: u8 = 0;
/// Exit status of a command that failed, for example because a benchmark failed.
pub const EXIT_FAILURE: u8 = 1;
/// Exit status of a command line that is not valid.
pub const EXIT_WRONG_USAGE: u8 = 2;

/// The benchmarks that set the cores' idle states. The command releases its [`IdleStateLock`]
/// before it runs one of them.
const SET_IDLE_STATES: [&str; 2] = [OS, INSTEAD];
const OS: &str = "os";
const INSTEAD: &str = "instead";

type BenchmarkFunction = fn(&BenchOptions, &mut Report<'_>, &mut Progress) -> Result<(), Failure>;

struct Benchmark {
    name: &'static str,
    about: &'static str,
    run: BenchmarkFunction,
}

const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "switch",
        about: "context switches: yield, suspend-resume, synchronized suspend-resume; one core and across",
        run: switch::switch,
    },
    Benchmark {
        name: "floor",
        about: "bare sockets and shared memory with an ORB's message sizes: blocking, epoll, futex, spin",
        run: call::floor,
    },
    Benchmark {
        name: "call",
        about: "two-way and oneway calls of Corelane and omniORB against the floor",
        run: call::call,
    },
    Benchmark {
        name: "cubit",
        about: "operation throughput with every kind of argument: Corelane, omniORB, JacORB, Ice and the floor",
        run: cubit::cubit,
    },
    Benchmark {
        name: INSTEAD,
        about: "echoes of an octet, 64 KiB and 1 MiB: Corelane, iceoryx2, tonic, zenoh, Cap'n Proto and tarpc",
        run: instead::instead,
    },
    Benchmark {
        name: "mt",
        about: "MT_Cubit: latency and jitter of a high-priority client beside 0 to 500 clients of different lower priorities",
        run: mt::mt,
    },
    Benchmark { name: "mt-equal", about: "MT_Cubit with one priority for all low-priority clients", run: mt::mt_equal },
    Benchmark {
        name: "saturation",
        about: "a high-priority client beside low-priority ones that keep nine tenths of the core busy, by load and transport",
        run: mt::saturation,
    },
    Benchmark {
        name: "inversion",
        about: "a high-priority client beside floods on the same server, by dispatch architecture and connection model",
        run: mt::inversion,
    },
    Benchmark {
        name: "lane",
        about: "cost of a lane compared with a plain pool, the same thread at the same priority",
        run: lane::lane,
    },
    Benchmark {
        name: OS,
        about: "calls by scheduling class, cores, idle states, timer slack and kernel preemption",
        run: os::os,
    },
    Benchmark {
        name: "architectures",
        about: "1 to 16 client threads against every dispatch architecture",
        run: architectures::architectures,
    },
    Benchmark {
        name: "cpu",
        about: "calls between two threads of one process, compared with collocated calls; a low-priority thread takes the remaining time",
        run: cpu::cpu,
    },
    Benchmark {
        name: "stages",
        about: "time of each stage of a request in the server, from time probes inside the ORB",
        run: stages::stages,
    },
    Benchmark {
        name: "protocol",
        about: "calls with marshalling, and as octet sequences of the same size: Corelane and omniORB",
        run: protocol::protocol,
    },
    Benchmark {
        name: "cores-acceptance",
        about: "random tasks that admission accepts on 2 to 128 cores, beside other allocators and an exhaustive search",
        run: cores::acceptance::acceptance,
    },
    Benchmark {
        name: "cores-decide",
        about: "time of an admission decision, from stored analysis and without, and of the search for moves",
        run: cores::decide::decide,
    },
    Benchmark {
        name: "cores-clock",
        about: "round trips between two cores by signal, futex and spin; offset between their clocks",
        run: cores::clock::clock,
    },
    Benchmark {
        name: "cores-migration",
        about: "time to move a thread to another core: itself, a running thread, a sleeping thread",
        run: cores::migration::migration,
    },
    Benchmark {
        name: "cores-path",
        about: "calls of tasks that a core pool serves on their core, moves of its threads, rejected admissions",
        run: cores::path::path,
    },
    Benchmark {
        name: "cores-misses",
        about: "deadline misses of periodic clients by utilization and balance factor: a core pool, lanes, omniORB, simulation",
        run: cores::misses::misses,
    },
    Benchmark {
        name: "cores-balance",
        about: "the kernel's load balancer while all tasks are bound to one core",
        run: cores::balance::balance,
    },
    Benchmark {
        name: "cores-isolation",
        about: "calls of a task beside a task that overruns, a flooding client, and requests without a task",
        run: cores::isolation::isolation,
    },
    Benchmark {
        name: "rio",
        about: "real-time I/O beside the kernel's TCP: round trips and CORBA calls idle and beside bulk load, guaranteed bandwidth, costs",
        run: rio::rio,
    },
    Benchmark {
        name: "counts",
        about: "system calls, locks, futex calls, atomic operations, allocations and hand-offs of a call, on both sides",
        run: counts::counts,
    },
    Benchmark {
        name: "demux",
        about: "time to find one of 1 to 1,000 connections, POAs 0 to 64 deep, 1 to 1,000,000 objects, 1 to 1,000 operations; octets per object",
        run: demux::demux,
    },
    Benchmark {
        name: "scale",
        about: "1 to 10,000 connections, 1 to 64 client threads, octet sequences of 1 B to 64 MiB",
        run: scale::scale,
    },
    Benchmark {
        name: "cores",
        about: "throughput on one to all cores, with a client thread for each core, beside as many pairs of bare sockets",
        run: core_scaling::cores,
    },
    Benchmark {
        name: "floods",
        about: "good clients beside connections that send oneways without end, by dispatch architecture",
        run: floods::floods,
    },
    Benchmark {
        name: "naming",
        about: "the name server: resolve among 10 to 1,000,000 bindings, durable and relaxed changes, start, memory; omniNames",
        run: naming::naming,
    },
    Benchmark {
        name: "events",
        about: "event channels: dispatch, three processes, slow consumers, 1 to 100 consumers, filters, priorities; omniEvents",
        run: events::events,
    },
    Benchmark {
        name: "footprint",
        about: "size and idle memory of the hello example's server, and of omniORB's",
        run: footprint::footprint,
    },
    Benchmark {
        name: "idl-front-end",
        about: "lines of IDL parsed and checked per second, compared with omniidl",
        run: idl::front_end,
    },
];

/// Runs the command with the arguments after `corelane bench`, and returns the exit status:
/// [`EXIT_SUCCESS`], [`EXIT_FAILURE`] or [`EXIT_WRONG_USAGE`]. Writes text to `out`, but with
/// `--json -` the text of benchmarks goes to the standard error.
pub fn run(arguments: impl IntoIterator<Item = OsString>, out: &mut dyn Write) -> u8 {
    let mut arguments = arguments.into_iter();
    let verb = arguments.next().map(|verb| verb.to_string_lossy().into_owned()).unwrap_or_default();
    let mut options = match BenchOptions::parse(arguments) {
        Ok(options) => options,
        Err(failure) => return wrong_usage(&failure, out),
    };
    options.transports = transports(&verb, options.transports);
    if options.help || matches!(verb.as_str(), "help" | "-h" | "--help") {
        let _ = out.write_all(USAGE.as_bytes());
        return EXIT_SUCCESS;
    }
    let chosen = match choose(&verb, &options.names) {
        Ok(Selection::List) => {
            for benchmark in BENCHMARKS {
                let _ = writeln!(out, "{:<16} {}", benchmark.name, benchmark.about);
            }
            return EXIT_SUCCESS;
        }
        Ok(Selection::Report) => {
            let files: Vec<PathBuf> = options.names.iter().map(PathBuf::from).collect();
            let picture = options.picture.as_deref().map(|path| (path, options.operations.as_slice()));
            return match page::write(&files, Outputs { page: &options.page, picture }) {
                Ok(runs) => {
                    let _ =
                        writeln!(out, "{} has {runs} run{}", options.page.display(), if runs == 1 { "" } else { "s" });
                    EXIT_SUCCESS
                }
                Err(failure) => failed(&failure, out),
            };
        }
        Ok(Selection::Plan) => {
            let (Some(plan), Some(json)) = (options.names.first(), &options.json) else {
                return wrong_usage(&Failure::new("`plan` takes one plan, and --json FILE for the results"), out);
            };
            return match plan::run_plan(Path::new(plan), json, &options.remote_shell, out) {
                Ok(_) => EXIT_SUCCESS,
                Err(failure) => failed(&failure, out),
            };
        }
        Ok(Selection::These(benchmarks)) => benchmarks,
        Err(failure) => return wrong_usage(&failure, out),
    };
    match run_all(&chosen, &options, out) {
        Ok(()) => EXIT_SUCCESS,
        Err(failure) => failed(&failure, out),
    }
}

fn failed(failure: &Failure, out: &mut dyn Write) -> u8 {
    let _ = writeln!(out, "error: {failure}");
    EXIT_FAILURE
}

enum Selection {
    List,
    Plan,
    Report,
    These(Vec<&'static Benchmark>),
}

fn choose(verb: &str, names: &[String]) -> Result<Selection, Failure> {
    match verb {
        "list" if names.is_empty() => Ok(Selection::List),
        "all" if names.is_empty() => Ok(Selection::These(BENCHMARKS.iter().collect())),
        "plan" if names.len() == 1 => Ok(Selection::Plan),
        "plan" => Err(Failure::new("`plan` takes one file")),
        "report" if names.is_empty() => Err(Failure::new("`report` needs at least one file that `--json` has written")),
        "report" => Ok(Selection::Report),
        "list" | "all" => Err(Failure::new(format!("`{verb}` takes no names; `run` does"))),
        "run" if names.is_empty() => Err(Failure::new("no benchmark is named; `corelane bench list` lists them")),
        "run" => {
            let named = names.iter().map(|name| {
                let mut known = BENCHMARKS.iter();
                known.find(|benchmark| benchmark.name == name).ok_or_else(|| {
                    Failure::new(format!("there is no benchmark `{name}`; `corelane bench list` lists them"))
                })
            });
            named.collect::<Result<_, _>>().map(Selection::These)
        }
        "" => Err(Failure::new("no command is given; there are list, run, all, plan and report")),
        _ => Err(Failure::new(format!("there is no command `{verb}`; there are list, run, all, plan and report"))),
    }
}

fn transports(verb: &str, named: Vec<BaselineTransport>) -> Vec<BaselineTransport> {
    if verb == "all" && named.is_empty() { BaselineTransport::ALL.to_vec() } else { named }
}

fn wrong_usage(failure: &Failure, out: &mut dyn Write) -> u8 {
    let _ = write!(out, "error: {failure}\n\n{USAGE}");
    EXIT_WRONG_USAGE
}

fn run_all(benchmarks: &[&Benchmark], options: &BenchOptions, out: &mut dyn Write) -> Result<(), Failure> {
    let mut awake = IdleStateLock::hold();
    let mut errors = std::io::stderr();
    let to_standard_output = options.json.as_deref() == Some(Path::new(STANDARD_OUTPUT));
    let out: &mut dyn Write = if to_standard_output { &mut errors } else { out };
    let mut report = Report::new(out, options.json.as_deref())?;
    let environment = Environment::read(&options.placement, &idle_held(awake.is_some(), benchmarks));
    report.begin(options.name.as_deref(), &environment, &options.run_length)?;
    if cfg!(debug_assertions) {
        report.add_text("warning: this is a debug build; build with --release for valid figures\n")?;
    }
    let mut progress = Progress::new();
    let mut first_failure = None;
    let began = RunEnd::begin();
    for (index, benchmark) in benchmarks.iter().enumerate() {
        progress.step(index + 1, benchmarks.len());
        awake = match benchmark.name {
            name if SET_IDLE_STATES.contains(&name) => None,
            _ => awake.or_else(IdleStateLock::hold),
        };
        let outcome = (benchmark.run)(options, &mut report, &mut progress);
        progress.clear();
        if let Err(failure) = outcome {
            report.add_missing(benchmark.name, "Corelane", &failure.to_string())?;
            first_failure.get_or_insert(failure);
        }
        report.add_verdict(benchmark.name, options.placement.cores)?;
    }
    report.end(&RunEnd::since(&began))?;
    if report.is_incomplete() {
        report.add_text("\nThe run is incomplete: see NOT MEASURED above.\n")?;
        if options.strict {
            first_failure.get_or_insert(Failure::new("a measurement is missing"));
        }
    }
    first_failure.map_or(Ok(()), Err)
}

fn idle_held(held: bool, benchmarks: &[&Benchmark]) -> String {
    let is_named = |name: &&str| benchmarks.iter().any(|benchmark| benchmark.name == *name);
    let setting: Vec<String> = SET_IDLE_STATES.into_iter().filter(is_named).map(|name| format!("`{name}`")).collect();
    let setting = setting.join(" and ");
    match setting.is_empty() {
        _ if !held => "not held".to_owned(),
        true => "held at 0 us by /dev/cpu_dma_latency".to_owned(),
        false if benchmarks.iter().all(|benchmark| SET_IDLE_STATES.contains(&benchmark.name)) => {
            format!("set by {setting}: see the figures")
        }
        false => format!("held at 0 us by /dev/cpu_dma_latency, except in {setting}: see the figures"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> (u8, String) {
        let mut out = Vec::new();
        let status = run(line.split_whitespace().map(OsString::from), &mut out);
        (status, String::from_utf8(out).unwrap())
    }

    #[test]
    fn list_and_help_name_every_benchmark() {
        let (status, text) = said("list");
        assert_eq!(status, EXIT_SUCCESS);
        assert!(BENCHMARKS.iter().all(|benchmark| text.contains(benchmark.name)), "{text}");
        assert_eq!(said("run --help"), (EXIT_SUCCESS, USAGE.to_owned()));
    }

    #[test]
    fn all_measures_every_transport_by_default() {
        assert_eq!(transports("all", Vec::new()), BaselineTransport::ALL);
        assert_eq!(transports("all", vec![BaselineTransport::Unix]), [BaselineTransport::Unix]);
        assert_eq!(transports("run", Vec::new()), []);
    }

    #[test]
    fn description_of_idle_states_excepts_the_benchmark_that_sets_them() {
        let named = |names: &[&str]| -> Vec<&Benchmark> {
            BENCHMARKS.iter().filter(|benchmark| names.contains(&benchmark.name)).collect()
        };
        assert_eq!(idle_held(true, &named(&["call"])), "held at 0 us by /dev/cpu_dma_latency");
        assert_eq!(idle_held(false, &named(&["call", OS])), "not held");
        assert!(!idle_held(true, &named(&[OS])).starts_with("held at"));
        assert!(idle_held(true, &named(&["call", OS])).contains("except in `os`:"));
        assert!(idle_held(true, &named(&[OS, INSTEAD])).starts_with("set by `os` and `instead`:"));
    }

    #[test]
    fn wrong_usage_has_its_own_exit_status_and_a_usage_text() {
        for line in
            ["", "what", "run", "run nothing", "list call", "all call", "run call --core", "report", "plan", "plan x"]
        {
            let (status, text) = said(line);
            assert_eq!(status, EXIT_WRONG_USAGE, "{line}");
            assert!(text.starts_with("error: ") && text.contains("usage:"), "{text}");
        }
    }
}
