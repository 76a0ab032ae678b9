//! Scheduling classes: fixed priorities if the machine permits them, and a report of the class in
//! force.

use corelane_sys::thread::{Scheduling, scheduling, set_scheduling};

/// Priority of the server's threads with deadlines. It is above every client, so that a call runs
/// at once.
pub(crate) const SERVER: u8 = 40;

/// Gives a fixed priority, if any, to the calling thread and the threads that it starts. Returns
/// the class that the kernel granted.
pub(crate) fn raise(wanted: Option<u8>) -> String {
    if let Some(priority) = wanted {
        // Ignore errors: the class in force is reported below.
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
    // Ignore errors: the kernel does not refuse a lower class.
    let _ = set_scheduling(None, Scheduling::Other);
}
