//! The reference tables of the documentation and the code have the same entries.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;

use corelane::poa::PoaPolicies;
use corelane::rt::{
    CorePoolConfig, LaneConfig, LanesConfig, RtClientPolicies, RtConfig, RtPolicies, TcpProperties, ThreadpoolConfig,
    UnixProperties,
};
use corelane::{CallPolicies, ConnectionLimits, Limits, OnewayBatch, PoolConfig};

const PAGE: &str = include_str!("../../docs/options.md");
const OPERATIONS: &str = include_str!("../../docs/operations.md");

const SECTIONS: [(&str, &str, Options); 21] = [
    ("OrbBuilder", "crates/orb/src/orb/builder.rs", Options::Methods),
    ("CallPolicies", "crates/orb/src/policy.rs", Options::Fields),
    ("OnewayBatch", "crates/orb/src/config.rs", Options::Fields),
    ("PoolConfig", "crates/orb/src/server/config.rs", Options::Fields),
    ("ConnectionLimits", "crates/orb/src/server/config.rs", Options::Fields),
    ("Dispatch", "crates/orb/src/server/config.rs", Options::Variants),
    ("Limits", "crates/wire/src/limits.rs", Options::Fields),
    ("EventStoreLimits", "crates/services/src/events/durable/limits.rs", Options::Fields),
    ("ChannelSchedule", "crates/services/src/events/schedule/entries.rs", Options::Methods),
    ("RtConfig", "crates/orb/src/rt/config.rs", Options::Fields),
    ("RtClientPolicies", "crates/orb/src/rt/client_policies.rs", Options::Fields),
    ("ThreadpoolConfig", "crates/orb/src/rt/config.rs", Options::Fields),
    ("CorePoolConfig", "crates/orb/src/rt/core_config.rs", Options::Fields),
    ("LanesConfig", "crates/orb/src/rt/config.rs", Options::Fields),
    ("LaneConfig", "crates/orb/src/rt/config.rs", Options::Fields),
    ("RtPolicies", "crates/orb/src/rt/policies.rs", Options::Fields),
    ("PoaPolicies", "crates/orb/src/poa/policies.rs", Options::Fields),
    ("TcpProperties", "crates/orb/src/rt/protocol.rs", Options::Fields),
    ("UnixProperties", "crates/orb/src/rt/protocol.rs", Options::Fields),
    ("SharedMemoryTransport", "crates/net/src/shared_memory/mod.rs", Options::Methods),
    ("RioConfig", "crates/rio/src/config.rs", Options::Fields),
];

#[derive(Clone, Copy)]
enum Options {
    Fields,
    Variants,
    Methods,
}

fn body<'s>(source: &'s str, head: &str) -> Vec<&'s str> {
    let lines = source.lines().skip_while(|line| !line.starts_with(head)).skip(1);
    lines.take_while(|line| *line != "}").collect()
}

fn declared(source: &str, name: &str, options: Options) -> Vec<String> {
    let own = |line: &str| line.strip_prefix("    ").filter(|rest| !rest.starts_with(' ')).map(str::to_owned);
    let until = |text: String, ends: &[char]| text.split(ends).next().unwrap_or_default().trim().to_owned();
    match options {
        Options::Fields => {
            let lines = body(source, &format!("pub struct {name} {{"));
            let fields =
                lines.into_iter().filter_map(own).filter_map(|line| Some(line.strip_prefix("pub ")?.to_owned()));
            fields.map(|line| until(line, &[':'])).collect()
        }
        Options::Variants => {
            let lines = body(source, &format!("pub enum {name} {{")).into_iter().filter_map(own);
            let variants = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
            variants.map(|line| until(line, &[' ', ',', '('])).collect()
        }
        Options::Methods => {
            let text = body(source, &format!("impl {name} {{")).join(" ").replace("pub const fn ", "pub fn ");
            let methods = text.split("pub fn ").skip(1).filter_map(|method| {
                let (name, rest) = method.split_once('(')?;
                let takes_itself = ["self", "mut self"].iter().any(|first| rest.trim_start().starts_with(first));
                let gives_itself = rest.split('{').next()?.contains("-> Self");
                (takes_itself && gives_itself).then(|| name.split('<').next().unwrap_or(name).to_owned())
            });
            methods.collect()
        }
    }
}

fn rows(section: &str) -> BTreeMap<String, String> {
    rows_of(PAGE, &format!("## `{section}`"))
}

fn rows_of(page: &str, heading: &str) -> BTreeMap<String, String> {
    let lines = page.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.starts_with("## "));
    let mut cells_of_all = None;
    let mut rows = BTreeMap::new();
    for line in lines.filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_start_matches("| ").trim_end_matches(" |").split(" | ").collect();
        assert_eq!(cells.len(), *cells_of_all.get_or_insert(cells.len()), "{heading}: {line}");
        if let (Some(name), Some(second)) = (cells[0].strip_prefix('`'), cells.get(1)) {
            let before = rows.insert(name.trim_end_matches('`').to_owned(), (*second).to_owned());
            assert!(before.is_none(), "{heading} has two rows for {name}");
        }
    }
    rows
}

#[test]
fn every_option_has_its_row() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (section, file, options) in SECTIONS {
        let source = std::fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut declared = declared(&source, section, options);
        assert!(
            declared.len() >= 2,
            "{file} has no options of `{section}` where this test looks for them: {declared:?}"
        );
        declared.sort();
        let described: Vec<String> = rows(section).into_keys().collect();
        assert_eq!(
            described, declared,
            "docs/options.md, `{section}`: rows on the left, options of the code on the right"
        );
    }
    let sections = PAGE.lines().filter_map(|line| line.strip_prefix("## `")?.strip_suffix('`'));
    assert!(
        sections.eq(SECTIONS.iter().map(|(section, ..)| *section)),
        "docs/options.md and this test have different sections"
    );
}

#[test]
fn every_event_and_every_counter_has_its_row() {
    let source = include_str!("../../crates/orb/src/event.rs");
    for (heading, name, options) in
        [("## Logs and events", "Event", Options::Variants), ("## Counters", "EventCounts", Options::Fields)]
    {
        let mut declared = declared(source, name, options);
        assert!(declared.len() >= 10, "`{name}` is not where this test looks for it: {declared:?}");
        declared.sort();
        let described: Vec<String> = rows_of(OPERATIONS, heading).into_keys().collect();
        assert_eq!(described, declared, "docs/operations.md, {heading}: rows on the left, the code's on the right");
    }
}

#[test]
fn every_file_of_the_hostile_suite_has_its_row() {
    let page = include_str!("../../SECURITY.md");
    let described = rows_of(page, "## The attacks that are tested");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile");
    for name in described.keys() {
        assert!(folder.join(name).is_file(), "SECURITY.md describes {name}, which does not exist");
    }
    let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let hostile: Vec<String> = entries.filter(|name| name.ends_with(".rs")).collect();
    assert!(hostile.len() >= 10, "{hostile:?}");
    for name in hostile {
        assert!(described.contains_key(&name), "SECURITY.md has no row for {name}");
    }
}

fn written(debug: &str) -> Vec<String> {
    let inner = debug.strip_prefix("Some(").and_then(|rest| rest.strip_suffix(')')).unwrap_or(debug);
    let mut forms = vec![format!("`{inner}`")];
    match inner {
        "None" => forms.push("none".to_owned()),
        "true" => forms.push("on".to_owned()),
        "false" => forms.push("off".to_owned()),
        "[]" => forms.push("empty".to_owned()),
        _ => {}
    }
    if let Ok(number) = inner.parse::<u64>() {
        let digits = inner.as_bytes().rchunks(3).rev().map(|chunk| String::from_utf8_lossy(chunk).into_owned());
        forms.push(digits.collect::<Vec<_>>().join(","));
        for (unit, shift) in [("KiB", 10), ("MiB", 20)] {
            if number > 0 && number.trailing_zeros() >= shift {
                forms.push(format!("{} {unit}", number >> shift));
            }
        }
    }
    for unit in ["s", "ms", "us"] {
        if let Some(number) =
            inner.strip_suffix(unit).filter(|number| number.bytes().all(|octet| octet.is_ascii_digit()))
        {
            forms.push(format!("{number} {unit}"));
        }
    }
    forms
}

/// Compares the defaults in a section of the page with `default`. The options in `told` are not
/// compared, because the page describes their defaults in words.
fn check(section: &str, default: &dyn Debug, told: &[&str]) {
    let text = format!("{default:#?}");
    let rows = rows(section);
    let mut compared = 0;
    for line in text.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     ")) {
        let Some((name, value)) = line.trim().split_once(": ") else { continue };
        if told.contains(&name) {
            continue;
        }
        let row = rows.get(name).unwrap_or_else(|| panic!("`{section}` has no row `{name}`"));
        // An explanation may follow after a colon.
        let cell = row.split(": ").next().unwrap_or_default();
        let value = value.trim_end_matches(',');
        let forms = written(value);
        assert!(forms.iter().any(|form| form == row || form == cell), "`{section}::{name}` is {value}: {row}");
        compared += 1;
    }
    assert_eq!(compared + told.len(), rows.len(), "`{section}` has defaults of {compared} options");
}

#[test]
fn every_default_matches_the_code() {
    check("CallPolicies", &CallPolicies::NONE, &[]);
    check("OnewayBatch", &OnewayBatch::default(), &[]);
    check("PoolConfig", &PoolConfig::default(), &["dispatch", "connection_limits"]);
    check("ConnectionLimits", &ConnectionLimits::default(), &[]);
    let threads = format!("`{:?}`", PoolConfig::default().dispatch);
    assert_eq!(rows("PoolConfig")["dispatch"], threads);
    check("Limits", &Limits::default(), &[]);
    check("RtConfig", &RtConfig::default(), &["priority_mapping", "client_policies"]);
    check("RtClientPolicies", &RtClientPolicies::default(), &[]);
    check("CorePoolConfig", &CorePoolConfig::default(), &["connection_limits"]);
    check("ThreadpoolConfig", &ThreadpoolConfig::default(), &["connection_limits"]);
    check("LanesConfig", &LanesConfig::default(), &["connection_limits"]);
    check("LaneConfig", &LaneConfig::default(), &[]);
    check("RtPolicies", &RtPolicies::default(), &[]);
    check("PoaPolicies", &PoaPolicies::default(), &[]);
    check("TcpProperties", &TcpProperties::default(), &[]);
    check("UnixProperties", &UnixProperties::default(), &[]);
}
