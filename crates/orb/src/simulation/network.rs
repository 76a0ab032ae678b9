//! The simulated network, which delays and splits bytes and loses connections, and the agenda of
//! the simulation.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use corelane_net::{
    ConnectionProperties, Endpoint, Listener, Peer, ReadinessCallback, ShutdownDirection, Stream, Transport, WaitLimit,
};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, Mutex, MutexGuard};

use super::random::Random;

pub(super) const CLIENT: usize = 0;
pub(super) const SERVER: usize = 1;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AgendaEvent {
    Octets(usize, usize, Vec<u8>),
    End(usize, usize),
    Reset(usize, usize),
    Room(usize, usize),
    Accept(usize),
    Call(usize),
    Connect(usize, u64),
    ConnectTimeOut(usize, u64),
    TimeOut(usize, u64),
    Cancel(usize, u64),
    /// The fields are the run, the thread and the request.
    Finish(usize, usize, usize),
    Tidy(usize),
    Crash(usize),
    Close(usize),
    Start(usize),
    Hold(usize, bool),
    Vandal(usize),
}

#[derive(Default)]
struct LinkEnd {
    arrived: VecDeque<u8>,
    coming: usize,
    last_arrival: u64,
    peer_half_closed: bool,
    reset: bool,
    ended: bool,
    closed: bool,
    sent: u64,
    /// Number of sent bytes at which the link is lost.
    breaks_at: u64,
    window: usize,
    wants_room: bool,
    report: Option<ReadinessCallback>,
}

pub(super) struct SimulatedLink {
    ends: [LinkEnd; 2],
    pub(super) server: usize,
    pub(super) run: usize,
    pub(super) faulty: bool,
    pub(super) reader: Option<usize>,
    pub(super) pool: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortState {
    Open(usize),
    Shut,
}

pub(super) struct State {
    pub(super) now: u64,
    pub(super) random: Random,
    order: u64,
    /// The events with their times, their ranks, and the numbers of their additions, by which they
    /// are sorted in this order.
    events: BinaryHeap<Reverse<(u64, u64, u64, AgendaEvent)>>,
    pub(super) links: Vec<SimulatedLink>,
    pub(super) ports: HashMap<u16, (usize, PortState)>,
    pub(super) breaking: u64,
    /// Probability, in percent, that a new link accepts few bytes from the client.
    pub(super) stuck: u64,
    pub(super) latency: u64,
    pub(super) written_to: Option<usize>,
    pub(super) trace: VecDeque<String>,
    pub(super) unresponsive: Option<usize>,
    pub(super) finished: bool,
    pub(super) wrong: Option<String>,
}

#[derive(Clone)]
pub(super) struct SimulatedNetwork(Arc<Mutex<State>>);

const TRACE: usize = 400;

impl State {
    /// Adds an event to the agenda. If several events have one time, the event with the lowest
    /// `priority` happens first.
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

    fn arrive(&mut self, link: usize, to: usize, event: AgendaEvent) {
        let delay = self.delay();
        let at = (self.now + delay).max(self.links[link].ends[to].last_arrival + 1);
        self.links[link].ends[to].last_arrival = at;
        self.schedule(at, 9, event);
    }

    /// Cuts a link. The end `by` notices the cut at once, and the other end later. In half of the
    /// cases the bytes in transit are lost.
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

    fn shutdown(&mut self, link: usize, by: usize, direction: ShutdownDirection) {
        let end = &mut self.links[link].ends[by];
        let unread = direction == ShutdownDirection::Both && !end.arrived.is_empty();
        let already = std::mem::replace(&mut end.ended, true);
        if direction == ShutdownDirection::Both {
            end.closed = true;
            end.arrived.clear();
        }
        if unread {
            // A kernel sends a reset if unread bytes are left.
            self.arrive(link, 1 - by, AgendaEvent::Reset(link, 1 - by));
        } else if !already {
            self.arrive(link, 1 - by, AgendaEvent::End(link, 1 - by));
        }
    }

    /// Applies an event to its link. Returns the readiness callback of the end at which the event
    /// happens.
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
                if forgets {
                    end.arrived.clear();
                }
            }
            _ => {}
        }
        end.report.clone()
    }

    pub(super) fn readable(&self, link: usize, at: usize) -> bool {
        let end = &self.links[link].ends[at];
        !end.arrived.is_empty() || end.reset || end.peer_half_closed
    }

    pub(super) fn is_open(&self, link: usize, at: usize) -> bool {
        !self.links[link].ends[at].closed
    }

    fn link(&mut self, server: usize, run: usize) -> usize {
        let (breaking, stuck) = (self.breaking, self.stuck);
        let mut ends = [LinkEnd::default(), LinkEnd::default()];
        for (side, end) in ends.iter_mut().enumerate() {
            end.breaks_at = if self.random.percent(breaking) { self.random.between(1, 3_000) } else { u64::MAX };
            // With the probability `stuck`, the client's end accepts only a few bytes, so that
            // calls on the link may wait until their deadlines.
            let wide = side == CLIENT && !self.random.percent(stuck);
            end.window = if wide { usize::MAX } else { usize::try_from(self.random.between(40, 4_000)).unwrap_or(40) };
        }
        self.links.push(SimulatedLink { ends, server, run, faulty: false, reader: None, pool: None });
        self.links.len() - 1
    }

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

    fn connect_with_properties(
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
    fn recv(&self, buffer: &mut [u8], _wait: WaitLimit) -> io::Result<usize> {
        self.network.state().recv(self.link, self.side, buffer)
    }

    fn send_vectored(&self, slices: &[IoSlice<'_>], wait: WaitLimit) -> io::Result<usize> {
        let sent = self.network.state().send(self.link, self.side, slices);
        match sent {
            // No other code runs during a write, so a write that would wait for room times out at
            // once.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && wait != WaitLimit::Now => {
                Err(io::ErrorKind::TimedOut.into())
            }
            other => other,
        }
    }

    fn readiness_descriptor(&self) -> Option<BorrowedFd<'_>> {
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

    fn shutdown(&self, direction: ShutdownDirection) {
        self.network.state().shutdown(self.link, self.side, direction);
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
        self.shutdown(ShutdownDirection::Both);
    }
}
