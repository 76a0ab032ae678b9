//! The memory of ten thousand idle connections, and a call beside them.

use std::process::{Command, Stdio};
use std::time::Duration;

use corelane::{Dispatch, Endpoint};
use corelane_tests::{client, serve};

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn ten_thousand_idle_connections_are_held() {
    let server = serve(Dispatch::LeaderFollowers { threads: 2 });
    let (_orb, probe) = client(&server.ior);
    assert_eq!(probe.cube_octet(2).unwrap(), 8);
    let wanted = 10_000u64;
    let most = corelane_sys::process::raise_descriptor_limit(wanted + 1000).unwrap();
    assert!(most >= wanted + 1000, "the limit of open descriptors is {most}: this test needs 11,000 (ulimit -n)");
    let Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let before = resident();
    // The peers are in a second process, because the limit of descriptors applies to each process.
    let mut peer = Command::new(env!("CARGO_BIN_EXE_idle-peer"))
        .args([port.to_string(), wanted.to_string()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    while server.orb.event_counts().connections_opened < wanted + 1 {
        assert!(peer.try_wait().unwrap().is_none(), "the peer could not connect");
        std::thread::sleep(Duration::from_millis(1));
    }
    let each = resident().saturating_sub(before) * 1024 / wanted;
    assert!(each <= 2048, "{each} octets for an idle connection");
    assert_eq!(probe.cube_octet(3).unwrap(), 27);
    drop(peer.stdin.take());
    assert!(peer.wait().unwrap().success());
    while server.orb.event_counts().connections_closed < wanted {
        std::thread::sleep(Duration::from_millis(1));
    }
}
