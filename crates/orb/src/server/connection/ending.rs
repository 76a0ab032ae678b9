//! The end of a connection as [`Closing`] says it: what waits for the peer leaves, the last message behind it, and then nothing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corelane_net::{Half, Wait};
use corelane_sys::clock::Monotonic;
use corelane_wire::Octets;

use super::super::closing::{self, Closing, Outcome, Stage, Step};
use super::super::lane::Work;
use super::super::worker::Message;
use super::{Connection, Postponed, Waiting, Writing};

/// What the lane has to say at the end of a connection, and how long the peer has for its part.
#[derive(Clone, Debug)]
pub(crate) struct Farewell {
    /// The last message of a lane that closes.
    pub(crate) last: Option<Vec<u8>>,
    pub(crate) closing_time: Duration,
    /// For a peer that takes nothing of its replies.
    pub(crate) output_timeout: Duration,
}

/// A request that begins although nobody finds its connection any more. Until this is dropped nobody takes that to be over.
#[derive(Debug)]
#[must_use = "its connection may end when this is dropped"]
pub(crate) struct Late(Waiting);

impl Waiting {
    /// It begins to run late. It is counted before it waits no longer, and before it is asked whether the lane closes.
    #[cold]
    pub(crate) fn late(&self) -> Late {
        let connection = Arc::clone(&self.connection);
        connection.late.fetch_add(1, Ordering::SeqCst);
        connection.waiting.fetch_add(1, Ordering::SeqCst);
        Late(Waiting { connection, since: self.since, queued: None })
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        // Who closes the lane waits for this alone, others for all that wait.
        if self.0.late.fetch_sub(1, Ordering::SeqCst) == 1
            && let Some(lane) = self.0.lane.upgrade()
        {
            lane.push(Work::Read(self.0.place));
        }
    }
}

/// How far the end of a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The peer has its part to do, or a request of it runs or waits.
    On,
    /// It is over.
    Over,
    /// The same, because the peer did not take its replies.
    Unread,
}

impl Connection {
    /// The peer sends nothing any more.
    #[cold]
    pub(crate) fn note_peer_ended(&self) {
        self.note_unfinished(0, None, 0);
        self.peer_ended.store(true, Ordering::SeqCst);
    }

    /// Nobody finds it any more, and the last thread that did is out of it.
    #[cold]
    pub(crate) fn note_left(&self) {
        self.left.store(true, Ordering::SeqCst);
    }

    /// Whether nobody who found it is in it any more.
    pub(crate) fn is_left(&self) -> bool {
        self.left.load(Ordering::SeqCst)
    }

    /// Whether nobody is in it, and its descriptor is free when it is closed, as soon as a thread that may wait for the peer has seen that.
    #[cold]
    pub(crate) fn is_unused(&self) -> bool {
        self.is_left() && self.waits_for_peer_alone()
    }

    /// Whether nothing of it runs late, or waits for anything but its peer to read.
    fn waits_for_peer_alone(&self) -> bool {
        let alone = |writing: &mut Writing| self.waiting.load(Ordering::SeqCst) as usize == writing.postponed.len();
        // Whoever has the lock is in it.
        self.output.try_with(alone).unwrap_or(false)
    }

    /// It is not listed any more: it counts no more, unless its descriptor has to stay.
    #[cold]
    pub(crate) fn note_over(&self) {
        if self.waits_for_peer_alone() {
            self.account.end();
        }
    }

    /// Whether the peer has not taken all that was said.
    #[cold]
    pub(crate) fn has_unsent(&self) -> bool {
        self.output.with(|writing| !writing.queue.is_empty())
    }

    /// Puts the last message behind what waits: from now on nothing else is sent. [`linger`](Self::linger) does the rest, within
    /// `time`.
    #[cold]
    pub(crate) fn finish(&self, last: &[u8], now: Monotonic, time: Duration) {
        self.output.with(|writing| finish(writing, last, now, time));
    }

    /// If it ends in its peer's own time: `time` is what is left of that.
    #[cold]
    pub(crate) fn hurry(&self, now: Monotonic, time: Duration) {
        // Whoever is in it may have the lock while the peer does not read.
        if self.is_left() {
            self.output.with(|writing| {
                if let Some(closing) = &mut writing.closing {
                    closing.hurry(now, time);
                }
            });
        }
    }

    /// Whether the last message has been said.
    #[cold]
    pub(crate) fn is_finished(&self) -> bool {
        self.output.with(|writing| writing.closing.is_some())
    }

    /// Goes on with the end of a connection that nobody finds any more, as far as it goes now. While somebody who found it before is in
    /// it, or a request of a peer that still reads waits or runs late, nothing ends.
    #[cold]
    pub(crate) fn linger(&self, farewell: &Farewell, now: Monotonic) -> Progress {
        if !self.is_left() {
            return Progress::On;
        }
        self.output.with(|writing| {
            // Whoever waits while the lane closes does not run any more.
            let answers = if farewell.last.is_some() { &self.late } else { &self.waiting };
            let answers = self.has_peer_ended() && answers.load(Ordering::SeqCst) > 0;
            match closing::stage(answers, writing.closing.is_some(), self.is_closed()) {
                Stage::Serving => Progress::On,
                Stage::Gone => Progress::Over,
                Stage::Ending => {
                    if let Some(last) = &farewell.last {
                        finish(writing, last, now, farewell.closing_time);
                    } else if writing.closing.is_none() && !writing.queue.is_empty() {
                        writing.closing = Some(Closing::while_it_reads(writing.since, farewell.output_timeout));
                    }
                    self.linger_locked(writing, now)
                }
            }
        })
    }

    fn linger_locked(&self, writing: &mut Writing, now: Monotonic) -> Progress {
        let Some(mut step) = writing.closing.as_ref().map(|closing| closing.look(now)) else {
            // Nothing is to be said. What waits still is not for this peer, who does not listen any more.
            if self.waiting.load(Ordering::SeqCst) > 0 {
                self.close();
            }
            return Progress::Over;
        };
        let is_late = step == Step::Cut;
        loop {
            let outcome = match step {
                Step::Send => {
                    let before = writing.queue.len();
                    let sent = self.send_queue(writing);
                    let left = writing.queue.len();
                    self.account.set_output(writing.queue.held());
                    match sent {
                        Ok(true) => Outcome::Sent,
                        Ok(false) if left < before => Outcome::Took(now),
                        Ok(false) => Outcome::Full,
                        Err(_) => Outcome::Failed,
                    }
                }
                Step::EndWriting => {
                    self.stream.shutdown(Half::Write);
                    Outcome::WritingEnded
                }
                Step::Read => self.discard(),
                Step::Wait => return Progress::On,
                Step::Cut => {
                    self.close();
                    return if is_late && !writing.queue.is_empty() { Progress::Unread } else { Progress::Over };
                }
                Step::Over => return Progress::Over,
            };
            let Some(closing) = &mut writing.closing else { return Progress::Over };
            step = closing.after(outcome);
        }
    }

    fn discard(&self) -> Outcome {
        let mut waste = [0; 16 * 1024];
        match self.stream.recv(&mut waste, Wait::Now) {
            Ok(0) => Outcome::PeerEnded,
            Ok(count) => Outcome::Read(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Outcome::Dry,
            Err(_) => Outcome::Failed,
        }
    }

    /// Sends the last message as far as the transport takes it, and ends at once: its descriptor is needed.
    #[cold]
    pub(crate) fn end_with(&self, last: &[u8]) {
        self.output.with(|writing| {
            if writing.queue.is_empty() {
                // Whoever does not take it learns of the end all the same.
                let _ = self.stream.send(last, Wait::Now);
            }
        });
        self.close();
    }

    /// What was postponed, now that nothing waits for the peer.
    #[cold]
    pub(crate) fn take_postponed(self: &Arc<Self>) -> Vec<(Waiting, Message)> {
        let postponed = self.output.with(|writing| std::mem::take(&mut writing.postponed));
        // They are among those that wait already.
        let waits =
            |Postponed { message, since }| (Waiting { connection: Arc::clone(self), since, queued: None }, message);
        postponed.into_iter().map(waits).collect()
    }
}

fn finish(writing: &mut Writing, last: &[u8], now: Monotonic, time: Duration) {
    if writing.closing.is_none() {
        writing.queue.push(last, &Octets::copy_from);
        writing.closing = Some(Closing::new(now, time));
    }
}
