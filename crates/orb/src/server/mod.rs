//! The server: lanes with their listeners, connections and threads, and the way of a request
//! through them.

mod acceptor;
pub(crate) mod admission;
mod burst_role;
pub(crate) mod config;
pub(crate) mod connection;
mod draining;
pub(crate) mod final_messages;
pub(crate) mod handler;
pub(crate) mod idle_eviction;
pub(crate) mod lane;
pub(crate) mod lane_role;
pub(crate) mod memory_budget;
pub(crate) mod message;
pub(crate) mod nested_wait;
pub(crate) mod parked_request;
mod ready_list;
pub(crate) mod ready_queue;
pub(crate) mod strategy;
pub(crate) mod worker;

use std::io;
use std::sync::Arc;

use corelane_sys::thread::{Builder, JoinHandle, Scheduling};

use crate::event::Event;
use crate::thread_context;
pub(crate) use acceptor::delegate;
use handler::RequestHandler;
use lane::Lane;
use strategy::ThreadStarter;

/// The function that a thread of a lane runs.
pub(crate) type Run<H> = fn(&Arc<Lane>, &Arc<H>);

/// Starts the threads of a lane.
pub(crate) fn start<H: RequestHandler>(
    lane: &Arc<Lane>,
    handler: &Arc<H>,
    threads: &mut Vec<JoinHandle<()>>,
) -> io::Result<()> {
    lane.strategy.start(&mut ThreadStarter { lane, handler, threads })
}

/// Starts one thread of a lane, on the lane's cores and at its priority. Where the system refuses
/// that, the thread runs in the ordinary class, and an event says so. Threads of the builder's
/// pools inherit from the thread that made the ORB.
fn spawn<H: RequestHandler>(
    lane: &Arc<Lane>,
    handler: &Arc<H>,
    name: String,
    run: impl Fn(&Arc<Lane>, &Arc<H>) + Clone + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let body = |native| {
        let (lane, handler, run) = (Arc::clone(lane), Arc::clone(handler), run.clone());
        move || {
            thread_context::set_owner(handler.context().stamp());
            thread_context::enter_lane(lane.identity(handler.context().stamp()), native);
            run(&lane, &handler);
        }
    };
    let builder = Builder::new()
        .name(name.clone())
        .stack_size(lane.config.thread_stack_size)
        .prefault(handler.context().config().locks_memory);
    let Some(role) = &lane.role else { return builder.spawn(body(None)) };
    let builder = builder.preferred_affinity(handler.context().cores());
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
            handler.context().events().report(&Event::PriorityRefused { thread: name, error: error.to_string() });
            builder.scheduling(Scheduling::Other).spawn(body(None))
        }
        spawned => spawned,
    }
}
