//! The benchmark `cores-clock`, which measures round trips between two cores, and the offset
//! between the clocks that threads on these cores read (figures 1 to 4 of the MC-ORB paper).
//!
//! A thread on each core notes the time when the other thread has woken it, and then wakes the
//! other thread. The clock is CLOCK_MONOTONIC.
//!
//! A thread that sends at x and gets the answer at z knows that the other thread noted its time y
//! between x and z. So the offset is y - (x + z) / 2, and its error is at most (z - x) / 2. The
//! paper's formula 2y - x - z is twice this offset.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use corelane_sys::clock;
use corelane_sys::thread_signal::{SignalReceiver, SignalSender};

use super::{core_pair, label};
use crate::Failure;
use crate::cost::Cost;
use crate::harness::{ComparedQuantity, Figure, FigureLabel, Progress};
use crate::options::BenchOptions;
use crate::placement::{CoreChoice, Placement, Side};
use crate::report::Report;
use crate::sample::{Summary, cdf_us, median_us};
use crate::value::SingleValue;

const BENCH: &str = "cores-clock";

const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waking {
    Signal,
    Futex,
    Spin,
}

const WAKINGS: [Waking; 3] = [Waking::Signal, Waking::Futex, Waking::Spin];

impl Waking {
    fn name(self) -> &'static str {
        match self {
            Waking::Signal => "signal",
            Waking::Futex => "futex",
            Waking::Spin => "spin",
        }
    }
}

/// The noted times in nanoseconds. The first thread noted one time before each time of the second
/// thread, and one after the last.
#[derive(Clone, Debug, Default, PartialEq)]
struct Exchange {
    first: Vec<u64>,
    second: Vec<u64>,
}

/// A sample of the offset: the round trip, and twice the offset of the answering thread's clock, in
/// nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    round_trip: u64,
    twice_offset: i64,
}

/// Returns the samples of a thread that noted the times `own`, while the other thread noted one of
/// the times `other` between each two successive times of `own`.
fn samples(own: &[u64], other: &[u64]) -> Vec<Sample> {
    let between = own.windows(2).zip(other);
    let sample = |(own, &y): (&[u64], &u64)| {
        let (x, z) = (own[0], own[1]);
        Sample { round_trip: z.saturating_sub(x), twice_offset: signed(y, x) + signed(y, z) }
    };
    between.map(sample).collect()
}

/// Returns `a` - `b`, for times whose difference is less than 292 years.
fn signed(a: u64, b: u64) -> i64 {
    a.wrapping_sub(b) as i64
}

impl Exchange {
    /// Returns the samples of the first thread and of the second thread. Both are offsets of the
    /// answering thread's clock, so they have opposite signs.
    fn samples(&self) -> [Vec<Sample>; 2] {
        let later = self.first.get(1..).unwrap_or_default();
        [samples(&self.first, &self.second), samples(&self.second, later)]
    }
}

/// Returns the offset at the shortest round trip, and the bound of its error, in microseconds.
fn best_offset_us(samples: &[Sample]) -> Option<(f64, f64)> {
    let best = samples.iter().min_by_key(|sample| sample.round_trip)?;
    Some((best.twice_offset as f64 / 2e3, best.round_trip as f64 / 2e3))
}

/// Returns the mean, the standard deviation and the largest magnitude of the offsets by the paper's
/// formula, in microseconds.
fn paper_offsets_us(samples: &[Sample]) -> [f64; 3] {
    let offsets = || samples.iter().map(|sample| sample.twice_offset as f64 / 1e3);
    let n = samples.len().max(1) as f64;
    let mean = offsets().sum::<f64>() / n;
    let variance = offsets().map(|offset| (offset - mean).powi(2)).sum::<f64>() / n;
    [mean, variance.sqrt(), offsets().fold(0.0, |most, offset| most.max(offset.abs()))]
}

enum End {
    Signal(SignalSender),
    Flag { is_set: Arc<AtomicU32>, thread: Thread, sleeps: bool },
}

impl End {
    fn wake(&self) -> Result<(), Failure> {
        match self {
            End::Signal(sender) => sender.send().map_err(|error| Failure::new(format!("no signal is sent: {error}"))),
            End::Flag { is_set, thread, sleeps } => {
                is_set.store(1, Ordering::Release);
                if *sleeps {
                    thread.unpark();
                }
                Ok(())
            }
        }
    }
}

enum Wait {
    Signal(SignalReceiver),
    Flag { is_set: Arc<AtomicU32>, sleeps: bool },
}

impl Wait {
    fn create(waking: Waking) -> Result<(Wait, End), Failure> {
        if waking == Waking::Signal {
            let receiver = SignalReceiver::for_current_thread();
            let receiver = receiver.map_err(|error| Failure::new(format!("the signal cannot be blocked: {error}")))?;
            let sender = receiver.sender();
            return Ok((Wait::Signal(receiver), End::Signal(sender)));
        }
        let (is_set, sleeps) = (Arc::new(AtomicU32::new(0)), waking == Waking::Futex);
        let end = End::Flag { is_set: is_set.clone(), thread: thread::current(), sleeps };
        Ok((Wait::Flag { is_set, sleeps }, end))
    }

    /// Waits until the other thread wakes this one. The wait for a flag returns false after `over`
    /// is set. The wait for a signal fails after [`PATIENCE`].
    fn wait(&self, over: &AtomicBool) -> Result<bool, Failure> {
        match self {
            Wait::Signal(receiver) => {
                let came = receiver.wait(PATIENCE).map_err(|error| Failure::new(error.to_string()))?;
                if came { Ok(true) } else { Err(Failure::new("the other thread sends no signal")) }
            }
            Wait::Flag { is_set, sleeps } => {
                let mut turns = 0_u32;
                while is_set.swap(0, Ordering::Acquire) == 0 {
                    if *sleeps {
                        thread::park_timeout(PATIENCE);
                    } else {
                        spin_loop();
                        turns = turns.wrapping_add(1);
                        // The other thread may be waiting for this core.
                        if turns.is_multiple_of(4096) {
                            thread::yield_now();
                        }
                    }
                    if over.load(Ordering::Relaxed) {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }
}

fn exchange(waking: Waking, count: usize, placement: &Placement) -> Result<Exchange, Failure> {
    let over = Arc::new(AtomicBool::new(false));
    let refused = |error: std::io::Error| Failure::new(format!("the threads cannot be placed: {error}"));
    let _placed = placement.enter(Side::Client).map_err(refused)?;
    let (wait, own_end) = Wait::create(waking)?;
    // The [`End`] of the second thread; `None` if the thread has failed before it created its end.
    let other_end = Arc::new(OnceLock::new());
    let second = {
        let (over, placement, ends) = (over.clone(), *placement, other_end.clone());
        let body = move || {
            let prepared =
                placement.enter(Side::Server).map_err(|error| Failure::new(format!("the second thread: {error}")));
            let prepared = prepared.and_then(|placed| Ok((placed, Wait::create(waking)?)));
            let (_placed, (wait, end)) = match prepared {
                Ok(prepared) => prepared,
                Err(failure) => {
                    let _ = ends.set(None);
                    return Err(failure);
                }
            };
            let mut times = Vec::with_capacity(count);
            let _ = ends.set(Some(end));
            for _ in 0..count {
                if !wait.wait(&over)? {
                    break;
                }
                times.push(clock::now().as_nanos());
                own_end.wake()?;
            }
            Ok::<_, Failure>(times)
        };
        let builder = corelane_sys::thread::ThreadBuilder::new().name("bench/clock");
        builder.spawn(body).map_err(refused)?
    };
    let first = || {
        let end = other_end.wait().as_ref().ok_or_else(|| Failure::new("the second thread has ended"))?;
        let mut times = Vec::with_capacity(count + 1);
        times.push(clock::now().as_nanos());
        for _ in 0..count {
            end.wake()?;
            wait.wait(&over)?;
            times.push(clock::now().as_nanos());
        }
        Ok::<_, Failure>(times)
    };
    let first = first();
    over.store(true, Ordering::Relaxed);
    let second = second.join().map_err(|_| Failure::new("the second thread panicked"))?;
    Ok(Exchange { first: first?, second: second? })
}

const WARM_UP: usize = 10;

/// Returns the times in nanoseconds from the call that wakes a thread until this thread runs, for
/// two threads that wake each other by a futex.
pub(crate) fn wake_ups(count: usize, placement: &Placement) -> Result<Vec<u64>, Failure> {
    let Exchange { first, second } = exchange(Waking::Futex, WARM_UP + count, placement)?;
    let there = first.iter().zip(&second).skip(WARM_UP);
    Ok(there.map(|(called, woken)| woken.saturating_sub(*called)).collect())
}

#[derive(Default)]
struct Observed {
    samples: [Vec<Sample>; 2],
    medians: [Vec<f64>; 2],
    cost: Cost,
}

pub(crate) fn clock(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let Some((one, other)) = core_pair(options) else {
        return report.add_missing(BENCH, "floor", super::ONE_CORE);
    };
    let placement = Placement { cores: CoreChoice::Separate(one, other), ..options.placement };
    let mut observed: Vec<Observed> = WAKINGS.iter().map(|_| Observed::default()).collect();
    let length = options.run_length;
    for repetition in 0..length.repetitions {
        for (waking, seen) in WAKINGS.into_iter().zip(&mut observed) {
            progress.show(&format!("{BENCH}: {} ({} of {})", waking.name(), repetition + 1, length.repetitions));
            exchange(waking, length.warm_up.max(1), &placement)?;
            let before = Cost::so_far(None, None);
            let turn = exchange(waking, length.count, &placement)?.samples();
            seen.cost.add(Cost::so_far(None, None).since(before));
            for ((all, medians), turn) in seen.samples.iter_mut().zip(&mut seen.medians).zip(turn) {
                medians.push(median_us(&round_trips(&turn)));
                all.extend(turn);
            }
        }
    }
    progress.clear();
    let mut figures = Vec::new();
    let mut values = Vec::new();
    for (waking, seen) in WAKINGS.into_iter().zip(&observed) {
        for (side, core) in [one, other].into_iter().enumerate() {
            let config = format!("{}, from core {core}", waking.name());
            let label = label(BENCH, "floor", "round trip", config);
            figures.extend(figure(&label, &seen.samples[side], &seen.medians[side], seen.cost));
            values.extend(offsets(&label, &seen.samples[side], side == 1));
        }
    }
    let title = format!("{BENCH}: round trips between cores {one} and {other}");
    report.add_figures(&title, ComparedQuantity::Median, &figures)?;
    let title = format!("{BENCH}: the clock of core {other}, relative to core {one}");
    report.add_values(&title, &values)
}

fn round_trips(samples: &[Sample]) -> Vec<u64> {
    samples.iter().map(|sample| sample.round_trip).collect()
}

fn figure(label: &FigureLabel, samples: &[Sample], medians: &[f64], cost: Cost) -> Option<Figure> {
    let times = round_trips(samples);
    let whole = Duration::from_nanos(times.iter().sum());
    Some(Figure {
        label: label.clone(),
        summary: Summary::of(&times, whole)?,
        medians_us: medians.to_vec(),
        cdf_us: cdf_us(&times),
        ratios: Vec::new(),
        cost: Some(cost),
        calls: times.len(),
    })
}

/// Returns the offset at the shortest round trip, the bound of its error, and the offsets by the
/// paper's formula. `is_reversed` is true for the samples of the second core, whose signs are
/// reversed, as in figure 4 of the paper.
fn offsets(label: &FigureLabel, samples: &[Sample], is_reversed: bool) -> Vec<SingleValue> {
    let sign = if is_reversed { -1.0 } else { 1.0 };
    let Some((offset, error)) = best_offset_us(samples) else { return Vec::new() };
    let [mean, deviation, largest] = paper_offsets_us(samples);
    let numbers = [
        ("offset at the shortest round trip", sign * offset),
        ("bound of its error", error),
        ("paper's formula, mean", sign * mean),
        ("paper's formula, standard deviation", deviation),
        ("paper's formula, largest magnitude", largest),
    ];
    let value = |(quantity, value): (&str, f64)| SingleValue {
        label: FigureLabel { op: "offset".to_owned(), ..label.clone() },
        quantity: quantity.to_owned(),
        value,
        unit: "us",
        bound: None,
    };
    numbers.into_iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an exchange in which the second clock is 30 ns ahead, the way there takes 100 ns,
    /// and the way back takes 60 ns.
    fn known() -> Exchange {
        Exchange { first: vec![1000, 1160, 1320], second: vec![1130, 1290] }
    }

    #[test]
    fn offsets_are_computed_from_both_sides() {
        let [first, second] = known().samples();
        let sample = |round_trip, twice_offset| Sample { round_trip, twice_offset };
        assert_eq!(first, [sample(160, 100); 2]);
        assert_eq!(second, [sample(160, -100)]);
        // The offset of 50 ns differs from the true one of 30 ns by less than the bound of 80 ns.
        assert_eq!(best_offset_us(&first), Some((0.05, 0.08)));
        assert_eq!(paper_offsets_us(&first), [0.1, 0.0, 0.1]);
        assert_eq!((best_offset_us(&[]), samples(&[5], &[6])), (None, Vec::new()));
    }

    #[test]
    fn the_shortest_round_trip_gives_the_offset() {
        let samples =
            [(400, 300), (20, 8), (90, -70)].map(|(round_trip, twice_offset)| Sample { round_trip, twice_offset });
        assert_eq!(best_offset_us(&samples), Some((0.004, 0.01)));
        assert_eq!(paper_offsets_us(&samples)[2], 0.3);
    }

    #[test]
    fn signs_of_the_second_core_are_reversed() {
        let label = label(BENCH, "floor", "", String::new());
        let [first, second] = known().samples();
        let value = |samples: &[Sample], is_reversed| offsets(&label, samples, is_reversed)[0].value;
        assert_eq!((value(&first, false), value(&second, true)), (0.05, 0.05));
        assert!(offsets(&label, &[], false).is_empty());
    }

    #[test]
    fn every_mechanism_makes_the_round_trips() {
        for waking in WAKINGS {
            let seen = exchange(waking, 20, &Placement::default()).unwrap();
            assert_eq!((seen.first.len(), seen.second.len()), (21, 20), "{}", waking.name());
            for (place, time) in seen.second.iter().enumerate() {
                assert!((seen.first[place]..=seen.first[place + 1]).contains(time), "{}", waking.name());
            }
        }
    }
}
