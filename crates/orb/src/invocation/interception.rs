//! The calls of the interceptors by the client: before each attempt to send a request, and after
//! the attempt.

use corelane_net::Peer;
use corelane_wire::giop::ResponseExpected;

use super::call::{AttemptError, AttemptResult, CallRoute, Invocation, RequestSpec, refuse};
use crate::interceptor::{AddedServiceContexts, RequestInfo, RequestOutcome};

#[derive(Debug)]
pub(super) struct InterceptedAttempt {
    number: u64,
    peer: Peer,
    contexts: AddedServiceContexts,
}

impl InterceptedAttempt {
    pub(super) fn contexts(&self) -> &[(u32, Vec<u8>)] {
        self.contexts.as_slice()
    }
}

impl Invocation<'_, '_, '_> {
    /// Calls the interceptors before an attempt. Returns `None` for a LocateRequest, or if the ORB
    /// has no interceptors.
    pub(super) fn begin_interception(
        &mut self,
        route: CallRoute<'_>,
        peer: &Peer,
    ) -> Result<Option<InterceptedAttempt>, Box<AttemptError>> {
        let Some(points) = self.context.interceptors() else { return Ok(None) };
        self.due = self.due.to_absolute();
        let (number, mut contexts) = (points.next_number(), AddedServiceContexts::default());
        let Some(request) = self.describe(route, number, peer) else { return Ok(None) };
        points.send_request(&request, &mut contexts).map_err(refuse)?;
        Ok(Some(InterceptedAttempt { number, peer: peer.clone(), contexts }))
    }

    #[cold]
    pub(super) fn end_interception(
        &self,
        route: CallRoute<'_>,
        begun: &InterceptedAttempt,
        outcome: &AttemptResult<'_>,
    ) {
        let outcome = match outcome {
            Ok(None) => RequestOutcome::OnewaySent,
            Ok(Some(reply)) if reply.exception_id().is_some() => RequestOutcome::UserException,
            Ok(Some(_)) => RequestOutcome::Returned,
            Err(error) => match &**error {
                AttemptError::Forward(_) | AttemptError::NeedsAddressing(_) => RequestOutcome::Forwarded,
                AttemptError::Raised(exception) | AttemptError::Refused(exception) => {
                    RequestOutcome::SystemException(exception)
                }
                AttemptError::Failed(_, detail) => RequestOutcome::Failed { detail },
            },
        };
        self.report_outcome(route, begun, &outcome);
    }

    pub(super) fn report_outcome(
        &self,
        route: CallRoute<'_>,
        begun: &InterceptedAttempt,
        outcome: &RequestOutcome<'_>,
    ) {
        let request = self.describe(route, begun.number, &begun.peer);
        if let (Some(points), Some(request)) = (self.context.interceptors(), request) {
            points.receive_reply(&request, outcome);
        }
    }

    fn describe<'i>(&self, route: CallRoute<'i>, number: u64, peer: &'i Peer) -> Option<RequestInfo<'i>>
    where
        Self: 'i,
    {
        let RequestSpec::Call { operation, response, .. } = self.request else { return None };
        Some(RequestInfo {
            number,
            operation: operation.name().as_bytes(),
            object_key: &route.profile.object_key,
            peer,
            response_expected: response != ResponseExpected::None,
        })
    }
}
