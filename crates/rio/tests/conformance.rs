//! The conformance suite of the transports over real-time I/O, at each feature level.

use std::io;
use std::process::Command;
use std::time::Duration;

use corelane_net::{ConnectionProperties, Endpoint, IoClass, IoProperties, Listener, Monotonic, Stream, Transport};
use corelane_rio::examination::steering_refusal;
use corelane_rio::feature_level::FeatureLevel;
use corelane_rio::{RioConfig, RioTransport};
use corelane_sys::bpf::AttachMode;
use corelane_sys::process;

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

const CLASSES: [IoClass; 4] = [
    IoClass::BestEffort,
    IoClass::Priority,
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

/// Runs `check` at each implemented feature level that the machine permits, with each service
/// class.
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
}
