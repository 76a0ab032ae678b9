//! How large the messages of a call are in truth: a relay between client and server counts octets in both directions.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corelane::{ObjectRef, Orb};
use corelane_sys::clock;
use corelane_sys::epoll::{Epoll, Event, Interest};
use corelane_sys::socket::{self, Address, Options, Wait};
use corelane_sys::thread::Builder;
use corelane_wire::ior::{Endpoint, escape_key};

use super::client::{target, two_way};
use crate::Failure;
use crate::floor::Sizes;
use crate::operation::Operation;
use crate::sample::Samples;

/// A relay that hears nothing for so long ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// Octets that went through.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicUsize,
    replies: AtomicUsize,
}

/// The message sizes of steady calls of `operation` on the object that `reference` names, which is served over TCP.
pub(crate) fn sizes(orb: &Orb, reference: &ObjectRef, operation: Operation) -> Result<Sizes, Failure> {
    let counts = Arc::new(Counts::default());
    let text = {
        let key = reference.ior().known_profiles().next().map(|profile| escape_key(profile.object_key));
        let key = key.ok_or_else(|| Failure::new("the reference has no profile"))?;
        let server = address_in(reference)?;
        let port = start(server, counts.clone()).map_err(|error| Failure::new(format!("the relay: {error}")))?;
        format!("corbaloc:iiop:1.2@127.0.0.1:{port}/{key}")
    };
    let target = target(orb, &text)?;
    let mut samples = Samples::with_room(4);
    let read = || (counts.requests.load(Ordering::Acquire), counts.replies.load(Ordering::Acquire));
    // The first call may carry what only first calls carry.
    two_way(&target, Operation::Nothing, 2, &mut samples)?;
    let before = read();
    two_way(&target, Operation::Nothing, 1, &mut samples)?;
    let nothing = read();
    if operation.is_oneway() {
        target.take_octet(7)?;
        two_way(&target, Operation::Nothing, 1, &mut samples)?;
        let after = read();
        return Ok(Sizes { request: after.0 - nothing.0 - (nothing.0 - before.0), reply: 0 });
    }
    // There may be a call besides those that are asked for, whose answer is verified.
    two_way(&target, operation, 1, &mut samples)?;
    let once = read();
    two_way(&target, operation, 2, &mut samples)?;
    let twice = read();
    Ok(Sizes { request: (twice.0 - once.0) - (once.0 - nothing.0), reply: (twice.1 - once.1) - (once.1 - nothing.1) })
}

/// Where the object of a reference is served over TCP.
pub(crate) fn address_in(reference: &ObjectRef) -> Result<SocketAddr, Failure> {
    let endpoints = reference.ior().known_profiles().flat_map(|profile| profile.endpoints()).collect::<Vec<_>>();
    let address = endpoints.into_iter().find_map(|endpoint| match endpoint {
        Endpoint::Inet { host, port } => Some(SocketAddr::new(host.parse().ok()?, port)),
        Endpoint::Unix { .. } | Endpoint::SharedMemory { .. } => None,
    });
    address.ok_or_else(|| Failure::new("the reference has no TCP address"))
}

/// Relays one connection to `server` on a thread of its own; answers the port to connect to.
fn start(server: SocketAddr, counts: Arc<Counts>) -> std::io::Result<u16> {
    let here = Address::Inet(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let listener = socket::listen(&here, &Options::default(), 1)?;
    let port = socket::local_address(listener.as_fd())?.as_inet().map_or(0, SocketAddr::port);
    Builder::new().name("bench/relay").spawn(move || {
        // A failure ends the connection, which fails the call that is being looked at.
        let _ = relay(&listener, server, &counts);
    })?;
    Ok(port)
}

fn relay(listener: &OwnedFd, server: SocketAddr, counts: &Counts) -> std::io::Result<()> {
    let deadline = clock::now() + PATIENCE;
    if !corelane_sys::poll::wait_readable(listener.as_fd(), Some(deadline))? {
        return Ok(());
    }
    let (client, _) = socket::accept(listener.as_fd(), Wait::Now)?;
    let server = socket::connect(&Address::Inet(server), &Options::default(), Some(deadline))?;
    let epoll = Epoll::new()?;
    epoll.add(client.as_fd(), 0, Interest::READABLE)?;
    epoll.add(server.as_fd(), 1, Interest::READABLE)?;
    let mut events = [Event::EMPTY; 2];
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

/// Passes on what is there; false at the end of the stream. Counted first: whoever receives it sees the count.
fn pass(from: BorrowedFd<'_>, to: BorrowedFd<'_>, buffer: &mut [u8], count: &AtomicUsize) -> std::io::Result<bool> {
    let read = socket::recv(from, buffer, Wait::Block)?;
    count.fetch_add(read, Ordering::Release);
    let mut sent = 0;
    while sent < read {
        sent += socket::send(to, &buffer[sent..read], Wait::Block)?;
    }
    Ok(read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orb::Architecture;
    use crate::orb::generated::cubit::CountedTarget;
    use crate::orb::servant::Echo;
    use crate::orb::server::{LOOPBACK, start as start_orb};

    #[test]
    fn what_the_relay_sees_is_what_the_format_says() {
        let server = start_orb(Architecture::PerConnection, LOOPBACK).unwrap();
        let poa = server.root_poa();
        let id = poa.activate_object(&CountedTarget::servant(Echo)).unwrap();
        poa.manager().activate().unwrap();
        let text = poa.id_to_reference(&id).unwrap().to_string();
        let client = Orb::new().unwrap();
        let reference = super::super::client::object(&client, &text).unwrap();
        let key = reference.ior().known_profiles().next().unwrap().object_key.len();
        let single = ["nothing", "octet", "short", "long", "struct", "oneway"];
        for name in single.into_iter().chain(["longs4", "structs3", "octets100", "take_longs4", "take_octets100"]) {
            let operation = Operation::from_name(name).unwrap();
            assert_eq!(sizes(&client, &reference, operation).unwrap(), operation.sizes(key), "{name}");
        }
    }
}
