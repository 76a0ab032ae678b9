//! Lifetimes of object keys.

use corelane::poa::{IdAssignment, KeyHints, Lifespan, PoaPolicies};

use crate::Failure;

/// Lifetime of the keys of the benchmark's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyLifetime {
    /// Keys that live as long as the server. A key contains the object's slot in the server's
    /// tables.
    Transient,
    /// Keys that outlive the server. A key contains the path of the POA and an id of the
    /// application, which the server finds by hashing.
    Persistent,
    /// Keys that outlive the server and also contain the object's slot as a hint (the papers'
    /// active demultiplexing). The server tries the hint first.
    Hinted,
}

impl KeyLifetime {
    pub(crate) const ALL: [KeyLifetime; 3] = [KeyLifetime::Transient, KeyLifetime::Persistent, KeyLifetime::Hinted];

    /// Returns the name in labels and command lines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            KeyLifetime::Transient => "transient",
            KeyLifetime::Persistent => "persistent",
            KeyLifetime::Hinted => "hinted",
        }
    }

    pub(crate) fn from_name(name: &str) -> Result<Self, Failure> {
        let found = KeyLifetime::ALL.into_iter().find(|keys| keys.name() == name);
        found.ok_or_else(|| Failure::new(format!("there are no `{name}` keys")))
    }

    /// Returns the policies of a POA whose objects have keys of this lifetime.
    pub(crate) fn policies(self) -> PoaPolicies {
        let persistent =
            PoaPolicies { lifespan: Lifespan::Persistent, id_assignment: IdAssignment::User, ..PoaPolicies::default() };
        match self {
            KeyLifetime::Transient => PoaPolicies::default(),
            KeyLifetime::Persistent => persistent,
            KeyLifetime::Hinted => PoaPolicies { key_hints: KeyHints::Slots, ..persistent },
        }
    }
}
