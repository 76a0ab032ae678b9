//! The draining of a connection: the lane sends the waiting replies, then the last message, and
//! nothing after it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corelane_net::{ShutdownDirection, WaitLimit};
use corelane_sys::clock::Monotonic;
use corelane_wire::Octets;

use super::graceful_close::{self, CloseAction, CloseOutcome, GracefulClose, RetiredStage};
use super::output::{UnsentRequest, WriteState};
use super::state::{Flag, Transition};
use super::{Connection, WaitingRequest};
use crate::server::message::Message;

#[derive(Clone, Debug)]
pub(crate) struct CloseTerms {
    /// CloseConnection; `None` if the lane is not closing.
    pub(crate) last_message: Option<Vec<u8>>,
    pub(crate) closing_time: Duration,
    pub(crate) write_timeout: Duration,
}

/// A request that runs on a retired connection. If the peer has closed only its side, and the
/// stream stays open, the drain waits until the value is dropped.
#[derive(Debug)]
#[must_use = "the connection may end when the value is dropped"]
pub(crate) struct LateRequest(WaitingRequest);

impl WaitingRequest {
    #[cold]
    pub(crate) fn begin_late(&self) -> LateRequest {
        let connection = Arc::clone(&self.connection);
        connection.late_requests.fetch_add(1, Ordering::SeqCst);
        connection.waiting_requests.fetch_add(1, Ordering::SeqCst);
        LateRequest(WaitingRequest { connection, read_at: self.read_at, queued_bytes: None })
    }
}

impl Drop for LateRequest {
    fn drop(&mut self) {
        // The end of the last late request continues the drain.
        if self.0.late_requests.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.list_for_reading();
        }
    }
}

const DISCARD_BYTES: usize = 16 * 1024;
const MAX_DISCARD_READS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainProgress {
    Pending,
    MoreInput,
    Finished,
    WriteTimedOut,
}

impl DrainProgress {
    pub(crate) fn is_over(self) -> bool {
        matches!(self, DrainProgress::Finished | DrainProgress::WriteTimedOut)
    }
}

impl Connection {
    #[cold]
    pub(crate) fn record_half_close(&self) {
        self.record_partial_messages(0, None, 0);
        self.state.set(Flag::PeerHalfClosed);
    }

    #[cold]
    pub(crate) fn mark_vacated(&self) {
        self.state.apply(Transition::Vacate);
    }

    pub(crate) fn is_vacated(&self) -> bool {
        self.state.is_vacated()
    }

    #[cold]
    pub(crate) fn is_unused(&self) -> bool {
        self.is_vacated() && self.waits_only_for_peer()
    }

    fn waits_only_for_peer(&self) -> bool {
        let alone =
            |writing: &mut WriteState| self.waiting_requests.load(Ordering::SeqCst) as usize == writing.deferred.len();
        self.output.try_with(alone).unwrap_or(false)
    }

    /// Frees the connection's place in `max_connections`, unless a request or a sending thread
    /// keeps its descriptor open.
    #[cold]
    pub(crate) fn release_slot_if_unused(&self) {
        if self.waits_only_for_peer() {
            self.memory_use.release_slot();
        }
    }

    #[cold]
    pub(crate) fn has_unsent_output(&self) -> bool {
        self.output.with(|writing| !writing.queue.is_empty())
    }

    /// Queues the last message, unless the close has begun. [`advance_drain`](Self::advance_drain)
    /// sends the message and ends the connection, at the latest `time` after `now`.
    #[cold]
    pub(crate) fn queue_last_message(&self, last_message: &[u8], now: Monotonic, time: Duration) {
        self.queue_last_message_and_discard(last_message, 0, now, time);
    }

    /// Queues the last message as [`queue_last_message`](Self::queue_last_message) does. The drain
    /// may discard `rest` bytes of input more than
    /// [`MAX_DISCARDED`](super::graceful_close::MAX_DISCARDED), unless `rest` exceeds
    /// [`MAX_MESSAGE_REST`](super::graceful_close::MAX_MESSAGE_REST).
    #[cold]
    pub(crate) fn queue_last_message_and_discard(
        &self,
        last_message: &[u8],
        rest: usize,
        now: Monotonic,
        time: Duration,
    ) {
        self.output.with(|writing| {
            start_closing(writing, last_message, GracefulClose::new(now, time).with_message_rest(rest))
        });
    }

    #[cold]
    pub(crate) fn limit_close_time(&self, now: Monotonic, time: Duration) {
        // A thread that uses the connection may hold the output lock for as long as the peer does
        // not read. So this thread takes the lock only if no thread uses the connection.
        if self.is_vacated() {
            self.output.with(|writing| {
                if let Some(closing) = &mut writing.closing {
                    closing.limit_close_time(now, time);
                }
            });
        }
    }

    #[cold]
    pub(crate) fn has_queued_last_message(&self) -> bool {
        self.output.with(|writing| writing.closing.is_some())
    }

    /// Advances the drain of a retired connection without blocking; does nothing while a thread
    /// uses the connection.
    #[cold]
    pub(crate) fn advance_drain(&self, terms: &CloseTerms, now: Monotonic) -> DrainProgress {
        if !self.is_vacated() {
            return DrainProgress::Pending;
        }
        self.output.with(|writing| {
            let answers = if terms.last_message.is_some() { &self.late_requests } else { &self.waiting_requests };
            let answers = self.is_peer_half_closed() && answers.load(Ordering::SeqCst) > 0;
            match graceful_close::retired_stage(answers, writing.closing.is_some(), self.is_closed()) {
                RetiredStage::AwaitingReplies => DrainProgress::Pending,
                RetiredStage::Closed => DrainProgress::Finished,
                RetiredStage::Closing => {
                    if let Some(last_message) = &terms.last_message {
                        start_closing(writing, last_message, GracefulClose::new(now, terms.closing_time));
                    } else if writing.closing.is_none() && !writing.queue.is_empty() {
                        writing.closing =
                            Some(GracefulClose::while_peer_reads(writing.progress_at, terms.write_timeout));
                    }
                    self.advance_drain_locked(writing, now)
                }
            }
        })
    }

    fn advance_drain_locked(&self, writing: &mut WriteState, now: Monotonic) -> DrainProgress {
        let Some(mut step) = writing.closing.as_ref().map(|closing| closing.next_action(now)) else {
            if self.waiting_requests.load(Ordering::SeqCst) > 0 {
                self.close();
            }
            return DrainProgress::Finished;
        };
        let is_late = step == CloseAction::Abort;
        let mut reads = 0;
        loop {
            let outcome = match step {
                CloseAction::Send => {
                    let before = writing.queue.len();
                    let sent = self.flush_queue(writing);
                    let left = writing.queue.len();
                    self.memory_use.set_output(writing.queue.held_bytes());
                    match sent {
                        Ok(true) => CloseOutcome::Sent,
                        Ok(false) if left < before => CloseOutcome::PeerRead(now),
                        Ok(false) => CloseOutcome::Full,
                        Err(_) => CloseOutcome::Failed,
                    }
                }
                CloseAction::EndWriting => {
                    self.stream.shutdown(ShutdownDirection::Write);
                    CloseOutcome::WritingEnded
                }
                CloseAction::Read if reads == MAX_DISCARD_READS => return DrainProgress::MoreInput,
                CloseAction::Read => {
                    reads += 1;
                    self.discard_input()
                }
                CloseAction::Wait => return DrainProgress::Pending,
                CloseAction::Abort => {
                    self.close();
                    return if is_late && !writing.queue.is_empty() {
                        DrainProgress::WriteTimedOut
                    } else {
                        DrainProgress::Finished
                    };
                }
                CloseAction::Done => return DrainProgress::Finished,
            };
            let Some(closing) = &mut writing.closing else { return DrainProgress::Finished };
            step = closing.after(outcome);
        }
    }

    fn discard_input(&self) -> CloseOutcome {
        let mut waste = [0; DISCARD_BYTES];
        match self.stream.recv(&mut waste, WaitLimit::Now) {
            Ok(0) => CloseOutcome::PeerEnded,
            Ok(count) => CloseOutcome::Read(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => CloseOutcome::NothingToRead,
            Err(_) => CloseOutcome::Failed,
        }
    }

    /// Closes an idle connection. If nothing is queued, first sends as much of `last_message` as
    /// the transport accepts without waiting.
    #[cold]
    pub(crate) fn close_with_message(&self, last_message: &[u8]) {
        self.output.with(|writing| {
            if writing.queue.is_empty() {
                // An error is ignored: a peer that does not get the message sees the end of the
                // stream.
                let _ = self.stream.send(last_message, WaitLimit::Now);
            }
        });
        self.close();
    }

    #[cold]
    pub(crate) fn take_deferred(self: &Arc<Self>) -> Vec<(WaitingRequest, Message)> {
        let deferred = self.output.with(|writing| std::mem::take(&mut writing.deferred));
        // Deferred requests are in the count of waiting requests, so the count does not change.
        let waits = |UnsentRequest { message, read_at: since }| {
            (WaitingRequest { connection: Arc::clone(self), read_at: since, queued_bytes: None }, message)
        };
        deferred.into_iter().map(waits).collect()
    }
}

fn start_closing(writing: &mut WriteState, last_message: &[u8], closing: GracefulClose) {
    if writing.closing.is_none() {
        writing.queue.push(last_message, &Octets::copy_from);
        writing.closing = Some(closing);
    }
}
