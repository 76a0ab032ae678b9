//! Equivalence of references, decided without a call (CORBA 3.0.3 section 4.3.6).

use super::{Ior, TaggedProfile};

/// The offset basis of 32-bit FNV-1a, a hash that is the same in every process.
const OFFSET: u32 = 0x811c_9dc5;
/// The prime of 32-bit FNV-1a.
const PRIME: u32 = 0x0100_0193;

impl Ior {
    /// Returns true if both references have the same addresses and keys in the same order. Padding,
    /// byte order, versions, components and type ids do not matter; profiles that cannot be parsed
    /// must have equal tags and bytes. `false` does not mean that the objects differ.
    #[must_use]
    pub fn is_equivalent(&self, other: &Ior) -> bool {
        self.profiles.len() == other.profiles.len()
            && self.profiles.iter().zip(&other.profiles).all(|(one, two)| same_place(one, two))
    }

    /// Returns a hash that is the same for equivalent references, in every process.
    #[must_use]
    pub fn equivalence_hash(&self) -> u32 {
        self.profiles.iter().fold(OFFSET, |hash, profile| {
            let octets = profile.parse().map_or(profile.data.as_slice(), |profile| profile.object_key);
            let tag = profile.tag.to_be_bytes();
            tag.iter().chain(octets).fold(hash, |hash, octet| (hash ^ u32::from(*octet)).wrapping_mul(PRIME))
        })
    }
}

fn same_place(one: &TaggedProfile, two: &TaggedProfile) -> bool {
    match (one.parse(), two.parse()) {
        (Ok(one), Ok(two)) => (one.tag, one.address, one.object_key) == (two.tag, two.address, two.object_key),
        (Err(_), Err(_)) => one == two,
        _ => false,
    }
}
