//! The service contexts of a request: code sets, priority, band and deadline.

use std::time::Duration;

use corelane_sched::Priority;
use corelane_wire::codeset::CodeSetContext;
use corelane_wire::giop::{Request, context_id};
use corelane_wire::{Limits, WideByteOrder, rt};

use super::object_adapter::ObjectAdapter;
use crate::ceiling::Ceiling;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::fault::PeerFault;
use crate::server::connection::Connection;

#[derive(Default)]
pub(super) struct RequestContexts {
    pub(super) priority: Option<Priority>,
    /// The priority number in the request, which the reply repeats; `None` if the request has none.
    pub(super) reply_priority: Option<i16>,
    pub(super) refused: Option<SystemException>,
    pub(super) band: Option<(i16, i16)>,
    /// The time from the sending of the request to the client's deadline, if the request states it.
    pub(super) remaining: Option<Duration>,
}

impl RequestContexts {
    fn refuse(&mut self, why: impl Into<SystemException>) {
        self.refused.get_or_insert_with(|| why.into());
    }

    pub(super) fn of_priority(connection: &Connection, request: &Request<'_>) -> Self {
        let mut contexts = RequestContexts::default();
        if let Some(data) = request.contexts.find(context_id::RT_CORBA_PRIORITY) {
            contexts.set_priority(connection, data);
        }
        contexts
    }

    fn set_priority(&mut self, connection: &Connection, data: &[u8]) {
        let number = match rt::parse_priority_context(data) {
            Ok(number) => number,
            Err(error) => return self.refuse(error),
        };
        let Some(priority) = Priority::new(number) else {
            // TAO's clients send -1 in a request without a priority, so -1 is not an error.
            if number == -1 {
                self.reply_priority = Some(number);
            } else {
                let exception = SystemException::new(Kind::BadParam, 0, Completion::No);
                self.refuse(exception.with_message(format!("{number} is not a priority")));
            }
            return;
        };
        let ceiling = connection.origin.ceiling;
        if !ceiling.allows(priority) {
            let exception = SystemException::new(Kind::NoPermission, 0, Completion::No);
            self.refuse(exception.with_message(format!("priority {priority} is above the endpoint's {ceiling}")));
            return;
        }
        (self.priority, self.reply_priority) = (Some(priority), Some(number));
    }

    fn set_remaining(&mut self, data: &[u8]) {
        match rt::parse_deadline_context(data) {
            Ok(remaining) => self.shorten(remaining),
            Err(error) => self.refuse(error),
        }
    }

    fn set_round_trip(&mut self, data: &[u8], limits: &Limits) {
        match rt::parse_round_trip_timeout(data, limits) {
            Ok(Some(whole)) => self.shorten(whole),
            Ok(None) => {}
            Err(error) => self.refuse(error),
        }
    }

    fn shorten(&mut self, time: Duration) {
        self.remaining = Some(self.remaining.map_or(time, |other| other.min(time)));
    }

    fn set_band(&mut self, data: &[u8]) {
        match rt::parse_priority_range_context(data) {
            Ok(band) => self.band = Some(band),
            Err(error) => self.refuse(error),
        }
    }
}

#[derive(Default)]
struct SeenContexts(u8);

impl SeenContexts {
    fn is_first(&mut self, kind: u8) -> bool {
        let is_first = self.0 & kind == 0;
        self.0 |= kind;
        is_first
    }
}

/// Reads the service contexts of a request, and records the code sets on the connection. If there
/// are several contexts of one kind, the first one counts.
#[inline(never)]
pub(super) fn read_contexts(
    adapter: &ObjectAdapter,
    connection: &Connection,
    request: &Request<'_>,
) -> Result<RequestContexts, PeerFault> {
    let mut contexts = RequestContexts::default();
    let mut seen = SeenContexts::default();
    for (id, data) in request.contexts.iter() {
        match id {
            context_id::CODE_SETS if seen.is_first(1) => record_code_sets(connection, data)?,
            context_id::RT_CORBA_PRIORITY if seen.is_first(1 << 1) => contexts.set_priority(connection, data),
            context_id::REMAINING_DEADLINE if seen.is_first(1 << 2) => contexts.set_remaining(data),
            context_id::INVOCATION_POLICIES if seen.is_first(1 << 3) => {
                contexts.set_round_trip(data, &adapter.config().limits);
            }
            context_id::RT_CORBA_PRIORITY_RANGE if request.operation == BIND_BAND && seen.is_first(1 << 4) => {
                contexts.set_band(data);
            }
            _ => {}
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
pub(super) fn record_code_sets(connection: &Connection, data: &[u8]) -> Result<(), PeerFault> {
    // If the client chose code sets that this ORB does not support, the default code sets stay in
    // use.
    if let Some(code_sets) = CodeSetContext::parse(data)?.code_sets(WideByteOrder::SpecifiedOrder) {
        connection.set_code_sets(code_sets);
    }
    Ok(())
}

pub(super) const BIND_BAND: &[u8] = b"_bind_priority_band";
