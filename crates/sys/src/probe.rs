//! Time probes on the request path: which thread passed which point, when, with which request.
//!
//! A point is `probe!("request read")` or `probe!("request read", id)`. It is always compiled in and costs one load and a branch until
//! [`on`] is called; then each thread keeps its last [`KEPT`] records in a ring of its own, without system calls or locks, in about 20 ns each. The first
//! record of a thread takes memory for its ring. [`collect`] reads the rings of all threads while they go on.
//!
//! Time is the processor's time-stamp counter where the kernel itself trusts it, else the monotonic clock; [`collect`] answers nanoseconds of the monotonic
//! clock, so that records of several processes lie on one time line.
//!
//! `record`: the writer announces a record before it writes into its slot (release fence), and the reader looks at the announcement after it
//! has read slots (acquire fence): a slot that was written anew meanwhile is known by it and left out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock;
use crate::shim::{AtomicPtr, AtomicU64, Ordering, fence};
use crate::thread;

/// Records that a thread keeps.
pub const KEPT: usize = 4096;

/// Marks a point on the request path: `probe!("name")` or `probe!("name", id)` with the request's id, a `u64`, which is computed only while probes are on. A
/// point without an id belongs to the request that its thread is in.
#[macro_export]
macro_rules! probe {
    ($name:literal) => {
        $crate::probe!($name, 0)
    };
    ($name:literal, $id:expr) => {{
        static NAME: &str = $name;
        $crate::probe::pass(&NAME, || $id);
    }};
}

/// A point passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The kernel's number of the thread.
    pub thread: u32,
    /// When, in nanoseconds of the monotonic clock.
    pub at: u64,
    /// The point's name.
    pub point: &'static str,
    /// The request's id, or 0.
    pub id: u64,
}

/// Whether points are kept: nothing else is touched while they are not.
static ON: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// What [`probe!`] calls.
#[inline(always)]
pub fn pass(name: &'static &'static str, id: impl FnOnce() -> u64) {
    // Nothing is published by it: a point near the moment of switching may be kept or not.
    if ON.load(Ordering::Relaxed) {
        std::hint::cold_path();
        keep(name, id());
    }
}

/// Keeps points from now on, and forgets those of before.
pub fn on() {
    let mut rings = rings();
    rings.began = Stamp::now();
    ON.store(true, Ordering::Relaxed);
}

/// Keeps no more points; what is kept can still be [collected](collect).
pub fn off() {
    ON.store(false, Ordering::Relaxed);
}

/// Whether points are kept.
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The records of all threads since [`on`], by time, as far as the rings still have them. Waits a few milliseconds when called soon after it, to relate the
/// processor's counter to the clock.
pub fn collect() -> Vec<Record> {
    let (began, all) = {
        let rings = rings();
        (rings.began, rings.all.clone())
    };
    let scale = Scale::since(began);
    let mut records: Vec<Record> = Vec::new();
    for ring in &all {
        ring.read(|ticks, point, word, id| {
            if ticks >= began.ticks {
                records.push(Record { thread: word as u32, at: scale.nanoseconds(ticks), point, id });
            }
        });
    }
    records.sort_by_key(|record| record.at);
    records
}

/// The names of the threads that have passed points.
pub fn threads() -> Vec<(u32, String)> {
    rings().names.clone()
}

/// Every thread's ring, those of ended threads among them until another thread takes them over.
struct Rings {
    all: Vec<Arc<Ring>>,
    free: Vec<Arc<Ring>>,
    names: Vec<(u32, String)>,
    began: Stamp,
}

static RINGS: Mutex<Rings> = Mutex::new(Rings {
    all: Vec::new(),
    free: Vec::new(),
    names: Vec::new(),
    began: Stamp { ticks: 0, nanoseconds: 0 },
});

fn rings() -> MutexGuard<'static, Rings> {
    RINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread's ring, given back when the thread ends.
struct Mine {
    ring: Arc<Ring>,
    thread: u32,
}

impl Mine {
    fn enrol() -> Self {
        let thread = thread::current_tid().as_raw() as u32;
        let name = std::thread::current().name().unwrap_or("thread").to_owned();
        let mut rings = rings();
        rings.names.retain(|(other, _)| *other != thread);
        rings.names.push((thread, name));
        let ring = rings.free.pop().unwrap_or_else(|| {
            let ring = Arc::new(Ring::new(KEPT));
            rings.all.push(ring.clone());
            ring
        });
        Mine { ring, thread }
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        rings().free.push(self.ring.clone());
    }
}

thread_local! {
    static MINE: Mine = Mine::enrol();
}

#[inline(never)]
fn keep(name: &'static &'static str, id: u64) {
    // A thread that is ending keeps no more.
    let _ = MINE.try_with(|mine| mine.ring.push(ticks(), name, u64::from(mine.thread), id));
}

/// Records of one thread at a time, the last so many of them.
struct Ring {
    /// Records begun.
    announced: AtomicU64,
    /// Records whole.
    written: AtomicU64,
    slots: Box<[Slot]>,
}

struct Slot {
    ticks: AtomicU64,
    name: AtomicPtr<&'static str>,
    thread: AtomicU64,
    id: AtomicU64,
}

impl Ring {
    /// `slots` is a power of two, so that a place is found without a division.
    fn new(slots: usize) -> Self {
        assert!(slots.is_power_of_two(), "{slots} slots");
        let slot = |_| Slot {
            ticks: AtomicU64::new(0),
            name: AtomicPtr::new(std::ptr::null_mut()),
            thread: AtomicU64::new(0),
            id: AtomicU64::new(0),
        };
        Ring { announced: AtomicU64::new(0), written: AtomicU64::new(0), slots: (0..slots).map(slot).collect() }
    }

    #[inline]
    fn slot(&self, number: u64) -> &Slot {
        &self.slots[number as usize & (self.slots.len() - 1)]
    }

    /// By the ring's one thread only; by several, records would be mixed up, and nothing worse.
    #[inline]
    fn push(&self, ticks: u64, name: &'static &'static str, thread: u64, id: u64) {
        let number = self.announced.load(Ordering::Relaxed);
        self.announced.store(number + 1, Ordering::Relaxed);
        // Release: pairs with the acquire fence in `read` (record).
        fence(Ordering::Release);
        let slot = self.slot(number);
        slot.ticks.store(ticks, Ordering::Relaxed);
        slot.name.store(std::ptr::from_ref(name).cast_mut(), Ordering::Relaxed);
        slot.thread.store(thread, Ordering::Relaxed);
        slot.id.store(id, Ordering::Relaxed);
        // Release: pairs with the acquire in `read` (record): what is counted is there.
        self.written.store(number + 1, Ordering::Release);
    }

    /// Gives every record that is whole to `with`: ticks, name, thread, id.
    fn read(&self, mut with: impl FnMut(u64, &'static str, u64, u64)) {
        let room = self.slots.len() as u64;
        let written = self.written.load(Ordering::Acquire);
        for number in written.saturating_sub(room)..written {
            let slot = self.slot(number);
            let (ticks, name) = (slot.ticks.load(Ordering::Relaxed), slot.name.load(Ordering::Relaxed));
            let (thread, id) = (slot.thread.load(Ordering::Relaxed), slot.id.load(Ordering::Relaxed));
            // Acquire: pairs with the release fence in `push` (record).
            fence(Ordering::Acquire);
            let overwritten = self.announced.load(Ordering::Relaxed) > number + room;
            if overwritten || name.is_null() {
                continue;
            }
            // SAFETY: only `push` stores pointers that are not null, each from a `&'static &'static str`.
            let name = unsafe { *name };
            with(ticks, name, thread, id);
        }
    }
}

/// One moment on both clocks.
#[derive(Clone, Copy)]
struct Stamp {
    ticks: u64,
    nanoseconds: u64,
}

impl Stamp {
    /// Of several attempts the one that took least: a thread that was interrupted between the readings would be microseconds off.
    fn now() -> Self {
        let attempt = || {
            let before = clock::now().as_nanos();
            let ticks = ticks();
            let after = clock::now().as_nanos();
            // The middle of two readings is when the counter was read.
            (after - before, Stamp { ticks, nanoseconds: before + (after - before) / 2 })
        };
        (0..16)
            .map(|_| attempt())
            .min_by_key(|(took, _)| *took)
            .map_or(Stamp { ticks: 0, nanoseconds: 0 }, |(_, stamp)| stamp)
    }
}

/// How ticks become nanoseconds.
struct Scale {
    began: Stamp,
    per_tick: f64,
}

impl Scale {
    /// Less than this is too short to know the counter's rate to a few parts in a million.
    const LEAST: u64 = 10_000_000;

    fn since(began: Stamp) -> Self {
        let passed = clock::now().as_nanos().saturating_sub(began.nanoseconds);
        if passed < Self::LEAST {
            std::thread::sleep(std::time::Duration::from_nanos(Self::LEAST - passed));
        }
        let now = Stamp::now();
        let ticks = now.ticks.saturating_sub(began.ticks).max(1);
        Scale { began, per_tick: now.nanoseconds.saturating_sub(began.nanoseconds) as f64 / ticks as f64 }
    }

    fn nanoseconds(&self, ticks: u64) -> u64 {
        let since = ticks.saturating_sub(self.began.ticks) as f64 * self.per_tick;
        self.began.nanoseconds + since as u64
    }
}

/// The processor's counter, where it is the kernel's clock; else nanoseconds.
#[inline]
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    if counter_is_trusted() {
        // SAFETY: every x86-64 processor has the instruction, and the kernel leaves it to user space where it uses it for the vDSO clock.
        return unsafe { std::arch::x86_64::_rdtsc() };
    }
    clock::now().as_nanos()
}

/// Whether the kernel keeps time by the counter: then it runs at one rate and is the same on all cores.
#[cfg(target_arch = "x86_64")]
#[inline]
fn counter_is_trusted() -> bool {
    static TRUSTED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *TRUSTED.get_or_init(|| {
        let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        std::fs::read_to_string(source).is_ok_and(|name| name.trim() == "tsc")
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// One test, because switching is for the whole process.
    #[test]
    fn points_are_kept_while_probes_are_on() {
        let mut computed = 0;
        let mut pass = |id: u64| {
            crate::probe!("before", {
                computed += 1;
                id
            });
        };
        pass(1);
        assert!(!is_on());
        on();
        let earliest = clock::now().as_nanos();
        for id in 0..KEPT as u64 + 2 {
            pass(id);
        }
        std::thread::Builder::new().name("other".into()).spawn(|| crate::probe!("there")).unwrap().join().unwrap();
        crate::probe!("end");
        off();
        pass(9);
        assert_eq!(computed, KEPT + 2);
        let latest = clock::now().as_nanos();
        let records = collect();
        let own = thread::current_tid().as_raw() as u32;
        let here: Vec<&Record> = records.iter().filter(|record| record.thread == own).collect();
        assert_eq!((here.len(), here[0].id, here[KEPT - 1].point), (KEPT, 3, "end"));
        assert!(records.is_sorted_by_key(|record| record.at));
        // Both clocks were read by different instructions.
        let near = |at: u64| at + 1_000_000 >= earliest && at <= latest + 1_000_000;
        assert!(records.iter().all(|record| near(record.at)), "{earliest} {latest} {:?}", records.last());
        let there = records.iter().find(|record| record.point == "there").unwrap();
        assert!(threads().contains(&(there.thread, "other".to_owned())));
        // What was kept before is forgotten.
        on();
        off();
        assert_eq!(collect(), []);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::shim::explore;

    /// Records whose parts belong together are all that a reader sees, however it meets the writer.
    #[test]
    fn no_record_is_a_mixture() {
        static NAME: &str = "x";
        explore(|| {
            let ring = loom::sync::Arc::new(Ring::new(2));
            let writer = {
                let ring = ring.clone();
                loom::thread::spawn(move || (1..=3).for_each(|n| ring.push(n, &NAME, n, n)))
            };
            ring.read(|ticks, name, thread, id| assert_eq!((ticks, name, ticks), (thread, "x", id)));
            writer.join().unwrap();
            let mut last = 0;
            ring.read(|ticks, _, _, _| last = ticks);
            assert_eq!(last, 3);
        });
    }
}
