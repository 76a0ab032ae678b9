//! Octets that the ORB lends to peers over shared memory, instead of copying them.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use corelane_sys::sealed::SealableBuffer;
use corelane_wire::Octets;
use corelane_wire::cdr::{BORROW_THRESHOLD, Primitive, numbers_in, numbers_in_mut};

use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};

/// A buffer of fixed size for large octet sequences, as arguments and results.
///
/// [`seal`](Self::seal) makes the octets final. Over shared memory the ORB then lends them to the
/// peer, which reads the same memory, if the octets are the last part of a request or reply. A peer
/// keeps the memory for further calls, so octets that are sent again cost the same for every size.
/// The pages of a new buffer come from the kernel, which costs more than a copy. So a buffer is
/// worthwhile for octets that are sent several times or to several peers. Other transports, and
/// peers that do not take lent memory, get a copy.
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

/// A buffer of fixed size for large sequences of numbers, as arguments.
///
/// The sealed numbers are lent to peers as the octets of [`LendableOctets`] are. Stubs take the
/// numbers as a slice.
///
/// # Examples
/// ```
/// use corelane::LendableNumbers;
/// let mut points = LendableNumbers::<f64>::new(100_000)?;
/// points[0] = 0.5;
/// let points = points.seal()?;
/// assert_eq!((points.len(), points[0], points[1]), (100_000, 0.5, 0.0));
/// # Ok::<(), corelane::SystemException>(())
/// ```
pub struct LendableNumbers<T> {
    /// The memory of the numbers; `None` if there are no numbers.
    buffer: Option<SealableBuffer>,
    element: PhantomData<T>,
}

impl<T: Primitive> LendableNumbers<T> {
    /// Creates a buffer of `count` numbers, which are zero.
    ///
    /// # Errors
    /// NO_MEMORY if the process is out of memory, addresses or descriptors.
    pub fn new(count: usize) -> Result<Self, SystemException> {
        let length = count.saturating_mul(T::SIZE);
        let buffer = match length {
            0 => None,
            _ => Some(SealableBuffer::new(length).map_err(|error| no_memory(length, &error))?),
        };
        Ok(LendableNumbers { buffer, element: PhantomData })
    }

    /// Makes the numbers final, and returns them without a copy. No process can change them any
    /// more.
    ///
    /// # Errors
    /// As for [`LendableOctets::seal`].
    pub fn seal(self) -> Result<SealedNumbers<T>, SystemException> {
        let octets = match self.buffer {
            None => Octets::new(),
            Some(buffer) => LendableOctets(Memory::Sealable(buffer)).seal()?,
        };
        Ok(SealedNumbers { octets, element: PhantomData })
    }
}

impl<T: Primitive> Deref for LendableNumbers<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.buffer.as_deref().and_then(numbers_in).unwrap_or_default()
    }
}

impl<T: Primitive> DerefMut for LendableNumbers<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.buffer.as_deref_mut().and_then(numbers_in_mut).unwrap_or_default()
    }
}

impl<T> fmt::Debug for LendableNumbers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LendableNumbers").finish_non_exhaustive()
    }
}

/// Numbers that no process can change, from [`LendableNumbers::seal`]. Clones share the numbers.
pub struct SealedNumbers<T> {
    octets: Octets,
    element: PhantomData<T>,
}

impl<T> Clone for SealedNumbers<T> {
    fn clone(&self) -> Self {
        SealedNumbers { octets: self.octets.clone(), element: PhantomData }
    }
}

impl<T: Primitive> Deref for SealedNumbers<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        numbers_in(&self.octets).unwrap_or_default()
    }
}

impl<T: Primitive + fmt::Debug> fmt::Debug for SealedNumbers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cold]
fn no_memory(length: usize, error: &io::Error) -> SystemException {
    SystemException::new(Kind::NoMemory, 0, Completion::No)
        .with_message(format!("{length} octets of memory that can be lent: {error}"))
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
        for count in [0, 1, 100_001] {
            let mut numbers = LendableNumbers::<i64>::new(count).unwrap();
            numbers.iter_mut().zip(0i64..).for_each(|(number, index)| *number = -index);
            let sealed = numbers.seal().unwrap().clone();
            assert!(sealed.len() == count && sealed.iter().zip(0i64..).all(|(number, index)| *number == -index));
        }
        assert_eq!(LendableNumbers::<i64>::new(usize::MAX).unwrap_err().kind(), Kind::NoMemory);
        assert_eq!(LendableOctets::new(usize::MAX).unwrap_err().kind(), Kind::NoMemory);
    }
}
