//! Octet sequences that own their contents or share them.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use super::BORROW_THRESHOLD;

/// Owned octets: an unshared vector, or a part of a shared vector or of a shared buffer.
///
/// A part of a receive buffer keeps the whole buffer alive; [`into_vec`](Octets::into_vec) copies
/// the part.
pub struct Octets(Repr);

#[derive(Clone)]
enum Repr {
    Own(Vec<u8>),
    Vector(Arc<Vec<u8>>, Range<usize>),
    Buffer(Arc<dyn AsRef<[u8]> + Send + Sync>, Range<usize>),
    #[cfg(feature = "charged-octets")]
    Charged(Arc<dyn ChargedOctets>, Range<usize>),
}

/// An owner of octets whose memory counts in a budget while the owner exists.
#[cfg(feature = "charged-octets")]
pub trait ChargedOctets: AsRef<[u8]> + Send + Sync {
    /// Returns another owner of the memory, which does not count in the budget.
    fn without_charge(&self) -> Arc<dyn AsRef<[u8]> + Send + Sync>;
}

impl Clone for Octets {
    fn clone(&self) -> Octets {
        Octets(self.0.clone())
    }

    fn clone_from(&mut self, source: &Octets) {
        match (&mut self.0, &source.0) {
            (Repr::Own(vector), Repr::Own(source)) => vector.clone_from(source),
            (own, source) => *own = source.clone(),
        }
    }
}

impl Octets {
    /// Shares all bytes of an owner whose memory counts in a budget.
    #[cfg(feature = "charged-octets")]
    #[must_use]
    pub fn charged(owner: Arc<dyn ChargedOctets>) -> Octets {
        let len = (*owner).as_ref().len();
        Octets(Repr::Charged(owner, 0..len))
    }

    #[cfg(feature = "charged-octets")]
    pub(crate) fn without_charge(self) -> Octets {
        match self.0 {
            Repr::Charged(owner, range) => Octets(Repr::Buffer(owner.without_charge(), range)),
            _ => self,
        }
    }

    /// Creates an empty sequence.
    #[must_use]
    pub const fn new() -> Octets {
        Octets(Repr::Own(Vec::new()))
    }

    /// Removes the octets. Keeps the memory of an unshared vector with a capacity of at most
    /// `max_bytes`; a later `clone_from` copies an unshared vector into that memory.
    ///
    /// ```
    /// use corelane_wire::Octets;
    /// let mut octets = Octets::from(vec![1, 2, 3]);
    /// let memory = octets.backing_address_and_size();
    /// octets.clear_and_limit_memory(64);
    /// assert!(octets.is_empty());
    /// octets.clone_from(&Octets::from(vec![4, 5]));
    /// assert_eq!((&octets[..], octets.backing_address_and_size()), (&[4, 5][..], memory));
    /// ```
    pub fn clear_and_limit_memory(&mut self, max_bytes: usize) {
        match &mut self.0 {
            Repr::Own(vector) if vector.capacity() <= max_bytes => vector.clear(),
            _ => *self = Octets::new(),
        }
    }

    /// Shares all bytes of a buffer, which must not change while a reference to it exists.
    #[must_use]
    pub fn shared(buffer: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Octets {
        let len = (*buffer).as_ref().len();
        Octets(Repr::Buffer(buffer, 0..len))
    }

    /// Copies octets.
    #[must_use]
    pub fn copy_from(octets: &[u8]) -> Octets {
        Octets::from(octets.to_vec())
    }

    /// Returns the octets.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Repr::Own(vector) => vector,
            Repr::Vector(vector, range) => vector.get(range.clone()).unwrap_or_default(),
            Repr::Buffer(buffer, range) => (**buffer).as_ref().get(range.clone()).unwrap_or_default(),
            #[cfg(feature = "charged-octets")]
            Repr::Charged(owner, range) => (**owner).as_ref().get(range.clone()).unwrap_or_default(),
        }
    }

    /// Returns a part of these octets: a copy if they are an unshared vector, otherwise a part that
    /// shares their memory. Returns `None` if the range exceeds the octets.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Option<Octets> {
        let part = self.as_slice().get(range.clone())?;
        Some(match &self.0 {
            Repr::Own(_) => Octets::copy_from(part),
            Repr::Vector(vector, whole) => {
                Octets(Repr::Vector(Arc::clone(vector), whole.start + range.start..whole.start + range.end))
            }
            Repr::Buffer(buffer, whole) => {
                Octets(Repr::Buffer(Arc::clone(buffer), whole.start + range.start..whole.start + range.end))
            }
            #[cfg(feature = "charged-octets")]
            Repr::Charged(owner, whole) => {
                Octets(Repr::Charged(Arc::clone(owner), whole.start + range.start..whole.start + range.end))
            }
        })
    }

    /// Returns the part of these octets to which `part` points, as octets that share their memory.
    /// Returns `None` if `part` points elsewhere, or if these octets are an unshared vector.
    pub(crate) fn share(&self, part: &[u8]) -> Option<Octets> {
        if let Repr::Own(_) = self.0 {
            return None;
        }
        let start = part.as_ptr().addr().checked_sub(self.as_slice().as_ptr().addr())?;
        self.part(start..start.checked_add(part.len())?)
    }

    /// Returns the address and the size in bytes of the memory that these octets keep alive. Octets
    /// that share memory have the same address.
    #[must_use]
    pub fn backing_address_and_size(&self) -> (usize, usize) {
        match &self.0 {
            Repr::Own(vector) => (vector.as_ptr().addr(), vector.capacity()),
            Repr::Vector(vector, _) => (vector.as_ptr().addr(), vector.capacity()),
            Repr::Buffer(buffer, _) => {
                let octets = (**buffer).as_ref();
                (octets.as_ptr().addr(), octets.len())
            }
            #[cfg(feature = "charged-octets")]
            Repr::Charged(owner, _) => {
                let octets = (**owner).as_ref();
                (octets.as_ptr().addr(), octets.len())
            }
        }
    }

    /// Returns the octets as a vector. Copies the octets unless this is the only owner of a vector
    /// and covers all of it.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Repr::Own(vector) => vector,
            Repr::Vector(vector, range) if range == (0..vector.len()) => {
                Arc::try_unwrap(vector).unwrap_or_else(|shared| shared.to_vec())
            }
            _ => self.as_slice().to_vec(),
        }
    }
}

impl Default for Octets {
    fn default() -> Octets {
        Octets::new()
    }
}

impl Deref for Octets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for Octets {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl From<Vec<u8>> for Octets {
    fn from(vector: Vec<u8>) -> Octets {
        if vector.len() < BORROW_THRESHOLD {
            return Octets(Repr::Own(vector));
        }
        let range = 0..vector.len();
        Octets(Repr::Vector(Arc::new(vector), range))
    }
}

impl From<&[u8]> for Octets {
    fn from(octets: &[u8]) -> Octets {
        Octets::copy_from(octets)
    }
}

impl From<Octets> for Vec<u8> {
    fn from(octets: Octets) -> Vec<u8> {
        octets.into_vec()
    }
}

impl FromIterator<u8> for Octets {
    fn from_iter<I: IntoIterator<Item = u8>>(octets: I) -> Octets {
        Octets::from(Vec::from_iter(octets))
    }
}

impl PartialEq for Octets {
    fn eq(&self, other: &Octets) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Octets {}

impl PartialEq<[u8]> for Octets {
    fn eq(&self, other: &[u8]) -> bool {
        self.as_slice() == other
    }
}

impl std::hash::Hash for Octets {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl fmt::Debug for Octets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_slice(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_large_octets_share_memory_and_the_last_clone_becomes_a_vector_without_a_copy() {
        let octets = Octets::from(vec![7; BORROW_THRESHOLD]);
        let address = octets.as_ptr();
        let clone = octets.clone();
        assert_eq!(clone.as_ptr(), address);
        drop(octets);
        let vector = clone.into_vec();
        assert_eq!(vector.as_ptr(), address);
    }

    #[test]
    fn parts_of_a_receive_buffer_share_it() {
        let buffer: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(vec![1u8, 2, 3, 4, 5]);
        let whole = Octets::shared(Arc::clone(&buffer));
        let part = whole.part(1..4).unwrap();
        assert_eq!(part, *[2, 3, 4].as_slice());
        assert_eq!(part.part(1..2).unwrap(), *[3].as_slice());
        assert_eq!(part.part(2..4), None);
        assert_eq!(whole.share(&whole[3..]).unwrap().as_ptr(), whole[3..].as_ptr());
        assert_eq!(whole.share(&[1, 2]), None);
        assert_eq!(
            (part.backing_address_and_size(), part.backing_address_and_size().1),
            (whole.backing_address_and_size(), 5)
        );
        assert_eq!(part.into_vec(), [2, 3, 4]);
        assert_eq!(Octets::default().into_vec(), Vec::<u8>::new());
    }
}
