//! Scheduling classes: fixed priorities where the machine permits them, and an honest word where it does not.

use corelane_sys::thread::{Scheduling, scheduling, set_scheduling};

/// The server's threads that have deadlines: above every client, so a call runs at once.
pub(crate) const SERVER: u8 = 40;

/// Gives the calling thread, and those it starts, a fixed priority if there is one to give. Returns what the kernel granted.
pub(crate) fn raise(wanted: Option<u8>) -> String {
    if let Some(priority) = wanted {
        // A refusal is not hidden: what follows says what is in force.
        let _ = set_scheduling(None, Scheduling::Fifo(priority));
    }
    match scheduling(None) {
        Ok(Scheduling::Fifo(priority)) => format!("FIFO {priority}"),
        Ok(Scheduling::RoundRobin(priority)) => format!("RR {priority}"),
        Ok(Scheduling::Other) => "OTHER".into(),
        Ok(Scheduling::Idle) => "IDLE".into(),
        Ok(Scheduling::Deadline(_)) => "DEADLINE".into(),
        Err(error) => error.to_string(),
    }
}

/// Gives the calling thread the ordinary class.
pub(crate) fn lower() {
    // Nobody is refused less than they have.
    let _ = set_scheduling(None, Scheduling::Other);
}
