//! Axes: the positions of numbers, and round numbers along an axis.

#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Scale {
    pub(super) fn linear(high: f64) -> Scale {
        Scale { low: 0.0, high: nice_end(high), logarithmic: false }
    }

    pub(super) fn of(values: impl Iterator<Item = f64> + Clone, logarithmic: bool) -> Option<Scale> {
        // 0 has no logarithm, so a logarithmic scale begins at the lowest positive value.
        let positive = values.clone().filter(|value| *value > 0.0);
        let low = if logarithmic { positive.fold(f64::INFINITY, f64::min) } else { 0.0 };
        let high = values.fold(f64::NEG_INFINITY, f64::max);
        if !low.is_finite() || !high.is_finite() {
            return None;
        }
        if logarithmic {
            let (low, high) = (low / 1.05, high * 1.05);
            let high = if high > 2.0 * low { high } else { low * 2.0 };
            return Some(Scale { low, high, logarithmic: true });
        }
        Some(Scale::linear(high))
    }

    pub(super) fn part(&self, value: f64) -> f64 {
        let part = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        part.clamp(0.0, 1.0)
    }

    pub(super) fn end(&self) -> f64 {
        self.high
    }

    pub(super) fn ticks(&self) -> Vec<f64> {
        if !self.logarithmic {
            return ticks(self.low, self.high, 5);
        }
        let decades = (self.high / self.low).log10();
        let within = |tick: &f64| *tick >= self.low * 0.999 && *tick <= self.high * 1.001;
        let powers = |factors: &[f64], step: i32| {
            let first = self.low.log10().floor() as i32;
            let last = self.high.log10().ceil() as i32;
            let mut found = Vec::new();
            for power in (first..=last).step_by(step.max(1) as usize) {
                found.extend(factors.iter().map(|factor| factor * 10f64.powi(power)).filter(within));
            }
            found
        };
        match decades {
            decades if decades > 7.0 => powers(&[1.0], 2),
            decades if decades > 2.2 => powers(&[1.0], 1),
            decades if decades > 0.8 => powers(&[1.0, 2.0, 5.0], 1),
            _ => powers(&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0], 1),
        }
    }
}

fn nice_end(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    [1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
        .iter()
        .map(|factor| factor * power)
        .find(|end| *end >= value * 0.999_999)
        .unwrap_or(value)
}

fn ticks(low: f64, high: f64, about: usize) -> Vec<f64> {
    let rough = (high - low) / about as f64;
    if rough <= 0.0 || !rough.is_finite() {
        return vec![low];
    }
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].iter().map(|factor| factor * power).find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(rough);
    let count = ((high - low) / step * 1.000_001) as usize;
    (0..=count).map(|number| low + number as f64 * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(nice_end(5.3), 6.0);
        assert_eq!(nice_end(0.02), 0.02);
        assert_eq!(ticks(0.0, 10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let scale = Scale::of([1.0, 1_000_000.0].into_iter(), true).unwrap();
        assert_eq!(scale.ticks().len(), 7);
        assert!((scale.part(1000.0) - 0.5).abs() < 1e-9);
        assert!(Scale::of([0.0].into_iter(), true).is_none());
        assert!(Scale::of(std::iter::empty(), true).is_none());
    }

    #[test]
    fn logarithmic_axis_has_at_least_two_numbers() {
        for high in [1.0, 1.3, 2.0, 5.0, 9.0, 40.0, 1e3, 1e8] {
            for low in [0.013, 1.0, 3.7, 8.9] {
                let scale = Scale::of([low, low * high].into_iter(), true).unwrap();
                let count = scale.ticks().len();
                assert!((2..=16).contains(&count), "{low} to {}: {count}", low * high);
            }
        }
    }
}
