//! A wait for a lock that another thread holds is between two points of a trace. Alone in its process: points are kept of all threads.

use corelane_sys::lock::{Mutex, PiMutex, Scope};
use corelane_sys::probe;

/// The points of the threads that wait, in order.
fn points() -> Vec<&'static str> {
    probe::collect().into_iter().map(|record| record.point).collect()
}

fn while_held<G>(guard: G, wait: impl FnOnce() + Send) {
    probe::on();
    std::thread::scope(|scope| {
        scope.spawn(wait);
        while points() != ["lock wanted"] {
            std::thread::yield_now();
        }
        drop(guard);
    });
    probe::off();
    assert_eq!(points(), ["lock wanted", "lock taken"]);
}

#[test]
fn a_wait_for_a_lock_can_be_seen() {
    let lent = PiMutex::new("lent", Scope::Connection, ());
    while_held(lent.lock(), || drop(lent.lock()));
    let plain = Mutex::new("plain", Scope::Connection, ());
    while_held(plain.lock(), || drop(plain.lock()));
    // Nobody waits: there is nothing to be seen.
    probe::on();
    drop((lent.lock(), plain.lock()));
    assert_eq!(points(), [""; 0]);
}
