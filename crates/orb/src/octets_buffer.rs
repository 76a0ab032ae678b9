//! Octets that a program writes piece by piece, in memory that the ORB uses again.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use corelane_sys::buffer::{Buffer, RegionCache};
use corelane_wire::Octets;

use crate::current::running_orb_of_thread;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};

/// A buffer for large octet sequences: results of servants, and arguments of calls.
///
/// In an operation, and from [`Orb::octets_buffer`](crate::Orb::octets_buffer), its memory comes
/// from the ORB's cache of memory for large messages, and returns to the cache when the last clone
/// of the [`Octets`] is dropped. A large `Vec`, by contrast, gets new pages from the kernel each
/// time.
///
/// # Examples
/// ```
/// use std::io::Write;
/// use corelane::OctetsBuffer;
/// let mut image = OctetsBuffer::with_capacity(1 << 20)?;
/// image.extend_from_slice(b"header")?;
/// write!(image, " of {} octets", 22)?;
/// assert_eq!(*image.into_octets(), *b"header of 22 octets");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct OctetsBuffer {
    buffer: Buffer,
    spares: Option<RegionCache>,
}

impl OctetsBuffer {
    /// Creates an empty buffer with room for `octets` octets. The memory comes from the ORB whose
    /// operation the calling thread runs; outside operations it comes from the kernel.
    /// [`Orb::octets_buffer`](crate::Orb::octets_buffer) takes the memory from a given ORB.
    ///
    /// # Errors
    /// NO_MEMORY if the process has no address range of this size.
    pub fn with_capacity(octets: usize) -> Result<Self, SystemException> {
        Self::from_cache(octets, running_orb_of_thread().map(|orb| orb.spares().clone()))
    }

    pub(crate) fn from_cache(octets: usize, spares: Option<RegionCache>) -> Result<Self, SystemException> {
        let mut buffer = OctetsBuffer { buffer: Buffer::new(), spares };
        buffer.reserve(octets)?;
        Ok(buffer)
    }

    /// Makes room for `more` octets behind the octets of the buffer.
    ///
    /// # Errors
    /// NO_MEMORY if the process has no address range of this size.
    pub fn reserve(&mut self, more: usize) -> Result<(), SystemException> {
        if more <= self.buffer.capacity() - self.buffer.len() {
            return Ok(());
        }
        // The size at least doubles, so that appending takes amortized constant time for each
        // octet.
        let wanted = self.buffer.len().saturating_add(more).max(self.buffer.capacity().saturating_mul(2));
        let reserved = match &self.spares {
            Some(spares) => self.buffer.reserve_from_cache(wanted, spares),
            None => self.buffer.reserve(wanted),
        };
        reserved.map_err(|error| {
            SystemException::new(Kind::NoMemory, 0, Completion::No)
                .with_message(format!("a buffer of {wanted} octets: {error}"))
        })
    }

    /// Appends octets.
    ///
    /// # Errors
    /// NO_MEMORY if the process has no address range for them. The buffer is then unchanged.
    pub fn extend_from_slice(&mut self, octets: &[u8]) -> Result<(), SystemException> {
        self.reserve(octets.len())?;
        if let Some(room) = self.buffer.spare_capacity().get_mut(..octets.len()) {
            room.copy_from_slice(octets);
            self.buffer.mark_filled(octets.len());
        }
        Ok(())
    }

    /// Returns the octets without a copy.
    #[must_use]
    pub fn into_octets(self) -> Octets {
        Octets::shared(Arc::new(self.buffer))
    }
}

impl Deref for OctetsBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl io::Write for OctetsBuffer {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.extend_from_slice(octets).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<OctetsBuffer> for Octets {
    fn from(buffer: OctetsBuffer) -> Octets {
        buffer.into_octets()
    }
}

impl fmt::Debug for OctetsBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OctetsBuffer").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_appended_in_order_for_every_size() {
        let spares = RegionCache::new();
        let mut buffer = OctetsBuffer::from_cache(0, Some(spares.clone())).unwrap();
        let mut expected = Vec::new();
        for size in [0, 1, 100, 4096, 100_000, 3, 300_000] {
            let piece: Vec<u8> = (0..size).map(|index: usize| (index + size) as u8).collect();
            buffer.extend_from_slice(&piece).unwrap();
            expected.extend(piece);
        }
        let at = buffer.as_ptr();
        let octets = buffer.into_octets();
        assert!(octets == expected[..] && octets.as_ptr() == at);
        drop(octets);
        assert!(spares.cached_bytes() >= expected.len());
        assert_eq!(OctetsBuffer::from_cache(usize::MAX, None).unwrap_err().kind(), Kind::NoMemory);
    }
}
