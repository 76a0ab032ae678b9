//! The server's side: lanes with their listeners, connections and threads, and the way of a request through them.

pub(crate) mod admission;
pub(crate) mod closing;
pub(crate) mod config;
pub(crate) mod connection;
mod dedicated;
pub(crate) mod lane;
mod queue;
pub(crate) mod request;
pub(crate) mod serving;
pub(crate) mod worker;

use std::io;
use std::sync::Arc;

use corelane_sys::thread::{Builder, JoinHandle};

use crate::orb::Core;
use config::Dispatch;
use lane::Lane;

/// Starts the threads of a lane.
pub(crate) fn start(lane: &Arc<Lane>, core: &Arc<Core>, threads: &mut Vec<JoinHandle<()>>) -> io::Result<()> {
    let (leaders, workers) = match lane.config.dispatch {
        Dispatch::Reactive => (1, 0),
        Dispatch::LeaderFollowers { threads } => (threads.max(1), 0),
        // What accepts, and serves connections that carry several requests at once.
        Dispatch::ThreadPerConnection { .. } => (SHARED, 0),
        Dispatch::HalfSyncHalfAsync { threads, .. } => (1, threads.max(1)),
    };
    let spawn = |role: char, index: usize, run: fn(&Arc<Lane>, &Arc<Core>)| {
        let (lane, core) = (Arc::clone(lane), Arc::clone(core));
        let builder = Builder::new().name(format!("{}/{role}{index}", lane.config.name)).stack_size(lane.config.stack);
        builder.spawn(move || run(&lane, &core))
    };
    for index in 0..leaders {
        threads.push(spawn('l', index, |lane, core| lane.run(core))?);
    }
    for index in 0..workers {
        threads.push(spawn('w', index, |lane, core| lane.run_queued(core))?);
    }
    Ok(())
}

/// Shared threads of a pool with a thread per connection.
const SHARED: usize = 4;
