//! Time probes on the request path.
//!
//! A probe costs one load and a branch while recording is off. Each thread that passes a point
//! while recording is on gets a ring, which keeps the last [`RECORDS_PER_THREAD`] records.
//!
//! Comments in the code refer to one rule of memory ordering, `record`: the writer announces a
//! record before it writes into the record's slot (release fence). The reader loads the
//! announcement after it has read the slot (acquire fence), and leaves out a slot that was
//! overwritten during the reading. The writer counts a record after it has written the slot
//! (release), and the reader loads the count before it reads slots (acquire).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock;
use crate::shim::{AtomicPtr, AtomicU64, Ordering, fence};
use crate::thread;

/// Number of records that the ring of a thread keeps.
pub const RECORDS_PER_THREAD: usize = 4096;

/// Marks a point on the request path: `probe!("name")` or `probe!("name", id)`.
///
/// `id` is the request's id, a `u64`, and is computed only while probes are on.
#[macro_export]
macro_rules! probe {
    ($name:literal) => {
        $crate::probe!($name, 0)
    };
    ($name:literal, $id:expr) => {{
        static NAME: &str = $name;
        $crate::probe::record(&NAME, || $id);
    }};
}

/// One passage of a thread through a point on the request path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeRecord {
    /// The kernel's number of the thread.
    pub thread: u32,
    /// Time at which the thread passed the point, in nanoseconds of the monotonic clock.
    pub passed_at_ns: u64,
    /// Name of the point.
    pub point: &'static str,
    /// Id of the request; 0 if the point has no id.
    pub id: u64,
}

static ON: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Records that the calling thread passes a point, if recording is on. The macro [`probe!`] calls
/// this function.
#[inline(always)]
pub fn record(name: &'static &'static str, id: impl FnOnce() -> u64) {
    // Relaxed: the flag publishes no other data.
    if ON.load(Ordering::Relaxed) {
        std::hint::cold_path();
        record_enabled(name, id());
    }
}

/// Starts recording, and discards earlier records.
pub fn enable() {
    let mut rings = rings();
    rings.began = ClockSample::now();
    ON.store(true, Ordering::Relaxed);
}

/// Stops recording. [`collect`] returns the existing records.
pub fn disable() {
    ON.store(false, Ordering::Relaxed);
}

/// Returns true while points are recorded.
pub fn is_enabled() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Returns the records of all threads since [`enable`] in the order of time, without the records
/// that later records have overwritten. Sleeps if [`enable`] was less than 10 ms ago.
pub fn collect() -> Vec<ProbeRecord> {
    let (began, all) = {
        let rings = rings();
        (rings.began, rings.all.clone())
    };
    let scale = TickScale::since(began);
    let mut records: Vec<ProbeRecord> = Vec::new();
    for ring in &all {
        ring.read(|ticks, point, word, id| {
            if ticks >= began.ticks {
                records.push(ProbeRecord { thread: word as u32, passed_at_ns: scale.nanoseconds(ticks), point, id });
            }
        });
    }
    records.sort_by_key(|record| record.passed_at_ns);
    records
}

/// Returns the kernel's number and the name of each thread that has recorded a point.
pub fn thread_names() -> Vec<(u32, String)> {
    rings().names.clone()
}

/// The rings of all threads; the ring of an ended thread stays until another thread uses it.
struct RecordRings {
    all: Vec<Arc<RecordRing>>,
    free: Vec<Arc<RecordRing>>,
    names: Vec<(u32, String)>,
    began: ClockSample,
}

static RINGS: Mutex<RecordRings> = Mutex::new(RecordRings {
    all: Vec::new(),
    free: Vec::new(),
    names: Vec::new(),
    began: ClockSample { ticks: 0, nanoseconds: 0 },
});

fn rings() -> MutexGuard<'static, RecordRings> {
    RINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

struct ThreadRecords {
    ring: Arc<RecordRing>,
    thread: u32,
}

impl ThreadRecords {
    fn register() -> Self {
        let thread = thread::current_tid().as_raw() as u32;
        let name = std::thread::current().name().unwrap_or("thread").to_owned();
        let mut rings = rings();
        rings.names.retain(|(other, _)| *other != thread);
        rings.names.push((thread, name));
        let ring = rings.free.pop().unwrap_or_else(|| {
            let ring = Arc::new(RecordRing::new(RECORDS_PER_THREAD));
            rings.all.push(ring.clone());
            ring
        });
        ThreadRecords { ring, thread }
    }
}

impl Drop for ThreadRecords {
    fn drop(&mut self) {
        rings().free.push(self.ring.clone());
    }
}

thread_local! {
    static MINE: ThreadRecords = ThreadRecords::register();
}

#[inline(never)]
fn record_enabled(name: &'static &'static str, id: u64) {
    // A thread whose thread-local data is destroyed records no more points.
    let _ = MINE.try_with(|mine| mine.ring.push(ticks(), name, u64::from(mine.thread), id));
}

/// The latest records of the threads that have used the ring. One thread at a time writes.
struct RecordRing {
    announced: AtomicU64,
    /// Number of complete records.
    written: AtomicU64,
    slots: Box<[RecordSlot]>,
}

struct RecordSlot {
    ticks: AtomicU64,
    name: AtomicPtr<&'static str>,
    thread: AtomicU64,
    id: AtomicU64,
}

impl RecordRing {
    fn new(slots: usize) -> Self {
        assert!(slots.is_power_of_two(), "{slots} slots");
        let slot = |_| RecordSlot {
            ticks: AtomicU64::new(0),
            name: AtomicPtr::new(std::ptr::null_mut()),
            thread: AtomicU64::new(0),
            id: AtomicU64::new(0),
        };
        RecordRing { announced: AtomicU64::new(0), written: AtomicU64::new(0), slots: (0..slots).map(slot).collect() }
    }

    #[inline]
    fn slot(&self, number: u64) -> &RecordSlot {
        &self.slots[number as usize & (self.slots.len() - 1)]
    }

    #[inline]
    fn push(&self, ticks: u64, name: &'static &'static str, thread: u64, id: u64) {
        let number = self.announced.load(Ordering::Relaxed);
        self.announced.store(number + 1, Ordering::Relaxed);
        // Release: pairs with the acquire fence in `read` (rule `record`).
        fence(Ordering::Release);
        let slot = self.slot(number);
        slot.ticks.store(ticks, Ordering::Relaxed);
        slot.name.store(std::ptr::from_ref(name).cast_mut(), Ordering::Relaxed);
        slot.thread.store(thread, Ordering::Relaxed);
        slot.id.store(id, Ordering::Relaxed);
        // Release: pairs with the acquire load in `read` (rule `record`): a counted record is
        // complete.
        self.written.store(number + 1, Ordering::Release);
    }

    fn read(&self, mut with: impl FnMut(u64, &'static str, u64, u64)) {
        let room = self.slots.len() as u64;
        let written = self.written.load(Ordering::Acquire);
        for number in written.saturating_sub(room)..written {
            let slot = self.slot(number);
            let (ticks, name) = (slot.ticks.load(Ordering::Relaxed), slot.name.load(Ordering::Relaxed));
            let (thread, id) = (slot.thread.load(Ordering::Relaxed), slot.id.load(Ordering::Relaxed));
            // Acquire: pairs with the release fence in `push` (rule `record`).
            fence(Ordering::Acquire);
            let overwritten = self.announced.load(Ordering::Relaxed) > number + room;
            if overwritten || name.is_null() {
                continue;
            }
            // SAFETY: only `push` stores pointers that are not null, and each is a `&'static
            // &'static str`.
            let name = unsafe { *name };
            with(ticks, name, thread, id);
        }
    }
}

#[derive(Clone, Copy)]
struct ClockSample {
    ticks: u64,
    nanoseconds: u64,
}

impl ClockSample {
    /// Takes the shortest of several attempts, because an interruption between the readings
    /// falsifies the sample.
    fn now() -> Self {
        let attempt = || {
            let before = clock::now().as_nanos();
            let ticks = ticks();
            let after = clock::now().as_nanos();
            (after - before, ClockSample { ticks, nanoseconds: before + (after - before) / 2 })
        };
        (0..16)
            .map(|_| attempt())
            .min_by_key(|(took, _)| *took)
            .map_or(ClockSample { ticks: 0, nanoseconds: 0 }, |(_, stamp)| stamp)
    }
}

struct TickScale {
    began: ClockSample,
    per_tick: f64,
}

impl TickScale {
    /// Minimum interval in nanoseconds for measuring the counter's rate to a few parts in a
    /// million.
    const MIN_INTERVAL: u64 = 10_000_000;

    fn since(began: ClockSample) -> Self {
        let passed = clock::now().as_nanos().saturating_sub(began.nanoseconds);
        if passed < Self::MIN_INTERVAL {
            std::thread::sleep(std::time::Duration::from_nanos(Self::MIN_INTERVAL - passed));
        }
        let now = ClockSample::now();
        let ticks = now.ticks.saturating_sub(began.ticks).max(1);
        TickScale { began, per_tick: now.nanoseconds.saturating_sub(began.nanoseconds) as f64 / ticks as f64 }
    }

    fn nanoseconds(&self, ticks: u64) -> u64 {
        let since = ticks.saturating_sub(self.began.ticks) as f64 * self.per_tick;
        self.began.nanoseconds + since as u64
    }
}

/// Returns the processor's counter if the kernel uses it as its clock; otherwise the monotonic
/// clock in nanoseconds.
#[inline]
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    if counter_is_trusted() {
        // SAFETY: every x86-64 processor has the instruction. A kernel that uses it for the vDSO
        // clock permits it in user space.
        return unsafe { std::arch::x86_64::_rdtsc() };
    }
    clock::now().as_nanos()
}

/// Returns true if the kernel keeps time by the processor's counter. The counter then runs at one
/// rate and is the same on all cores.
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

    #[test]
    fn points_are_recorded_while_probes_are_enabled() {
        let mut computed = 0;
        let mut pass_point = |id: u64| {
            crate::probe!("before", {
                computed += 1;
                id
            });
        };
        pass_point(1);
        assert!(!is_enabled());
        enable();
        let earliest = clock::now().as_nanos();
        for id in 0..RECORDS_PER_THREAD as u64 + 2 {
            pass_point(id);
        }
        std::thread::Builder::new().name("other".into()).spawn(|| crate::probe!("there")).unwrap().join().unwrap();
        crate::probe!("end");
        disable();
        pass_point(9);
        assert_eq!(computed, RECORDS_PER_THREAD + 2);
        let latest = clock::now().as_nanos();
        let records = collect();
        let own = thread::current_tid().as_raw() as u32;
        let here: Vec<&ProbeRecord> = records.iter().filter(|record| record.thread == own).collect();
        assert_eq!((here.len(), here[0].id, here[RECORDS_PER_THREAD - 1].point), (RECORDS_PER_THREAD, 3, "end"));
        assert!(records.is_sorted_by_key(|record| record.passed_at_ns));
        let near = |at: u64| at + 1_000_000 >= earliest && at <= latest + 1_000_000;
        assert!(records.iter().all(|record| near(record.passed_at_ns)), "{earliest} {latest} {:?}", records.last());
        let there = records.iter().find(|record| record.point == "there").unwrap();
        assert!(thread_names().contains(&(there.thread, "other".to_owned())));
        enable();
        disable();
        assert_eq!(collect(), []);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::shim::explore;

    #[test]
    fn no_record_is_torn() {
        static NAME: &str = "x";
        explore(|| {
            let ring = loom::sync::Arc::new(RecordRing::new(2));
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
