//! Object keys: what a reference carries to find its servant.
//!
//! ```text
//! system id, transient     'C' 'L' 'N' 'S'  stamp u64  POA slot u32  POA generation u32  object slot u32  object generation u32
//! user id, transient       'C' 'L' 'N' 'U'  stamp u64  POA slot u32  POA generation u32  object id ...
//! persistent               'C' 'L' 'N' 'P'  length of POA path u16   POA path (names, each ended by NUL)  object id ...
//! with a hint              'C' 'L' 'N' 'H'  slot u32  the persistent key
//! ```
//! Numbers are big-endian. The stamp is random per ORB, so a transient key of an earlier process is refused; a generation grows
//! whenever its slot is reused, so a stale key is refused, never misdirected. A persistent key holds nothing that changes from
//! run to run, unless its POA asks for hints: then the slot of the object in the table of keys goes before it, to be looked at first,
//! and whatever is found there must have the whole key. Any other key is a plain one, given by name.

/// Where an object id of a system-id POA points: a slot of the active object map and how often it had been used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Place {
    pub(crate) const OCTETS: usize = 8;

    pub(crate) fn to_octets(self) -> [u8; Self::OCTETS] {
        ((u64::from(self.slot) << 32) | u64::from(self.generation)).to_be_bytes()
    }

    #[inline]
    pub(crate) fn from_octets(octets: [u8; Self::OCTETS]) -> Self {
        let [a, b, c, d, e, f, g, h] = octets;
        Place { slot: u32::from_be_bytes([a, b, c, d]), generation: u32::from_be_bytes([e, f, g, h]) }
    }
}

/// A key taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key<'k> {
    /// Transient, the id is a place.
    System { stamp: u64, poa: Place, object: Place },
    /// Transient, the id was chosen by the user (or by the ORB for a reference without a servant).
    User { stamp: u64, poa: Place, id: &'k [u8] },
    /// Persistent.
    Persistent { path: &'k [u8], id: &'k [u8] },
    /// Persistent, and where it was in the table of keys when the reference was made.
    Hinted { slot: u32, key: &'k [u8] },
    /// None of ours, or not well formed.
    Plain,
}

const MAGIC: [u8; 3] = *b"CLN";
const SYSTEM: u8 = b'S';
const USER: u8 = b'U';
const PERSISTENT: u8 = b'P';
const HINTED: u8 = b'H';

impl<'k> Key<'k> {
    #[inline]
    pub(crate) fn parse(key: &'k [u8]) -> Key<'k> {
        if let Some((magic, rest)) = key.split_first_chunk::<3>()
            && let Some((&SYSTEM, rest)) = rest.split_first()
            && let ([stamp, poa, object], []) = rest.as_chunks::<8>()
            && *magic == MAGIC
        {
            let (poa, object) = (Place::from_octets(*poa), Place::from_octets(*object));
            return Key::System { stamp: u64::from_be_bytes(*stamp), poa, object };
        }
        Self::split(key).unwrap_or(Key::Plain)
    }

    /// All other kinds.
    #[inline(never)]
    fn split(key: &'k [u8]) -> Option<Key<'k>> {
        let (magic, rest) = key.split_first_chunk::<3>()?;
        if *magic != MAGIC {
            return None;
        }
        let (&kind, rest) = rest.split_first()?;
        if kind == PERSISTENT {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            let (path, id) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            return Some(Key::Persistent { path, id });
        }
        if kind == HINTED {
            let (slot, key) = rest.split_first_chunk::<4>()?;
            let is_persistent = key.starts_with(&MAGIC) && key.get(MAGIC.len()) == Some(&PERSISTENT);
            return is_persistent.then_some(Key::Hinted { slot: u32::from_be_bytes(*slot), key });
        }
        let (stamp, rest) = rest.split_first_chunk::<8>()?;
        let stamp = u64::from_be_bytes(*stamp);
        let (poa, id) = rest.split_first_chunk::<8>()?;
        let poa = Place::from_octets(*poa);
        match kind {
            USER => Some(Key::User { stamp, poa, id }),
            _ => None,
        }
    }

    /// The key without a hint.
    pub(crate) fn without_hint(key: &'k [u8]) -> &'k [u8] {
        if let Key::Hinted { key, .. } = Key::parse(key) { key } else { key }
    }

    /// The octets of this key.
    pub(crate) fn to_octets(self) -> Vec<u8> {
        let mut key = MAGIC.to_vec();
        match self {
            Key::System { stamp, poa, object } => {
                key.push(SYSTEM);
                key.extend(stamp.to_be_bytes());
                key.extend(poa.to_octets());
                key.extend(object.to_octets());
            }
            Key::User { stamp, poa, id } => {
                key.push(USER);
                key.extend(stamp.to_be_bytes());
                key.extend(poa.to_octets());
                key.extend(id);
            }
            Key::Persistent { path, id } => {
                key.push(PERSISTENT);
                // The POA refuses longer paths when it is made.
                key.extend(u16::try_from(path.len()).unwrap_or(u16::MAX).to_be_bytes());
                key.extend(path);
                key.extend(id);
            }
            Key::Hinted { slot, key: persistent } => {
                key.push(HINTED);
                key.extend(slot.to_be_bytes());
                key.extend(persistent);
            }
            Key::Plain => key.clear(),
        }
        key
    }
}

/// The longest path of a persistent POA, in octets.
pub(crate) const LONGEST_PATH: usize = u16::MAX as usize;

/// The path of a child POA called `name`.
pub(crate) fn child_path(parent: &[u8], name: &str) -> Vec<u8> {
    let mut path = parent.to_vec();
    path.extend(name.as_bytes());
    path.push(0);
    path
}

/// The names in a path, outermost first; `None` if it is not well formed.
pub(crate) fn names(path: &[u8]) -> Option<Vec<&str>> {
    let Some(path) = path.strip_suffix(&[0]) else { return path.is_empty().then(Vec::new) };
    path.split(|&octet| octet == 0).map(|name| std::str::from_utf8(name).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_round_trip() {
        let poa = Place { slot: 3, generation: 7 };
        let object = Place { slot: 1_000_000, generation: 1 };
        let path = child_path(&child_path(&[], "a"), "b");
        for key in [
            Key::System { stamp: 0x0102_0304_0506_0708, poa, object },
            Key::User { stamp: 9, poa, id: b"user id" },
            Key::User { stamp: 9, poa, id: b"" },
            Key::Persistent { path: &path, id: b"x\0y" },
            Key::Persistent { path: b"", id: b"root" },
            Key::Hinted { slot: 7, key: &Key::Persistent { path: &path, id: b"x" }.to_octets() },
        ] {
            assert_eq!(Key::parse(&key.to_octets()), key);
        }
        assert_eq!(names(&path), Some(vec!["a", "b"]));
        assert_eq!(names(b""), Some(vec![]));
        assert_eq!(names(b"no end"), None);
    }

    #[test]
    fn anything_else_is_a_plain_key() {
        for key in [
            &b""[..],
            b"NameService",
            b"CLN",
            b"CLNS",
            b"CLNP\xff\xff",
            b"CLNP\0",
            b"CLNH\0\0\0\x07CLNU\0\0",
            b"CLNH\0\0\0\x07CLNH\0\0\0\x07CLNP\0\0",
            b"CLNX\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ] {
            assert_eq!(Key::parse(key), Key::Plain);
        }
        let long = [
            Key::System { stamp: 1, poa: Place { slot: 0, generation: 0 }, object: Place { slot: 0, generation: 0 } }
                .to_octets(),
            vec![0],
        ]
        .concat();
        assert_eq!(Key::parse(&long), Key::Plain);
    }
}
