//! Times of single calls, and their statistics.

use std::time::Duration;

use corelane_sys::clock::{self, Monotonic};

/// Times of calls. [`with_capacity`](Self::with_capacity) allocates the memory and writes to it
/// before the first call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    nanoseconds: Vec<u64>,
}

impl Samples {
    #[must_use]
    pub(crate) fn with_capacity(count: usize) -> Self {
        let mut nanoseconds = vec![u64::MAX; count];
        nanoseconds.clear();
        Samples { nanoseconds }
    }

    #[inline]
    pub(crate) fn push(&mut self, nanoseconds: u64) {
        self.nanoseconds.push(nanoseconds);
    }

    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.nanoseconds.len()
    }

    pub(crate) fn truncate(&mut self, count: usize) {
        self.nanoseconds.truncate(count);
    }

    #[must_use]
    pub(crate) fn skip_first(&self, first: usize) -> &[u64] {
        self.nanoseconds.get(first..).unwrap_or_default()
    }
}

/// Times each of `count` calls, and returns the time from the first call's start to the last call's
/// end.
///
/// The clock is read once after each call, so each call time includes one reading.
///
/// Returns the error of the first call that fails, and makes no further call.
#[inline(always)]
pub(crate) fn time_calls<E>(
    count: usize,
    into: &mut Samples,
    mut call: impl FnMut() -> Result<(), E>,
) -> Result<Duration, E> {
    let began = clock::now();
    let mut last: Monotonic = began;
    for _ in 0..count {
        call()?;
        let now = clock::now();
        into.push(now.as_nanos() - last.as_nanos());
        last = now;
    }
    Ok(last - began)
}

/// Statistics of call times, in microseconds except for the number and the rate of calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) n: usize,
    pub(crate) min_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
    pub(crate) mean_us: f64,
    pub(crate) sd_us: f64,
    pub(crate) per_s: f64,
}

impl Summary {
    /// Computes the statistics of `times`, which are in nanoseconds. The rate is the number of
    /// calls in `times` divided by the seconds of `whole`. Returns `None` if there are no times.
    #[must_use]
    pub(crate) fn of(times: &[u64], whole: Duration) -> Option<Summary> {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let (first, last) = (*sorted.first()?, *sorted.last()?);
        let n = sorted.len() as f64;
        let mean = sorted.iter().map(|&time| time as f64).sum::<f64>() / n;
        let variance = sorted.iter().map(|&time| (time as f64 - mean).powi(2)).sum::<f64>() / n;
        let seconds = whole.as_secs_f64();
        Some(Summary {
            n: sorted.len(),
            min_us: microseconds(first),
            p50_us: microseconds(quantile(&sorted, 0.5)),
            p99_us: microseconds(quantile(&sorted, 0.99)),
            p999_us: microseconds(quantile(&sorted, 0.999)),
            max_us: microseconds(last),
            mean_us: mean / 1e3,
            sd_us: variance.sqrt() / 1e3,
            per_s: if seconds > 0.0 { n / seconds } else { 0.0 },
        })
    }
}

pub(crate) const CDF_FRACTIONS: [f64; 31] = [
    0.0, 0.001, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8,
    0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 1.0,
];

#[must_use]
pub(crate) fn cdf_us(times: &[u64]) -> Vec<f64> {
    if times.is_empty() {
        return Vec::new();
    }
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    CDF_FRACTIONS.iter().map(|&part| microseconds(quantile(&sorted, part))).collect()
}

/// Returns the nearest-rank quantile of sorted values, or 0 without values.
fn quantile(sorted: &[u64], part: f64) -> u64 {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).or(sorted.last()).copied().unwrap_or(0)
}

#[must_use]
pub(crate) fn median_us(times: &[u64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    microseconds(quantile(&sorted, 0.5))
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_known_times_are_exact() {
        let times: Vec<u64> = (1..=1000).rev().map(|n| n * 1000).collect();
        let summary = Summary::of(&times, Duration::from_secs(2)).unwrap();
        assert_eq!(summary.n, 1000);
        assert_eq!((summary.min_us, summary.max_us), (1.0, 1000.0));
        assert_eq!((summary.p50_us, summary.p99_us, summary.p999_us), (500.0, 990.0, 999.0));
        assert_eq!((summary.mean_us, summary.per_s), (500.5, 500.0));
        assert!((summary.sd_us - 288.675).abs() < 0.001, "{}", summary.sd_us);
        assert_eq!(median_us(&times), 500.0);
        let cdf = cdf_us(&times);
        assert_eq!((cdf.len(), cdf[0], cdf[13], cdf[30]), (CDF_FRACTIONS.len(), 1.0, 500.0, 1000.0));
        assert!(cdf.is_sorted() && CDF_FRACTIONS.is_sorted());
        assert!(cdf_us(&[]).is_empty());
    }

    #[test]
    fn statistics_of_few_or_no_times_are_defined() {
        assert_eq!(Summary::of(&[], Duration::ZERO), None);
        let one = Summary::of(&[7000], Duration::ZERO).unwrap();
        assert_eq!((one.min_us, one.p50_us, one.p999_us, one.max_us), (7.0, 7.0, 7.0, 7.0));
        assert_eq!((one.sd_us, one.per_s), (0.0, 0.0));
        assert_eq!(median_us(&[]), 0.0);
    }

    #[test]
    fn timing_stops_at_the_first_failure_and_does_not_allocate() {
        let mut samples = Samples::with_capacity(10);
        let room = samples.nanoseconds.capacity();
        let whole = time_calls(6, &mut samples, || Ok::<(), ()>(())).unwrap();
        assert_eq!(samples.len(), 6);
        assert!(samples.skip_first(0).iter().sum::<u64>() <= whole.as_nanos() as u64);
        let mut left = 3;
        let failed = time_calls(6, &mut samples, || {
            left -= 1;
            if left == 0 { Err("third") } else { Ok(()) }
        });
        assert_eq!(failed, Err("third"));
        assert_eq!((samples.len(), samples.nanoseconds.capacity()), (8, room));
        samples.truncate(6);
        assert_eq!(samples.skip_first(4).len(), 2);
        assert!(samples.skip_first(7).is_empty());
    }
}
