//! The service contexts of a request: code sets, priority, band and deadline.

use std::time::Duration;

use corelane_sched::Priority;
use corelane_wire::codeset::CodeSetContext;
use corelane_wire::giop::{Request, context_id};
use corelane_wire::{WideOrder, rt};

use super::object_adapter::ObjectAdapter;
use crate::ceiling::Ceiling;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::fault::Fault;
use crate::server::connection::Connection;

/// The contents of a request's service contexts.
#[derive(Default)]
pub(super) struct RequestContexts {
    pub(super) priority: Option<Priority>,
    /// The priority as it came, which the reply carries.
    pub(super) echo: Option<i16>,
    /// The exception with which the request is refused because of its contexts.
    pub(super) refused: Option<SystemException>,
    /// The band that `_bind_priority_band` asks for.
    pub(super) band: Option<(i16, i16)>,
    /// The time that the client waits from the sending of the request on.
    pub(super) remaining: Option<Duration>,
}

impl RequestContexts {
    pub(super) fn parse(connection: &Connection, data: &[u8]) -> Self {
        let refused = |exception: SystemException| RequestContexts { refused: Some(exception), ..Self::default() };
        let number = match rt::parse_priority_context(data) {
            Ok(number) => number,
            Err(error) => return refused(error.into()),
        };
        let priority = match Priority::new(number) {
            // TAO sends this for no priority.
            None if number == -1 => None,
            None => {
                let exception = SystemException::new(Kind::BadParam, 0, Completion::No);
                return refused(exception.because(format!("{number} is no priority")));
            }
            Some(priority) if !connection.origin.ceiling.allows(priority) => {
                let ceiling = connection.origin.ceiling;
                let exception = SystemException::new(Kind::NoPermission, 0, Completion::No);
                return refused(exception.because(format!("priority {priority} is above the endpoint's {ceiling}")));
            }
            Some(priority) => Some(priority),
        };
        RequestContexts { priority, echo: Some(number), ..Self::default() }
    }
}

/// Reads the service contexts of a request. Of two contexts of a kind the first counts.
#[inline(never)]
pub(super) fn read_contexts(
    adapter: &ObjectAdapter,
    connection: &Connection,
    request: &Request<'_>,
) -> Result<RequestContexts, Fault> {
    if let Some(data) = request.contexts.find(context_id::CODE_SETS) {
        record_code_sets(connection, data)?;
    }
    let mut contexts = match request.contexts.find(context_id::RT_CORBA_PRIORITY) {
        Some(data) => RequestContexts::parse(connection, data),
        None => RequestContexts::default(),
    };
    if let Some(data) = request.contexts.find(context_id::REMAINING_DEADLINE) {
        match rt::parse_deadline_context(data) {
            Ok(remaining) => contexts.remaining = Some(remaining),
            Err(error) => contexts.refused = Some(error.into()),
        }
    }
    if let Some(data) = request.contexts.find(context_id::INVOCATION_POLICIES) {
        match rt::parse_round_trip(data, &adapter.config().limits) {
            // Both contexts say the same: the shorter time is the safer one.
            Ok(Some(whole)) => contexts.remaining = Some(contexts.remaining.map_or(whole, |other| other.min(whole))),
            Ok(None) => {}
            Err(error) => contexts.refused = Some(error.into()),
        }
    }
    if request.operation == BIND_BAND
        && let Some(data) = request.contexts.find(context_id::RT_CORBA_PRIORITY_RANGE)
    {
        match rt::parse_range_context(data) {
            Ok(band) => contexts.band = Some(band),
            Err(error) => contexts.refused = Some(error.into()),
        }
    }
    if connection.origin.sets_dscp
        && connection.origin.ceiling != Ceiling::Unset
        && let Some(priority) = contexts.priority
    {
        connection.set_dscp(adapter, priority);
    }
    Ok(contexts)
}

#[cold]
pub(super) fn record_code_sets(connection: &Connection, data: &[u8]) -> Result<(), Fault> {
    // Code sets that this side lacks leave the ones without negotiation in force: what these cannot
    // express is refused then.
    if let Some(code_sets) = CodeSetContext::parse(data)?.code_sets(WideOrder::Standard) {
        connection.set_code_sets(code_sets);
    }
    Ok(())
}

/// The implicit operation that binds a connection to a priority band.
pub(super) const BIND_BAND: &[u8] = b"_bind_priority_band";
