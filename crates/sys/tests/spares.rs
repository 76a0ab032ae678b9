//! The cache of address ranges for large messages: reuse, limits, eviction and closing.

use std::thread;

use corelane_sys::buffer::{Buffer, RegionCache};
use corelane_sys::counters;

const LARGE: usize = 1 << 20;

fn buffer(octets: usize, spares: &RegionCache) -> Buffer {
    let mut buffer = Buffer::new();
    buffer.reserve_from_cache(octets, spares).unwrap();
    buffer
}

fn filled(octets: usize, spares: &RegionCache) -> Buffer {
    let mut buffer = buffer(octets, spares);
    buffer.spare_capacity().fill(7);
    buffer.mark_filled(octets);
    buffer
}

fn calls(work: impl FnOnce()) -> u64 {
    let before = counters::snapshot();
    work();
    (counters::snapshot() - before).syscalls
}

#[test]
fn large_messages_reuse_cached_regions() {
    let alone = || drop(Buffer::with_capacity(LARGE).unwrap());
    assert_eq!(calls(alone), 2, "expected one mmap and one munmap without a cache");
    let spares = &RegionCache::new();
    drop(filled(LARGE, spares));
    assert_eq!(spares.cached_bytes(), LARGE);
    assert_eq!(calls(|| drop(filled(LARGE, spares))), 0);
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(calls(|| drop(filled(LARGE * 3 / 4, spares))), 0));
    });

    // The whole of a cached region counts as committed memory, even before bytes arrive.
    let again = buffer(LARGE, spares);
    assert_eq!((again.committed_bytes(), again.len(), spares.cached_bytes()), (LARGE, 0, 0));
    assert_eq!(buffer(LARGE, spares).committed_bytes(), 0);
    drop(again);

    let small = buffer(LARGE / 4, spares);
    assert_eq!(small.committed_bytes(), 0);
    drop(small);

    spares.evict_unused();
    drop(filled(LARGE, spares));
    spares.evict_unused();
    assert_eq!(spares.cached_bytes(), LARGE);
    spares.evict_unused();
    assert_eq!(spares.cached_bytes(), 0);

    drop((0..20).map(|_| filled(LARGE, spares)).collect::<Vec<_>>());
    assert_eq!(spares.cached_bytes(), 8 * LARGE);
    spares.evict_unused();
    spares.evict_unused();
    drop((0..5).map(|_| filled(16 * LARGE, spares)).collect::<Vec<_>>());
    assert_eq!(spares.cached_bytes(), 64 * LARGE);
    drop(filled(65 * LARGE, spares));
    assert_eq!(spares.cached_bytes(), 64 * LARGE);

    spares.evict_unused();
    spares.evict_unused();
    drop(filled(64 * LARGE + 100, spares));
    assert_eq!(spares.cached_bytes(), 64 * LARGE + 100);

    // Fails if two threads get the same region.
    spares.evict_unused();
    spares.evict_unused();
    thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                for round in 0..200 {
                    let mut buffer = buffer(LARGE / 8, spares);
                    let octets = 100_000 + round;
                    buffer.spare_capacity()[..octets].fill(thread);
                    buffer.mark_filled(octets);
                    thread::yield_now();
                    assert!(buffer.iter().all(|octet| *octet == thread));
                }
            });
        }
    });
    assert!(spares.cached_bytes() > 0);

    let other = RegionCache::new();
    let (mut whole, mut rest) = (filled(2 * LARGE, &other), Buffer::new());
    whole.split_off_into(LARGE, &mut rest).unwrap();
    assert_eq!(other.cached_bytes(), 0);
    drop(rest);
    assert_eq!(other.cached_bytes(), LARGE);
    let own = RegionCache::new();
    assert_eq!(
        calls(|| drop(filled(LARGE, &own))),
        1,
        "expected one mmap, and no munmap because the cache keeps the region"
    );

    spares.close();
    assert_eq!((spares.cached_bytes(), calls(|| drop(filled(LARGE, spares)))), (0, 2));
    drop(other);
    assert_eq!(calls(|| drop(whole)), 2, "expected two munmap calls: for this region and for the cached one");
}
