//! The hidden mode of the program, in which it runs as a server or a client of a benchmark.
//!
//! `launch` starts these processes. A server prints `ready ...` when it accepts calls, and ends at
//! the end of its standard input.

use std::ffi::OsString;

use crate::Failure;
use crate::baseline::{BaselineTransport, Spinning, StreamSpin, run_server};
use crate::guards::naming;
use crate::orb::keys::Keys;
use crate::orb::{ServerArchitecture, caller, server};
use crate::probed;

pub use crate::launch::MODE;

/// Limit on open descriptors, enough for ten thousand connections.
const MOST_DESCRIPTORS: u64 = 12_000;

/// Runs the server that the arguments after [`MODE`] name. Returns the exit status of the process.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let words: Vec<String> = arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // Ignore errors: with a limit that is too low, connecting fails later.
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
        ["echo", architecture, address] => server::echo(ServerArchitecture::from_word(architecture)?, address),
        ["sleeping-echo", architecture, address] => {
            server::sleeping_echo(ServerArchitecture::from_word(architecture)?, address)
        }
        ["declared", architecture] => server::declared(ServerArchitecture::from_word(architecture)?),
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
        ["probed", architecture] => probed::serve(probed::ProbedServer::from_word(architecture)?),
        ["many", count, keys, architecture] => {
            let architecture = ServerArchitecture::from_word(architecture)?;
            server::many(number(count, 10_000_000)?, Keys::from_name(keys)?, architecture)
        }
        ["nested", depth, keys] => server::nested(number(depth, 1000)? - 1, Keys::from_name(keys)?),
        ["naming", place, durability] => naming::serve(place, durability),
        ["operations", count] => server::operations(number(count, 1000)?),
        _ => Err(Failure::new(format!("this mode is for `corelane bench` itself; it does not know {words:?}"))),
    }
}

fn number(text: &str, most: usize) -> Result<usize, Failure> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| Failure::new(format!("`{text}` is not a number from 1 to {most}")))
}

fn carrier_of(text: &str) -> Result<BaselineTransport, Failure> {
    BaselineTransport::from_name(text).ok_or_else(|| Failure::new(format!("there is no transport `{text}`")))
}

fn waiting_of(text: &str) -> Result<Spinning, Failure> {
    match text {
        "blocking" => return Ok(Spinning::Blocking),
        "looking" => return Ok(Spinning::Looking),
        "parts" => return Ok(Spinning::Parts),
        "stream" => return Ok(Spinning::Stream(StreamSpin::Never)),
        "spinning-stream" => return Ok(Spinning::Stream(StreamSpin::Adaptive)),
        _ => {}
    }
    let threads =
        text.strip_prefix("epoll:").and_then(|number| number.parse().ok()).filter(|&n| (1..=256).contains(&n));
    threads.map(Spinning::Epoll).ok_or_else(|| Failure::new(format!("there is no wait strategy `{text}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_a_server_are_parsed() {
        assert_eq!(waiting_of("blocking").unwrap(), Spinning::Blocking);
        assert_eq!(waiting_of("epoll:3").unwrap(), Spinning::Epoll(3));
        assert!(waiting_of("epoll:0").is_err() && waiting_of("epoll:").is_err() && waiting_of("").is_err());
        assert_eq!(waiting_of("looking").unwrap(), Spinning::Looking);
        assert_eq!(waiting_of("spinning-stream").unwrap(), Spinning::Stream(StreamSpin::Adaptive));
        assert_eq!(carrier_of("unix").unwrap(), BaselineTransport::Unix);
        assert_eq!(carrier_of("shm").unwrap(), BaselineTransport::SharedMemory);
        assert_eq!(run([OsString::from("what")]), 1);
    }
}
