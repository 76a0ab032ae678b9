//! The exclusive use of a pooled connection by one call.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use corelane_sys::lock::ArcCheckoutGuard;

use super::connection::{BufferResult, ClientConnection};
use super::context::ClientContext;

/// A connection that one call uses alone. The drop returns the connection to the pool, or closes it
/// if it is not usable.
pub(crate) struct Checkout<'p> {
    /// The slot is empty before the connection is made and after [`discard`](Self::discard).
    pub(super) slot: ArcCheckoutGuard<'p, Option<Box<ClientConnection>>>,
}

impl Checkout<'_> {
    #[inline(never)]
    pub(crate) fn buffer_oneway(&mut self, message: &[u8], context: &ClientContext) -> bool {
        match self.oneways.push(message) {
            BufferResult::Full => return false,
            BufferResult::AlreadyListed => {}
            BufferResult::NeedsListing => context.list_batch(Arc::downgrade(self.slot.cell())),
        }
        true
    }

    /// Closes the connection and leaves the checkout empty; a later use panics.
    #[cold]
    pub(crate) fn discard(&mut self) {
        *self.slot = None;
    }
}

impl Deref for Checkout<'_> {
    type Target = ClientConnection;

    #[inline]
    fn deref(&self) -> &ClientConnection {
        self.slot.as_deref().expect("a checkout holds a connection until it is discarded")
    }
}

impl DerefMut for Checkout<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut ClientConnection {
        self.slot.as_deref_mut().expect("a checkout holds a connection until it is discarded")
    }
}

impl Drop for Checkout<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.slot.as_ref().is_some_and(|connection| !connection.is_usable()) {
            // The connection is closed before its slot is released, so that no caller finds an
            // unusable connection.
            *self.slot = None;
        }
    }
}

impl fmt::Debug for Checkout<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Checkout").field(&*self.slot).finish()
    }
}
