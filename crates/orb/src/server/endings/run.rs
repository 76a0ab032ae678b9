//! A connection over a line of few octets, whose end is taken apart: its requests begin, are held and are answered when the test says so.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_net::{Half, Peer, Report, Stream, Wait};
use corelane_sys::lock::{Mutex, Scope};

use super::*;
use crate::server::config::{Dispatch, PoolConfig};
use crate::server::connection::{Sent, Waiting};
use crate::server::lane::Held;
use crate::server::worker::{Message, Worker};

/// Octets that the line takes before the peer reads.
const ROOM: usize = 40;
const REPLY: usize = 100;
/// A header of GIOP 1.2 with four octets behind it: nobody looks into it here.
const REQUEST: &[u8] = b"GIOP\x01\x02\x01\x00\x04\x00\x00\x00\x00\x00\x00\x00";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// The end of what the peer sends arrives.
    End,
    /// A thread begins with a request, answers it, and is done with it.
    Begin(usize),
    Answer(usize),
    Out(usize),
    /// What the request needs is not there: it waits without a thread, and then has its turn again.
    Hold(usize),
    Again(usize),
    /// The peer reads all that there is, for as long as there is some.
    Read,
    Close,
}
pub(super) use Act::{Again, Answer, Begin, Close, End, Hold, Out, Read};

#[derive(Default)]
pub(super) struct Wire {
    pub(super) incoming: VecDeque<u8>,
    peer_ended: bool,
    /// Sent, and not read by the peer; then what it has read.
    unread: Vec<u8>,
    received: Vec<u8>,
    ended: bool,
    pub(super) closed: bool,
    report: Option<Report>,
}

#[derive(Clone)]
pub(super) struct Line(pub(super) Arc<Mutex<Wire>>);

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

impl Stream for Line {
    fn recv(&self, buffer: &mut [u8], _: Wait) -> io::Result<usize> {
        let mut wire = self.0.lock();
        if wire.incoming.is_empty() {
            return if wire.peer_ended || wire.closed { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let count = buffer.len().min(wire.incoming.len());
        buffer.iter_mut().zip(wire.incoming.drain(..count)).for_each(|(place, octet)| *place = octet);
        Ok(count)
    }

    fn send_vectored(&self, slices: &[IoSlice<'_>], _: Wait) -> io::Result<usize> {
        let mut wire = self.0.lock();
        if wire.ended || wire.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let before = wire.unread.len();
        wire.unread.extend(slices.iter().flat_map(|slice| slice.iter()).take(ROOM - before));
        match wire.unread.len() - before {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            sent => Ok(sent),
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn report_to(&self, report: Report) -> bool {
        self.0.lock().report = Some(Arc::clone(&report));
        report();
        true
    }

    fn set_coarse_timeouts(&self, _: Duration, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn shutdown(&self, half: Half) {
        let mut wire = self.0.lock();
        wire.ended = true;
        wire.closed |= half == Half::Both;
    }

    fn peer(&self) -> &Peer {
        &Peer::Unknown
    }
}

/// What the peer gets for a request.
fn answer_to(request: usize) -> [u8; REPLY] {
    [1 + u8::try_from(request).unwrap(); REPLY]
}

const HOUR: Duration = Duration::from_secs(3600);

/// A lane that acts by itself only when something has happened.
pub(super) fn lane() -> Arc<Lane> {
    lane_with(HOUR)
}

/// The same, whose peers have to take their replies within `output_timeout`.
pub(super) fn lane_with(output_timeout: Duration) -> Arc<Lane> {
    let dispatch = Dispatch::HalfSyncHalfAsync { threads: 2, queue: 16 };
    let config = PoolConfig { dispatch, output_timeout, ..PoolConfig::default() };
    Lane::new(config, Vec::new(), HOUR, None, None).unwrap()
}

/// One connection of a lane, as far as it has come.
pub(super) struct Run<'l> {
    lane: &'l Arc<Lane>,
    core: &'l Arc<Core>,
    worker: Worker,
    pub(super) line: Line,
    pub(super) connection: Weak<Connection>,
    running: [Option<(Held<'l>, Arc<Connection>)>; 2],
    held: [Option<(Waiting, Message)>; 2],
    /// What the peer is to get.
    answers: Vec<u8>,
    begun: usize,
    closed: bool,
}

impl<'l> Run<'l> {
    pub(super) fn new(lane: &'l Arc<Lane>, core: &'l Arc<Core>, requests: usize) -> Self {
        let line = Line(Arc::new(Mutex::new("line", Scope::Connection, Wire::default())));
        line.0.lock().incoming.extend(REQUEST.repeat(requests));
        lane.adopt(core, Box::new(line.clone()));
        let connection = lane.connections.iter().next().map(|connection| Arc::downgrade(&connection));
        let mut run = Run {
            lane,
            core,
            worker: Worker::new(),
            line,
            connection: connection.unwrap(),
            running: [None, None],
            held: [None, None],
            answers: Vec::new(),
            begun: 0,
            closed: false,
        };
        run.work();
        run
    }

    /// What the lane's own threads do.
    pub(super) fn work(&mut self) {
        while self.lane.has_ready() {
            self.lane.step(self.core, &mut self.worker, Some(Duration::ZERO)).unwrap();
        }
    }

    pub(super) fn report(&mut self) {
        let report = self.line.0.lock().report.clone();
        report.unwrap()();
        self.work();
    }

    fn begin(&mut self, request: usize, next: Option<(Waiting, Message)>) {
        let Some((waiting, message)) = next else { return };
        if let Some((held, connection, _)) = self.lane.begin(waiting, message) {
            self.running[request] = Some((held, connection));
            self.begun += 1;
        }
    }

    /// None if it does not run.
    pub(super) fn answer(&self, request: usize) -> Option<Sent> {
        let (_, connection) = self.running[request].as_ref()?;
        Some(connection.send(&answer_to(request), Wait::Now))
    }

    pub(super) fn happen(&mut self, event: Act) {
        match event {
            End => {
                self.line.0.lock().peer_ended = true;
                self.report();
            }
            Begin(request) => {
                let next = self.lane.queue.as_ref().and_then(|queue| queue.try_pop());
                self.begin(request, next);
            }
            Answer(request) => {
                if let Some(sent) = self.answer(request) {
                    assert!(matches!(sent, Sent::All | Sent::Queued), "{sent:?}");
                    self.answers.extend(answer_to(request));
                }
            }
            Out(request) => drop(self.running[request].take()),
            Hold(request) => {
                if let Some((_held, connection)) = self.running[request].take() {
                    self.begun -= 1;
                    let header = corelane_wire::giop::Header::parse(REQUEST.first_chunk().unwrap()).unwrap();
                    self.held[request] =
                        Some((connection.wait(), Message::Assembled(header, REQUEST.to_vec(), vec![])));
                }
            }
            Again(request) => {
                let next = self.held[request].take();
                self.begin(request, next);
            }
            Read => loop {
                let mut wire = self.line.0.lock();
                let Wire { unread, received, .. } = &mut *wire;
                if unread.is_empty() {
                    break;
                }
                received.append(unread);
                drop(wire);
                self.report();
            },
            Close => {
                self.lane.close(self.core);
                self.closed = true;
            }
        }
        self.work();
        if event == Read {
            let received = self.line.0.lock().received.len();
            assert!(received >= self.answers.len(), "what the peer could have does not go on: {received} octets");
        }
    }

    /// The rest, once everything has happened: what was put off runs, and the peer reads.
    pub(super) fn end(&mut self, requests: usize) {
        self.happen(Read);
        while let Some(next) = self.lane.queue.as_ref().and_then(|queue| queue.try_pop()) {
            self.begin(0, Some(next));
            [Answer(0), Out(0), Read].into_iter().for_each(|event| self.happen(event));
        }
        self.happen(Read);
        let wire = self.line.0.lock();
        let (answers, rest) = wire.received.split_at(self.answers.len());
        assert_eq!(answers, self.answers);
        if self.closed {
            assert!(rest.is_empty() || rest == request::close_connection(), "{rest:?}");
            assert!(self.begun == requests || !rest.is_empty(), "who was not answered was not told either");
        } else {
            assert_eq!((self.begun, rest), (requests, &[][..]));
        }
        drop(wire);
        assert_eq!(self.lane.endings.len(), 0, "it has not ended");
        assert!(!self.lane.is_closing(self.core) && self.connection.upgrade().is_none());
    }
}
