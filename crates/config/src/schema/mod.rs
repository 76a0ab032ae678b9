//! The settings: their keys, forms and defaults, and the functions that set them.
//!
//! A key is a path such as `pool.sensors.threads`. All parts but the last name a section, and `*`
//! stands for a name that the deployer chooses.

mod orb;
mod pools;
mod real_time;

use crate::draft::Draft;
use crate::value::{Converted, RawValue, excerpt};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SetError {
    UnknownSection,
    UnknownSetting,
    /// The message follows the name of the setting.
    Invalid(String),
}

pub(crate) struct Entry<T: 'static> {
    name: &'static str,
    form: &'static str,
    /// The default as a value of this setting; `none` if there is none.
    default: &'static str,
    set: fn(&mut T, &RawValue) -> Converted<()>,
}

const fn entry<T>(
    name: &'static str,
    form: &'static str,
    default: &'static str,
    set: fn(&mut T, &RawValue) -> Converted<()>,
) -> Entry<T> {
    Entry { name, form, default, set }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownSetting {
    pub(crate) name: &'static str,
    pub(crate) form: &'static str,
    pub(crate) default: &'static str,
}

impl KnownSetting {
    pub(crate) fn is_list(&self) -> bool {
        self.form.starts_with("list of ")
    }
}

/// A section and its known settings. In a section without known settings, the deployer chooses the
/// names.
pub(crate) struct Section {
    pub(crate) path: &'static str,
    pub(crate) settings: fn() -> Vec<KnownSetting>,
}

fn described<T>(entries: &'static [Entry<T>]) -> Vec<KnownSetting> {
    entries.iter().map(|one| KnownSetting { name: one.name, form: one.form, default: one.default }).collect()
}

pub(crate) const INITIAL_REFERENCES: &str = "initial-references";

pub(crate) const SECTIONS: &[Section] = &[
    Section { path: "", settings: || described(orb::ROOT) },
    Section { path: INITIAL_REFERENCES, settings: Vec::new },
    Section { path: "oneway-batch", settings: || described(orb::ONEWAY_BATCH) },
    Section { path: "limits", settings: || described(orb::LIMITS) },
    Section { path: "shared-memory", settings: || described(orb::SHARED_MEMORY) },
    Section { path: "preconnect.*", settings: || described(orb::PRECONNECT) },
    Section { path: "pool.*", settings: || described(pools::POOL) },
    Section { path: "pool.*.connections", settings: || described(pools::CONNECTIONS) },
    Section { path: "real-time", settings: || described(real_time::ROOT) },
    Section { path: "real-time.tcp", settings: || described(real_time::TCP) },
    Section { path: "real-time.unix", settings: || described(real_time::UNIX) },
    Section { path: "real-time.pool.*", settings: || described(real_time::POOL) },
    Section { path: "real-time.pool.*.connections", settings: || described(pools::CONNECTIONS) },
    Section { path: "real-time.pool.*.lane.*", settings: || described(real_time::LANE) },
];

fn set_in<T>(entries: &'static [Entry<T>], target: &mut T, name: &str, value: &RawValue) -> Result<(), SetError> {
    let entry = entries.iter().find(|entry| entry.name == name).ok_or(SetError::UnknownSetting)?;
    (entry.set)(target, value).map_err(SetError::Invalid)
}

pub(crate) fn set(draft: &mut Draft, key: &[&str], value: &RawValue) -> Result<(), SetError> {
    match *key {
        [name] => set_in(orb::ROOT, &mut draft.orb, name, value),
        [INITIAL_REFERENCES, name] => orb::set_initial_reference(draft, name, value).map_err(SetError::Invalid),
        ["oneway-batch", name] => set_in(orb::ONEWAY_BATCH, &mut draft.oneway_batch, name, value),
        ["limits", name] => set_in(orb::LIMITS, &mut draft.limits, name, value),
        ["shared-memory", name] => set_in(orb::SHARED_MEMORY, &mut draft.shared_memory, name, value),
        ["preconnect", server, name] => set_in(orb::PRECONNECT, draft.preconnect(server), name, value),
        ["pool", pool, name] => set_in(pools::POOL, draft.pool(pool), name, value),
        ["pool", pool, "connections", name] => {
            set_in(pools::CONNECTIONS, &mut draft.pool(pool).config.connection_limits, name, value)
        }
        ["real-time", name] => {
            draft.has_real_time = true;
            set_in(real_time::ROOT, &mut draft.real_time, name, value)
        }
        ["real-time", "tcp", name] => set_in(real_time::TCP, &mut draft.tcp, name, value),
        ["real-time", "unix", name] => set_in(real_time::UNIX, &mut draft.unix, name, value),
        ["real-time", "pool", pool, name] => set_in(real_time::POOL, draft.threadpool(pool), name, value),
        ["real-time", "pool", pool, "connections", name] => {
            set_in(pools::CONNECTIONS, &mut draft.threadpool(pool).connection_limits, name, value)
        }
        ["real-time", "pool", pool, "lane", lane, name] => {
            set_in(real_time::LANE, draft.threadpool(pool).lane(lane), name, value)
        }
        _ => Err(SetError::UnknownSection),
    }
}

pub(crate) fn find(key: &[&str]) -> Option<KnownSetting> {
    let (name, path) = key.split_last()?;
    let is_it = |section: &&Section| {
        begins_with(section.path, path) && section.path.split('.').filter(|part| !part.is_empty()).count() == path.len()
    };
    let section = SECTIONS.iter().find(is_it)?;
    (section.settings)().into_iter().find(|setting| setting.name == *name)
}

/// Returns true if the path of a section begins with `path`.
pub(crate) fn leads_to_section(path: &[&str]) -> bool {
    !path.is_empty() && SECTIONS.iter().any(|section| begins_with(section.path, path))
}

fn begins_with(section: &str, path: &[&str]) -> bool {
    let mut parts = section.split('.').filter(|part| !part.is_empty());
    path.iter().all(|name| parts.next().is_some_and(|part| part == *name || part == "*"))
}

/// Returns true if the last part of a section's path is a name that the deployer chooses.
pub(crate) fn ends_with_name(path: &[&str]) -> bool {
    let Some(last) = path.len().checked_sub(1) else { return false };
    SECTIONS.iter().any(|section| begins_with(section.path, path) && section.path.split('.').nth(last) == Some("*"))
}

pub(crate) fn is_name(text: &str) -> bool {
    let is_permitted =
        |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '-';
    (1..=64).contains(&text.len()) && text.chars().all(is_permitted)
}

pub(crate) fn names_below(path: &[&str]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for section in SECTIONS {
        let parts: Vec<&str> = section.path.split('.').filter(|part| !part.is_empty()).collect();
        if !begins_with(section.path, path) {
            continue;
        }
        match parts.get(path.len()) {
            Some(part) if *part != "*" && !names.contains(part) => names.push(part),
            Some(_) => {}
            None => names.extend((section.settings)().iter().map(|setting| setting.name)),
        }
    }
    names
}

pub(crate) fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    // The comparison takes time in proportion to both lengths, so only the start of the name is
    // compared.
    let name: String = name.chars().take(100).collect();
    let likeness = |known: &str| (strsim::jaro_winkler(&name, known) * 1e6) as u64;
    let known = known.into_iter().map(|known| (likeness(known), known));
    known.max_by_key(|(likeness, _)| *likeness).filter(|(likeness, _)| *likeness > 700_000).map(|(_, known)| known)
}

pub(crate) fn unknown<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    match nearest(name, known) {
        Some(known) => format!("`{}`: the nearest one is `{known}`", excerpt(name)),
        None => format!("`{}`", excerpt(name)),
    }
}
