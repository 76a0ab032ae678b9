//! Detection of messages that have arrived in part and do not continue.

use std::time::Duration;

use corelane_sys::clock::Monotonic;

/// Number of bytes by which an incomplete message must grow within the time-out. Smaller growth is
/// no progress.
const MIN_PROGRESS: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct StallDetector {
    message: ReceiveProgress,
    /// Progress of the oldest incomplete fragmented message, without the messages between its
    /// fragments.
    fragments: ReceiveProgress,
    was_read: bool,
}

#[derive(Debug, Default)]
struct ReceiveProgress {
    number: u64,
    bytes: usize,
    progressed_at: Option<Monotonic>,
}

impl StallDetector {
    pub(crate) fn record(&mut self, message: usize, oldest: Option<(u64, usize)>, now: Monotonic) {
        self.was_read = true;
        self.message.note((message > 0).then_some((0, message)), now);
        self.fragments.note(oldest, now);
    }

    /// Restarts the time-outs if there is unread input and no thread has read since the last call,
    /// because the server then causes the delay.
    pub(crate) fn check(&mut self, has_unread_input: bool, now: Monotonic) {
        if has_unread_input && !self.was_read {
            for progress in [&mut self.message, &mut self.fragments] {
                progress.progressed_at = progress.progressed_at.map(|_| now);
            }
        }
        self.was_read = false;
    }

    #[must_use]
    pub(crate) fn is_receiving(&self) -> bool {
        self.message.progressed_at.is_some() || self.fragments.progressed_at.is_some()
    }

    #[must_use]
    pub(crate) fn stalled_for(&self, now: Monotonic) -> Duration {
        [self.message.progressed_at, self.fragments.progressed_at]
            .into_iter()
            .flatten()
            .map(|since| now.since(since))
            .max()
            .unwrap_or_default()
    }
}

impl ReceiveProgress {
    fn note(&mut self, what: Option<(u64, usize)>, now: Monotonic) {
        let Some((number, bytes)) = what else {
            self.progressed_at = None;
            return;
        };
        // Fewer bytes than at the last progress belong to a different message.
        let is_new = self.progressed_at.is_none() || number != self.number || bytes < self.bytes;
        if is_new || bytes >= self.bytes.saturating_add(MIN_PROGRESS) {
            *self = ReceiveProgress { number, bytes, progressed_at: Some(now) };
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
    fn single_bytes_are_no_progress() {
        let mut stall_detector = StallDetector::default();
        assert!(!stall_detector.is_receiving());
        stall_detector.record(1, None, at(0));
        stall_detector.record(MIN_PROGRESS, None, at(2));
        assert_eq!(stall_detector.stalled_for(at(3)), seconds(3));
        stall_detector.record(MIN_PROGRESS + 1, None, at(3));
        assert_eq!(stall_detector.stalled_for(at(3)), seconds(0));
        stall_detector.record(0, None, at(4));
        assert!(!stall_detector.is_receiving());
        assert_eq!(stall_detector.stalled_for(at(9)), seconds(0));
    }

    #[test]
    fn input_that_waits_to_be_read_is_no_stall() {
        let mut stall_detector = StallDetector::default();
        stall_detector.record(100, None, at(0));
        stall_detector.check(true, at(20));
        assert_eq!(stall_detector.stalled_for(at(20)), seconds(20));
        stall_detector.check(false, at(21));
        assert_eq!(stall_detector.stalled_for(at(21)), seconds(21));
        stall_detector.check(true, at(22));
        assert_eq!(stall_detector.stalled_for(at(23)), seconds(1));
        stall_detector.record(0, None, at(24));
        stall_detector.check(true, at(25));
        assert!(!stall_detector.is_receiving());
    }

    #[test]
    fn steady_messages_do_not_hide_a_stalled_fragment() {
        let mut stall_detector = StallDetector::default();
        stall_detector.record(0, Some((7, 5000)), at(0));
        for second in 1..10 {
            stall_detector.record(0, Some((7, 5000)), at(second));
            stall_detector.check(true, at(second));
        }
        assert_eq!(stall_detector.stalled_for(at(10)), seconds(10));
    }

    #[test]
    fn messages_between_fragments_are_no_progress() {
        let mut stall_detector = StallDetector::default();
        stall_detector.record(0, Some((7, 5000)), at(0));
        for second in 1..10 {
            stall_detector.record(3000, Some((7, 5000)), at(second));
            stall_detector.record(0, Some((7, 5000)), at(second));
        }
        assert_eq!(stall_detector.stalled_for(at(10)), seconds(10));
        stall_detector.record(0, Some((7, 6024)), at(10));
        assert_eq!(stall_detector.stalled_for(at(11)), seconds(1));
        stall_detector.record(0, Some((8, 100)), at(12));
        assert_eq!(stall_detector.stalled_for(at(12)), seconds(0));
    }
}
