//! The peers of a channel's proxies: the calls that the channel makes.

use std::sync::Arc;

use corelane::{Encoder, ImmediateSendResult, ObjectRef, Operation, SystemException, SystemExceptionKind as Kind};
use corelane_sched::task::Nanos;
use corelane_sys::lock::PiCondvar;

use super::gateway::outlet::GatewayPeer;
use super::idl::{cos_event_comm as cos, rtec_event_comm as rtec};
use super::router::{CallResult, DeliverySet, QueuePeer};
use super::stored::{self, StoredEvent};
use super::subscriptions::Occurrence;
use super::turn::SendTurn;

#[derive(Debug)]
pub(super) enum PeerObject {
    RtecConsumer(rtec::PushConsumerRef),
    RtecSupplier(rtec::PushSupplierRef),
    CosConsumer(cos::PushConsumerRef),
    CosSupplier(cos::PushSupplierRef),
    CosPullConsumer(cos::PullConsumerRef),
    CosPullSupplier(cos::PullSupplierRef),
    Gateway(GatewayPeer),
    /// The peer has no object, and so gets no disconnect callback.
    Nil,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) object: PeerObject,
    /// Wakes the sender or the pullers of a consumer, or the thread that pulls from a supplier.
    pub(super) wake: PiCondvar,
    /// The right to send to a consumer of TAO's Real-time Event Service in another process; `None`
    /// for any other peer.
    turn: Option<SendTurn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImmediatePush {
    Done,
    /// A part of the set was sent.
    Begun,
    /// Nothing was sent.
    NotSent,
    Refused,
}

static PUSH: Operation<'_> = Operation::new("push");

impl Peer {
    pub(super) fn new(object: PeerObject) -> Arc<Self> {
        let takes_oneways = matches!(&object, PeerObject::RtecConsumer(peer) if !peer.as_object().is_collocated());
        let turn = takes_oneways.then(SendTurn::new);
        Arc::new(Self { object, wake: PiCondvar::new(), turn })
    }

    fn reference(&self) -> Option<&ObjectRef> {
        Some(match &self.object {
            PeerObject::RtecConsumer(peer) => peer.as_object(),
            PeerObject::RtecSupplier(peer) => peer.as_object(),
            PeerObject::CosConsumer(peer) => peer.as_object(),
            PeerObject::CosSupplier(peer) => peer.as_object(),
            PeerObject::CosPullConsumer(peer) => peer.as_object(),
            PeerObject::CosPullSupplier(peer) => peer.as_object(),
            PeerObject::Gateway(peer) => peer.consumer.as_object(),
            PeerObject::Nil => return None,
        })
    }

    pub(super) fn is_collocated(&self) -> bool {
        self.reference().is_some_and(ObjectRef::is_collocated)
    }

    pub(super) const fn is_gateway(&self) -> bool {
        matches!(self.object, PeerObject::Gateway(_))
    }

    pub(super) fn push(&self, set: &mut DeliverySet<Arc<StoredEvent>>, now: Nanos) -> CallResult {
        match &self.object {
            PeerObject::RtecConsumer(consumer) => push_events(consumer, set, now).into(),
            PeerObject::CosConsumer(consumer) => push_values(consumer, set),
            PeerObject::Gateway(gateway) => gateway.pass(set, now).into(),
            _ => CallResult::Gone,
        }
    }

    /// Pushes a set as far as possible without waiting. The calling thread must have the right to
    /// send to the peer ([`SendTurn`]).
    pub(super) fn push_now(&self, set: &DeliverySet<Arc<StoredEvent>>, now: Nanos) -> ImmediatePush {
        let PeerObject::RtecConsumer(consumer) = &self.object else { return ImmediatePush::NotSent };
        let write = |encoder: &mut Encoder<'_>| stored::write_events(set, now, encoder);
        match consumer.as_object().try_send_oneway(&PUSH, &write) {
            Ok(ImmediateSendResult::Sent) => ImmediatePush::Done,
            Ok(ImmediateSendResult::PartlySent) => ImmediatePush::Begun,
            Ok(ImmediateSendResult::NotSent) => ImmediatePush::NotSent,
            Err(_) => ImmediatePush::Refused,
        }
    }

    /// Sends the rest of a set that [`push_now`](Self::push_now) has begun.
    pub(super) fn finish_push(&self) -> CallResult {
        self.reference().map_or(CallResult::Gone, |object| object.finish_oneway().into())
    }

    /// Gives back the right to send ([`SendTurn`]), which the router has taken for the calling
    /// thread. Returns false if the right has passed to the queue's sender; the caller must then
    /// wake the sender.
    #[must_use]
    pub(super) fn give_turn_back(&self) -> bool {
        self.turn.as_ref().is_none_or(SendTurn::give_back)
    }

    pub(super) fn ask(&self) -> CallResult {
        match self.reference().map(ObjectRef::non_existent) {
            None | Some(Ok(true)) => CallResult::Gone,
            Some(Ok(false)) => CallResult::Done,
            Some(Err(exception)) => classify(&exception),
        }
    }

    /// Calls the peer's disconnect operation and ignores the result.
    pub(super) fn call_back(&self) {
        let _ = match &self.object {
            PeerObject::RtecConsumer(peer) => peer.disconnect_push_consumer(),
            PeerObject::RtecSupplier(peer) => peer.disconnect_push_supplier(),
            PeerObject::CosConsumer(peer) => peer.disconnect_push_consumer(),
            PeerObject::CosSupplier(peer) => peer.disconnect_push_supplier(),
            PeerObject::CosPullConsumer(peer) => peer.disconnect_pull_consumer(),
            PeerObject::CosPullSupplier(peer) => peer.disconnect_pull_supplier(),
            PeerObject::Gateway(peer) => peer.consumer.disconnect_push_consumer(),
            PeerObject::Nil => Ok(()),
        };
    }
}

impl QueuePeer for Arc<Peer> {
    fn take_turn(&self) -> bool {
        self.turn.as_ref().is_some_and(SendTurn::take)
    }

    fn call_sender(&self) -> bool {
        self.turn.as_ref().is_none_or(SendTurn::call_sender)
    }

    fn pass_turn(&self) {
        self.turn.iter().for_each(SendTurn::pass_to_sender);
    }

    fn free_turn(&self) {
        self.turn.iter().for_each(SendTurn::free);
    }
}

impl From<Result<(), SystemException>> for CallResult {
    fn from(result: Result<(), SystemException>) -> Self {
        result.map_or_else(|exception| classify(&exception), |()| Self::Done)
    }
}

pub(super) fn classify(exception: &SystemException) -> CallResult {
    match exception.kind() {
        Kind::Timeout | Kind::Transient | Kind::CommFailure | Kind::NoResponse => CallResult::Missed,
        // BAD_INV_ORDER: the channel's own ORB has shut down.
        Kind::ObjectNotExist | Kind::InvObjref | Kind::BadInvOrder => CallResult::Gone,
        _ => CallResult::Refused,
    }
}

fn push_events(
    consumer: &rtec::PushConsumerRef,
    set: &mut DeliverySet<Arc<StoredEvent>>,
    now: Nanos,
) -> Result<(), SystemException> {
    if consumer.as_object().is_collocated() {
        return stored::with_events(set, now, |events| consumer.push(events));
    }
    consumer.as_object().send_oneway(&PUSH, &|encoder| stored::write_events(set, now, encoder))
}

/// Pushes the values of a set in separate calls, up to the first failure. Timeouts are left out.
fn push_values(consumer: &cos::PushConsumerRef, set: &DeliverySet<Arc<StoredEvent>>) -> CallResult {
    for occurrence in set.as_slice() {
        let Occurrence::Event(event) = occurrence else { continue };
        let Ok(value) = event.value() else { return CallResult::Refused };
        match consumer.push(value) {
            Ok(()) => {}
            Err(cos::push_consumer::PushError::Disconnected(_)) => return CallResult::Gone,
            Err(cos::push_consumer::PushError::System(exception)) => return classify(&exception),
        }
    }
    CallResult::Done
}
