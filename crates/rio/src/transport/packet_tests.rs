//! Streams with a budget in packets, over a link between two network namespaces.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use corelane_net::WaitLimit;
use corelane_sys::bpf::AttachMode;
use corelane_sys::interface::{self, Offload};
use corelane_sys::xdp::{XdpFrameMemory, XdpQueue};
use corelane_sys::{poll, process, thread};

use super::*;
use crate::steering::RING_FRAME_SIZE;

pub(super) const SERVER: &str = "10.99.0.1";
/// A period that does not end while a test runs.
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

pub(super) fn ip(words: &str) -> String {
    let output = Command::new("ip").args(words.split(' ')).output().expect("iproute2 is installed");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(super) fn wait_until(reached: impl Fn() -> bool) {
    let deadline = Monotonic::now() + Duration::from_secs(60);
    while !reached() {
        assert!(!deadline.is_past());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs `test` in a network namespace with the interface `rio0` ([`SERVER`], fd00::1). The argument
/// of `test` opens a connection from the other end of the link, `rio1`, to a host and port of this
/// namespace. `rio1` has a namespace of its own, in which `prepare` runs first.
pub(super) fn over_a_link(
    prepare: impl FnOnce() + Send,
    test: impl FnOnce(&dyn Fn(&str, u16) -> Box<dyn Stream>) + Send,
) {
    let lack = process::missing_namespace_capability().map(str::to_owned);
    if let Some(refusal) = crate::examination::steering_refusal().or(lack) {
        return println!("not run: {refusal}");
    }
    let (to_peer, for_peer) = channel::<(String, u16)>();
    let (to_server, for_server) = channel::<Box<dyn Stream>>();
    let (tell_thread, peer_thread) = channel::<i32>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            process::enter_new_network_namespace().unwrap();
            tell_thread.send(thread::current_tid().as_raw()).unwrap();
            let Ok(_) = for_peer.recv() else { return };
            ip("address add 10.99.0.2/24 dev rio1");
            ip("address add fd00::2/64 dev rio1 nodad");
            ip("link set rio1 up");
            prepare();
            while let Ok((host, port)) = for_peer.recv() {
                // A socket belongs to the namespace of the thread that opened it.
                let stream = TcpTransport::new().connect(&Endpoint::tcp(&host, port), None).unwrap();
                to_server.send(stream).unwrap();
            }
        });
        let run = move || {
            process::enter_new_network_namespace().unwrap();
            ip("link add rio0 type veth peer name rio1");
            ip(&format!("link set rio1 netns {}", peer_thread.recv().unwrap()));
            ip("address add 10.99.0.1/24 dev rio0");
            ip("address add fd00::1/64 dev rio0 nodad");
            ip("link set rio0 up");
            to_peer.send((String::new(), 0)).unwrap();
            wait_until(|| interface::is_running("rio0").unwrap());
            test(&|host, port| {
                to_peer.send((host.to_owned(), port)).unwrap();
                for_server.recv().unwrap()
            });
        };
        scope.spawn(run).join().unwrap();
    });
}

#[expect(clippy::disallowed_methods, reason = "threads of a test, which are not measured")]
fn channel<T>() -> (std::sync::mpsc::Sender<T>, std::sync::mpsc::Receiver<T>) {
    std::sync::mpsc::channel()
}

pub(super) fn config() -> RioConfig {
    RioConfig::for_interface("rio0").attach_mode(AttachMode::Driver)
}

pub(super) fn steering(config: RioConfig) -> RioTransport {
    let transport = RioTransport::new(config);
    assert_eq!(transport.level(), FeatureLevel::StreamSteering, "{}", transport.level_limit_reason());
    transport
}

fn packets(packets: u32, period: Duration) -> IoProperties {
    IoProperties { class: IoClass::GuaranteedPackets { packets, period }, ..IoProperties::default() }
}

pub(super) fn listen(transport: &RioTransport, host: &str, io: &IoProperties) -> (Box<dyn Listener>, u16) {
    let listener = transport.listen_with_io_properties(&Endpoint::tcp(host, 0), io).unwrap();
    let Endpoint::Tcp { port, .. } = *listener.local_endpoint() else { panic!("a port") };
    (listener, port)
}

pub(super) fn accept(listener: &dyn Listener) -> Box<dyn Stream> {
    poll::wait_readable(listener.readiness_descriptor(), None).unwrap();
    listener.accept().unwrap()
}

/// Sends `count` segments of 100 bytes.
pub(super) fn send_segments(stream: &dyn Stream, count: usize) {
    (0..count).for_each(|_| assert_eq!(stream.send(&[7; 100], WaitLimit::Block).unwrap(), 100));
}

pub(super) fn unread(stream: &dyn Stream) -> usize {
    socket::unread_bytes(stream.readiness_descriptor().unwrap()).unwrap()
}

/// Returns the number of packets that the TUN device has received, or `None` without a device.
fn packets_of_tun() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let row = text.lines().find_map(|line| line.trim_start().strip_prefix("rio-in0:"))?;
    // Columns: received bytes, received packets.
    Some(row.split_whitespace().nth(1).unwrap().parse().unwrap())
}

pub(super) fn exchange(from: &dyn Stream, to: &dyn Stream, bytes: usize) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut left = bytes;
            while left > 0 {
                let deadline = WaitLimit::Until(Monotonic::now() + Duration::from_secs(60));
                left -= from.send(&vec![7; left], deadline).unwrap();
            }
        });
        let (mut received, mut buffer) = (0, vec![0; 65_536]);
        while received < bytes {
            let deadline = WaitLimit::Until(Monotonic::now() + Duration::from_secs(60));
            received += to.recv(&mut buffer, deadline).unwrap();
        }
    });
}

/// Fails if another context than the stream's thread enters IP with a packet: the socket would get
/// more bytes than the thread may process.
#[test]
fn packets_beyond_the_budget_do_not_reach_the_socket() {
    over_a_link(
        || {},
        |connect| {
            for host in [SERVER, "fd00::1"] {
                let transport = steering(config());
                let (listener, port) = listen(&transport, host, &packets(3, HOUR));
                let (client, server) = (connect(host, port), accept(&*listener));
                // The first segments are best effort if they arrive before the tables have the
                // connection.
                let counts = || transport.streams()[0].packets.unwrap();
                wait_until(|| {
                    send_segments(&*client, 1);
                    counts().waits > 0
                });
                assert_eq!((counts().processed, counts().max_period_packets), (3, 3), "{:?}", counts());
                assert_eq!(packets_of_tun(), Some(3));
                let reached = unread(&*server);
                send_segments(&*client, 4);
                let queued = transport.streams()[0].frame_counts.unwrap().queued_frames;
                wait_until(|| transport.streams()[0].frame_counts.unwrap().queued_frames > queued);
                assert_eq!((unread(&*server), counts().processed), (reached, 3));
                assert_eq!(transport.streams()[0].missing_feature_reason, None);
            }
            wait_until(|| packets_of_tun().is_none());
        },
    );
}

/// Lets the peer's end of the link compute checksums, as a network card does.
pub(super) fn prepare_checksums() {
    interface::set_offload("rio1", Offload::SentChecksums, false).unwrap();
}

/// Sends bulk load both ways. With the strict check of source addresses, a device without a setting
/// of its own would discard all packets.
fn exchange_bulk(connect: &dyn Fn(&str, u16) -> Box<dyn Stream>) {
    const BYTES: usize = 400_000;
    // In a container, the settings may be read-only. The test then runs without the strict check.
    let strict = fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "1");
    println!("strict check of source addresses: {strict:?}");
    for host in [SERVER, "fd00::1"] {
        let transport = steering(config());
        let (listener, port) = listen(&transport, host, &packets(20, Duration::from_millis(2)));
        let (client, server) = (connect(host, port), accept(&*listener));
        exchange(&*client, &*server, BYTES);
        exchange(&*server, &*client, BYTES);
        let status = &transport.streams()[0];
        let (counts, frames) = (status.packets.unwrap(), status.frame_counts.unwrap());
        // A segment has at most 1,460 bytes, so the bytes to the server are more than 200 segments.
        assert!(counts.processed > 200 && counts.max_period_packets <= 20, "{counts:?}");
        assert!(counts.waits > 5 && counts.lost == 0, "{counts:?}");
        assert_eq!(frames.undeliverable_frames, 0);
        assert_eq!((status.connections, &status.kernel_thread), (1, &None));
    }
}

#[test]
fn bulk_load_is_processed_in_periods_of_the_budget() {
    over_a_link(|| {}, exchange_bulk);
}

#[test]
fn packets_whose_sender_computes_checksums_are_processed_too() {
    over_a_link(prepare_checksums, exchange_bulk);
}

#[test]
fn connection_survives_the_loss_and_the_return_of_its_rings() {
    over_a_link(
        || {},
        |connect| {
            let transport = steering(config());
            transport.attach_orb();
            let (listener, port) = listen(&transport, SERVER, &packets(50, Duration::from_millis(1)));
            let (client, server) = (connect(SERVER, port), accept(&*listener));
            for round in 0..3 {
                exchange(&*client, &*server, 100_000);
                let before = transport.streams()[0].packets.unwrap();
                assert!(before.processed > 50, "round {round}: {before:?}");
                let reports = crate::status::read_reports().unwrap().reports;
                let shown = |name| crate::status::value_of(&reports[0].stream_fields[0], name).map(str::to_owned);
                assert_eq!(
                    (shown("class").as_deref(), shown("budget_packets").as_deref()),
                    (Some("guaranteed packets"), Some("50"))
                );
                assert_eq!(
                    shown("processed_packets").map(|count| count.parse::<u64>().unwrap() >= before.processed),
                    Some(true)
                );
                if round == 1 {
                    ip("link set rio0 down");
                    wait_until(|| transport.level() < FeatureLevel::StreamSteering);
                    wait_until(|| (transport.streams()[0].packets, packets_of_tun()) == (None, None));
                    ip("link set rio0 up");
                } else {
                    transport.detach_orb();
                    assert_eq!(transport.streams()[0].packets, None);
                    // If another test starts a process, the child keeps the device's descriptor
                    // open for a moment.
                    wait_until(|| packets_of_tun().is_none());
                    exchange(&*client, &*server, 100_000);
                    transport.attach_orb();
                }
                wait_until(|| transport.level() == FeatureLevel::StreamSteering);
                wait_until(|| transport.streams()[0].packets.is_some());
                assert_eq!(
                    (transport.streams()[0].connections, &transport.streams()[0].missing_feature_reason),
                    (1, &None)
                );
            }
            exchange(&*client, &*server, 100_000);
            transport.detach_orb();
        },
    );
}

#[test]
fn removed_tun_device_is_replaced() {
    over_a_link(
        || {},
        |connect| {
            let transport = steering(config());
            transport.attach_orb();
            let (listener, port) = listen(&transport, SERVER, &packets(50, Duration::from_millis(1)));
            let (client, server) = (connect(SERVER, port), accept(&*listener));
            exchange(&*client, &*server, 100_000);
            ip("link delete rio-in0");
            exchange(&*client, &*server, 100_000);
            wait_until(|| packets_of_tun().is_some() && transport.streams()[0].packets.is_some());
            exchange(&*client, &*server, 100_000);
            assert!(packets_of_tun().unwrap() > 0 && transport.streams()[0].packets.unwrap().processed > 0);
            assert_eq!(transport.streams()[0].missing_feature_reason, None);
            transport.detach_orb();
        },
    );
}

#[test]
fn full_ring_of_a_stream_leaves_the_others_their_frames() {
    over_a_link(
        || {},
        |connect| {
            let config = config().rings(2, 4);
            let transport = steering(config.clone());
            let (stalled, stalled_port) = listen(&transport, SERVER, &packets(1, HOUR));
            let (other, other_port) = listen(&transport, SERVER, &packets(100, Duration::from_millis(1)));
            let (stalled_client, _stalled) = (connect(SERVER, stalled_port), accept(&*stalled));
            let counts = |stream: usize| transport.streams()[stream].packets.unwrap();
            wait_until(|| {
                send_segments(&*stalled_client, 1);
                counts(0).ring_full > 10
            });
            let (client, server) = (connect(SERVER, other_port), accept(&*other));
            exchange(&*client, &*server, 50_000);
            assert_eq!((counts(0).processed, counts(1).lost), (1, 0));
            assert_eq!(transport.streams()[1].frame_counts.unwrap().undeliverable_frames, 0);
            // The first two streams have all rings that the configuration permits.
            let (_third, _) = listen(&transport, SERVER, &packets(1, HOUR));
            let third = transport.streams().remove(2);
            let lack = third.missing_feature_reason.unwrap();
            assert!(lack.ends_with("2 streams have rings (RioConfig::max_packet_streams)"), "{lack}");
            assert!(third.packets.is_none() && third.kernel_thread.is_some());
            let held = transport.levels.steering().unwrap().frame_memory();
            let bound = transport.memory_bound(packets(1, HOUR).class);
            assert_eq!(bound.frame_bytes, 5 * 2_048);
            assert!(u64::try_from(held).unwrap() <= bound.frame_bytes, "{held} of {bound}");
        },
    );
}

/// Sends until a protocol thread has processed packets, so that the ring works.
fn use_rings(transport: &RioTransport, stream: usize, client: &dyn Stream) {
    wait_until(|| {
        send_segments(client, 1);
        let state = transport.streams().swap_remove(stream);
        let has_processed = state.packets.is_some_and(|counts| counts.processed > 0);
        has_processed && state.missing_feature_reason.is_none()
    });
}

#[test]
fn refused_stream_gets_the_rings_of_a_stream_that_ends() {
    over_a_link(prepare_checksums, |connect| {
        let transport = steering(config().rings(1, 64));
        transport.attach_orb();
        let (first, _) = listen(&transport, SERVER, &packets(50, Duration::from_millis(1)));
        let (second, port) = listen(&transport, SERVER, &packets(50, Duration::from_millis(1)));
        let (client, server) = (connect(SERVER, port), accept(&*second));
        exchange(&*client, &*server, 10_000);
        assert!(transport.streams()[0].packets.is_some());
        let refused = &transport.streams()[1];
        assert!(refused.packets.is_none() && refused.missing_feature_reason.is_some(), "{refused:?}");
        drop(first);
        use_rings(&transport, 0, &*client);
        transport.detach_orb();
    });
}

#[test]
fn refused_streams_get_rings_when_another_program_leaves_the_receive_queue() {
    over_a_link(prepare_checksums, |connect| {
        let memory = XdpFrameMemory { frames: 8, frame_size: RING_FRAME_SIZE, fill_entries: 8 };
        let other = XdpQueue::open(interface::index("rio0").unwrap(), 0, memory).unwrap();
        let transport = steering(config());
        transport.attach_orb();
        let listeners = [0; 2].map(|_| listen(&transport, SERVER, &packets(50, Duration::from_millis(1))));
        let streams = listeners.each_ref().map(|(listener, port)| (connect(SERVER, *port), accept(&**listener)));
        for (refused, (client, server)) in transport.streams().iter().zip(&streams) {
            exchange(&**client, &**server, 10_000);
            assert!(refused.packets.is_none() && refused.missing_feature_reason.is_some(), "{refused:?}");
        }
        drop(other);
        for (stream, (client, _)) in streams.iter().enumerate() {
            use_rings(&transport, stream, &**client);
        }
        transport.detach_orb();
    });
}

#[test]
fn stream_of_an_interface_with_large_packets_has_its_kernel_thread() {
    over_a_link(prepare_checksums, |connect| {
        ip("link set rio0 mtu 3000");
        let transport = steering(config());
        let (listener, port) = listen(&transport, SERVER, &packets(1, HOUR));
        let (client, server) = (connect(SERVER, port), accept(&*listener));
        exchange(&*client, &*server, 10_000);
        let status = &transport.streams()[0];
        let lack = status.missing_feature_reason.as_deref().unwrap();
        assert_eq!(lack, "packets have no budget: rio0 has packets of 3000 bytes, and a ring has room for 1774");
        assert!(status.packets.is_none() && status.kernel_thread.is_some(), "{status:?}");
    });
}

#[test]
fn rings_of_a_killed_process_vanish() {
    over_a_link(
        || {},
        |_| {
            for _ in 0..3 {
                let mut holder = Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "transport::packet_tests::a_process_with_rings", "--ignored", "--nocapture"])
                    .env("CORELANE_RINGS", "rio0")
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap();
                let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map(|line| line.unwrap());
                assert!(lines.any(|line| line.ends_with("has rings: true")));
                assert!(packets_of_tun().is_some() && ip("link show dev rio0").contains("xdp"));
                // `kill` sends SIGKILL.
                holder.kill().unwrap();
                holder.wait().unwrap();
                wait_until(|| packets_of_tun().is_none() && !ip("link show dev rio0").contains("xdp"));
            }
        },
    );
}

#[test]
#[ignore = "the test rings_of_a_killed_process_vanish starts it as a process"]
fn a_process_with_rings() {
    if std::env::var("CORELANE_RINGS").is_err() {
        return;
    }
    let transport = steering(config());
    let (_listener, _) = listen(&transport, SERVER, &packets(1, HOUR));
    println!("\nhas rings: {}", transport.streams()[0].packets.is_some());
    // The process ends after a minute if it is not killed.
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn protocol_thread_has_the_priority_of_the_lane() {
    over_a_link(
        || {},
        |_| {
            let transport = steering(config());
            let io = IoProperties { native_priority: Some(3), ..packets(1, HOUR) };
            let (_listener, _) = listen(&transport, SERVER, &io);
            if transport.streams()[0].packets.is_none() {
                return println!("not run: {:?}", transport.streams()[0].missing_feature_reason);
            }
            let threads = thread::list_threads().unwrap();
            let is_ours = |one: &&thread::ThreadInfo| one.name == "rio/s1" && one.scheduling == Scheduling::Fifo(3);
            assert_eq!(threads.iter().filter(is_ours).count(), 1, "{threads:?}");
        },
    );
}
