//! The server: lanes with their listeners, connections and threads, and the way of a request
//! through them.

mod acceptor;
pub(crate) mod admission;
pub(crate) mod config;
pub(crate) mod connection;
mod draining;
pub(crate) mod idle_eviction;
pub(crate) mod lane;
pub(crate) mod memory_budget;
pub(crate) mod nested_wait;
mod ready_list;
pub(crate) mod request;
pub(crate) mod strategy;
pub(crate) mod worker;

use std::io;
use std::sync::Arc;

use corelane_sys::thread::{Builder, JoinHandle, Scheduling};

use crate::event::Event;
use crate::orb::Core;
use crate::thread_context;
pub(crate) use acceptor::delegate;
use lane::Lane;
use strategy::ThreadStarter;

/// The function that a thread of a lane runs.
pub(crate) type Run = fn(&Arc<Lane>, &Arc<Core>);

/// Starts the threads of a lane.
pub(crate) fn start(lane: &Arc<Lane>, core: &Arc<Core>, threads: &mut Vec<JoinHandle<()>>) -> io::Result<()> {
    lane.strategy.start(&mut ThreadStarter { lane, core, threads })
}

/// Starts one thread of a lane, on the lane's cores and at its priority. Where the system refuses
/// that, the thread runs in the ordinary class, and an event says so. Threads of the builder's
/// pools inherit from the thread that made the ORB.
fn spawn(
    lane: &Arc<Lane>,
    core: &Arc<Core>,
    name: String,
    run: impl Fn(&Arc<Lane>, &Arc<Core>) + Clone + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let body = |native| {
        let (lane, core, run) = (Arc::clone(lane), Arc::clone(core), run.clone());
        move || {
            crate::current::set_owner(core.poa_table().stamp);
            thread_context::enter_lane(lane.identity(core.poa_table().stamp), native);
            run(&lane, &core);
        }
    };
    let builder = Builder::new()
        .name(name.clone())
        .stack_size(lane.config.thread_stack_size)
        .prefault(core.config().locks_memory);
    let Some(role) = &lane.role else { return builder.spawn(body(None)) };
    let builder = builder.preferred_affinity(core.cores());
    let mut wanted = builder.clone().scheduling(role.scheduling.unwrap_or(Scheduling::Other));
    if let Some(cores) = role.cores {
        wanted = wanted.affinity(cores);
    }
    match wanted.spawn(body(role.scheduling)) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::ResourceBusy
                    // The kernel, or a filter of system calls, does not know the class.
                    | io::ErrorKind::Unsupported
            ) =>
        {
            core.events().report(&Event::PriorityRefused { thread: name, error: error.to_string() });
            builder.scheduling(Scheduling::Other).spawn(body(None))
        }
        spawned => spawned,
    }
}
