//! The draining of a connection: the lane sends the waiting replies, then the last message, and
//! nothing after it. [`GracefulClose`] decides the steps.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corelane_net::{ShutdownMode, Wait};
use corelane_sys::clock::Monotonic;
use corelane_wire::Octets;

use super::graceful_close::{self, CloseAction, CloseOutcome, GracefulClose, RetiredStage};
use super::output::{UnsentRequest, WriteState};
use super::state::{Flag, Transition};
use super::{Connection, WaitingRequest};
use crate::server::message::Message;

/// The last message and the time limits with which a lane closes a connection.
#[derive(Clone, Debug)]
pub(crate) struct CloseTerms {
    /// The last message of the connection, CloseConnection. `None` if the lane is not closing.
    pub(crate) last_message: Option<Vec<u8>>,
    /// Maximum time from the start of the close to its end.
    pub(crate) closing_time: Duration,
    /// Maximum time for which the peer may read nothing while replies wait for it.
    pub(crate) write_timeout: Duration,
}

/// A request that starts after its connection was retired. The connection does not end before this
/// value is dropped.
#[derive(Debug)]
#[must_use = "the connection may end when the value is dropped"]
pub(crate) struct LateRequest(WaitingRequest);

impl WaitingRequest {
    /// Counts a request as late, because it starts after its connection was retired. Called before
    /// the request stops counting as waiting, and before the caller checks if the lane closes, so
    /// that the connection cannot end in between.
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
        // The drain of a connection in a closing lane waits for its late requests. The end of the
        // last late request must therefore continue the drain.
        if self.0.late_requests.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.list_for_reading();
        }
    }
}

/// Size in bytes of the buffer into which input is read to discard it.
const DISCARD_BYTES: usize = 16 * 1024;
/// Maximum number of reads in a row that discard input of one connection, before the thread does
/// other work.
const MAX_DISCARD_READS: usize = 64;

/// The progress of a connection's drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainProgress {
    /// The drain waits: for the peer to read, to send or to close, or for a request of the
    /// connection to end.
    Pending,
    /// The thread has discarded the maximum amount of input in a row, and more input may have
    /// arrived.
    MoreInput,
    /// The connection has ended.
    Finished,
    /// The connection has ended because the peer did not read its replies in time.
    WriteTimedOut,
}

impl DrainProgress {
    /// Returns true if the connection has ended: for [`Finished`](Self::Finished) and
    /// [`WriteTimedOut`](Self::WriteTimedOut).
    pub(crate) fn is_over(self) -> bool {
        matches!(self, DrainProgress::Finished | DrainProgress::WriteTimedOut)
    }
}

impl Connection {
    /// Records that the peer has closed its sending direction.
    #[cold]
    pub(crate) fn record_half_close(&self) {
        self.record_partial_messages(0, None, 0);
        self.state.set(Flag::PeerHalfClosed);
    }

    /// Records that the last thread that used the retired connection has left it.
    #[cold]
    pub(crate) fn mark_vacated(&self) {
        self.state.apply(Transition::Vacate);
    }

    /// Returns true if the connection is retired and no thread uses it.
    pub(crate) fn is_vacated(&self) -> bool {
        self.state.is_vacated()
    }

    /// Returns true if the connection is retired, no thread uses it, and its remaining requests
    /// wait for the peer to read. Closing the connection then frees its descriptor.
    #[cold]
    pub(crate) fn is_unused(&self) -> bool {
        self.is_vacated() && self.waits_only_for_peer()
    }

    /// Returns true if no late request runs, and all waiting requests are deferred until the peer
    /// reads.
    fn waits_only_for_peer(&self) -> bool {
        let alone =
            |writing: &mut WriteState| self.waiting_requests.load(Ordering::SeqCst) as usize == writing.deferred.len();
        // If the lock is held, the thread that holds it uses the connection.
        self.output.try_with(alone).unwrap_or(false)
    }

    /// Makes a connection that has left the list of draining connections not count for the maximum
    /// number of connections. It counts as long as one of its requests keeps the descriptor open.
    #[cold]
    pub(crate) fn release_slot_if_unused(&self) {
        if self.waits_only_for_peer() {
            self.memory_use.release_slot();
        }
    }

    /// Returns true if the send queue is not empty: the peer has not read all replies.
    #[cold]
    pub(crate) fn has_unsent_output(&self) -> bool {
        self.output.with(|writing| !writing.queue.is_empty())
    }

    /// Queues the last message of the connection, unless one has been queued before.
    /// [`advance_drain`](Self::advance_drain) sends it and ends the connection, at the latest
    /// `time` after `now`.
    #[cold]
    pub(crate) fn queue_last_message(&self, last_message: &[u8], now: Monotonic, time: Duration) {
        self.queue_last_message_and_discard(last_message, 0, now, time);
    }

    /// Queues the last message, as [`queue_last_message`](Self::queue_last_message) does, for a
    /// peer that has sent a part of a message that is too large. The drain discards the remaining
    /// `rest` bytes of the peer's message if they are at most
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

    /// Makes the drain end at the latest `time` after `now`, even if the peer reads.
    #[cold]
    pub(crate) fn limit_close_time(&self, now: Monotonic, time: Duration) {
        // While threads use the connection, one of them may hold the output lock for as long as the
        // peer does not read, so the lock is not taken.
        if self.is_vacated() {
            self.output.with(|writing| {
                if let Some(closing) = &mut writing.closing {
                    closing.limit_close_time(now, time);
                }
            });
        }
    }

    /// Returns true if the last message has been queued or sent.
    #[cold]
    pub(crate) fn has_queued_last_message(&self) -> bool {
        self.output.with(|writing| writing.closing.is_some())
    }

    /// Drains a retired connection as far as is possible without waiting. Does nothing while a
    /// thread uses the connection. If the peer has closed its sending direction, it may read, so
    /// the drain waits until the requests of the connection have been answered.
    #[cold]
    pub(crate) fn advance_drain(&self, terms: &CloseTerms, now: Monotonic) -> DrainProgress {
        if !self.is_vacated() {
            return DrainProgress::Pending;
        }
        self.output.with(|writing| {
            // When the lane closes, late requests are answered, but waiting requests do not run.
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
            // All output has been sent, and the connection has ended. The stream is shut down if
            // requests wait, so that their replies are dropped.
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
                    self.stream.shutdown(ShutdownMode::Write);
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
        match self.stream.recv(&mut waste, Wait::Now) {
            Ok(0) => CloseOutcome::PeerEnded,
            Ok(count) => CloseOutcome::Read(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => CloseOutcome::NothingToRead,
            Err(_) => CloseOutcome::Failed,
        }
    }

    /// Sends as much of the last message as the transport accepts without waiting, and shuts the
    /// stream down. Called to evict a connection whose descriptor a new connection needs.
    #[cold]
    pub(crate) fn close_with_message(&self, last_message: &[u8]) {
        self.output.with(|writing| {
            if writing.queue.is_empty() {
                // The result is ignored: a peer that does not get the message sees the end of the
                // stream.
                let _ = self.stream.send(last_message, Wait::Now);
            }
        });
        self.close();
    }

    /// Takes the requests that were deferred until the peer has read its replies.
    #[cold]
    pub(crate) fn take_deferred(self: &Arc<Self>) -> Vec<(WaitingRequest, Message)> {
        let deferred = self.output.with(|writing| std::mem::take(&mut writing.deferred));
        // Deferred requests count as waiting, so `WaitingRequest` is made without counting again.
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
