//! The events of one lane that wait for the destination of a gateway.

use std::collections::VecDeque;

use crate::events::queue::QueueLimits;

/// The events that wait for the destination, in the order of their arrival, and the sizes of the
/// events that are being sent (under way).
///
/// Invariant: the events that wait and those under way are within the limits. An event under way is
/// not dropped.
#[derive(Debug)]
pub(super) struct ForwardBuffer<E> {
    waiting: VecDeque<(E, usize)>,
    bytes: usize,
    under_way: Vec<usize>,
}

impl<E> Default for ForwardBuffer<E> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), bytes: 0, under_way: Vec::new() }
    }
}

impl<E> ForwardBuffer<E> {
    /// Adds an event. Returns the number of events that were dropped: the oldest ones that wait,
    /// and the event itself if it has no room beside the events under way.
    pub(super) fn push(&mut self, event: E, bytes: usize, limits: &QueueLimits) -> u64 {
        let mut dropped = 0;
        while self.len() >= limits.max_delivery_sets || self.bytes.saturating_add(bytes) > limits.max_bytes {
            dropped += 1;
            match self.waiting.pop_front() {
                Some((_, bytes)) => self.bytes -= bytes,
                None => return dropped,
            }
        }
        self.bytes += bytes;
        self.waiting.push_back((event, bytes));
        dropped
    }

    /// Takes the oldest events, within `max_events` and `max_bytes`, but at least one if any waits.
    /// They are under way until [`delivered`](Self::delivered) or [`put_back`](Self::put_back).
    pub(super) fn take(&mut self, max_events: usize, max_bytes: usize) -> Vec<E> {
        let (mut batch, mut bytes) = (Vec::new(), 0_usize);
        while let Some((_, next)) = self.waiting.front() {
            if batch.len() >= max_events || !batch.is_empty() && bytes.saturating_add(*next) > max_bytes {
                break;
            }
            bytes = bytes.saturating_add(*next);
            if let Some((event, bytes)) = self.waiting.pop_front() {
                self.under_way.push(bytes);
                batch.push(event);
            }
        }
        batch
    }

    pub(super) fn delivered(&mut self) {
        self.bytes -= self.under_way.drain(..).sum::<usize>();
    }

    /// Lets the events of a batch wait again, before all others.
    pub(super) fn put_back(&mut self, batch: Vec<E>) {
        let sizes = std::mem::take(&mut self.under_way);
        for entry in batch.into_iter().zip(sizes).rev() {
            self.waiting.push_front(entry);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.under_way.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_waiting_events_are_dropped_and_those_under_way_are_kept() {
        let limits = QueueLimits { max_delivery_sets: 4, max_bytes: 100 };
        let mut buffer = ForwardBuffer::default();
        assert_eq!((0..4).map(|event| buffer.push(event, 10, &limits)).sum::<u64>(), 0);
        let batch = buffer.take(2, 1_000);
        assert_eq!((&batch[..], buffer.push(4, 10, &limits)), (&[0, 1][..], 1));
        buffer.put_back(batch);
        assert_eq!((buffer.len(), buffer.bytes()), (4, 40));
        assert_eq!(buffer.take(9, 25), [0, 1]);
        buffer.delivered();
        assert_eq!((buffer.len(), buffer.bytes()), (2, 20));
        assert_eq!(buffer.push(5, 95, &limits), 2);
        assert_eq!(buffer.take(9, 25), [5]);
        assert_eq!((buffer.push(6, 10, &limits), buffer.push(7, 101, &limits)), (1, 1));
        buffer.delivered();
        assert_eq!((buffer.len(), buffer.bytes()), (0, 0));
    }
}
