//! Servant managers and adapter activators, with which the application supplies servants and POAs
//! on demand (CORBA 3.0.3, sections 11.3.4 to 11.3.6).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::{ObjectId, Poa};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::object::ObjectRef;
use crate::servant::Servant;

/// The reason why a servant manager supplied no servant.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ServantManagerError {
    /// ForwardRequest: the client must send the request to this other object.
    Forward(ObjectRef),
    /// A system exception for the client.
    System(SystemException),
}

impl From<SystemException> for ServantManagerError {
    fn from(exception: SystemException) -> Self {
        ServantManagerError::System(exception)
    }
}

impl fmt::Display for ServantManagerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServantManagerError::Forward(_) => f.write_str("the request is forwarded to another object"),
            ServantManagerError::System(exception) => exception.fmt(f),
        }
    }
}

impl std::error::Error for ServantManagerError {}

/// The result of a servant manager's call. For a null servant (`None`) the client gets OBJ_ADAPTER
/// 7.
pub type ServantResult<T> = Result<T, ServantManagerError>;

impl ServantManagerError {
    /// Makes the error for an object that does not exist: OBJECT_NOT_EXIST 2.
    #[must_use]
    pub fn no_such_object() -> Self {
        ServantManagerError::System(super::no_such_object())
    }
}

/// A servant manager that creates a servant at the first request for an object, in POAs with RETAIN
/// and USE_SERVANT_MANAGER.
///
/// For one object, `incarnate` and `etherealize` never overlap, and `incarnate` is called again
/// only after the object's deactivation has ended.
pub trait ServantActivator: Send + Sync + 'static {
    /// Returns a servant for the object `id`, with which the POA activates the object. In a POA
    /// with UNIQUE_ID, if the servant is already active, the client gets OBJ_ADAPTER 5.
    ///
    /// # Errors
    /// The reason why there is no servant.
    fn incarnate(&self, id: &ObjectId, poa: &Poa) -> ServantResult<Option<Servant>>;

    /// Releases the servant of a deactivated object after the object's last request.
    /// `cleanup_in_progress` is true if the POA is being destroyed or its manager was deactivated.
    /// `remaining_activations` is true if the servant incarnates further objects of the POA.
    fn etherealize(
        &self,
        id: &ObjectId,
        poa: &Poa,
        servant: &Servant,
        cleanup_in_progress: bool,
        remaining_activations: bool,
    );
}

/// A value that a servant locator passes from `preinvoke` to `postinvoke`. `Box::new(())` does not
/// allocate.
pub type Cookie = Box<dyn Any + Send>;

/// A servant manager that supplies a servant for each single request, in POAs with NON_RETAIN and
/// USE_SERVANT_MANAGER.
///
/// The POA calls `postinvoke` once for each `preinvoke` that returned a servant, even if the
/// operation fails.
pub trait ServantLocator: Send + Sync + 'static {
    /// Returns a servant for this request. `operation` is the name on the wire, for example
    /// `_get_x` for an attribute `x`, or `_is_a`.
    ///
    /// # Errors
    /// The reason why there is no servant.
    fn preinvoke(&self, id: &ObjectId, poa: &Poa, operation: &str) -> ServantResult<(Option<Servant>, Cookie)>;

    /// Releases the servant after the request.
    ///
    /// # Errors
    /// An exception that replaces the result of the operation.
    fn postinvoke(
        &self,
        id: &ObjectId,
        poa: &Poa,
        operation: &str,
        cookie: Cookie,
        servant: &Servant,
    ) -> Result<(), SystemException>;
}

/// A servant manager of either kind.
#[derive(Clone)]
pub enum ServantManager {
    /// The servant manager of a POA with RETAIN.
    Activator(Arc<dyn ServantActivator>),
    /// The servant manager of a POA with NON_RETAIN.
    Locator(Arc<dyn ServantLocator>),
}

impl fmt::Debug for ServantManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServantManager::Activator(_) => "ServantManager::Activator",
            ServantManager::Locator(_) => "ServantManager::Locator",
        })
    }
}

/// A callback that creates missing child POAs on demand.
pub trait AdapterActivator: Send + Sync + 'static {
    /// Creates the missing child `name` of `parent` with [`Poa::create_poa`]. Returns true if it
    /// created the child.
    ///
    /// # Errors
    /// Any exception; the client whose request needs the POA gets OBJ_ADAPTER 1.
    fn unknown_adapter(&self, parent: &Poa, name: &str) -> Result<bool, SystemException>;
}

pub(crate) struct LocatorServant {
    pub(crate) locator: Arc<dyn ServantLocator>,
    pub(crate) id: ObjectId,
    pub(crate) poa: Poa,
    pub(crate) cookie: std::cell::Cell<Option<Cookie>>,
}

impl LocatorServant {
    pub(crate) fn postinvoke(&self, operation: &[u8], servant: &Servant) -> Result<(), SystemException> {
        let Some(cookie) = self.cookie.take() else { return Ok(()) };
        let operation = String::from_utf8_lossy(operation);
        let postinvoke = || self.locator.postinvoke(&self.id, &self.poa, &operation, cookie, servant);
        run_guarded(&self.poa, "ServantLocator", "postinvoke", postinvoke)
            .unwrap_or_else(|| Err(SystemException::new(Kind::Unknown, 0, Completion::Maybe)))
    }
}

/// Runs a callback. If the callback panics, the result is `None`, and the panic is reported unless
/// the ORB has ended.
pub(crate) fn run_guarded<T>(
    poa: &Poa,
    interface: &'static str,
    operation: &str,
    callback: impl FnOnce() -> T,
) -> Option<T> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(callback)) {
        Ok(result) => Some(result),
        Err(panic) => {
            if let Ok(core) = poa.core().orb() {
                core.report_panic(interface, operation.as_bytes(), &*panic);
            }
            None
        }
    }
}
