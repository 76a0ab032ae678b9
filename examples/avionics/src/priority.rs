//! Scheduling classes: sets fixed priorities if the machine permits them, and reports the class
//! that the kernel granted.

use corelane_sys::thread::{Scheduling, scheduling, set_scheduling};

/// Priority of the server's threads, above the priority of every client.
pub(crate) const SERVER: u8 = 40;

/// Sets the calling thread's fixed priority, if `wanted` is given, and returns the class that the
/// kernel granted.
pub(crate) fn raise(wanted: Option<u8>) -> String {
    if let Some(priority) = wanted {
        // Errors are ignored: the function returns the class that the kernel granted.
        let _ = set_scheduling(None, Scheduling::Fifo(priority));
    }
    granted()
}

/// Returns the scheduling class of the calling thread.
pub(crate) fn granted() -> String {
    match scheduling(None) {
        Ok(Scheduling::Fifo(priority)) => format!("FIFO {priority}"),
        Ok(Scheduling::RoundRobin(priority)) => format!("RR {priority}"),
        Ok(Scheduling::Other) => "OTHER".into(),
        Ok(Scheduling::Idle) => "IDLE".into(),
        Ok(Scheduling::Deadline(_)) => "DEADLINE".into(),
        Err(error) => error.to_string(),
    }
}

pub(crate) fn lower() {
    // Errors are ignored: the kernel does not refuse a lower class.
    let _ = set_scheduling(None, Scheduling::Other);
}
