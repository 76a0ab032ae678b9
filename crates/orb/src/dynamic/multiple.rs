//! Several dynamic requests sent together (CORBA 3.3 part 1, section 11.2:
//! `send_multiple_requests_*`, `poll_next_response`, `get_next_response`).

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;

use corelane_sys::clock::Monotonic;
use corelane_sys::eventfd::EventFd;
use corelane_sys::poll;

use super::request::{DeferredRequest, DynamicRequest, DynamicResponse, RequestError};
use crate::cancel::Canceller;
use crate::exception::{Completion, SystemException, SystemExceptionKind};
use crate::nested_wait;

impl DynamicRequest {
    /// Sends oneway requests, to any objects, one after the other
    /// (`send_multiple_requests_oneway`).
    ///
    /// # Errors
    /// The exception of [`send_oneway`](Self::send_oneway) for a request that cannot be oneway; no
    /// request is sent in this case. Otherwise the first exception of a request that could not be
    /// sent; the other requests are sent.
    pub fn send_all_oneway(requests: impl IntoIterator<Item = DynamicRequest>) -> Result<(), SystemException> {
        let requests: Vec<DynamicRequest> = requests.into_iter().collect();
        requests.iter().try_for_each(DynamicRequest::check_oneway)?;
        let sent: Vec<_> = requests.iter().map(DynamicRequest::send_checked_oneway).collect();
        sent.into_iter().collect()
    }

    /// Sends requests, to any objects, without waiting for the replies
    /// (`send_multiple_requests_deferred`). The [`PendingResponses`] return the results in the
    /// order of arrival.
    ///
    /// ```no_run
    /// use corelane::dynamic::DynamicRequest;
    /// use corelane::TypeCode;
    /// # fn example(objects: Vec<corelane::ObjectRef>) -> Result<(), Box<dyn std::error::Error>> {
    /// let requests = objects.iter().map(|object| object.request("level").returns(TypeCode::LONG));
    /// for (index, response) in DynamicRequest::send_all_deferred(requests)? {
    ///     println!("object {index}: {}", response?.result.extract::<i32>()?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// NO_RESOURCES if the process has no descriptors left. For a request that cannot be sent, the
    /// error is its response.
    pub fn send_all_deferred(
        requests: impl IntoIterator<Item = DynamicRequest>,
    ) -> Result<PendingResponses, SystemException> {
        let wakeup = EventFd::new().map_err(|error| {
            let exception = SystemException::new(SystemExceptionKind::NoResources, 0, Completion::No);
            exception.with_message(format!("no descriptor is free for the wait: {error}"))
        })?;
        let mut responses =
            PendingResponses { waiting: Vec::new(), ready: VecDeque::new(), wakeup: Arc::new(wakeup), count: 0 };
        for request in requests {
            match request.send_deferred() {
                Ok(deferred) => {
                    responses.add(deferred);
                }
                Err(exception) => {
                    let index = responses.next_index();
                    responses.ready.push_back((index, ReadyResponse::SendError(exception)));
                }
            }
        }
        Ok(responses)
    }
}

/// The outstanding responses to requests that were sent together. The iterator returns pairs of a
/// request's number and its response, in the order of arrival. Numbers count from 0 in the order of
/// sending.
///
/// `next` waits for a response (`get_next_response`). At the deadline of a request its response is
/// TIMEOUT, so `next` returns in bounded time if every request has a deadline. Dropping the
/// iterator abandons the outstanding responses.
pub struct PendingResponses {
    waiting: Vec<(usize, DeferredRequest)>,
    ready: VecDeque<(usize, ReadyResponse)>,
    wakeup: Arc<EventFd>,
    count: usize,
}

enum ReadyResponse {
    Deferred(Box<DeferredRequest>),
    SendError(SystemException),
}

impl PendingResponses {
    /// Adds a request that was sent earlier, and returns its number.
    pub fn add(&mut self, request: DeferredRequest) -> usize {
        let index = self.next_index();
        if request.notify_on_reply(&self.wakeup) {
            self.waiting.push((index, request));
        } else {
            self.ready.push_back((index, ReadyResponse::Deferred(Box::new(request))));
        }
        index
    }

    fn next_index(&mut self) -> usize {
        self.count += 1;
        self.count - 1
    }

    /// Returns the number of responses that `next` has not returned yet.
    #[must_use]
    pub fn outstanding_count(&self) -> usize {
        self.waiting.len() + self.ready.len()
    }

    /// Returns true if a response is ready or no response is outstanding. `next` then does not wait
    /// (`poll_next_response`).
    #[must_use]
    pub fn is_next_ready(&self) -> bool {
        !self.ready.is_empty() || self.waiting.is_empty() || self.waiting.iter().any(|(_, request)| is_over(request))
    }

    fn collect_ready(&mut self) {
        self.wakeup.take_notifications();
        let come = self.waiting.extract_if(.., |(_, request)| is_over(request));
        self.ready.extend(come.map(|(index, request)| (index, ReadyResponse::Deferred(Box::new(request)))));
    }

    fn wait(&self) {
        let requests = || self.waiting.iter().map(|(_, request)| request);
        let deadline = requests().filter_map(DeferredRequest::deadline).min();
        let canceller = requests().find_map(DeferredRequest::canceller);
        nested_wait::release_dedicated_connection();
        // A wait may end early, so the caller checks the requests again.
        if nested_wait::wait_or_dispatch(self.wakeup.as_fd(), deadline, canceller).unwrap_or(false) {
            return;
        }
        let _ = match canceller {
            Some(canceller) => canceller.wait_or_cancelled(self.wakeup.as_fd(), deadline).is_ok(),
            None => poll::wait_readable(self.wakeup.as_fd(), deadline).is_ok(),
        };
    }
}

/// Returns true if the request has a response: its reply has arrived, its deadline has passed, or it
/// is cancelled.
fn is_over(request: &DeferredRequest) -> bool {
    let is_late = request.deadline().is_some_and(Monotonic::is_past);
    is_late || request.is_ready() || request.canceller().is_some_and(Canceller::is_cancelled)
}

impl Iterator for PendingResponses {
    type Item = (usize, Result<DynamicResponse, RequestError>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !self.waiting.is_empty() {
            self.collect_ready();
            if self.ready.is_empty() {
                self.wait();
            }
        }
        let (index, came) = self.ready.pop_front()?;
        let response = match came {
            ReadyResponse::Deferred(mut request) => request.response(),
            ReadyResponse::SendError(exception) => Err(exception.into()),
        };
        Some((index, response))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.outstanding_count(), Some(self.outstanding_count()))
    }
}

impl ExactSizeIterator for PendingResponses {}

impl fmt::Debug for PendingResponses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingResponses").field("outstanding", &self.outstanding_count()).finish_non_exhaustive()
    }
}
