//! The server's side: lanes with their listeners, connections and threads, and the way of a request through them.

mod accepting;
pub(crate) mod admission;
pub(crate) mod arriving;
pub(crate) mod budget;
pub(crate) mod closing;
pub(crate) mod config;
pub(crate) mod connection;
mod dedicated;
mod endings;
pub(crate) mod keeper;
pub(crate) mod lane;
mod queue;
mod ready;
pub(crate) mod request;
mod rush;
pub(crate) mod serving;
pub(crate) mod silence;
mod unsent;
pub(crate) mod worker;

use std::io;
use std::sync::Arc;

use corelane_sys::thread::{Builder, JoinHandle, Scheduling};

use crate::event::Event;
use crate::orb::Core;
use crate::rt::station;
use config::Dispatch;
use lane::Lane;

/// What a thread of a lane runs.
pub(crate) type Run = fn(&Arc<Lane>, &Arc<Core>);

/// Starts the threads of a lane.
pub(crate) fn start(lane: &Arc<Lane>, core: &Arc<Core>, threads: &mut Vec<JoinHandle<()>>) -> io::Result<()> {
    let (leaders, workers) = match lane.config.dispatch {
        Dispatch::Reactive => (1, 0),
        Dispatch::LeaderFollowers { threads } => (threads.max(1), 0),
        // What accepts, and serves connections that carry several requests at once.
        Dispatch::ThreadPerConnection { .. } => (SHARED, 0),
        Dispatch::HalfSyncHalfAsync { threads, .. } => (1, threads.max(1)),
    };
    let spawn =
        |role: char, index: usize, run: Run| spawn(lane, core, format!("{}/{role}{index}", lane.config.name), run);
    let run: Run = match &lane.keeper {
        None => |lane, core| lane.run(core),
        Some(keeper) => {
            threads.push(spawn('k', 0, keeper.keep)?);
            keeper.run
        }
    };
    for index in 0..leaders {
        threads.push(spawn('l', index, run)?);
    }
    for index in 0..workers {
        threads.push(spawn('w', index, |lane, core| lane.run_queued(core))?);
    }
    Ok(())
}

/// Starts one thread of a lane: on its cores and at its priority where the system permits it, else in the ordinary class, and said so.
/// Threads of the builder's pools are like the one that starts them: all begin with the thread that made the ORB.
fn spawn(
    lane: &Arc<Lane>,
    core: &Arc<Core>,
    name: String,
    run: impl Fn(&Arc<Lane>, &Arc<Core>) + Clone + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let body = |native| {
        let (lane, core, run) = (Arc::clone(lane), Arc::clone(core), run.clone());
        move || {
            crate::current::belongs_to(core.adapters().stamp);
            station::occupy(core.adapters().stamp, &lane, native);
            run(&lane, &core);
        }
    };
    let builder = Builder::new().name(name.clone()).stack_size(lane.config.stack).prefault(core.config().locks_memory);
    let Some(role) = &lane.role else { return builder.spawn(body(None)) };
    let builder = builder.preferred_affinity(core.cores());
    let mut wanted = builder.clone().scheduling(role.native.unwrap_or(Scheduling::Other));
    if let Some(cores) = role.cores {
        wanted = wanted.affinity(cores);
    }
    match wanted.spawn(body(role.native)) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput | io::ErrorKind::ResourceBusy
            ) =>
        {
            core.events().report(&Event::PriorityRefused { thread: name, error: error.to_string() });
            builder.scheduling(Scheduling::Other).spawn(body(None))
        }
        spawned => spawned,
    }
}

/// Shared threads of a pool with a thread per connection.
const SHARED: usize = 4;
