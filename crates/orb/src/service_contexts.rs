//! The service contexts to be sent with a request or a reply.

use corelane_wire::giop::ServiceContext;

/// Maximum number of contexts that the ORB itself sends with one message.
const MAX_CONTEXTS: usize = 4;

/// The service contexts that the ORB itself sends with one message, in their order. Each feature
/// pushes its own; one that the message does not need is `None`.
pub(crate) struct ContextList<'d> {
    list: [ServiceContext<'d>; MAX_CONTEXTS],
    count: usize,
}

impl<'d> ContextList<'d> {
    #[inline]
    pub(crate) fn new() -> Self {
        ContextList { list: [ServiceContext { id: 0, data: &[] }; MAX_CONTEXTS], count: 0 }
    }

    /// Appends a context if there is data for it.
    #[inline]
    pub(crate) fn push<const N: usize>(&mut self, id: u32, data: Option<&'d [u8; N]>) {
        let Some(data) = data else { return };
        debug_assert!(self.count < MAX_CONTEXTS, "MAX_CONTEXTS is too small");
        if let Some(slot) = self.list.get_mut(self.count) {
            *slot = ServiceContext { id, data };
            self.count += 1;
        }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[ServiceContext<'d>] {
        self.list.get(..self.count).unwrap_or_default()
    }
}
