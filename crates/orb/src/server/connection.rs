//! The server's end of a connection: who reads it, how replies leave it, when it ends.
//!
//! Reading and writing are apart. One thread at a time reads (a [`Turn`]), and only until one complete request is there, so the
//! requests of a multiplexed connection run side by side. Replies are written under the connection's own lock; what the peer
//! does not take at once waits, and meanwhile nothing more is read from it, and no request of it that waits for a thread begins
//! to run. How it ends is decided by [`Closing`].

mod ending;

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicI16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_net::{Half, Stream, Wait};
use corelane_sched::{Priority, PriorityBand};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Mutex, PiMutex, Scope};
use corelane_sys::poll;
use corelane_sys::turn::Turn;
use corelane_wire::cdr::MAX_SLICES;
use corelane_wire::connection::Framer;
use corelane_wire::{CharSet, CodeSets, Octets, Version, WideSet};

use super::admission;
use super::arriving::Arriving;
use super::budget::{Account, Budget};
use super::closing::Closing;
use super::lane::{Lane, Work};
use super::silence::{self, Rank};
use super::unsent::{Keep, Unsent};
use super::worker::Message;
use crate::clock;
use crate::orb::Core;
use crate::receive::ReceiveBuffer;
use crate::rt::station;
pub(crate) use ending::{Farewell, Late, Progress};

/// Replies leave in slices of this size where one of a higher priority may be waiting for the kernel, and whatever
/// the peer does not take at once does.
const SLICE: usize = 64 * 1024;

/// One accepted connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) reading: Turn<Reading>,
    output: Output,
    /// Set while replies wait in the queue: reading pauses.
    congested: AtomicBool,
    /// Requests that are read and do not run: they wait for a thread, or for what holds them.
    waiting: AtomicU32,
    /// Requests that run and had waited until nobody found the connection any more; they are counted among those that wait too.
    late: AtomicU32,
    /// A request of it was handed over to another lane, whose thread answers it.
    elsewhere: AtomicBool,
    /// Those of them that are in the lane's queue, and their octets.
    queued: AtomicUsize,
    queued_octets: AtomicUsize,
    /// The code sets that the client announced, packed; 0: none yet.
    code_sets: AtomicU64,
    /// Where work of this connection that was held is listed.
    pub(crate) lane: Weak<Lane>,
    /// Where the lane finds it: slot and generation.
    pub(crate) place: (u32, u32),
    /// Its stream has reported something that no thread has looked at; for streams without a descriptor.
    pub(crate) reported: AtomicBool,
    /// Nobody reads or writes any more.
    closed: AtomicBool,
    /// The end of the stream was reported, perhaps together with the last octets: it is read to its end, however short a read is.
    pub(crate) hung_up: AtomicBool,
    /// When its last message came, on the lane's coarse clock; [`silence::NEVER`] before the first.
    heard: AtomicU32,
    /// When it was accepted.
    opened: Monotonic,
    /// The peer sends nothing any more; it may still read.
    peer_ended: AtomicBool,
    /// Nobody finds it any more, and whoever had found it is out of it.
    left: AtomicBool,
    /// It was closed for its peer's silence: the peer is told that what it may have sent meanwhile did not run.
    dismissed: AtomicBool,
    /// Messages have begun and are not whole.
    unfinished: AtomicBool,
    arriving: PiMutex<Arriving>,
    account: Account,
    /// The band that it is for; [`UNBOUND`] until the client says so.
    bound: AtomicU32,
    /// The priority whose code point its packets carry; negative: none yet.
    marked: AtomicI16,
    bounds: Bounds,
    pub(crate) origin: Origin,
}

/// What a peer may make one connection hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Requests that wait.
    pub(crate) waiting: u32,
    /// Those of them that are in the lane's queue, and their octets.
    pub(crate) queued: usize,
    pub(crate) queued_octets: usize,
}

/// No band.
const UNBOUND: u32 = u32::MAX;

/// Where a connection came in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// A number of its own within the ORB.
    pub(crate) number: u64,
    /// When it was accepted.
    pub(crate) opened: Monotonic,
    /// Pool and lane.
    pub(crate) station: (u32, u32),
    /// The highest priority that its requests may ask for.
    pub(crate) ceiling: Priority,
    /// Replies leave in slices: there may be higher ones, for which the kernel is not to be busy.
    pub(crate) in_slices: bool,
    /// Its packets carry the code point of the last request's priority: it came in at a pool without lanes.
    pub(crate) marks: bool,
    /// Threads of different priorities may answer here.
    pub(crate) mixed: bool,
}

/// A request that waits; it counts against the bound of its connection.
#[derive(Debug)]
pub(crate) struct Waiting {
    connection: Arc<Connection>,
    /// When it was read.
    since: Monotonic,
    /// Its octets, in the lane's queue.
    queued: Option<usize>,
}

/// What the thread that has the turn works on.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) framer: Framer,
    /// Octets of a message that is not complete; without one the reader's own buffer serves.
    pub(crate) partial: Option<ReceiveBuffer>,
    /// The last read took all there was: what comes after it is reported anew. A short read is taken for that. It may not be one where
    /// the peer sends urgent data over TCP, or descriptors over a Unix socket, which no ORB does: such a peer waits for its own
    /// next octet.
    pub(crate) drained: bool,
    /// Nothing is read any more: the peer has closed, or broke the protocol.
    pub(crate) over: bool,
}

/// What replies leave through, one at a time.
#[derive(Debug)]
enum Output {
    /// Threads of one priority answer.
    Plain(Mutex<Writing>),
    /// Others may wait: whoever sends does so at the priority of the highest of them, and the reply before theirs goes out as theirs.
    Mixed(PiMutex<Writing>),
}

impl Output {
    fn new(mixed: bool) -> Self {
        let (queue, since) = (Unsent::default(), Monotonic::from_nanos(0));
        let writing = Writing { queue, since, postponed: Vec::new(), closing: None };
        let (name, scope) = ("connection output", Scope::Connection);
        if mixed {
            Output::Mixed(PiMutex::new(name, scope, writing))
        } else {
            Output::Plain(Mutex::new(name, scope, writing))
        }
    }

    /// With the lock.
    #[cold]
    fn with<R>(&self, work: impl FnOnce(&mut Writing) -> R) -> R {
        match self {
            Output::Plain(writing) => work(&mut writing.lock()),
            Output::Mixed(writing) => work(&mut writing.lock()),
        }
    }

    /// With the lock if nobody has it.
    #[cold]
    fn try_with<R>(&self, work: impl FnOnce(&mut Writing) -> R) -> Option<R> {
        match self {
            Output::Plain(writing) => writing.try_lock().map(|mut writing| work(&mut writing)),
            Output::Mixed(writing) => writing.try_lock().map(|mut writing| work(&mut writing)),
        }
    }
}

#[derive(Debug)]
struct Writing {
    queue: Unsent,
    /// When the peer last took something of it, or it began to fill.
    since: Monotonic,
    /// Requests that run when nothing is in the queue any more.
    postponed: Vec<Postponed>,
    /// The last message is in the queue or out.
    closing: Option<Closing>,
}

/// A request whose turn had come while its connection's replies waited for the peer.
#[derive(Debug)]
struct Postponed {
    message: Message,
    /// When it was read.
    since: Monotonic,
}

/// What became of octets to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The transport has them all.
    All,
    /// Some wait in the queue until the peer reads.
    Queued,
    /// The connection is gone.
    Lost(Loss),
}

/// Why a connection ended while sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The peer is gone.
    Gone,
    /// The last message has been written: nothing follows it.
    Ending,
    /// The peer did not read while the thread waited for it.
    Unread,
}

impl Connection {
    pub(crate) fn new(
        stream: Box<dyn Stream>,
        lane: Weak<Lane>,
        place: (u32, u32),
        bounds: Bounds,
        budget: Arc<Budget>,
        origin: Origin,
    ) -> Self {
        Connection {
            stream,
            reading: Turn::new(Reading { framer: Framer::new(), partial: None, drained: false, over: false }),
            lane,
            place,
            output: Output::new(origin.mixed),
            congested: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            late: AtomicU32::new(0),
            elsewhere: AtomicBool::new(false),
            queued: AtomicUsize::new(0),
            queued_octets: AtomicUsize::new(0),
            code_sets: AtomicU64::new(0),
            reported: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            hung_up: AtomicBool::new(false),
            heard: AtomicU32::new(silence::NEVER),
            opened: origin.opened,
            peer_ended: AtomicBool::new(false),
            left: AtomicBool::new(false),
            dismissed: AtomicBool::new(false),
            unfinished: AtomicBool::new(false),
            arriving: PiMutex::new("unfinished messages", Scope::Connection, Arriving::default()),
            account: Account::new(budget),
            bound: AtomicU32::new(UNBOUND),
            marked: AtomicI16::new(-1),
            bounds,
            origin,
        }
    }

    /// The client has said that it is for this band.
    #[cold]
    pub(crate) fn bind(&self, band: PriorityBand) {
        let number = |priority: Priority| u32::from(priority.get().unsigned_abs());
        self.bound.store(number(band.low) << 16 | number(band.high), Ordering::Relaxed);
    }

    /// The band that it is for, if the client has said so.
    pub(crate) fn band(&self) -> Option<PriorityBand> {
        let bound = self.bound.load(Ordering::Relaxed);
        let end = |bits: u32| i16::try_from(bits & 0xffff).ok();
        if bound == UNBOUND { None } else { PriorityBand::new(end(bound >> 16)?, end(bound)?).ok() }
    }

    /// The packets that are sent from now on carry the code point of `priority`; no system call if they do already.
    #[cold]
    pub(crate) fn mark(&self, core: &Core, priority: Priority) {
        if self.marked.swap(priority.get(), Ordering::Relaxed) != priority.get() {
            core.mark(&*self.stream, priority);
        }
    }

    /// The transmission code sets: what the client announced, else those without negotiation.
    #[inline]
    pub(crate) fn code_sets(&self, version: Version) -> CodeSets {
        match self.code_sets.load(Ordering::Relaxed) {
            0 if version == Version::GIOP_1_0 => CodeSets::DEFAULT,
            0 => CodeSets::LATIN1_UTF16,
            announced => CodeSets {
                char: if announced & 2 == 0 { CharSet::Latin1 } else { CharSet::Utf8 },
                wchar: if announced & 4 == 0 { WideSet::None } else { WideSet::Utf16 },
                ..CodeSets::DEFAULT
            },
        }
    }

    /// Notes what the client announced.
    #[cold]
    pub(crate) fn set_code_sets(&self, announced: CodeSets) {
        let char = if announced.char == CharSet::Utf8 { 2 } else { 0 };
        let wchar = if announced.wchar == WideSet::None { 0 } else { 4 };
        self.code_sets.store(1 | char | wchar, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_congested(&self) -> bool {
        self.congested.load(Ordering::Acquire)
    }

    /// Whether nothing is read for now.
    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        let waiting = self.waiting.load(Ordering::SeqCst);
        // Without requests that wait there are none in the queue.
        !admission::reads(self.is_congested(), waiting, self.bounds.waiting) || (waiting > 0 && self.has_its_share())
    }

    /// Whether it has as much of the lane's queue as it may.
    #[cold]
    fn has_its_share(&self) -> bool {
        self.queued.load(Ordering::SeqCst) >= self.bounds.queued
            || self.queued_octets.load(Ordering::SeqCst) >= self.bounds.queued_octets
    }

    /// A request of it begins to wait.
    #[cold]
    pub(crate) fn wait(self: &Arc<Self>) -> Waiting {
        self.begin_to_wait(None)
    }

    /// A request of it with so many octets begins to wait in the lane's queue.
    pub(crate) fn wait_in_queue(self: &Arc<Self>, octets: usize) -> Waiting {
        self.queued.fetch_add(1, Ordering::SeqCst);
        self.queued_octets.fetch_add(octets, Ordering::SeqCst);
        self.begin_to_wait(Some(octets))
    }

    fn begin_to_wait(self: &Arc<Self>, queued: Option<usize>) -> Waiting {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Waiting { connection: Arc::clone(self), since: clock::now() - station::take_waited(), queued }
    }

    /// A request of it goes to another lane, whose thread will answer it. For the thread that has read it.
    pub(crate) fn note_elsewhere(&self) {
        self.elsewhere.store(true, Ordering::Relaxed);
    }

    /// Whether threads of other lanes may have to answer. For the thread that reads it, and has handed over what was.
    #[inline]
    pub(crate) fn is_answered_elsewhere(&self) -> bool {
        self.elsewhere.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends the connection at once; the reader sees the end of the stream. True the first time.
    pub(crate) fn close(&self) -> bool {
        let first = !self.closed.swap(true, Ordering::AcqRel);
        self.stream.shutdown(Half::Both);
        first
    }

    /// Sends a message, `wait` saying whether the calling thread may wait for the peer.
    #[inline]
    pub(crate) fn send(&self, message: &[u8], wait: Wait) -> Sent {
        match &self.output {
            Output::Plain(writing) => self.send_whole(&mut writing.lock(), message, wait),
            Output::Mixed(writing) => self.send_whole_mixed(writing, message, wait),
        }
    }

    #[inline(never)]
    fn send_whole_mixed(&self, writing: &PiMutex<Writing>, message: &[u8], wait: Wait) -> Sent {
        self.send_whole(&mut writing.lock(), message, wait)
    }

    #[inline]
    fn send_whole(&self, writing: &mut Writing, message: &[u8], wait: Wait) -> Sent {
        if writing.closing.is_some() || !writing.queue.is_empty() || self.is_sent_in_slices(message.len()) {
            return self.send_locked(writing, &[message], &Octets::copy_from, wait);
        }
        match self.stream.send(message, wait) {
            Ok(sent) if sent == message.len() => Sent::All,
            Ok(sent) => self.send_rest(writing, &[message], &Octets::copy_from, sent, wait),
            Err(error) => self.send_failed(writing, &[message], &Octets::copy_from, &error, wait),
        }
    }

    #[inline]
    fn is_sent_in_slices(&self, octets: usize) -> bool {
        self.origin.in_slices && octets > SLICE
    }

    /// Sends a message in parts; `keep` makes large octets of it outlive it, should they have to wait.
    #[inline(never)]
    pub(crate) fn send_kept(&self, message: &[&[u8]], keep: Keep<'_>, wait: Wait) -> Sent {
        match &self.output {
            Output::Plain(writing) => self.send_locked(&mut writing.lock(), message, keep, wait),
            Output::Mixed(writing) => self.send_locked(&mut writing.lock(), message, keep, wait),
        }
    }

    #[inline(never)]
    fn send_locked(&self, writing: &mut Writing, message: &[&[u8]], keep: Keep<'_>, wait: Wait) -> Sent {
        if writing.closing.is_some() {
            return Sent::Lost(Loss::Ending);
        }
        if !writing.queue.is_empty() {
            return self.enqueue(writing, message, keep, 0);
        }
        if self.is_sent_in_slices(message.iter().map(|slice| slice.len()).sum()) {
            return self.send_rest(writing, message, keep, 0, wait);
        }
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let mut count = 0;
        let mut total = 0;
        for (slot, slice) in slices.iter_mut().zip(message) {
            *slot = IoSlice::new(slice);
            count += 1;
            total += slice.len();
        }
        match self.stream.send_vectored(&slices[..count], wait) {
            Ok(sent) if sent == total && count == message.len() => Sent::All,
            Ok(sent) => self.send_rest(writing, message, keep, sent, wait),
            Err(error) => self.send_failed(writing, message, keep, &error, wait),
        }
    }

    /// The transport took nothing.
    #[cold]
    fn send_failed(
        &self,
        writing: &mut Writing,
        message: &[&[u8]],
        keep: Keep<'_>,
        error: &io::Error,
        wait: Wait,
    ) -> Sent {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.send_rest(writing, message, keep, 0, wait),
            io::ErrorKind::TimedOut => Sent::Lost(Loss::Unread),
            _ => Sent::Lost(Loss::Gone),
        }
    }

    /// The transport took only `sent` octets: goes on until it takes none, then queues.
    ///
    /// `congested` is set before the last attempt, so that the edge which says that there is room again, and which may come at
    /// any moment after that attempt, finds it set: the thread that is told of it then waits for the lock and flushes.
    #[cold]
    fn send_rest(&self, writing: &mut Writing, message: &[&[u8]], keep: Keep<'_>, mut sent: usize, wait: Wait) -> Sent {
        let mut announced = false;
        loop {
            let Some(next) = after(message, sent).next() else { break };
            let next = &next[..next.len().min(SLICE)];
            match self.stream.send(next, wait) {
                Ok(0) => return Sent::Lost(Loss::Gone),
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Sent::Lost(Loss::Unread),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Sent::Lost(Loss::Gone),
                Err(_) if announced => return self.enqueue(writing, message, keep, sent),
                Err(_) => {
                    self.congested.store(true, Ordering::SeqCst);
                    if let Some(lane) = self.lane.upgrade() {
                        lane.watch_room(self, true);
                    }
                    announced = true;
                }
            }
        }
        // Whoever stopped reading meanwhile is not told by any edge.
        if announced
            && self.congested.swap(false, Ordering::SeqCst)
            && let Some(lane) = self.lane.upgrade()
        {
            lane.watch_room(self, false);
            lane.push(Work::Read(self.place));
        }
        Sent::All
    }

    #[cold]
    fn enqueue(&self, writing: &mut Writing, message: &[&[u8]], keep: Keep<'_>, sent: usize) -> Sent {
        if self.is_closed() {
            // What waits here has been given up; nothing more is to count against the lane.
            return Sent::Lost(Loss::Gone);
        }
        if writing.queue.is_empty() {
            writing.since = clock::now();
        }
        for slice in after(message, sent) {
            writing.queue.push(slice, keep);
        }
        self.account.set_output(writing.queue.held());
        self.ask_for_room();
        Sent::Queued
    }

    /// The peer reads again: sends what waits. True when nothing waits any more and reading goes on. Behind the last message nothing does:
    /// [`linger`](Self::linger) sends then.
    #[cold]
    pub(crate) fn flush(&self) -> io::Result<bool> {
        self.output.with(|writing| {
            if writing.closing.is_some() {
                return Ok(false);
            }
            let before = writing.queue.len();
            let sent = self.send_queue(writing);
            if writing.queue.len() < before {
                writing.since = clock::now();
                self.account.set_output(writing.queue.held());
            }
            let flushed = sent? && self.congested.swap(false, Ordering::AcqRel);
            // Under the lock: whoever has it next may ask for room again.
            if flushed && let Some(lane) = self.lane.upgrade() {
                lane.watch_room(self, false);
            }
            Ok(flushed)
        })
    }

    /// Whether the peer is known to send nothing any more.
    pub(crate) fn has_peer_ended(&self) -> bool {
        self.peer_ended.load(Ordering::SeqCst)
    }

    /// Sends what waits; true when nothing waits any more.
    fn send_queue(&self, writing: &mut Writing) -> io::Result<bool> {
        while !writing.queue.is_empty() {
            match writing.queue.send(SLICE, |slices| self.stream.send_vectored(slices, Wait::Now)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether messages have begun and are not whole.
    #[inline]
    pub(crate) fn has_unfinished(&self) -> bool {
        self.unfinished.load(Ordering::Relaxed)
    }

    /// Notes what is there of unfinished messages: octets of one that arrives, the oldest of those in fragments, and how much memory
    /// all of it takes.
    #[cold]
    pub(crate) fn note_unfinished(&self, message: usize, oldest: Option<(u64, usize)>, held: usize) {
        let mut arriving = self.arriving.lock();
        arriving.note(message, oldest, clock::now());
        self.unfinished.store(arriving.is_any(), Ordering::Relaxed);
        drop(arriving);
        self.account.set_input(held);
        self.ask_for_room();
    }

    /// How long a message that has begun has made no progress. Octets that have come and wait to be read, because nothing is read for
    /// now or every thread is busy, are progress.
    pub(crate) fn stalled_for(&self, now: Monotonic) -> Duration {
        if !self.has_unfinished() {
            return Duration::ZERO;
        }
        let mut arriving = self.arriving.lock();
        arriving.look(self.has_unread(), now);
        arriving.stalled_for(now)
    }

    /// How long the peer has taken nothing of the replies that wait for it.
    pub(crate) fn unread_for(&self, now: Monotonic) -> Duration {
        let waits = |writing: &mut Writing| {
            let waits = !writing.queue.is_empty() && writing.closing.is_none();
            waits.then(|| now.since(writing.since))
        };
        // Whoever has the lock sends.
        self.is_congested().then(|| self.output.try_with(waits)).flatten().flatten().unwrap_or_default()
    }

    /// A whole message has come at `now` of the lane's coarse clock.
    #[inline]
    pub(crate) fn note_heard(&self, now: u32) {
        if self.heard.load(Ordering::Relaxed) != now {
            self.heard.store(now, Ordering::Relaxed);
        }
    }

    /// How soon it has to make room for another one; `None`: not at all.
    #[cold]
    pub(crate) fn rank(&self, now: u32) -> Option<Rank> {
        if self.waiting.load(Ordering::SeqCst) > 0 || self.is_congested() {
            return None;
        }
        silence::rank(self.heard.load(Ordering::Relaxed), self.has_unfinished(), now, self.origin.number)
    }

    /// How long nothing whole has come: in seconds of the lane's coarse clock, which says `tick`, once something has.
    #[cold]
    pub(crate) fn silent_for(&self, tick: u32, now: Monotonic) -> Duration {
        match self.heard.load(Ordering::Relaxed) {
            silence::NEVER => now.since(self.opened),
            heard => Duration::from_secs(tick.saturating_sub(heard).into()),
        }
    }

    /// Whether no whole message has ever come.
    pub(crate) fn never_spoke(&self) -> bool {
        self.heard.load(Ordering::Relaxed) == silence::NEVER
    }

    /// Whether octets have come that nobody has read yet: the peer is not silent then.
    #[cold]
    pub(crate) fn has_unread(&self) -> bool {
        let at_once = Some(Monotonic::from_nanos(0));
        self.stream.readiness().is_some_and(|fd| poll::wait_readable(fd, at_once).unwrap_or(false))
    }

    /// Notes that it is closed for its peer's silence, or after all is not.
    pub(crate) fn set_dismissed(&self, dismissed: bool) {
        self.dismissed.store(dismissed, Ordering::SeqCst);
    }

    /// Whether it is closed for its peer's silence.
    pub(crate) fn is_dismissed(&self) -> bool {
        self.dismissed.load(Ordering::SeqCst)
    }

    /// What it makes its lane hold.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// If the lane holds too much: one of its threads makes room.
    fn ask_for_room(&self) {
        if self.account.budget().ask()
            && let Some(lane) = self.lane.upgrade()
        {
            lane.push(Work::MakeRoom);
        }
    }
}

impl Waiting {
    /// Goes on waiting until the peer has taken the replies that wait for it; gives both back if none do.
    #[inline]
    pub(crate) fn postpone(self, message: Message) -> Option<(Waiting, Message)> {
        if self.connection.is_congested() { self.postpone_locked(message) } else { Some((self, message)) }
    }

    #[cold]
    fn postpone_locked(self, message: Message) -> Option<(Waiting, Message)> {
        let connection = &self.connection;
        let given_back = connection.output.with(|writing| {
            if writing.queue.is_empty() || writing.closing.is_some() || connection.is_closed() {
                return Some(message);
            }
            connection.waiting.fetch_add(1, Ordering::SeqCst);
            writing.postponed.push(Postponed { message, since: self.since });
            None
        });
        given_back.map(|message| (self, message))
    }

    /// It waits no longer, and is served next by the calling thread.
    pub(crate) fn leave(self) -> Arc<Connection> {
        station::set_waited(clock::now().since(self.since));
        Arc::clone(&self.connection)
    }
}

impl std::ops::Deref for Waiting {
    type Target = Arc<Connection>;

    fn deref(&self) -> &Arc<Connection> {
        &self.connection
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Reading paused at a bound; who paused there looks once more after it has given up its turn.
        let connection = &self.connection;
        let mut goes_on = false;
        if let Some(octets) = self.queued {
            goes_on |= connection.queued.fetch_sub(1, Ordering::SeqCst) == connection.bounds.queued;
            let before = connection.queued_octets.fetch_sub(octets, Ordering::SeqCst);
            let bound = connection.bounds.queued_octets;
            goes_on |= before >= bound && before - octets < bound;
        }
        let before = connection.waiting.fetch_sub(1, Ordering::SeqCst);
        goes_on |= before == connection.bounds.waiting || (before == 1 && connection.has_peer_ended());
        if goes_on && let Some(lane) = connection.lane.upgrade() {
            lane.push(Work::Read(connection.place));
        }
    }
}

/// The octets of `message` after the first `sent`.
fn after<'m>(message: &[&'m [u8]], sent: usize) -> impl Iterator<Item = &'m [u8]> {
    let mut skip = sent;
    message.iter().filter_map(move |slice| {
        let here = skip.min(slice.len());
        skip -= here;
        (here < slice.len()).then(|| &slice[here..])
    })
}

#[cfg(test)]
pub(super) mod tests {
    use corelane_net::{Endpoint, Tcp, Transport};

    use super::*;
    use crate::lending::lends;

    /// A connection of no lane, whose peer says nothing.
    pub(in crate::server) fn lone(budget: &Arc<Budget>, mixed: bool) -> Arc<Connection> {
        // Not dropped: the peer would be gone.
        let listener = Box::leak(Tcp::new().listen(&Endpoint::tcp("127.0.0.1", 0)).unwrap());
        Arc::new(Connection::new(
            Tcp::new().connect(listener.local(), None).unwrap(),
            Weak::new(),
            (0, 0),
            Bounds { waiting: 1, queued: 1, queued_octets: 1 },
            Arc::clone(budget),
            Origin {
                number: 0,
                opened: Monotonic::from_nanos(0),
                station: (0, 0),
                ceiling: Priority::MIN,
                in_slices: false,
                marks: false,
                mixed,
            },
        ))
    }

    #[test]
    fn who_waits_to_answer_lends_its_priority_to_who_answers() {
        let connection = lone(&Budget::new(usize::MAX), true);
        let own = Arc::clone(&connection);
        assert!(lends(
            move |held| own.output.with(|_| held()),
            move || {
                let _ = connection.send(b"an answer", Wait::Now);
            }
        ));
    }

    #[test]
    fn silence_from_the_start_is_known_to_less_than_a_second() {
        let connection = lone(&Budget::new(usize::MAX), true);
        let short = Duration::from_millis(10);
        // A second has begun meanwhile.
        assert_eq!(connection.silent_for(2, Monotonic::from_nanos(0) + short), short);
        connection.note_heard(3);
        assert_eq!(connection.silent_for(5, clock::now()), Duration::from_secs(2));
    }
}
