//! Calls over several transports and address families, and the profile that a client chooses.

use std::sync::Arc;
use std::time::Duration;

use corelane::{Dispatch, Endpoint, Orb, PoolConfig, SystemExceptionKind, Version};
use corelane_net::mock::MockTransport;
use corelane_net::{Transport, Transports};
use corelane_tests::{EVERY_DISPATCH, ProbeRef, Server, client, serve_with};

fn check(server: &Server) {
    let (_orb, probe) = client(&server.ior);
    assert_eq!(probe.cube_octet(3).unwrap(), 27);
    assert_eq!(probe.echo("Grüße").unwrap(), "Grüße");
    let large = vec![0xa5; 3_000_000];
    assert_eq!(&*probe.mirror(&large).unwrap(), &large[..]);
    assert_eq!(probe.call_back(None, 0).unwrap(), 0);
}

#[test]
fn calls_work_over_ipv4_and_ipv6() {
    for address in ["tcp:127.0.0.1:0", "tcp:[::1]:0", "tcp:localhost:0"] {
        check(&serve_with(Orb::builder().listen(address)));
    }
}

#[test]
fn calls_work_over_unix_sockets_alone_and_beside_tcp() {
    let path = std::env::temp_dir().join(format!("corelane-test-{}", std::process::id()));
    let unix = format!("unix:{}", path.display());
    check(&serve_with(Orb::builder().listen(&unix)));
    assert!(!path.exists(), "the socket's file remains after its server");
    let both = serve_with(Orb::builder().listen("tcp:127.0.0.1:0").listen(&unix));
    check(&both);
    let Endpoint::Tcp { port, .. } = both.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let before = tcp_connections_to(port);
    let (_orb, probe) = client(&both.ior);
    probe.cube_octet(1).unwrap();
    assert_eq!(tcp_connections_to(port), before);
}

fn tcp_connections_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let remote = format!(":{port:04X} 01");
    table.lines().filter(|line| line.contains(&remote)).count()
}

#[test]
fn calls_work_in_every_giop_version_and_in_fragments() {
    for version in [Version::GIOP_1_0, Version::GIOP_1_1, Version::GIOP_1_2] {
        check_latin1(&serve_with(Orb::builder().giop_version(version).listen("tcp:127.0.0.1:0")));
    }
    for dispatch in EVERY_DISPATCH {
        let pool = PoolConfig::default().dispatch(dispatch);
        let server = serve_with(Orb::builder().max_fragment_size(1000).pool(pool).listen("tcp:127.0.0.1:0"));
        let orb = Orb::builder().max_fragment_size(256).build().unwrap();
        let probe: ProbeRef = orb.string_to_reference(&server.ior).unwrap();
        let large: Vec<u8> = (0..100_000u32).map(|index| index.to_le_bytes()[0]).collect();
        assert_eq!(&*probe.mirror(&large).unwrap(), &large[..]);
        let longs: Vec<i32> = (0..10_000).collect();
        assert_eq!(probe.sum(&longs).unwrap(), longs.iter().sum::<i32>());
    }
}

/// Checks calls with text that has only characters of ISO 8859-1, the code set of GIOP 1.0.
fn check_latin1(server: &Server) {
    let (_orb, probe) = client(&server.ior);
    assert_eq!(probe.cube_octet(3).unwrap(), 27);
    assert_eq!(probe.echo("Grüße").unwrap(), "Grüße");
    assert_eq!(probe.sum(&[1, 2, 3]).unwrap(), 6);
}

#[test]
fn references_carry_the_published_address() {
    let server = serve_with(Orb::builder().listen("tcp:0.0.0.0:0").published_address("tcp:gateway.example.com:0"));
    let Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let text = format!("{:?}", server.orb.string_to_object(&server.ior).unwrap().unwrap().ior());
    assert!(text.contains("gateway.example.com") && text.contains(&port.to_string()), "{text}");
    assert!(!text.contains("0.0.0.0"), "{text}");
    let unspecified =
        serve_with(Orb::builder().pool(PoolConfig::default().dispatch(Dispatch::Reactive)).listen("tcp::0"));
    check(&unspecified);
}

/// Streams can be without a descriptor, for example streams of polled network cards.
#[test]
fn streams_without_a_descriptor_are_served_in_every_architecture() {
    // The drain time-out is short, because a client notices the end of such a stream when it uses
    // the stream.
    let time = Duration::from_millis(50);
    for dispatch in EVERY_DISPATCH {
        let network: Arc<dyn Transport> = Arc::new(MockTransport::default());
        let transports = || Transports::new(vec![Arc::clone(&network)]);
        let pool = PoolConfig::default().dispatch(dispatch);
        let server = serve_with(
            Orb::builder().pool(pool).drain_timeout(time).transports(transports()).listen("unix:/mock/server"),
        );
        let own = Orb::builder().pool(PoolConfig::default().dispatch(dispatch)).drain_timeout(time);
        let own = serve_with(own.transports(transports()).listen("unix:/mock/client"));
        let probe = ProbeRef::from_object(own.orb.string_to_object(&server.ior).unwrap().unwrap());
        assert_eq!(probe.cube_octet(3).unwrap(), 27, "{dispatch:?}");
        let data: Vec<u8> = (0..3_000_000u32).map(|index| index.to_le_bytes()[1]).collect();
        assert_eq!(&*probe.mirror(&data).unwrap(), &data[..], "{dispatch:?}");
        assert_eq!(probe.call_back(Some(&own.probe), 1).unwrap(), 1, "{dispatch:?}");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..100).for_each(|_| assert_eq!(probe.cube_octet(2).unwrap(), 8)));
            }
        });
        let late = probe.with_timeout(Duration::from_millis(5)).wait_for_level(1).unwrap_err();
        assert_eq!(late.kind(), SystemExceptionKind::Timeout, "{dispatch:?}");
        server.probe.set_level(1).unwrap();
    }
}

fn shared(name: &str) -> String {
    format!("shm:{}", std::env::temp_dir().join(format!("corelane-shm-{}-{name}", std::process::id())).display())
}

#[test]
fn shared_memory_serves_in_every_architecture() {
    for dispatch in EVERY_DISPATCH {
        let pool = || PoolConfig::default().dispatch(dispatch);
        let server = serve_with(Orb::builder().pool(pool()).listen(shared("server")));
        check(&server);
        let own = serve_with(Orb::builder().pool(pool()).listen(shared("client")));
        let probe = ProbeRef::from_object(own.orb.string_to_object(&server.ior).unwrap().unwrap());
        let data: Vec<u8> = (0..3_000_000u32).map(|index| index.to_le_bytes()[1]).collect();
        assert_eq!(&*probe.mirror(&data).unwrap(), &data[..], "{dispatch:?}");
        assert_eq!(probe.call_back(Some(&own.probe), 3).unwrap(), 3, "{dispatch:?}");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..200).for_each(|_| assert_eq!(probe.cube_octet(2).unwrap(), 8)));
            }
        });
        let late = probe.with_timeout(Duration::from_millis(5)).wait_for_level(1).unwrap_err();
        assert_eq!(late.kind(), SystemExceptionKind::Timeout, "{dispatch:?}");
        server.probe.set_level(1).unwrap();
        assert_eq!(probe.cube_octet(2).unwrap(), 8, "{dispatch:?}");
    }
}

#[test]
fn shared_memory_is_preferred_and_optional() {
    let both = serve_with(Orb::builder().listen("tcp:127.0.0.1:0").listen(shared("preferred")));
    let Endpoint::Tcp { port, .. } = both.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let before = tcp_connections_to(port);
    check(&both);
    assert_eq!(tcp_connections_to(port), before);
    std::fs::remove_file(shared("preferred").strip_prefix("shm:").unwrap()).unwrap();
    let (_orb, probe) = client(&both.ior);
    assert_eq!(probe.cube_octet(3).unwrap(), 27);
    assert!(tcp_connections_to(port) > before);
}
