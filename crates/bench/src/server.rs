//! Servers that benchmarks start, and a client: this program again, in a mode that no help text
//! mentions.
//!
//! A server prints `ready ...` when it can be called, and ends at the end of its standard input.

use std::ffi::OsString;
use std::process::Command;

use crate::Failure;
use crate::baseline::{Spinning, Transport, run_server};
use crate::orb::server::Keys;
use crate::orb::{Architecture, caller, server};
use crate::placement::{Placement, Side};
use crate::service::Service;
use crate::{naming, probed};

/// First argument of the hidden mode.
pub const MODE: &str = "__bench-server";

/// Descriptor limit that is enough for ten thousand connections.
const MOST_DESCRIPTORS: u64 = 12_000;

/// Runs the server that the arguments after [`MODE`] name. Returns the exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let words: Vec<String> = arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // Ignore errors: if the limit stays too low, connecting fails later.
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
            server::laned(
                &all.map_err(|_| Failure::new(format!("`{priorities}` is not a list of priorities")))?,
                address,
            )
        }
        ["banded", priorities] => {
            let all: Result<Vec<i16>, _> = priorities.split(',').map(str::parse).collect();
            server::banded(&all.map_err(|_| Failure::new(format!("`{priorities}` is not a list of priorities")))?)
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
        ["naming", place, durability] => naming::serve(place, durability),
        ["operations", count] => server::operations(number(count, 1000)?),
        _ => Err(Failure::new(format!("this mode is for `corelane bench` itself; it does not know {words:?}"))),
    }
}

/// Starts a baseline server and returns its address.
///
/// # Errors
/// The server does not start.
pub(crate) fn start_floor(
    carrier: Transport,
    waiting: Spinning,
    placement: &Placement,
) -> Result<(Service, String), Failure> {
    let waiting = match waiting {
        Spinning::Blocking => "blocking".to_owned(),
        Spinning::Looking => "looking".to_owned(),
        Spinning::Epoll(threads) => format!("epoll:{threads}"),
    };
    start("the floor server", &["floor", carrier.name(), &waiting], placement)
}

/// Starts a Corelane server with one object at `address` and returns its reference.
pub(crate) fn start_echo(
    architecture: Architecture,
    address: &str,
    placement: &Placement,
) -> Result<(Service, String), Failure> {
    start("Corelane's server", &["echo", &architecture.to_string(), address], placement)
}

/// Starts a Corelane server with one object whose calls all have one priority. Returns its
/// reference.
pub(crate) fn start_declared(architecture: Architecture, placement: &Placement) -> Result<(Service, String), Failure> {
    start("Corelane's server of one priority", &["declared", &architecture.to_string()], placement)
}

/// Starts a Corelane client of a reference, which calls on request.
pub(crate) fn start_caller(reference: &str, placement: &Placement) -> Result<Service, Failure> {
    Ok(Service::start("Corelane's client", ourselves(&["calls", reference])?, placement, Side::Client)?.0)
}

/// Starts a Corelane server with an object for each native priority, in a lane of its own. The
/// server answers any line with their references.
pub(crate) fn start_laned(priorities: &[u8], carrier: Transport, placement: &Placement) -> Result<Service, Failure> {
    let list: Vec<String> = priorities.iter().map(u8::to_string).collect();
    let words = ["laned", &list.join(","), &server::free_address(carrier)];
    Ok(start("Corelane's server with lanes", &words, placement)?.0)
}

/// Starts a Corelane server with an object for each CORBA priority, and a lane for each native
/// level in use. The server answers any line with their references.
pub(crate) fn start_banded(priorities: &[i16], placement: &Placement) -> Result<Service, Failure> {
    let list: Vec<String> = priorities.iter().map(i16::to_string).collect();
    Ok(start("Corelane's server with lanes and bands", &["banded", &list.join(",")], placement)?.0)
}

/// Starts a Corelane server with a pool without lanes at a native priority. Returns its object's
/// reference.
pub(crate) fn start_unlaned(priority: u8, placement: &Placement) -> Result<(Service, String), Failure> {
    start("Corelane's server without lanes", &["unlaned", &priority.to_string()], placement)
}

/// Starts a Corelane server whose probes can be switched. Returns its reference.
pub(crate) fn start_probed(kind: probed::Kind, placement: &Placement) -> Result<(Service, String), Failure> {
    start("Corelane's server with probes", &["probed", &kind.to_string()], placement)
}

/// Starts a Corelane server with a number of objects and a thread for each connection.
pub(crate) fn start_many(count: usize, keys: Keys, placement: &Placement) -> Result<Service, Failure> {
    start_pool(count, keys, Architecture::PerConnection, placement)
}

/// Starts a Corelane server with a number of objects and the given architecture.
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

/// Starts a Corelane server with an object in a POA that is `depth` levels below the root. Returns
/// its reference.
pub(crate) fn start_nested(depth: usize, keys: Keys, placement: &Placement) -> Result<(Service, String), Failure> {
    // The argument counts the root POA, since numbers in arguments begin with 1.
    let words = ["nested", &(depth + 1).to_string(), keys.name()];
    start(&format!("Corelane's server with {depth} POAs below the root"), &words, placement)
}

/// Starts a Corelane server with an object of `count` operations. Returns its reference.
pub(crate) fn start_operations(count: usize, placement: &Placement) -> Result<(Service, String), Failure> {
    start(&format!("Corelane's server of {count} operations"), &["operations", &count.to_string()], placement)
}

/// Starts a name server and returns the reference of its initial context.
pub(crate) fn start_naming(place: &str, durability: &str, placement: &Placement) -> Result<(Service, String), Failure> {
    start("Corelane's name server", &["naming", place, durability], placement)
}

/// Starts this program as a server with these arguments. Returns it with the rest of its `ready`
/// line.
fn start(name: &str, words: &[&str], placement: &Placement) -> Result<(Service, String), Failure> {
    Service::start(name, ourselves(words)?, placement, Side::Server)
}

fn ourselves(words: &[&str]) -> Result<Command, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::new(format!("the path of this program is unknown: {error}")))?;
    let mut command = Command::new(own);
    command.arg(MODE).args(words);
    Ok(command)
}

fn number(text: &str, most: usize) -> Result<usize, Failure> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| Failure::new(format!("`{text}` is not a number from 1 to {most}")))
}

fn carrier_of(text: &str) -> Result<Transport, Failure> {
    Transport::from_name(text).ok_or_else(|| Failure::new(format!("there is no transport `{text}`")))
}

fn waiting_of(text: &str) -> Result<Spinning, Failure> {
    match text {
        "blocking" => return Ok(Spinning::Blocking),
        "looking" => return Ok(Spinning::Looking),
        _ => {}
    }
    let threads =
        text.strip_prefix("epoll:").and_then(|number| number.parse().ok()).filter(|&n| (1..=256).contains(&n));
    threads.map(Spinning::Epoll).ok_or_else(|| Failure::new(format!("there is no way to wait `{text}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_is_to_be_is_read_back() {
        assert_eq!(waiting_of("blocking").unwrap(), Spinning::Blocking);
        assert_eq!(waiting_of("epoll:3").unwrap(), Spinning::Epoll(3));
        assert!(waiting_of("epoll:0").is_err() && waiting_of("epoll:").is_err() && waiting_of("").is_err());
        assert_eq!(waiting_of("looking").unwrap(), Spinning::Looking);
        assert_eq!(carrier_of("unix").unwrap(), Transport::Unix);
        assert_eq!(carrier_of("shm").unwrap(), Transport::SharedMemory);
        assert_eq!(run([OsString::from("what")]), 1);
    }
}
