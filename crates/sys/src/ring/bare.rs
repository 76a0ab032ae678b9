//! Messages of fixed sizes through shared memory with nothing around them: a copy in, a wake-up, a copy out. It is what connections over
//! the rings are measured against, and no transport: neither side checks the other, and whoever waits for a side that is gone waits for good.
//!
//! Each way has a word that counts the messages sent, in lines of its own, and one place. So a message is sent only after the one before it was
//! answered, or otherwise known to have been taken.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use super::mapping::{self, Mapping};
use crate::clock;

/// Where the places begin; before them are the words.
const OCTETS: usize = 4096;
/// Room for the words of one way: the count, whether its receiver sleeps, whether the sender has gone.
const WORDS: usize = 1024;
const LINES: usize = 128;
/// Looks between two readings of the clock.
const LOOKS: u32 = 64;
/// Rounds of looks without a pause.
const EAGER: u32 = 4;

/// How the receiver of a message waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Asleep, from the first: every message has a wake-up.
    Asleep,
    /// It looks for so long, then sleeps: a wake-up goes only to who asks for it.
    Looking(Duration),
}

/// One end of an exchange.
#[derive(Debug)]
pub struct Bare {
    mapping: Mapping,
    wait: Wait,
    incoming: Way,
    outgoing: Way,
}

#[derive(Debug)]
struct Way {
    words: usize,
    octets: usize,
    size: usize,
    /// Messages so far, as this end knows.
    count: u32,
}

impl Way {
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

impl Bare {
    /// The client's end, and the descriptor that gives the server its end. Both have to say the same sizes and way to wait.
    ///
    /// # Errors
    /// When the process is out of descriptors, memory or addresses.
    pub fn create(request: usize, reply: usize, wait: Wait) -> io::Result<(Self, OwnedFd)> {
        let (fd, mapping) = mapping::made(memory(request, reply)?)?;
        let [there, back] = ways(request, reply);
        Ok((Bare { mapping, wait, incoming: back, outgoing: there }, fd))
    }

    /// The server's end.
    ///
    /// # Errors
    /// `InvalidData` if `fd` is no memory of that size; out of addresses.
    pub fn open(fd: BorrowedFd<'_>, request: usize, reply: usize, wait: Wait) -> io::Result<Self> {
        let length = memory(request, reply)?;
        mapping::check(fd, length)?;
        let [there, back] = ways(request, reply);
        Ok(Bare { mapping: Mapping::new(fd, length)?, wait, incoming: there, outgoing: back })
    }

    /// Sends a message of this way's size; of a longer one the rest stays behind.
    #[inline]
    pub fn send(&mut self, message: &[u8]) {
        let way = &mut self.outgoing;
        self.mapping.copy_in(way.octets, &message[..message.len().min(way.size)]);
        way.count = way.count.wrapping_add(1);
        // Release: pairs with the load in `is_there`.
        self.mapping.word(way.count()).store(way.count, Ordering::Release);
        match self.wait {
            Wait::Asleep => self.mapping.futex_wake(way.count()),
            Wait::Looking(_) => {
                // Pairs with the fence in `sleep`: one of the two sees the other.
                fence(Ordering::SeqCst);
                if self.mapping.word(way.asleep()).load(Ordering::Relaxed) != 0 {
                    self.mapping.futex_wake(way.count());
                }
            }
        }
    }

    /// Waits for the next message and copies it out. False if the other end has gone, which takes a message that was not received with it.
    #[inline]
    pub fn receive(&mut self, message: &mut [u8]) -> bool {
        if let Wait::Looking(time) = self.wait {
            self.look(time);
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
    fn look(&self, time: Duration) {
        let (mut began, mut rounds) = (None, 0);
        loop {
            for _ in 0..LOOKS {
                if self.is_there() {
                    return;
                }
                if rounds >= EAGER {
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
        let looked = matches!(self.wait, Wait::Looking(_));
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

impl Drop for Bare {
    fn drop(&mut self) {
        let way = &self.outgoing;
        self.word(way.gone()).store(1, Ordering::Relaxed);
        // Release: who sees this count, which ends its wait, sees the flag.
        self.word(way.count()).store(way.count.wrapping_add(1), Ordering::Release);
        self.mapping.futex_wake(way.count());
    }
}

fn memory(request: usize, reply: usize) -> io::Result<usize> {
    let places = request.checked_next_multiple_of(LINES).zip(reply.checked_next_multiple_of(LINES));
    let length = places.and_then(|(request, reply)| request.checked_add(reply)?.checked_add(OCTETS));
    length.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn ways(request: usize, reply: usize) -> [Way; 2] {
    let second = OCTETS + request.next_multiple_of(LINES);
    [
        Way { words: 0, octets: OCTETS, size: request, count: 0 },
        Way { words: WORDS, octets: second, size: reply, count: 0 },
    ]
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn messages_go_both_ways_until_one_end_is_gone() {
        for wait in [Wait::Asleep, Wait::Looking(Duration::from_micros(1)), Wait::Looking(Duration::ZERO)] {
            let (mut client, memory) = Bare::create(300, 5, wait).unwrap();
            let mut server = Bare::open(memory.as_fd(), 300, 5, wait).unwrap();
            assert!(Bare::open(memory.as_fd(), 3000, 5, wait).is_err());
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
    fn sizes_that_no_memory_has_are_refused() {
        assert!(Bare::create(usize::MAX, 1, Wait::Asleep).is_err());
        assert!(Bare::create(usize::MAX - 300, 1 << 20, Wait::Asleep).is_err());
    }
}
