//! The link between receiver and sender: a `veth` pair whose ends are in two network namespaces.
//!
//! Each end receives in a kernel thread (threaded NAPI) on the core of its side, at a priority
//! above all other threads of the benchmark. Without this thread the kernel would process the
//! packets of one side on the core of the other side.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use corelane_sys::interface::{self, Offload};
use corelane_sys::thread::{self, CpuSet, Scheduling};
use corelane_sys::{bpf, clock};

use crate::Failure;

pub(super) const RECEIVER: &str = "10.99.0.1";
pub(super) const SENDER: &str = "10.99.0.2";

const INTERRUPT_PRIORITY: u8 = 90;
/// Maximum number of segments that TCP sends at once. With single segments, the sender's core is
/// fully busy before the receiver's. With 44 segments, about 0.1 % of the frames found the queue of
/// the `veth` interface (256 frames) full.
pub(super) const MAX_SEGMENTS_AT_ONCE: u32 = 8;

const PATIENCE: Duration = Duration::from_secs(10);

/// Capabilities that the namespaces, the link and its threads need
/// (include/uapi/linux/capability.h).
const NEEDED: [(&str, u32); 3] = [("CAP_NET_ADMIN", 12), ("CAP_SYS_ADMIN", 21), ("CAP_SYS_NICE", 23)];

/// Returns a message if the process lacks one of the capabilities in [`NEEDED`].
pub(super) fn refusal() -> Option<String> {
    let missing = NEEDED.iter().find(|(_, number)| !bpf::has_capability(*number));
    missing.map(|(name, _)| format!("network namespaces are not permitted: the process lacks {name}"))
}

/// Returns the names of the interfaces of receiver and sender. The receiver's process id
/// distinguishes the kernel threads of runs that take place at the same time.
pub(super) fn interfaces(receiver: u32) -> (String, String) {
    (format!("rr{receiver}"), format!("rs{receiver}"))
}

pub(super) fn make(receiver: u32, sender: &str) -> Result<(), Failure> {
    let (own, peer) = interfaces(receiver);
    // Without checksums of the driver, the kernel cuts the data of TCP into frames before the
    // driver, so that each segment is a separate frame, as on a wire.
    let segments = MAX_SEGMENTS_AT_ONCE;
    let (own_end, peer_end) = (format!("{own} gso_max_segs {segments}"), format!("{peer} gso_max_segs {segments}"));
    ip(&format!("link add {own_end} type veth peer name {peer_end} netns {sender}"))?;
    configure(&own, RECEIVER)
}

pub(super) fn configure(name: &str, address: &str) -> Result<(), Failure> {
    let set = |offload, is_on| {
        let failed = |error| Failure::new(format!("{name}: {offload:?} cannot be set: {error}"));
        interface::set_offload(name, offload, is_on).map_err(failed)
    };
    set(Offload::SentChecksums, false)?;
    set(Offload::MergedSegments, true)?;
    ip(&format!("address add {address}/24 dev {name}"))?;
    ip(&format!("link set {name} up"))
}

/// Makes the interface receive in kernel threads on `core`, at [`INTERRUPT_PRIORITY`]. Returns the
/// number of threads.
pub(super) fn receive_on(name: &str, core: usize) -> Result<usize, Failure> {
    let deadline = clock::now() + PATIENCE;
    while !interface::is_running(name).unwrap_or(false) {
        if deadline.is_past() {
            return Err(Failure::new(format!("{name} has no carrier")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let failed = |error: std::io::Error| Failure::new(format!("{name} has no receiving threads: {error}"));
    fs::write(format!("/sys/class/net/{name}/threaded"), "1").map_err(failed)?;
    let threads = kernel_threads(&format!("napi/{name}-"));
    if threads.is_empty() {
        return Err(Failure::new(format!("{name}: threads of the kernel are hidden by a PID namespace")));
    }
    for thread in &threads {
        let found = thread::find_kernel_thread(thread).map_err(failed)?;
        let tid = found.ok_or_else(|| Failure::new(format!("{name}: the kernel's thread {thread} has ended")))?;
        thread::set_affinity(Some(tid), &CpuSet::one(core)).map_err(failed)?;
        thread::set_scheduling(Some(tid), Scheduling::Fifo(INTERRUPT_PRIORITY)).map_err(failed)?;
    }
    Ok(threads.len())
}

fn kernel_threads(prefix: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let name = |path: &Path| fs::read_to_string(path.join("comm")).ok();
    let names = entries.filter_map(|entry| name(&entry.path())).map(|name| name.trim_end().to_owned());
    names.filter(|name| name.starts_with(prefix)).collect()
}

fn ip(words: &str) -> Result<(), Failure> {
    let output = Command::new("ip").args(words.split(' ')).output();
    let output = output.map_err(|error| Failure::new(format!("`ip` (iproute2) cannot be started: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_interfaces_fit_and_differ() {
        let (own, peer) = interfaces(4_194_304);
        assert!(own.len() < 16 && peer.len() < 16 && own != peer);
        assert_eq!(kernel_threads("no thread has this name"), Vec::<String>::new());
    }
}
