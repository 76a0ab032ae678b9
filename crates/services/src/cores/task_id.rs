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

use std::hash::{BuildHasher, RandomState};

use corelane_sched::task::TaskId;

use super::books::Token;

/// The secrets of a server, from which it computes tags and tokens.
#[derive(Clone, Debug)]
pub(super) struct Secrets {
    tags: RandomState,
    tokens: [RandomState; 2],
}

impl Secrets {
    pub(super) fn new() -> Self {
        Secrets { tags: RandomState::new(), tokens: [RandomState::new(), RandomState::new()] }
    }

    /// Returns the token that belongs to a number.
    pub(super) fn token(&self, number: u64) -> Token {
        let [first, second] = self.tokens.each_ref().map(|secret| secret.hash_one(number).to_be_bytes());
        let mut octets = [0; 16];
        octets[..8].copy_from_slice(&first);
        octets[8..].copy_from_slice(&second);
        Token(octets)
    }

    /// Returns the object id of a task.
    pub(super) fn object_id(&self, task: TaskId) -> [u8; 16] {
        let mut octets = [0; 16];
        octets[..8].copy_from_slice(&task.0.to_be_bytes());
        octets[8..].copy_from_slice(&self.tags.hash_one(task.0).to_be_bytes());
        octets
    }

    /// Returns the task with this object id; `None` if this server did not make the id.
    pub(super) fn task(&self, object_id: &[u8]) -> Option<TaskId> {
        let task = TaskId(u64::from_be_bytes(*object_id.first_chunk()?));
        (object_id == self.object_id(task)).then_some(task)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn only_the_servers_own_ids_lead_to_tasks(number: u64, octets: Vec<u8>, flipped in 0..128_usize) {
            let secrets = Secrets::new();
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
