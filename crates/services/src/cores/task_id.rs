//! The object ids of task references.
//!
//! A task reference leads to its target through the POA `CorelaneTasks`. Its object id is
//!
//! ```text
//! number of the task u64   tag u64          big-endian
//! ```
//!
//! The tag is a keyed hash of the number, so that a client cannot make the reference of another
//! task.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;

use corelane_sched::task::TaskId;
use corelane_sys::process::random_number;

use super::registry::TaskToken;

/// The key of the tags of a server. The store keeps the key, so that task references stay valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TagKey(pub(super) [u64; 2]);

impl fmt::Debug for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagKey(..)")
    }
}

impl TagKey {
    pub(super) fn random() -> io::Result<Self> {
        Ok(TagKey([random_number()?, random_number()?]))
    }

    /// Returns the SipHash-2-4 of the number's octets in little-endian order.
    #[expect(deprecated, reason = "the standard library has no other SipHash with keys")]
    fn tag(self, number: u64) -> u64 {
        let [first, second] = self.0;
        let mut hasher = std::hash::SipHasher::new_with_keys(first, second);
        hasher.write(&number.to_le_bytes());
        hasher.finish()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Secrets {
    tags: TagKey,
    /// The keys of the tokens, new in each run of the server. Earlier tokens stay valid, because
    /// the task registry keeps the tokens.
    tokens: [RandomState; 2],
}

impl Secrets {
    pub(super) fn new(tags: TagKey) -> Self {
        Secrets { tags, tokens: [RandomState::new(), RandomState::new()] }
    }

    pub(super) fn token(&self, number: u64) -> TaskToken {
        let [first, second] = self.tokens.each_ref().map(|secret| secret.hash_one(number).to_be_bytes());
        let mut octets = [0; 16];
        octets[..8].copy_from_slice(&first);
        octets[8..].copy_from_slice(&second);
        TaskToken(octets)
    }

    pub(super) fn object_id(&self, task: TaskId) -> [u8; 16] {
        let mut octets = [0; 16];
        octets[..8].copy_from_slice(&task.0.to_be_bytes());
        octets[8..].copy_from_slice(&self.tags.tag(task.0).to_be_bytes());
        octets
    }

    /// Returns the task of an object id; `None` if the id is malformed or has a wrong tag.
    pub(super) fn task(&self, object_id: &[u8]) -> Option<TaskId> {
        let task = TaskId(u64::from_be_bytes(*object_id.first_chunk()?));
        (object_id == self.object_id(task)).then_some(task)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The vector of 8 octets in the reference implementation of SipHash-2-4. References in a store
    /// depend on the function.
    #[test]
    fn tag_is_the_siphash_of_the_reference_implementation() {
        let key = TagKey([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        assert_eq!(key.tag(0x0706_0504_0302_0100), 0x93f5_f579_9a93_2462);
    }

    proptest! {
        #[test]
        fn only_the_servers_own_ids_lead_to_tasks(number: u64, octets: Vec<u8>, flipped in 0..128_usize) {
            let secrets = Secrets::new(TagKey::random().unwrap());
            let mut id = secrets.object_id(TaskId(number));
            prop_assert_eq!(secrets.task(&id), Some(TaskId(number)));
            prop_assert_eq!(secrets.task(&id[..15]), None);
            id[flipped / 8] ^= 1 << (flipped % 8);
            prop_assert_eq!(secrets.task(&id), None);
            prop_assert_eq!(secrets.task(&octets), None);
            prop_assert_ne!(secrets.token(number), secrets.token(number.wrapping_add(1)));
        }
    }
}
