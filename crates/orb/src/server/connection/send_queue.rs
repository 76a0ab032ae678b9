//! The send queue of a connection: the bytes of replies that the transport has not accepted.
//!
//! A large piece shares the memory of its reply if the reply supports it. The queue itself has no
//! size limit: the lane's memory budget limits it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;

use corelane_wire::Octets;
use corelane_wire::cdr::BORROW_THRESHOLD;

/// Returns octets with the content of the slice. The octets may share the memory of the slice.
pub(crate) type ShareBytes<'k> = &'k dyn Fn(&[u8]) -> Octets;

const MAX_CHUNKS: usize = 8;
const MAX_COPIED_CHUNK: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    chunks: VecDeque<Chunk>,
    sent: usize,
    unsent_bytes: usize,
    held_bytes: usize,
    shared: HashMap<usize, SharedAllocation>,
}

#[derive(Debug)]
enum Chunk {
    Copied(Vec<u8>),
    Shared(Octets),
}

#[derive(Debug)]
struct SharedAllocation {
    bytes: usize,
    chunks: usize,
}

impl Chunk {
    fn as_slice(&self) -> &[u8] {
        match self {
            Chunk::Copied(bytes) => bytes,
            Chunk::Shared(bytes) => bytes,
        }
    }
}

impl SendQueue {
    pub(crate) fn len(&self) -> usize {
        self.unsent_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.unsent_bytes == 0
    }

    /// Returns the memory in bytes that the queue holds. A chunk of copied bytes counts with its
    /// capacity until its last byte has been sent. A memory block that several chunks share counts
    /// once, with its whole size.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub(crate) fn push(&mut self, bytes: &[u8], share: ShareBytes<'_>) {
        if bytes.is_empty() {
            return;
        }
        self.unsent_bytes += bytes.len();
        if bytes.len() >= BORROW_THRESHOLD {
            return self.share(share(bytes));
        }
        match self.chunks.back_mut() {
            Some(Chunk::Copied(last)) if last.len() + bytes.len() <= MAX_COPIED_CHUNK => {
                let before = last.capacity();
                last.extend_from_slice(bytes);
                self.held_bytes += last.capacity() - before;
            }
            _ => {
                let chunk = bytes.to_vec();
                self.held_bytes += chunk.capacity();
                self.chunks.push_back(Chunk::Copied(chunk));
            }
        }
    }

    fn share(&mut self, bytes: Octets) {
        let (address, held) = bytes.backing_address_and_size();
        let memory = self.shared.entry(address).or_insert(SharedAllocation { bytes: held, chunks: 0 });
        if memory.chunks == 0 {
            self.held_bytes += held;
        }
        memory.chunks += 1;
        self.chunks.push_back(Chunk::Shared(bytes));
    }

    fn release(&mut self, chunk: &Chunk) {
        self.held_bytes -= match chunk {
            Chunk::Copied(bytes) => bytes.capacity(),
            Chunk::Shared(bytes) => {
                let Entry::Occupied(mut memory) = self.shared.entry(bytes.backing_address_and_size().0) else { return };
                memory.get_mut().chunks -= 1;
                if memory.get().chunks > 0 {
                    return;
                }
                memory.remove().bytes
            }
        };
    }

    /// Calls `send` with at most `max_bytes` bytes from the front of the queue, and removes the
    /// number of bytes that `send` returns.
    pub(crate) fn send<E>(
        &mut self,
        max_bytes: usize,
        send: impl FnOnce(&[IoSlice<'_>]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let mut slices = [IoSlice::new(&[]); MAX_CHUNKS];
        let (mut count, mut room, mut skip) = (0, max_bytes, self.sent);
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            let bytes = &chunk.as_slice()[skip..];
            let bytes = &bytes[..bytes.len().min(room)];
            if bytes.is_empty() {
                break;
            }
            *slice = IoSlice::new(bytes);
            count += 1;
            room -= bytes.len();
            skip = 0;
        }
        let sent = send(&slices[..count])?;
        self.take(sent);
        Ok(())
    }

    fn take(&mut self, bytes: usize) {
        self.unsent_bytes -= bytes.min(self.unsent_bytes);
        self.sent += bytes;
        while let Some(first) = self.chunks.front().map(|chunk| chunk.as_slice().len())
            && self.sent >= first
        {
            self.sent -= first;
            if let Some(chunk) = self.chunks.pop_front() {
                self.release(&chunk);
            }
        }
        if self.chunks.is_empty() {
            // A slow peer may have made the memory of the fields grow, so the memory is freed.
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut SendQueue, max_bytes: usize, each: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !queue.is_empty() {
            let before = queue.len();
            queue
                .send(max_bytes, |slices| {
                    let offered: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
                    assert!(!offered.is_empty() && offered.len() <= max_bytes);
                    all.extend(offered.iter().take(each));
                    Ok::<_, ()>(offered.len().min(each))
                })
                .unwrap();
            assert!(queue.len() < before);
        }
        all
    }

    #[test]
    fn bytes_leave_in_order_for_every_write_size() {
        for (max_bytes, each) in [(1 << 20, 1 << 20), (1000, 1 << 20), (64, 7), (3, 1)] {
            let mut queue = SendQueue::default();
            let (mut expected, mut taken) = (Vec::new(), Vec::new());
            for round in 0..5u8 {
                for length in [0, 1, 30, BORROW_THRESHOLD, 5] {
                    let bytes: Vec<u8> = (0..length).map(|index| round.wrapping_add(index.to_le_bytes()[0])).collect();
                    queue.push(&bytes, &Octets::copy_from);
                    expected.extend(bytes);
                }
                let three = |slices: &[IoSlice<'_>]| {
                    let bytes = &slices[0][..slices[0].len().min(3)];
                    taken.extend_from_slice(bytes);
                    Ok::<_, ()>(bytes.len())
                };
                queue.send(10, three).unwrap();
            }
            assert_eq!(queue.len(), expected.len() - taken.len());
            taken.extend(drain(&mut queue, max_bytes, each));
            assert_eq!(taken, expected);
            assert!(queue.chunks.is_empty());
            assert_eq!(queue.held_bytes(), 0);
        }
    }

    #[test]
    fn failed_write_consumes_nothing() {
        let mut queue = SendQueue::default();
        queue.push(b"octets", &Octets::copy_from);
        assert_eq!(queue.send(100, |_| Err("full")), Err("full"));
        assert_eq!(queue.len(), 6);
        assert_eq!(drain(&mut queue, 100, 4), b"octets");
    }

    #[test]
    fn small_chunks_are_merged_and_large_ones_are_shared() {
        let large = Octets::from(vec![7; 2 * BORROW_THRESHOLD]);
        let mut queue = SendQueue::default();
        for _ in 0..1000 {
            queue.push(b"reply", &Octets::copy_from);
        }
        assert_eq!(queue.chunks.len(), 1);
        queue.push(&large[100..], &|_| large.part(100..large.len()).unwrap());
        let Some(Chunk::Shared(shared)) = queue.chunks.back() else { panic!("{queue:?}") };
        assert_eq!(shared.as_ptr(), large[100..].as_ptr());
    }

    #[test]
    fn shared_memory_counts_whole_until_its_last_byte_is_sent() {
        let size = 4 * BORROW_THRESHOLD;
        let large = Octets::from(vec![7; size]);
        let taken = |queue: &mut SendQueue, bytes: usize| queue.send(bytes, |_| Ok::<_, ()>(bytes)).unwrap();
        let mut queue = SendQueue::default();
        queue.push(&large[..size / 2], &|_| large.part(0..size / 2).unwrap());
        queue.push(b"between", &Octets::copy_from);
        queue.push(&large[size / 2..], &|_| large.part(size / 2..size).unwrap());
        queue.push(&large, &Octets::copy_from);
        let between = queue.held_bytes() - 2 * size;
        assert!((7..=64).contains(&between));
        taken(&mut queue, size / 2 - 1);
        assert_eq!(queue.held_bytes(), 2 * size + between);
        taken(&mut queue, 1 + 7);
        assert_eq!((queue.held_bytes(), queue.len()), (2 * size, size / 2 + size));
        taken(&mut queue, size / 2);
        assert_eq!(queue.held_bytes(), size);
        taken(&mut queue, size - 1);
        assert_eq!((queue.held_bytes(), queue.len()), (size, 1));
        taken(&mut queue, 1);
        assert_eq!(queue.held_bytes(), 0);
    }
}
