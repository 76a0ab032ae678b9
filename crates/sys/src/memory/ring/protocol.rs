//! The protocol of one direction of a ring: two counters, and a wake word for each side.
//!
//! The writer owns `head`, the number of bytes ever written. The reader owns `tail`, the number of
//! bytes ever read. Both count modulo 2^32. A side loads the peer's counter at most once per
//! operation and checks that `head - tail` is at most the capacity; otherwise the peer is at fault.
//!
//! A side that has to wait stores the kind of wait in its wake word, checks the ring once more, and
//! then waits. It waits on a futex ([`PARKED`]), or for the *bell*, a byte on the connection's
//! socket ([`BELL`]). The peer clears the request when it fulfils it. A writer checks for a request
//! whenever it has published bytes. A reader checks for a request only while at least half of the
//! ring is free, and only if the ring may have been full since the last check or if it has just
//! read at least half of the ring. A writer waits only if it has seen the ring full.
//!
//! Comments in the code refer to two rules of memory ordering:
//!
//! * `published`: a thread stores its counter with release after it has copied the bytes, and loads
//!   the peer's counter with acquire before it copies.
//! * `requested`: the waiting side stores its wake word, makes a sequentially consistent fence, and
//!   loads the counter. The peer stores the counter, makes a sequentially consistent fence, and
//!   loads the wake word. So at least one of the two sees the other's store, and no wake-up is
//!   lost.

use std::sync::atomic::AtomicU32 as Private;

use crate::shim::{AtomicU32, Ordering, fence};

pub(super) const AWAKE: u32 = 0;
pub(super) const PARKED: u32 = 1;
pub(super) const BELL: u32 = 2;

/// Control words of one direction. The peer can write any value to any of them at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlWord {
    /// Number of bytes ever written; owned by the writer.
    Head,
    /// The reader's wake word.
    Reader,
    /// Number of bytes ever read; owned by the reader.
    Tail,
    /// The writer's wake word.
    Writer,
    /// Not 0 after the writer has announced that it writes no more.
    Ended,
    /// Not 0 after the reader has announced that it reads no more.
    #[cfg_attr(loom, expect(dead_code, reason = "only rings in mapped memory use it, and no model has one"))]
    Abandoned,
    /// Not 0 while more bytes of the same message follow at once.
    Continues,
}

pub(super) trait ControlWords {
    fn word(&self, word: ControlWord) -> &AtomicU32;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WakeRequest {
    None,
    Futex,
    Bell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CorruptCounter;

/// One side's view of a direction. One thread at a time changes the fields, which are atomic so
/// that threads can share them.
#[derive(Debug)]
pub(super) struct RingPosition {
    capacity: u32,
    /// This side's counter of bytes written or read, modulo 2^32.
    own: Private,
    seen: Private,
    /// The reader's counter at its last check for a waiting writer. It is set to `seen` minus the
    /// capacity if the ring may have been full since that check, so that a later read checks again.
    last_check: Private,
}

impl RingPosition {
    pub(super) fn new(capacity: u32) -> Self {
        RingPosition { capacity, own: Private::new(0), seen: Private::new(0), last_check: Private::new(0) }
    }

    #[inline]
    pub(super) fn own(&self) -> u32 {
        self.own.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that can be written according to the peer's counter. Loads the
    /// counter only if its last known value shows fewer than `wanted` free bytes.
    ///
    /// # Errors
    /// If the peer's counter has an impossible value.
    #[inline]
    pub(super) fn free_bytes(&self, control: &impl ControlWords, wanted: u32) -> Result<u32, CorruptCounter> {
        let head = self.own();
        let known = head.wrapping_sub(self.seen.load(Ordering::Relaxed));
        if self.capacity.saturating_sub(known) >= wanted.max(1) {
            return Ok(self.capacity.saturating_sub(known));
        }
        // Acquire: pairs with `commit_read` (rule `published`).
        let tail = control.word(ControlWord::Tail).load(Ordering::Acquire);
        Ok(self.capacity - self.check(head.wrapping_sub(tail), tail)?)
    }

    /// Returns the number of bytes that can be read now.
    ///
    /// # Errors
    /// If the peer's counter has an impossible value.
    #[inline]
    pub(super) fn readable_bytes(&self, control: &impl ControlWords) -> Result<u32, CorruptCounter> {
        // Acquire: pairs with `commit_write` (rule `published`).
        let head = control.word(ControlWord::Head).load(Ordering::Acquire);
        self.check(head.wrapping_sub(self.own()), head)
    }

    /// Returns true if the writer's counter differs from the reader's, which means that bytes are
    /// unread. Any thread may call this function.
    #[inline]
    pub(super) fn has_arrived(&self, control: &impl ControlWords) -> bool {
        // Relaxed: a thread that reads the bytes loads the counter again.
        control.word(ControlWord::Head).load(Ordering::Relaxed) != self.own()
    }

    #[inline]
    fn check(&self, between: u32, seen: u32) -> Result<u32, CorruptCounter> {
        if between > self.capacity {
            return Err(CorruptCounter);
        }
        self.seen.store(seen, Ordering::Relaxed);
        Ok(between)
    }

    /// Publishes `count` bytes that the writer has copied in. The ring must have had room for them.
    /// Returns the reader's wake request.
    #[inline]
    pub(super) fn commit_write(&self, control: &impl ControlWords, count: u32) -> WakeRequest {
        let head = self.own().wrapping_add(count);
        self.own.store(head, Ordering::Relaxed);
        // Release: pairs with `readable_bytes` (rule `published`).
        control.word(ControlWord::Head).store(head, Ordering::Release);
        // Pairs with `set_wake_word` (rule `requested`).
        fence(Ordering::SeqCst);
        take_wake_request(control.word(ControlWord::Reader))
    }

    /// Frees `count` bytes that the reader has copied out. Returns the writer's wake request.
    /// Returns [`WakeRequest::None`] without a check while less than half of the ring is free, and
    /// after a read of less than half of the ring if the ring was not full since the last check.
    #[inline]
    pub(super) fn commit_read(&self, control: &impl ControlWords, count: u32) -> WakeRequest {
        let tail = self.own().wrapping_add(count);
        self.own.store(tail, Ordering::Relaxed);
        // Release: pairs with `free_bytes` (rule `published`).
        control.word(ControlWord::Tail).store(tail, Ordering::Release);
        let seen = self.seen.load(Ordering::Relaxed);
        let was_full = seen.wrapping_sub(self.last_check.load(Ordering::Relaxed)) >= self.capacity;
        if !was_full && count < self.capacity / 2 {
            return WakeRequest::None;
        }
        if seen.wrapping_sub(tail) > self.capacity / 2 {
            // The next check must know that the ring was full, even if the reader sees further
            // bytes before that check.
            self.last_check.store(seen.wrapping_sub(self.capacity), Ordering::Relaxed);
            return WakeRequest::None;
        }
        self.last_check.store(tail, Ordering::Relaxed);
        // Pairs with `set_wake_word` (rule `requested`).
        fence(Ordering::SeqCst);
        take_wake_request(control.word(ControlWord::Writer))
    }
}

#[inline]
pub(super) fn announce_more(control: &impl ControlWords, follows: bool) {
    // Relaxed: `commit_write` publishes the word together with the bytes (rule `published`).
    control.word(ControlWord::Continues).store(u32::from(follows), Ordering::Relaxed);
}

#[inline]
pub(super) fn has_more_announced(control: &impl ControlWords) -> bool {
    // Relaxed: the acquire load in `readable_bytes` orders this load after it (rule `published`).
    control.word(ControlWord::Continues).load(Ordering::Relaxed) != 0
}

/// Sets the wake word of a side. The side must check the ring once more after this call.
#[inline]
pub(super) fn set_wake_word(word: &AtomicU32, how: u32) {
    word.store(how, Ordering::Relaxed);
    // Pairs with `commit_write`, `commit_read` and `raise_flag` (rule `requested`).
    fence(Ordering::SeqCst);
}

#[inline]
pub(super) fn clear_wake_word(word: &AtomicU32) {
    if word.load(Ordering::Relaxed) != AWAKE {
        word.store(AWAKE, Ordering::Relaxed);
    }
}

/// Withdraws a request for the bell. Returns true if the wake word contained a request that the
/// peer had not taken.
#[inline]
pub(super) fn withdraw_bell(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) == BELL
        && word.compare_exchange(BELL, AWAKE, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Sets a flag, which is never cleared, and returns the wake request of the side that owns the wake
/// word `other`.
#[cold]
pub(super) fn raise_flag(control: &impl ControlWords, flag: ControlWord, other: ControlWord) -> WakeRequest {
    // Release: a side that loads the flag with acquire also sees the bytes written before.
    control.word(flag).store(1, Ordering::Release);
    fence(Ordering::SeqCst);
    take_wake_request(control.word(other))
}

#[inline]
pub(super) fn take_wake_request(word: &AtomicU32) -> WakeRequest {
    if word.load(Ordering::Relaxed) == AWAKE {
        return WakeRequest::None;
    }
    match word.swap(AWAKE, Ordering::Relaxed) {
        PARKED => WakeRequest::Futex,
        BELL => WakeRequest::Bell,
        _ => WakeRequest::None,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Words([AtomicU32; 7]);

    impl ControlWords for Words {
        fn word(&self, word: ControlWord) -> &AtomicU32 {
            &self.0[word as usize]
        }
    }

    #[test]
    fn counters_wrap_and_wake_requests_are_taken_once() {
        let words = Words::default();
        let (writer, reader) = (RingPosition::new(8), RingPosition::new(8));
        for _ in 0..7 {
            for side in [&writer, &reader] {
                side.own.store(u32::MAX - 3, Ordering::Relaxed);
                side.seen.store(u32::MAX - 3, Ordering::Relaxed);
                side.last_check.store(u32::MAX - 3, Ordering::Relaxed);
            }
            words.word(ControlWord::Head).store(u32::MAX - 3, Ordering::Relaxed);
            words.word(ControlWord::Tail).store(u32::MAX - 3, Ordering::Relaxed);
            set_wake_word(words.word(ControlWord::Reader), BELL);
            assert_eq!(writer.free_bytes(&words, 8), Ok(8));
            assert_eq!(writer.commit_write(&words, 8), WakeRequest::Bell);
            assert_eq!(writer.free_bytes(&words, 1), Ok(0));
            set_wake_word(words.word(ControlWord::Writer), PARKED);
            assert_eq!(reader.readable_bytes(&words), Ok(8));
            assert_eq!(
                reader.commit_read(&words, 3),
                WakeRequest::None,
                "expected no wake-up while less than half is free"
            );
            assert_eq!(reader.commit_read(&words, 5), WakeRequest::Futex);
            assert_eq!(reader.commit_read(&words, 0), WakeRequest::None);
            assert_eq!(writer.free_bytes(&words, 8), Ok(8));
        }
    }

    #[test]
    fn reader_checks_for_a_waiting_writer_after_a_full_ring() {
        let words = Words::default();
        let (writer, reader) = (RingPosition::new(8), RingPosition::new(8));
        let write = |count| {
            assert!(writer.free_bytes(&words, count).unwrap() >= count);
            writer.commit_write(&words, count);
        };
        let read = |count| {
            reader.readable_bytes(&words).unwrap();
            reader.commit_read(&words, count)
        };
        set_wake_word(words.word(ControlWord::Writer), PARKED);
        for _ in 0..3 {
            write(2);
            assert_eq!(read(2), WakeRequest::None);
        }
        write(2);
        assert_eq!(read(2), WakeRequest::Futex, "expected a check after eight octets");
        // The writer fills the ring after the reader has loaded the writer's counter, and then
        // waits.
        write(6);
        assert_eq!(reader.readable_bytes(&words), Ok(6));
        write(2);
        set_wake_word(words.word(ControlWord::Writer), PARKED);
        assert_eq!(reader.commit_read(&words, 6), WakeRequest::Futex);
        // More than half of the ring stays filled, and then the ring becomes full.
        assert_eq!(read(2), WakeRequest::None);
        write(8);
        for _ in 0..1000 {
            assert_eq!(read(1), WakeRequest::None);
            write(1);
        }
        let behind = reader.seen.load(Ordering::Relaxed).wrapping_sub(reader.last_check.load(Ordering::Relaxed));
        assert_eq!(behind, 8);
        set_wake_word(words.word(ControlWord::Writer), BELL);
        for _ in 0..3 {
            assert_eq!(read(1), WakeRequest::None);
        }
        assert_eq!(read(1), WakeRequest::Bell, "expected a wake-up when half is free");
    }

    #[test]
    fn implausible_counters_are_refused() {
        let words = Words::default();
        let side = RingPosition::new(8);
        for wrong in [9, 1 << 31, u32::MAX] {
            words.word(ControlWord::Head).store(wrong, Ordering::Relaxed);
            assert_eq!(side.readable_bytes(&words), Err(CorruptCounter));
        }
        side.commit_write(&words, 8);
        for wrong in [9, 1 << 31, u32::MAX] {
            words.word(ControlWord::Tail).store(wrong, Ordering::Relaxed);
            assert_eq!(side.free_bytes(&words, 1), Err(CorruptCounter));
        }
        words.word(ControlWord::Reader).store(77, Ordering::Relaxed);
        assert_eq!(take_wake_request(words.word(ControlWord::Reader)), WakeRequest::None);
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    use super::*;
    use crate::shim::{explore, explore_within};

    struct Model {
        words: [AtomicU32; 7],
        kernel: Mutex<[u32; 2]>,
        changed: Condvar,
    }

    impl ControlWords for Model {
        fn word(&self, word: ControlWord) -> &AtomicU32 {
            &self.words[word as usize]
        }
    }

    impl Model {
        fn new() -> Arc<Self> {
            let words = std::array::from_fn(|_| AtomicU32::new(0));
            Arc::new(Model { words, kernel: Mutex::new([0; 2]), changed: Condvar::new() })
        }

        fn grant(&self, wish: WakeRequest, side: usize) {
            let mut kernel = self.kernel.lock().unwrap();
            match wish {
                WakeRequest::None => return,
                WakeRequest::Futex => {}
                WakeRequest::Bell => kernel[side] += 1,
            }
            self.changed.notify_all();
        }

        fn wait(&self, word: &AtomicU32, how: u32, side: usize) {
            let mut kernel = self.kernel.lock().unwrap();
            if how == PARKED {
                while word.load(Ordering::Relaxed) == PARKED {
                    kernel = self.changed.wait(kernel).unwrap();
                }
            } else {
                while kernel[side] == 0 {
                    kernel = self.changed.wait(kernel).unwrap();
                }
                kernel[side] = 0;
            }
        }

        fn read(&self, reader: &RingPosition, how: u32) -> u32 {
            loop {
                let count = reader.readable_bytes(self).unwrap();
                if count > 0 {
                    return count;
                }
                let word = self.word(ControlWord::Reader);
                set_wake_word(word, how);
                let ended = self.word(ControlWord::Ended).load(Ordering::Acquire) != 0;
                if reader.readable_bytes(self).unwrap() > 0 {
                    continue;
                }
                if ended {
                    return 0;
                }
                self.wait(word, how, 0);
            }
        }

        fn write(&self, writer: &RingPosition, mut count: u32, how: u32) {
            while count > 0 {
                let mut room = writer.free_bytes(self, count).unwrap();
                while room == 0 {
                    let word = self.word(ControlWord::Writer);
                    set_wake_word(word, how);
                    if writer.free_bytes(self, count).unwrap() == 0 {
                        self.wait(word, how, 1);
                    }
                    room = writer.free_bytes(self, count).unwrap();
                }
                let now = room.min(count);
                self.grant(writer.commit_write(self, now), 0);
                count -= now;
            }
        }
    }

    /// Checks that no wake-up is lost. A lost wake-up is a deadlock, which `loom` reports.
    fn none_is_lost(
        capacity: u32,
        writes: &'static [u32],
        step: u32,
        (reader_waits, writer_waits): (u32, u32),
    ) -> impl Fn() + Send + Sync + 'static {
        move || {
            let model = Model::new();
            let other = {
                let model = Arc::clone(&model);
                thread::spawn(move || {
                    let writer = RingPosition::new(capacity);
                    for octets in writes {
                        model.write(&writer, *octets, writer_waits);
                    }
                    model.grant(raise_flag(&*model, ControlWord::Ended, ControlWord::Reader), 0);
                })
            };
            let reader = RingPosition::new(capacity);
            let mut read = 0;
            loop {
                let count = model.read(&reader, reader_waits).min(step);
                if count == 0 {
                    break;
                }
                read += count;
                model.grant(reader.commit_read(&*model, count), 1);
            }
            assert_eq!(read, writes.iter().sum());
            other.join().unwrap();
        }
    }

    #[test]
    fn parts_lose_no_wake_up_and_the_last_part_is_known() {
        const TOTAL: u32 = 5;
        let model = || {
            let model = Model::new();
            let other = {
                let model = Arc::clone(&model);
                thread::spawn(move || {
                    let writer = RingPosition::new(3);
                    let mut left = TOTAL;
                    while left > 0 {
                        let part = left.min(2);
                        if writer.free_bytes(&*model, part).unwrap() < part {
                            announce_more(&*model, false);
                        } else {
                            announce_more(&*model, left > part);
                        }
                        model.write(&writer, part, PARKED);
                        left -= part;
                    }
                })
            };
            let reader = RingPosition::new(3);
            let mut read = 0;
            while read < TOTAL {
                let count = model.read(&reader, PARKED);
                read += count;
                assert!(read < TOTAL || !has_more_announced(&*model));
                model.grant(reader.commit_read(&*model, count), 1);
            }
            other.join().unwrap();
        };
        explore_within(2, model);
    }

    /// Polls like a thread that serves several connections: withdraws a request for the bell,
    /// checks the ring, requests the bell, and checks again. Returns true if the ring contained the
    /// byte. `requests` counts the requests that are in force or that the peer has taken.
    fn poll_once(model: &Model, reader: &RingPosition, requests: &Private) -> bool {
        let word = model.word(ControlWord::Reader);
        if withdraw_bell(word) {
            requests.fetch_sub(1, Ordering::Relaxed);
        }
        let is_seen = reader.has_arrived(model);
        requests.fetch_add(1, Ordering::Relaxed);
        set_wake_word(word, BELL);
        reader.has_arrived(model) || is_seen
    }

    #[test]
    fn two_threads_that_poll_lose_no_arrival_and_count_each_bell() {
        explore(|| {
            let model = Model::new();
            let reader = std::sync::Arc::new(RingPosition::new(1));
            let requests = std::sync::Arc::new(Private::new(1));
            set_wake_word(model.word(ControlWord::Reader), BELL);
            let writer = {
                let model = Arc::clone(&model);
                thread::spawn(move || model.write(&RingPosition::new(1), 1, BELL))
            };
            let second = {
                let (model, reader, requests) = (Arc::clone(&model), reader.clone(), requests.clone());
                thread::spawn(move || poll_once(&model, &reader, &requests))
            };
            let first = poll_once(&model, &reader, &requests);
            let second = second.join().unwrap();
            writer.join().unwrap();
            let bells = model.kernel.lock().unwrap()[0];
            assert!(first || second || bells > 0, "no thread sees the byte, and no bell was rung");
            let in_force = u32::from(model.word(ControlWord::Reader).load(Ordering::Relaxed) == BELL);
            let counted = requests.load(Ordering::Relaxed);
            assert!(bells + in_force <= counted, "the peer rings or may ring for a request that is not counted");
        });
    }

    /// One thread polls and withdraws requests for the bell, while a second thread of the reader's
    /// process requests the bell once. Before the first thread waits, it requests the bell and
    /// checks the ring.
    #[test]
    fn no_wake_up_is_lost_after_polling() {
        explore(|| {
            let model = Model::new();
            let request = |model: &Model| set_wake_word(model.word(ControlWord::Reader), BELL);
            let writer = {
                let model = Arc::clone(&model);
                thread::spawn(move || {
                    let writer = RingPosition::new(1);
                    model.write(&writer, 1, BELL);
                })
            };
            let second = {
                let model = Arc::clone(&model);
                thread::spawn(move || request(&model))
            };
            let reader = RingPosition::new(1);
            for _ in 0..2 {
                clear_wake_word(model.word(ControlWord::Reader));
                reader.has_arrived(&*model);
            }
            request(&model);
            while !reader.has_arrived(&*model) {
                model.wait(model.word(ControlWord::Reader), BELL, 0);
            }
            assert_eq!(reader.readable_bytes(&*model), Ok(1));
            writer.join().unwrap();
            second.join().unwrap();
        });
    }

    #[test]
    fn no_wake_up_is_lost_on_the_futex() {
        explore(none_is_lost(1, &[1, 1], 1, (PARKED, PARKED)));
    }

    #[test]
    fn no_wake_up_is_lost_with_the_bell() {
        explore(none_is_lost(1, &[1, 1], 1, (BELL, BELL)));
    }

    #[test]
    fn no_wake_up_is_lost_between_two_checks() {
        explore_within(2, none_is_lost(4, &[4, 1, 1], 1, (PARKED, PARKED)));
        explore_within(2, none_is_lost(4, &[2, 3, 2], 1, (PARKED, BELL)));
    }
}
