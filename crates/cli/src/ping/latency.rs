//! Response times: percentiles, and a histogram.

use std::time::Duration;

use serde_json::{Value as Json, json};

const BAR: u64 = 40;

#[derive(Debug, Default)]
pub(super) struct Latencies {
    nanos: Vec<u64>,
}

#[derive(Debug, PartialEq, Eq)]
struct Bucket {
    from_us: u64,
    below_us: u64,
    count: u64,
}

impl Latencies {
    pub(super) fn add(&mut self, time: Duration) {
        self.nanos.push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nanos.is_empty()
    }

    fn sorted(&self) -> Vec<u64> {
        let mut sorted = self.nanos.clone();
        sorted.sort_unstable();
        sorted
    }

    fn buckets(&self) -> Vec<Bucket> {
        let index = |nanos: u64| (nanos / 1000).checked_ilog2().map_or(0, |power| power + 1);
        let indices: Vec<u32> = self.nanos.iter().map(|&nanos| index(nanos)).collect();
        let (Some(&first), Some(&last)) = (indices.iter().min(), indices.iter().max()) else { return Vec::new() };
        let bucket = |index: u32| Bucket {
            from_us: if index == 0 { 0 } else { 1 << (index - 1) },
            below_us: 1 << index,
            count: indices.iter().filter(|&&other| other == index).count() as u64,
        };
        (first..=last).map(bucket).collect()
    }

    pub(super) fn to_text(&self) -> String {
        let sorted = self.sorted();
        let us = |percent| percentile(&sorted, percent) / 1e3;
        let mut text =
            format!("p50 {:.1} us, p99 {:.1} us, least {:.1} us, most {:.1} us\n", us(50), us(99), us(0), us(100));
        let buckets = self.buckets();
        let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(1);
        let width = buckets.last().map_or(0, |bucket| bucket.below_us.to_string().len());
        for Bucket { from_us, below_us, count } in buckets {
            let bar = "#".repeat(usize::try_from((count * BAR).div_ceil(most)).unwrap_or(0));
            text += format!("  {from_us:>width$} - {below_us:>width$} us {count:>7} {bar}").trim_end();
            text.push('\n');
        }
        text
    }

    pub(super) fn to_json(&self) -> Json {
        if self.is_empty() {
            return Json::Null;
        }
        let sorted = self.sorted();
        let bucket =
            |bucket: Bucket| json!({ "from_us": bucket.from_us, "below_us": bucket.below_us, "count": bucket.count });
        json!({
            "least_ns": sorted.first(),
            "p50_ns": percentile(&sorted, 50) as u64,
            "p90_ns": percentile(&sorted, 90) as u64,
            "p99_ns": percentile(&sorted, 99) as u64,
            "most_ns": sorted.last(),
            "histogram": self.buckets().into_iter().map(bucket).collect::<Vec<_>>(),
        })
    }
}

/// Returns the smallest time that at least `percent` percent of the sorted times do not exceed, in
/// the unit of the times.
fn percentile(sorted: &[u64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: &[u64]) -> Latencies {
        let mut latencies = Latencies::default();
        micros.iter().for_each(|&micros| latencies.add(Duration::from_micros(micros)));
        latencies
    }

    #[test]
    fn buckets_are_powers_of_two() {
        let buckets = of(&[3, 2, 17, 31, 16]).buckets();
        let counts: Vec<(u64, u64, u64)> = buckets.iter().map(|one| (one.from_us, one.below_us, one.count)).collect();
        assert_eq!(counts, [(2, 4, 2), (4, 8, 0), (8, 16, 0), (16, 32, 3)]);
        assert_eq!(of(&[0]).buckets(), [Bucket { from_us: 0, below_us: 1, count: 1 }]);
        let mut longest = Latencies::default();
        longest.add(Duration::MAX);
        assert_eq!(longest.buckets().len(), 1);
        assert!(of(&[]).buckets().is_empty() && of(&[]).to_json().is_null());
    }

    #[test]
    fn text_and_json_have_equal_content() {
        let latencies = of(&[1, 100, 100, 200]);
        let text = latencies.to_text();
        assert!(text.starts_with("p50 100.0 us, p99 200.0 us, least 1.0 us, most 200.0 us\n"), "{text}");
        assert_eq!(text.lines().last(), Some("  128 - 256 us       1 ####################"));
        let json = latencies.to_json();
        assert_eq!((&json["p50_ns"], &json["p90_ns"]), (&100_000.into(), &200_000.into()));
        assert_eq!((&json["least_ns"], &json["most_ns"]), (&1000.into(), &200_000.into()));
        assert_eq!(json["histogram"][6]["count"], 2);
    }
}
