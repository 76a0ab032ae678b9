//! From the queues to the consumers: the steps of senders, and pulls.

use corelane_sched::task::Nanos;

use super::Router;
use super::connection::{Connection, Disconnected, InFlight, ProxyId};
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
    /// The peer has answered with an exception.
    Refused,
    /// The peer has not answered.
    Missed,
    /// The peer does not exist, or wants no further calls.
    Gone,
}

impl<E: RoutedEvent, P: Clone> Router<E, P> {
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
        let has_sets = queue.sets.drop_expired(now, |event_type, reason| {
            counts.dropped.count(reason);
            drops_by_type.count(event_type, reason);
        });
        let next_call = queue.health.next_call(now);
        let gap = if next_call == NextCall::Event { connection.take_gap(has_sets, now) } else { None };
        let Some(queue) = connection.queues.get_mut(sender.queue) else { return SenderStep::End(false) };
        queue.is_sender_idle = !has_sets && gap.is_none();
        if queue.is_sender_idle {
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
