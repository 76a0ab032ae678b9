//! The flight computer as a lane with a guaranteed stream of real-time I/O.

use std::sync::Arc;
use std::time::Duration;

use corelane::poa::PoaPolicies;
use corelane::rt::{LaneConfig, LanesConfig, PriorityModel, RtPolicies};
use corelane::{IoClass, ObjectRef, Orb, Servant, Transports};
use corelane_net::Transport;
use corelane_rio::{RioConfig, RioTransport};
use corelane_sys::bpf::AttachMode;

use crate::{Result, link};

/// CORBA priority of the lane, whose native priority is near that of [`crate::priority::SERVER`].
const PRIORITY: i16 = 13_000;
/// The budget of the commands. The commands of all clients have less than 40 KiB in a second.
const COMMANDS: IoClass = IoClass::Guaranteed { bytes: 16 << 10, period: Duration::from_millis(10) };

pub(crate) fn config() -> RioConfig {
    // The other end of the link computes no checksums, so the XDP program is attached in the
    // generic path.
    RioConfig::for_interface(link::INTERFACE).attach_mode(AttachMode::Generic)
}

pub(crate) fn serve(rio: &Arc<RioTransport>, servant: &Servant) -> Result<(Orb, ObjectRef)> {
    let transport: Arc<dyn Transport> = rio.clone();
    let orb = Orb::builder()
        .transports(Transports::new(vec![transport]))
        .listen(format!("tcp:{}:0", link::ADDRESS))
        .log_events()
        .build()?;
    let lane = LaneConfig::default().priority(PRIORITY).static_threads(2).io_class(COMMANDS);
    let pool = orb.real_time().create_threadpool_with_lanes(&LanesConfig::default().lanes([lane]))?;
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ServerDeclared, PRIORITY)),
        threadpool: Some(pool),
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    let poa = root.create_rt_poa("flight", Some(root.manager()), PoaPolicies::default(), &policies)?;
    let object = poa.activate(servant)?;
    root.manager().activate()?;
    Ok((orb, object))
}

/// Prints the lines that the demo shows in its report, each of which begins with `stream`.
pub(crate) fn print(rio: &RioTransport) {
    println!("stream    level {}; not higher, because {}", rio.level(), rio.level_limit_reason());
    for stream in rio.streams() {
        let bytes = stream.budget.map_or(0, |budget| budget.received_bytes);
        let waits = stream.budget.map_or(0, |budget| budget.wait_count);
        println!("stream    commands: guaranteed, {bytes} bytes received, {waits} waits for the budget");
        if let (Some(frames), Some(thread)) = (stream.frame_counts, &stream.kernel_thread) {
            println!(
                "stream    commands: {} frames to the thread {thread}, {} missed",
                frames.queued_frames, frames.undeliverable_frames
            );
        }
        stream.missing_feature_reason.iter().for_each(|lack| println!("stream    commands: {lack}"));
    }
    if let Some(frames) = rio.best_effort_frames() {
        println!(
            "stream    bulk and the rest: best effort, {} frames in the receive context",
            frames.undeliverable_frames
        );
    }
}
