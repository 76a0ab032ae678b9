//! The command `corelane bench report`, which makes one HTML page and, with `--picture`, one SVG
//! picture from the JSON lines of one or more runs.
//!
//! The page has no scripts and loads no other files.

mod chart;
mod papers;
mod read;
mod sections;
mod table;
mod tables;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::operation::MeasuredOperation;
use chart::escaped;
use read::RecordedRun;

const CHART_STYLE: &str = include_str!("chart/style.css");

#[derive(Clone, Copy, Debug)]
pub(crate) struct Outputs<'o> {
    pub(crate) page: &'o Path,
    pub(crate) picture: Option<(&'o Path, &'o [MeasuredOperation])>,
}

/// Writes the outputs, and returns the number of runs in `files`.
pub(crate) fn write(files: &[PathBuf], outputs: Outputs<'_>) -> Result<usize, Failure> {
    let mut runs = Vec::new();
    for file in files {
        let text = fs::read_to_string(file)
            .map_err(|error| Failure::new(format!("cannot read `{}`: {error}", file.display())))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        read::add(&mut runs, &name, &text)?;
    }
    if runs.is_empty() {
        return Err(Failure::new("the files contain no run"));
    }
    write_to(outputs.page, &render(&runs))?;
    if let Some((path, operations)) = outputs.picture {
        write_to(path, &picture(&runs, operations)?)?;
    }
    Ok(runs.len())
}

fn write_to(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::new(format!("cannot write `{}`: {error}", path.display())))
}

fn picture(runs: &[RecordedRun], operations: &[MeasuredOperation]) -> Result<String, Failure> {
    let operations = if operations.is_empty() { &[MeasuredOperation::Octet] } else { operations };
    let panels = operations.iter().map(|operation| {
        let operation = operation.to_string();
        sections::panel(runs, &operation).ok_or_else(|| {
            Failure::new(format!("the runs have no calls of `{operation}` over TCP by `call` or `cubit`"))
        })
    });
    let panels: Vec<_> = panels.collect::<Result<_, _>>()?;
    let of_run = |name: &str| {
        let mut all = runs.iter().flat_map(|run| &run.environment);
        all.find(|(other, _)| other == name).map_or("?", |(_, value)| value.as_str())
    };
    let title = format!("Two-way calls over TCP on {}, {}", of_run("processor"), of_run("date"));
    Ok(chart::picture(&title, sections::CALL_TIMES_UNIT, &panels, CHART_STYLE))
}

struct Chapter {
    bench: &'static str,
    title: &'static str,
    about: &'static str,
}

const CHAPTERS: &[Chapter] = &[
    Chapter {
        bench: "switch",
        title: "Context switches",
        about: "The time that the operating system needs to switch the processor between \
        threads. The time of the same work without a switch is subtracted, as in the papers, and has a row of its own.",
    },
    Chapter {
        bench: "floor",
        title: "The floor",
        about: "Bare sockets that exchange messages of the same sizes as an ORB's.",
    },
    Chapter {
        bench: "call",
        title: "Calls",
        about: "Two-way and oneway calls, against bare sockets with messages of the same size.",
    },
    Chapter {
        bench: "cubit",
        title: "Operation throughput (IDL_Cubit)",
        about: "One client calls as fast as it can, with every kind of \
        argument; other ORBs run the same IDL and loop.",
    },
    Chapter {
        bench: "mt",
        title: "Latency and jitter (MT_Cubit)",
        about: "One client at the highest priority calls at 20 Hz while n \
        clients at lower priorities call at 10 Hz each. Ideally the high-priority client does not notice.",
    },
    Chapter {
        bench: "mt-equal",
        title: "Latency and jitter, low priorities all equal",
        about: "MT_Cubit with one priority for all low-priority clients, as in paper 4.",
    },
    Chapter {
        bench: "saturation",
        title: "A saturated core",
        about: "The high-priority client beside a low-priority client that keeps nine tenths of the core busy, with servants that compute and \
        with large arguments.",
    },
    Chapter {
        bench: "os",
        title: "The operating system",
        about: "The same ORB and calls under different settings of the system: scheduling class, cores, idle states, timers, preemption.",
    },
    Chapter {
        bench: "inversion",
        title: "Priority inversion",
        about: "A high-priority client beside floods on the same server, \
        by dispatch architecture and use of connections.",
    },
    Chapter {
        bench: "lane",
        title: "The cost of a lane",
        about: "The same calls served by one thread of a lane and of a plain pool.",
    },
    Chapter {
        bench: "architectures",
        title: "Concurrency architectures",
        about: "The same server load by thread-pool architecture.",
    },
    Chapter {
        bench: "cpu",
        title: "CPU utilization",
        about: "The same calls between two threads of one process and collocated: the \
        difference is the cost of ORB and system. A thread of lower priority shows whether the processor was ever given to it.",
    },
    Chapter {
        bench: "stages",
        title: "Demultiplexing by stage",
        about: "Time between the probes that one request passes in the server.",
    },
    Chapter {
        bench: "demux",
        title: "Demultiplexing by number",
        about: "The time to find connection, POA, object and operation, by \
        their number.",
    },
    Chapter {
        bench: "protocol",
        title: "Marshalling",
        about: "Messages of the same size, as typed arguments and as octet sequences.",
    },
    Chapter {
        bench: "counts",
        title: "Counts per call",
        about: "System calls, locks, hand-offs and allocations of one call.",
    },
    Chapter { bench: "scale", title: "Scale", about: "Connections, threads and message sizes." },
    Chapter {
        bench: "floods",
        title: "Floods of oneways",
        about: "Clients that wait for each reply, alone and beside connections that send oneways without end, by dispatch \
        architecture.",
    },
    Chapter {
        bench: "cores-clock",
        title: "Clocks of two cores",
        about: "Threads on two cores wake each other by signal, futex and spin. The offset between their clocks is known to \
        half of the shortest round trip.",
    },
    Chapter {
        bench: "cores-balance",
        title: "Load balancing by the kernel",
        about: "The work of the kernel's load balancer while all tasks are bound to one core, so that it can move none.",
    },
    Chapter {
        bench: "cores-migration",
        title: "Migration between cores",
        about: "The time to move a thread to another core: a thread that moves itself, a running thread and a sleeping \
        thread that a manager moves.",
    },
    Chapter {
        bench: "cores-path",
        title: "Calls of tasks",
        about: "Calls that a core pool serves on the core of their task, and decisions about tasks with their messages.",
    },
    Chapter {
        bench: "cores-misses",
        title: "Deadline misses",
        about: "Random sets of periodic clients by utilization and balance factor, and the sets with a deadline miss.",
    },
    Chapter {
        bench: "cores-acceptance",
        title: "Acceptance of tasks",
        about: "Random sets of tasks, equal for all allocators, and the part of them that each accepts.",
    },
    Chapter {
        bench: "cores-decide",
        title: "Time of an admission decision",
        about: "Decisions about one task, from the stored analysis of the cores and without it, and with a search for moves.",
    },
    Chapter {
        bench: "cores-isolation",
        title: "Isolation of tasks",
        about: "A task beside another task that overruns, a client that floods, and requests without a task.",
    },
    Chapter {
        bench: "rio",
        title: "Real-time I/O",
        about: "The experiments of the paper on the RIO subsystem: the kernel's TCP beside real-time I/O at its levels, \
        without other traffic and beside bulk load, and guaranteed bandwidth. Receiver and sender are in two network namespaces.",
    },
    Chapter {
        bench: "naming",
        title: "The name server",
        about: "Resolving names beside a plain call and omniNames, changes beside the syncs of the disk, and a context \
        with a million bindings. omniNames searches a linked list for each component and never syncs its log.",
    },
    Chapter {
        bench: "events",
        title: "Event channels",
        about: "Deliveries beside collocated calls, bare relays of as many octets and omniEvents; filters, slow \
        consumers, many consumers, and suppliers of lower priority.",
    },
    Chapter { bench: "idl-front-end", title: "The IDL compiler", about: "The time to read IDL." },
    Chapter { bench: "footprint", title: "Footprint", about: "Sizes of programs and of their memory." },
];

fn render(runs: &[RecordedRun]) -> String {
    let mut page = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\"><title>Corelane benchmarks</title><style>\n",
    );
    page.push_str(CHART_STYLE);
    page.push_str(include_str!("style.css"));
    let plural = if runs.len() == 1 { "run" } else { "runs" };
    let _ = write!(
        page,
        "</style></head><body>\n<h1>Corelane benchmarks</h1>\n<p class=\"soft\">{} {plural}: {}. Times are in microseconds; a bar is \
         the median, with its number at its end; the thin line beneath leads to the 99th percentile, or ends in an arrow if that is \
         outside of the chart; dashed lines are 99th percentiles; an ORB has one colour everywhere; <i>sd</i> is the standard deviation, which the papers call jitter.</p>\n",
        runs.len(),
        escaped(&runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>().join(", "))
    );
    let chapters = present(runs);
    page.push_str("<nav>");
    for (bench, title, _) in &chapters {
        let _ = write!(page, "<a href=\"#{bench}\">{}</a>", escaped(title));
    }
    page.push_str("<a href=\"#machine\">Machine and run</a></nav>\n");
    page.push_str(&tables::missing(runs));
    page.push_str(&tables::goals(runs));
    page.push_str(&tables::comparison(runs));
    for (bench, title, about) in &chapters {
        let _ = writeln!(page, "<h2 id=\"{bench}\">{}</h2>\n<p>{}</p>", escaped(title), escaped(about));
        page.push_str(&tables::papers(bench));
        page.push_str(&sections::of_bench(runs, bench));
    }
    page.push_str("<h2 id=\"machine\">Machine and run</h2>\n");
    page.push_str(&tables::environment(runs));
    page.push_str("</body></html>\n");
    page
}

/// Returns the name, title and description of each benchmark in the runs. Benchmarks that this
/// program does not know are last, with their name as title and without a description.
fn present(runs: &[RecordedRun]) -> Vec<(String, String, String)> {
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        let all = run.results.iter().map(|line| &line.label).chain(run.values.iter().map(|line| &line.label));
        for name in all.map(|names| names.bench.as_str()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let known = CHAPTERS.iter().filter(|chapter| names.contains(&chapter.bench));
    let mut found: Vec<_> =
        known.map(|chapter| (chapter.bench.to_owned(), chapter.title.to_owned(), chapter.about.to_owned())).collect();
    let others = names.iter().filter(|name| CHAPTERS.iter().all(|chapter| chapter.bench != **name));
    found.extend(others.map(|name| ((*name).to_owned(), (*name).to_owned(), String::new())));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(run: &str, rest: &str) -> String {
        format!("{{\"schema\":\"corelane-bench\",\"version\":1,\"run\":\"{run}\",{rest}}}\n")
    }

    fn example(run: &str, p50: f64) -> String {
        let result = |config: &str, more: &str| {
            format!(
                "\"record\":\"result\",\"bench\":\"call\",\"group\":\"call <octet>\",\"peer\":\"Corelane\",\"transport\":\"tcp\",\
                 \"op\":\"octet\",\"config\":\"{config}\",\"n\":10,\"p50_us\":{p50},\"p99_us\":9.5,\"cdf_us\":[1,{p50},20]{more}"
            )
        };
        line(run, "\"record\":\"run\",\"kernel\":\"6.1\",\"cdf_parts\":[0,0.5,1]")
            + &line(run, &result("blocking", ""))
            + &line(run, &result("4 objects", ",\"series\":\"x\",\"axis\":\"objects\",\"x\":4"))
            + &line(
                run,
                "\"record\":\"value\",\"bench\":\"stages\",\"group\":\"stages\",\"op\":\"octet\",\"what\":\"POA\",\"value\":0.2,\"unit\":\"us\"",
            )
            + &line(run, "\"record\":\"missing\",\"bench\":\"call\",\"peer\":\"Ice\",\"reason\":\"not <there>\"")
    }

    #[test]
    fn page_has_figures_numbers_papers_and_missing_measurements() {
        let mut runs = Vec::new();
        read::add(&mut runs, "first", &example("a", 5.25)).unwrap();
        let page = render(&runs);
        for part in
            ["<svg", "5.25", "call &lt;octet&gt;", "Request demultiplexing by stage", "not &lt;there&gt;", "kernel"]
        {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("<octet>") && !page.contains("NaN") && !page.contains("<script"));
        assert!(!page.contains("http") && !page.contains("src="));
    }

    #[test]
    fn runs_are_compared() {
        let mut runs = Vec::new();
        read::add(&mut runs, "first", &example("a", 5.0)).unwrap();
        assert!(!render(&runs).contains("Comparison"));
        read::add(&mut runs, "second", &example("b", 10.0)).unwrap();
        assert!(render(&runs).contains("<h2>Comparison</h2>"));
    }

    #[test]
    fn curves_of_both_kinds_of_clients_are_drawn() {
        let of = |side: &str, n: u64| {
            line(
                "a",
                &format!(
                    "\"record\":\"result\",\"bench\":\"mt\",\"group\":\"{side}\",\"peer\":\"Corelane\",\"op\":\"{side}\",\"config\":\"{n}\",\
                     \"p50_us\":5,\"p99_us\":9,\"mean_us\":6,\"sd_us\":1.5,\"series\":\"lanes\",\"axis\":\"low-priority clients\",\"x\":{n}"
                ),
            )
        };
        let mut runs = Vec::new();
        read::add(&mut runs, "first", &(of("high", 0) + &of("high", 5) + &of("low", 1) + &of("low", 5))).unwrap();
        let page = render(&runs);
        for curve in ["lanes, median", "lanes, p99", "lanes, mean", "lanes, jitter"] {
            let title = format!("<title>Corelane {curve}</title>");
            assert_eq!(page.matches(&title).count(), 2, "{curve}: both clients");
        }
        assert!(page.contains("lanes, jitter: 1.5 at 0"), "{page}");
    }

    #[test]
    fn throughput_is_drawn_by_operation() {
        let of = |quantity: &str| {
            line(
                "a",
                &format!(
                    "\"record\":\"value\",\"bench\":\"cubit\",\"group\":\"all\",\"peer\":\"omniORB\",\"config\":\"as it comes\",\
                     \"what\":\"{quantity}\",\"value\":8,\"unit\":\"us per call\""
                ),
            )
        };
        let mut runs = Vec::new();
        read::add(&mut runs, "first", &(of("octet") + &of("long"))).unwrap();
        let page = render(&runs);
        assert!(page.contains("omniORB as it comes, long: 8 us per call, 125k per second"), "{page}");
        assert_eq!(page.matches("<svg class=\"chart\"").count(), 1);
    }

    #[test]
    fn page_and_picture_are_written_from_files() {
        let folder = std::env::temp_dir().join(format!("corelane-page-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, page) = (folder.join("run.json"), folder.join("page.html"));
        fs::write(&file, example("a", 5.0)).unwrap();
        let picture = folder.join("picture.svg");
        let outputs = Outputs { page: &page, picture: None };
        assert_eq!(write(std::slice::from_ref(&file), outputs).unwrap(), 1);
        assert!(fs::read_to_string(&page).unwrap().contains("1 run: run") && !picture.exists());
        let both = Outputs { picture: Some((&picture, &[])), ..outputs };
        assert_eq!(write(std::slice::from_ref(&file), both).unwrap(), 1);
        let drawn = fs::read_to_string(&picture).unwrap();
        assert!(drawn.contains("Corelane blocking: 5 us") && drawn.contains(">octet<"), "{drawn}");
        let other = Outputs { picture: Some((&picture, &[MeasuredOperation::Long])), ..outputs };
        let refused = write(std::slice::from_ref(&file), other).unwrap_err().to_string();
        assert!(refused.contains("no calls of `long`"), "{refused}");
        fs::write(&file, "").unwrap();
        assert!(write(&[file], outputs).unwrap_err().to_string().contains("no run"));
        assert!(write(&[folder.join("gone")], outputs).unwrap_err().to_string().contains("gone"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
