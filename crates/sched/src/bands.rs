//! Priority bands: each connection of a banded reference carries the priorities of one band
//! (`PriorityBandedConnectionPolicy`).

use std::fmt;

use crate::priority::Priority;

/// A range of priorities, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PriorityBand {
    /// The lowest priority in the band.
    pub low: Priority,
    /// The highest priority in the band.
    pub high: Priority,
}

impl PriorityBand {
    /// Creates a band from raw numbers.
    ///
    /// # Errors
    /// [`BandError::Negative`] or [`BandError::Reversed`].
    pub fn new(low: i16, high: i16) -> Result<Self, BandError> {
        match (Priority::new(low), Priority::new(high)) {
            (Some(low), Some(high)) if low <= high => Ok(PriorityBand { low, high }),
            (Some(_), Some(_)) => Err(BandError::Reversed),
            _ => Err(BandError::Negative),
        }
    }

    /// Returns true if `priority` is in the band.
    #[must_use]
    pub fn contains(self, priority: Priority) -> bool {
        (self.low..=self.high).contains(&priority)
    }
}

/// The reason why numbers do not form valid bands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandError {
    /// There is no band.
    Empty,
    /// A priority is below 0.
    Negative,
    /// The low end is above the high end.
    Reversed,
    /// Two bands share a priority.
    Overlap,
}

impl fmt::Display for BandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BandError::Empty => "there is no band",
            BandError::Negative => "a priority is below 0",
            BandError::Reversed => "a band's low end is above its high end",
            BandError::Overlap => "two bands share a priority",
        })
    }
}

impl std::error::Error for BandError {}

/// One or more bands that do not overlap, in the given order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PriorityBands(Vec<PriorityBand>);

impl PriorityBands {
    /// Creates bands from raw numbers.
    ///
    /// # Errors
    /// [`BandError`] if the bands are invalid.
    ///
    /// # Examples
    /// ```
    /// use corelane_sched::{BandError, PriorityBands};
    /// assert!(PriorityBands::new([(0, 99), (100, 32767)]).is_ok());
    /// assert_eq!(PriorityBands::new([(0, 100), (100, 32767)]), Err(BandError::Overlap));
    /// ```
    pub fn new(bands: impl IntoIterator<Item = (i16, i16)>) -> Result<Self, BandError> {
        let bands = bands.into_iter().map(|(low, high)| PriorityBand::new(low, high));
        let bands = bands.collect::<Result<Vec<_>, _>>()?;
        if bands.is_empty() {
            return Err(BandError::Empty);
        }
        // The loop stops at the first overlap, so it visits each priority at most twice.
        let mut taken = vec![false; usize::from(Priority::MAX.get().unsigned_abs()) + 1];
        for band in &bands {
            for priority in band.low.get()..=band.high.get() {
                let place = usize::from(priority.unsigned_abs());
                if taken.get_mut(place).is_none_or(|taken| std::mem::replace(taken, true)) {
                    return Err(BandError::Overlap);
                }
            }
        }
        Ok(PriorityBands(bands))
    }

    /// Returns the band that contains `priority`; `None` if there is none.
    #[must_use]
    pub fn band_of(&self, priority: Priority) -> Option<PriorityBand> {
        self.0.iter().copied().find(|band| band.contains(priority))
    }

    /// Returns all bands, in the order in which they were given.
    #[must_use]
    pub fn as_slice(&self) -> &[PriorityBand] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_bands_are_refused_with_the_reason() {
        let refused = |bands: &[(i16, i16)]| PriorityBands::new(bands.iter().copied()).unwrap_err();
        assert_eq!(refused(&[]), BandError::Empty);
        assert_eq!(refused(&[(-1, 5)]), BandError::Negative);
        assert_eq!(refused(&[(0, -1)]), BandError::Negative);
        assert_eq!(refused(&[(6, 5)]), BandError::Reversed);
        assert_eq!(refused(&[(10, 20), (0, 5), (20, 30)]), BandError::Overlap);
    }

    #[test]
    fn a_band_holds_both_its_ends() {
        let bands = PriorityBands::new([(25, 35), (5, 15)]).unwrap();
        let band = |number| bands.band_of(Priority::new(number).unwrap()).map(|band| band.low.get());
        assert_eq!([4, 5, 15, 16, 25, 35, 36].map(band), [None, Some(5), Some(5), None, Some(25), Some(25), None]);
    }

    #[test]
    fn every_error_has_a_different_text() {
        let texts: Vec<String> = [BandError::Empty, BandError::Negative, BandError::Reversed, BandError::Overlap]
            .iter()
            .map(ToString::to_string)
            .collect();
        for (index, text) in texts.iter().enumerate() {
            assert!(!text.is_empty() && !texts[..index].contains(text), "{text:?}");
        }
    }
}
