//! Probes record the wait for a lock that another thread holds. The test has a process of its own,
//! because probes record all threads of a process.

use corelane_sys::lock::{LockScope, Mutex, PiMutex};
use corelane_sys::probe;

fn points() -> Vec<&'static str> {
    probe::collect().into_iter().map(|record| record.point).collect()
}

fn while_held<G>(guard: G, wait: impl FnOnce() + Send) {
    probe::enable();
    std::thread::scope(|scope| {
        scope.spawn(wait);
        while points() != ["lock wanted"] {
            std::thread::yield_now();
        }
        drop(guard);
    });
    probe::disable();
    assert_eq!(points(), ["lock wanted", "lock taken"]);
}

#[test]
fn lock_wait_is_recorded_by_probes() {
    let lent = PiMutex::new("lent", LockScope::Connection, ());
    while_held(lent.lock(), || drop(lent.lock()));
    let plain = Mutex::new("plain", LockScope::Connection, ());
    while_held(plain.lock(), || drop(plain.lock()));
    probe::enable();
    drop((lent.lock(), plain.lock()));
    assert_eq!(points(), [""; 0]);
}
