//! Objects that never leave the process: local interfaces and native types.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use corelane_wire::{CdrError, Decoder, Encoder};

/// A reference to an object of a local interface: `LocalRef<dyn I>`, which generated code calls
/// `IRef`. Clones denote the same object; equality and hashing compare objects by identity. A nil
/// reference is `None` of `Option<LocalRef<dyn I>>`.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use corelane::LocalRef;
/// trait Clock { fn hour(&self) -> u32; }
/// struct Noon;
/// impl Clock for Noon { fn hour(&self) -> u32 { 12 } }
/// let clock: LocalRef<dyn Clock> = LocalRef::from(Arc::new(Noon) as Arc<dyn Clock>);
/// assert_eq!(clock.hour(), 12);
/// assert_eq!(clock, clock.clone());
/// ```
pub struct LocalRef<T: ?Sized>(Arc<T>);

/// A value of an IDL `native` type. It can have any Rust type that is `Send` and `Sync`.
pub type Native = LocalRef<dyn Any + Send + Sync>;

impl<T: ?Sized> LocalRef<T> {
    /// Returns a shared pointer to the object.
    #[must_use]
    pub fn into_arc(self) -> Arc<T> {
        self.0
    }
}

impl<T: ?Sized> From<Arc<T>> for LocalRef<T> {
    fn from(object: Arc<T>) -> Self {
        LocalRef(object)
    }
}

impl<T: ?Sized> Deref for LocalRef<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> Clone for LocalRef<T> {
    fn clone(&self) -> Self {
        LocalRef(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> PartialEq for LocalRef<T> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0), Arc::as_ptr(&other.0))
    }
}

impl<T: ?Sized> Eq for LocalRef<T> {}

impl<T: ?Sized> Hash for LocalRef<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).cast::<()>().hash(state);
    }
}

impl<T: ?Sized> fmt::Debug for LocalRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalRef({:p})", Arc::as_ptr(&self.0).cast::<()>())
    }
}

/// For generated code: the encoder of local objects, which always fails with MARSHAL 4.
///
/// # Errors
/// Always [`CdrError::LocalObjectNotSendable`].
pub fn write_local<T>(_: &mut Encoder<'_>, _: &T) -> Result<(), CdrError> {
    Err(CdrError::LocalObjectNotSendable)
}

/// For generated code: the decoder of local objects, which always fails with MARSHAL 4.
///
/// # Errors
/// Always [`CdrError::LocalObjectNotSendable`].
pub fn read_local<T>(_: &mut Decoder<'_>) -> Result<T, CdrError> {
    Err(CdrError::LocalObjectNotSendable)
}
