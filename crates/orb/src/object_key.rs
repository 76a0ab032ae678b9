//! Object keys: the octets in a reference by which the server finds the servant.
//!
//! ```text
//! system id, transient     'C' 'L' 'N' 'S'  stamp u64  POA slot u32  POA generation u32  object slot u32  object generation u32
//! user id, transient       'C' 'L' 'N' 'U'  stamp u64  POA slot u32  POA generation u32  object id ...
//! persistent               'C' 'L' 'N' 'P'  length of POA path u16   POA path (names, each ended by NUL)  object id ...
//! with a hint              'C' 'L' 'N' 'H'  slot u32  the persistent key
//! ```
//!
//! Numbers are big-endian. The stamp is a random number of the ORB, so the server refuses a
//! transient key of an earlier process. A generation grows when its slot is reused, so an old key
//! never reaches another object.
//!
//! A persistent key is the same in every run of the server, unless its POA adds hints. A key
//! without one of these four forms is a plain key: a name that the program bound to a reference
//! (`Orb::bind_corbaloc_key`).

pub(crate) use crate::slot_id::SlotId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectKey<'k> {
    System { stamp: u64, poa: SlotId, object: SlotId },
    User { stamp: u64, poa: SlotId, id: &'k [u8] },
    Persistent { path: &'k [u8], id: &'k [u8] },
    Hinted { slot: u32, key: &'k [u8] },
    Plain,
}

const MAGIC: [u8; 3] = *b"CLN";
const SYSTEM: u8 = b'S';
const USER: u8 = b'U';
const PERSISTENT: u8 = b'P';
const HINTED: u8 = b'H';

impl<'k> ObjectKey<'k> {
    #[inline]
    pub(crate) fn parse(key: &'k [u8]) -> ObjectKey<'k> {
        if let Some((magic, rest)) = key.split_first_chunk::<3>()
            && let Some((&SYSTEM, rest)) = rest.split_first()
            && let ([stamp, poa, object], []) = rest.as_chunks::<8>()
            && *magic == MAGIC
        {
            let (poa, object) = (SlotId::from_octets(*poa), SlotId::from_octets(*object));
            return ObjectKey::System { stamp: u64::from_be_bytes(*stamp), poa, object };
        }
        Self::parse_other(key).unwrap_or(ObjectKey::Plain)
    }

    #[inline(never)]
    fn parse_other(key: &'k [u8]) -> Option<ObjectKey<'k>> {
        let (magic, rest) = key.split_first_chunk::<3>()?;
        if *magic != MAGIC {
            return None;
        }
        let (&kind, rest) = rest.split_first()?;
        if kind == PERSISTENT {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            let (path, id) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            return Some(ObjectKey::Persistent { path, id });
        }
        if kind == HINTED {
            let (slot, key) = rest.split_first_chunk::<4>()?;
            let is_persistent = key.starts_with(&MAGIC) && key.get(MAGIC.len()) == Some(&PERSISTENT);
            return is_persistent.then_some(ObjectKey::Hinted { slot: u32::from_be_bytes(*slot), key });
        }
        let (stamp, rest) = rest.split_first_chunk::<8>()?;
        let stamp = u64::from_be_bytes(*stamp);
        let (poa, id) = rest.split_first_chunk::<8>()?;
        let poa = SlotId::from_octets(*poa);
        match kind {
            USER => Some(ObjectKey::User { stamp, poa, id }),
            _ => None,
        }
    }

    pub(crate) fn without_hint(key: &'k [u8]) -> &'k [u8] {
        if let ObjectKey::Hinted { key, .. } = ObjectKey::parse(key) { key } else { key }
    }

    pub(crate) fn to_octets(self) -> Vec<u8> {
        let mut key = MAGIC.to_vec();
        match self {
            ObjectKey::System { stamp, poa, object } => {
                key.push(SYSTEM);
                key.extend(stamp.to_be_bytes());
                key.extend(poa.to_octets());
                key.extend(object.to_octets());
            }
            ObjectKey::User { stamp, poa, id } => {
                key.push(USER);
                key.extend(stamp.to_be_bytes());
                key.extend(poa.to_octets());
                key.extend(id);
            }
            ObjectKey::Persistent { path, id } => {
                key.push(PERSISTENT);
                // `create_rt_poa` refuses longer paths, so the length fits.
                key.extend(u16::try_from(path.len()).unwrap_or(u16::MAX).to_be_bytes());
                key.extend(path);
                key.extend(id);
            }
            ObjectKey::Hinted { slot, key: persistent } => {
                key.push(HINTED);
                key.extend(slot.to_be_bytes());
                key.extend(persistent);
            }
            ObjectKey::Plain => key.clear(),
        }
        key
    }
}

pub(crate) const MAX_PATH_LEN: usize = u16::MAX as usize;

pub(crate) fn child_path(parent: &[u8], name: &str) -> Vec<u8> {
    let mut path = parent.to_vec();
    path.extend(name.as_bytes());
    path.push(0);
    path
}

pub(crate) fn names(path: &[u8]) -> Option<Vec<&str>> {
    let Some(path) = path.strip_suffix(&[0]) else { return path.is_empty().then(Vec::new) };
    path.split(|&octet| octet == 0).map(|name| std::str::from_utf8(name).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_key_round_trips() {
        let poa = SlotId { slot: 3, generation: 7 };
        let object = SlotId { slot: 1_000_000, generation: 1 };
        let path = child_path(&child_path(&[], "a"), "b");
        for key in [
            ObjectKey::System { stamp: 0x0102_0304_0506_0708, poa, object },
            ObjectKey::User { stamp: 9, poa, id: b"user id" },
            ObjectKey::User { stamp: 9, poa, id: b"" },
            ObjectKey::Persistent { path: &path, id: b"x\0y" },
            ObjectKey::Persistent { path: b"", id: b"root" },
            ObjectKey::Hinted { slot: 7, key: &ObjectKey::Persistent { path: &path, id: b"x" }.to_octets() },
        ] {
            assert_eq!(ObjectKey::parse(&key.to_octets()), key);
        }
        assert_eq!(names(&path), Some(vec!["a", "b"]));
        assert_eq!(names(b""), Some(vec![]));
        assert_eq!(names(b"no end"), None);
    }

    #[test]
    fn malformed_or_foreign_key_is_plain() {
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
            assert_eq!(ObjectKey::parse(key), ObjectKey::Plain);
        }
        let long = [
            ObjectKey::System {
                stamp: 1,
                poa: SlotId { slot: 0, generation: 0 },
                object: SlotId { slot: 0, generation: 0 },
            }
            .to_octets(),
            vec![0],
        ]
        .concat();
        assert_eq!(ObjectKey::parse(&long), ObjectKey::Plain);
    }

    #[test]
    fn without_hint_removes_only_the_hint() {
        let persistent = ObjectKey::Persistent { path: b"a\0", id: b"x" }.to_octets();
        let hinted = ObjectKey::Hinted { slot: 7, key: &persistent }.to_octets();
        assert_eq!(ObjectKey::without_hint(&hinted), persistent);
        let place = SlotId { slot: 1, generation: 2 };
        let system = ObjectKey::System { stamp: 3, poa: place, object: place }.to_octets();
        for key in [&persistent[..], &system, b"NameService", b"CLNH\0\0\0\x07CLNU", b""] {
            assert_eq!(ObjectKey::without_hint(key), key);
        }
    }

    #[test]
    fn poa_path_is_nul_terminated_names() {
        assert_eq!(child_path(b"a\0", "b"), b"a\0b\0");
        assert_eq!(names(b"a\0b\0"), Some(vec!["a", "b"]));
        assert_eq!(names(b"\0"), Some(vec![""]));
        assert_eq!((names(b"a\0b"), names(b"\xff\0"), names(b"a\0\xff\0")), (None, None, None));
    }

    /// References may outlive the server process that made them, so the bytes of keys must not
    /// change.
    #[test]
    fn object_keys_have_the_documented_bytes() {
        let (poa, object) = (SlotId { slot: 1, generation: 2 }, SlotId { slot: 3, generation: 4 });
        let stamp = 0x0506_0708_090a_0b0c;
        let system = ObjectKey::System { stamp, poa, object }.to_octets();
        assert_eq!(system, b"CLNS\x05\x06\x07\x08\x09\x0a\x0b\x0c\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04");
        let user = ObjectKey::User { stamp, poa, id: b"id" }.to_octets();
        assert_eq!(user, b"CLNU\x05\x06\x07\x08\x09\x0a\x0b\x0c\0\0\0\x01\0\0\0\x02id");
        let persistent = ObjectKey::Persistent { path: b"a\0", id: b"id" }.to_octets();
        assert_eq!(persistent, b"CLNP\0\x02a\0id");
        assert_eq!(
            ObjectKey::Hinted { slot: 0x0102_0304, key: &persistent }.to_octets(),
            b"CLNH\x01\x02\x03\x04CLNP\0\x02a\0id"
        );
        assert!(ObjectKey::Plain.to_octets().is_empty());
        for other in [b"XLNS", b"CXNS", b"CLXS"] {
            let mut key = system.clone();
            key[..4].copy_from_slice(other);
            assert_eq!(ObjectKey::parse(&key), ObjectKey::Plain);
        }
    }
}
