//! The conformance suite of the transports over real-time I/O, at each feature level except kernel
//! priorities.

use std::io;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use corelane_net::{
    ConnectionProperties, Endpoint, IoClass, IoProperties, Listener, Monotonic, Stream, TcpTransport, Transport,
};
use corelane_rio::examination::steering_refusal;
use corelane_rio::feature_level::FeatureLevel;
use corelane_rio::{RioConfig, RioTransport};
use corelane_sys::bpf::AttachMode;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::{interface, process, thread};

#[path = "../../net/tests/conformance/checks.rs"]
mod checks;

/// Real-time I/O in which all listeners and connections have one service class.
#[derive(Debug)]
struct InClass(RioTransport, IoClass);

impl InClass {
    fn io(&self) -> IoProperties {
        IoProperties { class: self.1, ..IoProperties::default() }
    }
}

impl Transport for InClass {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn supports(&self, endpoint: &Endpoint) -> bool {
        self.0.supports(endpoint)
    }

    fn connect_with_properties(
        &self,
        endpoint: &Endpoint,
        properties: &ConnectionProperties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        self.0.connect_with_io_properties(endpoint, properties, &self.io(), deadline)
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        self.0.listen_with_io_properties(endpoint, &self.io())
    }
}

const CLASSES: [IoClass; 5] = [
    IoClass::BestEffort,
    IoClass::Priority,
    IoClass::LowLatency { packets: 10, period: Duration::from_millis(1) },
    IoClass::Guaranteed { bytes: 400_000, period: Duration::from_millis(1) },
    IoClass::Guaranteed { bytes: 3_000, period: Duration::from_micros(100) },
];

fn at_level(config: RioConfig, level: FeatureLevel, check: &dyn Fn(&dyn Transport, &Endpoint)) {
    for class in CLASSES {
        let transport = RioTransport::new(config.clone().max_level(level));
        assert_eq!(transport.level(), level, "{}", transport.level_limit_reason());
        let transport = InClass(transport, class);
        check(&transport, &Endpoint::tcp("127.0.0.1", 0));
        check(&transport, &Endpoint::tcp("::1", 0));
    }
}

/// Real-time I/O whose listeners have a budget in packets, on one end of a link. Clients are plain
/// TCP on the other end, in a network namespace of their own.
#[derive(Debug)]
struct OverLink {
    rio: RioTransport,
    /// Asks the thread of the other namespace for a connection, and takes the answer.
    clients: Mutex<(Sender<Wanted>, Receiver<Connected>)>,
}

type Wanted = (Endpoint, ConnectionProperties, Option<Monotonic>);
type Connected = io::Result<Box<dyn Stream>>;

impl Transport for OverLink {
    fn name(&self) -> &'static str {
        self.rio.name()
    }

    fn supports(&self, endpoint: &Endpoint) -> bool {
        self.rio.supports(endpoint)
    }

    fn connect_with_properties(
        &self,
        endpoint: &Endpoint,
        properties: &ConnectionProperties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        let clients = self.clients.lock();
        clients.0.send((endpoint.clone(), *properties, deadline)).unwrap();
        clients.1.recv().unwrap()
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        let class = IoClass::GuaranteedPackets { packets: 200, period: Duration::from_millis(1) };
        let listener = self.rio.listen_with_io_properties(endpoint, &IoProperties { class, ..IoProperties::default() });
        let streams = self.rio.streams();
        assert!(listener.is_err() || streams.iter().all(|stream| stream.packets.is_some()), "{streams:?}");
        listener
    }
}

#[expect(clippy::disallowed_methods, reason = "threads of a test, which are not measured")]
fn channel<T>() -> (Sender<T>, Receiver<T>) {
    std::sync::mpsc::channel()
}

fn ip(words: &str) {
    assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success(), "ip {words}");
}

/// Runs `check` with rings and protocol threads, over IPv4 and IPv6. The receive buffers of the
/// connections bound the bytes that wait in the rings, so no ring is full.
fn over_a_link(check: impl Fn(&dyn Transport, &Endpoint) + Sync) {
    let (to_client, wanted) = channel::<Wanted>();
    let (to_server, connected) = channel();
    let (tell_thread, client_thread) = channel();
    let (linked, link) = channel();
    let check = &check;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            process::enter_new_network_namespace().unwrap();
            tell_thread.send(thread::current_tid().as_raw()).unwrap();
            let Ok(()) = link.recv() else { return };
            ip("address add 10.99.0.2/24 dev rio1");
            ip("address add fd00::2/64 dev rio1 nodad");
            ip("link set rio1 up");
            while let Ok((endpoint, properties, deadline)) = wanted.recv() {
                to_server.send(TcpTransport::new().connect_with_properties(&endpoint, &properties, deadline)).unwrap();
            }
        });
        let run = move || {
            process::enter_new_network_namespace().unwrap();
            ip("link add rio0 type veth peer name rio1");
            ip(&format!("link set rio1 netns {}", client_thread.recv().unwrap()));
            ip("address add 10.99.0.1/24 dev rio0");
            ip("address add fd00::1/64 dev rio0 nodad");
            ip("link set rio0 up");
            linked.send(()).unwrap();
            let deadline = Monotonic::now() + Duration::from_secs(60);
            while !interface::is_running("rio0").unwrap() {
                assert!(!deadline.is_past());
                std::thread::sleep(Duration::from_millis(1));
            }
            let rio = RioTransport::new(RioConfig::for_interface("rio0").attach_mode(AttachMode::Driver));
            assert_eq!(rio.level(), FeatureLevel::StreamSteering, "{}", rio.level_limit_reason());
            let clients = Mutex::new("clients of a test", LockScope::Orb, (to_client, connected));
            let transport = OverLink { rio, clients };
            ["10.99.0.1", "fd00::1"].iter().for_each(|host| check(&transport, &Endpoint::tcp(*host, 0)));
            let frames = transport.rio.frame_counts().unwrap();
            assert_eq!(frames.undeliverable_frames, 0, "{frames:?}");
        };
        scope.spawn(run).join().unwrap();
    });
}

/// Runs `check` at each feature level that the machine permits, except kernel priorities, with each
/// service class.
fn each(_name: &str, check: impl Fn(&dyn Transport, &Endpoint) + Sync) {
    for level in [FeatureLevel::PlainTcp, FeatureLevel::SocketOptions] {
        at_level(RioConfig::default(), level, &check);
    }
    let lacks = |name| format!("the process lacks {name}");
    if let Some(refusal) = steering_refusal().or_else(|| process::missing_namespace_capability().map(lacks)) {
        return println!("stream steering not run: {refusal}");
    }
    // The thread and its children are in a network namespace of their own.
    std::thread::scope(|scope| {
        let run = || {
            process::enter_new_network_namespace().unwrap();
            assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
            let config = RioConfig::for_interface("lo").attach_mode(AttachMode::Generic);
            at_level(config, FeatureLevel::StreamSteering, &check);
        };
        scope.spawn(run).join().unwrap();
    });
    over_a_link(check);
}
