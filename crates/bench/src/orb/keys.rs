//! Object keys by their lifetime.

use corelane::poa::{IdAssignment, KeyHints, Lifespan, PoaPolicies};

use crate::Failure;

/// The lifetime of the objects' keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Keys that live as long as the server: a slot in its tables.
    Transient,
    /// Keys that live longer than the server: the POA's path and an id of the user, found by
    /// hashing.
    Persistent,
    /// Keys that live longer than the server, with the object's slot as a hint that is tried first
    /// (the papers' active demultiplexing).
    Hinted,
}

impl Keys {
    pub(crate) const ALL: [Keys; 3] = [Keys::Transient, Keys::Persistent, Keys::Hinted];

    /// Returns the name that labels and command lines use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Keys::Transient => "transient",
            Keys::Persistent => "persistent",
            Keys::Hinted => "hinted",
        }
    }

    pub(crate) fn from_name(name: &str) -> Result<Self, Failure> {
        let found = Keys::ALL.into_iter().find(|keys| keys.name() == name);
        found.ok_or_else(|| Failure::new(format!("there are no `{name}` keys")))
    }

    /// Returns the policies of a POA whose objects have keys with this lifetime.
    pub(crate) fn policies(self) -> PoaPolicies {
        let persistent =
            PoaPolicies { lifespan: Lifespan::Persistent, id_assignment: IdAssignment::User, ..PoaPolicies::default() };
        match self {
            Keys::Transient => PoaPolicies::default(),
            Keys::Persistent => persistent,
            Keys::Hinted => PoaPolicies { key_hints: KeyHints::Slots, ..persistent },
        }
    }
}
