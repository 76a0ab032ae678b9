//! A stream of bytes through shared memory with the least possible work for a byte.
//!
//! The module is a baseline for measurements, not a transport: neither side checks the peer's
//! values, and a side whose peer was killed waits for ever.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::bare::BareRingWait;
use super::mapping::{self, SharedMapping};
use crate::clock;

const OCTETS: usize = 4096;
const WORDS: usize = 1024;
const LINES: usize = 128;
const POLLS_PER_CLOCK_READ: u32 = 64;
const CAPACITY: usize = 256 * 1024;
/// Maximum number of bytes that a side copies before it publishes them.
const PART: usize = 16 * 1024;

/// One end of a connection for streams of bytes through shared memory.
#[derive(Debug)]
pub struct BareStream {
    mapping: SharedMapping,
    wait: BareRingWait,
    incoming: Way,
    outgoing: Way,
}

#[derive(Debug)]
struct Way {
    words: usize,
    octets: usize,
    /// Number of bytes that this end has written (outgoing) or read (incoming), modulo 2^32.
    own: u32,
}

impl Way {
    fn written(&self) -> usize {
        self.words
    }

    fn read(&self) -> usize {
        self.words + LINES
    }

    fn gone(&self) -> usize {
        self.words + 4 * LINES
    }

    fn place(&self) -> (usize, usize) {
        let at = self.own as usize % CAPACITY;
        (self.octets + at, CAPACITY - at)
    }
}

fn asleep(count: usize) -> usize {
    count + 2 * LINES
}

fn ways() -> [Way; 2] {
    [Way { words: 0, octets: OCTETS, own: 0 }, Way { words: WORDS, octets: OCTETS + CAPACITY, own: 0 }]
}

impl BareStream {
    const LENGTH: usize = OCTETS + 2 * CAPACITY;

    /// Creates the client's end, and the descriptor for the server's end. The server must open its
    /// end with an equal `wait`.
    ///
    /// # Errors
    /// If the process is out of descriptors, memory or addresses.
    pub fn create(wait: BareRingWait) -> io::Result<(Self, OwnedFd)> {
        let (fd, mapping) = mapping::create_mapped(Self::LENGTH)?;
        let [outgoing, incoming] = ways();
        Ok((BareStream { mapping, wait, incoming, outgoing }, fd))
    }

    /// Opens the server's end.
    ///
    /// # Errors
    /// `InvalidData` if `fd` is not memory of the size of a `BareStream`. Another error if the
    /// process is out of addresses.
    pub fn open(fd: BorrowedFd<'_>, wait: BareRingWait) -> io::Result<Self> {
        mapping::check(fd, Self::LENGTH)?;
        let [incoming, outgoing] = ways();
        Ok(BareStream { mapping: SharedMapping::new(fd, Self::LENGTH)?, wait, incoming, outgoing })
    }

    /// Sends all bytes of a message. Returns false if the ring has no room and the other end has
    /// closed.
    #[inline]
    pub fn send(&mut self, message: &[u8]) -> bool {
        for part in message.chunks(PART) {
            let own = self.outgoing.own;
            let limit = (CAPACITY - part.len()) as u32;
            let room = |read: u32| own.wrapping_sub(read) <= limit;
            if !self.wait_for(&self.outgoing, self.outgoing.read(), room) {
                return false;
            }
            let (place, to_end) = self.outgoing.place();
            let (front, back) = part.split_at(part.len().min(to_end));
            self.mapping.copy_in(place, front);
            self.mapping.copy_in(self.outgoing.octets, back);
            self.outgoing.own = own.wrapping_add(part.len() as u32);
            self.publish(&self.outgoing, self.outgoing.written());
        }
        true
    }

    /// Fills `message` with the next bytes. Returns false if the call would have to wait for bytes
    /// and the other end has closed.
    #[inline]
    pub fn receive(&mut self, message: &mut [u8]) -> bool {
        let mut done = 0;
        while done < message.len() {
            let own = self.incoming.own;
            if !self.wait_for(&self.incoming, self.incoming.written(), |written| written != own) {
                return false;
            }
            let there = self.word(self.incoming.written()).load(Ordering::Acquire).wrapping_sub(own) as usize;
            let part = &mut message[done..];
            let count = part.len().min(there).min(PART);
            let (place, to_end) = self.incoming.place();
            let (front, back) = part[..count].split_at_mut(count.min(to_end));
            self.mapping.copy_out(place, front);
            self.mapping.copy_out(self.incoming.octets, back);
            self.incoming.own = own.wrapping_add(count as u32);
            self.publish(&self.incoming, self.incoming.read());
            done += count;
        }
        true
    }

    #[inline]
    fn publish(&self, way: &Way, count: usize) {
        // Release: pairs with the loads in `wait_for` and `receive`.
        self.word(count).store(way.own, Ordering::Release);
        // Pairs with the fence in `wait_for`. Either this thread sees that the other side sleeps,
        // or the other side sees the new count and does not sleep.
        fence(Ordering::SeqCst);
        if self.word(asleep(count)).load(Ordering::Relaxed) != 0 {
            self.mapping.futex_wake(count);
        }
    }

    /// Waits until the other end's count satisfies `is_there`. Returns false if polling finds no
    /// such count and the other end has closed.
    #[inline]
    fn wait_for(&self, way: &Way, count: usize, is_there: impl Fn(u32) -> bool) -> bool {
        let load = || self.word(count).load(Ordering::Acquire);
        if is_there(load()) {
            return true;
        }
        if let BareRingWait::Spinning(time) = self.wait {
            let end = clock::now() + time;
            while !end.is_past() {
                for _ in 0..POLLS_PER_CLOCK_READ {
                    if is_there(load()) {
                        return true;
                    }
                    std::hint::spin_loop();
                }
            }
        }
        self.word(asleep(count)).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_found = loop {
            let seen = load();
            // This load comes after the load of the count, because that load has acquire order.
            if self.word(way.gone()).load(Ordering::Relaxed) != 0 {
                break false;
            }
            if is_there(seen) {
                break true;
            }
            self.mapping.futex_wait(count, seen, None);
        };
        self.word(asleep(count)).store(0, Ordering::Relaxed);
        is_found
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU32 {
        self.mapping.word(offset)
    }
}

impl Drop for BareStream {
    fn drop(&mut self) {
        for (way, count) in [(&self.outgoing, self.outgoing.written()), (&self.incoming, self.incoming.read())] {
            self.word(way.gone()).store(1, Ordering::Relaxed);
            // Release: the new count ends the peer's wait, and the peer then sees the flag.
            self.word(count).store(way.own.wrapping_add(1), Ordering::Release);
            self.mapping.futex_wake(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;

    #[test]
    fn long_messages_go_both_ways_until_one_end_closes() {
        for wait in [
            BareRingWait::Asleep,
            BareRingWait::Spinning(Duration::from_micros(1)),
            BareRingWait::Spinning(Duration::ZERO),
        ] {
            let (mut client, memory) = BareStream::create(wait).unwrap();
            let mut server = BareStream::open(memory.as_fd(), wait).unwrap();
            let sizes = [1, 3 * PART - 1, CAPACITY, 5 * CAPACITY + 77];
            let serving = std::thread::spawn(move || {
                let mut served = 0;
                for size in sizes.iter().cycle() {
                    let mut message = vec![0; *size];
                    if !server.receive(&mut message) || !server.send(&message) {
                        break;
                    }
                    served += 1;
                }
                served
            });
            for (number, size) in (0..20_u8).zip(sizes.iter().cycle()) {
                let message: Vec<u8> = (0..*size).map(|at| (at % 251) as u8 ^ number).collect();
                let mut echoed = vec![0; *size];
                assert!(client.send(&message) && client.receive(&mut echoed));
                assert!(echoed == message);
            }
            drop(client);
            assert_eq!(serving.join().unwrap(), 20, "{wait:?}");
        }
    }
}
