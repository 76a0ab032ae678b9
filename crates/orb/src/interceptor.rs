//! Interceptors: the application's code at four fixed points of each request, two on either side
//! (after Portable Interceptors, CORBA 3.0.3, chapter 21). Tracing, metrics and access checks need
//! no others.
//!
//! An ORB without interceptors tests one pointer at each point. With an interceptor its calls take
//! the general path of the [driver](crate::invocation), which allocates.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use corelane_net::Peer;
use corelane_wire::giop::Contexts;

use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};

/// Code of the application that sees every request of an ORB before and after it. Set by
/// [`OrbBuilder::interceptor`](crate::OrbBuilder::interceptor).
///
/// Each attempt to send a request passes [`send_request`](Self::send_request) and
/// [`receive_reply`](Self::receive_reply), on the calling thread. Each request that a server can
/// read passes [`receive_request`](Self::receive_request) and [`send_reply`](Self::send_reply), on
/// the thread that serves it. Several interceptors run in the order in which they were set, and
/// after the request in the reverse order.
///
/// Calls within the process pass no interceptor, unless the reference came from outside. Neither do
/// LocateRequests, nor the ORB's own declaration of a priority band. The reply of a deferred call
/// passes when the program collects it, and never if the program drops the call.
pub trait Interceptor: Send + Sync + 'static {
    /// Called in the client before an attempt to send a request. May add service contexts, for
    /// example the identity of a trace.
    ///
    /// # Errors
    /// The exception that the caller gets; the request is not sent then, nor tried again.
    fn send_request(&self, request: &RequestInfo<'_>, contexts: &mut AddedContexts) -> Result<(), SystemException> {
        let _ = (request, contexts);
        Ok(())
    }

    /// Called in the client after the attempt.
    fn receive_reply(&self, request: &RequestInfo<'_>, outcome: &RequestOutcome<'_>) {
        let _ = (request, outcome);
    }

    /// Called in the server before the servant is looked up.
    ///
    /// # Errors
    /// The exception that the client gets; the request does not run then.
    fn receive_request(
        &self,
        request: &RequestInfo<'_>,
        contexts: &ReceivedContexts<'_>,
    ) -> Result<(), SystemException> {
        let _ = (request, contexts);
        Ok(())
    }

    /// Called in the server when the outcome is known, before the reply is sent.
    fn send_reply(&self, request: &RequestInfo<'_>, outcome: &RequestOutcome<'_>) {
        let _ = (request, outcome);
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
    /// Returns a number that no other attempt of a client's request, and no other request of a
    /// server, has in the same ORB. It is the same before and after the request.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the operation's name on the wire: `_get_x` for an attribute, `_is_a`. In a server
    /// the name comes from the peer: octets that are no UTF-8 are replaced.
    #[must_use]
    pub fn operation(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.operation)
    }

    /// Returns the key of the object that is called. Empty in a server if the request addresses the
    /// object otherwise, and no key is found.
    #[must_use]
    pub fn object_key(&self) -> &[u8] {
        self.object_key
    }

    /// Returns the other side of the connection.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.peer
    }

    /// Returns false for a oneway request.
    #[must_use]
    pub fn is_response_expected(&self) -> bool {
        self.response_expected
    }
}

/// The end of a request, or of an attempt to send it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RequestOutcome<'r> {
    /// The operation returned.
    Returned,
    /// The operation raised a user exception.
    UserException,
    /// The request ended with this system exception.
    SystemException(&'r SystemException),
    /// The object is at another address, where the client tries next.
    Forwarded,
    /// Client: a oneway request was sent.
    Sent,
    /// Client: the attempt failed without a reply. The ORB may try again.
    Failed,
    /// Server: the request cannot run yet. The interceptor receives it again when it can.
    Parked,
}

/// The service contexts that an [`Interceptor`] adds to a request.
#[derive(Debug, Default)]
pub struct AddedContexts(Vec<(u32, Vec<u8>)>);

impl AddedContexts {
    /// Adds a service context. `data` is its encoded content: for contexts of the OMG an
    /// encapsulation. Ids are registered with the OMG; the ORB's own are in docs/wire-extensions.md.
    pub fn add(&mut self, id: u32, data: impl Into<Vec<u8>>) {
        self.0.push((id, data.into()));
    }

    pub(crate) fn as_slice(&self) -> &[(u32, Vec<u8>)] {
        &self.0
    }
}

/// The service contexts of a received request.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedContexts<'m>(pub(crate) Contexts<'m>);

impl<'m> ReceivedContexts<'m> {
    /// Returns the data of the first context with this id.
    #[must_use]
    pub fn find(&self, id: u32) -> Option<&'m [u8]> {
        self.0.find(id)
    }
}

/// The interceptors of an ORB behind one pointer. Programs without interceptors link only its
/// absence.
pub(crate) trait InterceptionPoints: fmt::Debug + Send + Sync {
    /// Adds an interceptor behind the others.
    fn push(&mut self, interceptor: Box<dyn Interceptor>);

    /// Returns a number for the next request.
    fn next_number(&self) -> u64;

    /// Calls all interceptors before a request is sent.
    ///
    /// # Errors
    /// The first exception of an interceptor. Those before it have received the outcome.
    fn send_request(&self, request: &RequestInfo<'_>, contexts: &mut AddedContexts) -> Result<(), SystemException>;

    fn receive_reply(&self, request: &RequestInfo<'_>, outcome: &RequestOutcome<'_>);

    /// Calls all interceptors before a request runs.
    ///
    /// # Errors
    /// The first exception of an interceptor. Those before it have received the outcome.
    fn receive_request(
        &self,
        request: &RequestInfo<'_>,
        contexts: &ReceivedContexts<'_>,
    ) -> Result<(), SystemException>;

    fn send_reply(&self, request: &RequestInfo<'_>, outcome: &RequestOutcome<'_>);
}

/// Interceptors in their order.
#[derive(Default)]
pub(crate) struct InterceptorChain {
    interceptors: Vec<Box<dyn Interceptor>>,
    /// The number of the last request. Incremented `Relaxed`.
    last_number: AtomicU64,
}

impl InterceptorChain {
    /// Calls `before` for each interceptor. If one raises an exception, calls `after` for those
    /// before it. A panic of the application's code is UNKNOWN.
    fn enter(
        &self,
        mut before: impl FnMut(&dyn Interceptor) -> Result<(), SystemException>,
        after: impl Fn(&dyn Interceptor, &RequestOutcome<'_>),
    ) -> Result<(), SystemException> {
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
        self.interceptors.iter().rev().for_each(|interceptor| _ = guarded(|| after(&**interceptor)));
    }
}

/// Runs the application's code; `None` if it panicked. The panic hook has told of it.
fn guarded<T>(run: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).ok()
}

fn panicked() -> SystemException {
    SystemException::new(Kind::Unknown, 0, Completion::No).because("an interceptor panicked")
}

impl InterceptionPoints for InterceptorChain {
    fn push(&mut self, interceptor: Box<dyn Interceptor>) {
        self.interceptors.push(interceptor);
    }

    fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn send_request(&self, request: &RequestInfo<'_>, contexts: &mut AddedContexts) -> Result<(), SystemException> {
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
        contexts: &ReceivedContexts<'_>,
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
