//! Functions that several call benchmarks share: message sizes, numbers of calls, idle connections.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use corelane::Orb;
use corelane_sys::clock;
use corelane_sys::socket::{self, Address, SocketOptions};

use crate::Failure;
use crate::address::LOOPBACK;
use crate::baseline::MessageSizes;
use crate::harness::{ComparedQuantity, RunLength};
use crate::launch::start_echo;
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client::object;
use crate::orb::{ServerArchitecture, relay};

const BUDGET: usize = 64 << 20;
const FEWEST: usize = 5;

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn compared_quantity(operation: MeasuredOperation) -> ComparedQuantity {
    if operation.is_oneway() { ComparedQuantity::Rate } else { ComparedQuantity::Median }
}

/// Measures the sizes of the operation's messages with a relay over TCP. The sizes do not depend on
/// the transport.
pub(crate) fn message_sizes(
    orb: &Orb,
    operation: MeasuredOperation,
    options: &BenchOptions,
) -> Result<MessageSizes, Failure> {
    let (_server, reference) = start_echo(ServerArchitecture::PerConnection, LOOPBACK, &options.placement)?;
    relay::measure_message_sizes(orb, &object(orb, &reference)?, operation)
}

pub(crate) fn run_length(asked: RunLength, sizes: MessageSizes) -> RunLength {
    let most = (BUDGET / (sizes.request + sizes.reply)).max(FEWEST);
    RunLength { warm_up: asked.warm_up.min(most / 2), count: asked.count.min(most), ..asked }
}

pub(crate) fn open_idle_connections(address: SocketAddr, count: usize, server: u32) -> Result<Vec<OwnedFd>, Failure> {
    let deadline = clock::now() + PATIENCE;
    let descriptors = || std::fs::read_dir(format!("/proc/{server}/fd")).map_or(0, Iterator::count);
    let before = descriptors();
    let mut opened = Vec::with_capacity(count);
    for number in 0..count {
        let connected = socket::connect(&Address::Inet(address), &SocketOptions::default(), Some(deadline));
        opened.push(connected.map_err(|error| Failure::new(format!("connection {number} of {count}: {error}")))?);
    }
    while descriptors() < before + count {
        if deadline.is_past() {
            let accepted = descriptors().saturating_sub(before);
            return Err(Failure::new(format!("the server has accepted {accepted} of {count} connections")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_arguments_reduce_the_number_of_calls() {
        let asked = RunLength { warm_up: 1000, count: 10_000, repetitions: 3 };
        let small = run_length(asked, MessageSizes { request: 100, reply: 50 });
        assert_eq!(small, asked);
        let large = run_length(asked, MessageSizes { request: 16 << 20, reply: 16 << 20 });
        assert_eq!((large.warm_up, large.count, large.repetitions), (2, FEWEST, 3));
        let middle = run_length(asked, MessageSizes { request: 1 << 16, reply: 1 << 16 });
        assert_eq!((middle.warm_up, middle.count), (256, 512));
    }
}
