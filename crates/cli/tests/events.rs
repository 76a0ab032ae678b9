//! Tests of `corelane events` with a server, a consumer and a supplier as processes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value as Json;

fn corelane(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.arg("events").args(words).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

struct Running {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(words: &[&str]) -> Self {
        let mut process = corelane(words).spawn().expect("the program starts");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        Running { process, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("the rest");
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(words: &[&str]) -> Output {
    corelane(words).output().expect("the program starts")
}

/// Pushes texts until the consumer prints a line, and returns the line. The consumer may connect
/// after the first texts.
fn first_line(tail: &mut Running, push: &[&str]) -> String {
    let is_printed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_printed.load(Ordering::Relaxed) {
                assert!(run(push).status.success());
            }
        });
        let line = tail.line();
        is_printed.store(true, Ordering::Relaxed);
        line
    })
}

#[test]
fn events_travel_from_push_through_a_server_to_tail() {
    let mut server = Running::start(&["serve", "--listen", "tcp:127.0.0.1:0", "--channel", "flight"]);
    let (cos, rtec) = (server.line(), server.line());
    assert!(cos.ends_with("/flight") && rtec.ends_with("/flight.rtec"), "{cos} {rtec}");
    let mut typed = Running::start(&["tail", "--json", "--type", "17", "--type", "18", "--count", "1", &rtec]);
    let line = first_line(&mut typed, &["push", "--type", "17", "--source", "3", &rtec, "take-off"]);
    let line: Json = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&line["type"], &line["source"], &line["payload"]), (&17.into(), &3.into(), &"".into()));
    assert_eq!(line["value"].to_string().matches("take-off").count(), 1, "{line}");
    assert_eq!(typed.rest(), "");
    assert!(typed.process.wait().expect("it ends").success());
    let mut values = Running::start(&["tail", &cos]);
    assert!(first_line(&mut values, &["push", &cos, "landing"]).contains("landing"));
}

#[test]
fn wrong_words_are_refused() {
    let says = |words: &[&str], status: i32, text: &str| {
        let output = run(words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!((output.status.code(), said.contains(text)), (Some(status), true), "{words:?}: {said}");
    };
    says(&["tail"], 2, "no channel is given");
    says(&["push", "flight"], 2, "no text is given");
    says(&["tail", "--type", "x", "flight"], 2, "`--type` needs a number, not `x`");
    says(&["push", "--type", "1", "--type", "2", "flight", "text"], 2, "an event has one `--type`");
    says(&["serve", "--listen", "tcp:127.0.0.1:0", "--channel", "a/b"], 1, "a channel's name has 1 to 64 letters");
    says(&["tail", "corbaloc::1.2@127.0.0.1:1/flight"], 1, "the channel cannot be used");
    says(&["create"], 2, "no channel is given");
    says(&["destroy"], 2, "no channel is given");
    says(&["serve", "--control", "c"], 2, "`--allow-control` and `--control` need each other");
    says(&["serve", "--lane", "x"], 2, "`--lane` needs a number or N:PRIORITY, not `x`");
    says(&["serve", "--overflow", "x"], 2, "`x` is not a reaction to a full queue");
    says(&["top", "--interval", "x"], 2, "an interval is a number of seconds");
    says(&["serve", "--filter-builder", "x"], 2, "`x` is not a filter builder");
    says(&["tail", "--filter", "any", "--type", "1", "flight"], 2, "takes the place of `--type` and `--source`");
    says(&["serve", "--http", "x"], 2, "`--http` needs a port or ADDRESS:PORT, not `x`");
    says(&["check"], 2, "no file is given");
    says(&["check", "/no/such/file"], 1, "`/no/such/file` cannot be read");
    says(&["serve", "--schedule", "/no/such/file"], 1, "`/no/such/file` cannot be read");
    says(&["serve", "--schedule", "x", "--lane", "1"], 2, "`--schedule` takes the place of `--lane`");
    says(&["serve", "--lane", "1", "--ceiling", "5"], 2, "`--ceiling` needs `--receive-lanes`");
    says(&["serve", "--ceiling", "-1"], 2, "`--ceiling` needs a priority from 0 to 32767");
    says(&["serve", "--receive-lanes"], 2, "`--receive-lanes` needs `--lane` or `--schedule`");
    says(&["serve", "--receive-lanes", "--lane", "1", "--store", "x"], 2, "cannot be combined with `--store`");
}

#[test]
fn tail_prints_the_sets_of_a_filter() {
    let words = ["serve", "--listen", "tcp:127.0.0.1:0", "--channel", "flight", "--filter-builder", "prefix"];
    let mut server = Running::start(&words);
    let rtec = (server.line(), server.line()).1;
    let filter = "all(type 17 and not source 7, (type 18 or type 19) and source 3)";
    let mut tail = Running::start(&["tail", "--json", "--filter", filter, "--count", "2", &rtec]);
    let is_printed = AtomicBool::new(false);
    let lines = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_printed.load(Ordering::Relaxed) {
                for (event_type, source) in [("17", "7"), ("18", "7"), ("17", "2"), ("19", "3")] {
                    assert!(run(&["push", "--type", event_type, "--source", source, &rtec, "text"]).status.success());
                }
            }
        });
        let lines = (tail.line(), tail.line());
        is_printed.store(true, Ordering::Relaxed);
        lines
    });
    let event = |line: &str| {
        let line: Json = serde_json::from_str(line).expect("JSON");
        (line["type"].as_i64(), line["source"].as_i64())
    };
    // The consumer may have connected between the two events of a set, so their order is not
    // checked.
    let mut events = [event(&lines.0), event(&lines.1)];
    events.sort_unstable();
    assert_eq!(events, [(Some(17), Some(2)), (Some(19), Some(3))]);
    let refused = run(&["tail", "--filter", "type 17 or", &rtec]);
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert_eq!(said, "error: `--filter`: column 11: expected a filter, not the end\n");
    assert_eq!(refused.status.code(), Some(1));
}

const CHANNEL_FILE: &str = "\
[channel]
builder = 'prefix'
overhead = '100us'

[types]
inertial = 16
position = 17
threat = 18
engine = 19

[sources]
imu = 1
gps = 2

[[lane]]
rt_info = 20
types = ['inertial']

[[lane]]
rt_info = 5

[[publication]]
supplier = 'imu'
type = 'inertial'
source = 'imu'
period = '50ms'
size = 64
wcet = '2ms'

[[publication]]
supplier = 'gps'
type = 'position'
source = 'gps'
period = '100ms'
wcet = '3ms'

[[publication]]
type = 'threat'
";

fn check(words: &[&str], text: &str) -> (String, Option<i32>) {
    use std::io::Write as _;
    let mut process = corelane(&[&["check"], words, &["-"]].concat()).stdin(Stdio::piped()).spawn().expect("it starts");
    process.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("the program reads its input");
    let output = process.wait_with_output().expect("the program ends");
    (String::from_utf8(output.stdout).expect("UTF-8"), output.status.code())
}

#[test]
fn check_says_which_subscriptions_match_and_which_deadlines_are_met() {
    let right = format!(
        "{CHANNEL_FILE}
[[subscription]]
name = 'navigation'
filter = 'all(inertial, position)'
wcet = '10ms'

[[subscription]]
name = 'display'
filter = 'inertial or threat source 9 or interval 200ms'
"
    );
    let (said, status) = check(&[], &right);
    let expected = "\
navigation: all(inertial, position)
  gets inertial source imu of imu
  gets position source gps of gps
display: inertial or threat source 9 or interval 200ms
  gets inertial source imu of imu
  gets threat

subscription                          event  core     lane  wcet ms  period ms  deadline ms  response ms                verdict
navigation           position source gps of gps     0       20   10.100    100.000      100.000       22.300                   fits
display             inertial source imu of imu     0       20    2.100     50.000       50.000       22.300                   fits
display                               threat     0        5        -          -            -            -  no period is declared
display                       interval 200ms     0        5        -          -            -            -     no wcet is declared

core 0: utilization 0.143
0 of 2 subscriptions have parts that never match
0 of 2 analysed jobs miss their deadlines
";
    let squeezed = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!((squeezed(&said), status), (squeezed(expected), Some(0)), "{said}");
    let (said, status) = check(&["--json"], &right);
    let report: Json = serde_json::from_str(&said).expect("JSON");
    assert_eq!((status, &report["is_right"]), (Some(0), &true.into()));
    assert_eq!(report["publications"][0]["octets_per_second"], 1280);
    assert_eq!(report["publications"][0]["subscriptions"], serde_json::json!(["navigation", "display"]));
    assert_eq!(report["subscriptions"][0]["jobs"][0]["jitter_ns"], 100_000_000);
    assert_eq!(report["subscriptions"][0]["jobs"][0]["response_ns"], 22_300_000);
}

#[test]
fn job_that_an_undeclared_job_may_delay_is_not_analysed() {
    let with = |subscription: &str| {
        format!(
            "{CHANNEL_FILE}\n[[subscription]]\nname = 'display'\nfilter = 'inertial'\n\n[[subscription]]\n{subscription}"
        )
    };
    // A job without a declared load, in the lane of the display and on its core, delays the
    // display.
    let undeclared = with("name = 'log'\nfilter = 'interval 1s'\nlane = 20\n");
    let (said, status) = check(&[], &undeclared);
    assert!(said.contains("  not analysed: delayed by log (interval 1s)\n"), "{said}");
    assert!(said.contains("\n1 jobs are not analysed: "), "{said}");
    assert!(said.ends_with("0 of 0 analysed jobs miss their deadlines\n"), "{said}");
    assert_eq!(status, Some(1));
    let (said, _) = check(&["--json"], &undeclared);
    let report: Json = serde_json::from_str(&said).expect("JSON");
    let job = &report["subscriptions"][0]["jobs"][0];
    assert_eq!((&report["is_right"], &job["misses"], &job["response_ns"]), (&false.into(), &false.into(), &Json::Null));
    assert_eq!(job["not_analysed"], "delayed by log (interval 1s)");
    // The undeclared job does not keep other jobs from being analysed if its lane is less urgent or
    // on another core, or if its load has a `wcet`.
    for other in ["interval 1s'\n", "interval 1s'\nlane = 20\ncore = 1\n", "interval 1s'\nlane = 20\nwcet = '1ms'\n"] {
        let (said, status) = check(&[], &with(&format!("name = 'log'\nfilter = '{other}")));
        assert_eq!((said.contains("fits"), said.contains("delayed"), status), (true, false, Some(0)), "{said}");
    }
    // A timeout that expires once delays the display by its declared wcet.
    let (said, status) = check(&["--json"], &with("name = 'log'\nfilter = 'timeout 1s'\nlane = 20\nwcet = '1ms'\n"));
    let report: Json = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&report["subscriptions"][0]["jobs"][0]["response_ns"], status), (&3_200_000.into(), Some(0)), "{said}");
}

#[test]
fn channel_file_of_the_documentation_is_right() {
    let page = include_str!("../../../docs/events.md");
    let files: Vec<&str> = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let texts = ["  gets 16 source 1\n", "  gets inertial source imu of imu\n  gets position\n"];
    assert_eq!(files.len(), texts.len());
    for (file, text) in files.into_iter().zip(texts) {
        let (said, status) = check(&[], file);
        assert!(said.contains(text), "{said}");
        assert_eq!(status, Some(0), "{said}");
    }
}

#[test]
fn check_fails_if_a_part_never_matches_or_a_deadline_is_missed() {
    let with =
        |subscription: &str| check(&[], &format!("{CHANNEL_FILE}\n[[subscription]]\nname = 's'\n{subscription}"));
    let says = |subscription: &str, text: &str| {
        let (said, status) = with(subscription);
        assert_eq!((said.contains(text), status), (true, Some(1)), "{said}");
    };
    says("filter = 'inertial and position'", "never matches: `inertial and position`: no publication fulfils it");
    says("filter = 'inertial or engine'", "  never matches: `engine`: no publication fulfils it");
    says("filter = 'inertial or engine'", "no subscription gets position source gps of gps");
    says("filter = 'all(inertial, inertial source imu)'", "`: an earlier part gets its events\n  never gets an event");
    says("filter = 'inertial'\nwcet = '49901us'", "1 of 1 analysed jobs miss their deadlines");
    says("filter = 'inertial'\ndeadline = '2ms'", "misses");
    let basic = CHANNEL_FILE.replace("'prefix'", "'basic'");
    let nested = "[[subscription]]\nname = 's'\nfilter = 'all(inertial, position or threat)'\n";
    let (said, status) = check(&[], &format!("{basic}\n{nested}"));
    assert!(said.contains("refused by the channel: the basic builder has no groups inside groups"), "{said}");
    assert_eq!(status, Some(1));
    // Mistakes in the file are named with their line.
    let (said, status) = with("filter = 'inertial or speed'");
    assert_eq!(said, "error: -: line 42: subscription.filter: column 13: `speed` is neither a type nor a source\n");
    assert_eq!(status, Some(1));
    let (said, _) = check(&[], "[types]\nall = 16\n");
    assert!(said.starts_with("error: -: line 2: types.all: a name has letters"), "{said}");
    let (said, _) = check(&[], "[[publication]]\ntype = 'x'\n");
    assert_eq!(said, "error: -: line 2: publication.type: there is no such type\n");
}

fn http(address: &str, request: &[u8]) -> String {
    use std::io::Write as _;
    let mut stream = std::net::TcpStream::connect(address).expect("the server listens");
    stream.write_all(request).expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn resource(address: &str, path: &str) -> String {
    let answer = http(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    answer.split_once("\r\n\r\n").expect("a body").1.to_owned()
}

#[test]
fn calls_to_channels_arrive_in_lanes() {
    let config = std::env::temp_dir().join(format!("corelane-receive-lanes-{}.toml", std::process::id()));
    std::fs::write(&config, "[real-time]\nscheduling = 'fair'\n").expect("the configuration");
    let file = config.to_str().expect("UTF-8");
    let words = ["serve", "--listen", "tcp:127.0.0.1:0", "--orb-config", file, "--receive-lanes"];
    let lanes = ["--lane", "20:900", "--lane", "5:100"];
    let mut server = Running::start(&[&words[..], &lanes].concat());
    let (_, rtec) = (server.line(), server.line());
    std::fs::remove_file(&config).expect("the configuration");
    let mut tail = Running::start(&["tail", "--count", "1", &rtec]);
    first_line(&mut tail, &["push", &rtec, "take-off"]);
    // The references of the channel's objects name the bands of the lanes.
    let orb = corelane::Orb::new().expect("an ORB");
    let channel: corelane_services::events::rtec_event_channel_admin::EventChannelRef =
        orb.string_to_reference(&rtec).expect("the channel");
    let admin = channel.for_suppliers().unwrap().unwrap().to_string();
    let shown = Command::new(env!("CARGO_BIN_EXE_corelane")).args(["ior", &admin]).output().expect("the command");
    let shown = String::from_utf8(shown.stdout).expect("UTF-8");
    for band in ["0 to 899", "900 to 32767"] {
        assert!(shown.contains(band), "{shown}");
    }
}

#[test]
fn page_and_metrics_have_the_counts_of_stat() {
    let words = ["serve", "--listen", "tcp:127.0.0.1:0", "--channel", "flight", "--lane", "20", "--http", "0"];
    let mut server = Running::start(&words);
    let cos = server.line();
    server.line();
    let page = server.line();
    let address = page.strip_prefix("http://").and_then(|rest| rest.strip_suffix('/')).expect("the page's address");
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let orb = corelane::Orb::new().expect("an ORB");
    let channel: corelane_services::events::cos_event_channel_admin::EventChannelRef =
        orb.string_to_reference(&cos).expect("the channel");
    let puller = channel.for_consumers().unwrap().unwrap().obtain_pull_supplier().unwrap().unwrap();
    puller.connect_pull_consumer(None).unwrap();
    output(&["push", &cos, "one", "two", "three"]);
    assert!(puller.try_pull().unwrap().1);
    let monitor = format!("{}/CorelaneEvents", cos.strip_suffix("/flight").expect("the channel's key"));
    let of_stat = output(&["stat", "--at", &monitor, "--json", "flight"]);
    let mut of_stat = of_stat.lines().map(|line| serde_json::from_str::<Json>(line).expect("JSON"));
    let counts: Json = serde_json::from_str(&resource(address, "/counts.json")).expect("JSON");
    let mut shown = counts["channels"][0].clone();
    let consumers = shown.as_object_mut().expect("an object").remove("shown_consumers").expect("the consumers");
    let gateways = shown.as_object_mut().expect("an object").remove("shown_gateways").expect("the gateways");
    assert_eq!(gateways, serde_json::json!([]));
    assert_eq!((Some(shown), Some(consumers[0].clone())), (of_stat.next(), of_stat.next()));
    assert_eq!(
        (&counts["channels"][0]["published"], counts["channels"].as_array().map(Vec::len)),
        (&3.into(), Some(1))
    );
    let metrics = resource(address, "/metrics");
    for line in [
        "# TYPE corelane_events_published_total counter",
        "corelane_events_published_total{channel=\"flight\"} 3",
        "corelane_events_delivered_total{channel=\"flight\"} 1",
        "corelane_events_dropped_total{channel=\"flight\",reason=\"queue_full\"} 0",
        "corelane_events_queue_sets{channel=\"flight\",consumer=\"1\",lane=\"0\"} 2",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
    }
    assert!(resource(address, "/").contains("src=\"page.js\""));
    assert!(resource(address, "/page.js").contains("counts.json") && resource(address, "/page.css").contains("table"));
}

#[test]
fn wrong_requests_of_the_page_are_refused_and_the_server_goes_on() {
    use std::io::Write as _;
    let words = ["serve", "--listen", "tcp:127.0.0.1:0", "--channel", "flight", "--http", "0"];
    let mut server = Running::start(&words);
    let page = (server.line(), server.line(), server.line()).2;
    let address = page.strip_prefix("http://").and_then(|rest| rest.strip_suffix('/')).expect("the page's address");
    let status = |request: &str| http(address, request.as_bytes()).lines().next().unwrap_or_default().to_owned();
    let host = format!("Host: {address}\r\n\r\n");
    assert_eq!(status(&format!("GET /no HTTP/1.1\r\n{host}")), "HTTP/1.1 404 Not Found");
    assert_eq!(status(&format!("DELETE / HTTP/1.1\r\n{host}")), "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(status("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"), "HTTP/1.1 421 Misdirected Request");
    assert_eq!(status(&format!("GET / HTTP/9.9\r\n{host}")), "HTTP/1.1 505 HTTP Version Not Supported");
    assert_eq!(status("nonsense\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    let endless = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(20_000));
    assert_eq!(status(&endless), "HTTP/1.1 431 Request Header Fields Too Large");
    let head = http(address, format!("HEAD / HTTP/1.1\r\n{host}").as_bytes());
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    // Clients that send a part of a request get no answer, and do not keep the server from
    // answering others.
    let silent: Vec<_> = (0..10)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(address).expect("the server listens");
            stream.write_all(b"GET /").expect("the connection waits");
            stream
        })
        .collect();
    for mut stream in silent {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
    assert!(resource(address, "/metrics").starts_with("# HELP"));
}

fn output(words: &[&str]) -> String {
    let output = run(words);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{words:?}: {text}");
    text
}

#[test]
fn channels_are_created_counted_and_destroyed() {
    let socket = std::env::temp_dir().join(format!("corelane-events-{}", std::process::id()));
    let _ = std::fs::remove_file(&socket);
    let control = socket.to_str().expect("UTF-8");
    let user = corelane_sys::process::effective_user_id().to_string();
    let mut server = Running::start(&[
        "serve",
        "--listen",
        "tcp:127.0.0.1:0",
        "--channel",
        "flight",
        "--lane",
        "20",
        "--lane",
        "5",
        "--overflow",
        "drop-newest",
        "--allow-control",
        &user,
        "--control",
        control,
    ]);
    let (cos, rtec) = (server.line(), server.line());
    let server_at = cos.strip_suffix("/flight").expect("the channel's key");
    let (monitor, factory) = (format!("{server_at}/CorelaneEvents"), format!("{server_at}/omniEvents"));
    assert!(output(&["create", "--at", &factory, "ground"]).starts_with("IOR:"));
    assert_eq!(output(&["list", "--at", &monitor]), "flight\nground\n");
    let listed = output(&["list", "--at", &monitor, "--json"]);
    assert_eq!(listed, "{\"channel\":\"flight\"}\n{\"channel\":\"ground\"}\n");
    let mut tail = Running::start(&["tail", "--count", "1", &rtec]);
    first_line(&mut tail, &["push", &rtec, "take-off"]);
    assert_eq!(tail.rest(), "");
    let line = output(&["stat", "--at", &monitor, "--json"]);
    let flight: Json = serde_json::from_str(line.lines().next().expect("a line")).expect("JSON");
    let published = flight["published"].as_u64().expect("a number");
    assert!(published >= 1 && flight["sets"]["routed"].as_u64() <= Some(published), "{flight}");
    // A consumer that is connected and pulls nothing has the events in its queues.
    let orb = corelane::Orb::new().expect("an ORB");
    let channel: corelane_services::events::cos_event_channel_admin::EventChannelRef =
        orb.string_to_reference(&format!("{server_at}/ground")).expect("the channel");
    let puller = channel.for_consumers().unwrap().unwrap().obtain_pull_supplier().unwrap().unwrap();
    puller.connect_pull_consumer(None).unwrap();
    output(&["push", &format!("{server_at}/ground"), "one", "two"]);
    let shown = output(&["stat", "--at", &monitor, "ground"]);
    assert!(shown.contains("ground: 0 suppliers, 1 consumers\n  events: published 2,"), "{shown}");
    assert!(shown.contains("    lane 0: 0 sets, 0 bytes\n    lane 1: 2 sets, "), "{shown}");
    let table = output(&["top", "--at", &monitor, "--count", "2", "--interval", "0.01"]);
    assert_eq!(table.lines().filter(|line| line.starts_with("ground")).count(), 2, "{table}");
    // Clients may not destroy a channel; over the control socket, the permitted user may.
    let refused = channel.destroy().unwrap_err();
    assert_eq!(refused.kind(), corelane::SystemExceptionKind::NoPermission);
    let refused = run(&["destroy", &format!("{server_at}/ground")]);
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert_eq!(said, "error: the server's channels are not destroyed by clients\n");
    output(&["destroy", "--control", control, "ground"]);
    assert_eq!(output(&["list", "--at", &monitor]), "flight\n");
    let again = run(&["destroy", "--control", control, "ground"]);
    assert_eq!(String::from_utf8_lossy(&again.stdout), "error: the server has no channel `ground`\n");
    let unknown = run(&["stat", "--at", &monitor, "ground"]);
    assert_eq!(String::from_utf8_lossy(&unknown.stdout), "error: the server has no channel `ground`\n");
    let _ = output(&["create", "--at", &factory, "ground"]);
    let twice = run(&["create", "--at", &factory, "ground"]);
    assert!(String::from_utf8_lossy(&twice.stdout).contains("the name `ground` is in use or not permitted"));
}

#[test]
fn server_without_the_users_permission_closes_the_control_connection() {
    let socket = std::env::temp_dir().join(format!("corelane-events-other-{}", std::process::id()));
    let _ = std::fs::remove_file(&socket);
    let control = socket.to_str().expect("UTF-8");
    let other = (corelane_sys::process::effective_user_id() + 1).to_string();
    let words = ["serve", "--listen", "tcp:127.0.0.1:0", "--allow-control", &other, "--control", control];
    let mut server = Running::start(&words);
    server.line();
    let refused = run(&["destroy", "--control", control, "EventChannel"]);
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(said.contains("the server closed the connection"), "{said}");
}

const SCHEDULE_FILE: &str = "
[channel]
surplus = 'drop'

[[lane]]
rt_info = 20

[[lane]]
rt_info = 1

[[publication]]
rt_info = 101
type = '16'
source = '1'
period = '3600s'
lane = 20
wcet = '1ms'

[[publication]]
type = '17'

[[subscription]]
name = 'display'
rt_info = 201
filter = 'type 16 or type 17'
";

#[test]
fn check_analyses_a_schedule_by_the_rules_of_admission() {
    // The events of type 17 have best effort, so they need no period.
    let (said, status) = check(&["--json"], SCHEDULE_FILE);
    let report: Json = serde_json::from_str(&said).expect("JSON");
    let jobs = report["subscriptions"][0]["jobs"].as_array().expect("jobs");
    assert_eq!((jobs.len(), &jobs[0]["response_ns"], status), (1, &1_000_000.into(), Some(0)), "{said}");
    let with = |old: &str, new: &str| check(&[], &SCHEDULE_FILE.replace(old, new));
    assert_eq!(with("wcet = '1ms'", "wcet = '1ms'\ndeadline = '1us'").1, Some(1));
    for (old, new, field) in [
        ("'3600s'", "'3601s'", "period"),
        ("'3600s'", "'1ns'", "period"),
        ("'3600s'", "'0s'", "period"),
        ("lane = 20", "lane = 1", "lane"),
        ("lane = 20", "lane = 7", "lane"),
        ("lane = 20\n", "", "lane"),
        ("wcet = '1ms'", "size = 4294967295", "size"),
        ("wcet = '1ms'", "wcet = '0s'", "wcet"),
        ("wcet = '1ms'", "jitter = '3601s'", "jitter"),
        ("rt_info = 201", "rt_info = 101", "rt_info"),
        ("rt_info = 101", "rt_info = 101\nmax_users = 0", "max_users"),
        ("filter = 'type 16", "max_users = 257\nfilter = 'type 16", "max_users"),
        ("type = '17'", "type = '17'\nmax_users = 2", "rt_info"),
        ("'drop'", "'queue'", "surplus"),
    ] {
        let (said, status) = with(old, new);
        assert!(said.starts_with("error: ") && said.contains(field), "{field}: {said}");
        assert_eq!(status, Some(1));
    }
}

#[test]
fn serve_meters_a_supplier_by_the_schedule_of_a_channel_file() {
    use corelane_services::events::rtec_base::DependencyInfo;
    use corelane_services::events::rtec_event_channel_admin::{EventChannelRef, Publication, SupplierQOS};
    use corelane_services::events::rtec_event_comm::{Event, EventHeader};

    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("schedule-{}", std::process::id()));
    std::fs::write(&path, SCHEDULE_FILE).expect("the file is written");
    let file = path.to_str().expect("UTF-8");
    let words = ["serve", "--listen", "tcp:127.0.0.1:0", "--channel", "flight", "--schedule", file];
    let mut server = Running::start(&words);
    let (cos, rtec) = (server.line(), server.line());
    std::fs::remove_file(&path).expect("the file is removed");
    let orb = corelane::Orb::new().expect("an ORB");
    let channel: EventChannelRef = orb.string_to_reference(&rtec).expect("the channel");
    let supplier = channel.for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap().unwrap();
    let event = Event { header: EventHeader { r#type: 16, source: 1, ..EventHeader::default() }, ..Event::default() };
    let dependency_info = DependencyInfo { rt_info: 101, ..DependencyInfo::default() };
    let connect = |event_type| {
        let mut event = event.clone();
        event.header.r#type = event_type;
        let publications = vec![Publication { event, dependency_info }];
        supplier.connect_push_supplier(None, &SupplierQOS { publications, is_gateway: false })
    };
    let refused = format!("{:?}", connect(17).expect_err("the entry is for another type"));
    assert!(refused.contains("BAD_PARAM"), "{refused}");
    connect(16).unwrap();
    for _ in 0..3 {
        supplier.push(std::slice::from_ref(&event)).unwrap();
    }
    // The answer to this call shows that the server has received the oneways before it.
    supplier.disconnect_push_consumer().unwrap();
    let monitor = format!("{}/CorelaneEvents", cos.strip_suffix("/flight").expect("the channel's key"));
    let said = output(&["stat", "--at", &monitor, "flight"]);
    assert!(said.contains("events: published 1, "), "{said}");
    assert!(said.contains("  beyond the schedule: best effort 0, dropped 2, connections refused 0\n"), "{said}");
}
