//! Tests of `corelane cores` as a process.

use std::fs;
use std::io::{BufRead as _, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value as Json;

fn cores(words: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.arg("cores").args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("the program ends by itself")
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("the program ends by itself")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(output: &Output) -> Json {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(output)))
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

/// Returns a task file for one core. Each pair is an execution time and a period in milliseconds.
fn one_core(tasks: &[(u32, u32)]) -> String {
    let mut file = "[machine]\ncores = 1\ncapacity = 1.0\n".to_owned();
    for (number, (execution, period)) in tasks.iter().enumerate() {
        file += &format!("[[task]]\nname = 't{number}'\nexecution = '{execution}ms'\nperiod = '{period}ms'\n");
    }
    file
}

fn responses(report: &Json) -> Vec<f64> {
    let response = |task: &Json| task["response_ns"].as_f64().expect("a bound") / 1e6;
    report["tasks"].as_array().expect("tasks").iter().map(response).collect()
}

#[test]
fn analyse_gives_the_response_times_of_the_literature() {
    for (tasks, expected) in [
        (&[(3, 7), (3, 12), (5, 20)][..], &[3.0, 6.0, 20.0][..]),
        (&[(5, 20), (10, 40), (40, 80)], &[5.0, 15.0, 80.0]),
        (&[(20, 100), (40, 150), (100, 350)], &[20.0, 60.0, 240.0]),
        (&[(40, 100), (40, 150), (100, 350)], &[40.0, 80.0, 300.0]),
        (&[(1, 4), (1, 5), (3, 9), (3, 18)], &[1.0, 2.0, 7.0, 18.0]),
        (&[(1, 2), (5, 20), (1, 20)], &[1.0, 10.0, 12.0]),
    ] {
        let output = cores(&["analyse", "-", "--json"], &one_core(tasks));
        assert_eq!(status(&output), 0, "{}", text(&output));
        let report = json(&output);
        let mut found = responses(&report);
        // The two tasks of equal period may have their priorities in either order.
        found.sort_by(f64::total_cmp);
        assert_eq!(found, expected);
        assert_eq!(
            (&report["schema"], &report["fits"], &report["tasks"][0]["core"]),
            (&1.into(), &true.into(), &0.into())
        );
    }
}

#[test]
fn analyse_names_a_task_that_misses_its_deadline_and_fails() {
    let file = one_core(&[(10, 30), (10, 40), (12, 50)]);
    let output = cores(&["analyse", "-", "--json"], &file);
    assert_eq!(status(&output), 1);
    let report = json(&output);
    assert_eq!(responses(&report), [10.0, 20.0, 52.0]);
    let fits: Vec<bool> = report["tasks"].as_array().unwrap().iter().map(|task| task["fits"] == true).collect();
    assert_eq!(fits, [true, true, false]);
    let output = cores(&["analyse", "-"], &file);
    let text = text(&output);
    assert!(text.contains("t2: a deadline would be missed on core 0; an execution time of "), "{text}");
    assert!(text.contains("1 of 3 tasks cannot keep their deadlines"), "{text}");
}

#[test]
fn rejected_task_fits_with_more_cores_or_another_discipline() {
    let file = one_core(&[(10, 30), (10, 40), (12, 50)]);
    let on_two = cores(&["analyse", "-", "--cores", "2", "--json"], &file);
    assert_eq!(status(&on_two), 0);
    let used: std::collections::BTreeSet<u64> =
        json(&on_two)["tasks"].as_array().unwrap().iter().map(|task| task["core"].as_u64().unwrap()).collect();
    assert_eq!(used.len(), 2);
    let by_deadline = cores(&["analyse", "-", "--discipline", "earliest-deadline-first"], &file);
    assert_eq!(status(&by_deadline), 0);
    assert!(text(&by_deadline).contains("all 3 tasks keep their deadlines"), "{}", text(&by_deadline));
}

#[test]
fn simulate_shows_the_miss_that_analyse_predicts() {
    let folder = folder("simulate");
    let picture = folder.join("schedule.svg");
    let late = one_core(&[(10, 30), (10, 40), (12, 50)]);
    let output = cores(&["simulate", "-", "--json", "--svg", &picture.to_string_lossy()], &late);
    assert_eq!(status(&output), 1);
    let report = json(&output);
    assert_eq!(report["tasks"][2]["longest_response_ns"], 52_000_000);
    assert!(report["tasks"][2]["missed"].as_u64() > Some(0));
    assert!(fs::read_to_string(&picture).expect("a picture").matches("<rect").count() > 10);
    let kept = cores(&["simulate", "-", "--for", "1s"], &one_core(&[(3, 7), (3, 12), (5, 20)]));
    assert_eq!(status(&kept), 0);
    assert!(text(&kept).contains(" 0 deadlines missed"), "{}", text(&kept));
}

#[test]
fn only_tasks_of_a_lost_core_miss_their_deadlines() {
    let file = one_core(&[(4, 7), (4, 7)]).replace("cores = 1", "cores = 2");
    let words = ["simulate", "-", "--json", "--for", "70ms"];
    assert_eq!(status(&cores(&words, &file)), 0);
    let mut missed = std::collections::BTreeSet::new();
    for core in [0, 1] {
        let output = cores(&[&words[..], &["--lose", &format!("{core}@20ms")]].concat(), &file);
        assert_eq!(status(&output), 1, "{}", text(&output));
        let report = json(&output);
        let late = |task: &usize| report["tasks"][*task]["missed"].as_u64() > Some(0);
        missed.insert((0..2).filter(late).collect::<Vec<_>>());
    }
    assert_eq!(missed, [vec![0], vec![1]].into());
    let output = cores(&[&words[..], &["--lose", "2@20ms"]].concat(), &file);
    assert!(text(&output).contains("the machine has 2 cores, 0 to 1"), "{}", text(&output));
}

#[test]
fn generated_file_can_be_analysed_and_is_repeated_by_its_seed() {
    let words = ["generate", "--util", "1.6", "--balance", "0.5", "--seed", "7"];
    let made = cores(&words, "");
    assert_eq!(status(&made), 0);
    assert_eq!(text(&made), text(&cores(&words, "")));
    assert_ne!(text(&made), text(&cores(&["generate", "--util", "1.6", "--balance", "0.5", "--seed", "8"], "")));
    let analysed = cores(&["analyse", "-", "--json"], &text(&made));
    assert_eq!(status(&analysed), 0, "{}", text(&analysed));
    assert_eq!(json(&analysed)["tasks"].as_array().map(Vec::len), Some(15));
    let too_much = cores(&["generate", "--util", "3", "--tasks", "2"], "");
    assert_eq!(status(&too_much), 1);
}

#[test]
fn allocation_survives_conversion_to_rt_app_and_back() {
    let folder = folder("rt-app");
    let (file, picture) = (folder.join("out.json"), folder.join("responses.svg"));
    let (file, picture) = (file.to_string_lossy().into_owned(), picture.to_string_lossy().into_owned());
    let input = one_core(&[(3, 7), (3, 12), (5, 20)]);
    let first = cores(&["analyse", "-", "--json", "--rt-app", &file, "--svg", &picture], &input);
    assert_eq!(status(&first), 0);
    assert!(fs::read_to_string(&picture).expect("a picture").contains("20.000 of 20.000 ms"));
    let again = cores(&["analyse", &file, "--json"], "");
    assert_eq!(status(&again), 0, "{}", text(&again));
    assert_eq!(responses(&json(&again)), responses(&json(&first)));
}

#[test]
fn malformed_files_are_refused_with_the_line_and_the_field() {
    let output = cores(&["analyse", "-"], "[[task]]\nname = 'pump'\nexecution = '30ms'\nperiod = '20ms'\n");
    assert_eq!(status(&output), 1);
    let said = text(&output);
    assert!(said.starts_with("error: -: line 3: task.execution: 30ms is out of range"), "{said}");
    for (input, expected) in [("", "the file has no task"), ("[[task", "line 1"), ("{\"tasks\": 1}", "tasks: expected")]
    {
        let output = cores(&["simulate", "-"], input);
        assert_eq!(status(&output), 1);
        assert!(text(&output).contains(expected), "{}", text(&output));
    }
    let huge = "#".repeat(2 << 20);
    assert!(text(&cores(&["analyse", "-"], &huge)).contains("at most 1048576 are read"));
    assert!(text(&cores(&["analyse", "/no/such/file"], "")).contains("/no/such/file: "));
}

fn blocks(language: &str) -> Vec<&'static str> {
    let page = include_str!("../../../docs/task-allocation.md");
    let open = format!("```{language}\n");
    page.split(open.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

#[test]
fn examples_of_the_page_print_what_the_page_shows() {
    let (files, consoles) = (blocks("toml"), blocks("console"));
    assert_eq!((files.len(), consoles.len()), (1, 2));
    for console in consoles {
        let (command, shown) = console.split_once('\n').expect("a command and its output");
        let words = command.strip_prefix("$ corelane cores ").expect("a command").replace("tasks.toml", "-");
        let output = cores(&words.split(' ').collect::<Vec<_>>(), files[0]);
        assert_eq!(text(&output), shown, "{command}");
    }
}

struct AdmissionServer {
    process: std::process::Child,
    /// The reference of the admission object.
    reference: String,
    at: String,
}

impl AdmissionServer {
    fn start(cores: &str) -> Self {
        Self::start_with(cores, &[])
    }

    fn start_with(cores: &str, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
        command.args(["cores", "serve", "--listen", "tcp:127.0.0.1:0", "--cores", cores]).args(options);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let mut line = || lines.next().expect("a reference").expect("UTF-8");
        let reference = line();
        assert!(reference.starts_with("IOR:"));
        let at = line();
        AdmissionServer { process, reference, at }
    }
}

impl Drop for AdmissionServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn server_admits_tasks_until_its_core_is_full() {
    let server = AdmissionServer::start("1");
    let at = ["--at", &server.at];
    let task = |name: &str| format!("[[task]]\nname = '{name}'\nexecution = '60ms'\nperiod = '100ms'\n");
    let admitted = cores(&["admit", "-", "--json", "--target", &server.at, at[0], at[1]], &task("first"));
    assert_eq!(status(&admitted), 0, "{}", text(&admitted));
    let first = &json(&admitted)["tasks"][0];
    assert_eq!((&first["core"], &first["response_ns"]), (&0.into(), &60_000_000.into()));
    assert!(first["target"].as_str().is_some_and(|target| target.starts_with("IOR:")), "{first}");
    let rejected = cores(&["admit", "-", at[0], at[1]], &task("second"));
    assert_eq!(status(&rejected), 1);
    let reason = "second: core 0 would be used 0.250 beyond its capacity; an execution time of 35ms would fit\n";
    assert!(text(&rejected).ends_with(reason), "{}", text(&rejected));
    let (number, token) = (first["task"].to_string(), first["token"].as_str().expect("a token"));
    let other = token.chars().rev().collect::<String>();
    let refused = cores(&["withdraw", &number, &other, at[0], at[1]], "");
    assert_eq!(status(&refused), 1);
    assert!(text(&refused).contains("the token does not belong to this task"), "{}", text(&refused));
    let withdrawn = cores(&["withdraw", &number, token, at[0], at[1]], "");
    assert_eq!((status(&withdrawn), text(&withdrawn).as_str()), (0, ""));
    let shown = cores(&["snapshot", at[0], at[1]], "");
    assert!(text(&shown).contains("1 admitted, 1 rejected, 0 beyond the rate"), "{}", text(&shown));
    let counts = &json(&cores(&["snapshot", "--json", at[0], at[1]], ""))["counts"];
    assert_eq!((&counts["promised"], &counts["rejected"]), (&1.into(), &1.into()));
    drop(server);
    let unreachable = cores(&["snapshot", "--at", "corbaloc::1.2@127.0.0.1:1/CorelaneTasks"], "");
    assert_eq!(status(&unreachable), 1);
}

#[test]
fn server_enforces_rates_if_it_is_asked_to() {
    for (options, failures) in [(&[][..], [0, 0, 0]), (&["--enforce-rates"], [0, 1, 1])] {
        let server = AdmissionServer::start_with("1", options);
        let file = "[[task]]\nname = 'hourly'\nexecution = '1ms'\nperiod = '3600s'\n";
        let admitted = cores(&["admit", "-", "--json", "--target", &server.at, "--at", &server.at], file);
        assert_eq!(status(&admitted), 0, "{}", text(&admitted));
        let target = json(&admitted)["tasks"][0]["target"].as_str().expect("a task reference").to_owned();
        let ping = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
            let output = command.args(["ping", "--timeout", "4", "--count", "1", "--json", &target]).output();
            let output = output.expect("the program starts");
            [0, 1, 2].map(|question| json(&output)["questions"][question]["failures"].clone())
        };
        // LocateRequests have no rate, so they are always answered. The first request runs, the
        // second waits for an hour, and later ones are refused.
        assert_eq!(ping(), [0, 0, failures[2]].map(Json::from), "{options:?}");
        assert_eq!(ping(), failures.map(Json::from), "{options:?}");
    }
}

#[test]
fn server_charges_the_mode_of_its_pool() {
    // The reading of a request costs 30 us. A request is delayed by 60 us, for the reading of one
    // earlier request and for its own reading. A reading also counts as 30 us of work above the
    // job. The hand-over costs 30 us.
    for (mode, response) in [("bound", 10_000_000), ("manager", 10_120_000), ("leader-followers", 10_120_000)] {
        let server = AdmissionServer::start_with("1", &["--mode", mode]);
        let file = "[[task]]\nname = 'first'\nexecution = '10ms'\nperiod = '100ms'\n";
        let admitted = cores(&["admit", "-", "--json", "--target", &server.at, "--at", &server.at], file);
        assert_eq!(status(&admitted), 0, "{}", text(&admitted));
        let first = &json(&admitted)["tasks"][0];
        assert_eq!(first["response_ns"], response, "{mode}");
        let target = first["target"].as_str().expect("a task reference");
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
        let output = command.args(["ping", "--count", "3", target]).output().expect("the program starts");
        assert!(output.status.success(), "{mode}: {output:?}");
        let top = json(&cores(&["top", "--once", "--json", "--at", &server.at], ""));
        let served = &top["pool"];
        assert_eq!(served["not_bound"], 0, "{mode}: {served}");
        assert_eq!(served["handed_over"].as_u64() > Some(0), mode == "manager", "{mode}: {served}");
        assert_eq!(served["led"].as_u64() > Some(0), mode == "leader-followers", "{mode}: {served}");
        assert_eq!(served["without_thread"], 0, "{mode}: {served}");
        let view = text(&cores(&["top", "--once", "--at", &server.at], ""));
        let led = format!(" handed over, {} run by their reader, ", served["led"]);
        assert!(view.contains(&led) && view.contains(", 0 refused without a thread\n"), "{view}");
    }
}

#[test]
fn server_with_a_share_for_best_effort_shows_it() {
    let server = AdmissionServer::start_with("1", &["--best-effort", "1900us/10ms"]);
    let at = ["--at", &server.at];
    let shown = cores(&["snapshot", at[0], at[1]], "");
    assert!(text(&shown).contains("core 0: utilization 0.000 of 0.950, above all tasks 0.200\n"), "{}", text(&shown));
    let view = text(&cores(&["top", "--once", at[0], at[1]], ""));
    assert!(view.contains("best effort on core 0: "), "{view}");
    let document = json(&cores(&["top", "--once", "--json", at[0], at[1]], ""));
    assert_eq!(document["cores"][0]["reserved_ppb"], 200_000_000);
    assert_eq!(document["pool"]["best_effort"][0]["core"], 0);
    for malformed in ["2ms", "2ms/", "x/10ms", "20ms/10ms"] {
        let refused = cores(&["serve", "--listen", "tcp:127.0.0.1:0", "--best-effort", malformed], "");
        assert_ne!(status(&refused), 0, "{malformed}");
    }
}

#[test]
fn top_and_report_show_the_jobs_of_a_task() {
    let folder = folder("report");
    let page = folder.join("report.html");
    let server = AdmissionServer::start("1");
    let at = ["--at", &server.at];
    let file = "[[task]]\nname = 'a<b>'\nexecution = '60ms'\nperiod = '100ms'\n";
    let admitted = cores(&["admit", "-", "--json", "--target", &server.at, at[0], at[1]], file);
    assert_eq!(status(&admitted), 0, "{}", text(&admitted));
    let target = json(&admitted)["tasks"][0]["target"].as_str().expect("a task reference").to_owned();
    let before = cores(&["top", "--once", at[0], at[1]], "");
    assert_eq!(status(&before), 0, "{}", text(&before));
    let view = text(&before);
    let row = view.lines().find(|line| line.starts_with("a<b>")).expect("a row");
    let ends: Vec<&str> = row.split_whitespace().rev().take(7).collect();
    assert_eq!(ends, ["-", "0", "-", "-", "60.000", "100.000", "100.000"], "{row}");
    let ask = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
        let output = command
            .args(["ping", "--count", "2", "--interval", "0.001", &target])
            .output()
            .expect("the program starts");
        assert!(output.status.success(), "{}", text(&output));
    };
    // The requests may all come before or after the recording, so the test tries again.
    let mut found = String::new();
    for _ in 0..100 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
        command.args(["cores", "report", &page.to_string_lossy(), "--for", "200ms", at[0], at[1]]);
        let mut reporting = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        while reporting.try_wait().expect("a child").is_none() {
            ask();
        }
        let output = reporting.wait_with_output().expect("the program ends by itself");
        assert_eq!(status(&output), 0);
        found = text(&output);
        if !found.starts_with("0 jobs") {
            break;
        }
    }
    assert!(!found.starts_with("0 jobs") && found.contains(" jobs of 1 tasks in "), "{found}");
    let html = fs::read_to_string(&page).expect("a page");
    assert!(html.contains("<td>a&lt;b&gt;</td><td>0</td>") && html.contains(">core 0<"), "{html}");
    assert!(!html.contains("a<b>") && html.matches("<svg").count() >= 2 && html.ends_with("</body></html>\n"));
    ask();
    let shown = json(&cores(&["top", "--once", "--json", at[0], at[1]], ""));
    let measured = &shown["tasks"][0]["measured"];
    assert!(measured["jobs"].as_u64() > Some(0) && measured["longest_ns"].as_u64() > Some(0), "{shown}");
    assert!(shown["pool"]["bound"].as_u64() > Some(0), "{shown}");
}

/// Checks that the figures of a distribution are in order, and returns the last one, the maximum.
fn ordered(figures: &Json) -> u64 {
    let figure = |name: &str| figures[name].as_u64().unwrap_or_else(|| panic!("no {name}: {figures}"));
    let all = ["min_ns", "median_ns", "p99_ns", "p99_9_ns", "max_ns"].map(figure);
    assert!(all.is_sorted(), "{figures}");
    all[4]
}

#[test]
fn calibrate_measures_an_operation_and_the_machine() {
    let folder = folder("calibrate");
    let machine = folder.join("machine.toml").to_string_lossy().into_owned();
    let server = AdmissionServer::start("1");
    let at = ["--at", &server.at];
    let called = |target: &str, operation: &str, options: &[&str]| {
        let words = ["calibrate", "--target", target, "--operation", operation, "--count", "120"];
        cores(&[&words[..], &at, options].concat(), "")
    };
    let output = called(&server.reference, "_non_existent", &["--json", "--machine", &machine]);
    assert_eq!(status(&output), 0, "{}", text(&output));
    let report = json(&output);
    let job = &report["jobs"][0];
    assert_eq!((&job["name"], &job["missing"]), (&"_non_existent".into(), &0.into()), "{report}");
    assert_eq!(job["processor_time"]["count"], 120, "{report}");
    let longest = ordered(&job["processor_time"]);
    assert!(longest > 0 && job["wcet_us"].as_u64() > Some(longest / 1_000), "{report}");
    for cost in report["costs"].as_object().expect("costs").values() {
        assert_eq!(cost["count"], 120, "{report}");
        ordered(cost);
    }
    let cost = |name: &str| report["costs"][name]["p99_9_ns"].clone();
    assert_eq!(report["machine"]["context_switch_ns"], cost("same_core_wake_up"), "{report}");
    assert_eq!(report["machine"]["release_jitter_ns"], cost("timer"), "{report}");
    // The costs are the first part of a task file. Each job is charged two switches, a hand-off and
    // the release jitter.
    let task = "[[task]]\nname = 'pump'\nexecution = '1ms'\nperiod = '3600s'\n";
    let file = fs::read_to_string(&machine).expect("the costs") + task;
    let analysed = cores(&["analyse", "-", "--json"], &file);
    assert_eq!(status(&analysed), 0, "{}", text(&analysed));
    let ns = |name: &str| report["machine"][name].as_f64().expect("a time");
    let charged = 2.0 * ns("context_switch_ns") + ns("hand_off_ns") + ns("release_jitter_ns");
    let expected = (1e6 + charged) / 1e6;
    let response = responses(&json(&analysed))[0];
    assert!((response - expected).abs() < 1e-6, "{response} {expected}");
    let snapshot = json(&cores(&["snapshot", "--json", at[0], at[1]], ""));
    let ended = |task: &Json| task["state"] == "ending";
    assert!(snapshot["tasks"].as_array().expect("tasks").iter().all(ended), "{snapshot}");
    // Calls to the object of a plain key are jobs too.
    let of_key = json(&called(&server.at, "_non_existent", &["--json"]));
    assert_eq!(
        (&of_key["jobs"][0]["missing"], &of_key["jobs"][0]["processor_time"]["count"]),
        (&0.into(), &120.into())
    );
    let refused = called(&server.reference, "no_such_operation", &[]);
    assert_eq!(status(&refused), 1);
    assert!(text(&refused).contains("`no_such_operation`: "), "{}", text(&refused));
}

#[test]
fn calibrate_observes_the_tasks_of_a_server() {
    let server = AdmissionServer::start("1");
    let at = ["--at", &server.at];
    let idle = cores(&["calibrate", "--for", "1ms", "--count", "1", at[0], at[1]], "");
    assert_eq!(status(&idle), 1);
    assert!(text(&idle).contains("no task of the server has run a job"), "{}", text(&idle));
    let file = "[[task]]\nname = 'sensor'\nexecution = '1ms'\nperiod = '100ms'\n";
    let admitted = cores(&["admit", "-", "--json", "--target", &server.at, at[0], at[1]], file);
    let target = json(&admitted)["tasks"][0]["target"].as_str().expect("a task reference").to_owned();
    // The requests may all come before or after the recording, so the test tries again.
    for _ in 0..100 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
        command.args(["cores", "calibrate", "--for", "200ms", "--count", "1", at[0], at[1]]);
        let mut observing = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        while observing.try_wait().expect("a child").is_none() {
            let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
            command
                .args(["ping", "--count", "2", "--interval", "0.001", &target])
                .output()
                .expect("the program starts");
        }
        let output = observing.wait_with_output().expect("the program ends by itself");
        if status(&output) == 0 {
            let shown = text(&output);
            let rows: Vec<&str> = shown.lines().map(|line| line.split("  ").next().unwrap_or_default()).collect();
            assert!(rows.starts_with(&["processor time of", "sensor", "", "cost", "timer"]), "{shown}");
            assert!(rows.contains(&"[machine]"), "{shown}");
            return;
        }
    }
    panic!("no job was observed");
}

#[test]
fn top_prints_views_until_it_is_terminated() {
    let server = AdmissionServer::start("2");
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.args(["cores", "top", "--refresh", "50ms", "--at", &server.at]);
    let mut process = command.stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    // The second view has the share of each core that jobs have used since the first view.
    for share in ["-", "0.000"] {
        let line = lines.by_ref().map(|line| line.expect("UTF-8")).find(|line| line.starts_with("1 ")).expect("a view");
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["1", "0.000", "0.000", "0.950", share, "0"]);
    }
    let id = process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill runs").success());
    assert!(process.wait().expect("a child").success());
}
