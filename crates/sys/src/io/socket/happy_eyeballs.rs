//! Connecting to the first of several TCP addresses that answers (RFC 8305, section 5).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::address::{Address, RawAddress};
use super::{SocketOptions, create, set_nonblocking, take_error};
use crate::clock::{self, Monotonic};
use crate::{poll, syscall};

const MAX_ATTEMPTS: usize = 8;

/// Connects to the first of `addresses` that answers before `deadline` (`None`: no deadline).
/// Returns the connection and its address.
///
/// The next attempt begins when an attempt fails, or when no attempt gets an answer for the time
/// `stagger`. At most eight attempts run at a time.
///
/// # Errors
/// `TimedOut` after the deadline, otherwise the error of the attempt that failed last;
/// `InvalidInput` if `addresses` is empty.
pub fn connect_any(
    addresses: &[SocketAddr],
    options: &SocketOptions,
    stagger: Duration,
    deadline: Option<Monotonic>,
) -> io::Result<(OwnedFd, SocketAddr)> {
    let mut failure = io::Error::from(io::ErrorKind::InvalidInput);
    let mut left = addresses.iter();
    let mut attempts: Vec<(OwnedFd, SocketAddr)> = Vec::new();
    loop {
        if attempts.len() < MAX_ATTEMPTS
            && let Some(address) = left.next()
        {
            match start_connect(address, options) {
                Ok(fd) => attempts.push((fd, *address)),
                Err(error) => {
                    failure = error;
                    continue;
                }
            }
        }
        if attempts.is_empty() {
            return Err(failure);
        }
        let has_next = !left.as_slice().is_empty() && attempts.len() < MAX_ATTEMPTS;
        let turn = has_next.then(|| clock::now() + stagger);
        let until = match (turn, deadline) {
            (Some(turn), Some(deadline)) => Some(turn.min(deadline)),
            (turn, deadline) => turn.or(deadline),
        };
        let fds: Vec<BorrowedFd<'_>> = attempts.iter().map(|(fd, _)| fd.as_fd()).collect();
        let Some(index) = poll::wait_writable_any(&fds, until)? else {
            if deadline.is_some_and(Monotonic::is_past) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            continue;
        };
        let (fd, address) = attempts.remove(index);
        match take_error(fd.as_fd())? {
            Some(error) => failure = error,
            None => {
                set_nonblocking(fd.as_fd(), false)?;
                return Ok((fd, address));
            }
        }
    }
}

fn start_connect(address: &SocketAddr, options: &SocketOptions) -> io::Result<OwnedFd> {
    let address = Address::Inet(*address);
    let raw = RawAddress::from_address(&address)?;
    let fd = create(raw.family(), libc::SOCK_NONBLOCK)?;
    options.apply(fd.as_fd(), &address, false)?;
    let (pointer, length) = raw.as_ptr();
    // SAFETY: `pointer` and `length` describe the live address in `raw`.
    match syscall::once(|| unsafe { libc::connect(fd.as_raw_fd(), pointer, length) }) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(fd),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::listen;
    use super::*;

    struct Silent {
        address: SocketAddr,
        _held: (OwnedFd, Vec<OwnedFd>),
    }

    fn silent() -> Silent {
        let listener = listen(&Address::Inet("127.0.0.1:0".parse().unwrap()), &SocketOptions::default(), 0).unwrap();
        let address = super::super::local_address(listener.as_fd()).unwrap().as_inet().copied().unwrap();
        let mut held = Vec::new();
        loop {
            assert!(held.len() < 64, "expected that 64 connections fill the backlog");
            let fd = start_connect(&address, &SocketOptions::default()).unwrap();
            let soon = clock::now() + Duration::from_millis(300);
            let is_answered = poll::wait_writable(fd.as_fd(), Some(soon)).unwrap();
            held.push(fd);
            if !is_answered {
                return Silent { address, _held: (listener, held) };
            }
        }
    }

    /// Returns an address without a listener. No other test uses its host, so no other socket gets
    /// its port.
    fn shut() -> SocketAddr {
        TcpListener::bind("127.0.53.1:0").unwrap().local_addr().unwrap()
    }

    fn in_a_minute() -> Option<Monotonic> {
        Some(clock::now() + Duration::from_secs(60))
    }

    const STAGGER: Duration = Duration::from_millis(20);

    #[test]
    fn silent_or_refusing_address_does_not_block_the_others() {
        let silent = silent();
        let live = TcpListener::bind("127.0.0.1:0").unwrap();
        let shut = shut();
        let live = live.local_addr().unwrap();
        for addresses in [&[silent.address, live][..], &[shut, live], &[silent.address, shut, live], &[live]] {
            for deadline in [None, in_a_minute()] {
                let (fd, address) = connect_any(addresses, &SocketOptions::default(), STAGGER, deadline).unwrap();
                assert_eq!(address, live);
                assert_eq!(super::super::peer_address(fd.as_fd()).unwrap().as_inet().copied(), Some(live));
            }
        }
    }

    #[test]
    fn slow_attempt_continues_beside_later_ones() {
        let (first, silent) = (silent(), silent());
        let accept =
            |silent: &Silent| drop(super::super::accept(silent._held.0.as_fd(), super::super::WaitMode::Block));
        std::thread::scope(|scope| {
            let racing = scope.spawn(|| {
                connect_any(&[first.address, silent.address], &SocketOptions::default(), STAGGER, in_a_minute())
                    .map(|made| made.1)
            });
            std::thread::sleep(4 * STAGGER);
            for _ in 0..first._held.1.len() {
                accept(&first);
            }
            assert_eq!(racing.join().unwrap().unwrap(), first.address);
        });
    }

    #[test]
    fn deadline_is_kept_and_failures_are_reported() {
        let silent = silent();
        let soon = Some(clock::now() + Duration::from_millis(50));
        let late = connect_any(&[silent.address], &SocketOptions::default(), STAGGER, soon).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        let shut = shut();
        let refused = connect_any(&[shut, shut], &SocketOptions::default(), STAGGER, in_a_minute()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert!(connect_any(&[], &SocketOptions::default(), STAGGER, None).is_err());
    }
}
