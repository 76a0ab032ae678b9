//! Options of other ORBs as settings of a program's configuration (docs/configuration.md).
//!
//! Options of the server's threads and connections become settings of a pool with the name `main`.

use std::collections::BTreeMap;

use super::Refusal::{self, Malformed, NoCounterpart};
use super::{Imported, Place, Sourced, quoted};

const MAX_SECONDS: u64 = 100_000_000;

type Converted = (&'static str, String);

const BOOLEAN: Refusal = Malformed("the value is 0 or 1");
const NUMBER: Refusal = Malformed("the value is a number");
/// The refusal of an option whose setting the configuration lacks. The caller replaces the empty
/// reason.
const NO_SETTING: Refusal = NoCounterpart("");

/// Converts an option. `name` is the option without `-ORB`, in upper or lower case.
pub(super) fn convert(name: &str, value: &str) -> Result<Converted, Refusal> {
    // Text after a `#` is ignored.
    let value = value.split('#').next().unwrap_or_default().trim();
    match name.to_ascii_lowercase().as_str() {
        "clientconnecttimeoutperiod" => match milliseconds(value)? {
            None => Err(NoCounterpart("connecting always has a time-out: 10 s by default")),
            Some(time) => Ok(("connect-timeout", time)),
        },
        "servercalltimeoutperiod" => match milliseconds(value)? {
            None => Err(NoCounterpart("an incomplete message always has a time-out: 30 s by default")),
            Some(time) => Ok(("pool.main.connections.read-stall-timeout", time)),
        },
        "outconscanperiod" => match number(value)? {
            0 => Err(NoCounterpart("idle connections always end: after 180 s by default")),
            seconds if seconds > MAX_SECONDS => Err(NoCounterpart("the time is too long")),
            seconds => Ok(("idle-connection-timeout", format!("\"{seconds}s\""))),
        },
        "scangranularity" => {
            Err(NoCounterpart("idle connections are looked for every quarter of `idle-connection-timeout`"))
        }
        "inconscanperiod" => Err(NoCounterpart("a server closes idle connections when `max-connections` are open")),
        "maxgiopconnectionperserver" => match number(value)? {
            connections @ 1..=1_000_000 => Ok(("max-connections-per-server", connections.to_string())),
            _ => Err(NoCounterpart("the number is from 1 to 1000000")),
        },
        "onecallperconnection" => Ok(("on-pool-exhausted", choose(boolean(value)?, "wait", "multiplex"))),
        "transportmuxstrategy" => match value.to_ascii_lowercase().as_str() {
            "exclusive" => Ok(("on-pool-exhausted", quoted("wait"))),
            "muxed" => Ok(("on-pool-exhausted", quoted("multiplex"))),
            _ => Err(Malformed("the value is EXCLUSIVE or MUXED")),
        },
        "maxgiopversion" => match value {
            "1.0" | "1.1" | "1.2" => Ok(("giop-version", quoted(value))),
            _ => Err(Malformed("a version is 1.0, 1.1 or 1.2")),
        },
        "giopmaxmsgsize" => match number(value)? {
            size @ 1..=0xffff_ffff => Ok(("limits.max-message-size", size.to_string())),
            _ => Err(NoCounterpart("a size is from 1 to 4294967295 octets")),
        },
        "maxmessagesize" => match number(value)? {
            size @ 64..=0x7fff_ffff => Ok(("fragment-size", size.to_string())),
            _ => Err(NoCounterpart("a fragment has 64 octets or more")),
        },
        "nativecharcodeset" => char_set(value).map(|set| ("native-char-set", quoted(set))),
        "threadperconnectionpolicy" => {
            Ok(("pool.main.dispatch", choose(boolean(value)?, "thread-per-connection", "leader-followers")))
        }
        "concurrency" => match value.to_ascii_lowercase().as_str() {
            "reactive" => Ok(("pool.main.dispatch", quoted("reactive"))),
            "thread-per-connection" => Ok(("pool.main.dispatch", quoted("thread-per-connection"))),
            _ => Err(NoCounterpart("the dispatch is one of reactive, thread-per-connection")),
        },
        "threadperconnectionupperlimit" => threads(value).map(|threads| ("pool.main.max-threads", threads)),
        "maxserverthreadpoolsize" => threads(value).map(|threads| ("pool.main.threads", threads)),
        "clientconnectionhandler" if value.eq_ignore_ascii_case("rw") => Ok(("pool.main.nested-wait", quoted("block"))),
        "clientconnectionhandler" => {
            Err(NoCounterpart("`pool.main.nested-wait` has the number of nested upcalls, too"))
        }
        "schedpolicy" => match value.to_ascii_uppercase().as_str() {
            "SCHED_FIFO" => Ok(("real-time.scheduling", quoted("fifo"))),
            "SCHED_RR" => Ok(("real-time.scheduling", quoted("round-robin"))),
            "SCHED_OTHER" => Ok(("real-time.scheduling", quoted("fair"))),
            _ => Err(Malformed("the value is SCHED_FIFO, SCHED_RR or SCHED_OTHER")),
        },
        "prioritymapping" => match value.to_ascii_lowercase().as_str() {
            "linear" => Ok(("real-time.priority-mapping", quoted("linear 1..99"))),
            "direct" => Ok(("real-time.priority-mapping", quoted("direct 1..99"))),
            "continuous" => Ok(("real-time.priority-mapping", quoted("consecutive 1..99"))),
            _ => Err(Malformed("the value is linear, direct or continuous")),
        },
        "tracelevel" | "debuglevel" => Ok(("log-events", (number(value)? > 0).to_string())),
        "lanelistenendpoints" | "laneendpoint" => {
            Err(NoCounterpart("each lane has `listen` in `real-time.pool.NAME.lane.LANE`"))
        }
        "preconnect" => Err(NoCounterpart("a connection at start needs a reference: `preconnect.NAME.reference`")),
        "sndsock" | "rcvsock" | "nodelay" => Err(NoCounterpart(
            "socket options belong to protocol policies: `real-time.tcp` with `real-time.server-protocols`",
        )),
        "protocolfactory" => Err(NoCounterpart("`transports` lists the transports")),
        "dotteddecimaladdresses" => Err(NoCounterpart("`publish` has the addresses in references")),
        _ => Err(NO_SETTING),
    }
}

pub(super) fn call_timeout(value: &str) -> Result<Converted, Refusal> {
    let value = value.split('#').next().unwrap_or_default().trim();
    Ok(("call-timeout", milliseconds(value)?.unwrap_or_else(|| quoted("none"))))
}

fn choose(first: bool, yes: &str, no: &str) -> String {
    quoted(if first { yes } else { no })
}

fn number(text: &str) -> Result<u64, Refusal> {
    text.parse().map_err(|_| NUMBER)
}

fn boolean(text: &str) -> Result<bool, Refusal> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        _ => Err(BOOLEAN),
    }
}

fn milliseconds(text: &str) -> Result<Option<String>, Refusal> {
    match text.parse::<u64>() {
        Ok(0) => Ok(None),
        Ok(time) if time <= MAX_SECONDS * 1000 => Ok(Some(format!("\"{time}ms\""))),
        Ok(_) => Err(NoCounterpart("the time is too long")),
        Err(_) => Err(Malformed("a time-out is a number of milliseconds")),
    }
}

fn threads(text: &str) -> Result<String, Refusal> {
    match number(text)? {
        threads @ 1..=4096 => Ok(threads.to_string()),
        _ => Err(NoCounterpart("the number of threads is from 1 to 4096")),
    }
}

fn char_set(value: &str) -> Result<&'static str, Refusal> {
    let number = value.strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
    match (value.to_ascii_lowercase().as_str(), number) {
        ("utf-8", _) | (_, Some(0x0501_0001)) => Ok("utf-8"),
        ("iso-8859-1", _) | (_, Some(0x0001_0001)) => Ok("iso-8859-1"),
        _ => Err(NoCounterpart("the code sets are UTF-8 and ISO-8859-1")),
    }
}

#[derive(Debug, Default)]
pub(super) struct ProgramSettings {
    set: BTreeMap<&'static str, Sourced>,
    references: BTreeMap<String, Sourced>,
}

impl Imported {
    pub(super) fn set_program(&mut self, place: Place, shown: &str, (key, value): Converted) {
        let before = self.program.set.insert(key, Sourced { place, shown: shown.to_owned(), value });
        self.leave_out_replaced(before);
    }

    pub(super) fn set_program_reference(&mut self, place: Place, shown: &str, name: &str, text: &str) {
        let reference = Sourced { place, shown: shown.to_owned(), value: text.to_owned() };
        let before = self.program.references.insert(name.to_owned(), reference);
        self.leave_out_replaced(before);
    }

    /// Completes the settings of a program: leaves out the numbers of threads that the dispatch
    /// architecture does not have.
    pub(super) fn finish_program(&mut self) {
        let dispatch = self.program.set.get("pool.main.dispatch").map(|setting| setting.value.as_str());
        let unused: &[&str] = match dispatch {
            Some("\"thread-per-connection\"") => &["pool.main.threads"],
            Some("\"reactive\"") => &["pool.main.threads", "pool.main.max-threads"],
            _ => &["pool.main.max-threads"],
        };
        for key in unused {
            if let Some(setting) = self.program.set.remove(key) {
                self.leave_out(setting.place, &setting.shown, "the dispatch architecture has no such number");
            }
        }
    }

    pub(super) fn program_toml(&self) -> String {
        let mut sections: BTreeMap<&str, String> = BTreeMap::new();
        let lists = [
            ("listen", self.listen.iter().map(|one| quoted(&one.address)).collect::<Vec<_>>()),
            ("publish", self.publish.iter().map(|address| quoted(address)).collect()),
        ];
        for (name, values) in lists.into_iter().filter(|(_, values)| !values.is_empty()) {
            *sections.entry("").or_default() += &format!("{name} = [{}]\n", values.join(", "));
        }
        for (key, setting) in &self.program.set {
            let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
            *sections.entry(section).or_default() += &format!("{name} = {}\n", setting.value);
        }
        for (name, reference) in &self.program.references {
            *sections.entry("initial-references").or_default() +=
                &format!("{} = {}\n", quoted(name), quoted(&reference.value));
        }
        let text = |(section, lines): (&str, String)| {
            if section.is_empty() { format!("\n{lines}") } else { format!("\n[{section}]\n{lines}") }
        };
        sections.into_iter().map(text).collect()
    }
}
