//! The record that a channel keeps of the events that gateways have brought, so that each event is
//! delivered once.
//!
//! Invariant: while the record contains a channel, each event of the channel counts as new once.
//! The record has a fixed size for each of a bounded number of channels.

use std::collections::HashMap;

use super::passage::ChannelId;

/// Number of event numbers of a channel, up to the highest, that the record tells apart. A lower
/// number is [`Arrival::TooOld`].
const WINDOW: u64 = 1 << 16;
const WORDS: usize = (WINDOW / 64) as usize;
/// Maximum number of channels in the record. A further channel replaces the channel whose last
/// event is the oldest.
const MAX_ORIGINS: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::events) enum Arrival {
    New,
    Duplicate,
    /// The number is below the window, so the record cannot tell whether the event is new. The
    /// event is refused and counts as lost.
    TooOld,
}

#[derive(Debug, Default)]
pub(in crate::events) struct SeenEvents {
    origins: HashMap<ChannelId, Window>,
    arrivals: u64,
}

#[derive(Debug)]
struct Window {
    highest: u64,
    /// A bit for each number from `highest - WINDOW + 1` to `highest`, at its number modulo the
    /// window.
    seen: Box<[u64]>,
    last_arrival: u64,
}

impl SeenEvents {
    /// Records an event. Only a new event may be passed on.
    pub(in crate::events) fn note(&mut self, origin: ChannelId, number: u64) -> Arrival {
        self.arrivals += 1;
        if !self.origins.contains_key(&origin) && self.origins.len() >= MAX_ORIGINS {
            let oldest = self.origins.iter().min_by_key(|(_, window)| window.last_arrival).map(|(origin, _)| *origin);
            oldest.and_then(|oldest| self.origins.remove(&oldest));
        }
        let window = self.origins.entry(origin).or_insert_with(|| Window {
            highest: 0,
            seen: vec![0; WORDS].into(),
            last_arrival: 0,
        });
        window.last_arrival = self.arrivals;
        window.note(number)
    }
}

impl Window {
    fn note(&mut self, number: u64) -> Arrival {
        if number > self.highest {
            if number - self.highest >= WINDOW {
                self.seen.fill(0);
            } else {
                (self.highest + 1..number).for_each(|skipped| *self.word(skipped) &= !bit(skipped));
            }
            self.highest = number;
            *self.word(number) |= bit(number);
            return Arrival::New;
        }
        if self.highest - number >= WINDOW {
            return Arrival::TooOld;
        }
        let word = self.word(number);
        let is_seen = *word & bit(number) != 0;
        *word |= bit(number);
        if is_seen { Arrival::Duplicate } else { Arrival::New }
    }

    fn word(&mut self, number: u64) -> &mut u64 {
        &mut self.seen[(number % WINDOW / 64) as usize]
    }
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::naming::simulation::{SplitMix, under_seeds};

    #[test]
    fn memory_tells_the_latest_numbers_apart_as_a_set_does() {
        under_seeds(8, |seed| {
            let mut random = SplitMix(seed);
            let (mut seen, mut naive, mut highest) = (SeenEvents::default(), BTreeSet::new(), 0);
            for _ in 0..20_000 {
                let step = [3, 200, WINDOW as usize * 2][random.below(3).min(random.below(400))];
                let base = highest - random.below(WINDOW as usize + 100).min(highest as usize) as u64;
                let number = (base + random.below(step) as u64).max(1);
                let expected = if number + WINDOW <= highest {
                    Arrival::TooOld
                } else if naive.insert(number) {
                    Arrival::New
                } else {
                    Arrival::Duplicate
                };
                highest = highest.max(number);
                assert_eq!(seen.note(7, number), expected, "{number} {highest}");
            }
        });
    }

    #[test]
    fn memory_is_bounded_and_forgets_the_channel_without_events() {
        let mut seen = SeenEvents::default();
        for origin in 0..2 * MAX_ORIGINS as u64 {
            assert_eq!(seen.note(origin, 1), Arrival::New);
            assert_eq!(seen.note(1_000_000, origin + 1), Arrival::New);
        }
        assert_eq!(seen.origins.len(), MAX_ORIGINS);
        assert_eq!(seen.note(1_000_000, 1), Arrival::Duplicate);
        assert_eq!(seen.note(1_000_000, u64::MAX), Arrival::New);
        assert_eq!(seen.note(1_000_000, u64::MAX - WINDOW), Arrival::TooOld);
    }
}
