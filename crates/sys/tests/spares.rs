//! Memory of large messages is there for the next ones, and goes back.

use std::thread;

use corelane_sys::buffer::{Buffer, Spares};
use corelane_sys::counters;

const LARGE: usize = 1 << 20;

fn buffer(octets: usize, spares: &Spares) -> Buffer {
    let mut buffer = Buffer::new();
    buffer.reserve_from(octets, spares).unwrap();
    buffer
}

fn filled(octets: usize, spares: &Spares) -> Buffer {
    let mut buffer = buffer(octets, spares);
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

#[test]
fn what_large_messages_leave_behind() {
    let alone = || drop(Buffer::with_capacity(LARGE).unwrap());
    assert_eq!(calls(alone), 2, "nobody keeps anything: mapped and unmapped");
    let spares = &Spares::new();
    drop(filled(LARGE, spares));
    assert_eq!(spares.held(), LARGE);
    assert_eq!(calls(|| drop(filled(LARGE, spares))), 0);
    // On another thread, and for a message that is not quite as large.
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(calls(|| drop(filled(LARGE * 3 / 4, spares))), 0));
    });

    // It is memory as soon as it is taken, not only when octets arrive.
    let again = buffer(LARGE, spares);
    assert_eq!((again.committed(), again.len(), spares.held()), (LARGE, 0, 0));
    assert_eq!(buffer(LARGE, spares).committed(), 0);
    drop(again);

    // None for a message of another size: who keeps a part of it would keep the whole.
    let small = buffer(LARGE / 4, spares);
    assert_eq!(small.committed(), 0);
    drop(small);

    // What was taken since counts anew; what was not, goes.
    spares.age();
    drop(filled(LARGE, spares));
    spares.age();
    assert_eq!(spares.held(), LARGE);
    spares.age();
    assert_eq!(spares.held(), 0);

    // No more than a few, and not much more than 64 MiB of memory.
    drop((0..20).map(|_| filled(LARGE, spares)).collect::<Vec<_>>());
    assert_eq!(spares.held(), 8 * LARGE);
    spares.age();
    spares.age();
    drop((0..5).map(|_| filled(16 * LARGE, spares)).collect::<Vec<_>>());
    assert_eq!(spares.held(), 64 * LARGE);
    drop(filled(65 * LARGE, spares));
    assert_eq!(spares.held(), 64 * LARGE);

    // The largest message that is taken by default, and what was read behind it.
    spares.age();
    spares.age();
    drop(filled(64 * LARGE + 100, spares));
    assert_eq!(spares.held(), 64 * LARGE + 100);

    // Threads that take and leave them at once.
    spares.age();
    spares.age();
    thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                for round in 0..200 {
                    let mut buffer = buffer(LARGE / 8, spares);
                    let octets = 100_000 + round;
                    buffer.spare()[..octets].fill(thread);
                    buffer.filled(octets);
                    thread::yield_now();
                    assert!(buffer.iter().all(|octet| *octet == thread));
                }
            });
        }
    });
    assert!(spares.held() > 0);

    // What follows a large message stays with its like, and nobody else has any of it.
    let other = Spares::new();
    let (mut whole, mut rest) = (filled(2 * LARGE, &other), Buffer::new());
    whole.split_off_into(LARGE, &mut rest).unwrap();
    assert_eq!(other.held(), 0);
    drop(rest);
    assert_eq!(other.held(), LARGE);
    let own = Spares::new();
    assert_eq!(calls(|| drop(filled(LARGE, &own))), 1, "mapped, and kept");

    // Who has ended keeps none, whatever is still on its way; and memory may outlive its spares.
    spares.end();
    assert_eq!((spares.held(), calls(|| drop(filled(LARGE, spares)))), (0, 2));
    drop(other);
    assert_eq!(calls(|| drop(whole)), 2, "itself, and the spare that there was");
}
