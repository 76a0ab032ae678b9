//! A test of priority inheritance: it checks if the holder of a resource inherits the priority of a
//! waiting thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use corelane_sys::thread::{Scheduling, ThreadBuilder, current_tid};

/// Returns the present priority of a thread as `/proc` shows it: -1 - n for the fixed priority n.
fn effective_priority(tid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
    let fields = stat.rsplit(')').next().unwrap();
    fields.split_whitespace().nth(15).unwrap().parse().unwrap()
}

/// Returns true if the holder of a resource inherits the priority of a waiting thread. `hold(f)`
/// takes the resource, and calls `f` before it releases the resource. `wait` blocks on the
/// resource.
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
    let waited = !high.is_finished();
    done.store(true, Ordering::SeqCst);
    low.join().unwrap();
    high.join().unwrap();
    lent && waited
}
