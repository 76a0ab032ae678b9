//! Thread per connection: the lowest latency for few peers; requests of one connection run one after the other, and a connection
//! that carries several at once moves to the lane's shared threads (decision 4).

use std::sync::Arc;

use corelane_net::Wait;

use super::connection::Connection;
use super::lane::Lane;
use super::worker::{Read, Worker};
use crate::orb::Core;

/// Serves one connection until it ends or moves.
pub(crate) fn run(lane: &Arc<Lane>, core: &Arc<Core>, connection: &Arc<Connection>, token: u64) {
    let mut worker = Worker::new();
    loop {
        let Some(mut turn) = connection.reading.enter() else { return };
        match turn.with(|reading| worker.read(reading, connection, &core.config().limits, Wait::Block)) {
            Read::Message { message, more: false } => {
                drop(turn);
                if !worker.serve(core, connection, message, Wait::Block) {
                    return lane.ended(core, token);
                }
            }
            Read::Message { message, more: true } => {
                drop(turn);
                lane.share(core, connection, token);
                if !worker.serve(core, connection, message, Wait::Now) {
                    lane.ended(core, token);
                }
                return;
            }
            Read::Nothing => {}
            Read::End => {
                drop(turn);
                return lane.ended(core, token);
            }
            Read::Fault(fault) => {
                drop(turn);
                return lane.refuse(core, connection, token, fault);
            }
        }
    }
}
