//! Several requests at once (CORBA 3.3 part 1, section 11.2: `send_multiple_requests_*`, `poll_next_response`, `get_next_response`).

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;

use corelane_sys::clock::Monotonic;
use corelane_sys::eventfd::Wake;
use corelane_sys::poll;

use super::request::{DeferredRequest, Request, RequestError, Response};
use crate::cancel::Canceller;
use crate::exception::{Completion, SystemException, SystemExceptionKind};
use crate::server::serving;

impl Request {
    /// Calls oneway operations, of whatever objects, one after the other (`send_multiple_requests_oneway`).
    ///
    /// # Errors
    /// BAD_PARAM 31 or 32 if one of them cannot be sent so: then none is. Else why the first that could not be sent could not; the
    /// others are sent.
    pub fn send_all_oneway(requests: impl IntoIterator<Item = Request>) -> Result<(), SystemException> {
        let requests: Vec<Request> = requests.into_iter().collect();
        requests.iter().try_for_each(Request::check_oneway)?;
        let sent: Vec<_> = requests.iter().map(Request::send_checked_oneway).collect();
        sent.into_iter().collect()
    }

    /// Calls operations, of whatever objects, and waits for none (`send_multiple_requests_deferred`): what comes back is in the
    /// [`Responses`], in the order of coming.
    ///
    /// ```no_run
    /// use corelane::dynamic::Request;
    /// use corelane::TypeCode;
    /// # fn example(objects: Vec<corelane::ObjectRef>) -> Result<(), Box<dyn std::error::Error>> {
    /// let requests = objects.iter().map(|object| object.request("level").returns(TypeCode::LONG));
    /// for (index, response) in Request::send_all_deferred(requests)? {
    ///     println!("object {index}: {}", response?.result.extract::<i32>()?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// NO_RESOURCES when the process is out of descriptors. That a request cannot be sent is its response.
    pub fn send_all_deferred(requests: impl IntoIterator<Item = Request>) -> Result<Responses, SystemException> {
        let bell = Wake::new().map_err(|error| {
            let exception = SystemException::new(SystemExceptionKind::NoResources, 0, Completion::No);
            exception.because(format!("no descriptor to wait with: {error}"))
        })?;
        let mut responses = Responses { waiting: Vec::new(), ready: VecDeque::new(), bell: Arc::new(bell), count: 0 };
        for request in requests {
            match request.send_deferred() {
                Ok(deferred) => {
                    responses.add(deferred);
                }
                Err(exception) => {
                    let index = responses.number();
                    responses.ready.push_back((index, Came::Unsent(exception)));
                }
            }
        }
        Ok(responses)
    }
}

/// Responses to requests that were sent together, in the order in which they come: an iterator over the number of a request, from 0
/// in the order of sending, and what came back.
///
/// `next` waits for a response (`get_next_response`), each until the deadline that its own request was made with, past which TIMEOUT is
/// the response; so it ends if every request has a deadline. Of several [`Canceller`]s that the references carry the first is waited
/// for, the others are looked at when something comes. Dropping the responses that have not come gives them up.
pub struct Responses {
    /// Those that have not come when it was last looked, with their numbers.
    waiting: Vec<(usize, DeferredRequest)>,
    ready: VecDeque<(usize, Came)>,
    /// Rung with every response that comes.
    bell: Arc<Wake>,
    count: usize,
}

/// A response that is there.
enum Came {
    Sent(Box<DeferredRequest>),
    Unsent(SystemException),
}

impl Responses {
    /// Waits for the response of a request that was sent before, too; gives its number.
    pub fn add(&mut self, request: DeferredRequest) -> usize {
        let index = self.number();
        if request.ring(&self.bell) {
            self.waiting.push((index, request));
        } else {
            self.ready.push_back((index, Came::Sent(Box::new(request))));
        }
        index
    }

    fn number(&mut self) -> usize {
        self.count += 1;
        self.count - 1
    }

    /// How many responses are still to be taken.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.waiting.len() + self.ready.len()
    }

    /// Whether `next` would not wait (`poll_next_response`).
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty() || self.waiting.is_empty() || self.waiting.iter().any(|(_, request)| request.is_ready())
    }

    /// Finds those that have come since; those whose time is over have, too.
    fn look(&mut self) {
        self.bell.drain();
        let has_come = |(_, request): &mut (usize, DeferredRequest)| {
            let is_over = request.deadline().is_some_and(Monotonic::is_past);
            is_over || request.is_ready() || request.canceller().is_some_and(Canceller::is_cancelled)
        };
        let come = self.waiting.extract_if(.., has_come);
        self.ready.extend(come.map(|(index, request)| (index, Came::Sent(Box::new(request)))));
    }

    /// Waits for the bell, for the first deadline, or to be cancelled.
    fn wait(&self) {
        let requests = || self.waiting.iter().map(|(_, request)| request);
        let deadline = requests().filter_map(DeferredRequest::deadline).min();
        let canceller = requests().find_map(DeferredRequest::canceller);
        serving::let_others_read();
        // Signals, and a lane that had work, end the waiting too early: whoever waits looks again.
        if serving::until_readable(self.bell.as_fd(), deadline, canceller).unwrap_or(false) {
            return;
        }
        let _ = match canceller {
            Some(canceller) => canceller.wait_beside(self.bell.as_fd(), deadline).is_ok(),
            None => poll::wait_readable(self.bell.as_fd(), deadline).is_ok(),
        };
    }
}

impl Iterator for Responses {
    type Item = (usize, Result<Response, RequestError>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !self.waiting.is_empty() {
            self.look();
            if self.ready.is_empty() {
                self.wait();
            }
        }
        let (index, came) = self.ready.pop_front()?;
        let response = match came {
            Came::Sent(mut request) => request.response(),
            Came::Unsent(exception) => Err(exception.into()),
        };
        Some((index, response))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.outstanding(), Some(self.outstanding()))
    }
}

impl ExactSizeIterator for Responses {}

impl fmt::Debug for Responses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responses").field("outstanding", &self.outstanding()).finish_non_exhaustive()
    }
}
