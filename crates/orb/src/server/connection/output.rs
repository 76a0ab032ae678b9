//! The output of a connection: the send queue, its lock, and the requests that must not begin
//! before the queue is empty.

use std::io::{self, IoSlice};
use std::time::Duration;

use corelane_net::WaitLimit;
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, Mutex, PiMutex};
use corelane_wire::Octets;
use corelane_wire::cdr::MAX_ENCODER_SLICES;

use super::Connection;
use super::graceful_close::GracefulClose;
use super::send_queue::{SendQueue, ShareBytes};
use super::state::Flag;
use crate::clock;
use crate::lent_messages::ShortMessage;
use crate::server::message::Message;

/// Maximum number of bytes that one system call sends of a large message. Between two such calls,
/// the kernel can send more urgent replies on other connections.
const SLICE: usize = 64 * 1024;

#[derive(Debug)]
pub(super) enum OutputLock {
    Plain(Mutex<WriteState>),
    /// The sending thread inherits the highest priority of the threads that wait.
    Inheriting(PiMutex<WriteState>),
}

impl OutputLock {
    pub(super) fn new(mixed: bool) -> Self {
        let (queue, progress_at) = (SendQueue::default(), Monotonic::from_nanos(0));
        let writing = WriteState {
            queue,
            progress_at,
            deferred: Vec::new(),
            closing: None,
            #[cfg(feature = "replies-first")]
            waits_for_memory: false,
        };
        let (name, scope) = ("connection output", LockScope::Connection);
        if mixed {
            OutputLock::Inheriting(PiMutex::new(name, scope, writing))
        } else {
            OutputLock::Plain(Mutex::new(name, scope, writing))
        }
    }

    #[cold]
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut WriteState) -> R) -> R {
        match self {
            OutputLock::Plain(writing) => work(&mut writing.lock()),
            OutputLock::Inheriting(writing) => work(&mut writing.lock()),
        }
    }

    #[cold]
    pub(super) fn try_with<R>(&self, work: impl FnOnce(&mut WriteState) -> R) -> Option<R> {
        match self {
            OutputLock::Plain(writing) => writing.try_lock().map(|mut writing| work(&mut writing)),
            OutputLock::Inheriting(writing) => writing.try_lock().map(|mut writing| work(&mut writing)),
        }
    }
}

#[derive(Debug)]
pub(super) struct WriteState {
    pub(super) queue: SendQueue,
    /// The time at which the peer last read, or at which bytes were added to an empty queue,
    /// whichever is later.
    pub(super) progress_at: Monotonic,
    /// Requests that must not begin while the queue has bytes or a request of the connection waits
    /// for memory.
    pub(super) deferred: Vec<UnsentRequest>,
    pub(super) closing: Option<GracefulClose>,
    #[cfg(feature = "replies-first")]
    pub(super) waits_for_memory: bool,
}

impl WriteState {
    pub(super) fn waits_for_memory(&self) -> bool {
        #[cfg(feature = "replies-first")]
        return self.waits_for_memory;
        #[cfg(not(feature = "replies-first"))]
        false
    }
}

#[derive(Debug)]
pub(super) struct UnsentRequest {
    pub(super) message: Message,
    pub(super) read_at: Monotonic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendResult {
    Complete,
    Queued,
    Failed(SendError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    ConnectionLost,
    Closing,
    WriteTimedOut,
}

impl Connection {
    /// Sends a message, after the bytes that are queued. If the transport has no room, blocks as
    /// `wait` permits, or queues the remaining bytes.
    #[inline]
    pub(crate) fn send(&self, message: &[u8], wait: WaitLimit) -> SendResult {
        match &self.output {
            OutputLock::Plain(writing) => self.send_contiguous(&mut writing.lock(), message, wait),
            OutputLock::Inheriting(writing) => self.send_inheriting(writing, message, wait),
        }
    }

    #[inline(never)]
    fn send_inheriting(&self, writing: &PiMutex<WriteState>, message: &[u8], wait: WaitLimit) -> SendResult {
        self.send_contiguous(&mut writing.lock(), message, wait)
    }

    #[inline(always)]
    fn send_contiguous(&self, writing: &mut WriteState, message: &[u8], wait: WaitLimit) -> SendResult {
        if writing.closing.is_some() || !writing.queue.is_empty() || self.is_sent_in_slices(message.len()) {
            return self.send_slices_locked(writing, &[message], &Octets::copy_from, wait);
        }
        match self.stream.send(message, wait) {
            Ok(sent) if sent == message.len() => SendResult::Complete,
            Ok(sent) => self.send_remainder(writing, &[message], &Octets::copy_from, sent, wait),
            Err(error) => self.send_failed(writing, &[message], &Octets::copy_from, &error, wait),
        }
    }

    #[inline]
    fn is_sent_in_slices(&self, octets: usize) -> bool {
        self.origin.sends_in_slices && octets > SLICE
    }

    #[inline(never)]
    pub(crate) fn send_slices(&self, message: &[&[u8]], share: ShareBytes<'_>, wait: WaitLimit) -> SendResult {
        match &self.output {
            OutputLock::Plain(writing) => self.send_slices_locked(&mut writing.lock(), message, share, wait),
            OutputLock::Inheriting(writing) => self.send_slices_locked(&mut writing.lock(), message, share, wait),
        }
    }

    #[inline(never)]
    fn send_slices_locked(
        &self,
        writing: &mut WriteState,
        message: &[&[u8]],
        share: ShareBytes<'_>,
        wait: WaitLimit,
    ) -> SendResult {
        if writing.closing.is_some() {
            return SendResult::Failed(SendError::Closing);
        }
        // The memory is lent under the output lock, because messages must be sent in the order in
        // which memory is lent.
        if let Some(short) = ShortMessage::new(&*self.stream, message) {
            return self.send_slices_locked(writing, &short.slices(), share, wait);
        }
        if !writing.queue.is_empty() {
            return self.enqueue(writing, message, share, 0);
        }
        if self.is_sent_in_slices(message.iter().map(|slice| slice.len()).sum()) {
            return self.send_remainder(writing, message, share, 0, wait);
        }
        let mut slices = [IoSlice::new(&[]); MAX_ENCODER_SLICES];
        let mut count = 0;
        let mut total = 0;
        for (slot, slice) in slices.iter_mut().zip(message) {
            *slot = IoSlice::new(slice);
            count += 1;
            total += slice.len();
        }
        match self.stream.send_vectored(&slices[..count], wait) {
            Ok(sent) if sent == total && count == message.len() => SendResult::Complete,
            Ok(sent) => self.send_remainder(writing, message, share, sent, wait),
            Err(error) => self.send_failed(writing, message, share, &error, wait),
        }
    }

    #[cold]
    fn send_failed(
        &self,
        writing: &mut WriteState,
        message: &[&[u8]],
        share: ShareBytes<'_>,
        error: &io::Error,
        wait: WaitLimit,
    ) -> SendResult {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.send_remainder(writing, message, share, 0, wait),
            io::ErrorKind::TimedOut => SendResult::Failed(SendError::WriteTimedOut),
            _ => SendResult::Failed(SendError::ConnectionLost),
        }
    }

    /// Sends the bytes after the first `sent`. If the transport has no room, blocks as `wait`
    /// permits, or queues the bytes.
    ///
    /// [`Flag::Congested`] is set before the last attempt, because epoll may report room to write
    /// directly after this attempt.
    #[cold]
    fn send_remainder(
        &self,
        writing: &mut WriteState,
        message: &[&[u8]],
        share: ShareBytes<'_>,
        mut sent: usize,
        wait: WaitLimit,
    ) -> SendResult {
        let mut announced = false;
        loop {
            let Some(next) = after(message, sent).next() else { break };
            let next = &next[..next.len().min(SLICE)];
            match self.stream.send(next, wait) {
                Ok(0) => return SendResult::Failed(SendError::ConnectionLost),
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return SendResult::Failed(SendError::WriteTimedOut);
                }
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return SendResult::Failed(SendError::ConnectionLost);
                }
                Err(_) if announced => return self.enqueue(writing, message, share, sent),
                Err(_) => {
                    self.state.set(Flag::Congested);
                    self.watch_writability(true);
                    announced = true;
                }
            }
        }
        // A reading thread may have stopped because of the flag `Congested`. Epoll does not report
        // the unread input again, so the connection is listed.
        if announced && !writing.waits_for_memory() && self.state.clear(Flag::Congested) {
            self.watch_writability(false);
            self.list_for_reading();
        }
        SendResult::Complete
    }

    #[cold]
    fn enqueue(&self, writing: &mut WriteState, message: &[&[u8]], share: ShareBytes<'_>, sent: usize) -> SendResult {
        if self.is_closed() {
            return SendResult::Failed(SendError::ConnectionLost);
        }
        if writing.queue.is_empty() {
            writing.progress_at = clock::now();
        }
        for slice in after(message, sent) {
            writing.queue.push(slice, share);
        }
        self.memory_use.set_output(writing.queue.held_bytes());
        self.shed_if_over_budget();
        SendResult::Queued
    }

    #[cfg(feature = "replies-first")]
    #[cold]
    pub(crate) fn end_memory_wait(&self) {
        self.output.with(|writing| writing.waits_for_memory = false);
    }

    /// Sends queued bytes without blocking. Returns true if the call ended the congestion. Does
    /// nothing after the graceful close has begun: [`advance_drain`](Self::advance_drain) then
    /// sends the queue.
    #[cold]
    pub(crate) fn flush(&self) -> io::Result<bool> {
        self.output.with(|writing| {
            if writing.closing.is_some() {
                return Ok(false);
            }
            let before = writing.queue.len();
            let flushed = self.flush_queue(writing);
            if writing.queue.len() < before {
                writing.progress_at = clock::now();
                self.memory_use.set_output(writing.queue.held_bytes());
            }
            let flushed =
                flushed.map(|is_empty| is_empty && !writing.waits_for_memory() && self.state.clear(Flag::Congested));
            // Watching stops under the output lock, because the next holder of the lock may start
            // it again.
            if matches!(flushed, Ok(true)) {
                self.watch_writability(false);
            }
            flushed
        })
    }

    pub(super) fn flush_queue(&self, writing: &mut WriteState) -> io::Result<bool> {
        while !writing.queue.is_empty() {
            match writing.queue.send(SLICE, |slices| self.stream.send_vectored(slices, WaitLimit::Now)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Returns the time since [`progress_at`](WriteState::progress_at); 0 if no reply waits, if
    /// another thread is sending, or if the graceful close has begun.
    pub(crate) fn write_stalled_for(&self, now: Monotonic) -> Duration {
        let waits = |writing: &mut WriteState| {
            let waits = !writing.queue.is_empty() && writing.closing.is_none();
            waits.then(|| now.since(writing.progress_at))
        };
        self.is_congested().then(|| self.output.try_with(waits)).flatten().flatten().unwrap_or_default()
    }
}

fn after<'m>(message: &[&'m [u8]], sent: usize) -> impl Iterator<Item = &'m [u8]> {
    let mut skip = sent;
    message.iter().filter_map(move |slice| {
        let here = skip.min(slice.len());
        skip -= here;
        (here < slice.len()).then(|| &slice[here..])
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::priority_inheritance::inherits_priority;
    use crate::server::connection::tests::detached_connection;
    use crate::server::memory_budget::MemoryBudget;

    #[test]
    fn lock_holder_inherits_the_priority_of_a_waiting_sender() {
        let connection = detached_connection(&MemoryBudget::new(usize::MAX), true);
        let own = Arc::clone(&connection);
        assert!(inherits_priority(
            move |held| own.output.with(|_| held()),
            move || {
                let _ = connection.send(b"an answer", WaitLimit::Now);
            }
        ));
    }
}
