//! Measurement of message sizes by a relay that counts the bytes between client and server.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corelane::{ObjectRef, Orb};
use corelane_sys::clock;
use corelane_sys::epoll::{Epoll, EpollEvent, Interest};
use corelane_sys::socket::{self, Address, SocketOptions, WaitMode};
use corelane_sys::thread::ThreadBuilder;
use corelane_wire::ior::{ProfileEndpoint, escape_key};

use super::client::{target, two_way};
use crate::Failure;
use crate::baseline::MessageSizes;
use crate::operation::MeasuredOperation;
use crate::sample::Samples;

const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct RelayedBytes {
    requests: AtomicUsize,
    replies: AtomicUsize,
}

impl RelayedBytes {
    /// Returns the number of bytes that clients have sent.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Acquire)
    }
}

/// Returns the sizes of the operation's messages in calls after the first.
pub(crate) fn measure_message_sizes(
    orb: &Orb,
    reference: &ObjectRef,
    operation: MeasuredOperation,
) -> Result<MessageSizes, Failure> {
    let counts = Arc::new(RelayedBytes::default());
    let target = target(orb, &relayed(reference, &counts)?)?;
    let mut samples = Samples::with_capacity(4);
    let read = || (counts.requests.load(Ordering::Acquire), counts.replies.load(Ordering::Acquire));
    // The first call may have service contexts that later calls lack, so the sizes are those of
    // later calls.
    two_way(&target, MeasuredOperation::EmptyCall, 2, &mut samples)?;
    let before = read();
    two_way(&target, MeasuredOperation::EmptyCall, 1, &mut samples)?;
    let nothing = read();
    if operation.is_oneway() {
        target.take_octet(7)?;
        two_way(&target, MeasuredOperation::EmptyCall, 1, &mut samples)?;
        let after = read();
        return Ok(MessageSizes { request: after.0 - nothing.0 - (nothing.0 - before.0), reply: 0 });
    }
    two_way(&target, operation, 1, &mut samples)?;
    let once = read();
    two_way(&target, operation, 2, &mut samples)?;
    let twice = read();
    Ok(MessageSizes {
        request: (twice.0 - once.0) - (once.0 - nothing.0),
        reply: (twice.1 - once.1) - (once.1 - nothing.1),
    })
}

/// Starts a relay to an object for one connection, and returns a reference to the object that leads
/// through the relay.
pub(crate) fn relayed(reference: &ObjectRef, counts: &Arc<RelayedBytes>) -> Result<String, Failure> {
    let key = reference.ior().known_profiles().next().map(|profile| escape_key(profile.object_key));
    let key = key.ok_or_else(|| Failure::new("the reference has no profile"))?;
    let server = tcp_address(reference)?;
    let port = start(server, Arc::clone(counts)).map_err(|error| Failure::new(format!("the relay: {error}")))?;
    Ok(format!("corbaloc:iiop:1.2@127.0.0.1:{port}/{key}"))
}

pub(crate) fn tcp_address(reference: &ObjectRef) -> Result<SocketAddr, Failure> {
    let endpoints = reference.ior().known_profiles().flat_map(|profile| profile.endpoints()).collect::<Vec<_>>();
    let address = endpoints.into_iter().find_map(|endpoint| match endpoint {
        ProfileEndpoint::Inet { host, port } => Some(SocketAddr::new(host.parse().ok()?, port)),
        _ => None,
    });
    address.ok_or_else(|| Failure::new("the reference has no TCP address"))
}

fn start(server: SocketAddr, counts: Arc<RelayedBytes>) -> std::io::Result<u16> {
    let here = Address::Inet(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let listener = socket::listen(&here, &SocketOptions::default(), 1)?;
    let port = socket::local_address(listener.as_fd())?.as_inet().map_or(0, SocketAddr::port);
    ThreadBuilder::new().name("bench/relay").spawn(move || {
        let _ = relay(&listener, server, &counts);
    })?;
    Ok(port)
}

fn relay(listener: &OwnedFd, server: SocketAddr, counts: &RelayedBytes) -> std::io::Result<()> {
    let deadline = clock::now() + PATIENCE;
    if !corelane_sys::poll::wait_readable(listener.as_fd(), Some(deadline))? {
        return Ok(());
    }
    let (client, _) = socket::accept(listener.as_fd(), WaitMode::Now)?;
    let server = socket::connect(&Address::Inet(server), &SocketOptions::default(), Some(deadline))?;
    let epoll = Epoll::new()?;
    epoll.add(client.as_fd(), 0, Interest::READABLE)?;
    epoll.add(server.as_fd(), 1, Interest::READABLE)?;
    let mut events = [EpollEvent::EMPTY; 2];
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let ready = epoll.wait(&mut events, Some(PATIENCE))?;
        if ready == 0 {
            return Ok(());
        }
        for event in &events[..ready] {
            let (from, to, count) = match event.token() {
                0 => (client.as_fd(), server.as_fd(), &counts.requests),
                _ => (server.as_fd(), client.as_fd(), &counts.replies),
            };
            if !pass(from, to, &mut buffer, count)? {
                return Ok(());
            }
        }
    }
}

/// Reads once from `from` and sends the bytes to `to`. Counts them before it sends them, so that
/// the receiver sees the new count. Returns false at the end of `from`.
fn pass(from: BorrowedFd<'_>, to: BorrowedFd<'_>, buffer: &mut [u8], count: &AtomicUsize) -> std::io::Result<bool> {
    let read = socket::recv(from, buffer, WaitMode::Block)?;
    count.fetch_add(read, Ordering::Release);
    let mut sent = 0;
    while sent < read {
        sent += socket::send(to, &buffer[sent..read], WaitMode::Block)?;
    }
    Ok(read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::LOOPBACK;
    use crate::orb::ServerArchitecture;
    use crate::orb::generated::cubit::CountedTarget;
    use crate::orb::servant::Echo;
    use crate::orb::server::start_orb;

    #[test]
    fn relayed_messages_have_the_sizes_of_giop() {
        let server = start_orb(ServerArchitecture::PerConnection, LOOPBACK).unwrap();
        let poa = server.root_poa();
        let id = poa.activate_object(&CountedTarget::servant(Echo)).unwrap();
        poa.manager().activate().unwrap();
        let text = poa.id_to_reference(&id).unwrap().to_string();
        let client = Orb::new().unwrap();
        let reference = super::super::client::object(&client, &text).unwrap();
        let key = reference.ior().known_profiles().next().unwrap().object_key.len();
        let single = ["nothing", "octet", "short", "long", "struct", "oneway"];
        for name in single.into_iter().chain(["longs4", "structs3", "octets100", "take_longs4", "take_octets100"]) {
            let operation = MeasuredOperation::from_name(name).unwrap();
            assert_eq!(measure_message_sizes(&client, &reference, operation).unwrap(), operation.sizes(key), "{name}");
        }
    }
}
