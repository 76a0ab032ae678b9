use std::io::IoSlice;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use corelane_net::WaitLimit;
use corelane_sys::epoll::{Epoll, EpollEvent, Interest};
use corelane_sys::poll;
use corelane_sys::thread::{self, CpuSet, Scheduling, ThreadBuilder};

use super::*;

const PERIOD: Duration = Duration::from_millis(10);
const BYTES: u32 = 5_000;

const GUARANTEED: IoProperties =
    IoProperties { class: IoClass::Guaranteed { bytes: BYTES, period: PERIOD }, native_priority: None, cores: None };

fn transport() -> RioTransport {
    RioTransport::new(RioConfig::default())
}

fn local() -> Endpoint {
    Endpoint::tcp("127.0.0.1", 0)
}

fn accept(listener: &dyn Listener) -> Box<dyn Stream> {
    poll::wait_readable(listener.readiness_descriptor(), None).unwrap();
    listener.accept().unwrap()
}

/// Sends until a send would block. Returns the number of sent bytes.
pub(super) fn fill(stream: &dyn Stream) -> usize {
    let mut sent = 0;
    while let Ok(count) = stream.send_vectored(&[IoSlice::new(&[7; 4_096])], WaitLimit::Now) {
        sent += count;
    }
    sent
}

/// Reads until a read would block. Returns the number of received bytes.
pub(super) fn drain(stream: &dyn Stream) -> usize {
    let (mut received, mut buffer) = (0, [0; 777]);
    while let Ok(count) = stream.recv(&mut buffer, WaitLimit::Now) {
        received += count;
    }
    received
}

#[test]
fn connections_of_a_stream_receive_exactly_the_budget() {
    static NOW: AtomicU64 = AtomicU64::new(1_000);
    let transport = RioTransport::with_clock(RioConfig::default(), Some(|| NOW.load(Ordering::Relaxed)));
    let listener = transport.listen_with_io_properties(&local(), &GUARANTEED).unwrap();
    let clients: Vec<_> = (0..2).map(|_| transport.connect(listener.local_endpoint(), None).unwrap()).collect();
    let servers: Vec<_> = (0..2).map(|_| accept(&*listener)).collect();
    clients.iter().for_each(|client| assert!(fill(&**client) > 50_000));
    servers
        .iter()
        .for_each(|server| assert!(poll::wait_readable(server.readiness_descriptor().unwrap(), None).unwrap()));
    let budget = usize::try_from(BYTES).unwrap();
    for period in 0..10 {
        let (first, second) = (drain(&*servers[period % 2]), drain(&*servers[(period + 1) % 2]));
        // In the first period no connection waits. Later the connection that is read first gets no
        // more than its share.
        let expected = if period == 0 { (budget, 0) } else { (budget / 2, budget / 2) };
        assert_eq!((first, second), expected, "period {period}");
        // A late start of a period does not move the next period.
        let late: Nanos = if period == 4 { 9_999_999 } else { 0 };
        NOW.store(1_000 + (u64::try_from(period).unwrap() + 1) * 10_000_000 + late, Ordering::Relaxed);
    }
    // The budgets of periods in which the stream received nothing do not accumulate.
    NOW.fetch_add(500_000_000, Ordering::Relaxed);
    assert_eq!(drain(&*servers[0]) + drain(&*servers[1]), budget);
}

/// The sender has sent all bytes before the reader begins, so only the stream's thread can report
/// the unread bytes.
#[test]
fn unread_bytes_are_reported_in_the_next_period() {
    let transport = transport();
    let listener = transport.listen_with_io_properties(&local(), &GUARANTEED).unwrap();
    let client = transport.connect(listener.local_endpoint(), None).unwrap();
    let server = accept(&*listener);
    let sent = 20 * usize::try_from(BYTES).unwrap() + 123;
    let mut left = sent;
    while left > 0 {
        left -= client.send(&vec![1; left.min(10_000)], WaitLimit::Block).unwrap();
    }
    let begun = Monotonic::now();
    let epoll = Epoll::new().unwrap();
    epoll.add(server.readiness_descriptor().unwrap(), 1, Interest::READABLE | Interest::EDGE).unwrap();
    let (mut received, mut buffer) = (0, [0; 3_001]);
    while received < sent {
        assert_eq!(epoll.wait(&mut [EpollEvent::EMPTY; 1], Some(Duration::from_secs(60))).unwrap(), 1);
        // Like the ORB, the reader ends the loop after a read that does not fill the buffer.
        while let Ok(count) = server.recv(&mut buffer, WaitLimit::Now) {
            received += count;
            if count < buffer.len() {
                break;
            }
        }
    }
    // The bytes need the budgets of 21 periods. The first period may have begun earlier.
    assert!(begun.elapsed() > PERIOD * 19, "{:?}", begun.elapsed());
}

#[test]
fn a_blocking_reader_receives_all_bytes_and_keeps_its_timeouts() {
    let transport = transport();
    let listener = transport.listen_with_io_properties(&local(), &GUARANTEED).unwrap();
    let client = transport.connect(listener.local_endpoint(), None).unwrap();
    let server = accept(&*listener);
    client.send(&[1; 12_000], WaitLimit::Block).unwrap();
    let (mut received, mut buffer) = (0, [0; 9_000]);
    while received < 12_000 {
        let count = server.recv(&mut buffer, WaitLimit::Block).unwrap();
        assert!(count <= 5_000);
        received += count;
    }
    server.set_coarse_timeouts(Duration::from_millis(1), Duration::ZERO).unwrap();
    assert_eq!(server.recv(&mut buffer, WaitLimit::Block).unwrap_err().kind(), io::ErrorKind::TimedOut);
}

#[test]
fn the_end_of_a_connection_is_seen_without_budget() {
    let transport = transport();
    let class = IoClass::Guaranteed { bytes: 4, period: Duration::from_secs(3_600) };
    let listener = transport.listen_with_io_properties(&local(), &IoProperties { class, ..GUARANTEED }).unwrap();
    let client = transport.connect(listener.local_endpoint(), None).unwrap();
    let server = accept(&*listener);
    client.send(&[1; 8], WaitLimit::Block).unwrap();
    let mut buffer = [0; 8];
    assert_eq!(server.recv(&mut buffer, WaitLimit::Block).unwrap(), 4);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| server.recv(&mut [0; 8], WaitLimit::Block));
        server.shutdown(corelane_net::ShutdownDirection::Both);
        assert!(reader.join().unwrap().is_ok());
    });
}

#[test]
fn bytes_of_a_connection_that_the_peer_resets_are_read_within_the_budget() {
    static NOW: AtomicU64 = AtomicU64::new(1_000);
    let transport = RioTransport::with_clock(RioConfig::default(), Some(|| NOW.load(Ordering::Relaxed)));
    let listener = transport.listen_with_io_properties(&local(), &GUARANTEED).unwrap();
    let client = transport.connect(listener.local_endpoint(), None).unwrap();
    let server = accept(&*listener);
    fill(&*client);
    // The kernel closes the client's socket with a reset.
    socket::set_linger(client.readiness_descriptor().unwrap(), Some(Duration::ZERO)).unwrap();
    drop(client);
    let fd = server.readiness_descriptor().unwrap();
    assert!(poll::check_hang_up(fd).unwrap().is_both_closed);
    let mut unread = socket::unread_bytes(fd).unwrap();
    assert!(unread > 50_000);
    let budget = usize::try_from(BYTES).unwrap();
    while unread > 0 {
        let received = drain(&*server);
        assert_eq!(received, unread.min(budget));
        unread -= received;
        // Without budget, a thread that waits for readiness sleeps until bytes are free. The end
        // needs no budget.
        assert_eq!(server.arm_readiness().unwrap(), Some(unread == 0));
        NOW.fetch_add(10_000_000, Ordering::Relaxed);
    }
    assert_eq!(server.recv(&mut [0; 8], WaitLimit::Now).unwrap(), 0);
}

/// Fails if the reader waits for the next period, which comes after an hour.
#[test]
fn the_peers_end_of_a_connection_is_seen_without_budget() {
    let transport = transport();
    let class = IoClass::Guaranteed { bytes: 4, period: Duration::from_secs(3_600) };
    let listener = transport.listen_with_io_properties(&local(), &IoProperties { class, ..GUARANTEED }).unwrap();
    let client = transport.connect(listener.local_endpoint(), None).unwrap();
    let server = accept(&*listener);
    client.send(&[1; 4], WaitLimit::Block).unwrap();
    assert_eq!(server.recv(&mut [0; 4], WaitLimit::Block).unwrap(), 4);
    drop(client);
    let deadline = Monotonic::now() + Duration::from_secs(30);
    assert_eq!(server.recv(&mut [0; 4], WaitLimit::Until(deadline)).unwrap(), 0);
}

#[test]
fn a_connection_without_budget_is_not_readable_until_its_turn() {
    static NOW: AtomicU64 = AtomicU64::new(1_000);
    let transport = RioTransport::with_clock(RioConfig::default(), Some(|| NOW.load(Ordering::Relaxed)));
    let listener = transport.listen_with_io_properties(&local(), &GUARANTEED).unwrap();
    let client = transport.connect(listener.local_endpoint(), None).unwrap();
    let server = accept(&*listener);
    let is_readable = |fd| poll::wait_readable(fd, Some(Monotonic::from_nanos(0))).unwrap();
    assert_eq!(server.arm_readiness().unwrap(), Some(false));
    assert!(fill(&*client) > 50_000);
    assert!(poll::wait_readable(server.arrival_descriptor().unwrap(), None).unwrap());
    assert_eq!(server.arm_readiness().unwrap(), Some(true));
    drain(&*server);
    assert_eq!(server.arm_readiness().unwrap(), Some(false));
    assert_eq!(
        (is_readable(server.arrival_descriptor().unwrap()), is_readable(server.readiness_descriptor().unwrap())),
        (false, true)
    );
    let _other_client = transport.connect(listener.local_endpoint(), None).unwrap();
    let other = accept(&*listener);
    NOW.fetch_add(10_000_000, Ordering::Relaxed);
    assert_eq!(transport.streams()[0].budget.unwrap().waiting_connections, 1);
    // The query of the counts does not give the waiting connection its turn (module `turns`). The
    // first read on the stream in the new period does.
    assert!(!is_readable(server.arrival_descriptor().unwrap()));
    assert_eq!(drain(&*other), 0);
    assert!(is_readable(server.arrival_descriptor().unwrap()));
    assert_eq!(server.arm_readiness().unwrap(), Some(true));
    drain(&*server);
    drop(client);
    server.shutdown(corelane_net::ShutdownDirection::Both);
    assert!(poll::wait_readable(server.arrival_descriptor().unwrap(), None).unwrap());
    assert_eq!(server.arm_readiness().unwrap(), Some(true));
}

#[test]
fn first_calls_at_the_same_moment_open_one_stream() {
    const THREADS: usize = 8;
    let server = TcpTransport::new().listen(&local()).unwrap();
    for _ in 0..20 {
        let transport = transport();
        let barrier = std::sync::Barrier::new(THREADS);
        let connect = || {
            barrier.wait();
            let properties = ConnectionProperties::default();
            transport.connect_with_io_properties(server.local_endpoint(), &properties, &GUARANTEED, None).unwrap()
        };
        std::thread::scope(|scope| {
            let threads = [0; THREADS].map(|_| scope.spawn(connect));
            let connections = threads.map(|thread| thread.join().unwrap());
            let streams = transport.streams();
            assert_eq!((streams.len(), streams[0].connections), (1, 8), "{streams:?}");
            drop(connections);
        });
    }
}

#[test]
fn a_client_at_its_maximum_of_connections_refuses_before_it_connects() {
    let transport = RioTransport::new(RioConfig::default().max_connections(1));
    let server = TcpTransport::new().listen(&local()).unwrap();
    let connect = || {
        transport.connect_with_io_properties(
            server.local_endpoint(),
            &ConnectionProperties::default(),
            &GUARANTEED,
            None,
        )
    };
    let first = connect().unwrap();
    accept(&*server);
    let refusal = connect().unwrap_err();
    assert_eq!(refusal.kind(), io::ErrorKind::QuotaExceeded);
    assert_eq!(refusal.to_string(), "stream 1 has its maximum of 1 connections (RioConfig::max_connections)");
    assert_eq!(server.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let status = transport.streams();
    assert_eq!((status[0].connections, status[0].refused_connections), (1, 1));
    drop(first);
    connect().unwrap();
}

#[test]
fn the_handler_of_level_changes_may_start_and_end_orbs() {
    use std::sync::OnceLock;
    use std::sync::atomic::AtomicBool;

    static TRANSPORT: OnceLock<RioTransport> = OnceLock::new();
    static IS_RUNNING: AtomicBool = AtomicBool::new(false);
    static CHANGES: Mutex<Vec<FeatureLevel>> = Mutex::new("changes", LockScope::Orb, Vec::new());
    let config = RioConfig::default().on_level_change(|change| {
        assert!(!IS_RUNNING.swap(true, Ordering::Relaxed), "the handler is called inside its own call");
        CHANGES.lock().push(change.to);
        if let Some(transport) = TRANSPORT.get()
            && CHANGES.lock().len() < 4
        {
            match change.to {
                FeatureLevel::PlainTcp => transport.attach_orb(),
                _ => transport.detach_orb(),
            }
            assert_eq!(transport.level() == FeatureLevel::PlainTcp, change.to != FeatureLevel::PlainTcp);
        }
        IS_RUNNING.store(false, Ordering::Relaxed);
    });
    TRANSPORT.set(RioTransport::new(config)).unwrap();
    let run = std::thread::spawn(|| {
        TRANSPORT.get().unwrap().attach_orb();
        TRANSPORT.get().unwrap().detach_orb();
    });
    // The time limit turns a deadlock of the handler into a failure.
    let deadline = Monotonic::now() + Duration::from_secs(60);
    while !run.is_finished() {
        assert!(!deadline.is_past(), "the handler does not return");
        std::thread::sleep(Duration::from_millis(5));
    }
    run.join().unwrap();
    assert_eq!(
        *CHANGES.lock(),
        [FeatureLevel::SocketOptions, FeatureLevel::PlainTcp, FeatureLevel::SocketOptions, FeatureLevel::PlainTcp]
    );
}

fn admitting(link_bits_per_second: u64) -> crate::StreamAdmission {
    let cost = crate::admission::ProcessingCost { per_period: 1_000, per_packet: 1_000, per_kibibyte: 100 };
    crate::StreamAdmission::new(crate::admission::StreamResources::new(link_bits_per_second, cost))
}

#[test]
fn streams_that_do_not_fit_are_refused_until_another_ends() {
    let transport = RioTransport::new(RioConfig::default().admission(admitting(100_000_000)));
    let class = IoClass::Guaranteed { bytes: 60_000, period: PERIOD };
    let io = IoProperties { class, ..GUARANTEED };
    let first = transport.listen_with_io_properties(&local(), &io).unwrap();
    let server = TcpTransport::new().listen(&local()).unwrap();
    let connect =
        |io| transport.connect_with_io_properties(server.local_endpoint(), &ConnectionProperties::default(), &io, None);
    for refused in [transport.listen_with_io_properties(&local(), &io).err(), connect(io).err()] {
        let refused = refused.unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
        let refusal = refused.get_ref().unwrap().downcast_ref::<StreamNotAdmitted>().unwrap();
        assert!(matches!(refusal.bound, crate::admission::ViolatedBound::Link { .. }), "{refusal}");
        let bytes = refusal.admissible_bytes.unwrap();
        // The refused streams left no trace, so a stream with the offered number of bytes is
        // admitted.
        let class = IoClass::Guaranteed { bytes, period: PERIOD };
        transport.listen_with_io_properties(&local(), &IoProperties { class, ..GUARANTEED }).unwrap();
    }
    assert_eq!(transport.streams().len(), 1);
    assert_eq!(server.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    // Best effort has its minimum of the link, and is never refused.
    connect(IoProperties::default()).unwrap();
    drop(first);
    connect(io).unwrap();
}

#[test]
fn advisory_admission_opens_what_does_not_fit_and_says_so() {
    let transport = RioTransport::new(RioConfig::default().admission(admitting(1_000_000).advisory(true)));
    let _refused = transport.listen_with_io_properties(&local(), &GUARANTEED).unwrap();
    let class = IoClass::Guaranteed { bytes: 100, period: PERIOD };
    let _admitted = transport.listen_with_io_properties(&local(), &IoProperties { class, ..GUARANTEED }).unwrap();
    let streams = transport.streams();
    assert_eq!(streams[0].refusal.unwrap().stream, 1);
    assert_eq!(streams[1].refusal, None);
}

#[test]
fn a_class_without_amount_or_period_is_refused() {
    let transport = transport();
    for (bytes, period) in [(0, PERIOD), (1, Duration::ZERO), (1, Duration::from_secs(4_000))] {
        let packets = bytes;
        let classes = [
            IoClass::Guaranteed { bytes, period },
            IoClass::GuaranteedPackets { packets, period },
            IoClass::LowLatency { packets, period },
        ];
        for class in classes {
            let io = IoProperties { class, ..GUARANTEED };
            let refusal = transport.listen_with_io_properties(&local(), &io).unwrap_err();
            assert_eq!(refusal.kind(), io::ErrorKind::InvalidInput);
        }
    }
}

#[test]
fn a_stream_holds_at_most_its_memory_bound() {
    let transport = RioTransport::new(RioConfig::default().max_connections(3).buffer_sizes(20_000, 30_000));
    let listener = transport.listen_with_io_properties(&local(), &GUARANTEED).unwrap();
    let tcp = TcpTransport::new();
    let mut held = 0;
    let mut pairs = Vec::new();
    for _ in 0..3 {
        let client = tcp.connect(listener.local_endpoint(), None).unwrap();
        let server = accept(&*listener);
        fill(&*client);
        fill(&*server);
        let fd = server.readiness_descriptor().unwrap();
        assert_eq!(socket::receive_buffer_size(fd).unwrap(), 40_000);
        assert_eq!(socket::send_buffer_size(fd).unwrap(), 60_000);
        held += u64::try_from(socket::unread_bytes(fd).unwrap()).unwrap() + 60_000;
        pairs.push((client, server));
    }
    let bound = transport.memory_bound(GUARANTEED.class);
    assert!(held <= bound.total_bytes(), "{held} of {bound}");
    let _surplus = tcp.connect(listener.local_endpoint(), None).unwrap();
    poll::wait_readable(listener.readiness_descriptor(), None).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    let status = transport.streams();
    assert_eq!((status.len(), status[0].connections, status[0].refused_connections), (1, 3, 1));
    drop(pairs);
    assert_eq!(transport.streams()[0].connections, 0);
}

/// Returns the scale of the window that the connection's own end offers.
fn offered_window_scale(stream: &dyn Stream) -> u32 {
    let port = socket::local_address(stream.readiness_descriptor().unwrap()).unwrap().as_inet().unwrap().port();
    let output = std::process::Command::new("ss").args(["-tniH", "sport", "=", &format!(":{port}")]).output();
    let text = String::from_utf8(output.expect("iproute2 is installed").stdout).unwrap();
    let scales = text.split_once("wscale:").unwrap_or_else(|| panic!("{text}")).1;
    scales.split([',', ' ']).nth(1).unwrap().parse().unwrap()
}

/// Fails if the buffer gets its size after the connection has begun: the window then keeps the
/// scale of a smaller buffer.
#[test]
fn window_of_a_client_has_the_scale_of_its_forced_buffer() {
    if !crate::level_control::capabilities().has_net_admin {
        return println!("not run: the process lacks CAP_NET_ADMIN");
    }
    let numbers = |path: &str| -> Vec<u32> {
        let text = std::fs::read_to_string(path).unwrap();
        text.split_whitespace().map(|number| number.parse().unwrap()).collect()
    };
    let limit = numbers("/proc/sys/net/core/rmem_max")[0];
    let max_window = numbers("/proc/sys/net/ipv4/tcp_rmem")[2];
    let size = limit.saturating_mul(8);
    if max_window / 4 < limit {
        return println!("not run: tcp_rmem is too small for the test");
    }
    let transport = RioTransport::new(RioConfig::default().buffer_sizes(size, 131_072));
    let listener = TcpTransport::new().listen(&local()).unwrap();
    let io = IoProperties { class: IoClass::Priority, ..GUARANTEED };
    let properties = ConnectionProperties::default();
    let client = transport.connect_with_io_properties(listener.local_endpoint(), &properties, &io, None).unwrap();
    let scale = offered_window_scale(&*client);
    let window = u64::from(u16::MAX) << scale;
    assert!(window >= u64::from(size.min(max_window) / 2), "scale {scale} for {size} bytes");
}

#[test]
fn sockets_have_the_options_of_their_class() {
    let transport = RioTransport::new(RioConfig::default().best_effort_pacing_rate(Some(1_000_000)));
    let priority = IoProperties { class: IoClass::Priority, ..GUARANTEED };
    let class = IoClass::LowLatency { packets: 10, period: PERIOD };
    let low_latency = IoProperties { class, ..GUARANTEED };
    let of_stream = (6, 16_384, u32::MAX);
    let of_best_effort = (IoProperties::default(), (0, u32::MAX, 1_000_000));
    for (io, expected) in [(priority, of_stream), (low_latency, of_stream), of_best_effort] {
        let listener = transport.listen_with_io_properties(&local(), &io).unwrap();
        let properties = ConnectionProperties::default();
        let client = transport.connect_with_io_properties(listener.local_endpoint(), &properties, &io, None).unwrap();
        let server = accept(&*listener);
        for stream in [client, server] {
            let fd = stream.readiness_descriptor().unwrap();
            let unsent = socket::max_unsent_bytes(fd).unwrap();
            let unsent = if unsent == 0 { u32::MAX } else { unsent };
            let found = (socket::priority(fd).unwrap(), unsent, socket::max_pacing_rate(fd).unwrap());
            assert_eq!(found, expected);
            stream.set_dscp(46).unwrap();
            assert!(socket::priority(fd).unwrap() == 6 || io.class == IoClass::BestEffort);
        }
    }
}

#[test]
fn bytes_that_do_not_arrive_stay_in_the_budget() {
    let transport = RioTransport::with_clock(RioConfig::default(), Some(|| 1_000));
    let listener = transport.listen_with_io_properties(&local(), &GUARANTEED).unwrap();
    let client = transport.connect(listener.local_endpoint(), None).unwrap();
    let server = accept(&*listener);
    for part in 0..50 {
        assert_eq!(server.recv(&mut [0; 9_000], WaitLimit::Now).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        client.send(&[part; 100], WaitLimit::Block).unwrap();
        poll::wait_readable(server.readiness_descriptor().unwrap(), None).unwrap();
        assert_eq!(server.recv(&mut [0; 9_000], WaitLimit::Now).unwrap(), 100, "part {part}");
    }
    client.send(&[0; 100], WaitLimit::Block).unwrap();
    poll::wait_readable(server.readiness_descriptor().unwrap(), None).unwrap();
    assert_eq!(server.recv(&mut [0; 9_000], WaitLimit::Now).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_stream_has_the_configured_core_and_queue() {
    let config = RioConfig::default().default_core(1).thread_queue_frames(77);
    assert_eq!((config.default_core, config.thread_queue_frames), (1, 77));
    let transport = RioTransport::new(config);
    let _listener = transport.listen_with_io_properties(&local(), &GUARANTEED).unwrap();
    assert_eq!(transport.streams()[0].queue_frames, 77);
}

fn ip(words: &str) {
    let output = std::process::Command::new("ip").args(words.split(' ')).output().expect("iproute2 is installed");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The interface comes up after the stream and its connection. Fails if either stays best effort.
#[test]
fn streams_that_were_opened_at_a_lower_level_are_steered_when_the_level_has_risen() {
    let lack = corelane_sys::process::missing_namespace_capability();
    if let Some(refusal) = crate::examination::steering_refusal().or_else(|| lack.map(str::to_owned)) {
        return println!("not run: {refusal}");
    }
    let run = || {
        corelane_sys::process::enter_new_network_namespace().unwrap();
        ip("link set lo up");
        ip("link add rio0 type veth peer name rio1");
        ip("link set rio1 up");
        let mode = corelane_sys::bpf::AttachMode::Generic;
        let transport = RioTransport::new(RioConfig::for_interface("rio0").attach_mode(mode));
        transport.attach_orb();
        assert_eq!(transport.level(), FeatureLevel::SocketOptions);
        let io = IoProperties { class: IoClass::Priority, ..GUARANTEED };
        let listener = transport.listen_with_io_properties(&local(), &io).unwrap();
        let client = transport.connect(listener.local_endpoint(), None).unwrap();
        let server = accept(&*listener);
        assert_eq!(transport.streams()[0].kernel_thread, None);
        ip("link set rio0 up");
        let deadline = Monotonic::now() + Duration::from_secs(30);
        while transport.level() < FeatureLevel::StreamSteering {
            assert!(!deadline.is_past(), "{}", transport.level_limit_reason());
            std::thread::sleep(Duration::from_millis(5));
        }
        let status = &transport.streams()[0];
        assert!(status.kernel_thread.is_some(), "{status:?}");
        let fd = server.readiness_descriptor().unwrap();
        let [remote, local] = [socket::peer_address(fd), socket::local_address(fd)].map(Result::unwrap);
        let frame = crate::frame::build::tcp(*remote.as_inet().unwrap(), *local.as_inet().unwrap(), 0, 0);
        let steering = transport.levels.steering().unwrap();
        let queued = || transport.streams()[0].frame_counts.unwrap().queued_frames;
        steering.program().test_run(&frame, 1).unwrap();
        assert_eq!(queued(), 1);
        drop((client, server));
        steering.program().test_run(&frame, 1).unwrap();
        assert_eq!(queued(), 1);
        transport.detach_orb();
    };
    std::thread::spawn(run).join().unwrap();
}

/// Fails if a thread that begins an ORB passes its fixed priority on.
#[test]
fn threads_of_the_level_and_of_the_status_are_ordinary() {
    let run = || {
        let transport = RioTransport::new(RioConfig::for_interface("no-such-if"));
        transport.attach_orb();
        let threads = thread::list_threads().unwrap();
        transport.detach_orb();
        threads
    };
    let last = thread::affinity(None).unwrap().iter().last().unwrap();
    let builder = ThreadBuilder::new().scheduling(Scheduling::Fifo(2)).affinity(CpuSet::one(last));
    let threads = match builder.spawn(run) {
        Ok(urgent) => urgent.join().unwrap(),
        Err(error) => return println!("not run: SCHED_FIFO is not permitted: {error}"),
    };
    for name in ["rio/level", "rio/status"] {
        let found: Vec<Scheduling> =
            threads.iter().filter(|thread| thread.name == name).map(|thread| thread.scheduling).collect();
        assert!(!found.is_empty() && found.iter().all(|one| *one == Scheduling::Other), "{name}: {found:?}");
    }
}
