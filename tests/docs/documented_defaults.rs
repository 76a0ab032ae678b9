//! The documentation of configuration options states their defaults.

use std::fs;
use std::path::Path;

const STRUCTURES: [(&str, &str); 10] = [
    ("crates/orb/src/server/config.rs", "PoolConfig"),
    ("crates/orb/src/server/config.rs", "ConnectionLimits"),
    ("crates/orb/src/rt/config.rs", "RtConfig"),
    ("crates/orb/src/rt/config.rs", "ThreadpoolConfig"),
    ("crates/orb/src/rt/core_config.rs", "CorePoolConfig"),
    ("crates/orb/src/rt/config.rs", "LaneConfig"),
    ("crates/orb/src/rt/config.rs", "LanesConfig"),
    ("crates/orb/src/config.rs", "OnewayBatch"),
    ("crates/idl/src/limits.rs", "CompilerLimits"),
    ("crates/rio/src/config.rs", "RioConfig"),
];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

fn documented<'t>(text: &'t str, begins: &str) -> Vec<(&'t str, String)> {
    let (mut found, mut documentation) = (Vec::new(), String::new());
    for line in text.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            documentation += text;
        } else if let Some(rest) = line.strip_prefix(begins) {
            found.push((rest.split([':', '(']).next().unwrap(), std::mem::take(&mut documentation)));
        } else if !line.starts_with("#[") {
            documentation.clear();
        }
    }
    found
}

#[test]
fn documentation_of_every_configuration_field_states_its_default() {
    for (file, name) in STRUCTURES {
        let text = read(file);
        let (_, body) = text.split_once(&format!("pub struct {name} {{\n")).unwrap();
        let fields = documented(body.split_once("\n}").unwrap().0, "pub ");
        assert!(fields.len() > 1, "{name}: {fields:?}");
        for (field, documentation) in fields {
            assert!(
                documentation.contains("Default: "),
                "the documentation of {name}::{field} does not state its default"
            );
        }
    }
}

#[test]
fn documentation_of_every_builder_setting_states_its_default() {
    let text = read("crates/orb/src/orb/builder.rs");
    let settings = documented(&text, "pub fn ");
    assert!(settings.len() > 15, "{settings:?}");
    for (setting, documentation) in settings.iter().filter(|(setting, _)| *setting != "build") {
        let says = documentation.contains("default") || documentation.contains("Without");
        assert!(says, "the documentation of OrbBuilder::{setting} does not state its default");
    }
}

#[test]
fn documentation_of_every_limit_states_its_default() {
    let text = read("crates/wire/src/limits.rs");
    let (_, body) = text.split_once("pub struct Limits {\n").unwrap();
    for (field, documentation) in documented(body.split_once("\n}").unwrap().0, "pub ") {
        assert!(
            documentation.contains(|letter: char| letter.is_ascii_digit()),
            "the documentation of Limits::{field} does not state its default"
        );
    }
}
