//! The steps of senders, and pulls: how sets go from the queues to the consumers.

use corelane_sched::task::Nanos;

use super::Router;
use super::connection::{Connection, Disconnected, Handover, InFlight, ProxyId, QueuePeer, SenderQueue};
use super::delivery_set::{DeliverySet, RoutedEvent};
use crate::events::counts::DropReason;
use crate::events::header::EventType;
use crate::events::health::NextCall;
use crate::events::subscriptions::ConsumerId;

/// A sender: the thread that sends the sets of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::events) struct SenderId {
    pub(in crate::events) consumer: ConsumerId,
    pub(in crate::events) queue: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::events) enum SenderStep<E> {
    /// Send the set, then call [`Router::called`].
    Send(DeliverySet<E>),
    /// Send the rest of a set of which another thread has sent a part, then call
    /// [`Router::called`].
    Finish,
    /// Ask the consumer if it exists, then call [`Router::called`].
    Ask,
    /// Wait until woken, or until this time.
    Wait(Option<Nanos>),
    /// End. If the flag is true, first call the consumer's disconnect operation.
    End(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::events) enum CallResult {
    /// The call has succeeded.
    Done,
    /// The call has ended with an exception other than those of `Missed` and `Gone`.
    Refused,
    /// The peer was not reached, or has not answered in time.
    Missed,
    /// The peer does not exist, or wants no further calls.
    Gone,
}

impl<E: RoutedEvent, P: QueuePeer> Router<E, P> {
    pub(in crate::events) fn next_step(&mut self, sender: SenderId, now: Nanos) -> SenderStep<E> {
        let Some(connection) = self.connections.get_mut(&sender.consumer) else { return SenderStep::End(false) };
        let Connection { queues, counts, drops_by_type, ending, .. } = connection;
        let Some(queue) = queues.get_mut(sender.queue) else { return SenderStep::End(false) };
        if let Some(is_called_back) = *ending {
            queue.has_sender_ended = true;
            if queues.iter().any(|queue| !queue.has_sender_ended) {
                return SenderStep::End(false);
            }
            self.forget(sender.consumer);
            return SenderStep::End(is_called_back);
        }
        match queue.handed_over.take() {
            Some(Handover::Whole(set)) => return SenderStep::Send(set),
            Some(Handover::Rest) => return SenderStep::Finish,
            // An idle sender may not send, because another thread may have the right to send
            // (`SendTurn`).
            None if queue.is_sender_idle => return SenderStep::Wait(None),
            None => {}
        }
        let has_sets = queue.sets.drop_expired(now, |event_type, reason| {
            counts.dropped.count(reason);
            drops_by_type.count(event_type, reason);
        });
        let next_call = queue.health.next_call(now);
        let gap = if next_call == NextCall::Event { connection.take_gap(has_sets, now) } else { None };
        let Some(queue) = connection.queues.get_mut(sender.queue) else { return SenderStep::End(false) };
        queue.is_sender_idle = !has_sets && gap.is_none();
        if queue.is_sender_idle {
            queue.peer.free_turn();
            return SenderStep::Wait(None);
        }
        match next_call {
            NextCall::WaitUntil(time) => SenderStep::Wait(Some(time)),
            NextCall::Question => SenderStep::Ask,
            NextCall::Event => {
                let (set, in_flight) = if let Some((set, gap)) = gap {
                    (set, InFlight { event_type: EventType::GAP.0, gap: Some(gap) })
                } else if let Some((set, event_type)) = queue.sets.pop(now, |_, _| {}) {
                    connection.dropped_at_failed_gap = None;
                    (set, InFlight { event_type, gap: None })
                } else {
                    return SenderStep::Wait(None);
                };
                queue.in_flight = Some(in_flight);
                connection.counts.in_flight += 1;
                SenderStep::Send(set)
            }
        }
    }

    /// Leaves a set to the sender of its queue, because the rest of its call may have to wait.
    /// Drops the set if the consumer has been disconnected. The calling thread, which had the right
    /// to send ([`SendTurn`](crate::events::turn::SendTurn)), has to wake the sender.
    pub(in crate::events) fn hand_over(&mut self, sender: SenderId, event_type: i32, handover: Handover<E>) {
        if !self.take_back(sender, event_type, DropReason::Disconnected) {
            return;
        }
        let Some(queue) = self.queue(sender) else { return };
        queue.handed_over = Some(handover);
        queue.is_sender_idle = false;
        queue.peer.pass_turn();
    }

    /// Records that the immediate delivery of a set has failed. Returns what
    /// [`called`](Self::called) returns; `None` if the consumer has been disconnected before.
    pub(in crate::events) fn immediate_failed(
        &mut self,
        sender: SenderId,
        event_type: i32,
        result: CallResult,
        now: Nanos,
    ) -> Option<(ProxyId, Disconnected<P>)> {
        if self.take_back(sender, event_type, DropReason::Failed) { self.called(sender, result, now) } else { None }
    }

    /// Puts a set that counts as delivered in flight again. If its consumer has been disconnected
    /// since, counts the set as dropped, and returns false.
    fn take_back(&mut self, sender: SenderId, event_type: i32, reason: DropReason) -> bool {
        let Some(connection) = self.connections.get_mut(&sender.consumer) else {
            self.departed.delivered = self.departed.delivered.saturating_sub(1);
            self.departed.dropped.count(reason);
            return false;
        };
        connection.counts.delivered = connection.counts.delivered.saturating_sub(1);
        if connection.ending.is_some() {
            connection.count_drop(event_type, reason);
            return false;
        }
        connection.counts.in_flight += 1;
        if let Some(queue) = connection.queues.get_mut(sender.queue) {
            queue.in_flight = Some(InFlight { event_type, gap: None });
        }
        true
    }

    /// Records that the sender of a queue with waiting sets has the right to send
    /// ([`SendTurn`](crate::events::turn::SendTurn)). Returns true if the caller has to wake the
    /// sender.
    pub(in crate::events) fn pass_turn(&mut self, sender: SenderId) -> bool {
        self.queue(sender).is_some_and(|queue| std::mem::take(&mut queue.is_sender_idle))
    }

    fn queue(&mut self, sender: SenderId) -> Option<&mut SenderQueue<E, P>> {
        self.connections.get_mut(&sender.consumer)?.queues.get_mut(sender.queue)
    }

    /// Records the result of a sender's step. If the consumer is gone or has missed too many calls,
    /// removes its proxy, and returns the proxy and the peers to wake.
    pub(in crate::events) fn called(
        &mut self,
        sender: SenderId,
        result: CallResult,
        now: Nanos,
    ) -> Option<(ProxyId, Disconnected<P>)> {
        let connection = self.connections.get_mut(&sender.consumer)?;
        let in_flight = connection.queues.get_mut(sender.queue)?.in_flight.take();
        if let Some(InFlight { event_type, gap }) = in_flight {
            connection.counts.in_flight -= 1;
            match result {
                CallResult::Done => connection.counts.delivered += 1,
                CallResult::Refused | CallResult::Missed | CallResult::Gone => {
                    connection.count_failed(event_type, DropReason::Failed, gap.as_deref());
                }
            }
        }
        let health = &mut connection.queues.get_mut(sender.queue)?.health;
        let is_lost = match result {
            CallResult::Done | CallResult::Refused => {
                health.answered();
                false
            }
            CallResult::Missed => health.missed(&self.config.misses, now),
            CallResult::Gone => true,
        };
        if !is_lost || connection.ending.is_some() {
            return None;
        }
        let proxy = connection.proxy;
        let disconnected = self.remove_consumer(proxy, false).flatten()?;
        Some((proxy, disconnected))
    }

    /// Removes and returns the first set of a pull consumer, from the most urgent lane that has a
    /// set. Returns `None` if the connection has ended, and `Some(None)` if there is no set.
    pub(in crate::events) fn pull(&mut self, id: ConsumerId, now: Nanos) -> Option<Option<DeliverySet<E>>> {
        let Connection { queues, counts, drops_by_type, .. } = self.connections.get_mut(&id)?;
        let mut note = |event_type: i32, reason: DropReason| {
            counts.dropped.count(reason);
            drops_by_type.count(event_type, reason);
        };
        let set = queues.iter_mut().find_map(|queue| queue.sets.pop(now, &mut note));
        counts.delivered += u64::from(set.is_some());
        Some(set.map(|(set, _)| set))
    }
}
