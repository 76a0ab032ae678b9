//! Memory of large messages is there for the next ones, and goes back.

use std::thread;

use corelane_sys::buffer::{Buffer, Spares};
use corelane_sys::counters;

const LARGE: usize = 1 << 20;

fn filled(octets: usize) -> Buffer {
    let mut buffer = Buffer::with_capacity(octets).unwrap();
    buffer.spare().fill(7);
    buffer.filled(octets);
    buffer
}

/// System calls of `work`.
fn calls(work: impl FnOnce()) -> u64 {
    let before = counters::snapshot();
    work();
    (counters::snapshot() - before).syscalls
}

/// One test, because spares are the process's.
#[test]
fn what_large_messages_leave_behind() {
    assert_eq!(calls(|| drop(filled(LARGE))), 2, "nobody keeps anything: mapped and unmapped");
    let spares = Spares::keep();
    drop(filled(LARGE));
    assert_eq!(Spares::held(), LARGE);
    assert_eq!(calls(|| drop(filled(LARGE))), 0);
    // On another thread, and for a message that is not quite as large.
    thread::spawn(|| assert_eq!(calls(|| drop(filled(LARGE * 3 / 4))), 0)).join().unwrap();

    // It is memory as soon as it is taken, not only when octets arrive.
    let again = Buffer::with_capacity(LARGE).unwrap();
    assert_eq!((again.committed(), again.len(), Spares::held()), (LARGE, 0, 0));
    assert_eq!(Buffer::with_capacity(LARGE).unwrap().committed(), 0);
    drop(again);

    // None for a message of another size: who keeps a part of it would keep the whole.
    let small = Buffer::with_capacity(LARGE / 4).unwrap();
    assert_eq!(small.committed(), 0);
    drop(small);

    // What was taken since counts anew; what was not, goes.
    spares.age();
    drop(filled(LARGE));
    spares.age();
    assert_eq!(Spares::held(), LARGE);
    spares.age();
    assert_eq!(Spares::held(), 0);

    // No more than a few, and no more than 64 MiB of memory.
    drop((0..20).map(|_| filled(LARGE)).collect::<Vec<_>>());
    assert_eq!(Spares::held(), 8 * LARGE);
    spares.age();
    spares.age();
    drop((0..5).map(|_| filled(16 * LARGE)).collect::<Vec<_>>());
    assert_eq!(Spares::held(), 64 * LARGE);
    drop(filled(65 * LARGE));
    assert_eq!(Spares::held(), 64 * LARGE);

    // Threads that take and leave them at once.
    thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                for round in 0..200 {
                    let mut buffer = Buffer::with_capacity(LARGE / 8).unwrap();
                    let octets = 100_000 + round;
                    buffer.spare()[..octets].fill(thread);
                    buffer.filled(octets);
                    thread::yield_now();
                    assert!(buffer.iter().all(|octet| *octet == thread));
                }
            });
        }
    });
    let other = Spares::keep();
    drop(spares);
    assert!(Spares::held() > 0);
    drop(other);
    assert_eq!(Spares::held(), 0);
}
