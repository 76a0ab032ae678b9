//! The documentation of configurations agrees with the code: examples, keys and defaults.

use std::collections::{BTreeMap, BTreeSet};

use corelane_config::Configuration;

const PAGE: &str = include_str!("../../../docs/configuration.md");
const OPTIONS: &str = include_str!("../../../docs/options.md");

const NAMES: &str = "\
[preconnect.name]
reference = 'corbaloc::h/k'
[pool.name]
threads = 4
[real-time.pool.name.lane.lane]
priority = 0
";

fn known_defaults() -> BTreeMap<String, String> {
    let configuration = Configuration::new().read_text("file", NAMES).unwrap();
    let documented = |key: &str| key.replace(".name.", ".NAME.").replace(".lane.lane.", ".lane.LANE.");
    configuration.settings().into_iter().map(|setting| (documented(&setting.key), setting.value)).collect()
}

const PAGES: [(&str, usize); 4] = [
    (PAGE, 3),
    (include_str!("../../../docs/from-omniorb.md"), 1),
    (include_str!("../../../docs/from-tao.md"), 1),
    (include_str!("../../../docs/from-jacorb.md"), 1),
];

#[test]
fn each_example_is_accepted() {
    for (page, number) in PAGES {
        let examples: Vec<&str> = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert_eq!(examples.len(), number);
        for example in examples {
            let read = Configuration::new().read_text("example", example);
            let builder = read.and_then(|configuration| configuration.builder().map(drop));
            builder.unwrap_or_else(|error| panic!("{error}\n{example}"));
        }
    }
}

#[test]
fn keys_in_the_guides_exist() {
    let known: BTreeSet<String> = known_defaults().into_keys().collect();
    let has_key = |key: &str| {
        let is_section = |known: &String| known.starts_with(&format!("{key}."));
        key.starts_with("initial-references") || known.contains(key) || known.iter().any(is_section)
    };
    for (page, _) in &PAGES[1..] {
        let rows = page
            .lines()
            .skip_while(|line| !line.ends_with("| key |"))
            .skip(2)
            .take_while(|line| line.starts_with("| "));
        let keys: Vec<&str> = rows
            .filter_map(|row| row.trim_end_matches(" |").rsplit_once(" | "))
            .flat_map(|(_, keys)| keys.split(", ").map(|key| key.trim_matches('`')))
            .collect();
        assert!(keys.len() >= 9, "{keys:?}");
        for key in keys {
            assert!(has_key(key), "{key}");
        }
    }
}

fn rows() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let mut rows = Vec::new();
    let mut has_keys = false;
    for line in OPTIONS.lines() {
        let cells: Vec<&str> = line.trim_start_matches("| ").trim_end_matches(" |").split(" | ").collect();
        match cells.as_slice() {
            ["name", "default", "key", "effect"] => has_keys = true,
            [name, default, keys, _] if has_keys && name.starts_with('`') => {
                let keys = if keys.starts_with('`') {
                    keys.split(", ").map(|key| key.trim_matches('`')).collect()
                } else {
                    Vec::new()
                };
                rows.push((name.trim_matches('`'), *default, keys));
            }
            _ => has_keys &= line.starts_with('|'),
        }
    }
    rows
}

#[test]
fn options_have_the_keys_of_the_code() {
    let documented: BTreeSet<String> =
        rows().iter().flat_map(|(_, _, keys)| keys).map(|key| (*key).to_owned()).collect();
    // The page describes these keys in one sentence instead of rows, so the sentence is checked.
    let mut known: BTreeSet<String> = known_defaults().into_keys().collect();
    known.retain(|key| !key.starts_with("real-time.pool.NAME.connections."));
    assert!(OPTIONS.contains("Real-time pools have the section `real-time.pool.NAME.connections` with the same keys."));
    assert_eq!(documented, known, "keys of docs/options.md on the left, of the code on the right");
}

#[test]
fn defaults_are_those_of_the_page() {
    let known = known_defaults();
    // The page gives these defaults in words, or one default for several keys, so they are not
    // compared.
    let told = [
        "publish",
        "transports",
        "on-pool-exhausted",
        "spin",
        "connect-timeout",
        "sync-scope",
        "max-transient-retries",
        "rebind",
    ];
    let mut compared = 0;
    for (name, default, keys) in rows() {
        let [key] = keys.as_slice() else { continue };
        if told.contains(key) || key.contains('.') {
            continue;
        }
        let cell = default.split(": ").next().unwrap_or_default().replace([' ', ','], "").to_lowercase();
        let cell = if cell == "off" { "false".to_owned() } else { cell };
        assert_eq!(cell, known[*key].to_lowercase(), "{name}");
        compared += 1;
    }
    assert!(compared >= 12, "{compared}");
    for (key, default) in [
        ("connect-timeout", "10s"),
        ("sync-scope", "transport"),
        ("max-transient-retries", "0"),
        ("rebind", "transparent"),
    ] {
        assert_eq!(known[key], default);
    }
}
