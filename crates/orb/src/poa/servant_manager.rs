//! Servant managers and adapter activators: the application's answers to "who serves this?" (CORBA 3.0.3, sections 11.3.4
//! to 11.3.6).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::{ObjectId, Poa};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::object::ObjectRef;
use crate::servant::Servant;

/// Why a servant manager gave no servant.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ServantManagerError {
    /// ForwardRequest: the object is elsewhere, and the client is sent there.
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
            ServantManagerError::Forward(_) => f.write_str("the object is elsewhere"),
            ServantManagerError::System(exception) => exception.fmt(f),
        }
    }
}

impl std::error::Error for ServantManagerError {}

/// What a servant manager answers. `Ok(None)` is a null servant, which the client sees as OBJ_ADAPTER 7; an object that does
/// not exist is OBJECT_NOT_EXIST, raised: `Err(ServantManagerError::no_such_object())`.
pub type ServantResult<T> = Result<T, ServantManagerError>;

impl ServantManagerError {
    /// OBJECT_NOT_EXIST 2: there is no such object.
    #[must_use]
    pub fn no_such_object() -> Self {
        ServantManagerError::System(super::no_such_object())
    }
}

/// Makes servants when they are first needed, for POAs with RETAIN and USE_SERVANT_MANAGER.
///
/// For one object, `incarnate` and `etherealize` never overlap, and a new servant is made only after the old one is gone.
/// Different objects are looked after by several threads at once, unless the POA has SINGLE_THREAD.
pub trait ServantActivator: Send + Sync + 'static {
    /// A servant for the object `id`, which then stays in the active object map. In a UNIQUE_ID POA a servant that is active
    /// already gets the client OBJ_ADAPTER 5.
    ///
    /// # Errors
    /// Why there is none.
    fn incarnate(&self, id: &ObjectId, poa: &Poa) -> ServantResult<Option<Servant>>;

    /// The object `id` has been deactivated and no request runs on it any more. `cleanup_in_progress` says that its POA is
    /// being destroyed or its manager deactivated; `remaining_activations`, that the servant still stands for other objects
    /// of the POA. A panic is reported and otherwise ignored.
    fn etherealize(
        &self,
        id: &ObjectId,
        poa: &Poa,
        servant: &Servant,
        cleanup_in_progress: bool,
        remaining_activations: bool,
    );
}

/// What a servant locator takes from `preinvoke` to `postinvoke`. `Box::new(())` allocates nothing.
pub type Cookie = Box<dyn Any + Send>;

/// Finds a servant for every single request, for POAs with NON_RETAIN and USE_SERVANT_MANAGER.
///
/// `preinvoke`, the operation and `postinvoke` run in one thread, exactly paired: `postinvoke` also runs after an operation
/// that failed, and does not after a `preinvoke` that did.
pub trait ServantLocator: Send + Sync + 'static {
    /// A servant for this request. `operation` is the name on the wire: `_get_x` for an attribute, `_is_a` too.
    ///
    /// # Errors
    /// Why there is none.
    fn preinvoke(&self, id: &ObjectId, poa: &Poa, operation: &str) -> ServantResult<(Option<Servant>, Cookie)>;

    /// The request is done.
    ///
    /// # Errors
    /// An exception that replaces the outcome of the operation.
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
    /// For POAs with RETAIN.
    Activator(Arc<dyn ServantActivator>),
    /// For POAs with NON_RETAIN.
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

/// Makes child POAs when they are first needed.
pub trait AdapterActivator: Send + Sync + 'static {
    /// `parent` has no child `name`: makes it, with [`Poa::create_poa`], and says whether it did. Requests for the new POA
    /// wait until this returns. Never called twice at a time for one parent and name.
    ///
    /// # Errors
    /// An exception is OBJ_ADAPTER 1 for whoever asked for the POA.
    fn unknown_adapter(&self, parent: &Poa, name: &str) -> Result<bool, SystemException>;
}

/// A servant that a locator gave for one request, and what is needed to give it back.
pub(crate) struct Lent {
    pub(crate) locator: Arc<dyn ServantLocator>,
    pub(crate) id: ObjectId,
    pub(crate) poa: Poa,
    pub(crate) cookie: std::cell::Cell<Option<Cookie>>,
}

impl Lent {
    /// Calls `postinvoke`, once.
    pub(crate) fn postinvoke(&self, operation: &[u8], servant: &Servant) -> Result<(), SystemException> {
        let Some(cookie) = self.cookie.take() else { return Ok(()) };
        let operation = String::from_utf8_lossy(operation);
        let postinvoke = || self.locator.postinvoke(&self.id, &self.poa, &operation, cookie, servant);
        guarded(&self.poa, "ServantLocator", "postinvoke", postinvoke)
            .unwrap_or_else(|| Err(SystemException::new(Kind::Unknown, 0, Completion::Maybe)))
    }
}

/// Runs a callback of the application; `None` if it panicked, which is reported.
pub(crate) fn guarded<T>(
    poa: &Poa,
    interface: &'static str,
    operation: &str,
    callback: impl FnOnce() -> T,
) -> Option<T> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(callback)) {
        Ok(result) => Some(result),
        Err(panic) => {
            if let Ok(core) = poa.core().orb() {
                crate::server::request::report_panic(&core, interface, operation, &*panic);
            }
            None
        }
    }
}
