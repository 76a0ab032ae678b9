//! Exchange of messages of fixed sizes through shared memory, with the least possible work for a
//! message: one copy in, at most one wake-up, one copy out.
//!
//! The module is a baseline for measurements, not a transport: neither side checks the peer's
//! values, and a side whose peer was killed waits for ever.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use super::mapping::{self, SharedMapping};
use crate::clock;

const OCTETS: usize = 4096;
/// Size in bytes of the area with the control words of one direction: the count of messages, the
/// flag of a sleeping receiver, and the flag of a closed sender.
const WORDS: usize = 1024;
const LINES: usize = 128;
const POLLS_PER_CLOCK_READ: u32 = 64;
const ROUNDS_WITHOUT_PAUSE: u32 = 4;

/// The method by which a receiver waits for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BareRingWait {
    /// Sleeps at once if nothing is there. The sender of a [`BareRing`] makes a wake-up call for
    /// every message.
    Asleep,
    /// Polls for this time, then sleeps. The sender makes a wake-up call only if the receiver
    /// sleeps.
    Spinning(Duration),
}

/// One end of an exchange of messages through shared memory.
#[derive(Debug)]
pub struct BareRing {
    mapping: SharedMapping,
    wait: BareRingWait,
    incoming: BareDirection,
    outgoing: BareDirection,
}

#[derive(Debug)]
struct BareDirection {
    words: usize,
    octets: usize,
    size: usize,
    /// Number of messages in this direction that this end has sent or received, modulo 2^32.
    count: u32,
}

impl BareDirection {
    fn count(&self) -> usize {
        self.words
    }

    fn asleep(&self) -> usize {
        self.words + LINES
    }

    fn gone(&self) -> usize {
        self.words + 2 * LINES
    }
}

impl BareRing {
    /// Creates the client's end, and the descriptor for the server's end. The server must open its
    /// end with the same sizes and an equal `wait`.
    ///
    /// # Errors
    /// `InvalidInput` if the sizes are too large. Another error if the process is out of
    /// descriptors, memory or addresses.
    pub fn create_client_end(
        request_bytes: usize,
        reply_bytes: usize,
        wait: BareRingWait,
    ) -> io::Result<(Self, OwnedFd)> {
        let (fd, mapping) = mapping::create_mapped(memory(request_bytes, reply_bytes)?)?;
        let [there, back] = ways(request_bytes, reply_bytes);
        Ok((BareRing { mapping, wait, incoming: back, outgoing: there }, fd))
    }

    /// Opens the server's end.
    ///
    /// # Errors
    /// `InvalidData` if `fd` is not memory of the size that follows from `request_bytes` and
    /// `reply_bytes`. `InvalidInput` if the sizes are too large. Another error if the process is
    /// out of addresses.
    pub fn open(fd: BorrowedFd<'_>, request_bytes: usize, reply_bytes: usize, wait: BareRingWait) -> io::Result<Self> {
        let length = memory(request_bytes, reply_bytes)?;
        mapping::check(fd, length)?;
        let [there, back] = ways(request_bytes, reply_bytes);
        Ok(BareRing { mapping: SharedMapping::new(fd, length)?, wait, incoming: there, outgoing: back })
    }

    /// Sends one message. The bytes of `message` beyond this direction's message size are not sent.
    /// The peer must have received the previous message.
    #[inline]
    pub fn send(&mut self, message: &[u8]) {
        let way = &mut self.outgoing;
        self.mapping.copy_in(way.octets, &message[..message.len().min(way.size)]);
        way.count = way.count.wrapping_add(1);
        // Release: pairs with the load in `is_there`.
        self.mapping.word(way.count()).store(way.count, Ordering::Release);
        match self.wait {
            BareRingWait::Asleep => self.mapping.futex_wake(way.count()),
            BareRingWait::Spinning(_) => {
                // Pairs with the fence in `sleep`. Either this thread sees that the receiver
                // sleeps, or the receiver sees the new count and does not sleep.
                fence(Ordering::SeqCst);
                if self.mapping.word(way.asleep()).load(Ordering::Relaxed) != 0 {
                    self.mapping.futex_wake(way.count());
                }
            }
        }
    }

    /// Waits for the next message and copies it to `message`. Returns false if the other end has
    /// closed, even if a message that it sent before has not been received.
    #[inline]
    pub fn receive(&mut self, message: &mut [u8]) -> bool {
        if let BareRingWait::Spinning(time) = self.wait {
            self.spin(time);
        }
        while !self.is_there() {
            self.sleep();
        }
        if self.word(self.incoming.gone()).load(Ordering::Relaxed) != 0 {
            return false;
        }
        let way = &mut self.incoming;
        way.count = way.count.wrapping_add(1);
        let size = message.len().min(way.size);
        self.mapping.copy_out(way.octets, &mut message[..size]);
        true
    }

    #[inline]
    fn is_there(&self) -> bool {
        self.word(self.incoming.count()).load(Ordering::Acquire) != self.incoming.count
    }

    #[inline]
    fn spin(&self, time: Duration) {
        let (mut began, mut rounds) = (None, 0);
        loop {
            for _ in 0..POLLS_PER_CLOCK_READ {
                if self.is_there() {
                    return;
                }
                if rounds >= ROUNDS_WITHOUT_PAUSE {
                    std::hint::spin_loop();
                }
            }
            rounds += 1;
            if began.get_or_insert_with(clock::now).elapsed() > time {
                return;
            }
        }
    }

    #[inline]
    fn sleep(&self) {
        let looked = matches!(self.wait, BareRingWait::Spinning(_));
        if looked {
            self.word(self.incoming.asleep()).store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        if !self.is_there() {
            self.mapping.futex_wait(self.incoming.count(), self.incoming.count, None);
        }
        if looked {
            self.word(self.incoming.asleep()).store(0, Ordering::Relaxed);
        }
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU32 {
        self.mapping.word(offset)
    }
}

impl Drop for BareRing {
    fn drop(&mut self) {
        let way = &self.outgoing;
        self.word(way.gone()).store(1, Ordering::Relaxed);
        // Release: the new count ends the receiver's wait, and the receiver then sees the flag.
        self.word(way.count()).store(way.count.wrapping_add(1), Ordering::Release);
        self.mapping.futex_wake(way.count());
    }
}

fn memory(request: usize, reply: usize) -> io::Result<usize> {
    let places = request.checked_next_multiple_of(LINES).zip(reply.checked_next_multiple_of(LINES));
    let length = places.and_then(|(request, reply)| request.checked_add(reply)?.checked_add(OCTETS));
    length.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn ways(request: usize, reply: usize) -> [BareDirection; 2] {
    let second = OCTETS + request.next_multiple_of(LINES);
    [
        BareDirection { words: 0, octets: OCTETS, size: request, count: 0 },
        BareDirection { words: WORDS, octets: second, size: reply, count: 0 },
    ]
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn messages_go_both_ways_until_one_end_closes() {
        for wait in [
            BareRingWait::Asleep,
            BareRingWait::Spinning(Duration::from_micros(1)),
            BareRingWait::Spinning(Duration::ZERO),
        ] {
            let (mut client, memory) = BareRing::create_client_end(300, 5, wait).unwrap();
            let mut server = BareRing::open(memory.as_fd(), 300, 5, wait).unwrap();
            assert!(BareRing::open(memory.as_fd(), 3000, 5, wait).is_err());
            let serving = std::thread::spawn(move || {
                let (mut request, mut served) = ([0; 300], 0_usize);
                while server.receive(&mut request) {
                    server.send(&[request[299]; 5]);
                    served += 1;
                }
                served
            });
            let mut reply = [0; 5];
            for number in 0..2000_usize {
                client.send(&[number as u8; 300]);
                assert!(client.receive(&mut reply));
                assert_eq!(reply, [number as u8; 5]);
            }
            drop(client);
            assert_eq!(serving.join().unwrap(), 2000, "{wait:?}");
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(BareRing::create_client_end(usize::MAX, 1, BareRingWait::Asleep).is_err());
        assert!(BareRing::create_client_end(usize::MAX - 300, 1 << 20, BareRingWait::Asleep).is_err());
    }
}
