//! A test helper for priority inheritance: it finds out if a waiting thread gives its priority to
//! the holder of a resource.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use corelane_sys::thread::{Scheduling, ThreadBuilder, current_tid};

/// Returns the kernel's current priority of a thread of this process. For the fixed priority n this
/// is -1 - n.
fn effective_priority(tid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
    let fields = stat.rsplit(')').next().unwrap();
    fields.split_whitespace().nth(15).unwrap().parse().unwrap()
}

/// Returns true if a holder of priority 1 inherits the priority of a waiter of priority 10. The
/// holder's thread calls `hold(f)`, which takes the resource and calls `f` while it holds it. The
/// waiter's thread calls `wait`, which blocks on the resource.
pub(crate) fn inherits_priority(
    hold: impl FnOnce(&dyn Fn()) + Send + 'static,
    wait: impl FnOnce() + Send + 'static,
) -> bool {
    let (holder, done) = (Arc::new(AtomicI32::new(0)), Arc::new(AtomicBool::new(false)));
    let pause = || std::thread::sleep(Duration::from_millis(1));
    let (tid, end) = (Arc::clone(&holder), Arc::clone(&done));
    let low = ThreadBuilder::new().name("low").scheduling(Scheduling::Fifo(1)).spawn(move || {
        hold(&|| {
            tid.store(current_tid().as_raw(), Ordering::SeqCst);
            while !end.load(Ordering::SeqCst) {
                pause();
            }
        });
    });
    let low = low.unwrap_or_else(|error| panic!("SCHED_FIFO is not permitted here: {error}"));
    while holder.load(Ordering::SeqCst) == 0 {
        pause();
    }
    let high = ThreadBuilder::new().name("high").scheduling(Scheduling::Fifo(10)).spawn(wait).unwrap();
    let lent = (0..20_000).any(|_| {
        pause();
        high.is_finished() || effective_priority(holder.load(Ordering::SeqCst)) == -11
    });
    // If the waiter did not have to wait, the result says nothing.
    let waited = !high.is_finished();
    done.store(true, Ordering::SeqCst);
    low.join().unwrap();
    high.join().unwrap();
    lent && waited
}
