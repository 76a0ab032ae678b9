//! Octets that the ORB lends to peers over shared memory, instead of copying them.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use corelane_sys::sealed::SealableBuffer;
use corelane_wire::Octets;
use corelane_wire::cdr::BORROW_THRESHOLD;

use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};

/// A buffer of fixed size for large octet sequences, as arguments and results.
///
/// [`seal`](Self::seal) makes the octets final. Over shared memory the ORB then lends them to the
/// peer, if they are the last part of a request or reply: the peer reads the same memory. A peer
/// keeps the memory for further calls, so octets that are sent again cost the same for every size.
/// A buffer is worthwhile for octets that are sent several times or to several peers: its pages are
/// new from the kernel, which costs more than a copy. Other transports, and peers that do not take
/// lent memory, get a copy.
///
/// # Examples
/// ```
/// use corelane::LendableOctets;
/// let mut map = LendableOctets::new(1 << 20)?;
/// map[..4].copy_from_slice(b"tile");
/// let map = map.seal()?;
/// assert_eq!((map.len(), &map[..5]), (1 << 20, &b"tile\0"[..]));
/// # Ok::<(), corelane::SystemException>(())
/// ```
pub struct LendableOctets(Memory);

enum Memory {
    /// Too few octets to be lent.
    Small(Vec<u8>),
    Sealable(SealableBuffer),
}

impl LendableOctets {
    /// Creates a buffer of `length` octets, which are zero. Fewer than 16 KiB are ordinary memory,
    /// which the ORB copies.
    ///
    /// # Errors
    /// NO_MEMORY if the process is out of memory, addresses or descriptors.
    pub fn new(length: usize) -> Result<Self, SystemException> {
        if length < BORROW_THRESHOLD {
            return Ok(LendableOctets(Memory::Small(vec![0; length])));
        }
        let buffer = SealableBuffer::new(length).map_err(|error| no_memory(length, &error))?;
        Ok(LendableOctets(Memory::Sealable(buffer)))
    }

    /// Makes the octets final, and returns them without a copy. No process can change them any more.
    ///
    /// # Errors
    /// NO_MEMORY if the process is out of mappings, or if the kernel still writes to the octets for
    /// a system call of this process.
    pub fn seal(self) -> Result<Octets, SystemException> {
        match self.0 {
            Memory::Small(octets) => Ok(Octets::from(octets)),
            Memory::Sealable(buffer) => {
                let length = buffer.len();
                let octets = buffer.seal().map_err(|error| no_memory(length, &error))?;
                Ok(Octets::shared(Arc::new(octets)))
            }
        }
    }
}

#[cold]
fn no_memory(length: usize, error: &io::Error) -> SystemException {
    SystemException::new(Kind::NoMemory, 0, Completion::No)
        .because(format!("{length} octets of memory that can be lent: {error}"))
}

impl Deref for LendableOctets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Small(octets) => octets,
            Memory::Sealable(buffer) => buffer,
        }
    }
}

impl DerefMut for LendableOctets {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Small(octets) => octets,
            Memory::Sealable(buffer) => buffer,
        }
    }
}

impl fmt::Debug for LendableOctets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LendableOctets").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_of_every_size_keep_their_values() {
        for length in [0, 1, BORROW_THRESHOLD - 1, BORROW_THRESHOLD, 100_001] {
            let mut octets = LendableOctets::new(length).unwrap();
            assert!(octets.len() == length && octets.iter().all(|octet| *octet == 0));
            octets.iter_mut().zip(0u32..).for_each(|(octet, index)| *octet = (index % 251) as u8);
            let sealed = octets.seal().unwrap();
            assert!(
                sealed.len() == length && sealed.iter().zip(0u32..).all(|(octet, index)| *octet == (index % 251) as u8)
            );
        }
        assert_eq!(LendableOctets::new(usize::MAX).unwrap_err().kind(), Kind::NoMemory);
    }
}
