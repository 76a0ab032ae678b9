//! The simulated network between the ORBs. The network delays bytes, splits them, or loses them
//! together with their connection.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use corelane_net::{
    ConnectionProperties, Endpoint, Listener, Peer, ReadinessCallback, ShutdownMode, Stream, Transport, Wait,
};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, Mutex, MutexGuard};

use super::random::Random;

/// Index of the connecting end of a link. [`SERVER`] is the accepting end.
pub(super) const CLIENT: usize = 0;
pub(super) const SERVER: usize = 1;

/// An event in the simulation's agenda. The first number is the link, the caller or the server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AgendaEvent {
    /// Bytes arrive at an end of a link.
    Octets(usize, usize, Vec<u8>),
    /// The other end has shut down its writing direction.
    End(usize, usize),
    /// This end notices that the link is lost.
    Reset(usize, usize),
    /// This end can write again.
    Room(usize, usize),
    /// A server can accept a new connection.
    Accept(usize),
    /// A caller makes its next call.
    Call(usize),
    /// The connection for a call has been made.
    Connect(usize, u64),
    /// The connect time-out of a call passes.
    ConnectTimeOut(usize, u64),
    /// The deadline of a call passes.
    TimeOut(usize, u64),
    /// A caller cancels its call.
    Cancel(usize, u64),
    /// A server's thread finishes its request.
    Finish(usize, usize, usize),
    /// The periodic maintenance runs.
    Tidy(usize),
    /// A server crashes.
    Crash(usize),
    /// A server begins a graceful shutdown.
    Close(usize),
    /// A server starts.
    Start(usize),
    /// The POA manager of a server begins or ends to hold requests.
    Hold(usize, bool),
    /// A peer sends a server bytes that are not GIOP.
    Vandal(usize),
}

/// One end of a link.
#[derive(Default)]
struct LinkEnd {
    arrived: VecDeque<u8>,
    /// Number of bytes in transit to this end. `last_arrival` is the time at which the last of them
    /// arrives.
    coming: usize,
    last_arrival: u64,
    peer_half_closed: bool,
    reset: bool,
    /// True once this end has shut down writing. `closed` is true once it has closed both
    /// directions.
    ended: bool,
    closed: bool,
    sent: u64,
    /// Number of bytes that this end sends before the link is lost.
    breaks_at: u64,
    /// Maximum number of bytes from this end that may be unread at the other end.
    window: usize,
    wants_room: bool,
    report: Option<ReadinessCallback>,
}

/// A simulated connection.
pub(super) struct SimulatedLink {
    ends: [LinkEnd; 2],
    /// The server at the accepting end. `run` is the run of this server.
    pub(super) server: usize,
    pub(super) run: usize,
    /// True if a fault has happened on the link, that is, anything other than a graceful close.
    pub(super) faulty: bool,
    /// The caller that waits for data at the client's end.
    pub(super) reader: Option<usize>,
    /// The client process whose connection pool uses the link.
    pub(super) pool: Option<usize>,
}

/// The state of a server's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortState {
    /// This run of the server accepts connections.
    Open(usize),
    /// Connections are refused.
    Shut,
}

pub(super) struct State {
    pub(super) now: u64,
    pub(super) random: Random,
    order: u64,
    events: BinaryHeap<Reverse<(u64, u64, u64, AgendaEvent)>>,
    pub(super) links: Vec<SimulatedLink>,
    pub(super) ports: HashMap<u16, (usize, PortState)>,
    /// Probability that a new link is lost after some bytes, in percent.
    pub(super) breaking: u64,
    /// Probability that the server does not read from a new link, in percent.
    pub(super) stuck: u64,
    pub(super) latency: u64,
    /// The link to which a client wrote last.
    pub(super) written_to: Option<usize>,
    pub(super) trace: VecDeque<String>,
    /// The server that accepts connections but never answers.
    pub(super) unresponsive: Option<usize>,
    /// True once every call has been made.
    pub(super) finished: bool,
    /// The violation that the simulation found; `None` if it found none.
    pub(super) wrong: Option<String>,
}

/// The network, together with the simulation's agenda.
#[derive(Clone)]
pub(super) struct SimulatedNetwork(Arc<Mutex<State>>);

/// Maximum number of lines of the trace.
const TRACE: usize = 400;

impl State {
    pub(super) fn schedule(&mut self, at: u64, priority: u64, event: AgendaEvent) {
        self.order += 1;
        self.events.push(Reverse((at, priority, self.order, event)));
    }

    pub(super) fn after(&mut self, delay: u64, event: AgendaEvent) {
        self.schedule(self.now + delay, 9, event);
    }

    pub(super) fn say(&mut self, line: fmt::Arguments<'_>) {
        if self.trace.len() >= TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{:>12} {line}", self.now));
    }

    pub(super) fn fail(&mut self, line: fmt::Arguments<'_>) {
        self.say(line);
        self.wrong.get_or_insert_with(|| line.to_string());
    }

    fn delay(&mut self) -> u64 {
        let latency = self.latency;
        self.random.between(latency / 2, latency * 3 / 2)
    }

    /// Schedules an arrival at the end `to`, after all earlier arrivals.
    fn arrive(&mut self, link: usize, to: usize, event: AgendaEvent) {
        let delay = self.delay();
        let at = (self.now + delay).max(self.links[link].ends[to].last_arrival + 1);
        self.links[link].ends[to].last_arrival = at;
        self.schedule(at, 9, event);
    }

    /// Cuts a link. The end `by` notices the cut at once. The other end notices it later, and may
    /// or may not get the bytes in transit.
    pub(super) fn cut(&mut self, link: usize, by: usize) {
        self.links[link].faulty = true;
        self.links[link].ends[by].reset = true;
        let (delay, drops) = (self.delay(), self.random.percent(50));
        self.say(format_args!("link {link} is lost"));
        if drops {
            self.after(delay, AgendaEvent::Reset(link, 1 - by));
        } else {
            self.arrive(link, 1 - by, AgendaEvent::Reset(link, 1 - by));
        }
        self.after(delay, AgendaEvent::Reset(link, by));
    }

    fn send(&mut self, link: usize, from: usize, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let to = 1 - from;
        let held = self.links[link].ends[to].coming + self.links[link].ends[to].arrived.len();
        let end = &mut self.links[link].ends[from];
        if end.reset || end.ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let room = end.window.saturating_sub(held);
        let left = usize::try_from(end.breaks_at - end.sent).unwrap_or(usize::MAX);
        if left == 0 {
            self.cut(link, from);
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        if room == 0 {
            end.wants_room = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut count = total.min(room).min(left);
        if self.random.percent(20) {
            count = usize::try_from(self.random.between(1, count as u64)).unwrap_or(1);
        }
        self.links[link].ends[from].sent += count as u64;
        let mut octets: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(count).collect();
        self.links[link].ends[to].coming += count;
        // The bytes are split at up to three random positions.
        for _ in 0..self.random.between(0, 3) {
            if octets.len() > 1 {
                let at = usize::try_from(self.random.between(1, octets.len() as u64 - 1)).unwrap_or(1);
                let rest = octets.split_off(at);
                self.arrive(link, to, AgendaEvent::Octets(link, to, octets));
                octets = rest;
            }
        }
        self.arrive(link, to, AgendaEvent::Octets(link, to, octets));
        if from == CLIENT {
            self.written_to = Some(link);
        }
        Ok(count)
    }

    fn recv(&mut self, link: usize, at: usize, buffer: &mut [u8]) -> io::Result<usize> {
        let end = &mut self.links[link].ends[at];
        if end.arrived.is_empty() {
            return match end {
                LinkEnd { closed: true, .. } => Ok(0),
                LinkEnd { reset: true, .. } => Err(io::ErrorKind::ConnectionReset.into()),
                LinkEnd { peer_half_closed: true, .. } => Ok(0),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            };
        }
        let count = buffer.len().min(end.arrived.len());
        for (place, octet) in buffer.iter_mut().zip(end.arrived.drain(..count)) {
            *place = octet;
        }
        if std::mem::take(&mut self.links[link].ends[1 - at].wants_room) {
            let delay = self.delay();
            self.after(delay, AgendaEvent::Room(link, 1 - at));
        }
        Ok(count)
    }

    fn shutdown(&mut self, link: usize, by: usize, half: ShutdownMode) {
        let end = &mut self.links[link].ends[by];
        let unread = half == ShutdownMode::Both && !end.arrived.is_empty();
        let already = std::mem::replace(&mut end.ended, true);
        if half == ShutdownMode::Both {
            end.closed = true;
            end.arrived.clear();
        }
        if unread {
            // The peer gets a reset, as from a kernel, because this end has not read all of the
            // peer's bytes.
            self.arrive(link, 1 - by, AgendaEvent::Reset(link, 1 - by));
        } else if !already {
            self.arrive(link, 1 - by, AgendaEvent::End(link, 1 - by));
        }
    }

    /// Applies an event to the network. Returns the readiness callback of the affected end, if
    /// there is one.
    pub(super) fn happen(&mut self, event: &AgendaEvent) -> Option<ReadinessCallback> {
        let (link, at) = match *event {
            AgendaEvent::Octets(link, at, _)
            | AgendaEvent::End(link, at)
            | AgendaEvent::Reset(link, at)
            | AgendaEvent::Room(link, at) => (link, at),
            _ => return None,
        };
        let forgets = self.random.percent(30);
        let end = &mut self.links[link].ends[at];
        match event {
            AgendaEvent::Octets(_, _, octets) => {
                end.coming -= octets.len();
                if end.closed {
                    if !self.links[link].ends[1 - at].reset {
                        self.arrive(link, 1 - at, AgendaEvent::Reset(link, 1 - at));
                    }
                    return None;
                }
                if !end.reset {
                    end.arrived.extend(octets);
                }
            }
            AgendaEvent::End(..) => end.peer_half_closed = true,
            AgendaEvent::Reset(..) => {
                end.reset = true;
                // Some kernels discard unread bytes at a reset.
                if forgets {
                    end.arrived.clear();
                }
            }
            _ => {}
        }
        end.report.clone()
    }

    /// Returns true if a read at this end would not block.
    pub(super) fn readable(&self, link: usize, at: usize) -> bool {
        let end = &self.links[link].ends[at];
        !end.arrived.is_empty() || end.reset || end.peer_half_closed
    }

    /// Returns true if this end has not closed the link.
    pub(super) fn is_open(&self, link: usize, at: usize) -> bool {
        !self.links[link].ends[at].closed
    }

    fn link(&mut self, server: usize, run: usize) -> usize {
        let (breaking, stuck) = (self.breaking, self.stuck);
        let mut ends = [LinkEnd::default(), LinkEnd::default()];
        for (side, end) in ends.iter_mut().enumerate() {
            end.breaks_at = if self.random.percent(breaking) { self.random.between(1, 3_000) } else { u64::MAX };
            // Only a few links have a server that does not read. A call on such a link ends at the
            // first write that finds no room.
            let wide = side == CLIENT && !self.random.percent(stuck);
            end.window = if wide { usize::MAX } else { usize::try_from(self.random.between(40, 4_000)).unwrap_or(40) };
        }
        self.links.push(SimulatedLink { ends, server, run, faulty: false, reader: None, pool: None });
        self.links.len() - 1
    }

    /// Connects a new link to a server, which accepts it later.
    pub(super) fn connect(&mut self, port: u16) -> io::Result<usize> {
        let Some(&(server, PortState::Open(run))) = self.ports.get(&port) else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        if self.unresponsive == Some(server) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let link = self.link(server, run);
        let delay = self.delay();
        self.links[link].ends[SERVER].last_arrival = self.now + delay;
        self.after(delay, AgendaEvent::Accept(link));
        Ok(link)
    }
}

impl SimulatedNetwork {
    pub(super) fn new(seed: u64) -> Self {
        let state = State {
            now: 1_000_000,
            random: Random::new(seed),
            order: 0,
            events: BinaryHeap::new(),
            links: Vec::new(),
            ports: HashMap::new(),
            breaking: 0,
            stuck: 0,
            latency: 1_000,
            written_to: None,
            trace: VecDeque::new(),
            unresponsive: None,
            finished: false,
            wrong: None,
        };
        SimulatedNetwork(Arc::new(Mutex::new("simulated network", LockScope::Orb, state)))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Returns the next event, and advances the time to it.
    pub(super) fn next(&self) -> Option<AgendaEvent> {
        let mut state = self.state();
        let Reverse((at, _, _, event)) = state.events.pop()?;
        state.now = at;
        crate::clock::set(Some(Monotonic::from_nanos(at)));
        Some(event)
    }

    pub(super) fn stream(&self, link: usize, side: usize) -> Box<dyn Stream> {
        Box::new(SimulatedStream { network: self.clone(), link, side })
    }
}

impl fmt::Debug for SimulatedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedNetwork").finish_non_exhaustive()
    }
}

impl Transport for SimulatedNetwork {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn supports(&self, endpoint: &Endpoint) -> bool {
        matches!(endpoint, Endpoint::Tcp { .. })
    }

    fn connect_with(
        &self,
        endpoint: &Endpoint,
        _properties: &ConnectionProperties,
        _deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        let Endpoint::Tcp { port, .. } = endpoint else { return Err(io::ErrorKind::InvalidInput.into()) };
        let link = self.state().connect(*port)?;
        Ok(self.stream(link, CLIENT))
    }

    fn listen(&self, _endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[derive(Debug)]
struct SimulatedStream {
    network: SimulatedNetwork,
    link: usize,
    side: usize,
}

impl Stream for SimulatedStream {
    fn recv(&self, buffer: &mut [u8], _wait: Wait) -> io::Result<usize> {
        self.network.state().recv(self.link, self.side, buffer)
    }

    fn send_vectored(&self, slices: &[IoSlice<'_>], wait: Wait) -> io::Result<usize> {
        let sent = self.network.state().send(self.link, self.side, slices);
        match sent {
            // A write that may block would wait for room until its time-out, so it fails at once
            // with a time-out.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && wait != Wait::Now => {
                Err(io::ErrorKind::TimedOut.into())
            }
            other => other,
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn set_readiness_callback(&self, report: ReadinessCallback) -> bool {
        self.network.state().links[self.link].ends[self.side].report = Some(Arc::clone(&report));
        report();
        true
    }

    fn set_coarse_timeouts(&self, _receive: Duration, _send: Duration) -> io::Result<()> {
        Ok(())
    }

    fn shutdown(&self, half: ShutdownMode) {
        self.network.state().shutdown(self.link, self.side, half);
    }

    fn peer(&self) -> &Peer {
        &Peer::Unknown
    }

    fn is_peer_local(&self) -> bool {
        true
    }
}

impl Drop for SimulatedStream {
    fn drop(&mut self) {
        self.shutdown(ShutdownMode::Both);
    }
}
