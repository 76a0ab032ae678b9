//! What the peer of a connection has not taken of its replies: octets in order, copied or shared with who made them.
//!
//! Small pieces are put together; large ones that the reply owned are kept as they are, so that a large reply is copied
//! nowhere on its way to a peer that reads slowly. The caller bounds how much there is.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;

use corelane_wire::Octets;
use corelane_wire::cdr::BORROW_THRESHOLD;

/// Makes octets of a part of a message that outlive it.
pub(crate) type Keep<'k> = &'k dyn Fn(&[u8]) -> Octets;

/// Pieces that are offered to the transport at once.
const MOST_PIECES: usize = 8;
/// Copied octets in one piece.
const COPIED: usize = 64 * 1024;

/// Octets that wait for the peer.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    pieces: VecDeque<Piece>,
    /// Octets of the first piece that are sent.
    sent: usize,
    octets: usize,
    /// Memory that all pieces hold.
    held: usize,
    /// What kept pieces are parts of, by address. Several may be of the same memory.
    kept: HashMap<usize, Memory>,
}

#[derive(Debug)]
enum Piece {
    Copied(Vec<u8>),
    Kept(Octets),
}

/// Memory that pieces keep alive.
#[derive(Debug)]
struct Memory {
    octets: usize,
    pieces: usize,
}

impl Piece {
    fn as_slice(&self) -> &[u8] {
        match self {
            Piece::Copied(octets) => octets,
            Piece::Kept(octets) => octets,
        }
    }
}

impl Unsent {
    /// How many octets wait.
    pub(crate) fn len(&self) -> usize {
        self.octets
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.octets == 0
    }

    /// How much memory they hold: all of a piece until the peer has all of it, and all that it is a part of.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Puts octets behind those that wait; `keep` is asked for large ones.
    pub(crate) fn push(&mut self, octets: &[u8], keep: Keep<'_>) {
        if octets.is_empty() {
            return;
        }
        self.octets += octets.len();
        if octets.len() >= BORROW_THRESHOLD {
            return self.keep(keep(octets));
        }
        match self.pieces.back_mut() {
            Some(Piece::Copied(last)) if last.len() + octets.len() <= COPIED => {
                let before = last.capacity();
                last.extend_from_slice(octets);
                self.held += last.capacity() - before;
            }
            _ => {
                let piece = octets.to_vec();
                self.held += piece.capacity();
                self.pieces.push_back(Piece::Copied(piece));
            }
        }
    }

    fn keep(&mut self, octets: Octets) {
        let (address, held) = octets.memory();
        let memory = self.kept.entry(address).or_insert(Memory { octets: held, pieces: 0 });
        if memory.pieces == 0 {
            self.held += held;
        }
        memory.pieces += 1;
        self.pieces.push_back(Piece::Kept(octets));
    }

    fn let_go(&mut self, piece: &Piece) {
        self.held -= match piece {
            Piece::Copied(octets) => octets.capacity(),
            Piece::Kept(octets) => {
                let Entry::Occupied(mut memory) = self.kept.entry(octets.memory().0) else { return };
                memory.get_mut().pieces -= 1;
                if memory.get().pieces > 0 {
                    return;
                }
                memory.remove().octets
            }
        };
    }

    /// Calls `send` with what is next, at most `most` octets of it; what it says to have sent waits no longer.
    ///
    /// # Errors
    /// Those of `send`.
    pub(crate) fn send<E>(
        &mut self,
        most: usize,
        send: impl FnOnce(&[IoSlice<'_>]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let mut slices = [IoSlice::new(&[]); MOST_PIECES];
        let (mut count, mut room, mut skip) = (0, most, self.sent);
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            let octets = &piece.as_slice()[skip..];
            let octets = &octets[..octets.len().min(room)];
            if octets.is_empty() {
                break;
            }
            *slice = IoSlice::new(octets);
            count += 1;
            room -= octets.len();
            skip = 0;
        }
        let sent = send(&slices[..count])?;
        self.take(sent);
        Ok(())
    }

    fn take(&mut self, octets: usize) {
        self.octets -= octets.min(self.octets);
        self.sent += octets;
        while let Some(first) = self.pieces.front().map(|piece| piece.as_slice().len())
            && self.sent >= first
        {
            self.sent -= first;
            if let Some(piece) = self.pieces.pop_front() {
                self.let_go(&piece);
            }
        }
        if self.pieces.is_empty() {
            // What a slow peer made grow goes back.
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes everything, at most `most` octets and `each` of them at a time.
    fn drain(unsent: &mut Unsent, most: usize, each: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !unsent.is_empty() {
            let before = unsent.len();
            unsent
                .send(most, |slices| {
                    let offered: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
                    assert!(!offered.is_empty() && offered.len() <= most);
                    all.extend(offered.iter().take(each));
                    Ok::<_, ()>(offered.len().min(each))
                })
                .unwrap();
            assert!(unsent.len() < before);
        }
        all
    }

    #[test]
    fn octets_come_out_in_order_whatever_is_taken_at_a_time() {
        for (most, each) in [(1 << 20, 1 << 20), (1000, 1 << 20), (64, 7), (3, 1)] {
            let mut unsent = Unsent::default();
            let (mut expected, mut taken) = (Vec::new(), Vec::new());
            for round in 0..5u8 {
                for length in [0, 1, 30, BORROW_THRESHOLD, 5] {
                    let octets: Vec<u8> = (0..length).map(|index| round.wrapping_add(index.to_le_bytes()[0])).collect();
                    unsent.push(&octets, &Octets::copy_from);
                    expected.extend(octets);
                }
                // Some of it goes while more comes.
                let three = |slices: &[IoSlice<'_>]| {
                    let octets = &slices[0][..slices[0].len().min(3)];
                    taken.extend_from_slice(octets);
                    Ok::<_, ()>(octets.len())
                };
                unsent.send(10, three).unwrap();
            }
            assert_eq!(unsent.len(), expected.len() - taken.len());
            taken.extend(drain(&mut unsent, most, each));
            assert_eq!(taken, expected);
            assert!(unsent.pieces.is_empty());
            assert_eq!(unsent.held(), 0);
        }
    }

    #[test]
    fn a_failed_attempt_takes_nothing() {
        let mut unsent = Unsent::default();
        unsent.push(b"octets", &Octets::copy_from);
        assert_eq!(unsent.send(100, |_| Err("full")), Err("full"));
        assert_eq!(unsent.len(), 6);
        assert_eq!(drain(&mut unsent, 100, 4), b"octets");
    }

    #[test]
    fn small_pieces_are_put_together_and_large_ones_are_kept_as_they_are() {
        let large = Octets::from(vec![7; 2 * BORROW_THRESHOLD]);
        let mut unsent = Unsent::default();
        for _ in 0..1000 {
            unsent.push(b"reply", &Octets::copy_from);
        }
        assert_eq!(unsent.pieces.len(), 1);
        unsent.push(&large[100..], &|_| large.part(100..large.len()).unwrap());
        let Some(Piece::Kept(kept)) = unsent.pieces.back() else { panic!("{unsent:?}") };
        assert_eq!(kept.as_ptr(), large[100..].as_ptr());
    }

    #[test]
    fn what_is_held_is_whole_memory_until_the_last_octet_of_it_has_gone() {
        let size = 4 * BORROW_THRESHOLD;
        let large = Octets::from(vec![7; size]);
        let taken = |unsent: &mut Unsent, octets: usize| unsent.send(octets, |_| Ok::<_, ()>(octets)).unwrap();
        let mut unsent = Unsent::default();
        // Two parts of the same memory, a small piece between them, and then memory of its own.
        unsent.push(&large[..size / 2], &|_| large.part(0..size / 2).unwrap());
        unsent.push(b"between", &Octets::copy_from);
        unsent.push(&large[size / 2..], &|_| large.part(size / 2..size).unwrap());
        unsent.push(&large, &Octets::copy_from);
        let between = unsent.held() - 2 * size;
        assert!((7..=64).contains(&between));
        taken(&mut unsent, size / 2 - 1);
        assert_eq!(unsent.held(), 2 * size + between);
        taken(&mut unsent, 1 + 7);
        assert_eq!((unsent.held(), unsent.len()), (2 * size, size / 2 + size));
        taken(&mut unsent, size / 2);
        assert_eq!(unsent.held(), size);
        taken(&mut unsent, size - 1);
        assert_eq!((unsent.held(), unsent.len()), (size, 1));
        taken(&mut unsent, 1);
        assert_eq!(unsent.held(), 0);
    }
}
