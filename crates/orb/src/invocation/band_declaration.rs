//! The declaration of a new connection's priority band by `_bind_priority_band` (Real-time CORBA
//! 1.2, PriorityBandedConnectionPolicy). The client ignores exceptions that do not refuse the band,
//! for example BAD_OPERATION.

use std::sync::Arc;

use corelane_wire::giop::{ReplyStatus, ResponseExpected};
use corelane_wire::{CdrError, Decoder, Encoder};

use super::Operation;
use super::call::{AttemptError, AttemptResult, CallRoute, Invocation, ReplyHead, RequestSpec, refuse};
use super::machine::{LastMessage, MachineInput};
use crate::client::checkout::Checkout;
use crate::client::connection::ReceivedMessage;
use crate::client::multiplexed::MultiplexedConnection;
use crate::exception::{CallPhase, Completion, SystemException, SystemExceptionKind as Kind};
use crate::exchange::BytesSent;
use crate::fault::PeerFault;

static OPERATION: Operation<'_> = Operation::new("_bind_priority_band");

fn no_arguments(_: &mut Encoder<'_>) -> Result<(), CdrError> {
    Ok(())
}

impl<'r> Invocation<'r, '_, '_> {
    fn band_invocation(&self, range: (i16, i16)) -> Invocation<'r, '_, 'static> {
        let response = ResponseExpected::Target;
        let request = RequestSpec::Call { operation: &OPERATION, response, arguments: &no_arguments };
        Invocation {
            context: self.context,
            callee: self.callee,
            request,
            due: self.due.to_absolute(),
            priority: None,
            range: Some(range),
            may_batch: false,
            first_new_connection: self.first_new_connection,
            sends_deadline: false,
        }
    }

    #[cold]
    pub(super) fn declare_band<'p>(
        &self,
        route: CallRoute<'_>,
        connection: Checkout<'p>,
        range: (i16, i16),
    ) -> Result<Checkout<'p>, Box<AttemptError>> {
        self.try_declare_band(route, connection, range).map_err(|error| before_request(*error))
    }

    fn try_declare_band<'p>(
        &self,
        route: CallRoute<'_>,
        mut connection: Checkout<'p>,
        range: (i16, i16),
    ) -> Result<Checkout<'p>, Box<AttemptError>> {
        let mut call = self.band_invocation(range);
        let nothing_sent = || refuse(SystemException::new(Kind::Internal, 0, Completion::No));
        let id = call.transmit(route, &mut connection, &[])?.ok_or_else(nothing_sent)?;
        let limits = &self.context.config().limits;
        let received = match connection.receive_message(call.due, limits, self.callee.canceller(), true) {
            Ok(received) => received,
            Err(broken) => return Err(call.on_no_reply(route, &mut connection, id, broken)),
        };
        let (header, octets) = match &received {
            ReceivedMessage::InPlace(header, length) => (*header, connection.front_message(*length)),
            ReceivedMessage::Owned(whole) => (whole.header, whole.message.as_slice()),
        };
        let head = match ReplyHead::parse(octets, &header, limits) {
            // Any other reply is a fault, because the declaration is the first request on this
            // connection.
            Ok(head) if head.request_id == id => head,
            Ok(_) => {
                return Err(call.on_no_reply(
                    route,
                    &mut connection,
                    id,
                    PeerFault::UnexpectedMessage(header.kind).into(),
                ));
            }
            Err(fault) => return Err(call.on_no_reply(route, &mut connection, id, fault.into())),
        };
        if head.status == ReplyStatus::SystemException {
            let mut body =
                Decoder::new(octets, header.endian).at_position(head.body_offset).with_version(header.version);
            let exception = SystemException::decode(&mut body).map_err(|error| refuse(error.into()))?;
            if refuses_band(&exception) {
                return Err(refuse(exception));
            }
        }
        if let ReceivedMessage::InPlace(_, length) = received {
            connection.consume(length);
        }
        connection.set_band_declared();
        Ok(connection)
    }

    #[cold]
    pub(super) fn declare_band_multiplexed(
        &self,
        route: CallRoute<'_>,
        connection: &Arc<MultiplexedConnection>,
        range: (i16, i16),
    ) -> Result<(), Box<AttemptError>> {
        let outcome: AttemptResult<'_> = self.band_invocation(range).exchange_multiplexed(route, connection);
        if let Err(error) = outcome {
            match *error {
                AttemptError::Raised(exception) if refuses_band(&exception) => return Err(refuse(exception)),
                error @ (AttemptError::Failed(..) | AttemptError::Refused(_)) => return Err(before_request(error)),
                // A forward, for example, concerns the object and does not refuse the band.
                AttemptError::Raised(_) | AttemptError::Forward(_) | AttemptError::NeedsAddressing(_) => {}
            }
        }
        connection.set_band_declared();
        Ok(())
    }
}

fn refuses_band(exception: &SystemException) -> bool {
    matches!(exception.kind(), Kind::InvPolicy | Kind::NoPermission)
}

fn before_request(error: AttemptError) -> Box<AttemptError> {
    Box::new(match error {
        AttemptError::Failed(MachineInput::ConnectionLost { .. }, detail) => AttemptError::Failed(
            MachineInput::ConnectionLost { bytes_sent: BytesSent::None, last_message: LastMessage::None },
            detail,
        ),
        AttemptError::Failed(MachineInput::DeadlinePassed(_), detail) => {
            AttemptError::Failed(MachineInput::DeadlinePassed(CallPhase::Connect), detail)
        }
        other => other,
    })
}
