//! Whether what a peer has begun goes on: the message that arrives, and those of which fragments are missing. Pure: time is an
//! argument.

use std::time::Duration;

use corelane_sys::clock::Monotonic;

/// Octets that count as progress: a peer that drips one at a time is as good as silent.
const PROGRESS: usize = 1024;

/// What of one connection is unfinished, and since when it has made no progress.
#[derive(Debug, Default)]
pub(crate) struct Arriving {
    message: Progress,
    /// Of the message whose first fragment came first: while others come and go, it has to go on too.
    fragments: Progress,
    /// Something was read since the last look.
    read: bool,
}

#[derive(Debug, Default)]
struct Progress {
    number: u64,
    octets: usize,
    since: Option<Monotonic>,
}

impl Arriving {
    /// Notes what is there `now`: so many octets of a message, and of the oldest fragmented one its number and octets.
    pub(crate) fn note(&mut self, message: usize, oldest: Option<(u64, usize)>, now: Monotonic) {
        self.read = true;
        self.message.note((message > 0).then_some((0, message)), now);
        self.fragments.note(oldest, now);
    }

    /// Looks whether what the peer has sent is read at all: where octets are `there` and nothing was read since the last look, it has
    /// done its part and counting begins anew.
    pub(crate) fn look(&mut self, there: bool, now: Monotonic) {
        if there && !self.read {
            for progress in [&mut self.message, &mut self.fragments] {
                progress.since = progress.since.map(|_| now);
            }
        }
        self.read = false;
    }

    /// Whether anything is unfinished.
    #[must_use]
    pub(crate) fn is_any(&self) -> bool {
        self.message.since.is_some() || self.fragments.since.is_some()
    }

    /// How long the one that has waited longest has made no progress.
    #[must_use]
    pub(crate) fn stalled_for(&self, now: Monotonic) -> Duration {
        [self.message.since, self.fragments.since]
            .into_iter()
            .flatten()
            .map(|since| now.since(since))
            .max()
            .unwrap_or_default()
    }
}

impl Progress {
    fn note(&mut self, what: Option<(u64, usize)>, now: Monotonic) {
        let Some((number, octets)) = what else {
            self.since = None;
            return;
        };
        // Fewer than before are those of another message.
        let is_new = self.since.is_none() || number != self.number || octets < self.octets;
        if is_new || octets >= self.octets.saturating_add(PROGRESS) {
            *self = Progress { number, octets, since: Some(now) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Monotonic {
        Monotonic::from_nanos(1 + seconds * 1_000_000_000)
    }

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn drops_are_no_progress() {
        let mut arriving = Arriving::default();
        assert!(!arriving.is_any());
        arriving.note(1, None, at(0));
        arriving.note(PROGRESS, None, at(2));
        assert_eq!(arriving.stalled_for(at(3)), seconds(3));
        arriving.note(PROGRESS + 1, None, at(3));
        assert_eq!(arriving.stalled_for(at(3)), seconds(0));
        arriving.note(0, None, at(4));
        assert!(!arriving.is_any());
        assert_eq!(arriving.stalled_for(at(9)), seconds(0));
    }

    #[test]
    fn what_is_not_read_is_not_the_peers_fault() {
        let mut arriving = Arriving::default();
        arriving.note(100, None, at(0));
        arriving.look(true, at(20));
        assert_eq!(arriving.stalled_for(at(20)), seconds(20));
        arriving.look(false, at(21));
        assert_eq!(arriving.stalled_for(at(21)), seconds(21));
        arriving.look(true, at(22));
        assert_eq!(arriving.stalled_for(at(23)), seconds(1));
        arriving.note(0, None, at(24));
        arriving.look(true, at(25));
        assert!(!arriving.is_any());
    }

    #[test]
    fn other_messages_that_never_cease_do_not_hide_what_is_left_lying() {
        let mut arriving = Arriving::default();
        arriving.note(0, Some((7, 5000)), at(0));
        for second in 1..10 {
            arriving.note(0, Some((7, 5000)), at(second));
            arriving.look(true, at(second));
        }
        assert_eq!(arriving.stalled_for(at(10)), seconds(10));
    }

    #[test]
    fn messages_that_come_between_are_no_progress_of_fragments() {
        let mut arriving = Arriving::default();
        arriving.note(0, Some((7, 5000)), at(0));
        for second in 1..10 {
            // Whole messages that come in two halves.
            arriving.note(3000, Some((7, 5000)), at(second));
            arriving.note(0, Some((7, 5000)), at(second));
        }
        assert_eq!(arriving.stalled_for(at(10)), seconds(10));
        arriving.note(0, Some((7, 6024)), at(10));
        assert_eq!(arriving.stalled_for(at(11)), seconds(1));
        arriving.note(0, Some((8, 100)), at(12));
        assert_eq!(arriving.stalled_for(at(12)), seconds(0));
    }
}
