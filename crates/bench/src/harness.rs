//! Runs variants in comparison with each other: interleaved, warmed up and repeated.
//!
//! All variants of a group exist at once and take turns (A B C A B C ...). A change of the machine
//! therefore affects all of them. Only the calls are timed. Between the first and the last call of
//! a turn, the harness does not allocate, print or read files.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use crate::Failure;
use crate::cost::Cost;
use crate::placement::{Placement, Side};
use crate::sample::{Samples, Summary, cdf_us, median_us};

/// Name of a figure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FigureLabel {
    pub(crate) bench: &'static str,
    /// The measured ORB: Corelane or another ORB; `floor` for bare sockets.
    pub(crate) peer: &'static str,
    /// Transport of the messages: tcp, unix, shm, or none within one process.
    pub(crate) transport: &'static str,
    pub(crate) op: String,
    /// All other properties of the variant: dispatch architecture, threads.
    pub(crate) config: String,
    /// Position on the axis that the benchmark varies, if it varies one.
    pub(crate) along: Option<AxisPoint>,
}

/// A position on an axis, for figures that form lines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AxisPoint {
    /// Name that all points of one line share.
    pub(crate) series: String,
    /// The quantity that is varied, such as `connections`.
    pub(crate) axis: &'static str,
    pub(crate) x: u64,
}

/// A source of calls that can be timed.
pub(crate) trait Subject {
    /// Makes `count` calls one after another, adds the time of each to `into`, and returns their
    /// total time.
    ///
    /// # Errors
    /// A call fails or returns a wrong result.
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure>;

    /// Returns the client's process, if it is not this one.
    fn client_pid(&self) -> Option<u32> {
        None
    }

    fn server_pid(&self) -> Option<u32>;
}

/// The quantity that a ratio compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Median,
    /// Total time per call, for oneways, where the time of a single call has little meaning.
    Rate,
}

/// One of the compared configurations.
pub(crate) struct Variant {
    pub(crate) label: FigureLabel,
    pub(crate) subject: Box<dyn Subject + Send>,
    /// Indices of the variants in the group that it is compared with; the first is its baseline.
    pub(crate) against: Vec<usize>,
}

/// Variants that are measured together.
pub(crate) struct Group {
    pub(crate) title: String,
    pub(crate) compare: Compare,
    /// The variants, in the order of their turns.
    pub(crate) variants: Vec<Variant>,
}

/// Number of calls and repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Calls before each turn that are not counted.
    pub(crate) warm_up: usize,
    /// Calls per turn.
    pub(crate) count: usize,
    /// Turns of each variant.
    pub(crate) repetitions: usize,
}

/// A comparison with another variant of the same group and run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ratio {
    /// Name of the other variant.
    pub(crate) with: FigureLabel,
    /// Median of the other variant, in microseconds.
    pub(crate) p50_us: f64,
    /// This variant's time divided by the other's, over all repetitions: below 1 is faster.
    pub(crate) ratio: f64,
    /// The smallest and the largest ratio of one repetition.
    pub(crate) range: (f64, f64),
}

/// The measurements of one variant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) label: FigureLabel,
    /// Statistics over all repetitions.
    pub(crate) summary: Summary,
    /// Median of each repetition, in microseconds.
    pub(crate) medians_us: Vec<f64>,
    /// Times at [`CDF_PARTS`](crate::sample::CDF_PARTS), in microseconds.
    pub(crate) cdf_us: Vec<f64>,
    /// Comparisons with other variants; the first is the baseline. Empty for a baseline.
    pub(crate) ratios: Vec<Ratio>,
    /// Cost of the calls, without the first warm-up.
    pub(crate) cost: Cost,
    /// Calls to which the cost belongs: the timed ones and the few made just before them.
    pub(crate) calls: usize,
}

/// Divisor for the calls that are made just before a turn to warm the caches: at most a fiftieth of
/// the turn's calls. The cost includes them.
const RE_WARM: usize = 50;

/// The samples of one variant.
struct CollectedSamples {
    /// True after a failure; the samples gathered before it are not used.
    failed: bool,
    samples: Samples,
    calls: usize,
    whole: Duration,
    medians: Vec<f64>,
    rates: Vec<f64>,
    cost: Cost,
}

/// The result of a group.
pub(crate) struct Measured {
    /// Figures of the variants that did not fail.
    pub(crate) figures: Vec<Figure>,
    /// Other ORBs that failed, with their reasons.
    pub(crate) failed: Vec<(FigureLabel, Failure)>,
}

/// Runs a group. Another ORB that fails gets no further turn, and the other variants continue.
///
/// # Errors
/// The first failure of Corelane or of a bare socket, with the variant's name.
pub(crate) fn measure(
    group: &mut Group,
    extent: &Extent,
    placement: &Placement,
    progress: &mut Progress,
) -> Result<Measured, Failure> {
    let placed = placement.enter(Side::Client);
    let _placed = placed.map_err(|error| {
        Failure::new(format!(
            "the client's thread may not use this placement ({}): {error}; `corelane doctor` says what to change",
            placement.cores
        ))
    })?;
    let mut all: Vec<CollectedSamples> = group.variants.iter().map(|_| CollectedSamples::with_room(extent)).collect();
    let mut failed = Vec::new();
    for repetition in 0..extent.repetitions {
        for (variant, gathered) in group.variants.iter_mut().zip(&mut all) {
            if gathered.failed {
                continue;
            }
            progress.show(&format!(
                "{}: {} {} ({} of {})",
                group.title,
                variant.label.peer,
                variant.label.config,
                repetition + 1,
                extent.repetitions
            ));
            match gathered.turn(variant, extent) {
                Ok(()) => {}
                Err(failure) if is_ours(variant.label.peer) => return Err(failure),
                Err(failure) => {
                    gathered.failed = true;
                    failed.push((variant.label.clone(), failure));
                }
            }
        }
    }
    progress.clear();
    Ok(Measured { figures: compared(group, all), failed })
}

/// Returns true for Corelane and bare sockets. Without them there is no comparison.
pub(crate) fn is_ours(peer: &str) -> bool {
    matches!(peer, "Corelane" | "floor")
}

impl CollectedSamples {
    fn with_room(extent: &Extent) -> Self {
        CollectedSamples {
            failed: false,
            samples: Samples::with_room(extent.count * extent.repetitions),
            calls: 0,
            whole: Duration::ZERO,
            medians: Vec::with_capacity(extent.repetitions),
            rates: Vec::with_capacity(extent.repetitions),
            cost: Cost::default(),
        }
    }

    fn turn(&mut self, variant: &mut Variant, extent: &Extent) -> Result<(), Failure> {
        let Variant { label, subject, .. } = variant;
        let named =
            |failure: Failure| Failure::new(format!("{} {}, {}: {failure}", label.peer, label.config, label.op));
        let first = self.samples.len();
        subject.run(extent.warm_up, 0, &mut self.samples).map_err(named)?;
        let before = Cost::so_far(subject.client_pid(), subject.server_pid());
        // Reading the costs has cooled the caches.
        let again = extent.warm_up.min(extent.count / RE_WARM);
        let whole = subject.run(again, extent.count, &mut self.samples).map_err(named)?;
        self.cost.add(Cost::so_far(subject.client_pid(), subject.server_pid()).since(before));
        self.calls += again + extent.count;
        if self.samples.len() != first + extent.count {
            return Err(named(Failure::new("the number of measured times differs from the number of calls")));
        }
        self.whole += whole;
        self.medians.push(median_us(self.samples.since(first)));
        self.rates.push(extent.count as f64 / whole.as_secs_f64().max(1e-9));
        Ok(())
    }
}

fn compared(group: &Group, all: Vec<CollectedSamples>) -> Vec<Figure> {
    let mut figures = Vec::with_capacity(all.len());
    let summaries: Vec<Option<Summary>> =
        all.iter().map(|one| Summary::of(one.samples.since(0), one.whole).filter(|_| !one.failed)).collect();
    for (index, variant) in group.variants.iter().enumerate() {
        let (Some(summary), gathered) = (summaries[index], &all[index]) else {
            continue;
        };
        let ratios = variant.against.iter().filter_map(|&other| {
            let (theirs, with) = (summaries.get(other).copied().flatten()?, &all[other]);
            let (ratio, parts): (f64, Vec<f64>) = match group.compare {
                Compare::Median => (
                    summary.p50_us / theirs.p50_us,
                    gathered.medians.iter().zip(&with.medians).map(|(ours, theirs)| ours / theirs).collect(),
                ),
                Compare::Rate => (
                    theirs.per_s / summary.per_s,
                    gathered.rates.iter().zip(&with.rates).map(|(ours, theirs)| theirs / ours).collect(),
                ),
            };
            let range =
                parts.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), &part| (low.min(part), high.max(part)));
            Some(Ratio { with: group.variants[other].label.clone(), p50_us: theirs.p50_us, ratio, range })
        });
        figures.push(Figure {
            label: variant.label.clone(),
            summary,
            medians_us: gathered.medians.clone(),
            cdf_us: cdf_us(gathered.samples.since(0)),
            ratios: ratios.collect(),
            cost: gathered.cost,
            calls: gathered.calls,
        });
    }
    figures
}

/// Shows the progress on the standard error: on a terminal one line that is overwritten, else a
/// line for each group.
#[derive(Debug)]
pub(crate) struct Progress {
    terminal: bool,
    silent: bool,
    last: String,
    /// Number of the current benchmark and of all benchmarks, as text.
    step: String,
}

impl Progress {
    #[must_use]
    pub(crate) fn new() -> Self {
        Progress { terminal: std::io::stderr().is_terminal(), silent: false, last: String::new(), step: String::new() }
    }

    #[cfg(test)]
    pub(crate) fn silent() -> Self {
        Progress { terminal: false, silent: true, last: String::new(), step: String::new() }
    }

    /// Sets the number of the current benchmark, from 1, and the number of all.
    pub(crate) fn step(&mut self, number: usize, of: usize) {
        self.step = format!("[{number}/{of}] ");
    }

    pub(crate) fn show(&mut self, what: &str) {
        if self.silent {
            return;
        }
        let mut output = std::io::stderr().lock();
        if self.terminal {
            let _ = write!(output, "\r\x1b[K{}{what}", self.step);
            let _ = output.flush();
            return;
        }
        let group = what.split(':').next().unwrap_or(what);
        if group != self.last {
            let _ = writeln!(output, "{}measuring {group}", self.step);
            group.clone_into(&mut self.last);
        }
    }

    /// Removes the line, so that other text can be printed.
    pub(crate) fn clear(&mut self) {
        if self.terminal && !self.silent {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Checks the order of the turns, and reports a given time.
    struct Fake {
        turns: Arc<AtomicUsize>,
        expected: usize,
        step: usize,
        nanoseconds: u64,
        warm: bool,
    }

    impl Subject for Fake {
        fn run(&mut self, _: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
            if count == 0 {
                self.warm = true;
                return Ok(Duration::ZERO);
            }
            assert!(std::mem::take(&mut self.warm), "a turn follows its warm-up");
            assert_eq!(self.turns.fetch_add(1, Ordering::Relaxed), self.expected);
            self.expected += self.step;
            (0..count).for_each(|_| into.push(self.nanoseconds));
            Ok(Duration::from_nanos(self.nanoseconds * count as u64))
        }

        fn server_pid(&self) -> Option<u32> {
            None
        }
    }

    fn group(compare: Compare) -> Group {
        let turns = Arc::new(AtomicUsize::new(0));
        let times = [5000, 6000, 10_000];
        let variants = times.iter().enumerate().map(|(index, &nanoseconds)| Variant {
            label: FigureLabel {
                bench: "fake",
                peer: "floor",
                transport: "none",
                op: "octet".into(),
                config: format!("{nanoseconds}"),
                along: None,
            },
            subject: Box::new(Fake {
                turns: turns.clone(),
                expected: index,
                step: times.len(),
                nanoseconds,
                warm: false,
            }),
            against: [vec![], vec![0], vec![0, 1]][index].clone(),
        });
        Group { title: "fake".into(), compare, variants: variants.collect() }
    }

    const EXTENT: Extent = Extent { warm_up: 1, count: 50, repetitions: 4 };

    #[test]
    fn variants_take_turns_and_are_compared_within_the_run() {
        for compare in [Compare::Median, Compare::Rate] {
            let figures =
                measure(&mut group(compare), &EXTENT, &Placement::default(), &mut Progress::silent()).unwrap().figures;
            assert_eq!(figures.len(), 3);
            assert!(figures[0].ratios.is_empty());
            assert_eq!((figures[0].summary.n, figures[0].calls), (200, 204));
            assert_eq!(figures[1].medians_us, [6.0; 4]);
            let ratio = &figures[1].ratios[0];
            assert!((ratio.ratio - 1.2).abs() < 1e-9 && (ratio.range.0 - 1.2).abs() < 1e-9, "{ratio:?}");
            let both: Vec<f64> = figures[2].ratios.iter().map(|ratio| ratio.ratio).collect();
            assert!((both[0] - 2.0).abs() < 1e-9 && (both[1] - 10.0 / 6.0).abs() < 1e-9, "{both:?}");
            assert_eq!(figures[2].ratios[1].with.config, "6000");
        }
    }

    /// Answers one time, then fails.
    struct Failing(usize);

    impl Subject for Failing {
        fn run(&mut self, _: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
            if count > 0 {
                self.0 += 1;
            }
            if self.0 > 1 {
                return Err(Failure::new("no answer"));
            }
            (0..count).for_each(|_| into.push(7000));
            Ok(Duration::from_micros(7 * count as u64))
        }

        fn server_pid(&self) -> Option<u32> {
            None
        }
    }

    #[test]
    fn a_failure_has_the_variants_name() {
        let mut group = group(Compare::Median);
        group.variants.insert(1, failing("floor"));
        let failure = measure(&mut group, &EXTENT, &Placement::default(), &mut Progress::silent()).map(drop);
        assert_eq!(failure.unwrap_err().to_string(), "floor fails, octet: no answer");
    }

    #[test]
    fn another_orb_that_fails_leaves_the_rest_as_it_is() {
        let mut group = group(Compare::Median);
        group.variants.push(failing("omniORB"));
        group.variants[2].against.push(3);
        let Measured { figures, failed } =
            measure(&mut group, &EXTENT, &Placement::default(), &mut Progress::silent()).unwrap();
        let told: Vec<(usize, usize)> = figures.iter().map(|figure| (figure.summary.n, figure.ratios.len())).collect();
        assert_eq!(told, [(200, 0), (200, 1), (200, 2)]);
        let failed: Vec<(&str, String)> = failed.iter().map(|(label, why)| (label.peer, why.to_string())).collect();
        assert_eq!(failed, [("omniORB", "omniORB fails, octet: no answer".to_owned())]);
    }

    fn failing(peer: &'static str) -> Variant {
        let label = FigureLabel {
            bench: "fake",
            peer,
            transport: "none",
            op: "octet".into(),
            config: "fails".into(),
            along: None,
        };
        Variant { label, subject: Box::new(Failing(0)), against: vec![0] }
    }
}
