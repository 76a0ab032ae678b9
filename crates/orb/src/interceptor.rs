//! Interceptors: application code that the ORB calls at four points of each request (similar to
//! Portable Interceptors, CORBA 3.0.3, chapter 21).

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use corelane_net::Peer;
use corelane_wire::giop::ReceivedServiceContexts;

use crate::exception::{Completion, FailureDetail, SystemException, SystemExceptionKind as Kind};

/// Application code that an ORB calls before and after each request.
/// [`OrbBuilder::interceptor`](crate::OrbBuilder::interceptor) sets it.
///
/// In the client, the ORB calls [`send_request`](Self::send_request) before each attempt to send a
/// request, on the calling thread. For each `send_request` that returned `Ok` it calls
/// [`receive_reply`](Self::receive_reply) once after the attempt, unless the program panics while
/// it writes the arguments.
///
/// In the server, the ORB calls [`receive_request`](Self::receive_request) and
/// [`send_reply`](Self::send_reply) once for each request that it can read, on the thread that
/// serves the request. It also calls them for requests that the ORB refuses, but not for requests
/// that an overloaded server rejects unread.
///
/// Before a request, several interceptors run in the order in which they were set, until one raises
/// an exception. After the request, they run in the reverse order. Calls that an interceptor makes
/// are not intercepted.
///
/// Collocated calls, LocateRequests and the ORB's declaration of a priority band are not
/// intercepted.
pub trait Interceptor: Send + Sync + 'static {
    /// Runs in the client before an attempt to send a request. May add service contexts, for
    /// example the identity of a trace.
    ///
    /// # Errors
    /// The exception that the caller gets. The request is then not sent, and there is no further
    /// attempt.
    fn send_request(
        &self,
        request: &RequestInfo<'_>,
        contexts: &mut AddedServiceContexts,
    ) -> Result<(), SystemException> {
        let _ = (request, contexts);
        Ok(())
    }

    /// Runs in the client after an attempt to send a request, with the outcome of the attempt.
    fn receive_reply(&self, request: &RequestInfo<'_>, outcome: &RequestOutcome<'_>) {
        let _ = (request, outcome);
    }

    /// Runs in the server before the servant, after the object adapter has looked for the servant.
    ///
    /// # Errors
    /// The exception that the client gets. The request then does not run. The client of a oneway
    /// with `SyncScope::Server` has received its reply before this point, and gets no exception.
    fn receive_request(
        &self,
        request: &RequestInfo<'_>,
        contexts: &RequestServiceContexts<'_>,
    ) -> Result<(), SystemException> {
        let _ = (request, contexts);
        Ok(())
    }

    /// Runs in the server after the request has run or was refused, and before the reply, if one is
    /// still to be sent.
    fn send_reply(&self, request: &RequestInfo<'_>, outcome: &RequestOutcome<'_>) {
        let _ = (request, outcome);
    }
}

impl<T: Interceptor + ?Sized> Interceptor for Arc<T> {
    fn send_request(
        &self,
        request: &RequestInfo<'_>,
        contexts: &mut AddedServiceContexts,
    ) -> Result<(), SystemException> {
        (**self).send_request(request, contexts)
    }

    fn receive_reply(&self, request: &RequestInfo<'_>, outcome: &RequestOutcome<'_>) {
        (**self).receive_reply(request, outcome);
    }

    fn receive_request(
        &self,
        request: &RequestInfo<'_>,
        contexts: &RequestServiceContexts<'_>,
    ) -> Result<(), SystemException> {
        (**self).receive_request(request, contexts)
    }

    fn send_reply(&self, request: &RequestInfo<'_>, outcome: &RequestOutcome<'_>) {
        (**self).send_reply(request, outcome);
    }
}

/// The description of a request for an [`Interceptor`].
#[derive(Clone, Copy, Debug)]
pub struct RequestInfo<'r> {
    pub(crate) number: u64,
    pub(crate) operation: &'r [u8],
    pub(crate) object_key: &'r [u8],
    pub(crate) peer: &'r Peer,
    pub(crate) response_expected: bool,
}

impl RequestInfo<'_> {
    /// Returns a number that is unique in the ORB. In the client it identifies an attempt to send a
    /// request, in the server a request. The points before and after the request have the same
    /// number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the operation's name on the wire: `_get_x` for an attribute `x`, `_is_a` for a type
    /// check. In the server the name comes from the peer, and octets that are not UTF-8 are
    /// replaced.
    #[must_use]
    pub fn operation(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.operation)
    }

    /// Returns the key of the called object. In the server the key is empty if the request contains
    /// a profile or a reference without a usable key.
    #[must_use]
    pub fn object_key(&self) -> &[u8] {
        self.object_key
    }

    /// Returns the process at the other end of the connection.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.peer
    }

    /// Returns true if the client waits for a reply. Returns false for a oneway without
    /// `SyncScope::Server` or `SyncScope::Target`.
    #[must_use]
    pub fn is_response_expected(&self) -> bool {
        self.response_expected
    }
}

/// The outcome of a request in the server, or of an attempt to send a request in the client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RequestOutcome<'r> {
    /// The operation returned.
    Returned,
    /// The operation raised a user exception.
    UserException,
    /// The request ended with a system exception.
    SystemException(&'r SystemException),
    /// The object is at another address, or needs another addressing mode. The client tries again.
    Forwarded,
    /// In the client: a oneway request was sent.
    OnewaySent,
    /// In the client: the attempt ended without a reply, for example because the deadline passed or
    /// the connection ended. The ORB may make another attempt.
    #[non_exhaustive]
    Failed {
        /// The server's address and the reason.
        detail: &'r FailureDetail,
    },
    /// In the client: the program dropped a deferred call before its reply arrived.
    Abandoned,
}

/// The service contexts that an [`Interceptor`] adds to a request.
#[derive(Debug, Default)]
pub struct AddedServiceContexts(Vec<(u32, Vec<u8>)>);

impl AddedServiceContexts {
    /// Adds a service context. `data` is the encoded content; contexts of the OMG are
    /// encapsulations. The OMG registers the ids; docs/wire-extensions.md lists the ids that the
    /// ORB uses.
    pub fn add(&mut self, id: u32, data: impl Into<Vec<u8>>) {
        self.0.push((id, data.into()));
    }

    pub(crate) fn as_slice(&self) -> &[(u32, Vec<u8>)] {
        &self.0
    }
}

/// The service contexts of a received request.
#[derive(Clone, Copy, Debug)]
pub struct RequestServiceContexts<'m>(pub(crate) ReceivedServiceContexts<'m>);

impl<'m> RequestServiceContexts<'m> {
    /// Returns the data of the first service context with this id.
    #[must_use]
    pub fn find(&self, id: u32) -> Option<&'m [u8]> {
        self.0.find(id)
    }
}

/// The points at which the ORB calls its interceptors. The trait lets the linker drop the code of
/// interceptors from programs without interceptors.
pub(crate) trait InterceptionPoints: fmt::Debug + Send + Sync {
    fn push(&mut self, interceptor: Box<dyn Interceptor>);

    fn next_number(&self) -> u64;

    fn send_request(
        &self,
        request: &RequestInfo<'_>,
        contexts: &mut AddedServiceContexts,
    ) -> Result<(), SystemException>;

    fn receive_reply(&self, request: &RequestInfo<'_>, outcome: &RequestOutcome<'_>);

    fn receive_request(
        &self,
        request: &RequestInfo<'_>,
        contexts: &RequestServiceContexts<'_>,
    ) -> Result<(), SystemException>;

    fn send_reply(&self, request: &RequestInfo<'_>, outcome: &RequestOutcome<'_>);
}

#[derive(Default)]
pub(crate) struct InterceptorChain {
    interceptors: Vec<Box<dyn Interceptor>>,
    /// Number of the last request or attempt. Incremented `Relaxed`.
    last_number: AtomicU64,
}

impl InterceptorChain {
    /// Calls `before` for the interceptors in order, unless an interceptor makes the call. If an
    /// interceptor raises an exception, calls `after` for the interceptors before it, in reverse
    /// order. A panic of an interceptor becomes the exception UNKNOWN.
    fn enter(
        &self,
        mut before: impl FnMut(&dyn Interceptor) -> Result<(), SystemException>,
        after: impl Fn(&dyn Interceptor, &RequestOutcome<'_>),
    ) -> Result<(), SystemException> {
        if IS_INTERCEPTING.get() {
            return Ok(());
        }
        for (index, interceptor) in self.interceptors.iter().enumerate() {
            let result = guarded(|| before(&**interceptor)).unwrap_or_else(|| Err(panicked()));
            if let Err(exception) = result {
                let outcome = RequestOutcome::SystemException(&exception);
                let entered = self.interceptors.iter().take(index).rev();
                entered.for_each(|interceptor| _ = guarded(|| after(&**interceptor, &outcome)));
                return Err(exception);
            }
        }
        Ok(())
    }

    fn leave(&self, after: impl Fn(&dyn Interceptor)) {
        if IS_INTERCEPTING.get() {
            return;
        }
        self.interceptors.iter().rev().for_each(|interceptor| _ = guarded(|| after(&**interceptor)));
    }
}

thread_local! {
    static IS_INTERCEPTING: Cell<bool> = const { Cell::new(false) };
}

fn guarded<T>(run: impl FnOnce() -> T) -> Option<T> {
    IS_INTERCEPTING.set(true);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).ok();
    IS_INTERCEPTING.set(false);
    result
}

fn panicked() -> SystemException {
    SystemException::new(Kind::Unknown, 0, Completion::No).with_message("an interceptor panicked")
}

impl InterceptionPoints for InterceptorChain {
    fn push(&mut self, interceptor: Box<dyn Interceptor>) {
        self.interceptors.push(interceptor);
    }

    fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn send_request(
        &self,
        request: &RequestInfo<'_>,
        contexts: &mut AddedServiceContexts,
    ) -> Result<(), SystemException> {
        self.enter(
            |interceptor| interceptor.send_request(request, contexts),
            |interceptor, outcome| interceptor.receive_reply(request, outcome),
        )
    }

    fn receive_reply(&self, request: &RequestInfo<'_>, outcome: &RequestOutcome<'_>) {
        self.leave(|interceptor| interceptor.receive_reply(request, outcome));
    }

    fn receive_request(
        &self,
        request: &RequestInfo<'_>,
        contexts: &RequestServiceContexts<'_>,
    ) -> Result<(), SystemException> {
        self.enter(
            |interceptor| interceptor.receive_request(request, contexts),
            |interceptor, outcome| interceptor.send_reply(request, outcome),
        )
    }

    fn send_reply(&self, request: &RequestInfo<'_>, outcome: &RequestOutcome<'_>) {
        self.leave(|interceptor| interceptor.send_reply(request, outcome));
    }
}

impl fmt::Debug for InterceptorChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterceptorChain").field("interceptors", &self.interceptors.len()).finish_non_exhaustive()
    }
}
