//! An examination of an interface: which features real-time I/O has there, and why not more.

use std::fs;
use std::io;

use corelane_sys::bpf::{self, AttachMode, XdpLink};
use corelane_sys::thread;

use crate::feature_level::{Capabilities, FeatureLevel, InterfaceState};
use crate::interface_steering::InterfaceSteering;
use crate::level_control::{attach_error, capabilities, interface_state};

/// One feature, or one condition of features.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeatureFinding {
    /// The level to which the feature belongs.
    pub level: FeatureLevel,
    /// Short name of the feature.
    pub feature: &'static str,
    /// True if the feature is available, or the condition is met.
    pub is_available: bool,
    /// The present state.
    pub found: String,
    /// The change that makes the feature available. Empty if none is needed or possible.
    pub remedy: &'static str,
}

/// Result of [`examine`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterfaceExamination {
    /// The highest level that a transport would use on the interface.
    pub level: FeatureLevel,
    /// All features, the lowest level first.
    pub findings: Vec<FeatureFinding>,
}

/// Examines which features [`RioTransport`](crate::RioTransport) would have on an interface, for a
/// process with the privileges of the calling thread.
///
/// For a moment the function attaches a program to the interface, in the kernel's generic path, if
/// the privileges permit it. Without streams the program passes every frame.
#[must_use]
pub fn examine(interface: &str) -> InterfaceExamination {
    let mut findings = socket_findings();
    findings.push(finding(
        FeatureLevel::KernelPriorities,
        "kernel priorities",
        Err("receive threads of the kernel with priorities, and transmit classes, are not implemented".to_owned()),
        "",
    ));
    findings.extend(steering_findings(interface));
    let steers = findings.iter().all(|one| one.level != FeatureLevel::StreamSteering || one.is_available);
    let level = if steers { FeatureLevel::StreamSteering } else { FeatureLevel::SocketOptions };
    InterfaceExamination { level, findings }
}

fn finding(
    level: FeatureLevel,
    feature: &'static str,
    state: Result<String, String>,
    remedy: &'static str,
) -> FeatureFinding {
    let is_available = state.is_ok();
    let found = state.unwrap_or_else(|reason| reason);
    FeatureFinding { level, feature, is_available, found, remedy: if is_available { "" } else { remedy } }
}

fn socket_findings() -> Vec<FeatureFinding> {
    let limit = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap_or_default();
        text.trim().parse::<u64>().map_or_else(|_| "an unknown number of".to_owned(), |bytes| bytes.to_string())
    };
    let buffers = format!("up to {} bytes for receiving, {} for sending", limit("rmem_max"), limit("wmem_max"));
    let of = |feature, found: &str| finding(FeatureLevel::SocketOptions, feature, Ok(found.to_owned()), "");
    vec![
        of("budgets", "a stream reads its bytes in each period; TCP makes the peer wait"),
        of("fixed buffers", &buffers),
        of("output", "priority 6 in the queues of the interface, pacing, few unsent bytes"),
    ]
}

fn steering_findings(name: &str) -> Vec<FeatureFinding> {
    let of = |feature, state, remedy| finding(FeatureLevel::StreamSteering, feature, state, remedy);
    let mut findings = vec![
        of("interface", interface_finding(name), "bring the link up, or name another interface (`ip link`)"),
        of(
            "capabilities",
            capability_finding(capabilities()),
            "start the program as root, or with AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW CAP_BPF CAP_SYS_NICE",
        ),
        of(
            "kernel threads",
            kernel_thread_finding(),
            "start the program in the PID namespace of the machine (for containers: the host's)",
        ),
    ];
    let program = match bpf::unavailable_reason() {
        None => Ok("the kernel accepts programs for frames".to_owned()),
        Some(reason) => Err(reason.to_string()),
    };
    let can_load = program.is_ok();
    findings.push(of("programs", program, "give the program CAP_BPF and CAP_NET_ADMIN"));
    if can_load {
        findings.push(of(
            "hook",
            hook_finding(name),
            "remove the other program (`ip link set dev IF xdp off`), or leave the interface to it",
        ));
    }
    findings
}

fn interface_finding(name: &str) -> Result<String, String> {
    match interface_state(name) {
        InterfaceState::Up => Ok(format!("{name} is up")),
        InterfaceState::Down => Err(format!("the link of {name} is down")),
        InterfaceState::Absent => Err(format!("there is no interface {name}")),
    }
}

fn capability_finding(found: Capabilities) -> Result<String, String> {
    match found.missing_for(FeatureLevel::StreamSteering) {
        None => Ok("the process has those that are needed".to_owned()),
        Some(name) => Err(format!("the process lacks {name}")),
    }
}

fn kernel_thread_finding() -> Result<String, String> {
    match thread::find_kernel_thread("kthreadd") {
        Ok(Some(_)) => Ok("the process sees them, and can give them priorities".to_owned()),
        Ok(None) => Err("the process does not see them, so a stream's thread has the ordinary class".to_owned()),
        Err(error) => Err(format!("/proc is not readable: {error}")),
    }
}

/// Attaches the steering program without streams for a moment.
fn hook_finding(name: &str) -> Result<String, String> {
    let index = corelane_sys::interface::index(name).map_err(|error: io::Error| error.to_string())?;
    let program = InterfaceSteering::load().map_err(|error| error.to_string())?;
    match XdpLink::attach(program.program(), index, AttachMode::Generic) {
        Ok(_) => Ok("no program of another owner".to_owned()),
        Err(error) => Err(attach_error(name, &error)),
    }
}
