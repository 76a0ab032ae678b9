//! Errors of operations on POAs (CORBA 3.0.3, section 11.3.8).

use std::fmt;

use corelane_wire::exception::minor;

use super::policies::{PoaPolicies, PolicyIndex};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};

/// The reason why an operation on a POA failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoaError {
    /// A child POA with this name already exists.
    AdapterAlreadyExists,
    /// No child POA has this name, and no adapter activator created it.
    AdapterNonExistent,
    /// The POA manager is inactive, which is permanent.
    AdapterInactive,
    /// The policies conflict; the field is the index of one of them in
    /// [`PoaPolicies::POLICY_NAMES`].
    InvalidPolicy(PolicyIndex),
    /// A POA manager with this id already exists.
    ManagerAlreadyExists,
    /// The POA has no default servant.
    NoServant,
    /// The object is already active.
    ObjectAlreadyActive,
    /// The object is not active.
    ObjectNotActive,
    /// The servant already incarnates an object, and the POA has UNIQUE_ID.
    ServantAlreadyActive,
    /// The servant incarnates no object.
    ServantNotActive,
    /// Another POA made the reference.
    WrongAdapter,
    /// The POA's policies do not permit the operation.
    WrongPolicy,
    /// A system exception, such as BAD_INV_ORDER or OBJECT_NOT_EXIST.
    System(SystemException),
}

impl From<SystemException> for PoaError {
    fn from(exception: SystemException) -> Self {
        PoaError::System(exception)
    }
}

impl From<PoaError> for SystemException {
    /// Errors other than [`PoaError::System`] become OBJ_ADAPTER 0, COMPLETED_NO, with the error's
    /// text as the detail.
    fn from(error: PoaError) -> Self {
        match error {
            PoaError::System(exception) => exception,
            other => SystemException::new(Kind::ObjAdapter, 0, Completion::No).with_message(other.to_string()),
        }
    }
}

impl fmt::Display for PoaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PoaError::AdapterAlreadyExists => "a POA of this name exists already",
            PoaError::AdapterNonExistent => "there is no POA of this name",
            PoaError::AdapterInactive => "the POA manager is permanently inactive",
            PoaError::InvalidPolicy(index) => {
                let policy = PoaPolicies::POLICY_NAMES.get(usize::from(*index)).unwrap_or(&"policy");
                return write!(f, "the {policy} conflicts with the other policies");
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

#[cold]
pub(super) fn would_deadlock() -> SystemException {
    SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::WOULD_DEADLOCK, Completion::No)
        .with_message("a request cannot wait for requests to complete, because it would wait for itself")
}

#[cold]
pub(super) fn being_destroyed() -> SystemException {
    SystemException::new(Kind::Transient, minor::transient::POA_DESTROYED, Completion::No)
        .with_message("the POA is being destroyed")
}

#[cold]
pub(super) fn destroyed_error() -> SystemException {
    SystemException::new(Kind::ObjectNotExist, minor::object_not_exist::ADAPTER_INACTIVE, Completion::No)
        .with_message("the POA has been destroyed")
}

#[cold]
pub(super) fn too_many_objects() -> SystemException {
    SystemException::new(Kind::NoResources, 0, Completion::No).with_message("too many objects are active")
}

#[cfg(test)]
mod tests {
    use super::PoaError;
    use crate::exception::{Completion, SystemException, SystemExceptionKind};

    #[test]
    fn poa_error_converts_to_obj_adapter_with_its_message() {
        let refused = |error: PoaError| -> Result<(), SystemException> { Err(error)? };
        let exception = refused(PoaError::WrongPolicy).unwrap_err();
        assert_eq!((exception.kind(), exception.completed()), (SystemExceptionKind::ObjAdapter, Completion::No));
        assert!(exception.to_string().contains("the POA's policies do not allow this"), "{exception}");
        let within = SystemException::new(SystemExceptionKind::BadInvOrder, 3, Completion::Maybe);
        assert_eq!(refused(PoaError::System(within.clone())), Err(within));
    }
}
