//! An examination of the features that real-time I/O has on an interface.

use std::fs;

use corelane_sys::bpf::{self, AttachMode};
use corelane_sys::thread;

use crate::feature_level::{Capabilities, FeatureLevel, InterfaceState};
use crate::level_control::{capabilities, interface_state};
use crate::{RioConfig, RioTransport};

/// A feature, or a condition of features, with its state on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeatureFinding {
    /// The level to which the feature belongs.
    pub level: FeatureLevel,
    /// Short name of the feature.
    pub feature: &'static str,
    /// True if the feature is available, or the condition is met.
    pub is_available: bool,
    /// The present state, or the reason why the feature is missing.
    pub found: String,
    /// The change that makes the feature available. Empty if none is needed or possible.
    pub remedy: &'static str,
    /// True if the level is not reached without the feature.
    pub is_needed: bool,
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

/// Examines which features [`RioTransport`] has on an interface, with the privileges of the calling
/// thread.
///
/// If the privileges permit it, the function attaches the steering program to the interface for a
/// moment, in the kernel's generic path. Without streams the program passes every frame.
#[must_use]
pub fn examine(interface: &str) -> InterfaceExamination {
    let transport = RioTransport::new(RioConfig::for_interface(interface).attach_mode(AttachMode::Generic));
    let (level, limit) = (transport.level(), transport.limit());
    drop(transport);
    let mut findings = socket_findings();
    findings.push(finding(
        FeatureLevel::KernelPriorities,
        "kernel priorities",
        Err("receive threads of the kernel with priorities, and transmit classes, are not implemented".to_owned()),
        "",
    ));
    findings.extend(steering_findings(interface));
    // If all conditions are met and the level is not reached, the attachment failed.
    let hook =
        if level == FeatureLevel::StreamSteering { Ok("the program is accepted".to_owned()) } else { Err(limit) };
    if hook.is_ok() || findings.iter().all(|one| one.is_available || !one.is_needed) {
        let remedy = "remove the other program (`ip link set dev IF xdp off`), or leave the interface to it";
        findings.push(finding(FeatureLevel::StreamSteering, "hook", hook, remedy));
    }
    InterfaceExamination { level, findings }
}

/// Returns the reason why the calling thread cannot sort frames by stream on any interface; `None`
/// if it can.
#[must_use]
pub fn steering_refusal() -> Option<String> {
    let refusal = bpf::unavailable_reason().map(|reason| reason.to_string());
    capability_finding(capabilities()).err().or(refusal)
}

fn finding(
    level: FeatureLevel,
    feature: &'static str,
    state: Result<String, String>,
    remedy: &'static str,
) -> FeatureFinding {
    let is_available = state.is_ok();
    let found = state.unwrap_or_else(|reason| reason);
    let is_needed = level != FeatureLevel::KernelPriorities;
    FeatureFinding { level, feature, is_available, found, remedy: if is_available { "" } else { remedy }, is_needed }
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
    // The level is reached even if the kernel threads of streams keep the ordinary class.
    let threads = of(
        "kernel threads",
        kernel_thread_finding(),
        "start the program in the PID namespace of the machine (for containers: the host's)",
    );
    let mut findings = vec![
        of("interface", interface_finding(name), "bring the link up, or name another interface (`ip link`)"),
        of(
            "capabilities",
            capability_finding(capabilities()),
            "start the program as root, or with AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW CAP_BPF CAP_SYS_NICE",
        ),
        FeatureFinding { is_needed: false, ..threads },
    ];
    let program = match bpf::unavailable_reason() {
        None => Ok("the kernel accepts programs for frames".to_owned()),
        Some(reason) => Err(reason.to_string()),
    };
    findings.push(of("programs", program, "give the program CAP_BPF and CAP_NET_ADMIN"));
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
