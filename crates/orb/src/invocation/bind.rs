//! The implicit operation `_bind_priority_band`: before anything else is sent on a new connection of a priority band, the server is told
//! which priorities it will carry (Real-time CORBA 1.2, PriorityBandedConnectionPolicy).
//!
//! A server that knows nothing of it answers BAD_OPERATION; the connection is used all the same. INV_POLICY, from one that cannot
//! serve the band, is the call's own answer.

use std::sync::Arc;

use corelane_wire::giop::{ReplyStatus, ResponseExpected};
use corelane_wire::{CdrError, Decoder, Encoder};

use super::Operation;
use super::call::{Call, Outcome, ReplyHead, Request, Trouble, Way, refused};
use super::machine::{Input, Written};
use crate::client::connection::Received;
use crate::client::multiplexed::Multiplexed;
use crate::client::pool::Checkout;
use crate::exception::{Completion, Phase, SystemException, SystemExceptionKind as Kind};
use crate::fault::Fault;

static OPERATION: Operation<'_> = Operation::new("_bind_priority_band");

fn no_arguments(_: &mut Encoder<'_>) -> Result<(), CdrError> {
    Ok(())
}

impl<'r> Call<'r, '_, '_> {
    /// The call that binds `range`, within this one's time.
    fn binding(&self, range: (i16, i16)) -> Call<'r, '_, 'static> {
        let response = ResponseExpected::Target;
        let request = Request::Call { operation: &OPERATION, response, arguments: &no_arguments };
        Call {
            core: self.core,
            object: self.object,
            request,
            due: self.due.fixed(),
            priority: None,
            range: Some(range),
            may_be_held: false,
            began: self.began,
            tells: false,
        }
    }

    /// Declares the band of a connection that is the caller's own. It is closed unless that succeeds.
    #[cold]
    pub(super) fn bind<'p>(
        &self,
        way: Way<'_>,
        connection: Checkout<'p>,
        range: (i16, i16),
    ) -> Result<Checkout<'p>, Box<Trouble>> {
        self.try_bind(way, connection, range).map_err(|trouble| not_begun(*trouble))
    }

    fn try_bind<'p>(
        &self,
        way: Way<'_>,
        mut connection: Checkout<'p>,
        range: (i16, i16),
    ) -> Result<Checkout<'p>, Box<Trouble>> {
        let mut call = self.binding(range);
        let nothing_sent = || refused(SystemException::new(Kind::Internal, 0, Completion::No));
        let id = call.transmit(way, &mut connection)?.ok_or_else(nothing_sent)?;
        let limits = &self.core.config().limits;
        let received = match connection.receive(call.due, limits, self.object.canceller(), true) {
            Ok(received) => received,
            Err(broken) => return Err(call.no_reply(way, &mut connection, id, broken)),
        };
        let (header, octets) = match &received {
            Received::InPlace(header, length) => (*header, connection.in_place(*length)),
            Received::Assembled(whole) => (whole.header, whole.message.as_slice()),
        };
        let head = match ReplyHead::parse(octets, &header, limits) {
            // Nothing else has been asked on this connection.
            Ok(head) if head.request_id == id => head,
            Ok(_) => return Err(call.no_reply(way, &mut connection, id, Fault::Unexpected(header.kind).into())),
            Err(fault) => return Err(call.no_reply(way, &mut connection, id, fault.into())),
        };
        if head.status == ReplyStatus::SystemException {
            let mut body = Decoder::new(octets, header.endian).at(head.body_at).with_version(header.version);
            let exception = SystemException::decode(&mut body).map_err(|error| refused(error.into()))?;
            if refuses(&exception) {
                return Err(refused(exception));
            }
        }
        if let Received::InPlace(_, length) = received {
            connection.consume(length);
        }
        connection.bound();
        Ok(connection)
    }

    /// The same for a connection that calls share.
    #[cold]
    pub(super) fn bind_shared(
        &self,
        way: Way<'_>,
        connection: &Arc<Multiplexed>,
        range: (i16, i16),
    ) -> Result<(), Box<Trouble>> {
        let outcome: Outcome<'_> = self.binding(range).attempt_shared(way, connection);
        if let Err(trouble) = outcome {
            match *trouble {
                Trouble::Raised(exception) if refuses(&exception) => return Err(refused(exception)),
                trouble @ (Trouble::Failed(..) | Trouble::Refused(_)) => return Err(not_begun(trouble)),
                // Whatever else the server makes of it, the call itself will be told.
                Trouble::Raised(_) | Trouble::Forward(_) | Trouble::NeedsAddressing(_) => {}
            }
        }
        connection.bound();
        Ok(())
    }
}

/// Whether the server refuses to serve the band, and not only does not know of bands or of the object.
fn refuses(exception: &SystemException) -> bool {
    matches!(exception.kind(), Kind::InvPolicy | Kind::NoPermission)
}

/// The call's own request has not been sent, whatever became of the one that was to prepare for it.
fn not_begun(trouble: Trouble) -> Box<Trouble> {
    Box::new(match trouble {
        Trouble::Failed(Input::Lost { orderly, .. }, detail) => {
            Trouble::Failed(Input::Lost { written: Written::Nothing, orderly }, detail)
        }
        Trouble::Failed(Input::DeadlinePassed(_), detail) => {
            Trouble::Failed(Input::DeadlinePassed(Phase::Connect), detail)
        }
        other => other,
    })
}
