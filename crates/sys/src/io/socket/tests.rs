use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::{clock, counters};

fn inet(text: &str) -> Address {
    Address::Inet(text.parse::<SocketAddr>().unwrap())
}

fn connected(address: &Address) -> (OwnedFd, OwnedFd) {
    let options = SocketOptions::default();
    let listener = listen(address, &options, DEFAULT_BACKLOG).unwrap();
    let bound = local_address(listener.as_fd()).unwrap();
    let deadline = Some(clock::now() + Duration::from_secs(5));
    let client = connect(&bound, &options, deadline).unwrap();
    let (server, peer) = accept(listener.as_fd(), WaitMode::Block).unwrap();
    assert_eq!(peer, local_address(client.as_fd()).unwrap());
    assert_eq!(peer_address(client.as_fd()).unwrap(), bound);
    let none = accept(listener.as_fd(), WaitMode::Now).unwrap_err();
    assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
    (client, server)
}

fn exchange(client: &OwnedFd, server: &OwnedFd) {
    let (client, server) = (client.as_fd(), server.as_fd());
    let mut buffer = [0; 32];
    let nothing = recv(server, &mut buffer, WaitMode::Now).unwrap_err();
    assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);

    let before = counters::snapshot();
    let slices = [IoSlice::new(b"GIOP"), IoSlice::new(b""), IoSlice::new(b" message")];
    assert_eq!(send_vectored(client, &slices, WaitMode::Block).unwrap(), 12);
    assert_eq!((counters::snapshot() - before).syscalls, 1);
    assert_eq!(peek(server, &mut buffer, WaitMode::Block).unwrap(), 12);
    assert_eq!(unread_bytes(server).unwrap(), 12);
    assert_eq!(recv(server, &mut buffer, WaitMode::Block).unwrap(), 12);
    assert_eq!(&buffer[..12], b"GIOP message");

    assert_eq!(send_vectored(server, &[IoSlice::new(b"one")], WaitMode::Now).unwrap(), 3);
    assert_eq!(recv(client, &mut buffer, WaitMode::Block).unwrap(), 3);

    shutdown(client, ShutdownDirection::Write).unwrap();
    assert_eq!(recv(server, &mut buffer, WaitMode::Block).unwrap(), 0);
    assert_eq!(send(server, b"still", WaitMode::Block).unwrap(), 5);
    assert_eq!(recv(client, &mut buffer, WaitMode::Block).unwrap(), 5);
    let broken = send(client, b"x", WaitMode::Block).unwrap_err();
    assert_eq!(broken.kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn tcp_over_ipv4() {
    let (client, server) = connected(&inet("127.0.0.1:0"));
    assert!(nodelay(client.as_fd()).unwrap() && nodelay(server.as_fd()).unwrap());
    exchange(&client, &server);
}

#[test]
fn tcp_over_ipv6() {
    let address = inet("[::1]:0");
    match listen(&address, &SocketOptions::default(), 1) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => return,
        other => drop(other.unwrap()),
    }
    let (client, server) = connected(&address);
    exchange(&client, &server);
}

#[test]
fn unix_by_path_and_by_abstract_name() {
    let path = std::env::temp_dir().join(format!("corelane-sys-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let (client, server) = connected(&Address::Unix(path.clone()));
    let peer = peer_credentials(server.as_fd()).unwrap();
    assert_eq!(peer_user_id(server.as_fd()).unwrap(), peer.uid);
    assert_eq!(peer.pid, std::process::id());
    exchange(&client, &server);
    assert_eq!(peer_address(client.as_fd()).unwrap(), Address::Unix(path.clone()));
    std::fs::remove_file(&path).unwrap();

    let name = format!("corelane-sys-{}", std::process::id()).into_bytes();
    let (client, server) = connected(&Address::Abstract(name));
    assert_eq!(local_address(client.as_fd()).unwrap(), Address::Unnamed);
    exchange(&client, &server);
}

#[test]
fn too_long_names_are_refused() {
    for address in [
        Address::Unix("x".repeat(108).into()),
        Address::Unix("".into()),
        Address::Unix("a\0b".into()),
        Address::Unnamed,
    ] {
        let refused = connect(&address, &SocketOptions::default(), None).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{address}");
    }
}

#[test]
fn connect_reports_refusals_and_deadlines() {
    let listener = listen(&inet("127.0.0.1:0"), &SocketOptions::default(), 1).unwrap();
    let bound = local_address(listener.as_fd()).unwrap();
    drop(listener);
    let refused = connect(&bound, &SocketOptions::default(), None).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);

    for address in
        [inet("127.0.0.1:0"), Address::Abstract(format!("corelane-full-{}", std::process::id()).into_bytes())]
    {
        let listener = listen(&address, &SocketOptions::default(), 0).unwrap();
        let bound = local_address(listener.as_fd()).unwrap();
        let mut open = Vec::new();
        let start = clock::now();
        let error = loop {
            let deadline = Some(clock::now() + Duration::from_millis(60));
            match connect(&bound, &SocketOptions::default(), deadline) {
                Ok(fd) => open.push(fd),
                Err(error) => break error,
            }
            assert!(open.len() < 16);
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{address}");
        assert!(start.elapsed() >= Duration::from_millis(59), "{address}: {:?}", start.elapsed());
    }
}

#[test]
fn receive_timeout_is_would_block() {
    let (near, _far) = pair().unwrap();
    set_receive_timeout(near.as_fd(), Some(Duration::from_millis(2))).unwrap();
    let start = clock::now();
    let late = recv(near.as_fd(), &mut [0], WaitMode::Block).unwrap_err();
    assert_eq!(late.kind(), io::ErrorKind::WouldBlock);
    assert!(start.elapsed() >= Duration::from_millis(1));
}

#[test]
fn options_reach_the_kernel() {
    let options = SocketOptions {
        keepalive: Some(KeepAlive { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 4 }),
        send_buffer: Some(64 * 1024),
        receive_buffer: Some(32 * 1024),
        dscp: Some(46),
        reuse_port: true,
        ..SocketOptions::default()
    };
    let listener = listen(&inet("127.0.0.1:0"), &options, 8).unwrap();
    assert_eq!(send_buffer_size(listener.as_fd()).unwrap(), 128 * 1024);
    assert_eq!(receive_buffer_size(listener.as_fd()).unwrap(), 64 * 1024);
    set_dscp(listener.as_fd(), 10).unwrap();
    let wrong = set_dscp(listener.as_fd(), 64).unwrap_err();
    assert_eq!(wrong.kind(), io::ErrorKind::InvalidInput);
    assert!(take_error(listener.as_fd()).unwrap().is_none());
    peer_credentials(listener.as_fd()).unwrap_err();
    peer_user_id(listener.as_fd()).unwrap_err();
}

#[test]
fn partial_write_returns_the_written_length() {
    let (near, far) = connected(&inet("127.0.0.1:0"));
    let block = vec![7u8; 1 << 20];
    let mut written = 0;
    loop {
        match send(near.as_fd(), &block, WaitMode::Now) {
            Ok(count) => written += count,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                break;
            }
        }
    }
    drop(near);
    let (mut read, mut buffer) = (0, vec![0u8; 1 << 16]);
    while let count @ 1.. = recv(far.as_fd(), &mut buffer, WaitMode::Block).unwrap() {
        read += count;
    }
    assert_eq!(read, written);
}

#[test]
fn one_descriptor_is_passed_and_a_second_one_is_closed() {
    let (near, far) = pair().unwrap();
    let (inner, other) = pair().unwrap();
    assert_eq!(send_with_descriptor(near.as_fd(), b"here", inner.as_fd(), WaitMode::Now).unwrap(), 4);
    let mut buffer = [0; 9];
    let (count, passed) = recv_with_descriptor(far.as_fd(), &mut buffer, WaitMode::Now).unwrap();
    assert_eq!(&buffer[..count], b"here");
    send(passed.unwrap().as_fd(), b"x", WaitMode::Now).unwrap();
    assert_eq!(recv(other.as_fd(), &mut buffer, WaitMode::Now).unwrap(), 1);
    send(near.as_fd(), b"bare", WaitMode::Now).unwrap();
    assert!(matches!(recv_with_descriptor(far.as_fd(), &mut buffer, WaitMode::Now), Ok((4, None))));
}

#[test]
fn incoming_core_is_known_for_packets_only() {
    let (client, server) = connected(&inet("127.0.0.1:0"));
    send(client.as_fd(), b"x", WaitMode::Block).unwrap();
    recv(server.as_fd(), &mut [0; 8], WaitMode::Block).unwrap();
    assert!(incoming_core(server.as_fd()).unwrap().is_some());
    let (near, far) = pair().unwrap();
    send(near.as_fd(), b"x", WaitMode::Block).unwrap();
    assert_eq!(incoming_core(far.as_fd()).unwrap(), None);
}

#[test]
fn busy_poll_is_set_where_permitted() {
    let (client, _server) = connected(&inet("127.0.0.1:0"));
    let before = busy_poll(client.as_fd()).unwrap();
    let wanted = before + Duration::from_micros(30);
    match set_busy_poll(client.as_fd(), wanted) {
        Ok(()) => assert_eq!(busy_poll(client.as_fd()).unwrap(), wanted),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
    }
    set_busy_poll(client.as_fd(), before).unwrap();
    assert_eq!(busy_poll(client.as_fd()).unwrap(), before);
}

#[test]
fn unread_bytes_are_reported_again() {
    use crate::epoll::{Epoll, EpollEvent, Interest};
    let (client, server) = connected(&inet("127.0.0.1:0"));
    let epoll = Epoll::new().unwrap();
    epoll.add(server.as_fd(), 7, Interest::READABLE | Interest::EDGE).unwrap();
    let reported = || epoll.wait(&mut [EpollEvent::EMPTY; 1], Some(Duration::ZERO)).unwrap();
    report_unread_bytes_again(server.as_fd()).unwrap();
    assert_eq!(reported(), 0);
    send(client.as_fd(), b"bytes", WaitMode::Block).unwrap();
    poll::wait_readable(server.as_fd(), None).unwrap();
    assert_eq!((reported(), reported()), (1, 0));
    report_unread_bytes_again(server.as_fd()).unwrap();
    assert_eq!((reported(), reported()), (1, 0));
    recv(server.as_fd(), &mut [0; 8], WaitMode::Now).unwrap();
    report_unread_bytes_again(server.as_fd()).unwrap();
    assert_eq!(reported(), 0);
    shutdown(client.as_fd(), ShutdownDirection::Write).unwrap();
    poll::wait_readable(server.as_fd(), None).unwrap();
    assert_eq!(reported(), 1);
    report_unread_bytes_again(server.as_fd()).unwrap();
    assert_eq!(reported(), 1);
}

#[test]
fn output_options_are_set() {
    let (client, _server) = connected(&inet("127.0.0.1:0"));
    let fd = client.as_fd();
    set_priority(fd, 6).unwrap();
    set_max_pacing_rate(fd, 1_000_000).unwrap();
    set_max_unsent_bytes(fd, 16_384).unwrap();
    set_incoming_core(fd, 0).unwrap();
    assert_eq!(
        (priority(fd).unwrap(), max_pacing_rate(fd).unwrap(), max_unsent_bytes(fd).unwrap()),
        (6, 1_000_000, 16_384)
    );
    assert_eq!(incoming_core(fd).unwrap(), Some(0));
}
