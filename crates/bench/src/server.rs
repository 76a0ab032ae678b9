//! The hidden mode of the program, in which it runs as a server or a client of a benchmark.
//!
//! A process prints `ready ...` when it is ready, and ends at the end of its standard input.

use std::ffi::OsString;
use std::time::Duration;

use crate::Failure;
use crate::baseline::{BaselineTransport, MessageSizes, StreamSpin, WaitStrategy, run_relay, run_server, run_sink};
use crate::guards::{events, naming};
use crate::orb::keys::KeyLifetime;
use crate::orb::{ServerArchitecture, caller, server};
use crate::papers::{cores, rio};
use crate::probed;

pub use crate::launch::HIDDEN_MODE;

/// Limit of open descriptors, enough for ten thousand connections.
const MOST_DESCRIPTORS: u64 = 12_000;

/// Runs the server or the client that the arguments after [`HIDDEN_MODE`] name, and returns the
/// exit status of the process.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let words: Vec<String> = arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // The result is ignored: if the limit remains too low, connections fail later.
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
        ["floor", transport, waiting] => run_server(parse_transport(transport)?, parse_wait_strategy(waiting)?),
        ["relay", transport, target, octets, connections] => {
            let octets = number(octets, MessageSizes::MAX)?;
            run_relay(parse_transport(transport)?, target, octets, number(connections, 1000)?)
        }
        ["sink", transport, connections, arrivals] => {
            run_sink(parse_transport(transport)?, number(connections, 1000)?, arrivals)
        }
        ["event-channel", address, lanes, patience, destination] => {
            events::programs::serve_channel(address, lanes, patience, destination)
        }
        ["durable-channel", address, file] => events::programs::serve_durable_channel(address, file),
        ["event-consumers", address, service, count, arrivals, delay_us] => {
            let consumers = events::programs::ConsumerProgram {
                address,
                service: events::programs::Service::from_name(service)?,
                count: number(count, 1000)?,
                arrivals,
                delay: Duration::from_micros(microseconds(delay_us)?),
            };
            consumers.serve()
        }
        ["echo", architecture, address] => server::serve_echo(ServerArchitecture::from_word(architecture)?, address),
        ["sleeping-echo", architecture, address] => {
            server::serve_non_polling_echo(ServerArchitecture::from_word(architecture)?, address)
        }
        ["declared", architecture] => server::serve_single_priority(ServerArchitecture::from_word(architecture)?),
        ["calls", reference] => caller::serve(reference),
        ["laned", priorities, address] => {
            let all: Result<Vec<u8>, _> = priorities.split(',').map(str::parse).collect();
            server::serve_lanes(
                &all.map_err(|_| Failure::new(format!("`{priorities}` is not a list of priorities")))?,
                address,
            )
        }
        ["banded", priorities] => {
            let all: Result<Vec<i16>, _> = priorities.split(',').map(str::parse).collect();
            server::serve_bands(&all.map_err(|_| Failure::new(format!("`{priorities}` is not a list of priorities")))?)
        }
        ["unlaned", priority] => {
            let priority = priority.parse();
            server::serve_without_lanes(priority.map_err(|_| Failure::new(format!("`{words:?}` has no priority")))?)
        }
        ["probed", architecture] => probed::serve(probed::ProbedServer::from_word(architecture)?),
        ["many", count, keys, architecture] => {
            let architecture = ServerArchitecture::from_word(architecture)?;
            server::serve_many_objects(number(count, 10_000_000)?, KeyLifetime::from_name(keys)?, architecture)
        }
        ["nested", depth, keys] => server::serve_nested_poa(number(depth, 1000)? - 1, KeyLifetime::from_name(keys)?),
        ["admission", cores, pool] => cores::server::serve_admission(cores, pool),
        ["core-pool", cores, tasks, mode] => cores::server::serve_core_pool(cores, number(tasks, 1000)?, mode),
        ["rio-receiver", core] => rio::receiver::serve(index(core)?),
        ["rio-sender", core] => rio::sender::serve(index(core)?),
        ["naming", place, durability] => naming::serve(place, durability),
        ["operations", count] => server::serve_operations(number(count, 1000)?),
        _ => Err(Failure::new(format!("this mode is for `corelane bench` itself; it does not know {words:?}"))),
    }
}

fn number(text: &str, most: usize) -> Result<usize, Failure> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| Failure::new(format!("`{text}` is not a number from 1 to {most}")))
}

fn microseconds(text: &str) -> Result<u64, Failure> {
    text.parse().map_err(|_| Failure::new(format!("`{text}` is not a number of microseconds")))
}

fn index(text: &str) -> Result<usize, Failure> {
    text.parse().map_err(|_| Failure::new(format!("`{text}` is not the number of a core")))
}

fn parse_transport(text: &str) -> Result<BaselineTransport, Failure> {
    BaselineTransport::from_name(text).ok_or_else(|| Failure::new(format!("there is no transport `{text}`")))
}

fn parse_wait_strategy(text: &str) -> Result<WaitStrategy, Failure> {
    match text {
        "blocking" => return Ok(WaitStrategy::Blocking),
        "looking" => return Ok(WaitStrategy::SpinThenSleep),
        "parts" => return Ok(WaitStrategy::Pipelined),
        "stream" => return Ok(WaitStrategy::Stream(StreamSpin::Never)),
        "spinning-stream" => return Ok(WaitStrategy::Stream(StreamSpin::Adaptive)),
        _ => {}
    }
    let threads =
        text.strip_prefix("epoll:").and_then(|number| number.parse().ok()).filter(|&n| (1..=256).contains(&n));
    threads.map(WaitStrategy::Epoll).ok_or_else(|| Failure::new(format!("there is no wait strategy `{text}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_a_server_are_parsed() {
        assert_eq!(parse_wait_strategy("blocking").unwrap(), WaitStrategy::Blocking);
        assert_eq!(parse_wait_strategy("epoll:3").unwrap(), WaitStrategy::Epoll(3));
        assert!(
            parse_wait_strategy("epoll:0").is_err()
                && parse_wait_strategy("epoll:").is_err()
                && parse_wait_strategy("").is_err()
        );
        assert_eq!(parse_wait_strategy("looking").unwrap(), WaitStrategy::SpinThenSleep);
        assert_eq!(parse_wait_strategy("spinning-stream").unwrap(), WaitStrategy::Stream(StreamSpin::Adaptive));
        assert_eq!(parse_transport("unix").unwrap(), BaselineTransport::Unix);
        assert_eq!(parse_transport("shm").unwrap(), BaselineTransport::SharedMemory);
        assert_eq!(run([OsString::from("what")]), 1);
    }
}
