//! Starts the servers and clients of benchmarks. Each of them is this program in a hidden mode
//! ([`HIDDEN_MODE`]), in a separate process.

use std::process::Command;
use std::time::Duration;

use crate::Failure;
use crate::address::free_address;
use crate::baseline::{BaselineTransport, StreamSpin, WaitStrategy};
use crate::orb::ServerArchitecture;
use crate::orb::keys::KeyLifetime;
use crate::placement::{Placement, Side};
use crate::service::RunningProgram;

/// First argument of the hidden mode, in which the program serves a benchmark.
pub const HIDDEN_MODE: &str = "__bench-server";

pub(crate) fn start_baseline(
    transport: BaselineTransport,
    waiting: WaitStrategy,
    placement: &Placement,
) -> Result<(RunningProgram, String), Failure> {
    let waiting = match waiting {
        WaitStrategy::Blocking => "blocking".to_owned(),
        WaitStrategy::SpinThenSleep => "looking".to_owned(),
        WaitStrategy::Pipelined => "parts".to_owned(),
        WaitStrategy::Stream(StreamSpin::Never) => "stream".to_owned(),
        WaitStrategy::Stream(StreamSpin::Adaptive) => "spinning-stream".to_owned(),
        WaitStrategy::Epoll(threads) => format!("epoll:{threads}"),
    };
    start("the floor server", &["floor", transport.name(), &waiting], placement)
}

pub(crate) fn start_echo(
    architecture: ServerArchitecture,
    address: &str,
    placement: &Placement,
) -> Result<(RunningProgram, String), Failure> {
    start("Corelane's server", &["echo", &architecture.to_string(), address], placement)
}

pub(crate) fn start_non_polling_echo(
    architecture: ServerArchitecture,
    address: &str,
    placement: &Placement,
) -> Result<(RunningProgram, String), Failure> {
    start("Corelane's server that does not poll", &["sleeping-echo", &architecture.to_string(), address], placement)
}

pub(crate) fn start_single_priority_server(
    architecture: ServerArchitecture,
    placement: &Placement,
) -> Result<(RunningProgram, String), Failure> {
    start("Corelane's server of one priority", &["declared", &architecture.to_string()], placement)
}

pub(crate) fn start_client(reference: &str, placement: &Placement) -> Result<RunningProgram, Failure> {
    Ok(RunningProgram::start("Corelane's client", ourselves(&["calls", reference])?, placement, Side::Client)?.0)
}

/// Starts a server with a lane and an object for each priority. The server answers any input line
/// with the references of its objects.
pub(crate) fn start_server_with_lanes(
    priorities: &[u8],
    transport: BaselineTransport,
    placement: &Placement,
) -> Result<RunningProgram, Failure> {
    let list: Vec<String> = priorities.iter().map(u8::to_string).collect();
    let words = ["laned", &list.join(","), &free_address(transport)];
    Ok(start("Corelane's server with lanes", &words, placement)?.0)
}

/// Starts a server with an object for each priority, and with a lane and a band for each native
/// level. The server answers any input line with the references of its objects.
pub(crate) fn start_server_with_bands(priorities: &[i16], placement: &Placement) -> Result<RunningProgram, Failure> {
    let list: Vec<String> = priorities.iter().map(i16::to_string).collect();
    Ok(start("Corelane's server with lanes and bands", &["banded", &list.join(",")], placement)?.0)
}

pub(crate) fn start_server_without_lanes(
    priority: u8,
    placement: &Placement,
) -> Result<(RunningProgram, String), Failure> {
    start("Corelane's server without lanes", &["unlaned", &priority.to_string()], placement)
}

pub(crate) fn start_server_with_objects(
    count: usize,
    keys: KeyLifetime,
    placement: &Placement,
) -> Result<RunningProgram, Failure> {
    start_pool(count, keys, ServerArchitecture::PerConnection, placement)
}

pub(crate) fn start_pool(
    count: usize,
    keys: KeyLifetime,
    architecture: ServerArchitecture,
    placement: &Placement,
) -> Result<RunningProgram, Failure> {
    let name = format!("Corelane's server of {count} objects");
    let words = ["many", &count.to_string(), keys.name(), &architecture.to_string()];
    Ok(start(&name, &words, placement)?.0)
}

pub(crate) fn start_server_with_nested_poa(
    depth: usize,
    keys: KeyLifetime,
    placement: &Placement,
) -> Result<(RunningProgram, String), Failure> {
    // The server refuses 0 as an argument, so the argument counts the root POA too. The server
    // subtracts 1.
    let words = ["nested", &(depth + 1).to_string(), keys.name()];
    start(&format!("Corelane's server with {depth} POAs below the root"), &words, placement)
}

pub(crate) fn start_server_with_operations(
    count: usize,
    placement: &Placement,
) -> Result<(RunningProgram, String), Failure> {
    start(&format!("Corelane's server of {count} operations"), &["operations", &count.to_string()], placement)
}

pub(crate) fn start_name_server(
    place: &str,
    durability: &str,
    placement: &Placement,
) -> Result<(RunningProgram, String), Failure> {
    start("Corelane's name server", &["naming", place, durability], placement)
}

/// Starts a program with an event channel. The program answers any input line with the number of
/// queued event sets.
pub(crate) fn start_event_channel(
    address: &str,
    lanes: &str,
    patience: &str,
    destination: &str,
    placement: &Placement,
) -> Result<(RunningProgram, String), Failure> {
    start("Corelane's event channel", &["event-channel", address, lanes, patience, destination], placement)
}

/// Starts a durable channel whose store is a file.
pub(crate) fn start_durable_channel(
    address: &str,
    file: &str,
    placement: &Placement,
) -> Result<(RunningProgram, String), Failure> {
    start("Corelane's durable channel", &["durable-channel", address, file], placement)
}

pub(crate) fn start_event_consumers(
    address: &str,
    service: &str,
    count: usize,
    arrivals: &str,
    delay: Duration,
    placement: &Placement,
) -> Result<(RunningProgram, String), Failure> {
    let (count, delay) = (count.to_string(), delay.as_micros().to_string());
    start("Corelane's consumers", &["event-consumers", address, service, &count, arrivals, &delay], placement)
}

/// Starts a relay, which sends each message that it gets to all `connections` connections of a
/// [sink](start_sink).
pub(crate) fn start_relay(
    transport: BaselineTransport,
    target: &str,
    octets: usize,
    connections: usize,
    placement: &Placement,
) -> Result<(RunningProgram, String), Failure> {
    let words = ["relay", transport.name(), target, &octets.to_string(), &connections.to_string()];
    start("the floor's relay", &words, placement)
}

/// Starts a sink, which reports the last of each `connections` messages.
pub(crate) fn start_sink(
    transport: BaselineTransport,
    connections: usize,
    arrivals: &str,
    placement: &Placement,
) -> Result<(RunningProgram, String), Failure> {
    start("the floor's sink", &["sink", transport.name(), &connections.to_string(), arrivals], placement)
}

pub(crate) fn start(name: &str, words: &[&str], placement: &Placement) -> Result<(RunningProgram, String), Failure> {
    RunningProgram::start(name, ourselves(words)?, placement, Side::Server)
}

/// Starts this program in a new network namespace, whose interfaces it sees below /sys.
pub(crate) fn start_in_namespace(name: &str, words: &[&str], placement: &Placement) -> Result<RunningProgram, Failure> {
    // A mounted sysfs shows the interfaces of the network namespace in which it was mounted, so the
    // script mounts it again.
    const SCRIPT: &str = "mount -t sysfs sysfs /sys && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--propagation", "private", "--", "sh", "-c", SCRIPT]);
    let program = ourselves(words)?;
    command.arg(program.get_program()).args(program.get_args());
    Ok(RunningProgram::start(name, command, placement, Side::Server)?.0)
}

fn ourselves(words: &[&str]) -> Result<Command, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::new(format!("the path of this program is unknown: {error}")))?;
    let mut command = Command::new(own);
    command.arg(HIDDEN_MODE).args(words);
    Ok(command)
}
