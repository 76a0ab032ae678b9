//! Scheduling classes: sets fixed priorities if the machine permits them, and reports the class
//! that the kernel granted.

use corelane_sys::thread::{Scheduling, scheduling, set_scheduling};

/// Priority of the server's threads with deadlines. It is higher than the priority of every client,
/// so that the server runs a call at once.
pub(crate) const SERVER: u8 = 40;

/// Gives the fixed priority `wanted` to the calling thread and to the threads that it starts later.
/// `None` changes nothing. Returns the class that the kernel granted.
pub(crate) fn raise(wanted: Option<u8>) -> String {
    if let Some(priority) = wanted {
        // Errors are ignored: the function returns the class that the kernel granted.
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

/// Gives the calling thread the ordinary scheduling class.
pub(crate) fn lower() {
    // Errors are ignored: the kernel does not refuse a lower class.
    let _ = set_scheduling(None, Scheduling::Other);
}
