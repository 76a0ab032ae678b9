//! Lifetimes of object keys.

use corelane::poa::{IdAssignment, Lifespan, ObjectKeyHints, PoaPolicies};

use crate::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyLifetime {
    /// Keys that live as long as the server, with the object's slot in the server's tables.
    Transient,
    /// Keys that outlive the server: the path of the POA and an id of the application.
    Persistent,
    /// Persistent keys that contain the object's slot as a hint. The server tries the hint first
    /// (the papers' active demultiplexing).
    Hinted,
}

impl KeyLifetime {
    pub(crate) const ALL: [KeyLifetime; 3] = [KeyLifetime::Transient, KeyLifetime::Persistent, KeyLifetime::Hinted];

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

    pub(crate) fn policies(self) -> PoaPolicies {
        let persistent =
            PoaPolicies { lifespan: Lifespan::Persistent, id_assignment: IdAssignment::User, ..PoaPolicies::default() };
        match self {
            KeyLifetime::Transient => PoaPolicies::default(),
            KeyLifetime::Persistent => persistent,
            KeyLifetime::Hinted => PoaPolicies { object_key_hints: ObjectKeyHints::Slots, ..persistent },
        }
    }
}
