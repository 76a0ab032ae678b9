//! Thread per connection: the lowest latency for few peers; requests of one connection run one after the other, and a connection
//! that carries several at once moves to the lane's shared threads.

use std::sync::Arc;

use corelane_net::Wait;

use super::connection::Connection;
use super::lane::Lane;
use super::serving;
use super::worker::{Read, Worker};
use crate::orb::Core;

/// Serves one connection until it ends or moves.
pub(crate) fn run(lane: &Arc<Lane>, core: &Arc<Core>, connection: &Arc<Connection>) {
    crate::current::belongs_to(core.adapters().stamp);
    serving::dedicate(lane, core, connection);
    serve(lane, core, connection);
    serving::leave();
}

fn serve(lane: &Arc<Lane>, core: &Arc<Core>, connection: &Arc<Connection>) {
    let mut worker = Worker::new();
    loop {
        if connection.is_paused() {
            // The shared threads are told when reading goes on.
            return serving::let_others_read();
        }
        let Some(mut turn) = connection.reading.enter() else { return };
        let (message, more) = match turn.with(|reading| worker.read(reading, connection, core, Wait::Block)) {
            Read::Here { more } => (None, more),
            Read::Message { message, more } => (Some(message), more),
            Read::Nothing => continue,
            Read::Over => return,
            Read::End => {
                drop(turn);
                return lane.peer_ended(core, connection);
            }
            Read::Fault(fault) => {
                drop(turn);
                return lane.refuse(core, connection, fault);
            }
        };
        drop(turn);
        connection.note_heard(lane.silence.now());
        let Some(held) = lane.hold(connection) else { return };
        let wants_reply =
            || message.as_ref().map_or_else(|| worker.wants_reply_here(), |message| message.wants_reply());
        let moves = more && wants_reply();
        if moves {
            serving::let_others_read();
        }
        // Where a thread of a higher priority may have to answer, nobody has the output while he waits for the peer.
        let wait = if moves || connection.is_answered_elsewhere() { Wait::Now } else { Wait::Block };
        let goes_on = match message {
            None => worker.serve_here(core, connection, wait),
            Some(message) => worker.serve(core, connection, message, wait),
        };
        drop(held);
        if !goes_on {
            return lane.ended(core, connection.place);
        }
        if !serving::is_dedicated() || lane.closes() {
            return;
        }
    }
}
