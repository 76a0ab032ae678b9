//! Prints the cost of this crate's primitives on this machine, in nanoseconds per operation.
//!
//! `cargo run -p corelane-sys --release --example costs`

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use std::time::Instant;

use corelane_sys::buffer::Buffer;
use corelane_sys::counters;
use corelane_sys::hash_index::HashIndexWriter;
use corelane_sys::lock::{CheckoutCell, LockScope, Mutex, PiMutex};
use corelane_sys::mpsc::Mailbox;
use corelane_sys::rcu_cell::RcuCell;
use corelane_sys::slab::GenerationalSlab;
use corelane_sys::{clock, process, thread};

const ROUNDS: u32 = 1_000_000;
const RUNS: usize = 9;

fn measure(name: &str, mut operation: impl FnMut()) {
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..ROUNDS {
                operation();
            }
            start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    println!("{name:<44} {:>8.2}   (best {:.2}, worst {:.2})", runs[RUNS / 2], runs[0], runs[RUNS - 1]);
}

fn main() {
    let core = thread::current_core();
    println!("Linux {}, core {core:?}, {:?}", kernel(), thread::scheduling(None));
    let word = AtomicU64::new(0);
    measure("baseline: atomic addition", || {
        black_box(&word).fetch_add(1, Ordering::Acquire);
    });
    measure("baseline: two atomic additions", || {
        black_box(&word).fetch_add(1, Ordering::Acquire);
        black_box(&word).fetch_sub(1, Ordering::Release);
    });
    slots();
    let published = RcuCell::new("costs", LockScope::Orb, 7u64);
    measure("RcuCell load + read + drop", || {
        black_box(*black_box(&published).load());
    });
    index();
    measure("counters: one count", || {
        counters::count_handoff();
        compiler_fence(Ordering::SeqCst);
    });
    measure("counters: snapshot", || {
        black_box(counters::snapshot());
    });
    let exclusive = CheckoutCell::new("costs", LockScope::Connection, 7u64);
    measure("CheckoutCell try_checkout + return", || {
        black_box(black_box(&exclusive).try_checkout().map(|guard| *guard));
    });
    let mutex = Mutex::new("costs", LockScope::Connection, 7u64);
    measure("Mutex lock + unlock, uncontended", || {
        black_box(*black_box(&mutex).lock());
    });
    let inheriting = PiMutex::new("costs", LockScope::Connection, 7u64);
    measure("PiMutex lock + unlock, uncontended", || {
        black_box(*black_box(&inheriting).lock());
    });
    let mailbox = Mailbox::new(64).expect("an event descriptor");
    measure("Mailbox send + receive, awake", || {
        let _ = black_box(&mailbox).send(7u64);
        black_box(mailbox.receive());
    });
    let mut buffer = Buffer::with_capacity(4096).expect("memory");
    measure("Buffer reserve + advance + consume", || {
        let _ = buffer.reserve(100);
        buffer.mark_filled(black_box(100));
        black_box(&*buffer);
        buffer.consume(100);
    });
    measure("clock::now", || {
        black_box(clock::now());
    });
    measure("thread::current_tid, cached", || {
        black_box(thread::current_tid());
    });
    measure("process::fork_generation", || {
        black_box(process::fork_generation());
    });
}

fn slots() {
    let table = GenerationalSlab::new("costs", LockScope::Orb, u32::MAX);
    let keys: Vec<_> = (0..1_000_000u64).filter_map(|n| table.insert([n; 4]).ok()).collect();
    let (index, generation) = keys[12345];
    measure("GenerationalSlab get + read + drop, one slot", || {
        black_box(black_box(&table).get(black_box(index), generation).map(|guard| guard[0]));
    });
    measure("GenerationalSlab get, stale generation", || {
        black_box(black_box(&table).get(black_box(index), generation + 1).is_some());
    });
    let mut state = 1u32;
    measure("GenerationalSlab get + read + drop, 64 of 1e6 slots", || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (index, generation) = keys[(state >> 26) as usize * 15_001];
        black_box(table.get(index, generation).map(|guard| guard[0]));
    });
    measure("GenerationalSlab get + read + drop, all of 1e6 slots", || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (index, generation) = keys[state as usize % keys.len()];
        black_box(table.get(index, generation).map(|guard| guard[0]));
    });
    measure("GenerationalSlab insert + retire", || {
        if let Ok((index, generation)) = table.insert([7; 4]) {
            let _ = black_box(table.retire(index, generation));
        }
    });
}

fn index() {
    let mut writer = HashIndexWriter::new("costs", LockScope::Orb);
    let key = |n: u32| -> [u8; 40] { std::array::from_fn(|at| n.to_le_bytes()[at % 4]) };
    for n in 0..100_000 {
        writer.insert(&key(n), n);
    }
    let wanted = key(777);
    let index = writer.index();
    measure("HashIndex find, 40 bytes, 1e5 entries", || {
        black_box(index.find(black_box(&wanted), |slot| slot == 777));
    });
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}
