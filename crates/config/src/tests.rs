//! Tests of sources, their order, refusals, and of the effect of each setting.

use std::collections::BTreeSet;
use std::time::Duration;

use corelane::PoolConfig;
use corelane::rt::Protocol;

use crate::draft::Draft;
use crate::key::Key;
use crate::schema::{self, KnownSetting, SECTIONS};
use crate::value::RawValue;
use crate::{Configuration, ConfiguredThreadpool, SettingSource};

fn read(text: &str) -> Configuration {
    Configuration::new().read_text("file", text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> String {
    let read = Configuration::new().read_text("file", text);
    read.and_then(|read| read.builder().map(drop)).expect_err(text).to_string()
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn value(configuration: &Configuration, key: &str) -> (String, Option<SettingSource>) {
    let found = configuration.settings().into_iter().find(|setting| setting.key == key);
    let found = found.unwrap_or_else(|| panic!("{key}"));
    (found.value, found.source)
}

fn all_settings() -> Vec<(Key, KnownSetting)> {
    let settings = |section: &schema::Section| {
        let path = section.path.replace('*', "x");
        let parts: Vec<String> = path.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let key = move |known: KnownSetting| (Key::new(parts.iter().map(String::as_str).chain([known.name])), known);
        (section.settings)().into_iter().map(key).collect::<Vec<_>>()
    };
    SECTIONS.iter().flat_map(settings).collect()
}

#[test]
fn settings_change_the_only_pool_of_a_program_but_not_its_threads() {
    let builder = |text: &str| read(text).builder_with_pool(PoolConfig::default().name("shop"));
    let refusal = |text: &str| builder(text).expect_err(text).to_string();
    assert!(builder("call-timeout = '1s'\n[pool.shop.connections]\nmax-connections = 3").is_ok());
    assert!(builder("[pool.shop]\nlisten = ['tcp:127.0.0.1:0']").unwrap().build().unwrap().endpoints().len() == 1);
    for setting in ["dispatch = 'reactive'", "threads = 1", "max-threads = 1", "max-queued = 1"] {
        let (name, _) = setting.split_once(' ').unwrap();
        let expected = format!("file:2: `pool.shop.{name}` is chosen by the program");
        assert_eq!(refusal(&format!("[pool.shop]\n{setting}")), expected);
    }
    let expected = "file:2: `pool.other` is unknown: the program has the pool `shop` only";
    assert_eq!(refusal("[pool.other]\nthreads = 1"), expected);
}

#[test]
fn addresses_of_the_orb_and_of_pools_are_addresses() {
    assert!(read("listen = ['tcp:127.0.0.1:0']").has_address());
    assert!(read("[pool.x]\nlisten = ['tcp:127.0.0.1:0']").has_address());
    assert!(!read("publish = ['tcp:a:1']\n[pool.x]\nthreads = 1").has_address());
}

#[test]
fn arguments_precede_the_environment_and_the_environment_precedes_the_file() {
    let text = "call-timeout = '1s'\n[pool.big]\nthreads = 1\nlisten = ['tcp:127.0.0.1:0']\n";
    let variables = pairs(&[("X_CALL_TIMEOUT", "2s"), ("X_POOL_BIG_THREADS", "2"), ("XY_Z", "1"), ("X_CONFIG", "f")]);
    let words = strings(&[
        "-ORBcallTimeout",
        "3s",
        "-v",
        "-ORBPOOL.big.Listen",
        "tcp:a:1",
        "-ORBpool.big.listen",
        "tcp:b:2 tcp:c:3",
    ]);
    let environment = |read: Configuration| read.read_environment("X", variables.clone()).unwrap();
    let first = environment(read(text));
    assert_eq!(value(&first, "call-timeout"), ("2s".into(), Some(SettingSource::Environment("X_CALL_TIMEOUT".into()))));
    let (both, rest) = first.parse_arguments(words).unwrap();
    assert_eq!(rest, ["-v"]);
    assert_eq!(value(&both, "call-timeout"), ("3s".into(), Some(SettingSource::Argument("-ORBcallTimeout".into()))));
    assert_eq!(value(&both, "pool.big.threads").0, "2");
    assert_eq!(value(&both, "pool.big.listen").0, "tcp:a:1 tcp:b:2 tcp:c:3");
    assert_eq!(value(&both, "drain-timeout"), ("2s".into(), None));
    let (late, _) = Configuration::new().parse_arguments(strings(&["-ORBcallTimeout", "3s"])).unwrap();
    let late = late
        .read_environment("X", pairs(&[("X_CALL_TIMEOUT", "2s")]))
        .unwrap()
        .read_text("file", "call-timeout = '1s'");
    assert_eq!(value(&late.unwrap(), "call-timeout").0, "3s");
    let (twice, _) =
        Configuration::new().parse_arguments(strings(&["-ORBcallTimeout", "3s", "-ORBcallTimeout", "4s"])).unwrap();
    assert_eq!(value(&twice, "call-timeout").0, "4s");
}

#[test]
fn setters_of_the_program_precede_all_sources() {
    let (configuration, _) = Configuration::new().parse_arguments(strings(&["-ORBdrainTimeout", "3s"])).unwrap();
    let builder = configuration.builder().unwrap().drain_timeout(Duration::from_secs(9));
    assert!(format!("{builder:?}").contains("drain_timeout: 9s"));
    assert!(format!("{:?}", configuration.builder().unwrap()).contains("drain_timeout: 3s"));
}

#[test]
fn faults_are_refused_with_their_place() {
    for (text, message) in [
        ("\ncall-timeuot = '3s'", "file:2: there is no setting `call-timeuot`: the nearest one is `call-timeout`"),
        ("zzz = 1", "file:1: there is no setting `zzz`"),
        ("[pools.a]\nthreads = 2", "file:1: there is no section `pools`: the nearest one is `pool`"),
        (
            "[limits]\n\nmax-profile = 2",
            "file:3: there is no setting `limits.max-profile`: the nearest one is `max-profiles`",
        ),
        ("[pool.a.conections]\nx = 1", "file:1: there is no section `conections`: the nearest one is `connections`"),
        ("[pool.A]\nthreads = 2", "file:1: a name has small letters, digits and hyphens, not `A`"),
        ("pool = 3", "file:1: `pool` is a section and not a setting"),
        (
            "pool = [{ name = 'a' }]",
            "file:1: `pool` has a table inside of a list: a section has a name, as in [pool.NAME]",
        ),
        (
            "call-timeout = 3",
            "file:1: `call-timeout` is a duration with its unit (ns, us, ms, s, min, h, d), such as \"3ms\", not `3`",
        ),
        (
            "call-timeout = 1.5",
            "file:1: `call-timeout` is a number with a fraction: write a text with its unit, such as \"1.5s\"",
        ),
        ("call-timeout = '0s'", "file:1: `call-timeout` is more than zero"),
        ("giop-version = '1.3'", "file:1: `giop-version` is one of 1.0, 1.1, 1.2, not `1.3`"),
        ("listen = ['4000']", "file:1: `listen` is tcp:HOST:PORT, unix:PATH or shm:PATH, not `4000`"),
        (
            "require-guarantees = ['memory-lok']",
            "file:1: `require-guarantees` has an unknown guarantee `memory-lok`: the nearest one is `memory-lock`",
        ),
        ("[pool.a]\nthreads = 0", "file:2: `pool.a.threads` is a number from 1 to 4096, not `0`"),
        ("[pool.a]\ndispatch = 'reactive'\nthreads = 2", "file:3: `pool.a.threads` has no effect with this `dispatch`"),
        ("[pool.a]\nmax-queued = 2", "file:2: `pool.a.max-queued` has no effect with this `dispatch`"),
        (
            "[real-time.pool.a]\nallow-borrowing = true",
            "file:2: `real-time.pool.a.allow-borrowing` has no effect without lanes",
        ),
        (
            "[real-time.pool.a]\nstatic-threads = 2\nlane.x.priority = 3",
            "file:2: `real-time.pool.a.static-threads` is a setting of each lane in pools with lanes",
        ),
        (
            "[real-time.pool.a.lane.x]\nreservation-period = '1ms'",
            "`real-time.pool.a.lane.x.reservation-runtime` is missing",
        ),
        ("[preconnect.a]\nconnections = 2", "`preconnect.a.reference` is missing"),
        ("x = \n", "file:1: string values must be quoted, expected literal string"),
    ] {
        assert_eq!(refusal(text), message, "{text}");
    }
    let message = refusal("[initial-references]\nClock = 'clock'");
    assert!(
        message.starts_with("file:2: `initial-references.Clock` is no stringified reference: `clock`: "),
        "{message}"
    );
    let environment = |name: &str, value: &str| {
        let read = read("[pool.a-b]\nthreads = 1").read_environment("X", pairs(&[(name, value)]));
        read.expect_err(name).to_string()
    };
    assert_eq!(
        environment("X_CALL_TIMEUOT", "1s"),
        "X_CALL_TIMEUOT: there is no such setting: the nearest one is `X_CALL_TIMEOUT`"
    );
    assert_eq!(environment("X_LOCK_MEMORY", "1"), "X_LOCK_MEMORY: `lock-memory` is true or false, not `1`");
    assert_eq!(
        environment("X_POOL_A_B_THREADS", "x"),
        "X_POOL_A_B_THREADS: `pool.a-b.threads` is a number from 1 to 4096, not `x`"
    );
    let arguments =
        |words: &[&str]| read("[pool.a]\nthreads = 1").parse_arguments(strings(words)).expect_err(words[0]).to_string();
    assert_eq!(
        arguments(&["-ORBcallTimeuot", "1s"]),
        "-ORBcallTimeuot: there is no such setting: the nearest one is `-ORBcallTimeout`"
    );
    assert_eq!(
        arguments(&["-ORBpool.b.threads", "1"]),
        "-ORBpool.b.threads: there is no such setting: the nearest one is `-ORBpool.a.threads`"
    );
    assert_eq!(arguments(&["-ORBcallTimeout"]), "-ORBcallTimeout: lacks its value");
    assert!(arguments(&["-ORBInitRef", "Clock"]).contains("not NAME=REFERENCE"));
}

#[test]
fn variable_of_two_settings_is_refused() {
    let text = "[real-time.pool.a]\nlane.x.priority = 1\n[real-time.pool.a-lane-x]\ndefault-priority = 1\n";
    let same = read(text).read_environment("X", pairs(&[("X_REAL_TIME_POOL_A_LANE_X_CEILING", "3")])).unwrap_err();
    assert!(same.to_string().ends_with("rename one of them"), "{same}");
}

#[test]
fn initial_references_come_from_all_sources() {
    let text = "[initial-references]\nA = 'corbaloc::a/A'\n\"B.c\" = 'corbaloc::b/B'\n";
    let (all, rest) = read(text)
        .read_environment("X", pairs(&[("X_INITIAL_REFERENCES", "C=corbaloc::c/C A=corbaloc::2/A")]))
        .unwrap()
        .parse_arguments(strings(&["-ORBInitRef", "D=corbaloc::d/D", "-ORBid", "x", "file"]))
        .unwrap();
    assert_eq!(rest, ["file"]);
    assert_eq!(value(&all, "initial-references.A").0, "corbaloc::2/A");
    assert_eq!(value(&all, "initial-references.\"B.c\"").0, "corbaloc::b/B");
    let orb = all.builder().unwrap().build().unwrap();
    assert_eq!(orb.initial_reference_names(), ["A", "B.c", "C", "D"]);
}

#[test]
fn pools_keep_the_order_of_the_file_and_the_first_one_listens() {
    let text = "listen = 'tcp:127.0.0.1:0'\n[pool.z]\ndispatch = 'half-sync-half-async'\nthreads = 2\n[pool.a]\ndispatch = 'thread-per-connection'\n";
    let shown = format!("{:?}", read(text).builder().unwrap());
    let (first, second) = (shown.find("name: \"z\"").unwrap(), shown.find("name: \"a\"").unwrap());
    assert!(first < second, "{shown}");
    assert!(shown.contains("HalfSyncHalfAsync { threads: 2, max_queued: 1024 }"), "{shown}");
    assert!(shown.contains("ThreadPerConnection { max_threads: 256 }"), "{shown}");
    let orb = read(text).builder().unwrap().build().unwrap();
    // A thread sets its name after it has started. The number of rounds is bounded, so that the
    // test ends if no thread has the name.
    let names =
        || -> BTreeSet<String> { corelane::rt::threads().unwrap().into_iter().map(|thread| thread.name).collect() };
    for _ in 0..10_000 {
        if names().contains("z/l0") {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(names().contains("z/l0"), "{:?}", names());
    drop(orb);
}

#[test]
fn real_time_pools_and_protocols_are_for_the_program() {
    let text = "\
[real-time]
scheduling = 'fair'
server-protocols = ['tcp', 'shared-memory']
tcp.no-delay = false
[real-time.pool.flight]
allow-borrowing = true
max-buffered-requests = 9
[real-time.pool.flight.lane.low]
priority = 100
cores = [0, 1]
[real-time.pool.flight.lane.high]
priority = 30000
reservation-runtime = '1ms'
reservation-period = '10ms'
[real-time.pool.plain]
default-priority = 7
";
    let configuration = read(text);
    let Some(ConfiguredThreadpool::WithLanes(flight)) = configuration.threadpool("flight") else { panic!("no lanes") };
    assert!(flight.allow_borrowing && flight.name == "flight");
    assert_eq!(flight.buffering.map(|bounds| (bounds.max_requests, bounds.max_bytes)), Some((9, 0)));
    let lanes: Vec<i16> = flight.lanes.iter().map(|lane| lane.priority).collect();
    assert_eq!((lanes.as_slice(), flight.lanes[0].cores.as_slice()), (&[100, 30000][..], &[0, 1][..]));
    let reservation = flight.lanes[1].reservation.expect("a reservation");
    assert_eq!(reservation.deadline, Duration::from_millis(10));
    let protocols = configuration.server_protocols().unwrap();
    assert!(matches!(protocols[..], [Protocol::Tcp(tcp), Protocol::SharedMemory] if !tcp.no_delay), "{protocols:?}");
    assert!(configuration.threadpool("none").is_none());
    let orb = configuration.builder().unwrap().listen("tcp:127.0.0.1:0").build().unwrap();
    configuration.threadpool("plain").expect("a pool").create(&orb).unwrap();
}

fn other_value(key: &Key, known: KnownSetting) -> RawValue {
    let text = |text: &str| RawValue::Text(text.to_owned());
    match known.name {
        "reference" => return text("corbaloc::h/k"),
        "default-initial-reference" => return text("corbaloc::h"),
        "require-guarantees" => return text("memory-lock"),
        "network-priorities" => return text("100=46"),
        "priority-mapping" => return text("direct 1..99"),
        "priority-bands" => return text("0..100"),
        "reservation-runtime" => return text("1ms"),
        "giop-version" => return text("1.1"),
        _ => {}
    }
    match known.form {
        "true, false" => RawValue::Boolean(known.default == "false"),
        "number" | "priority" | "priority or none" | "list of numbers" => RawValue::Integer(3),
        "size" | "size or none" => text("96KiB"),
        "duration" | "duration or none" => text("7s"),
        "list of addresses" => text("tcp:127.0.0.1:0"),
        form => {
            let names: Vec<&str> = form.trim_start_matches("list of ").split(", ").collect();
            let other = names.iter().rev().find(|name| !known.default.starts_with(**name) && **name != "none");
            let other = other.unwrap_or_else(|| panic!("{key}: {form}"));
            text(&other.replace("DEPTH", "8").replace("TIME", "9us").replace("PRIORITY", "100"))
        }
    }
}

fn made(settings: &[(Key, RawValue)]) -> String {
    let mut draft = Draft::default();
    for (key, value) in settings {
        schema::set(&mut draft, &key.parts(), value).unwrap_or_else(|error| panic!("{key} {value}: {error:?}"));
    }
    let checked = draft.finish().unwrap_or_else(|wrong| panic!("{} {}", wrong.key, wrong.reason));
    format!("{:?} {:?} {:?}", checked.builder, checked.server_protocols, checked.threadpools)
}

#[test]
fn each_setting_has_an_effect() {
    let key = |text: &str| Key::new(text.split('.'));
    let value = |text: &str| RawValue::Text(text.to_owned());
    for (setting, known) in all_settings() {
        let own = setting.to_string();
        let mut needed: Vec<(Key, RawValue)> = Vec::new();
        match own.as_str() {
            "pool.x.max-threads" => needed.push((key("pool.x.dispatch"), value("thread-per-connection"))),
            "pool.x.max-queued" => needed.push((key("pool.x.dispatch"), value("half-sync-half-async"))),
            "real-time.pool.x.unmatched-priority" | "real-time.pool.x.allow-borrowing" => {
                needed.push((key("real-time.pool.x.lane.x.priority"), RawValue::Integer(9)));
            }
            "real-time.pool.x.lane.x.reservation-runtime" => {
                needed.push((key("real-time.pool.x.lane.x.reservation-period"), value("20s")));
            }
            "real-time.pool.x.lane.x.reservation-deadline" | "real-time.pool.x.lane.x.reservation-period" => {
                needed.push((key("real-time.pool.x.lane.x.reservation-runtime"), value("1ms")));
                needed.push((key("real-time.pool.x.lane.x.reservation-period"), value("20s")));
            }
            path if path.starts_with("preconnect.x.") => {
                needed.push((key("preconnect.x.reference"), value("corbaloc::other/k")));
            }
            path if path.starts_with("real-time.tcp.") => {
                needed.push((key("real-time.client-protocols"), value("tcp")));
            }
            path if path.starts_with("real-time.unix.") => {
                needed.push((key("real-time.server-protocols"), value("unix")));
            }
            path if path.starts_with("shared-memory.") => {
                needed.push((key("transports"), value("shared-memory")));
            }
            _ => {}
        }
        let mut before: Vec<(Key, RawValue)> = needed.clone();
        if own.ends_with("reservation-runtime") {
            before.clear();
        }
        let mut after = needed;
        after.push((setting.clone(), other_value(&setting, known)));
        assert_ne!(made(&after), made(&before), "{own}");
    }
}

#[test]
fn each_default_is_the_default_of_the_code() {
    let mut compared = 0;
    for (setting, known) in all_settings() {
        // The defaults of keys without a section are those of the builder, which tests/pages.rs
        // compares with docs/options.md.
        if known.default == "none" || setting.parts().len() == 1 {
            continue;
        }
        let default = (setting.clone(), RawValue::Words(known.default.to_owned()));
        let (section, _) = setting.parts().split_last().map(|(name, above)| (above.join("."), *name)).unwrap();
        let base = match section.as_str() {
            "pool.x" => match known.name {
                "max-threads" => {
                    vec![(Key::new(["pool", "x", "dispatch"]), RawValue::Words("thread-per-connection".into()))]
                }
                "max-queued" => {
                    vec![(Key::new(["pool", "x", "dispatch"]), RawValue::Words("half-sync-half-async".into()))]
                }
                _ => vec![(Key::new(["pool", "x", "threads"]), RawValue::Words("4".into()))],
            },
            "pool.x.connections" => vec![(Key::new(["pool", "x", "threads"]), RawValue::Words("4".into()))],
            "preconnect.x" => {
                vec![(Key::new(["preconnect", "x", "reference"]), RawValue::Words("corbaloc::h/k".into()))]
            }
            "real-time.tcp" => vec![(Key::new(["real-time", "client-protocols"]), RawValue::Words("tcp".into()))],
            "real-time.unix" => vec![(Key::new(["real-time", "client-protocols"]), RawValue::Words("unix".into()))],
            "shared-memory" => vec![(Key::new(["transports"]), RawValue::Words("shared-memory".into()))],
            "real-time.pool.x" if ["unmatched-priority", "allow-borrowing"].contains(&known.name) => {
                vec![(Key::new(["real-time", "pool", "x", "lane", "y", "priority"]), RawValue::Words("0".into()))]
            }
            "real-time.pool.x" | "real-time.pool.x.connections" => {
                vec![(Key::new(["real-time", "pool", "x", "static-threads"]), RawValue::Words("1".into()))]
            }
            "real-time.pool.x.lane.x" => {
                vec![(Key::new(["real-time", "pool", "x", "lane", "x", "priority"]), RawValue::Words("0".into()))]
            }
            _ => Vec::new(),
        };
        let mut with_default = base.clone();
        with_default.push(default);
        assert_eq!(made(&with_default), made(&base), "{setting}");
        compared += 1;
    }
    assert!(compared > 50, "{compared}");
}

#[test]
fn variables_and_arguments_of_all_settings_differ() {
    let keys: Vec<Key> = all_settings().into_iter().map(|(key, _)| key).collect();
    let forms: [fn(&Key) -> String; 2] = [Key::variable, |key| key.argument().to_lowercase()];
    for form in forms {
        let all: BTreeSet<String> = keys.iter().map(form).collect();
        assert_eq!(all.len(), keys.len());
    }
    for key in &keys {
        assert!(key.is_argument(&key.argument()) && key.is_argument(&key.to_string()), "{key}");
    }
    assert_eq!(Key::new(["pool", "a-b", "max-threads"]).argument(), "pool.aB.maxThreads");
}

#[test]
fn fuzz_target_accepts_small_inputs() {
    for input in [
        &b"call-timeout = '3s'\0CALL_TIMEOUT=4s\n-ORBcallTimeout\n5s"[..],
        b"[pool.a]\nthreads = 1\0POOL_A_THREADS=2\nplain",
        b"\xff\0\xff",
        b"",
    ] {
        crate::fuzz::configuration(input);
    }
}

/// Each of these names needs a look-up, whose time must not grow with the number of names.
#[test]
fn many_initial_references_are_read() {
    let text: String = (0..20_000).map(|number| format!("n{number} = 'corbaloc::h/k'\n")).collect();
    let configuration = read(&format!("[initial-references]\n{text}"));
    assert_eq!(configuration.number_of_settings(), 20_000);
    let pools: String = (0..1001).map(|number| format!("[pool.p{number}]\n")).collect();
    assert_eq!(refusal(&pools), "file:1001: there are more than 1000 pools, lanes and connections");
}
