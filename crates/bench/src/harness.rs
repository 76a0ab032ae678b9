//! Runs variants against each other: interleaved, warmed up, several times.
//!
//! All variants of a group are there at once and take turns (A B C A B C ...), so that whatever changes on the machine meets
//! them all. Only the calls are inside the clock; nothing is allocated, printed or read from files between the first and the last of a turn.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use crate::Failure;
use crate::cost::Cost;
use crate::placement::{Placement, Side};
use crate::sample::{Samples, Summary, cdf_us, median_us};

/// What names a figure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Label {
    /// The benchmark.
    pub(crate) bench: &'static str,
    /// Whose program: Corelane, omniORB, or floor for bare sockets.
    pub(crate) peer: &'static str,
    /// What carries the messages: tcp, unix, shm; none within one process.
    pub(crate) transport: &'static str,
    /// The operation that is called.
    pub(crate) op: String,
    /// Everything else that tells the variant from others: dispatch architecture, threads.
    pub(crate) config: String,
    /// Its place along the axis that the benchmark varies, where it varies one.
    pub(crate) along: Option<Along>,
}

/// A place along an axis, for figures that draw lines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Along {
    /// What all points of one line have in common.
    pub(crate) series: String,
    /// What is varied, such as `connections`.
    pub(crate) axis: &'static str,
    /// How much of it.
    pub(crate) x: u64,
}

/// Something whose calls can be timed.
pub(crate) trait Subject {
    /// Makes `count` calls one after another, adds the time of each, and answers the time of all together.
    ///
    /// # Errors
    /// A call fails or answers something wrong.
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure>;

    /// The client's process, if it is not this one.
    fn client_pid(&self) -> Option<u32> {
        None
    }

    /// The server's process.
    fn server_pid(&self) -> Option<u32>;
}

/// What a ratio compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    /// Medians of the call times.
    Median,
    /// Time per call over everything, where the time of a single call says little (oneways).
    Rate,
}

/// One of the things that are compared.
pub(crate) struct Variant {
    /// Its name.
    pub(crate) label: Label,
    /// What it does.
    pub(crate) subject: Box<dyn Subject + Send>,
    /// Which variants of the group it is compared with; the first is its baseline.
    pub(crate) against: Vec<usize>,
}

/// Variants that are measured together.
pub(crate) struct Group {
    /// What they have in common, for people.
    pub(crate) title: String,
    /// How they compare.
    pub(crate) compare: Compare,
    /// They.
    pub(crate) variants: Vec<Variant>,
}

/// How much is measured.
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
    /// That variant.
    pub(crate) with: Label,
    /// Its median.
    pub(crate) p50_us: f64,
    /// Ours divided by its, over all repetitions: below 1 is faster.
    pub(crate) ratio: f64,
    /// The smallest and the largest ratio of one repetition.
    pub(crate) range: (f64, f64),
}

/// What was measured of one variant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    /// The variant.
    pub(crate) label: Label,
    /// Statistics over all repetitions.
    pub(crate) summary: Summary,
    /// The median of each repetition.
    pub(crate) medians_us: Vec<f64>,
    /// The times at [`CDF_PARTS`](crate::sample::CDF_PARTS).
    pub(crate) cdf_us: Vec<f64>,
    /// How it compares; the first is the baseline. Empty for a baseline.
    pub(crate) ratios: Vec<Ratio>,
    /// What the calls cost, without the first warm-up.
    pub(crate) cost: Cost,
    /// Calls to which the cost belongs: those that were timed, and the few that were made just before them.
    pub(crate) calls: usize,
}

/// A fiftieth of the calls of a turn are made before it, within its costs.
const RE_WARM: usize = 50;

/// What a variant has gathered.
struct Gathered {
    /// What it has gathered until then is nobody's.
    failed: bool,
    samples: Samples,
    /// Calls to which the cost belongs.
    calls: usize,
    whole: Duration,
    medians: Vec<f64>,
    rates: Vec<f64>,
    cost: Cost,
}

/// What came of a group.
pub(crate) struct Measured {
    /// Of the variants that did not fail.
    pub(crate) figures: Vec<Figure>,
    /// Other ORBs that failed, with their reasons.
    pub(crate) failed: Vec<(Label, Failure)>,
}

/// Runs a group. Another ORB that fails has no further turn; the rest goes on.
///
/// # Errors
/// The first failure of a variant of ours or of a bare socket, with its name.
pub(crate) fn measure(
    group: &mut Group,
    extent: &Extent,
    placement: &Placement,
    progress: &mut Progress,
) -> Result<Measured, Failure> {
    let placed = placement.enter(Side::Client);
    let _placed = placed.map_err(|error| {
        Failure::new(format!(
            "the client's thread may not run there ({}): {error}; `corelane doctor` says what to change",
            placement.cores
        ))
    })?;
    let mut all: Vec<Gathered> = group.variants.iter().map(|_| Gathered::with_room(extent)).collect();
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

/// Whether there is nothing to compare without it: Corelane, or bare sockets.
pub(crate) fn is_ours(peer: &str) -> bool {
    matches!(peer, "Corelane" | "floor")
}

impl Gathered {
    fn with_room(extent: &Extent) -> Self {
        Gathered {
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
        // Looking at the costs has cooled the caches.
        let again = extent.warm_up.min(extent.count / RE_WARM);
        let whole = subject.run(again, extent.count, &mut self.samples).map_err(named)?;
        self.cost.add(Cost::so_far(subject.client_pid(), subject.server_pid()).since(before));
        self.calls += again + extent.count;
        if self.samples.len() != first + extent.count {
            return Err(named(Failure::new("the number of times is not that of the calls")));
        }
        self.whole += whole;
        self.medians.push(median_us(self.samples.since(first)));
        self.rates.push(extent.count as f64 / whole.as_secs_f64().max(1e-9));
        Ok(())
    }
}

fn compared(group: &Group, all: Vec<Gathered>) -> Vec<Figure> {
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

/// Says on the standard error output what is being done: one line that is written over on a terminal, else a line for each
/// group.
#[derive(Debug)]
pub(crate) struct Progress {
    terminal: bool,
    silent: bool,
    last: String,
    /// Which benchmark of how many is being run.
    step: String,
}

impl Progress {
    /// To the standard error output.
    #[must_use]
    pub(crate) fn new() -> Self {
        Progress { terminal: std::io::stderr().is_terminal(), silent: false, last: String::new(), step: String::new() }
    }

    /// Says nothing, for tests.
    #[cfg(test)]
    pub(crate) fn silent() -> Self {
        Progress { terminal: false, silent: true, last: String::new(), step: String::new() }
    }

    /// From now on the benchmark with this number, from 1, of so many.
    pub(crate) fn step(&mut self, number: usize, of: usize) {
        self.step = format!("[{number}/{of}] ");
    }

    /// Shows what is being done now.
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

    /// Takes the line away, so that something else can be printed.
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

    /// Writes down the order of the turns, and takes the time it is told.
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
            label: Label {
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

    /// Answers once.
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
        let label =
            Label { bench: "fake", peer, transport: "none", op: "octet".into(), config: "fails".into(), along: None };
        Variant { label, subject: Box::new(Failing(0)), against: vec![0] }
    }
}
