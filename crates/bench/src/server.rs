//! The servers that benchmarks start, and a client: our own program again, in a mode that no help text mentions.
//!
//! A server prints `ready ...` when it can be called and ends when its standard input does.

use std::ffi::OsString;
use std::process::Command;

use crate::Failure;
use crate::floor::{Carrier, Waiting, run_server};
use crate::orb::server::Keys;
use crate::orb::{Architecture, caller, server};
use crate::placement::{Placement, Side};
use crate::probed;
use crate::service::Service;

/// The first argument of the hidden mode.
pub const MODE: &str = "__bench-server";

/// Enough for ten thousand connections.
const MOST_DESCRIPTORS: u64 = 12_000;

/// Runs the server that the arguments behind [`MODE`] name. Answers the exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let words: Vec<String> = arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // As many connections as benchmarks make; what is not permitted shows when they are made.
    let _ = corelane_sys::process::raise_descriptor_limit(MOST_DESCRIPTORS);
    match serve(&words) {
        Ok(()) => 0,
        Err(failure) => {
            eprintln!("bench server: {failure}");
            1
        }
    }
}

fn serve(words: &[&str]) -> Result<(), Failure> {
    match *words {
        ["floor", carrier, waiting] => run_server(carrier_of(carrier)?, waiting_of(waiting)?),
        ["echo", architecture, address] => server::echo(Architecture::from_word(architecture)?, address),
        ["declared", architecture] => server::declared(Architecture::from_word(architecture)?),
        ["calls", reference] => caller::serve(reference),
        ["laned", priorities, address] => {
            let all: Result<Vec<u8>, _> = priorities.split(',').map(str::parse).collect();
            server::laned(&all.map_err(|_| Failure::new(format!("`{priorities}` are no priorities")))?, address)
        }
        ["banded", priorities] => {
            let all: Result<Vec<i16>, _> = priorities.split(',').map(str::parse).collect();
            server::banded(&all.map_err(|_| Failure::new(format!("`{priorities}` are no priorities")))?)
        }
        ["unlaned", priority] => {
            let priority = priority.parse();
            server::unlaned(priority.map_err(|_| Failure::new(format!("`{words:?}` has no priority")))?)
        }
        ["probed", architecture] => probed::serve(probed::Kind::from_word(architecture)?),
        ["many", count, keys, architecture] => {
            let architecture = Architecture::from_word(architecture)?;
            server::many(number(count, 10_000_000)?, Keys::from_name(keys)?, architecture)
        }
        ["nested", depth, keys] => server::nested(number(depth, 1000)? - 1, Keys::from_name(keys)?),
        ["operations", count] => server::operations(number(count, 1000)?),
        _ => Err(Failure::new(format!("this mode is for `corelane bench` itself; it knows no {words:?}"))),
    }
}

/// Starts a floor server beside us; answers where it listens.
///
/// # Errors
/// It does not start.
pub(crate) fn start_floor(
    carrier: Carrier,
    waiting: Waiting,
    placement: &Placement,
) -> Result<(Service, String), Failure> {
    let waiting = match waiting {
        Waiting::Blocking => "blocking".to_owned(),
        Waiting::Looking => "looking".to_owned(),
        Waiting::Epoll(threads) => format!("epoll:{threads}"),
    };
    start("the floor server", &["floor", carrier.name(), &waiting], placement)
}

/// Starts a Corelane server with one object at `address`; answers its reference.
pub(crate) fn start_echo(
    architecture: Architecture,
    address: &str,
    placement: &Placement,
) -> Result<(Service, String), Failure> {
    start("Corelane's server", &["echo", &architecture.to_string(), address], placement)
}

/// Starts a Corelane server with one object whose calls all have one priority; answers its reference.
pub(crate) fn start_declared(architecture: Architecture, placement: &Placement) -> Result<(Service, String), Failure> {
    start("Corelane's server of one priority", &["declared", &architecture.to_string()], placement)
}

/// Starts a Corelane client of that reference, which calls when it is told to.
pub(crate) fn start_caller(reference: &str, placement: &Placement) -> Result<Service, Failure> {
    Ok(Service::start("Corelane's client", ourselves(&["calls", reference])?, placement, Side::Client)?.0)
}

/// Starts a Corelane server with an object for each of these native priorities, in a lane of its own; it lists their references when it is asked
/// anything.
pub(crate) fn start_laned(priorities: &[u8], carrier: Carrier, placement: &Placement) -> Result<Service, Failure> {
    let list: Vec<String> = priorities.iter().map(u8::to_string).collect();
    let words = ["laned", &list.join(","), &server::free_address(carrier)];
    Ok(start("Corelane's server with lanes", &words, placement)?.0)
}

/// Starts a Corelane server with an object for each of these CORBA priorities, and a lane for each native level of theirs; it lists their references
/// when it is asked anything.
pub(crate) fn start_banded(priorities: &[i16], placement: &Placement) -> Result<Service, Failure> {
    let list: Vec<String> = priorities.iter().map(i16::to_string).collect();
    Ok(start("Corelane's server with lanes and bands", &["banded", &list.join(",")], placement)?.0)
}

/// Starts a Corelane server with a pool without lanes at this native priority; answers its object's reference.
pub(crate) fn start_unlaned(priority: u8, placement: &Placement) -> Result<(Service, String), Failure> {
    start("Corelane's server without lanes", &["unlaned", &priority.to_string()], placement)
}

/// Starts a Corelane server whose probes can be switched; answers its reference.
pub(crate) fn start_probed(kind: probed::Kind, placement: &Placement) -> Result<(Service, String), Failure> {
    start("Corelane's server with probes", &["probed", &kind.to_string()], placement)
}

/// Starts a Corelane server with so many objects.
pub(crate) fn start_many(count: usize, keys: Keys, placement: &Placement) -> Result<Service, Failure> {
    start_pool(count, keys, Architecture::PerConnection, placement)
}

/// The same with that architecture.
pub(crate) fn start_pool(
    count: usize,
    keys: Keys,
    architecture: Architecture,
    placement: &Placement,
) -> Result<Service, Failure> {
    let name = format!("Corelane's server of {count} objects");
    let words = ["many", &count.to_string(), keys.name(), &architecture.to_string()];
    Ok(start(&name, &words, placement)?.0)
}

/// Starts a Corelane server with an object in a POA so many levels below the root; answers its reference.
pub(crate) fn start_nested(depth: usize, keys: Keys, placement: &Placement) -> Result<(Service, String), Failure> {
    // Numbers in these words begin with 1, as the root POA is one.
    let words = ["nested", &(depth + 1).to_string(), keys.name()];
    start(&format!("Corelane's server with {depth} POAs below the root"), &words, placement)
}

/// Starts a Corelane server with an object of so many operations; answers its reference.
pub(crate) fn start_operations(count: usize, placement: &Placement) -> Result<(Service, String), Failure> {
    start(&format!("Corelane's server of {count} operations"), &["operations", &count.to_string()], placement)
}

/// Starts our own program as a server with these arguments; answers what it says of itself.
fn start(name: &str, words: &[&str], placement: &Placement) -> Result<(Service, String), Failure> {
    Service::start(name, ourselves(words)?, placement, Side::Server)
}

fn ourselves(words: &[&str]) -> Result<Command, Failure> {
    let own =
        std::env::current_exe().map_err(|error| Failure::new(format!("our own program is not found: {error}")))?;
    let mut command = Command::new(own);
    command.arg(MODE).args(words);
    Ok(command)
}

fn number(text: &str, most: usize) -> Result<usize, Failure> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| Failure::new(format!("`{text}` is no number from 1 to {most}")))
}

fn carrier_of(text: &str) -> Result<Carrier, Failure> {
    Carrier::from_name(text).ok_or_else(|| Failure::new(format!("there is no carrier `{text}`")))
}

fn waiting_of(text: &str) -> Result<Waiting, Failure> {
    match text {
        "blocking" => return Ok(Waiting::Blocking),
        "looking" => return Ok(Waiting::Looking),
        _ => {}
    }
    let threads =
        text.strip_prefix("epoll:").and_then(|number| number.parse().ok()).filter(|&n| (1..=256).contains(&n));
    threads.map(Waiting::Epoll).ok_or_else(|| Failure::new(format!("there is no way to wait `{text}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_is_to_be_is_read_back() {
        assert_eq!(waiting_of("blocking").unwrap(), Waiting::Blocking);
        assert_eq!(waiting_of("epoll:3").unwrap(), Waiting::Epoll(3));
        assert!(waiting_of("epoll:0").is_err() && waiting_of("epoll:").is_err() && waiting_of("").is_err());
        assert_eq!(waiting_of("looking").unwrap(), Waiting::Looking);
        assert_eq!(carrier_of("unix").unwrap(), Carrier::Unix);
        assert_eq!(carrier_of("shm").unwrap(), Carrier::SharedMemory);
        assert_eq!(run([OsString::from("what")]), 1);
    }
}
