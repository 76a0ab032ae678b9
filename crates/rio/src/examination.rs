//! An examination of the features that real-time I/O has on an interface.

use std::path::Path;
use std::{fs, io};

use corelane_sys::bpf::{self, AttachMode};
use corelane_sys::netlink::{Netlink, NetlinkFamily};
use corelane_sys::{interface, thread};

use crate::config::JOURNAL_FOLDER;
use crate::feature_level::{Capabilities, FeatureLevel, InterfaceState};
use crate::interface_settings::InterfaceSettings;
use crate::kernel_priorities::{FOREIGN_RECEIVE_THREADS, NO_RECEIVE_THREADS, has_foreign_receive_threads, is_owned};
use crate::level_control::{capabilities, interface_state};
use crate::packet_rings::{check_packets, receive_queues};
use crate::receive_threads;
use crate::transmit_classes::{RootDiscipline, root_discipline};
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
    /// The reason why the level is not higher. Empty for the highest level.
    pub level_limit_reason: String,
    /// All features, the lowest level first.
    pub findings: Vec<FeatureFinding>,
}

/// Examines which features [`RioTransport`] has on an interface, with the privileges of the calling
/// thread.
///
/// If the privileges permit it, the function attaches the steering program to the interface for a
/// moment, in the kernel's generic path. Without streams the program passes every frame. The
/// function changes no queueing discipline and no receive thread.
#[must_use]
pub fn examine(interface: &str) -> InterfaceExamination {
    let transport = RioTransport::new(RioConfig::for_interface(interface).attach_mode(AttachMode::Generic));
    let (steered, limit) = (transport.level(), transport.level_limit_reason());
    drop(transport);
    let mut findings = socket_findings();
    let priorities = priority_findings(interface);
    let has_priorities = priorities.iter().all(|one| one.is_available || !one.is_needed)
        && priorities.iter().any(|one| one.is_available && !one.is_needed);
    findings.extend(priorities);
    findings.extend(steering_findings(interface));
    // If all conditions are met and the level is not reached, the attachment failed, so the finding
    // `hook` is added.
    let is_steered = steered == FeatureLevel::StreamSteering;
    let hook = if is_steered { Ok("the program is accepted".to_owned()) } else { Err(limit.clone()) };
    let is_met = |one: &FeatureFinding| one.level != FeatureLevel::StreamSteering || one.is_available || !one.is_needed;
    if hook.is_ok() || findings.iter().all(is_met) {
        let remedy = "remove the other program (`ip link set dev IF xdp off`), or leave the interface to it";
        findings.push(finding(FeatureLevel::StreamSteering, "hook", hook, remedy));
    }
    let level = if !is_steered && has_priorities { FeatureLevel::KernelPriorities } else { steered };
    InterfaceExamination { level, level_limit_reason: if is_steered { String::new() } else { limit }, findings }
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
    let remedy = if is_available { "" } else { remedy };
    FeatureFinding { level, feature, is_available, found, remedy, is_needed: true }
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

/// Examines the features of [`FeatureLevel::KernelPriorities`]. The level needs receive threads or
/// transmit classes, so `is_needed` is false in the findings of both.
fn priority_findings(name: &str) -> Vec<FeatureFinding> {
    let of = |feature, state, remedy| finding(FeatureLevel::KernelPriorities, feature, state, remedy);
    let optional = |one: FeatureFinding| FeatureFinding { is_needed: false, ..one };
    let capabilities = match capabilities().missing_for(FeatureLevel::KernelPriorities) {
        None => Ok("the process has those that are needed".to_owned()),
        Some(name) => Err(format!("the process lacks {name}")),
    };
    let owner = match interface::index(name).map(|index| is_owned(index, Path::new(JOURNAL_FOLDER))) {
        Ok(Ok(true)) => Err(format!("another process has the priorities of {name}")),
        Ok(Ok(false)) => Ok(format!("no process has the priorities of {name}")),
        Ok(Err(error)) => Err(format!("the journal of {name} cannot be read: {error}")),
        Err(_) => Err(format!("there is no interface {name}")),
    };
    vec![
        of(
            "capabilities",
            capabilities,
            "start the program as root, or as a service with AmbientCapabilities=CAP_NET_ADMIN CAP_SYS_NICE, \
             RuntimeDirectory=corelane-rio and RuntimeDirectoryPreserve=yes",
        ),
        of(
            "owner",
            owner,
            "end the other process (`corelane rio status IF`), share its transport, or run the command as its user",
        ),
        optional(of(
            "receive threads",
            receive_threads_finding(name),
            "for a veth interface: `ethtool -K IF gro on`; a driver without NAPI has none; \
             to end those of another owner: write 0 into /sys/class/net/IF/threaded",
        )),
        optional(of(
            "transmit classes",
            transmit_classes_finding(name),
            "remove the other discipline (`tc qdisc del dev IF root`), or leave the queues to it",
        )),
    ]
}

fn receive_threads_finding(name: &str) -> Result<String, String> {
    let index = interface::index(name).map_err(|_| format!("there is no interface {name}"))?;
    let settings = InterfaceSettings::open().map_err(|error| error.to_string())?;
    match receive_threads::instances(index) {
        Ok(instances) if instances.is_empty() => Err(NO_RECEIVE_THREADS.to_owned()),
        Ok(_) if has_foreign_receive_threads(name, index, &settings, Path::new(JOURNAL_FOLDER)) => {
            Err(FOREIGN_RECEIVE_THREADS.to_owned())
        }
        Ok(instances) => Ok(format!("{} can process received packets", instances.len())),
        Err(error) => Err(format!("the kernel does not list them: {error}")),
    }
}

fn transmit_classes_finding(name: &str) -> Result<String, String> {
    let index = interface::index(name).map_err(|_| format!("there is no interface {name}"))?;
    let root = Netlink::open(NetlinkFamily::Route).and_then(|netlink| root_discipline(&netlink, index));
    match root {
        Ok(RootDiscipline::Default) => Ok("the interface has its default queueing discipline".to_owned()),
        Ok(RootDiscipline::Ours) => Ok("the interface has classes of real-time I/O".to_owned()),
        Ok(RootDiscipline::Foreign(found)) => Err(format!("the interface has the queueing discipline {found}")),
        Err(error) => Err(format!("the queueing discipline cannot be read: {error}")),
    }
}

fn steering_findings(name: &str) -> Vec<FeatureFinding> {
    let of = |feature, state, remedy| finding(FeatureLevel::StreamSteering, feature, state, remedy);
    // The level is reached even if the kernel threads of streams keep the ordinary scheduling
    // class.
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
    let packet_steering = of(
        "packet steering",
        packet_steering(name),
        "switch it off: for each receive queue, write 0 into /sys/class/net/IF/queues/rx-N/rps_cpus and rps_flow_cnt",
    );
    findings.push(FeatureFinding { is_needed: false, ..packet_steering });
    let rings = of(
        "rings",
        rings_finding(name),
        "for budgets in packets: load the kernel module `tun`, or lower the largest packet (`ip link set dev IF mtu 1500`)",
    );
    findings.push(FeatureFinding { is_needed: false, ..rings });
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

/// Returns an error if streams with a budget in packets cannot have rings on the interface. The
/// privileges are examined by [`capability_finding`].
fn rings_finding(name: &str) -> Result<String, String> {
    check_packets(name).map_err(|error| error.to_string())?;
    if !Path::new("/dev/net/tun").exists() {
        return Err("the machine has no /dev/net/tun".to_owned());
    }
    let queues = receive_queues(name).map_err(|error| format!("receive queues cannot be counted: {error}"))?;
    Ok(format!("a stream with a budget in packets has a ring on each of {queues} receive queues"))
}

/// Returns an error if the kernel's receive packet steering is on for the interface. Receive packet
/// steering takes the packets of a stream from the stream's kernel thread, and gives them to the
/// receive context of another core (Documentation/networking/scaling.rst).
fn packet_steering(name: &str) -> Result<String, String> {
    interface::index(name).map_err(|_| format!("there is no interface {name}"))?;
    let settings = InterfaceSettings::open().map_err(|error| error.to_string())?;
    packet_steering_finding(&settings.of(name))
}

/// Returns an error if receive packet steering is on in a queue, or if the queues cannot be listed.
/// `folder` is the folder of the interface in sysfs.
fn packet_steering_finding(folder: &Path) -> Result<String, String> {
    let read = |path: &Path| fs::read_to_string(path).map(|text| text.trim().to_owned());
    let unreadable = |error: io::Error| format!("{} is not readable: {error}", folder.display());
    let is_zero = |text: String| text.chars().all(|digit| digit == '0' || digit == ',');
    let mut steering = Vec::new();
    for queue in fs::read_dir(folder.join("queues")).map_err(unreadable)? {
        let queue = queue.map_err(unreadable)?;
        let number = queue.file_name().to_string_lossy().into_owned();
        if !number.starts_with("rx-") {
            continue;
        }
        for setting in ["rps_cpus", "rps_flow_cnt"] {
            // A missing setting means that the kernel has no receive packet steering.
            if read(&queue.path().join(setting)).is_ok_and(|text| !is_zero(text)) {
                steering.push(format!("{setting} of {number}"));
            }
        }
    }
    steering.sort_unstable();
    if steering.is_empty() {
        return Ok("off: each packet stays with its kernel thread".to_owned());
    }
    Err(format!("the kernel takes packets from the kernel threads of streams, because of {}", steering.join(", ")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receive_packet_steering_is_found_in_each_receive_queue() {
        let folder = std::env::temp_dir().join(format!("corelane-rio-{}", std::process::id()));
        let queues = folder.join("lo/queues");
        let write = |path: &str, text: &str| {
            let path = queues.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("tx-0/xps_cpus", "3\n");
        write("rx-0/rps_cpus", "00000000,00000000\n");
        write("rx-0/rps_flow_cnt", "0\n");
        let found = || packet_steering_finding(&folder.join("lo"));
        assert!(found().is_ok(), "{:?}", found());
        write("rx-1/rps_cpus", "00000000,00000002\n");
        write("rx-0/rps_flow_cnt", "4096\n");
        let reason = found().unwrap_err();
        assert!(reason.ends_with("because of rps_cpus of rx-1, rps_flow_cnt of rx-0"), "{reason}");
        fs::remove_dir_all(&folder).unwrap();
        assert!(found().unwrap_err().contains("is not readable"));
    }
}
