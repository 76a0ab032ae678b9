//! One high-priority client beside other clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use corelane_sys::clock;
use corelane_sys::thread::{CpuSet, JoinHandle, Scheduling, ThreadBuilder};

use crate::Failure;
use crate::client_group::GroupClient;
use crate::cost::Cost;
use crate::harness::{Figure, FigureLabel, Ratio};
use crate::placement::{Placement, Side};
use crate::sample::{Samples, Summary, cdf_us, median_us};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallPace {
    /// The client calls at fixed times at this interval, counted from the common start.
    Every(Duration),
    /// The client pauses for a ninth of the time of each call.
    NineTenths,
    /// No pauses, in the ordinary scheduling class.
    Flood,
    /// No pauses, at a fixed priority. The kernel may stop such a thread for a part of each second.
    Whole,
}

pub(crate) struct BackgroundClient {
    pub(crate) member: Box<dyn GroupClient>,
    pub(crate) scheduling: Scheduling,
    pub(crate) pace: CallPace,
}

pub(crate) struct LoadMix {
    pub(crate) high: Box<dyn GroupClient>,
    pub(crate) scheduling: Scheduling,
    pub(crate) period: Duration,
    /// Number of calls of the high-priority client. All clients end after its last call.
    pub(crate) calls: usize,
    /// Placement of the high-priority client.
    pub(crate) placement: Placement,
    /// Placement of the other clients.
    pub(crate) others: Placement,
    pub(crate) server: u32,
}

impl LoadMix {
    pub(crate) fn run(self, others: Vec<BackgroundClient>, seen: &mut Observations) -> Result<(), Failure> {
        let (barrier, over) = (Arc::new(Barrier::new(others.len() + 1)), Arc::new(AtomicBool::new(false)));
        let before = Cost::so_far(None, Some(self.server));
        let mut low = Vec::with_capacity(others.len());
        for (number, other) in others.into_iter().enumerate() {
            let (barrier, over) = (barrier.clone(), over.clone());
            // Floods of fixed priority would keep threads of lower priority from the core.
            let scheduling = if other.pace == CallPace::Flood { Scheduling::Other } else { other.scheduling };
            let room = room(other.pace, self.period * self.calls as u32);
            let member = other.member;
            let body = move || paced(member, other.pace, room, &barrier, |_| !over.load(Ordering::Acquire));
            low.push(thread(format!("low/{number}"), &self.others, scheduling, body)?);
        }
        let (member, pace, calls) = (self.high, CallPace::Every(self.period), self.calls);
        let high = thread("high".to_owned(), &self.placement, self.scheduling, move || {
            let paced = paced(member, pace, calls, &barrier, |made| made < calls);
            over.store(true, Ordering::Release);
            paced
        })?;
        let ended =
            |thread: JoinHandle<PacedClient>| thread.join().map_err(|_| Failure::new("a client thread panicked"));
        let high = ended(high)?;
        let (mut times, mut late, mut made) = (Vec::new(), high.late, high.made);
        for thread in low {
            let paced = ended(thread)?;
            made += paced.made;
            times.extend_from_slice(paced.outcome?.skip_first(0));
            late += paced.late;
        }
        seen.cost.add(Cost::so_far(None, Some(self.server)).since(before));
        seen.calls += made;
        seen.late += late;
        seen.responses.extend_from_slice(&high.responses);
        seen.high.add(high.outcome?.skip_first(0), high.whole);
        seen.low.add(&times, high.whole);
        Ok(())
    }
}

fn thread<T: Send + 'static>(
    name: String,
    placement: &Placement,
    scheduling: Scheduling,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Failure> {
    let mut builder = ThreadBuilder::new().name(name).stack_size(256 * 1024).scheduling(scheduling);
    if let Some(core) = placement.core(Side::Client) {
        builder = builder.affinity(CpuSet::one(core));
    }
    builder.spawn(body).map_err(|error| Failure::new(format!("a client thread cannot be started: {error}")))
}

fn room(pace: CallPace, time: Duration) -> usize {
    match pace {
        CallPace::Every(period) => 2 * (time.as_nanos() / period.as_nanos().max(1)) as usize + 16,
        CallPace::NineTenths | CallPace::Whole => 10_000,
        CallPace::Flood => 0,
    }
}

struct PacedClient {
    outcome: Result<Samples, Failure>,
    /// Nanoseconds from the due time of each call to its reply.
    responses: Vec<u64>,
    late: usize,
    made: usize,
    whole: Duration,
}

const FIRST: usize = 5;

/// Calls at the pace while `more` returns true for the number of calls, and records the times of
/// the first `room` calls.
fn paced(
    mut member: impl GroupClient,
    pace: CallPace,
    room: usize,
    barrier: &Barrier,
    mut more: impl FnMut(usize) -> bool,
) -> PacedClient {
    let (mut samples, mut one) = (Samples::with_capacity(room), Samples::with_capacity(1));
    // The first calls connect and touch all memory, so they are not measured.
    let mut outcome = member.calls(FIRST, &mut Samples::with_capacity(FIRST));
    barrier.wait();
    let began = clock::now();
    let (mut next, mut late, mut made) = (began, 0, 0);
    let mut responses = Vec::with_capacity(if matches!(pace, CallPace::Every(_)) { room } else { 0 });
    while outcome.is_ok() {
        one.truncate(0);
        outcome = member.calls(1, &mut one);
        if samples.len() < room {
            one.skip_first(0).iter().for_each(|&time| samples.push(time));
            if let CallPace::Every(_) = pace {
                responses.push(next.elapsed().as_nanos() as u64);
            }
        }
        made += 1;
        if !more(made) {
            break;
        }
        match pace {
            CallPace::Every(period) => {
                next += period;
                std::thread::sleep(next.remaining());
                late += usize::from(next.elapsed() > period / 2);
            }
            CallPace::NineTenths => std::thread::sleep(Duration::from_nanos(one.skip_first(0).iter().sum::<u64>() / 9)),
            CallPace::Flood | CallPace::Whole => {}
        }
    }
    PacedClient { outcome: outcome.map(|()| samples), responses, late, made: made + FIRST, whole: began.elapsed() }
}

#[derive(Default)]
pub(crate) struct Observations {
    pub(crate) high: ResponseTimes,
    pub(crate) low: ResponseTimes,
    responses: Vec<u64>,
    pub(crate) cost: Cost,
    calls: usize,
    pub(crate) late: usize,
}

impl Observations {
    pub(crate) fn add(&mut self, other: &Observations) {
        self.high.extend(&other.high);
        self.low.extend(&other.low);
        self.responses.extend_from_slice(&other.responses);
        self.cost.add(other.cost);
        self.calls += other.calls;
        self.late += other.late;
    }

    pub(crate) fn stalled(&self, time: Duration) -> usize {
        self.responses.iter().filter(|&&response| u128::from(response) > time.as_nanos()).count()
    }

    pub(crate) fn responses(&self) -> Option<Summary> {
        Summary::of(&self.responses, Duration::ZERO)
    }
}

#[derive(Default)]
pub(crate) struct ResponseTimes {
    all: Vec<u64>,
    medians_us: Vec<f64>,
    pub(crate) means_us: Vec<f64>,
    whole: Duration,
}

impl ResponseTimes {
    fn add(&mut self, times: &[u64], whole: Duration) {
        if times.is_empty() {
            return;
        }
        self.medians_us.push(median_us(times));
        self.means_us.push(times.iter().sum::<u64>() as f64 / times.len() as f64 / 1e3);
        self.all.extend_from_slice(times);
        self.whole += whole;
    }

    fn extend(&mut self, other: &ResponseTimes) {
        self.all.extend_from_slice(&other.all);
        self.medians_us.extend_from_slice(&other.medians_us);
        self.means_us.extend_from_slice(&other.means_us);
        self.whole += other.whole;
    }

    pub(crate) fn summary(&self) -> Option<Summary> {
        Summary::of(&self.all, self.whole)
    }

    /// Returns the figure of the calls' response times; `None` without calls. The cost is that of
    /// all calls in `seen`, because the processor time is known for the whole process only.
    pub(crate) fn figure(
        &self,
        label: FigureLabel,
        seen: &Observations,
        against: &[(&FigureLabel, &ResponseTimes)],
    ) -> Option<Figure> {
        let summary = self.summary()?;
        let ratio = |(with, theirs): &(&FigureLabel, &ResponseTimes)| {
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
            cost: Some(seen.cost),
            calls: seen.calls,
        })
    }
}

pub(crate) fn range(ours: &[f64], theirs: &[f64]) -> (f64, f64) {
    let parts = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs);
    parts.fold((f64::INFINITY, 0.0), |(low, high), part| (low.min(part), high.max(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Instant;

    impl GroupClient for Instant {
        fn calls(&mut self, count: usize, into: &mut Samples) -> Result<(), Failure> {
            (0..count).for_each(|_| into.push(1000));
            Ok(())
        }
    }

    #[test]
    fn paced_client_stops_on_request_and_keeps_times_up_to_its_capacity() {
        let barrier = Barrier::new(1);
        let told = paced(Instant, CallPace::Every(Duration::from_micros(10)), 100, &barrier, |made| made < 7);
        assert_eq!((told.outcome.unwrap().len(), told.responses.len()), (7, 7));
        let mut calls = 0;
        let full = paced(Instant, CallPace::Flood, 5, &barrier, |made| {
            calls = made;
            made < 20
        });
        assert_eq!((full.outcome.unwrap().len(), calls), (5, 20));
    }

    #[test]
    fn all_clients_call_until_the_high_priority_client_has_ended() {
        let other = |pace| BackgroundClient { member: Box::new(Instant), scheduling: Scheduling::Other, pace };
        let mut seen = Observations::default();
        for _ in 0..2 {
            let game = LoadMix {
                high: Box::new(Instant),
                scheduling: Scheduling::Other,
                period: Duration::from_micros(100),
                calls: 10,
                placement: Placement::default(),
                others: Placement::default(),
                server: std::process::id(),
            };
            let others = vec![
                other(CallPace::Flood),
                other(CallPace::NineTenths),
                other(CallPace::Every(Duration::from_millis(1))),
            ];
            game.run(others, &mut seen).unwrap();
        }
        assert_eq!((seen.high.all.len(), seen.high.means_us.as_slice()), (20, &[1.0, 1.0][..]));
        assert!(seen.low.summary().is_some());
        assert_eq!((seen.stalled(Duration::ZERO), seen.stalled(Duration::from_secs(600))), (20, 0));
        let label = FigureLabel {
            bench: "mt",
            peer: "floor",
            transport: "none",
            op: String::new(),
            config: String::new(),
            axis_point: None,
        };
        let figure = seen.high.figure(label.clone(), &seen, &[(&label, &seen.low)]).unwrap();
        assert!(figure.calls >= 20 + 2 * 4 * FIRST, "{}", figure.calls);
        assert_eq!((figure.summary.n, figure.ratios[0].ratio, figure.ratios[0].range), (20, 1.0, (1.0, 1.0)));
    }
}
