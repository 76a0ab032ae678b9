//! What operations on POAs can refuse (CORBA 3.0.3, section 11.3.8).

use std::fmt;

use super::policies::{PoaPolicies, PolicyIndex};
use crate::exception::SystemException;

/// Why a POA did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoaError {
    /// A child of this name exists.
    AdapterAlreadyExists,
    /// There is no such child, and no activator made it.
    AdapterNonExistent,
    /// The manager is inactive, for good.
    AdapterInactive,
    /// The policies do not go together; the index is into [`PoaPolicies::LIST`].
    InvalidPolicy(PolicyIndex),
    /// A POA manager of this name exists.
    ManagerAlreadyExists,
    /// There is no default servant.
    NoServant,
    /// The object is active.
    ObjectAlreadyActive,
    /// The object is not active.
    ObjectNotActive,
    /// The servant incarnates an object already and the POA has UNIQUE_ID.
    ServantAlreadyActive,
    /// The servant incarnates no object.
    ServantNotActive,
    /// The reference was made by another POA.
    WrongAdapter,
    /// The POA's policies do not allow the operation.
    WrongPolicy,
    /// A system exception, such as BAD_INV_ORDER or OBJECT_NOT_EXIST.
    System(SystemException),
}

impl From<SystemException> for PoaError {
    fn from(exception: SystemException) -> Self {
        PoaError::System(exception)
    }
}

impl fmt::Display for PoaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PoaError::AdapterAlreadyExists => "a POA of this name exists already",
            PoaError::AdapterNonExistent => "there is no POA of this name",
            PoaError::AdapterInactive => "the POA manager is inactive, and stays so",
            PoaError::InvalidPolicy(index) => {
                let policy = PoaPolicies::LIST.get(usize::from(*index)).unwrap_or(&"policy");
                return write!(f, "the {policy} does not go with the other policies");
            }
            PoaError::ManagerAlreadyExists => "a POA manager of this name exists already",
            PoaError::NoServant => "the POA has no default servant",
            PoaError::ObjectAlreadyActive => "the object is active already",
            PoaError::ObjectNotActive => "the object is not active",
            PoaError::ServantAlreadyActive => {
                "the servant is active already, and the POA allows it one object (UNIQUE_ID)"
            }
            PoaError::ServantNotActive => "the servant is not active",
            PoaError::WrongAdapter => "the reference belongs to another POA",
            PoaError::WrongPolicy => "the POA's policies do not allow this",
            PoaError::System(exception) => return exception.fmt(f),
        })
    }
}

impl std::error::Error for PoaError {}
