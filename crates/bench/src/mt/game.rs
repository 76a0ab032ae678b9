//! One high-priority client beside others: who calls when, and what was seen of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use corelane_sys::clock;
use corelane_sys::thread::{Builder, JoinHandle, Scheduling};

use crate::Failure;
use crate::cost::Cost;
use crate::crowd::Member;
use crate::harness::{Figure, Label, Ratio};
use crate::placement::{Placement, Side};
use crate::sample::{Samples, Summary, cdf_us, median_us};

/// How a client goes from one call to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// At fixed times from the common begin on.
    Every(Duration),
    /// A pause of a ninth of each call's time: whatever its priority, it leaves 10 % of a core to others.
    NineTenths,
    /// No pause, and so in the ordinary class.
    Flood,
    /// No pause at a fixed priority: the kernel takes the core away for a while now and then, from everybody.
    Whole,
}

/// One of those beside the high-priority client.
pub(super) struct Other {
    pub(super) member: Box<dyn Member>,
    pub(super) scheduling: Scheduling,
    pub(super) pace: Pace,
}

/// The high-priority client, and how long all goes on.
pub(super) struct Game {
    pub(super) high: Box<dyn Member>,
    pub(super) scheduling: Scheduling,
    pub(super) period: Duration,
    /// Calls of the high-priority client; the others end with it.
    pub(super) calls: usize,
    pub(super) placement: Placement,
    /// Of the high-priority client, for the costs.
    pub(super) server: u32,
}

impl Game {
    /// All begin together; adds what was seen to `seen`.
    pub(super) fn play(self, others: Vec<Other>, seen: &mut Seen) -> Result<(), Failure> {
        let entered = Placement { scheduling: None, ..self.placement }.enter(Side::Client);
        let _entered = entered.map_err(|error| Failure::new(error.to_string()))?;
        let (barrier, over) = (Arc::new(Barrier::new(others.len() + 1)), Arc::new(AtomicBool::new(false)));
        let before = Cost::so_far(None, Some(self.server));
        let mut low = Vec::with_capacity(others.len());
        for (number, other) in others.into_iter().enumerate() {
            let (barrier, over) = (barrier.clone(), over.clone());
            // Floods of fixed priority would keep everybody else from the core.
            let scheduling = if other.pace == Pace::Flood { Scheduling::Other } else { other.scheduling };
            let room = room(other.pace, self.period * self.calls as u32);
            let member = other.member;
            let body = move || paced(member, other.pace, room, &barrier, |_| !over.load(Ordering::Acquire));
            low.push(thread(format!("low/{number}"), scheduling, body)?);
        }
        let (member, pace, calls) = (self.high, Pace::Every(self.period), self.calls);
        let high = thread("high".to_owned(), self.scheduling, move || {
            let paced = paced(member, pace, calls, &barrier, |made| made < calls);
            over.store(true, Ordering::Release);
            paced
        })?;
        let ended = |thread: JoinHandle<Paced>| thread.join().map_err(|_| Failure::new("a client thread panicked"));
        let high = ended(high)?;
        let (mut times, mut late, mut made) = (Vec::new(), high.late, high.made);
        for thread in low {
            let paced = ended(thread)?;
            made += paced.made;
            times.extend_from_slice(paced.outcome?.since(0));
            late += paced.late;
        }
        seen.cost.add(Cost::so_far(None, Some(self.server)).since(before));
        seen.calls += made;
        seen.late += late;
        seen.responses.extend_from_slice(&high.responses);
        seen.high.add(high.outcome?.since(0), high.whole);
        seen.low.add(&times, high.whole);
        Ok(())
    }
}

fn thread<T: Send + 'static>(
    name: String,
    scheduling: Scheduling,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Failure> {
    let builder = Builder::new().name(name).stack_size(256 * 1024).scheduling(scheduling);
    builder.spawn(body).map_err(|error| Failure::new(format!("a client thread cannot be started: {error}")))
}

/// Times that are kept of a client which calls for so long.
fn room(pace: Pace, time: Duration) -> usize {
    match pace {
        // Twice as many as there can be.
        Pace::Every(period) => 2 * (time.as_nanos() / period.as_nanos().max(1)) as usize + 16,
        Pace::NineTenths | Pace::Whole => 10_000,
        Pace::Flood => 0,
    }
}

/// What a client did.
struct Paced {
    outcome: Result<Samples, Failure>,
    /// From when each call was due to its reply, of clients that call at fixed times.
    responses: Vec<u64>,
    /// Calls that began more than half a period late.
    late: usize,
    /// Calls, those before the begin included.
    made: usize,
    whole: Duration,
}

/// Calls of each client before the begin.
const FIRST: usize = 5;

/// Calls at its pace for as long as `more` says so of the calls made; keeps the times of the first `room`.
fn paced(
    mut member: impl Member,
    pace: Pace,
    room: usize,
    barrier: &Barrier,
    mut more: impl FnMut(usize) -> bool,
) -> Paced {
    let (mut samples, mut one) = (Samples::with_room(room), Samples::with_room(1));
    // The connection is made, and everything touched, before the begin.
    let mut outcome = member.calls(FIRST, &mut Samples::with_room(FIRST));
    barrier.wait();
    let began = clock::now();
    let (mut next, mut late, mut made) = (began, 0, 0);
    let mut responses = Vec::with_capacity(if matches!(pace, Pace::Every(_)) { room } else { 0 });
    while outcome.is_ok() {
        one.truncate(0);
        outcome = member.calls(1, &mut one);
        if samples.len() < room {
            one.since(0).iter().for_each(|&time| samples.push(time));
            if let Pace::Every(_) = pace {
                responses.push(next.elapsed().as_nanos() as u64);
            }
        }
        made += 1;
        if !more(made) {
            break;
        }
        match pace {
            Pace::Every(period) => {
                next += period;
                std::thread::sleep(next.remaining());
                late += usize::from(next.elapsed() > period / 2);
            }
            Pace::NineTenths => std::thread::sleep(Duration::from_nanos(one.since(0).iter().sum::<u64>() / 9)),
            Pace::Flood | Pace::Whole => {}
        }
    }
    Paced { outcome: outcome.map(|()| samples), responses, late, made: made + FIRST, whole: began.elapsed() }
}

/// What was seen of one variant in all repetitions.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) high: Times,
    pub(super) low: Times,
    /// The high-priority client's, from when a call was due: a client that does not get the core when it wants to call shows here only.
    responses: Vec<u64>,
    /// Of all clients together.
    pub(super) cost: Cost,
    /// Calls of all clients together.
    calls: usize,
    pub(super) late: usize,
}

impl Seen {
    /// What was seen elsewhere of the same variant.
    pub(super) fn add(&mut self, other: &Seen) {
        self.high.extend(&other.high);
        self.low.extend(&other.low);
        self.responses.extend_from_slice(&other.responses);
        self.cost.add(other.cost);
        self.calls += other.calls;
        self.late += other.late;
    }

    /// Calls of the high-priority client that were answered more than so long after they were due.
    pub(super) fn stalled(&self, time: Duration) -> usize {
        self.responses.iter().filter(|&&response| u128::from(response) > time.as_nanos()).count()
    }

    /// Of the times from when a call was due to its reply; none of no calls.
    pub(super) fn responses(&self) -> Option<Summary> {
        Summary::of(&self.responses, Duration::ZERO)
    }
}

/// The times of one side, and their statistics in each repetition.
#[derive(Default)]
pub(super) struct Times {
    all: Vec<u64>,
    medians_us: Vec<f64>,
    pub(super) means_us: Vec<f64>,
    whole: Duration,
}

impl Times {
    fn add(&mut self, times: &[u64], whole: Duration) {
        if times.is_empty() {
            return;
        }
        self.medians_us.push(median_us(times));
        self.means_us.push(times.iter().sum::<u64>() as f64 / times.len() as f64 / 1e3);
        self.all.extend_from_slice(times);
        self.whole += whole;
    }

    fn extend(&mut self, other: &Times) {
        self.all.extend_from_slice(&other.all);
        self.medians_us.extend_from_slice(&other.medians_us);
        self.means_us.extend_from_slice(&other.means_us);
        self.whole += other.whole;
    }

    /// None of no times.
    pub(super) fn summary(&self) -> Option<Summary> {
        Summary::of(&self.all, self.whole)
    }

    /// The figure, each ratio to one of `against`. Its costs are those of all that was `seen` with it, and of all calls: who of a process has
    /// used its processor time is not told.
    pub(super) fn figure(&self, label: Label, seen: &Seen, against: &[(&Label, &Times)]) -> Option<Figure> {
        let summary = self.summary()?;
        let ratio = |(with, theirs): &(&Label, &Times)| {
            let p50_us = theirs.summary()?.p50_us;
            let range = range(&self.medians_us, &theirs.medians_us);
            Some(Ratio { with: (*with).clone(), p50_us, ratio: summary.p50_us / p50_us, range })
        };
        Some(Figure {
            label,
            summary,
            medians_us: self.medians_us.clone(),
            cdf_us: cdf_us(&self.all),
            ratios: against.iter().filter_map(ratio).collect(),
            cost: seen.cost,
            calls: seen.calls,
        })
    }
}

/// The lowest and the highest ratio of a repetition.
pub(super) fn range(ours: &[f64], theirs: &[f64]) -> (f64, f64) {
    let parts = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs);
    parts.fold((f64::INFINITY, 0.0), |(low, high), part| (low.min(part), high.max(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Instant;

    impl Member for Instant {
        fn calls(&mut self, count: usize, into: &mut Samples) -> Result<(), Failure> {
            (0..count).for_each(|_| into.push(1000));
            Ok(())
        }
    }

    #[test]
    fn a_paced_client_stops_when_told_and_keeps_what_it_has_room_for() {
        let barrier = Barrier::new(1);
        let told = paced(Instant, Pace::Every(Duration::from_micros(10)), 100, &barrier, |made| made < 7);
        assert_eq!((told.outcome.unwrap().len(), told.responses.len()), (7, 7));
        let mut calls = 0;
        let full = paced(Instant, Pace::Flood, 5, &barrier, |made| {
            calls = made;
            made < 20
        });
        assert_eq!((full.outcome.unwrap().len(), calls), (5, 20));
    }

    #[test]
    fn all_play_until_the_high_priority_client_is_done() {
        let other = |pace| Other { member: Box::new(Instant), scheduling: Scheduling::Other, pace };
        let mut seen = Seen::default();
        for _ in 0..2 {
            let game = Game {
                high: Box::new(Instant),
                scheduling: Scheduling::Other,
                period: Duration::from_micros(100),
                calls: 10,
                placement: Placement::default(),
                server: std::process::id(),
            };
            let others =
                vec![other(Pace::Flood), other(Pace::NineTenths), other(Pace::Every(Duration::from_millis(1)))];
            game.play(others, &mut seen).unwrap();
        }
        assert_eq!((seen.high.all.len(), seen.high.means_us.as_slice()), (20, &[1.0, 1.0][..]));
        assert!(seen.low.summary().is_some());
        assert_eq!((seen.stalled(Duration::ZERO), seen.stalled(Duration::from_secs(600))), (20, 0));
        let label = Label {
            bench: "mt",
            peer: "floor",
            transport: "none",
            op: String::new(),
            config: String::new(),
            along: None,
        };
        let figure = seen.high.figure(label.clone(), &seen, &[(&label, &seen.low)]).unwrap();
        // Twice ten calls of one client, and of each of four those before the begin, and what the others made meanwhile.
        assert!(figure.calls >= 20 + 2 * 4 * FIRST, "{}", figure.calls);
        assert_eq!((figure.summary.n, figure.ratios[0].ratio, figure.ratios[0].range), (20, 1.0, (1.0, 1.0)));
    }
}
