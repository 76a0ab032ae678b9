//! One direction of a ring: two counters, and a word for each side that says how it waits.
//!
//! The writer owns `head`, the number of octets ever written, the reader `tail`, the number ever read, both modulo 2^32. Each side
//! keeps its own counter privately and never reads it back; the peer's is loaded once per look and must make sense (`head - tail` is
//! at most the capacity), else the peer is at fault. So whatever the peer writes, at any moment, no position outside the ring comes
//! of it.
//!
//! Who has to wait says how in its word, then looks once more, then waits; who has changed a counter looks at the other's word
//! afterwards, and takes the wish out of it when it fulfils it. A writer waits only where it has seen the ring full, never because there
//! is room for less than it has; so the reader looks only where the ring may have been full since its last look:
//!
//! * `published`: a counter is stored with release after the octets it stands for were copied, and loaded with acquire before.
//! * `asked`: the word is stored before, and the counter loaded after a sequentially consistent fence by who waits; the counter is
//!   stored before, and the word loaded after such a fence by who changes it. So one of the two sees the other: a wake-up is not lost.

use std::sync::atomic::AtomicU32 as Private;

use crate::shim::{AtomicU32, Ordering, fence};

/// Nobody waits.
pub(super) const AWAKE: u32 = 0;
/// Somebody waits on the word itself, in the kernel.
pub(super) const PARKED: u32 = 1;
/// Somebody waits for an octet on the socket.
pub(super) const BELL: u32 = 2;

/// The words of one direction. What they hold may be anything at any time: the peer can write all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Octets ever written; the writer's.
    Head,
    /// How the reader waits.
    Reader,
    /// Octets ever read; the reader's.
    Tail,
    /// How the writer waits.
    Writer,
    /// Not 0: nothing more is written.
    Ended,
    /// Not 0: nothing more is read.
    #[cfg_attr(loom, expect(dead_code, reason = "no model has rings in mapped memory, which alone use it"))]
    Abandoned,
}

/// Where the words are.
pub(super) trait Control {
    fn word(&self, word: Word) -> &AtomicU32;
}

/// What the other side is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    Futex,
    Bell,
}

/// The peer's counter makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Corrupt;

/// One side's view of a direction. Its fields are atomics only so that it can be shared; one thread at a time moves it on.
#[derive(Debug)]
pub(super) struct Position {
    capacity: u32,
    /// The counter that is ours.
    own: Private,
    /// The peer's, as last seen.
    seen: Private,
    /// The reader's: its counter when it last looked whether the writer waits; or, where the ring may have been full since, a ring's
    /// length before what was last seen.
    looked: Private,
}

impl Position {
    /// At the beginning of an empty ring.
    pub(super) fn new(capacity: u32) -> Self {
        Position { capacity, own: Private::new(0), seen: Private::new(0), looked: Private::new(0) }
    }

    /// Octets ever written or read by this side.
    #[inline]
    pub(super) fn own(&self) -> u32 {
        self.own.load(Ordering::Relaxed)
    }

    /// Octets that can be written now; the peer's counter is looked at only if fewer than `wanted` are known of.
    ///
    /// # Errors
    /// The peer's counter makes no sense.
    #[inline]
    pub(super) fn room(&self, control: &impl Control, wanted: u32) -> Result<u32, Corrupt> {
        let head = self.own();
        let known = head.wrapping_sub(self.seen.load(Ordering::Relaxed));
        if self.capacity.saturating_sub(known) >= wanted.max(1) {
            return Ok(self.capacity.saturating_sub(known));
        }
        // Acquire: pairs with `consumed` (published): the reader is done with what was there.
        let tail = control.word(Word::Tail).load(Ordering::Acquire);
        Ok(self.capacity - self.plausible(head.wrapping_sub(tail), tail)?)
    }

    /// Octets that can be read now.
    ///
    /// # Errors
    /// The peer's counter makes no sense.
    #[inline]
    pub(super) fn filled(&self, control: &impl Control) -> Result<u32, Corrupt> {
        // Acquire: pairs with `written` (published).
        let head = control.word(Word::Head).load(Ordering::Acquire);
        self.plausible(head.wrapping_sub(self.own()), head)
    }

    #[inline]
    fn plausible(&self, between: u32, seen: u32) -> Result<u32, Corrupt> {
        if between > self.capacity {
            return Err(Corrupt);
        }
        self.seen.store(seen, Ordering::Relaxed);
        Ok(between)
    }

    /// The writer has copied `count` octets in, no more than there was room for: what the reader is waiting for.
    #[inline]
    pub(super) fn written(&self, control: &impl Control, count: u32) -> Wish {
        let head = self.own().wrapping_add(count);
        self.own.store(head, Ordering::Relaxed);
        // Release: pairs with `filled` (published).
        control.word(Word::Head).store(head, Ordering::Release);
        // Pairs with `ask` (asked).
        fence(Ordering::SeqCst);
        take_wish(control.word(Word::Reader))
    }

    /// The reader has copied `count` octets out, no more than there were: what the writer is waiting for. It is left waiting until
    /// half of the ring is free, so that it does not come back for every octet.
    ///
    /// Who waits has seen the ring full, counted from where the reader was at its last look or later. So until as many octets have come
    /// since, nobody waited when the reader looked at the counter, and most reads have neither fence nor look. A large read takes so long
    /// that the writer may have filled the ring and gone to sleep meanwhile.
    #[inline]
    pub(super) fn consumed(&self, control: &impl Control, count: u32) -> Wish {
        let tail = self.own().wrapping_add(count);
        self.own.store(tail, Ordering::Relaxed);
        // Release: pairs with `room` (published).
        control.word(Word::Tail).store(tail, Ordering::Release);
        let seen = self.seen.load(Ordering::Relaxed);
        let was_full = seen.wrapping_sub(self.looked.load(Ordering::Relaxed)) >= self.capacity;
        if !was_full && count < self.capacity / 2 {
            return Wish::Nothing;
        }
        if seen.wrapping_sub(tail) > self.capacity / 2 {
            // It was full, and that is not forgotten however much comes before the next look.
            self.looked.store(seen.wrapping_sub(self.capacity), Ordering::Relaxed);
            return Wish::Nothing;
        }
        self.looked.store(tail, Ordering::Relaxed);
        // Pairs with `ask` (asked).
        fence(Ordering::SeqCst);
        take_wish(control.word(Word::Writer))
    }
}

/// Says how its side waits from now on. Whether there is anything to wait for is to be looked at after this.
#[inline]
pub(super) fn ask(word: &AtomicU32, how: u32) {
    word.store(how, Ordering::Relaxed);
    // Pairs with `written`, `consumed` and `raise` (asked).
    fence(Ordering::SeqCst);
}

/// Nothing is waited for any more.
#[cfg_attr(loom, expect(dead_code, reason = "no model has rings in mapped memory, which alone use it"))]
#[inline]
pub(super) fn ask_no_more(word: &AtomicU32) {
    if word.load(Ordering::Relaxed) != AWAKE {
        word.store(AWAKE, Ordering::Relaxed);
    }
}

/// Sets a flag for good: what the other side is waiting for.
#[cold]
pub(super) fn raise(control: &impl Control, flag: Word, other: Word) -> Wish {
    // Release: what was written before is seen by who sees the flag, which it loads with acquire.
    control.word(flag).store(1, Ordering::Release);
    fence(Ordering::SeqCst);
    take_wish(control.word(other))
}

/// Takes the wish out of a word.
#[inline]
pub(super) fn take_wish(word: &AtomicU32) -> Wish {
    if word.load(Ordering::Relaxed) == AWAKE {
        return Wish::Nothing;
    }
    match word.swap(AWAKE, Ordering::Relaxed) {
        PARKED => Wish::Futex,
        BELL => Wish::Bell,
        // Nothing to wake, whatever the peer meant by it.
        _ => Wish::Nothing,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Words([AtomicU32; 6]);

    impl Control for Words {
        fn word(&self, word: Word) -> &AtomicU32 {
            &self.0[word as usize]
        }
    }

    #[test]
    fn counters_wrap_and_wishes_are_taken_once() {
        let words = Words::default();
        let (writer, reader) = (Position::new(8), Position::new(8));
        for _ in 0..7 {
            for side in [&writer, &reader] {
                side.own.store(u32::MAX - 3, Ordering::Relaxed);
                side.seen.store(u32::MAX - 3, Ordering::Relaxed);
                side.looked.store(u32::MAX - 3, Ordering::Relaxed);
            }
            words.word(Word::Head).store(u32::MAX - 3, Ordering::Relaxed);
            words.word(Word::Tail).store(u32::MAX - 3, Ordering::Relaxed);
            ask(words.word(Word::Reader), BELL);
            assert_eq!(writer.room(&words, 8), Ok(8));
            assert_eq!(writer.written(&words, 8), Wish::Bell);
            assert_eq!(writer.room(&words, 1), Ok(0));
            ask(words.word(Word::Writer), PARKED);
            assert_eq!(reader.filled(&words), Ok(8));
            assert_eq!(reader.consumed(&words, 3), Wish::Nothing, "less than half is free");
            assert_eq!(reader.consumed(&words, 5), Wish::Futex);
            assert_eq!(reader.consumed(&words, 0), Wish::Nothing);
            assert_eq!(writer.room(&words, 8), Ok(8));
        }
    }

    #[test]
    fn the_reader_looks_where_the_ring_may_have_been_full() {
        let words = Words::default();
        let (writer, reader) = (Position::new(8), Position::new(8));
        let write = |count| {
            assert!(writer.room(&words, count).unwrap() >= count);
            writer.written(&words, count);
        };
        let read = |count| {
            reader.filled(&words).unwrap();
            reader.consumed(&words, count)
        };
        // A wish that was there before anything came is none of a full ring: it is left until the ring may have been full.
        ask(words.word(Word::Writer), PARKED);
        for _ in 0..3 {
            write(2);
            assert_eq!(read(2), Wish::Nothing);
        }
        write(2);
        assert_eq!(read(2), Wish::Futex, "eight octets have come since the last look");
        // Filled while a large read was under way, which did not see it.
        write(6);
        assert_eq!(reader.filled(&words), Ok(6));
        write(2);
        ask(words.word(Word::Writer), PARKED);
        assert_eq!(reader.consumed(&words, 6), Wish::Futex);
        // More than half is always left: what has come since the last look does not add up. Then the ring is full.
        assert_eq!(read(2), Wish::Nothing);
        write(8);
        for _ in 0..1000 {
            assert_eq!(read(1), Wish::Nothing);
            write(1);
        }
        let behind = reader.seen.load(Ordering::Relaxed).wrapping_sub(reader.looked.load(Ordering::Relaxed));
        assert_eq!(behind, 8);
        ask(words.word(Word::Writer), BELL);
        for _ in 0..3 {
            assert_eq!(read(1), Wish::Nothing);
        }
        assert_eq!(read(1), Wish::Bell, "half is free");
    }

    #[test]
    fn counters_that_make_no_sense_are_refused() {
        let words = Words::default();
        let side = Position::new(8);
        for wrong in [9, 1 << 31, u32::MAX] {
            words.word(Word::Head).store(wrong, Ordering::Relaxed);
            assert_eq!(side.filled(&words), Err(Corrupt));
        }
        side.written(&words, 8);
        for wrong in [9, 1 << 31, u32::MAX] {
            words.word(Word::Tail).store(wrong, Ordering::Relaxed);
            assert_eq!(side.room(&words, 1), Err(Corrupt));
        }
        words.word(Word::Reader).store(77, Ordering::Relaxed);
        assert_eq!(take_wish(words.word(Word::Reader)), Wish::Nothing);
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    use super::*;
    use crate::shim::{explore, explore_within};

    /// Two sides of one direction, and the kernel between them.
    struct Model {
        words: [AtomicU32; 6],
        /// A futex for each of the two words; the socket's octets for each side.
        kernel: Mutex<[u32; 2]>,
        changed: Condvar,
    }

    impl Control for Model {
        fn word(&self, word: Word) -> &AtomicU32 {
            &self.words[word as usize]
        }
    }

    impl Model {
        fn new() -> Arc<Self> {
            let words = std::array::from_fn(|_| AtomicU32::new(0));
            Arc::new(Model { words, kernel: Mutex::new([0; 2]), changed: Condvar::new() })
        }

        fn grant(&self, wish: Wish, side: usize) {
            let mut kernel = self.kernel.lock().unwrap();
            match wish {
                Wish::Nothing => return,
                Wish::Futex => {}
                Wish::Bell => kernel[side] += 1,
            }
            self.changed.notify_all();
        }

        /// As the futex does: sleeps only while the word says so, which nobody can change and wake in between.
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

        fn read(&self, reader: &Position, how: u32) -> u32 {
            loop {
                let count = reader.filled(self).unwrap();
                if count > 0 {
                    return count;
                }
                let word = self.word(Word::Reader);
                ask(word, how);
                let ended = self.word(Word::Ended).load(Ordering::Acquire) != 0;
                if reader.filled(self).unwrap() > 0 {
                    continue;
                }
                if ended {
                    return 0;
                }
                self.wait(word, how, 0);
            }
        }

        fn write(&self, writer: &Position, mut count: u32, how: u32) {
            while count > 0 {
                let mut room = writer.room(self, count).unwrap();
                while room == 0 {
                    let word = self.word(Word::Writer);
                    ask(word, how);
                    if writer.room(self, count).unwrap() == 0 {
                        self.wait(word, how, 1);
                    }
                    room = writer.room(self, count).unwrap();
                }
                let now = room.min(count);
                self.grant(writer.written(self, now), 0);
                count -= now;
            }
        }
    }

    /// As many octets as are written are read, at most `step` at a time, and the end is seen, however both sides wait. A lost wake-up is a
    /// deadlock, which loom reports.
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
                    let writer = Position::new(capacity);
                    for octets in writes {
                        model.write(&writer, *octets, writer_waits);
                    }
                    model.grant(raise(&*model, Word::Ended, Word::Reader), 0);
                })
            };
            let reader = Position::new(capacity);
            let mut read = 0;
            loop {
                let count = model.read(&reader, reader_waits).min(step);
                if count == 0 {
                    break;
                }
                read += count;
                model.grant(reader.consumed(&*model, count), 1);
            }
            assert_eq!(read, writes.iter().sum());
            other.join().unwrap();
        }
    }

    #[test]
    fn no_wake_up_is_lost_on_the_futex() {
        explore(none_is_lost(1, &[1, 1], 1, (PARKED, PARKED)));
    }

    #[test]
    fn no_wake_up_is_lost_with_the_bell() {
        explore(none_is_lost(1, &[1, 1], 1, (BELL, BELL)));
    }

    /// The reader does not look at every read whether the writer waits, who begins to between two looks.
    #[test]
    fn no_wake_up_is_lost_between_two_looks() {
        explore_within(2, none_is_lost(4, &[4, 1, 1], 1, (PARKED, PARKED)));
        explore_within(2, none_is_lost(4, &[2, 3, 2], 1, (PARKED, BELL)));
    }
}
