//! The server's side: lanes with their listeners, connections and threads, and the way of a request through them.

pub(crate) mod config;
pub(crate) mod connection;
pub(crate) mod lane;
pub(crate) mod request;
pub(crate) mod worker;

use std::io;
use std::sync::Arc;

use corelane_sys::thread::{Builder, JoinHandle};

use crate::orb::Core;
use config::Dispatch;
use lane::Lane;

/// Starts the threads of a lane.
pub(crate) fn start(lane: &Arc<Lane>, core: &Arc<Core>) -> io::Result<Vec<JoinHandle<()>>> {
    let threads = match lane.config.dispatch {
        Dispatch::Reactive => 1,
        Dispatch::LeaderFollowers { threads } => threads.max(1),
        Dispatch::ThreadPerConnection { .. } | Dispatch::HalfSyncHalfAsync { .. } => 1,
    };
    (0..threads)
        .map(|index| {
            let (lane, core) = (Arc::clone(lane), Arc::clone(core));
            Builder::new()
                .name(format!("{}/{index}", lane.config.name))
                .stack_size(lane.config.stack)
                .spawn(move || lane.run(&core))
        })
        .collect()
}
