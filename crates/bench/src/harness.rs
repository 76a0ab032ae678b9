//! Measures the variants of a group in comparison with each other. The variants take turns (A B C A
//! B C ...), so a change of the machine's speed affects all of them.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use crate::Failure;
use crate::cost::Cost;
use crate::placement::{Placement, Side};
use crate::sample::{Samples, Summary, cdf_us, median_us};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FigureLabel {
    pub(crate) bench: &'static str,
    /// The measured product; `floor` for bare sockets.
    pub(crate) peer: &'static str,
    /// `tcp`, `unix` or `shm`; `none` for calls within one process.
    pub(crate) transport: &'static str,
    pub(crate) op: String,
    pub(crate) config: String,
    pub(crate) axis_point: Option<AxisPoint>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AxisPoint {
    pub(crate) series: String,
    pub(crate) axis: &'static str,
    pub(crate) x: u64,
}

pub(crate) trait MeasuredSubject {
    /// Makes `warm_up` uncounted calls, then `count` counted calls. Adds the time of each counted
    /// call to `into`, and returns their total time.
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure>;

    fn client_pid(&self) -> Option<u32> {
        None
    }

    fn server_pid(&self) -> Option<u32>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComparedQuantity {
    Median,
    /// Calls per second. The ratio compares the times per call.
    Rate,
}

pub(crate) struct Variant {
    pub(crate) label: FigureLabel,
    pub(crate) subject: Box<dyn MeasuredSubject + Send>,
    /// Indices in the group of the variants with which this variant is compared.
    pub(crate) against: Vec<usize>,
}

pub(crate) struct Group {
    pub(crate) title: String,
    pub(crate) compare: ComparedQuantity,
    pub(crate) variants: Vec<Variant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunLength {
    pub(crate) warm_up: usize,
    pub(crate) count: usize,
    pub(crate) repetitions: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) with: FigureLabel,
    pub(crate) p50_us: f64,
    /// A ratio below 1 means that this variant is faster.
    pub(crate) ratio: f64,
    pub(crate) range: (f64, f64),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) label: FigureLabel,
    pub(crate) summary: Summary,
    pub(crate) medians_us: Vec<f64>,
    pub(crate) cdf_us: Vec<f64>,
    pub(crate) ratios: Vec<Ratio>,
    /// The cost of the counted calls, and of the calls that warm the caches before each turn.
    /// `None` if the processes also did other work.
    pub(crate) cost: Option<Cost>,
    pub(crate) calls: usize,
}

/// A turn begins with at most 1/50 of its calls, uncounted, to warm the caches again.
const RE_WARM: usize = 50;

struct CollectedSamples {
    failed: bool,
    samples: Samples,
    calls: usize,
    whole: Duration,
    medians: Vec<f64>,
    rates: Vec<f64>,
    cost: Cost,
}

pub(crate) struct GroupResult {
    pub(crate) figures: Vec<Figure>,
    pub(crate) failed: Vec<(FigureLabel, Failure)>,
}

/// Measures the variants of a group in turns. A variant of another product that fails gets no
/// further turn, and the measurement continues.
///
/// # Errors
/// The first failure of Corelane or of the baseline, with the variant's name.
pub(crate) fn measure(
    group: &mut Group,
    run_length: &RunLength,
    placement: &Placement,
    progress: &mut Progress,
) -> Result<GroupResult, Failure> {
    let placed = placement.enter(Side::Client);
    let _placed = placed.map_err(|error| {
        Failure::new(format!(
            "the client's thread may not use this placement ({}): {error}; `corelane doctor` says what to change",
            placement.cores
        ))
    })?;
    let mut all: Vec<CollectedSamples> =
        group.variants.iter().map(|_| CollectedSamples::with_capacity(run_length)).collect();
    let mut failed = Vec::new();
    for repetition in 0..run_length.repetitions {
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
                run_length.repetitions
            ));
            match gathered.turn(variant, run_length) {
                Ok(()) => {}
                Err(failure) if is_corelane_or_floor(variant.label.peer) => return Err(failure),
                Err(failure) => {
                    gathered.failed = true;
                    failed.push((variant.label.clone(), failure));
                }
            }
        }
    }
    progress.clear();
    Ok(GroupResult { figures: compared(group, all), failed })
}

pub(crate) fn is_corelane_or_floor(peer: &str) -> bool {
    matches!(peer, "Corelane" | "floor")
}

impl CollectedSamples {
    fn with_capacity(run_length: &RunLength) -> Self {
        CollectedSamples {
            failed: false,
            samples: Samples::with_capacity(run_length.count * run_length.repetitions),
            calls: 0,
            whole: Duration::ZERO,
            medians: Vec::with_capacity(run_length.repetitions),
            rates: Vec::with_capacity(run_length.repetitions),
            cost: Cost::default(),
        }
    }

    fn turn(&mut self, variant: &mut Variant, run_length: &RunLength) -> Result<(), Failure> {
        let Variant { label, subject, .. } = variant;
        let named =
            |failure: Failure| Failure::new(format!("{} {}, {}: {failure}", label.peer, label.config, label.op));
        let first = self.samples.len();
        subject.run(run_length.warm_up, 0, &mut self.samples).map_err(named)?;
        let before = Cost::so_far(subject.client_pid(), subject.server_pid());
        // The reading of the costs displaces the calls' data from the caches, so uncounted calls
        // come first.
        let again = run_length.warm_up.min(run_length.count / RE_WARM);
        let whole = subject.run(again, run_length.count, &mut self.samples).map_err(named)?;
        self.cost.add(Cost::so_far(subject.client_pid(), subject.server_pid()).since(before));
        self.calls += again + run_length.count;
        if self.samples.len() != first + run_length.count {
            return Err(named(Failure::new("the number of measured times differs from the number of calls")));
        }
        self.whole += whole;
        self.medians.push(median_us(self.samples.skip_first(first)));
        self.rates.push(run_length.count as f64 / whole.as_secs_f64().max(1e-9));
        Ok(())
    }
}

fn compared(group: &Group, all: Vec<CollectedSamples>) -> Vec<Figure> {
    let mut figures = Vec::with_capacity(all.len());
    let summaries: Vec<Option<Summary>> =
        all.iter().map(|one| Summary::of(one.samples.skip_first(0), one.whole).filter(|_| !one.failed)).collect();
    for (index, variant) in group.variants.iter().enumerate() {
        let (Some(summary), gathered) = (summaries[index], &all[index]) else {
            continue;
        };
        let ratios = variant.against.iter().filter_map(|&other| {
            let (theirs, with) = (summaries.get(other).copied().flatten()?, &all[other]);
            let (ratio, parts): (f64, Vec<f64>) = match group.compare {
                ComparedQuantity::Median => (
                    summary.p50_us / theirs.p50_us,
                    gathered.medians.iter().zip(&with.medians).map(|(ours, theirs)| ours / theirs).collect(),
                ),
                ComparedQuantity::Rate => (
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
            cdf_us: cdf_us(gathered.samples.skip_first(0)),
            ratios: ratios.collect(),
            cost: Some(gathered.cost),
            calls: gathered.calls,
        });
    }
    figures
}

#[derive(Debug)]
pub(crate) struct Progress {
    terminal: bool,
    silent: bool,
    last: String,
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

    pub(crate) fn step(&mut self, number: usize, of: usize) {
        self.step = format!("[{number}/{of}] ");
    }

    pub(crate) fn show(&mut self, text: &str) {
        if self.silent {
            return;
        }
        let mut output = std::io::stderr().lock();
        if self.terminal {
            let _ = write!(output, "\r\x1b[K{}{text}", self.step);
            let _ = output.flush();
            return;
        }
        let group = text.split(':').next().unwrap_or(text);
        if group != self.last {
            let _ = writeln!(output, "{}measuring {group}", self.step);
            group.clone_into(&mut self.last);
        }
    }

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

    struct Fake {
        turns: Arc<AtomicUsize>,
        expected: usize,
        step: usize,
        nanoseconds: u64,
        warm: bool,
    }

    impl MeasuredSubject for Fake {
        fn run(&mut self, _: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
            if count == 0 {
                self.warm = true;
                return Ok(Duration::ZERO);
            }
            assert!(std::mem::take(&mut self.warm), "a warm-up precedes each turn");
            assert_eq!(self.turns.fetch_add(1, Ordering::Relaxed), self.expected);
            self.expected += self.step;
            (0..count).for_each(|_| into.push(self.nanoseconds));
            Ok(Duration::from_nanos(self.nanoseconds * count as u64))
        }

        fn server_pid(&self) -> Option<u32> {
            None
        }
    }

    fn group(compare: ComparedQuantity) -> Group {
        let turns = Arc::new(AtomicUsize::new(0));
        let times = [5000, 6000, 10_000];
        let variants = times.iter().enumerate().map(|(index, &nanoseconds)| Variant {
            label: FigureLabel {
                bench: "fake",
                peer: "floor",
                transport: "none",
                op: "octet".into(),
                config: format!("{nanoseconds}"),
                axis_point: None,
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

    const EXTENT: RunLength = RunLength { warm_up: 1, count: 50, repetitions: 4 };

    #[test]
    fn variants_take_turns_and_are_compared_within_the_run() {
        for compare in [ComparedQuantity::Median, ComparedQuantity::Rate] {
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

    struct Failing(usize);

    impl MeasuredSubject for Failing {
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
    fn failure_names_its_variant() {
        let mut group = group(ComparedQuantity::Median);
        group.variants.insert(1, failing("floor"));
        let failure = measure(&mut group, &EXTENT, &Placement::default(), &mut Progress::silent()).map(drop);
        assert_eq!(failure.unwrap_err().to_string(), "floor fails, octet: no answer");
    }

    #[test]
    fn failure_of_another_orb_does_not_change_the_other_figures() {
        let mut group = group(ComparedQuantity::Median);
        group.variants.push(failing("omniORB"));
        group.variants[2].against.push(3);
        let GroupResult { figures, failed } =
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
            axis_point: None,
        };
        Variant { label, subject: Box::new(Failing(0)), against: vec![0] }
    }
}
